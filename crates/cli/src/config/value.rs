//! The kinds of values, and how a text or a TOML value becomes one.
//!
//! Environment and flags give texts, the file gives TOML values; both end in [`Kind::parse`], so that a value means
//! the same wherever it is written.

use super::backend::{Backend, SOCKET_PATH_BYTES_MAX};
use super::expand::{Environment, expand};
use super::nearest::nearest;
use super::unit::{Complaint, parse_rate, parse_size, parse_time, size, time};
use std::net::SocketAddr;
use std::path::PathBuf;
use toml::de::DeValue;

/// What a key takes. Ranges include both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes: "64KiB", or a plain number.
    Size(u64, u64),
    /// Bytes a second: "200MB/s".
    Rate,
    /// Nanoseconds: "30s".
    Time(u64, u64),
    /// A plain number.
    Count(u64, u64),
    /// true or false.
    Flag,
    /// Any text of so many bytes, without control characters.
    Name(usize, usize),
    /// A path.
    Path,
    /// The path of a unix socket.
    Socket,
    /// IP address and port, or "none".
    Address,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// See [`Backend`].
    Backend,
}

/// A value of the kind of the same name; sizes and rates in bytes, times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Size(u64),
    Rate(u64),
    Time(u64),
    Count(u64),
    Flag(bool),
    Name(String),
    Path(PathBuf),
    Address(Option<SocketAddr>),
    Choice(&'static str),
    Backend(Backend),
}

impl Kind {
    /// The value that `text` writes.
    ///
    /// # Errors
    /// When it writes none of this kind.
    pub fn parse(self, text: &str) -> Result<Value, Complaint> {
        match self {
            Self::Size(min, max) => within(parse_size(text)?, min, max, text, size).map(Value::Size),
            Self::Rate => within(parse_rate(text)?, 1, u64::MAX, text, size).map(Value::Rate),
            Self::Time(min, max) => within(parse_time(text)?, min, max, text, time).map(Value::Time),
            Self::Count(min, max) => {
                let number = text.parse().map_err(|_| {
                    Complaint::new(
                        format!("\"{text}\" is not a whole number"),
                        format!("write one from {min} to {max}"),
                    )
                })?;
                within(number, min, max, text, |number| number.to_string()).map(Value::Count)
            }
            Self::Flag => text
                .parse()
                .map(Value::Flag)
                .map_err(|_| Complaint::new(format!("\"{text}\" is neither true nor false"), "write true or false")),
            Self::Name(min, max) => name(text, min, max),
            Self::Path if text.is_empty() => {
                Err(Complaint::new("the path is empty", "name a file or leave the key out"))
            }
            Self::Path => Ok(Value::Path(PathBuf::from(text))),
            Self::Socket => socket(text),
            Self::Address if text == "none" => Ok(Value::Address(None)),
            Self::Address => text.parse().map(|address| Value::Address(Some(address))).map_err(|_| {
                Complaint::new(
                    format!("\"{text}\" is not an address"),
                    "write an IP address and a port, such as \"127.0.0.1:10809\" or \"[::1]:10809\"",
                )
            }),
            Self::Choice(words) => choice(text, words),
            Self::Backend => Backend::parse(text).map(Value::Backend),
        }
    }

    /// The value that a TOML value writes.
    ///
    /// # Errors
    /// When it writes none of this kind.
    pub fn parse_toml(self, value: &DeValue<'_>, environment: &Environment) -> Result<Value, Complaint> {
        match (self, value) {
            // A number or flag may come from a variable, and is in quotes then.
            (Self::Count(..) | Self::Flag, DeValue::String(text)) if !text.contains("${") => {
                Err(self.wrong_type("a text"))
            }
            (_, DeValue::String(text)) => self.parse(&expand(text, environment)?),
            (Self::Size(..) | Self::Time(..) | Self::Count(..), DeValue::Integer(number)) if number.radix() == 10 => {
                self.parse(number.as_str())
            }
            (Self::Flag, DeValue::Boolean(flag)) => Ok(Value::Flag(*flag)),
            (_, other) => Err(self.wrong_type(type_name(other))),
        }
    }

    fn wrong_type(self, found: &str) -> Complaint {
        Complaint::new(format!("{found} where {} belongs", self.describe()), format!("write {}", self.example()))
    }

    /// What it takes, in words.
    #[must_use]
    pub fn describe(self) -> String {
        match self {
            Self::Size(0, u64::MAX) => "a size".into(),
            Self::Size(min, u64::MAX) => format!("a size (at least {})", size(min)),
            Self::Size(min, max) => format!("a size ({} to {})", size(min), size(max)),
            Self::Rate => "a rate".into(),
            Self::Time(min, max) => format!("a time ({} to {})", time(min), time(max)),
            Self::Count(min, max) => format!("a number ({min} to {max})"),
            Self::Flag => "true or false".into(),
            Self::Name(min, max) => format!("a text of {min} to {max} bytes"),
            Self::Path => "a path".into(),
            Self::Socket => format!("the path of a unix socket (at most {SOCKET_PATH_BYTES_MAX} bytes)"),
            Self::Address => "an IP address and port, or \"none\"".into(),
            Self::Choice(words) => format!("one of {}", quoted(words)),
            Self::Backend => "a back end's address or path".into(),
        }
    }

