//! Quick runs show who wins.

use forebay_lab::{EXPERIMENTS, Error, Findings, Run};

/// Without what only `forebay` itself can run.
fn quick(experiment: &forebay_lab::Experiment, seed: u64) -> Option<Findings> {
    let mut run = Run { is_quick: true, seed, program: None, progress: &mut |_, _| {} };
    match experiment.run(&mut run) {
        Ok(findings) => Some(findings),
        Err(Error::Skipped { .. }) => None,
        Err(error) => panic!("{}: {error}", experiment.name),
    }
}

fn first(seed: u64) -> Findings {
    quick(EXPERIMENTS[0], seed).expect("it needs nothing")
}

#[test]
fn every_direction_is_as_declared() {
    for experiment in EXPERIMENTS {
        let Some(findings) = quick(experiment, 1) else { continue };
        let directions = findings.directions.expect("a quick run has directions");
        assert_eq!(directions.len(), experiment.directions.len());
        assert!(!directions.is_empty(), "{} shows nothing", experiment.name);
        for judged in directions {
            let (name, wanted) = (judged.bar.name, judged.bar.wanted());
            assert!(judged.ok, "{}: {name} is {}, not {wanted}", experiment.name, judged.value);
        }
    }
}

#[test]
fn a_seed_repeats_and_another_differs() {
    let [first, again, other] = [1, 1, 2].map(|seed| first(seed).to_json()["cells"].to_string());
    assert!(first == again, "the same seed finds something else");
    assert!(first != other, "the seed changes nothing");
}

#[test]
fn findings_are_one_object_and_its_files() {
    let findings = first(1);
    let object = findings.to_json();
    for field in ["experiment", "setup", "cells", "paper", "bars", "directions"] {
        assert!(object.get(field).is_some(), "{field}");
    }
    for bar in object["bars"].as_array().expect("bars") {
        let fields: Vec<_> = bar.as_object().expect("a bar").keys().collect();
        assert_eq!(fields, ["at_least", "bar", "name", "ok", "value"]);
    }
    let directory = std::env::temp_dir().join(format!("forebay-lab-{}", std::process::id()));
    let files = findings.write(&directory).expect("files");
    assert!(
        files.len() >= 3 && files.iter().all(|file| std::fs::read_to_string(file).is_ok_and(|text| !text.is_empty()))
    );
    std::fs::remove_dir_all(&directory).expect("the test's own directory");
}
