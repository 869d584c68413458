//! What is wrong with a configuration, and where: collected, so that all of it is told at once.

use super::unit::Complaint;
use std::fmt;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the file, both counted from 1; columns in characters.
    File {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// The file as a whole: something is missing.
    WholeFile,
    /// An environment variable.
    Environment(String),
    /// A flag of the command line.
    Flag(String),
    /// Nobody gave it.
    Default,
}

/// Whether a problem stops the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It does.
    Error,
    /// It does not, but somebody should know.
    Warning,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// How bad.
    pub severity: Severity,
    /// What is wrong.
    pub what: String,
    /// The nearest key, or what to do.
    pub remedy: String,
}

/// All problems of one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    file: String,
    problems: Vec<Problem>,
}

impl Report {
    /// An empty report on a configuration file of that name.
    #[must_use]
    pub fn new(file: &str) -> Self {
        Self { file: file.to_owned(), problems: Vec::new() }
    }

    /// Adds an error.
    pub fn error(&mut self, place: &Place, complaint: Complaint) {
        self.add(place, Severity::Error, complaint);
    }

    /// Adds a warning.
    pub fn warning(&mut self, place: &Place, complaint: Complaint) {
        self.add(place, Severity::Warning, complaint);
    }

    fn add(&mut self, place: &Place, severity: Severity, complaint: Complaint) {
        let Complaint { problem: what, remedy } = complaint;
        self.problems.push(Problem { place: place.clone(), severity, what, remedy });
        self.problems.sort_by(|a, b| a.place.cmp(&b.place));
    }

    /// Whether anything in it stops the program.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// The problems, in the order of the file, then environment, then flags.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// One problem as a line: `file:line:column: problem; remedy`.
    #[must_use]
    pub fn line(&self, problem: &Problem) -> String {
        let place = match &problem.place {
            Place::File { line, column } => format!("{}:{line}:{column}", self.file),
            Place::WholeFile | Place::Default => self.file.clone(),
            Place::Environment(name) => format!("environment {name}"),
            Place::Flag(name) => format!("flag {name}"),
        };
        let severity = match problem.severity {
            Severity::Error => "",
            Severity::Warning => "warning: ",
        };
        format!("{place}: {severity}{}; {}", problem.what, problem.remedy)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "{}", self.line(problem))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_told_in_the_order_of_the_file() {
        let mut report = Report::new("f.toml");
        report.warning(&Place::Flag("--a".into()), Complaint::new("p4", "r4"));
        report.error(&Place::WholeFile, Complaint::new("p3", "r3"));
        report.error(&Place::File { line: 10, column: 1 }, Complaint::new("p2", "r2"));
        report.error(&Place::File { line: 9, column: 7 }, Complaint::new("p1", "r1"));
        assert_eq!(
            report.to_string(),
            "f.toml:9:7: p1; r1\nf.toml:10:1: p2; r2\nf.toml: p3; r3\nflag --a: warning: p4; r4\n"
        );
        assert!(report.has_errors());
    }
}
