//! Findings for people: Markdown whose tables are also aligned as text, so that a terminal and a web page show the same.

use crate::findings::{Findings, Judged};
use serde_json::{Map, Value};
use std::fmt::Write;

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Names of columns.
    pub head: Vec<String>,
    /// Each as long as the head.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Markdown. All columns but the first stand to the right.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let width_of = |column: usize| {
            let cells = self.rows.iter().chain([&self.head]);
            cells.map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.head.len()).map(width_of).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(column, (cell, &width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let rule = widths.iter().enumerate().map(|(column, &width)| match column {
            0 => "-".repeat(width + 2),
            _ => "-".repeat(width + 1) + ":",
        });
        let mut out = format!("{}\n\n{}|{}|\n", self.title, line(&self.head), rule.collect::<Vec<_>>().join("|"));
        out.extend(self.rows.iter().map(line));
        out
    }
}

/// What is shown on a terminal: bars, directions, tables.
#[must_use]
pub fn of_findings(findings: &Findings) -> String {
    let mut tables = vec![judged_table("Bars", &findings.bars)];
    tables.extend(findings.directions.iter().map(|directions| judged_table("Directions", directions)));
    tables.extend(findings.tables.iter().cloned());
    let tables: Vec<_> = tables.iter().map(Table::to_markdown).collect();
    tables.join("\n")
}

/// NAME.md: the same with a head, the set-up, what the paper reports, and the plots.
#[must_use]
pub fn of_results(findings: &Findings) -> String {
    let mut out = format!("# {}\n\n{}\n\n", findings.experiment, findings.question);
    for (title, map) in [("Set-up", &findings.setup), ("The paper reports", &findings.paper)] {
        if !map.is_empty() {
            let _ = writeln!(out, "{title}: {}.\n", listed(map));
        }
    }
    out.push_str(&of_findings(findings));
    for plot in &findings.plots {
        let _ = write!(out, "\n![{0}]({0})\n", findings.file_of(plot));
    }
    out
}

fn listed(map: &Map<String, Value>) -> String {
    map.iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", ")
}

fn judged_table(title: &str, judged: &[Judged]) -> Table {
    let row = |judged: &Judged| {
        vec![
            judged.bar.name.to_owned(),
            format!("{:.4}", judged.value),
            judged.bar.wanted(),
            if judged.ok { "ok" } else { "MISSED" }.to_owned(),
        ]
    };
    Table {
        title: title.to_owned(),
        head: ["name", "value", "bar", ""].map(str::to_owned).into(),
        rows: judged.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_and_markdown() {
        let table = Table {
            title: "Title".into(),
            head: vec!["policy".into(), "x".into()],
            rows: vec![vec!["cache".into(), "0.5".into()], vec!["c".into(), "12".into()]],
        };
        assert_eq!(
            table.to_markdown(),
            "Title\n\n| policy |   x |\n|--------|----:|\n| cache  | 0.5 |\n| c      |  12 |\n"
        );
    }
}
