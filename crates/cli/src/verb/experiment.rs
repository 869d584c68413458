//! `forebay experiment`: runs one of the lab's experiments and says what it found.

use super::{complain, print, print_json};
use crate::arguments::{Experiment, Output};
use crate::exit::Exit;
use crate::table;
use forebay_lab::{EXPERIMENTS, Error, Findings, Run, find, page, split_overhead};
use serde_json::json;
use std::io::{IsTerminal, Write};

pub(crate) fn experiment(arguments: &Experiment, output: Output) -> Exit {
    let Some(name) = &arguments.name else {
        list(output);
        return Exit::Ok;
    };
    let Some(experiment) = find(name) else {
        let names: Vec<_> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
        complain(&format!("there is no experiment {name:?}; there are {}", names.join(", ")));
        return Exit::Usage;
    };
    let is_shown = std::io::stderr().is_terminal();
    if let Some(words) = &arguments.work {
        return work(words);
    }
    let mut progress = |done: usize, of: usize| {
        if is_shown {
            let end = if done == of { "\r\x1b[K" } else { "" };
            let _ = write!(std::io::stderr().lock(), "\r{name}: {:3} %{end}", done * 100 / of.max(1));
        }
    };
    let program = std::env::current_exe().ok();
    let mut run =
        Run { is_quick: arguments.quick, seed: arguments.seed, program: program.as_deref(), progress: &mut progress };
    let findings = match experiment.run(&mut run) {
        Ok(findings) => findings,
        Err(Error::Skipped { why }) => return skipped(name, &why, output),
        Err(error) => return failed(name, &error),
    };
    match output {
        Output::Json => print_json(&findings.to_json()),
        Output::Table => print(&page::of_findings(&findings)),
    }
    if let Some(directory) = &arguments.out
        && let Err(error) = findings.write(directory)
    {
        return failed(name, &error);
    }
    exit_of(&findings, arguments.quick)
}

/// The part of an experiment that it runs in a process of its own.
fn work(words: &str) -> Exit {
    let Some((reads, disk_share)) = split_overhead::work(words) else {
        complain(&format!("{words:?} is no work of an experiment"));
        return Exit::Usage;
    };
    print(&format!("{reads} {disk_share}\n"));
    Exit::Ok
}

fn skipped(name: &str, why: &str, output: Output) -> Exit {
    match output {
        Output::Json => print_json(&json!({ "skipped": why })),
        Output::Table => print(&format!("{name} is skipped: {why}\n")),
    }
    Exit::Ok
}

fn failed(name: &str, error: &Error) -> Exit {
    complain(&format!("{name}: {error}"));
    Exit::Failure
}

/// Quick runs are short and so noisy: they are judged by their directions, which a caller reads.
fn exit_of(findings: &Findings, is_quick: bool) -> Exit {
    if is_quick || findings.is_reached() { Exit::Ok } else { Exit::Partial }
}

fn list(output: Output) {
    let named = EXPERIMENTS.iter();
    match output {
        Output::Json => {
            let named = named.map(|experiment| json!({ "name": experiment.name, "question": experiment.question }));
            print_json(&named.collect::<Vec<_>>());
        }
        Output::Table => {
            let rows: Vec<_> = named.map(|one| vec![one.name.to_owned(), one.question.to_owned()]).collect();
            print(&table::render(&["EXPERIMENT", "ASKS"], &rows));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_that_is_missed_fails_a_full_run_only() {
        let mut run = Run { is_quick: true, seed: 1, program: None, progress: &mut |_, _| {} };
        let mut findings = EXPERIMENTS[0].run(&mut run).expect("findings");
        findings.bars.iter_mut().for_each(|bar| bar.ok = true);
        assert_eq!(exit_of(&findings, false), Exit::Ok);
        findings.bars[0].ok = false;
        assert_eq!((exit_of(&findings, false), exit_of(&findings, true)), (Exit::Partial, Exit::Ok));
    }
}
