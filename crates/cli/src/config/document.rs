//! The file: TOML text to a list of values with their places, and every problem on the way.
//!
//! 1. The TOML parser recovers from errors, so all of them are told, not the first.
//! 2. Each table is walked beside the table of keys; what is not there is unknown, and the nearest key is named.
//! 3. Each value is read as its key's kind.

use super::expand::Environment;
use super::key::{self, Key, LISTS};
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

/// A table that may be there several times.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Which of [`LISTS`] it is one of.
    pub(super) list: &'static str,
    /// Where it begins.
    pub(super) place: Place,
    /// Its keys.
    pub(super) given: Vec<Given>,
}

/// What the file says.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// Keys outside of lists.
    pub(super) given: Vec<Given>,
    /// Each `[[volume]]` and other table of [`LISTS`], in the file's order.
    pub(super) entries: Vec<Entry>,
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
        self.table("", table, document);
        document.entries.sort_by(|a, b| a.place.cmp(&b.place));
    }

    /// A table of a list, again and again.
    fn list(&mut self, list: &'static str, name: Place, value: &DeValue<'_>, document: &mut Document) {
        let (several, one) = if list == "volume" { ("volumes", "volume") } else { ("tables", "table") };
        let DeValue::Array(entries) = value else {
            let problem = format!("{} where a list of {several} belongs", type_name(value));
            self.report.error(&name, Complaint::new(problem, format!("begin each {one} with [[{list}]]")));
            return;
        };
        for entry in entries.iter() {
            let place = self.place(entry.span().start);
            let DeValue::Table(table) = entry.get_ref() else {
                let problem = format!("{} where a {one} belongs", type_name(entry.get_ref()));
                self.report.error(&place, Complaint::new(problem, format!("begin it with [[{list}]]")));
                continue;
            };
            let mut inside = Document::default();
            self.table(list, table, &mut inside);
            document.entries.push(Entry { list, place, given: inside.given });
        }
    }

    fn table(&mut self, path: &str, table: &DeTable<'_>, document: &mut Document) {
        for (name, value) in table {
            self.member(path, name, value, document);
        }
    }

    fn member(
        &mut self,
        table: &str,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        document: &mut Document,
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
            document.given.push(Given { key, place, value: value.ok() });
            return;
        }
        if let Some(list) = LISTS.iter().find(|list| **list == path) {
            let place = self.place(name.span().start);
            return self.list(list, place, value.get_ref(), document);
        }
        match value.get_ref() {
            DeValue::Table(inner) if key::is_table(&path) => self.table(&path, inner, document),
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
        _ => format!("unknown key \"{word}\" in {}", header(table)),
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
    if LISTS.contains(&table) { format!("[[{table}]]") } else { format!("[{table}]") }
}
