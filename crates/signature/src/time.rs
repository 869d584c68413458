//! Time: `20300102T030405Z`, as signatures have it.

use std::fmt;

/// A second, as it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stamp([u8; 16]);

impl Stamp {
    /// Of a time in seconds since 1970, before the year 10000.
    #[must_use]
    pub fn of(unix_s: u64) -> Self {
        let (days, second) = (unix_s / 86_400, unix_s % 86_400);
        // Years that begin in March: the leap day is their last. Eras of 400 years have the same number of days.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let march = (5 * day + 2) / 153;
        let (day, month) = (day - (153 * march + 2) / 5 + 1, if march < 10 { march + 3 } else { march - 9 });
        let year = era * 400 + year + u64::from(month <= 2);
        let text =
            format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", second / 3600, second / 60 % 60, second % 60);
        Self(text.as_bytes().try_into().expect("16 letters"))
    }

    /// Of a text; `None` if it is no time.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        unix_s(text)?;
        text.as_bytes().try_into().ok().map(Self)
    }

    /// As it is written.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.0).expect("ASCII")
    }

    /// Its day: `20300102`.
    #[must_use]
    pub fn date(&self) -> &str {
        &self.text()[..8]
    }

    /// Seconds since 1970.
    #[must_use]
    pub fn unix_s(&self) -> u64 {
        unix_s(self.text()).expect("it was read")
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.text())
    }
}

/// Seconds since 1970 of `20300102T030405Z`.
#[must_use]
pub fn unix_s(text: &str) -> Option<u64> {
    let digits = |range: std::ops::Range<usize>| {
        text.get(range).filter(|it| it.bytes().all(|it| it.is_ascii_digit()))?.parse::<u64>().ok()
    };
    if text.len() != 16 || text.get(8..9)? != "T" || text.get(15..)? != "Z" {
        return None;
    }
    let (year, month, day) = (digits(0..4)?, digits(4..6)?, digits(6..8)?);
    let (hour, minute, second) = (digits(9..11)?, digits(11..13)?, digits(13..15)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin in March: the leap day is their last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_and_written() {
        for (text, seconds) in [
            ("20300102T030405Z", 1_893_553_445),
            ("19700101T000000Z", 0),
            ("20000301T000000Z", 951_868_800),
            ("20000229T235959Z", 951_868_799),
            ("20991231T235959Z", 4_102_444_799),
        ] {
            assert_eq!(unix_s(text), Some(seconds), "{text}");
            assert_eq!(Stamp::of(seconds).text(), text);
        }
        for text in ["", "20300102T030405", "20301302T030405Z", "2030-102T030405Z", "20300102 030405Z"] {
            assert_eq!(unix_s(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_is_another() {
        let mut last = String::new();
        for day in 0..60_000 {
            let stamp = Stamp::of(day * 86_400 + 3);
            assert_eq!(stamp.unix_s(), day * 86_400 + 3);
            assert!(stamp.text() > last.as_str());
            last = stamp.text().to_owned();
        }
    }
}