    /// A value as it would stand in the file.
    #[must_use]
    pub fn example(self) -> &'static str {
        match self {
            Self::Size(..) => "\"64KiB\"",
            Self::Rate => "\"200MB/s\"",
            Self::Time(..) => "\"30s\"",
            Self::Count(..) => "a number without quotes",
            Self::Flag => "true or false, without quotes",
            Self::Name(..) => "a text in quotes",
            Self::Path | Self::Socket => "a path in quotes",
            Self::Address => "\"127.0.0.1:10809\"",
            Self::Choice(_) => "one of the words in quotes",
            Self::Backend => "\"nbd://HOST/EXPORT\" or a path in quotes",
        }
    }
}

fn within(number: u64, min: u64, max: u64, text: &str, show: impl Fn(u64) -> String) -> Result<u64, Complaint> {
    let (problem, bound) = match number {
        number if number < min => ("is too small", min),
        number if number > max => ("is too large", max),
        _ => return Ok(number),
    };
    let which = if bound == min { "at least" } else { "at most" };
    Err(Complaint::new(format!("{text} {problem}"), format!("write {which} {}", show(bound))))
}

fn name(text: &str, min: usize, max: usize) -> Result<Value, Complaint> {
    if text.len() < min {
        return Err(Complaint::new("the name is empty", format!("give one of {min} to {max} bytes")));
    }
    if text.len() > max {
        let length = text.len();
        return Err(Complaint::new(format!("the name is {length} bytes long"), format!("shorten it to {max}")));
    }
    if text.chars().any(char::is_control) {
        return Err(Complaint::new(format!("the name {text:?} has control characters"), "leave them out"));
    }
    Ok(Value::Name(text.to_owned()))
}

fn socket(text: &str) -> Result<Value, Complaint> {
    if text.len() > SOCKET_PATH_BYTES_MAX {
        return Err(Complaint::new(
            format!("the socket's path is {} bytes long", text.len()),
            format!("the kernel takes {SOCKET_PATH_BYTES_MAX}: choose a shorter one"),
        ));
    }
    Kind::Path.parse(text)
}

fn choice(text: &str, words: &'static [&'static str]) -> Result<Value, Complaint> {
    if let Some(word) = words.iter().find(|word| **word == text) {
        return Ok(Value::Choice(word));
    }
    let remedy = match nearest(text, words.iter().copied()) {
        Some(word) => format!("nearest: \"{word}\" (one of {})", quoted(words)),
        None => format!("choose one of {}", quoted(words)),
    };
    Err(Complaint::new(format!("\"{text}\" is not known here"), remedy))
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

/// A TOML type as people call it.
#[must_use]
pub(super) fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_NS: u64 = 60_000_000_000;

    #[test]
    fn values_out_of_range_name_the_bound() {
        for (kind, text, remedy) in [
            (Kind::Size(4096, 1 << 18), "1KiB", "write at least 4KiB"),
            (Kind::Size(4096, 1 << 18), "1MiB", "write at most 256KiB"),
            (Kind::Time(1, MINUTE_NS), "2h", "write at most 1m"),
            (Kind::Count(1, 64), "0", "write at least 1"),
            (Kind::Rate, "0B/s", "write at least 1B"),
        ] {
            assert_eq!(kind.parse(text).expect_err(text).remedy, remedy);
        }
    }

    #[test]
    fn an_unknown_word_comes_with_the_nearest() {
        let kind = Kind::Choice(&["through", "around"]);
        assert_eq!(
            kind.parse("trough").expect_err("a slip").remedy,
            "nearest: \"through\" (one of \"through\", \"around\")"
        );
        assert!(kind.parse("x").expect_err("far off").remedy.starts_with("choose one of"));
    }

    #[test]
    fn a_flag_or_number_in_quotes_must_come_from_a_variable() {
        let environment = Environment::from([("N".into(), "3".into())]);
        let of = |kind: Kind, text: &'static str| kind.parse_toml(&DeValue::String(text.into()), &environment);
        assert_eq!(of(Kind::Count(1, 9), "${N}"), Ok(Value::Count(3)));
        assert_eq!(of(Kind::Flag, "${F:-true}"), Ok(Value::Flag(true)));
        assert_eq!(of(Kind::Count(1, 9), "3").expect_err("quoted").problem, "a text where a number (1 to 9) belongs");
    }
}
