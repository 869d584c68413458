use super::*;
use forebay_policy::split::profile::{Row, full_points};

fn here() -> Devices {
    Devices {
        disk_model: "S4510".into(),
        disk_serial: "1".into(),
        backend_kind: "nbd".into(),
        link_bits_per_second: 10_000_000_000,
    }
}

fn saved(directory: &Path, devices: &Devices) -> std::path::PathBuf {
    let profile = Profile::from_rows(full_points().map(|point| Row::measured(point, [3e9, 1e9]))).expect("a profile");
    let path = directory.join("vm1.profile.json");
    ProfileFile::new("vm1", devices, 0, None, &profile).write(&path).expect("it is written");
    path
}

#[test]
fn what_was_saved_is_given_to_the_same_devices() {
    let directory = tempfile::tempdir().expect("a directory");
    let given = Given::from(&saved(directory.path(), &here()), &here());
    let note = given.note.clone().expect("a note");
    assert_eq!((note.points, note.note.as_str(), given.refused()), (50, "", None));
    assert!(given.profile.rows().all(|row| row.bytes_per_second == [3e9, 1e9]));
}

#[test]
fn another_serial_number_is_worth_a_word_and_other_devices_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = saved(directory.path(), &here());
    let given = Given::from(&path, &Devices { disk_serial: "2".into(), ..here() });
    assert_eq!(given.refused(), None);
    assert!(given.note.expect("a note").note.contains("serial number \"1\", here \"2\""));
    for (other, words) in [
        (Devices { disk_model: "P5800X".into(), ..here() }, "the cache disk was \"S4510\" and is \"P5800X\""),
        (Devices { backend_kind: "memory".into(), ..here() }, "the back end was \"nbd\" and is \"memory\""),
        (Devices { link_bits_per_second: 0, ..here() }, "was \"10000 Mbit/s\" and is \"not known\""),
    ] {
        let given = Given::from(&path, &other);
        let why = given.refused().expect("it is refused");
        assert!(why.contains(words) && why.contains("forebay profile") && why.contains("vm1.profile.json"), "{why}");
        assert_eq!(given.profile.rows().count(), 0);
    }
}

#[test]
fn what_is_no_profile_says_why_and_gives_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = saved(directory.path(), &here());
    let sound = std::fs::read_to_string(&path).expect("a file");
    for (from, to, word) in [
        ("\"version\": 1", "\"version\": 2", "its format is 2"),
        ("\"volume\"", "\"value\"", "unknown field"),
        ("\"in_flight\": 1,", "\"in_flight\": 0,", "its row 1 cannot be: Invalid"),
        ("3000000000.0", "-1.0", "its row 1 cannot be: Invalid"),
    ] {
        assert!(sound.contains(from), "{from}");
        std::fs::write(&path, sound.replacen(from, to, 1)).expect("a file");
        let given = Given::from(&path, &here());
        let why = given.refused().expect("it is refused");
        assert!(why.contains(word), "{why}");
    }
    let missing = Given::from(&directory.path().join("none.json"), &here());
    assert!(missing.refused().is_some_and(|why| why.contains("No such file")));
}

#[test]
fn an_error_is_told_by_its_median_and_its_worst() {
    assert_eq!(QuickError::of(vec![0.3, 0.1, 0.2]), Some(QuickError { median: 0.2, max: 0.3 }));
    assert_eq!(QuickError::of(Vec::new()), None);
}
