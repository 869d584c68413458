//! The file of the gateway's keys: the store's, and its clients' with what they may do.
//!
//! Why a file of its own: a configuration is shown, kept in version control and read by many; secrets are not. One that others may read is
//! refused. No message shows a secret, nor text of the file that may be one.
//!
//! ```toml
//! [store]
//! access_key = "FOREBAY"
//! secret_key = "..."
//! [[client]]
//! access_key = "ALICE"
//! secret_key = "..."
//! grants = ["read *", "write uploads/alice/"]
//! ```

use super::unit::{Complaint, size};
use forebay_objects::{Access, Client, Grant};
use forebay_s3::VerifyConfig;
use forebay_signature::{Secret, StoreKey};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use toml::{Table, Value};

const FILE_BYTES_MAX: u64 = 4 << 20;
const REGION: &str = "us-east-1";
/// Who may read or change the file, beside its owner, and read it in its group.
const OTHERS: u32 = 0o027;

/// Reads the file of a gateway that verifies.
///
/// # Errors
/// When it cannot be read, others may read it, or something in it is wrong.
pub(super) fn read(path: &Path) -> Result<VerifyConfig, Complaint> {
    read_with(path, |table| Ok(VerifyConfig { store: store(table)?, clients: clients(table)? }))
}

/// Reads that of one that only needs a key at the store.
///
/// # Errors
/// As [`read`].
pub(super) fn read_store(path: &Path) -> Result<StoreKey, Complaint> {
    read_with(path, store)
}

fn read_with<T>(path: &Path, of: impl FnOnce(&Table) -> Result<T, Complaint>) -> Result<T, Complaint> {
    let shown = path.display();
    let refused = |error: std::io::Error| {
        Complaint::new(format!("{shown} cannot be read: {error}"), "name a file of keys that this user may read")
    };
    let file = File::open(path).map_err(refused)?;
    let mode = file.metadata().map_err(refused)?.permissions().mode();
    if mode & OTHERS != 0 {
        let problem = format!("{shown} holds secrets and others may read or change it (mode {:o})", mode & 0o777);
        return Err(Complaint::new(problem, format!("chmod 600 {shown}")));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(refused)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let problem = format!("{shown} is larger than {}", size(FILE_BYTES_MAX));
        return Err(Complaint::new(problem, "name a file of keys"));
    }
    let found = parse(&text).and_then(|table| of(&table));
    found.map_err(|complaint| Complaint::new(format!("{shown}: {}", complaint.problem), complaint.remedy))
}

fn parse(text: &str) -> Result<Table, Complaint> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        // Its own words may have a secret in them.
        let line = text[..error.span().map_or(0, |span| span.start)].lines().count().max(1);
        Complaint::new(format!("line {line} is no TOML"), "correct it")
    })?;
    only(&table, "", &["store", "client"])?;
    Ok(table)
}

fn store(table: &Table) -> Result<StoreKey, Complaint> {
    let store = table.get("store").and_then(Value::as_table);
    let store = store.ok_or_else(|| missing("[store]", "access_key and secret_key, which the store knows"))?;
    only(store, "store.", &["access_key", "secret_key", "region"])?;
    let region = if store.contains_key("region") { text_of(store, "store.", "region")? } else { REGION };
    let key = StoreKey::new(text_of(store, "store.", "access_key")?, secret(store, "store.")?, region);
    key.map_err(|error| Complaint::new(format!("[store]: {error}"), "write them as the store has them"))
}

fn clients(table: &Table) -> Result<BTreeMap<String, Client>, Complaint> {
    let clients = match table.get("client") {
        Some(Value::Array(clients)) if !clients.is_empty() => clients,
        _ => return Err(missing("[[client]]", "one for each key pair that may come in")),
    };
    let mut known = BTreeMap::new();
    for (at, found) in clients.iter().enumerate() {
        let place = format!("client {}: ", at + 1);
        let found = found.as_table().ok_or_else(|| missing("[[client]]", "tables, one for each key pair"))?;
        let (access_key, client) = client(found, &place)?;
        if known.insert(access_key.clone(), client).is_some() {
            let problem = format!("{place}the access key \"{access_key}\" is here for the second time");
            return Err(Complaint::new(problem, "keep one of them, with the grants of both"));
        }
    }
    Ok(known)
}

fn client(table: &Table, place: &str) -> Result<(String, Client), Complaint> {
    only(table, place, &["access_key", "secret_key", "grants"])?;
    let access_key = text_of(table, place, "access_key")?.to_owned();
    let Some(Value::Array(grants)) = table.get("grants") else {
        return Err(missing(&format!("{place}grants"), "a list such as [\"read *\", \"write bucket/prefix/\"]"));
    };
    let grants = grants.iter().map(|it| it.as_str().and_then(grant).ok_or(it)).collect::<Result<Vec<_>, _>>();
    let grants = grants.map_err(|wrong| {
        let remedy = "write \"read BUCKET\", \"write BUCKET/PREFIX\"; * stands for any letters of a bucket's name";
        Complaint::new(format!("{place}the grant {wrong} is none"), remedy)
    })?;
    Ok((access_key, Client { secret: secret(table, place)?, grants }))
}

