//! Rows of bars: what each path delivers, second by second.
//!
//! On a terminal with block characters, and the newest row drawn over while its second lasts; elsewhere plain lines.

use crate::rates::VolumeRates;
use std::io::IsTerminal;

/// Cells of a bar.
const CELLS: usize = 10;
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// How rows are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chart {
    is_live: bool,
    /// What fills a bar.
    bytes_per_s_max: f64,
}

/// A second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    /// Since the beginning.
    pub(super) seconds: f64,
    pub(super) rates: &'a VolumeRates,
}

impl Chart {
    pub(super) fn new(bytes_per_s_max: f64) -> Self {
        Self { is_live: std::io::stdout().is_terminal(), bytes_per_s_max }
    }

    /// Whether a row may be drawn over.
    pub(super) fn is_live(self) -> bool {
        self.is_live
    }

    pub(super) fn head(self) -> String {
        format!(
            "{:>5}  {:<CELLS$}{:>5}  {:<CELLS$}{:>5}  {:>4}  {:>5}  {:<9}  MODE\n",
            "S", "CACHE DISK", "MB/s", "BACK END", "MB/s", "BOTH", "DISK", "ESTIMATES"
        )
    }

    /// A row; one that `is_last` of its second stays.
    pub(super) fn row(self, row: &Row<'_>, is_last: bool) -> String {
        let rates = row.rates;
        let (disk, backend) = (rates.disk_read_bytes_per_second, rates.backend_read_bytes_per_second);
        let mega = |bytes_per_s: f64| format!("{:.0}", bytes_per_s / 1e6);
        let text = format!(
            "{:>5.1}  {}{:>5}  {}{:>5}  {:>4}  {:>5}  {}",
            row.seconds,
            self.bar(disk),
            mega(disk),
            self.bar(backend),
            mega(backend),
            mega(disk + backend),
            share(rates).map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
            believed(rates),
        );
        match (self.is_live, is_last) {
            (false, _) => format!("{}\n", text.trim_end()),
            (true, false) => format!("\r{text}\x1b[K"),
            (true, true) => format!("\r{text}\x1b[K\n"),
        }
    }

    fn bar(self, bytes_per_s: f64) -> String {
        let part = (bytes_per_s / self.bytes_per_s_max).clamp(0.0, 1.0);
        let eighths = (part * 8.0 * CELLS as f64).round() as usize;
        let bar = match self.is_live {
            true if eighths < 8 * CELLS => "█".repeat(eighths / 8) + &EIGHTHS[eighths % 8].to_string(),
            true => "█".repeat(CELLS),
            false => "#".repeat(eighths.div_ceil(8)),
        };
        format!("{bar:<CELLS$}")
    }
}

/// Of the hits on disk, those that the cache disk served.
fn share(rates: &VolumeRates) -> Option<f64> {
    let (disk, backend) = (rates.disk_hit_ratio?, rates.backend_hit_ratio?);
    (disk + backend > 0.0).then(|| disk / (disk + backend))
}

/// What the policy believes: rates of both paths, its mode, and how congested the back end seems.
fn believed(rates: &VolumeRates) -> String {
    let Some(split) = &rates.split else { return String::new() };
    let rate = |bytes_per_s: u64| match bytes_per_s {
        0 => "?".to_owned(),
        known => format!("{:.0}", known as f64 / 1e6),
    };
    let rates = format!("{} + {}", rate(split.disk.bytes_per_second), rate(split.backend.bytes_per_second));
    let severity = match split.severity_permil {
        0 => String::new(),
        permil => format!(" {:.0} %", permil as f64 / 10.0),
    };
    format!("{rates:<9}  {}{severity}", split.mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::between;
    use forebay_admin::{PathEstimate, Snapshot, Split, Volume};

    fn rates() -> VolumeRates {
        let split = Split {
            mode: "congestion".into(),
            severity_permil: 420,
            disk: PathEstimate { bytes_per_second: 101_000_000, ..PathEstimate::default() },
            ..Split::default()
        };
        let volume = Volume {
            disk_hits: 9,
            backend_hits: 1,
            disk_read_bytes: 100_000_000,
            backend_read_bytes: 43_000_000,
            split: Some(split),
            ..Volume::default()
        };
        let now = Snapshot { counted_seconds: 1.0, volumes: vec![volume], ..Snapshot::default() };
        between(&Snapshot::default(), &now).remove(0)
    }

    fn chart(is_live: bool) -> Chart {
        Chart { is_live, bytes_per_s_max: 100e6 }
    }

    #[test]
    fn a_row_stands_below_the_head() {
        let row = chart(false).row(&Row { seconds: 3.0, rates: &rates() }, true);
        assert_eq!(
            chart(false).head() + &row,
            "    S  CACHE DISK MB/s  BACK END   MB/s  BOTH   DISK  ESTIMATES  MODE\n  \
               3.0  ##########  100  #####        43   143   90 %  101 + ?    congestion 42 %\n"
        );
    }

    #[test]
    fn a_terminal_is_drawn_over_until_the_second_is_over() {
        let (rates, chart) = (rates(), chart(true));
        let row = Row { seconds: 3.0, rates: &rates };
        let (passing, lasting) = (chart.row(&row, false), chart.row(&row, true));
        assert!(passing.starts_with('\r') && passing.ends_with("\x1b[K"), "{passing:?}");
        assert_eq!(lasting, passing + "\n");
        assert!(lasting.contains("██████████  100  ████▎        43"), "{lasting}");
        assert!(lasting.chars().count() <= 80 + "\r\x1b[K\n".len(), "{lasting}");
    }

    #[test]
    fn bars_are_as_long_as_their_rates() {
        for (rate, plain, drawn) in
            [(0.0, "", " "), (1e6, "#", "▏"), (50e6, "#####", "█████ "), (200e6, "##########", "██████████")]
        {
            assert_eq!(chart(false).bar(rate), format!("{plain:<CELLS$}"), "{rate}");
            assert_eq!(chart(true).bar(rate), format!("{drawn:<CELLS$}"), "{rate}");
        }
    }
}
