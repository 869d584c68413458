//! The file: TOML text to a list of values with their places, and every problem on the way.
//!
//! 1. The TOML parser recovers from errors, so all of them are told, not the first.
//! 2. Each table is walked beside the table of keys; what is not there is unknown, and the nearest key is named.
//! 3. Each value is read as its key's kind.

use super::expand::Environment;
use super::key::{self, Key};
use super::nearest::nearest;
use super::problem::{Place, Report};
use super::unit::Complaint;
use super::value::{Value, type_name};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value that somebody gave.
#[derive(Clone, Debug)]
pub(super) struct Given {
    /// Its key.
    pub(super) key: &'static Key,
    /// Where.
    pub(super) place: Place,
    /// The value; `None` when it is bad, which is in the report already.
    pub(super) value: Option<Value>,
}

/// What the file says.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// Keys outside of volumes.
    pub(super) given: Vec<Given>,
    /// Each `[[volume]]`: where it begins, and its keys.
    pub(super) volumes: Vec<(Place, Vec<Given>)>,
    /// Whether the TOML itself is broken: then nothing is said about what is missing.
    pub(super) broken: bool,
}

/// Reads the file's text.
pub(super) fn read(text: &str, environment: &Environment, report: &mut Report) -> Document {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut walk = Walk { text, environment, report };
    let mut document = Document { broken: !errors.is_empty(), ..Document::default() };
    for error in errors {
        let place = error.span().map_or(Place::WholeFile, |span| walk.place(span.start));
        walk.report.error(&place, syntax(error.message(), &text[error.span().unwrap_or_default()]));
    }
    walk.top(table.get_ref(), &mut document);
    document
}

fn syntax(message: &str, text: &str) -> Complaint {
    let message = message.lines().next().unwrap_or_default().trim_end_matches('.');
    let remedy = match message {
        "duplicate key" => {
            return Complaint::new(format!("\"{text}\" is here for the second time"), "keep one of them");
        }
        message if message.contains("quoted") => "put sizes, times, addresses and paths in quotes",
        _ => "correct the TOML",
    };
    Complaint::new(message, remedy)
}

struct Walk<'a> {
    text: &'a str,
    environment: &'a Environment,
    report: &'a mut Report,
}

impl Walk<'_> {
    fn place(&self, at: usize) -> Place {
        let before = &self.text[..at.min(self.text.len())];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        Place::File { line, column: before[line_start..].chars().count() + 1 }
    }

    fn top(&mut self, table: &DeTable<'_>, document: &mut Document) {
        for (name, value) in table {
            let volumes = match (name.get_ref().as_ref(), value.get_ref()) {
                ("volume", DeValue::Array(volumes)) => volumes,
                ("volume", other) => {
                    let complaint = Complaint::new(
                        format!("{} where a list of volumes belongs", type_name(other)),
                        "begin each volume with [[volume]]",
                    );
                    let place = self.place(name.span().start);
                    self.report.error(&place, complaint);
                    continue;
                }
                _ => {
                    self.member("", name, value, &mut document.given);
                    continue;
                }
            };
            for volume in volumes.iter() {
                let place = self.place(volume.span().start);
                let DeValue::Table(table) = volume.get_ref() else {
                    let found = type_name(volume.get_ref());
                    let complaint =
                        Complaint::new(format!("{found} where a volume belongs"), "begin it with [[volume]]");
                    self.report.error(&place, complaint);
                    continue;
                };
                let mut given = Vec::new();
                self.table("volume", table, &mut given);
                document.volumes.push((place, given));
            }
        }
        document.volumes.sort_by(|a, b| a.0.cmp(&b.0));
    }

    fn table(&mut self, path: &str, table: &DeTable<'_>, given: &mut Vec<Given>) {
        for (name, value) in table {
            self.member(path, name, value, given);
        }
    }

    fn member(
        &mut self,
        table: &str,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        given: &mut Vec<Given>,
    ) {
        let word = name.get_ref().as_ref();
        let path = if table.is_empty() { word.to_owned() } else { format!("{table}.{word}") };
        if let Some(key) = key::find(&path) {
            let place = self.place(value.span().start);
            let value = key.kind.parse_toml(value.get_ref(), self.environment);
            let value = value.map_err(|complaint| {
                let problem = format!("{}: {}", key.path, complaint.problem);
                self.report.error(&place, Complaint { problem, ..complaint });
            });
            given.push(Given { key, place, value: value.ok() });
            return;
        }
        match value.get_ref() {
            DeValue::Table(inner) if key::is_table(&path) => self.table(&path, inner, given),
            other if key::is_table(&path) => {
                let complaint = Complaint::new(
                    format!("{path}: {} where a table belongs", type_name(other)),
                    format!("write [{path}] and its keys below it"),
                );
                let place = self.place(name.span().start);
                self.report.error(&place, complaint);
            }
            _ => {
                let place = self.place(name.span().start);
                self.report.error(&place, unknown(table, word));
            }
        }
    }
}

/// The complaint about an unknown key: its nearest neighbour in the same table, else the same word in another one.
fn unknown(table: &str, word: &str) -> Complaint {
    let problem = match table {
        "" => format!("unknown key \"{word}\""),
        "volume" => format!("unknown key \"{word}\" in [[volume]]"),
        _ => format!("unknown key \"{word}\" in [{table}]"),
    };
    let elsewhere = || {
        let last_names = key::KEYS.iter().map(Key::name);
        let name = nearest(word, last_names)?;
        key::KEYS.iter().find(|key| key.name() == name)
    };
    let remedy = if let Some(name) = nearest(word, key::members(table)) {
        format!("nearest: \"{name}\"")
    } else if let Some(key) = elsewhere() {
        format!("nearest: \"{}\" in {}", key.name(), header(key.table()))
    } else {
        let members: Vec<_> = key::members(table).collect();
        format!("known here: {}", members.join(", "))
    };
    Complaint::new(problem, remedy)
}

fn header(table: &str) -> String {
    if table == "volume" { "[[volume]]".into() } else { format!("[{table}]") }
}
