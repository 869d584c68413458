//! The gateway's section.

use super::*;

#[test]
fn a_gateway_needs_no_volume() {
    let settings = sound("[s3]\nlisten = \"127.0.0.1:9000\"\nbackend = \"http://store:9000\"\n");
    let s3 = settings.s3.as_ref().expect("a gateway");
    assert_eq!((s3.metadata_ttl_ns, s3.connections_max, s3.timeout_ns), (0, 1024, 30_000_000_000));
    assert!(settings.volumes.is_empty() && settings.budget().s3_frames > 0);
    assert_eq!(sound(SOUND).budget().s3_frames, 0);
}

#[test]
fn a_gateway_that_cannot_work_is_told_why() {
    let gateway = |lines: &str| format!("[s3]\nlisten = \"127.0.0.1:9000\"\n{lines}\n");
    for (text, said) in [
        (gateway(""), "f.toml:2:10: the gateway has no store behind it; add backend = \"http://HOST:PORT\" to [s3]\n"),
        (
            gateway("backend = \"ftp://store\""),
            "f.toml:3:11: the store's address \"ftp://store\" is none; write it as \"http://host:port\" or \"https://host:port\"\n",
        ),
        (
            gateway("backend = \"http://s:1\"\n[admin]\nlisten = \"127.0.0.1:9000\""),
            "f.toml:5:10: 127.0.0.1:9000 is taken by s3.listen (127.0.0.1:9000); give one of them another port\n",
        ),
        (
            gateway("backend = \"http://s:1\"\nsignature = \"verify\""),
            "f.toml:4:13: the gateway has no keys to verify with; name their file in s3.keys\n",
        ),
        (
            gateway("backend = \"http://s:1\"\nbackend_ca = \"/ca\""),
            "f.toml:4:14: authorities are of no use before a store without TLS; write s3.backend with https://, or remove this\n",
        ),
        (
            gateway("backend = \"https://s:1\"\nbackend_ca = \"/dev/null\""),
            "f.toml:4:14: /dev/null has no certificates in it; name a PEM file with the certificates of authorities\n",
        ),
        (
            gateway("backend = \"http://s:1\"\nkeys = \"/k\""),
            "f.toml:4:8: keys are of no use to a gateway that forwards signatures, and does not split; set signature = \"verify\" or s3.split.policy, or remove this\n",
        ),
        (
            gateway("backend = \"http://s:1\"\nsignature = \"verify\"\nkeys = \"/nonexistent/k\""),
            "f.toml:5:8: /nonexistent/k cannot be read: No such file or directory (os error 2); name a file of keys that this user may read\n",
        ),
        (
            above("s3.metadata_ttl = \"1s\""),
            "f.toml:1:19: s3.metadata_ttl without a gateway; add listen to [s3], or remove this\n",
        ),
        (
            gateway(
                "backend = \"http://s:1\"\n[[volume]]\nname = \"s3:x\"\nbackend = \"memory:1GiB\"\n[listen]\nunix=\"/s\"",
            ),
            "f.toml:5:8: \"s3:x\" reads as an object's name; choose another name\n",
        ),
        (
            gateway("backend = \"http://s:1\"\n[[volume]]\nname = \"x\"\nbackend = \"memory:1GiB\""),
            "f.toml: the server listens nowhere; add unix = \"/run/forebay/nbd.sock\" or tcp to [listen]\n",
        ),
    ] {
        expect(&text, said);
    }
}

const GATEWAY: &str = "[s3]\nlisten = \"127.0.0.1:9000\"\nbackend = \"http://s:1\"\n";

#[test]
fn policies_are_read_in_their_order() {
    let settings = sound(&format!(
        "{GATEWAY}[[s3.policy]]\nmatch = \"b/*.tmp\"\ncache = false\n\
         [[s3.policy]]\nmatch = \"b\"\nmetadata_ttl = \"1s\"\nwrite = \"through\"\n"
    ));
    let policies = &settings.s3.as_ref().expect("a gateway").policies;
    let said: Vec<_> = policies.iter().map(|row| (row.cache, row.metadata_ttl_ns, row.write)).collect();
    let through = Some(forebay_objects::WriteMode::Through);
    assert_eq!(said, [(Some(false), None, None), (None, Some(1_000_000_000), through)]);
}