/// `read BUCKETS/PREFIX`.
fn grant(text: &str) -> Option<Grant> {
    let (access, names) = text.split_once(' ')?;
    let access = match access {
        "read" => Access::Read,
        "write" => Access::Write,
        _ => return None,
    };
    let (buckets, prefix) = names.split_once('/').unwrap_or((names, ""));
    let is_letter = |it: u8| it.is_ascii_alphanumeric() || b"-_.*".contains(&it);
    let is_name = !buckets.is_empty() && buckets.bytes().all(is_letter);
    is_name.then(|| Grant { buckets: buckets.into(), prefix: prefix.as_bytes().into(), access })
}

fn only(table: &Table, place: &str, known: &[&str]) -> Result<(), Complaint> {
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => {
            let problem = format!("{place}{key} is unknown");
            Err(Complaint::new(problem, format!("there are {}", known.join(", "))))
        }
    }
}

fn missing(what: &str, of: &str) -> Complaint {
    Complaint::new(format!("{what} is missing"), format!("add {of}"))
}

fn text_of<'a>(table: &'a Table, place: &str, key: &str) -> Result<&'a str, Complaint> {
    table.get(key).and_then(Value::as_str).ok_or_else(|| missing(&format!("{place}{key}"), "it, in quotes"))
}

fn secret(table: &Table, place: &str) -> Result<Secret, Complaint> {
    let secret = Secret::new(text_of(table, place, "secret_key")?);
    secret.map_err(|error| Complaint::new(format!("{place}{error}"), "write the key pair's secret"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn config(text: &str) -> Result<VerifyConfig, Complaint> {
        let table = parse(text)?;
        Ok(VerifyConfig { store: store(&table)?, clients: clients(&table)? })
    }

    const STORE: &str = "[store]\naccess_key = \"S\"\nsecret_key = \"hush\"\n";

    fn client(lines: &str) -> String {
        format!("{STORE}[[client]]\naccess_key = \"A\"\nsecret_key = \"hush\"\n{lines}\n")
    }

    #[test]
    fn keys_have_grants() {
        let config = config(&client("grants = [\"read *\", \"write logs-*/a/b\"]")).expect("sound");
        let grants = &config.clients["A"].grants;
        assert_eq!((&*grants[0].buckets, &*grants[0].prefix, grants[0].access), ("*", &b""[..], Access::Read));
        assert_eq!((&*grants[1].buckets, &*grants[1].prefix, grants[1].access), ("logs-*", &b"a/b"[..], Access::Write));
        assert_eq!(config.clients["A"].secret, Secret::new("hush").expect("a secret"));
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    fn what_is_wrong_is_told_without_a_secret() {
        let grants = "grants = []";
        for (text, said) in [
            (String::new(), "[store] is missing"),
            (STORE.to_owned(), "[[client]] is missing"),
            ("[store]\naccess_key = \"S\"\nsecret_key = hush\n".to_owned(), "line 3 is no TOML"),
            ("[store]\naccess_key = \"S\"\nsecret_key = 7\n".to_owned(), "store.secret_key is missing"),
            ("[store]\naccess_key = \"S/\"\nsecret_key = \"hush\"\n".to_owned(), "[store]: an access key is"),
            ("[other]\nhush = 1\n".to_owned(), "other is unknown"),
            (client(""), "client 1: grants is missing"),
            (client("grants = [\"own *\"]"), "client 1: the grant \"own *\" is none"),
            (client("grants = [\"read \"]"), "client 1: the grant \"read \" is none"),
            (client("grants = [\"read a b\"]"), "client 1: the grant \"read a b\" is none"),
            (client("grants = []\nmore = 1"), "client 1: more is unknown"),
            (
                client(&format!("{grants}\n[[client]]\naccess_key = \"A\"\nsecret_key = \"hush\"\n{grants}")),
                "second time",
            ),
            (
                client(&format!("{grants}\n[[client]]\naccess_key = \"B\"\nsecret_key = \"\"\n{grants}")),
                "client 2: a secret",
            ),
        ] {
            let complaint = config(&text).expect_err("refused");
            assert!(complaint.problem.contains(said), "{complaint:?}");
            assert!(!format!("{complaint:?}").contains("hush"), "{complaint:?}");
        }
    }

    #[test]
    fn who_only_reads_from_the_store_needs_no_clients() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(STORE.as_bytes()).expect("written");
        let key = StoreKey::new("S", Secret::new("hush").expect("a secret"), REGION).expect("a key");
        assert_eq!(read_store(file.path()).expect("sound"), key);
        assert!(read(file.path()).expect_err("refused").problem.contains("[[client]] is missing"));
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(client("grants = []").as_bytes()).expect("written");
        for (mode, is_sound) in [(0o600, true), (0o640, true), (0o644, false), (0o660, false), (0o601, false)] {
            file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).expect("set");
            assert_eq!(read(file.path()).is_ok(), is_sound, "{mode:o}");
        }
        assert!(read(Path::new("/nonexistent/keys")).expect_err("refused").problem.contains("cannot be read"));
    }
}
