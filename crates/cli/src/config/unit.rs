//! Sizes, rates and times as people write them: "64KiB", "200MB/s", "30s".
//!
//! Binary units (KiB, MiB, GiB, TiB) and decimal ones (KB, MB, GB, TB) are both known and never confused; a bare "64K"
//! means either, depending on whom one asks, and is refused. Rejected: fractions ("1.5GiB"): the next smaller unit
//! says the same without rounding.

/// Why a text is not a value, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl Complaint {
    /// A complaint of these two parts.
    pub fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: remedy.into() }
    }
}

type Units = [(&'static str, u64)];

const SIZE_UNITS: &Units = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

const TIME_UNITS: &Units = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Bytes of a size: "64KiB", "20GB", or a plain number of bytes.
///
/// # Errors
/// When the text is no size.
pub fn parse_size(text: &str) -> Result<u64, Complaint> {
    if let Ok(bytes) = text.parse() {
        return Ok(bytes);
    }
    parse(text, SIZE_UNITS, "size", "64KiB")
}

/// Bytes a second: a size followed by "/s".
///
/// # Errors
/// When the text is no rate.
pub fn parse_rate(text: &str) -> Result<u64, Complaint> {
    let refused =
        || Complaint::new(format!("\"{text}\" is not a rate"), "write a size per second, such as \"200MB/s\"");
    let size = text.strip_suffix("/s").ok_or_else(refused)?;
    parse(size.trim_end(), SIZE_UNITS, "rate", "200MB/s").map_err(|_| refused())
}

/// Nanoseconds of a time: "30s", "100ms".
///
/// # Errors
/// When the text is no time.
pub fn parse_time(text: &str) -> Result<u64, Complaint> {
    if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
        return Err(Complaint::new(
            format!("the time {text} has no unit"),
            format!("write \"{text}s\" or \"{text}ms\" (units: {})", names(TIME_UNITS)),
        ));
    }
    parse(text, TIME_UNITS, "time", "30s")
}

fn parse(text: &str, units: &Units, what: &str, example: &str) -> Result<u64, Complaint> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let unit = unit.trim_start();
    let known = units.iter().find(|(name, _)| *name == unit);
    let Some((_, factor)) = known.filter(|_| !digits.is_empty()) else {
        let remedy = match (digits.is_empty(), meant(unit, units)) {
            (false, Some(unit)) => format!("did you mean \"{digits}{unit}\"? (units: {})", names(units)),
            _ => format!("write a whole number and a unit, such as \"{example}\" (units: {})", names(units)),
        };
        return Err(Complaint::new(format!("\"{text}\" is not a {what}"), remedy));
    };
    let value = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor));
    value.ok_or_else(|| Complaint::new(format!("the {what} \"{text}\" is beyond 2^64"), "write a smaller one"))
}

/// The unit that somebody who wrote `unit` most likely meant.
fn meant(unit: &str, units: &Units) -> Option<&'static str> {
    let same = |name: &str| name.eq_ignore_ascii_case(unit);
    let short = |name: &str| unit.len() == 1 && name.len() == 3 && name[..1].eq_ignore_ascii_case(unit);
    units.iter().map(|(name, _)| *name).find(|name| same(name) || short(name))
}

fn names(units: &Units) -> String {
    units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// A size, exactly: in the largest binary unit that divides it.
#[must_use]
pub fn size(bytes: u64) -> String {
    exact(bytes, &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)])
}

/// A size for people: one digit after the point, in the largest binary unit below it.
#[must_use]
pub fn size_rounded(bytes: u64) -> String {
    let units = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, factor)| bytes >= *factor) {
        Some((unit, factor)) => format!("{:.1} {unit}", bytes as f64 / *factor as f64),
        None => format!("{bytes} B"),
    }
}

/// A time, exactly: in the largest unit that divides it.
#[must_use]
pub fn time(nanoseconds: u64) -> String {
    exact(
        nanoseconds,
        &[
            ("h", 3_600_000_000_000),
            ("m", 60_000_000_000),
            ("s", 1_000_000_000),
            ("ms", 1_000_000),
            ("us", 1_000),
            ("ns", 1),
        ],
    )
}

fn exact(value: u64, units: &Units) -> String {
    let (unit, factor) = units
        .iter()
        .find(|(_, factor)| value.is_multiple_of(*factor) && value > 0)
        .copied()
        .unwrap_or(units[units.len() - 1]);
    format!("{}{unit}", value / factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_in_both_families() {
        assert_eq!(parse_size("64KiB"), Ok(65536));
        assert_eq!(parse_size("64 KiB"), Ok(65536));
        assert_eq!(parse_size("20GB"), Ok(20_000_000_000));
        assert_eq!(parse_size("512"), Ok(512));
        assert_eq!(parse_rate("200MB/s"), Ok(200_000_000));
        assert_eq!(parse_time("1500ms"), Ok(1_500_000_000));
    }

    #[test]
    fn what_is_no_size_comes_with_what_was_meant() {
        for (text, remedy) in [
            ("64K", "did you mean \"64KiB\"?"),
            ("64kib", "did you mean \"64KiB\"?"),
            ("1.5GiB", "write a whole number"),
            ("", "write a whole number"),
            ("KiB", "write a whole number"),
            ("-1", "write a whole number"),
            ("99999999TiB", "write a smaller one"),
        ] {
            let complaint = parse_size(text).expect_err(text);
            assert!(complaint.remedy.starts_with(remedy), "{text}: {complaint:?}");
        }
        assert!(parse_time("30").expect_err("no unit").remedy.contains("\"30s\""));
        assert!(parse_rate("200MB").expect_err("no /s").remedy.contains("200MB/s"));
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(value in any::<u64>()) {
            prop_assert_eq!(parse_size(&size(value)), Ok(value));
            prop_assert_eq!(parse_time(&time(value)), Ok(value));
        }

        #[test]
        fn no_text_is_a_panic(text in ".{0,24}") {
            let _ = (parse_size(&text), parse_rate(&text), parse_time(&text));
        }
    }
}