#[test]
fn a_policy_that_cannot_work_is_told_why() {
    let policy = |lines: &str| format!("{GATEWAY}[[s3.policy]]\n{lines}\n");
    for (text, said) in [
        (policy("cache = true"), "f.toml:4:1: this row has no match; add match = a text in quotes\n"),
        (
            policy("match = \"/x\"\ncache = true"),
            "f.toml:5:9: \"/x\" names no objects; write BUCKET or BUCKET/KEY, such as \"logs/2030/*\"\n",
        ),
        (policy("match = \"b\""), "f.toml:4:1: this policy says nothing; give cache, metadata_ttl or write\n"),
        (
            policy("match = \"b\"\ncache = false\nwrite = \"through\""),
            "f.toml:7:9: what is not cached cannot be kept on its way; remove write or cache\n",
        ),
        (
            policy("match = \"b\"\ncache = true\npin = true"),
            "f.toml:7:1: unknown key \"pin\" in [[s3.policy]]; known here: match, cache, metadata_ttl, write\n",
        ),
        (
            format!("{GATEWAY}[s3.policy]\nmatch = \"b\""),
            "f.toml:4:5: a table where a list of tables belongs; begin each table with [[s3.policy]]\n",
        ),
        (
            above("[[s3.policy]]\nmatch = \"b\"\ncache = true"),
            "f.toml:1:1: a policy without a gateway; add listen to [s3], or remove this\n",
        ),
    ] {
        expect(&text, said);
    }
    let many = policy("match = \"b\"\ncache = true").replace(GATEWAY, "").repeat(65);
    expect(
        &format!("{GATEWAY}{many}"),
        "f.toml:196:1: 65 policies are more than 64; each is looked at for each request: join some with `*`\n",
    );
}

#[test]
fn a_split_is_for_who_has_a_key_at_the_store() {
    use std::io::Write;
    let mut keys = tempfile::NamedTempFile::new().expect("a file");
    let key = "access_key = \"A\"\nsecret_key = \"hush\"\n";
    write!(keys, "[store]\n{key}[[client]]\n{key}grants = [\"read *\"]\n").expect("written");
    let verify = format!("signature = \"verify\"\nkeys = {:?}\n", keys.path());
    let split = |lines: &str| format!("{GATEWAY}{verify}[s3.split]\n{lines}\n");
    let s3 = |text: &str| sound(text).s3.clone().expect("a gateway");
    assert_eq!(s3(&format!("{GATEWAY}{verify}")).split, forebay_core::SplitConfig::default());
    let settings = sound(&split("policy = \"static\"\ndisk_percent = 70\nbackend_bytes_per_second_max = \"10MiB/s\""));
    let is = settings.s3.as_ref().expect("a gateway").split;
    assert_eq!(is.kind, forebay_core::SplitKind::Static { disk_permil: 700 });
    assert_eq!(is.backend_bytes_per_second_max, 10 << 20);
    assert_eq!(settings.limits.cache.backend_timeout_ns, 30_000_000_000, "the store is a back end now");
    let own = s3(&format!("{GATEWAY}keys = {:?}\n[s3.split]\npolicy = \"climb\"\n", keys.path()));
    assert_eq!((own.split.kind, own.verify.is_some()), (forebay_core::SplitKind::Climb, false));
    assert!(own.split_key.is_some() && settings.s3.as_ref().is_some_and(|it| it.split_key.is_some()));
    let forward = format!("{GATEWAY}[s3.split]\npolicy = \"expected-delay\"\n");
    assert_eq!(s3(&forward).split.kind, forebay_core::SplitKind::Off);
    for (text, problem) in [
        (
            forward,
            "f.toml:5:10: warning: without a key of its own at the store the gateway leaves every hit to the cache disk",
        ),
        (split("policy = \"static\""), "needs its share"),
        (split("policy = \"netcas\""), "expected-delay"),
        (above("s3.split.policy = \"climb\""), "s3.split.policy without a gateway"),
    ] {
        let said = said(&text, &Environment::new());
        assert!(said.contains(problem), "{said}");
    }
}
