//! What an experiment is, and the table of them.
//!
//! An experiment declares what it will say (keys of cells, bars, directions) before it runs, so that the page that lists
//! them cannot drift from what is printed. A new one is a module and a row of [`EXPERIMENTS`].

use crate::findings::{Bar, Findings, Found};
use crate::{
    Error, split_concurrency, split_contention, split_filebench, split_levels, split_mixed, split_neighbours,
    split_overhead, split_profile_cost, split_surface, writeback_hit_rates, writeback_neighbours, writeback_throughput,
};
use serde_json::Map;

/// All experiments, in the order in which they are listed.
pub static EXPERIMENTS: &[&Experiment] = &[
    &split_surface::EXPERIMENT,
    &split_concurrency::EXPERIMENT,
    &split_contention::EXPERIMENT,
    &split_levels::EXPERIMENT,
    &split_mixed::EXPERIMENT,
    &split_filebench::EXPERIMENT,
    &split_neighbours::EXPERIMENT,
    &split_overhead::EXPERIMENT,
    &split_profile_cost::EXPERIMENT,
    &writeback_throughput::EXPERIMENT,
    &writeback_hit_rates::EXPERIMENT,
    &writeback_neighbours::EXPERIMENT,
];

/// The experiment of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().copied().find(|experiment| experiment.name == name)
}

/// What is asked of a run.
pub struct Run<'a> {
    /// Fewer seeds, shorter; judged by directions.
    pub is_quick: bool,
    /// What is drawn follows from it.
    pub seed: u64,
    /// The `forebay` program, for what is measured in a process of its own; `None`: that is skipped.
    pub program: Option<&'a std::path::Path>,
    /// Told of steps done, of how many.
    pub progress: &'a mut dyn FnMut(usize, usize),
}

/// A key of cells, and what it holds.
pub type Key = (&'static str, &'static str);

/// An experiment.
pub struct Experiment {
    /// On the command line, and of its files.
    pub name: &'static str,
    /// What it asks, in a line.
    pub question: &'static str,
    /// What each cell says.
    pub cells: &'static [Key],
    /// What a full run has to reach.
    pub bars: &'static [Bar],
    /// What a quick run has to show: who wins, and by at least what.
    pub directions: &'static [Bar],
    pub(crate) conduct: fn(&mut Run<'_>) -> Result<Found, Error>,
}

impl Experiment {
    /// Runs it.
    ///
    /// # Errors
    /// What kept it from its end.
    ///
    /// # Panics
    /// If it finds other things than it declares.
    pub fn run(&self, run: &mut Run<'_>) -> Result<Findings, Error> {
        let mut found = (self.conduct)(run)?;
        for cell in &found.cells {
            let is_declared = |key: &String| self.cells.iter().any(|(declared, _)| declared == key);
            assert!(
                cell.len() == self.cells.len() && cell.keys().all(is_declared),
                "{}: a cell is not as declared: {cell:?}",
                self.name
            );
        }
        let mut setup = Map::new();
        setup.insert("seed".into(), run.seed.into());
        setup.insert("quick".into(), run.is_quick.into());
        setup.append(&mut found.setup);
        let is_asked = |bar: &&Bar| found.values.contains_key(bar.name);
        let judged = |bars: &'static [Bar]| -> Vec<_> {
            let missing: Vec<_> = bars.iter().filter(|bar| !is_asked(bar)).map(|bar| bar.name).collect();
            assert!(missing.is_empty(), "{}: nothing was found for {missing:?}", self.name);
            bars.iter().map(|bar| bar.judge(found.values[bar.name])).collect()
        };
        Ok(Findings {
            experiment: self.name,
            question: self.question,
            setup,
            bars: judged(self.bars),
            directions: run.is_quick.then(|| judged(self.directions)),
            cells: found.cells,
            paper: found.paper,
            tables: found.tables,
            plots: found.plots,
        })
    }

    /// Its part of docs/experiments.md that is an interface.
    #[must_use]
    pub fn interface(&self) -> String {
        let mut text = format!("## {}\n\n{}\n\n| cells | |\n|---|---|\n", self.name, self.question);
        for (key, meaning) in self.cells {
            text.push_str(&format!("| `{key}` | {meaning} |\n"));
        }
        for (head, bars) in [("bars", self.bars), ("directions", self.directions)] {
            text.push_str(&format!("\n| {head} | | |\n|---|---|---|\n"));
            for bar in bars {
                text.push_str(&format!("| `{}` | {} | {} |\n", bar.name, bar.wanted(), bar.meaning));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        for (at, experiment) in EXPERIMENTS.iter().enumerate() {
            assert!(find(experiment.name).is_some_and(|found| std::ptr::eq(found, *experiment)));
            assert!(EXPERIMENTS[at + 1..].iter().all(|other| other.name != experiment.name));
            let mut names: Vec<_> = experiment.bars.iter().chain(experiment.directions).map(|bar| bar.name).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        }
        assert!(find("nothing").is_none());
    }
}
