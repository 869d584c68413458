//! Precedence: flag over environment over file over default.
//!
//! A [`Scope`] holds, for each key, the value that won and where it came from. A value that was given but is bad
//! holds its place: it neither falls back to a default nor makes a rule complain about its consequences.

use super::backend::Backend;
use super::document::Given;
use super::expand::Environment;
use super::key::{self, KEYS, Key, Presence, VARIABLE_PREFIX};
use super::nearest::nearest;
use super::problem::{Place, Report};
use super::unit::Complaint;
use super::value::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

/// Flags that were given: paths of keys and texts.
pub type Overrides = Vec<(&'static Key, String)>;

/// The values that won.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    given: BTreeMap<&'static str, Given>,
    /// The list that it is one of.
    list: Option<&'static str>,
    /// Where it begins; what is missing is missing there.
    pub(super) place: Place,
}

impl Scope {
    /// The defaults, under what is `given` (later ones win).
    pub(super) fn new(place: Place, list: Option<&'static str>, given: Vec<Given>) -> Self {
        let keys = KEYS.iter().filter(|key| key.list() == list);
        let defaults = keys.filter_map(|key| match key.presence {
            Presence::Default(text) => Some(Given { key, place: Place::Default, value: key.kind.parse(text).ok() }),
            Presence::Required | Presence::Optional => None,
        });
        Self { given: defaults.chain(given).map(|given| (given.key.path, given)).collect(), list, place }
    }

    /// Reports required keys that nobody gave.
    pub(super) fn require(&self, report: &mut Report) {
        for key in KEYS.iter().filter(|key| key.list() == self.list && key.presence == Presence::Required) {
            if !self.given.contains_key(key.path) {
                let what = match self.list {
                    None => "the configuration",
                    Some("volume") => "this volume",
                    Some(_) => "this row",
                };
                report.error(
                    &self.place,
                    Complaint::new(
                        format!("{what} has no {}", key.name()),
                        format!("add {} = {}", key.name(), key.kind.example()),
                    ),
                );
            }
        }
    }

    /// Where the key's value came from.
    pub(super) fn place(&self, path: &str) -> &Place {
        self.given.get(path).map_or(&self.place, |given| &given.place)
    }

    /// Whether somebody gave the key, rather than its default.
    pub(super) fn is_given(&self, path: &str) -> bool {
        self.given.get(path).is_some_and(|given| given.place != Place::Default)
    }

    /// Whether the key was given a bad value.
    pub(super) fn is_bad(&self, path: &str) -> bool {
        self.given.get(path).is_some_and(|given| given.value.is_none())
    }

    fn value(&self, path: &'static str) -> Option<&Value> {
        let key = key::row(path);
        self.given.get(key.path).and_then(|given| given.value.as_ref())
    }
}

/// Reads a key of a known kind; a wrong kind is a bug of the caller.
macro_rules! read {
    ($name:ident, $pattern:pat => $out:expr, $type:ty) => {
        #[doc = "The key's value, unless it is absent or bad."]
        pub(super) fn $name(&self, path: &'static str) -> Option<$type> {
            self.value(path).map(|value| match value {
                $pattern => $out,
                other => panic!("{path} is read as {} but holds {other:?}", stringify!($name)),
            })
        }
    };
}

impl Scope {
    read!(number, Value::Size(n) | Value::Time(n) | Value::Count(n) | Value::Rate(n) => *n, u64);
    read!(flag, Value::Flag(flag) => *flag, bool);
    read!(name, Value::Name(name) => name.as_str(), &str);
    read!(path, Value::Path(path) => path.as_path(), &Path);
    read!(choice, Value::Choice(word) => *word, &'static str);
    read!(backend, Value::Backend(backend) => backend, &Backend);

    /// The address, unless it is absent, bad or "none".
    pub(super) fn address(&self, path: &'static str) -> Option<SocketAddr> {
        self.value(path).and_then(|value| match value {
            Value::Address(address) => *address,
            other => panic!("{path} is read as an address but holds {other:?}"),
        })
    }
}

/// What the environment gives. A `FOREBAY_*` variable that is near a key's, but is not one, is warned of.
pub(super) fn environment(environment: &Environment, report: &mut Report) -> Vec<Given> {
    let keys = || KEYS.iter().filter(|key| key.list().is_none());
    let variables: Vec<_> = keys().map(|key| (key, key.variable())).collect();
    for name in environment.keys() {
        let Some(word) = name.strip_prefix(VARIABLE_PREFIX) else { continue };
        let known = variables.iter().map(|(_, variable)| &variable[VARIABLE_PREFIX.len()..]);
        if let Some(near) = nearest(word, known).filter(|near| *near != word) {
            let remedy = format!("nearest: {VARIABLE_PREFIX}{near}");
            let complaint = Complaint::new("not a variable of Forebay, and ignored", remedy);
            report.warning(&Place::Environment(name.clone()), complaint);
        }
    }
    let given = variables.into_iter().filter_map(|(key, name)| {
        let text = environment.get(&name)?;
        Some(parsed(key, text, Place::Environment(name), report))
    });
    given.collect()
}

/// What the flags give.
pub(super) fn flags(overrides: &Overrides, report: &mut Report) -> Vec<Given> {
    let flags = overrides.iter();
    flags.map(|(key, text)| parsed(key, text, Place::Flag(format!("--{}", key.flag())), report)).collect()
}

fn parsed(key: &'static Key, text: &str, place: Place, report: &mut Report) -> Given {
    let value = key.kind.parse(text).map_err(|complaint| report.error(&place, complaint));
    Given { key, place, value: value.ok() }
}
