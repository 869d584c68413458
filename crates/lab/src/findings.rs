//! What an experiment found: cells (what was measured), bars (what it has to be), and directions (who wins).
//!
//! As JSON it is one object: `experiment`, `setup`, `cells`, `paper`, `bars`, and `directions` if the run was quick.

use crate::page::Table;
use crate::{Error, page};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a value has to be.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    /// An interface.
    pub name: &'static str,
    /// Where it lies.
    pub bar: f64,
    /// Whether the value may not be less, or not be more.
    pub at_least: bool,
    /// What the value is.
    pub meaning: &'static str,
}

impl Bar {
    pub(crate) fn judge(&'static self, value: f64) -> Judged {
        // A value that is no number reaches nothing.
        let ok = if self.at_least { value >= self.bar } else { value <= self.bar };
        Judged { bar: self, value, ok }
    }

    /// Such as `>= 0.97`.
    #[must_use]
    pub fn wanted(&self) -> String {
        format!("{} {}", if self.at_least { ">=" } else { "<=" }, self.bar)
    }
}

/// A bar, and what was found.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// What it has to be.
    pub bar: &'static Bar,
    /// What it is.
    pub value: f64,
    /// Whether that is good.
    pub ok: bool,
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Plot {
    /// What follows the experiment's name in the name of its file.
    pub name: &'static str,
    /// The SVG.
    pub svg: String,
}

/// What an experiment hands in.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) setup: Map<String, Value>,
    pub(crate) cells: Vec<Map<String, Value>>,
    pub(crate) paper: Map<String, Value>,
    /// The value of each bar and direction, by its name.
    pub(crate) values: BTreeMap<&'static str, f64>,
    pub(crate) tables: Vec<Table>,
    pub(crate) plots: Vec<Plot>,
}

/// What an experiment found, judged.
#[derive(Debug)]
pub struct Findings {
    /// Its name.
    pub experiment: &'static str,
    /// What it asks.
    pub question: &'static str,
    /// What it ran with.
    pub setup: Map<String, Value>,
    /// What was measured.
    pub cells: Vec<Map<String, Value>>,
    /// What the paper reports.
    pub paper: Map<String, Value>,
    /// What it has to be.
    pub bars: Vec<Judged>,
    /// Who wins; of a quick run.
    pub directions: Option<Vec<Judged>>,
    /// For people.
    pub tables: Vec<Table>,
    /// For people.
    pub plots: Vec<Plot>,
}

impl Findings {
    /// Whether every bar is reached. Quick runs are noisy and are judged by [`Self::directions`] instead.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.bars.iter().all(|judged| judged.ok)
    }

    /// The one object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let bars = self.bars.iter().map(|Judged { bar, value, ok }| {
            json!({ "name": bar.name, "value": rounded(*value), "bar": bar.bar, "at_least": bar.at_least, "ok": ok })
        });
        let mut object = json!({
            "experiment": self.experiment,
            "setup": self.setup,
            "cells": self.cells,
            "paper": self.paper,
            "bars": bars.collect::<Vec<_>>(),
        });
        if let Some(directions) = &self.directions {
            let told = directions.iter();
            let told = told.map(|one| json!({ "name": one.bar.name, "value": rounded(one.value), "ok": one.ok }));
            object["directions"] = told.collect();
        }
        object
    }

    /// Writes NAME.json, NAME.md and the plots into `directory`, and says which files.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<Vec<PathBuf>, Error> {
        std::fs::create_dir_all(directory).map_err(|cause| Error::Write { path: directory.into(), cause })?;
        let mut files = vec![
            (format!("{}.json", self.experiment), format!("{:#}\n", self.to_json())),
            (format!("{}.md", self.experiment), page::of_results(self)),
        ];
        files.extend(self.plots.iter().map(|plot| (self.file_of(plot), plot.svg.clone())));
        let write = |(name, text): (String, String)| {
            let path = directory.join(name);
            std::fs::write(&path, text).map_err(|cause| Error::Write { path: path.clone(), cause })?;
            Ok(path)
        };
        files.into_iter().map(write).collect()
    }

    pub(crate) fn file_of(&self, plot: &Plot) -> String {
        format!("{}-{}.svg", self.experiment, plot.name)
    }
}

/// To four places: more is noise, and makes every diff of results longer.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
