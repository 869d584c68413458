//! Other people's clients: nbdinfo, nbdcopy and qemu-img, where they are installed.

use std::path::Path;
use std::process::{Command, Output};

use super::client::pattern;
use super::world::{Setup, VOLUME_BYTES, World};

/// Runs a tool; `None`, and a visible word, when it is not installed.
fn run(tool: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(tool).args(arguments).output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{tool} {arguments:?}: {errors}");
            Some(output)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("SKIPPED: {tool} is not installed");
            None
        }
        Err(error) => panic!("{tool}: {error}"),
    }
}

fn uri(world: &World) -> String {
    format!("nbd+unix:///vol?socket={}", world.path.display())
}

#[test]
fn nbdinfo_lists_the_exports() {
    let world = World::new(Setup::default());
    let Some(output) = run("nbdinfo", &["--list", &uri(&world)]) else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "export=\"vol\":",
        "export-size: 8388608",
        "can_multi_conn: true",
        "can_flush: true",
        "can_fua: true",
        "can_trim: true",
        "can_zero: true",
        "can_cache: false",
        "can_fast_zero: false",
        "block_size_minimum: 512",
        "block_size_maximum: 33554432",
        "export=\"other\":",
        "is_read_only: true",
    ] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
    world.finish();
}

fn image(dir: &Path, name: &str) -> (std::path::PathBuf, Vec<u8>) {
    let path = dir.join(name);
    let bytes = pattern(9, VOLUME_BYTES as usize);
    std::fs::write(&path, &bytes).unwrap();
    (path, bytes)
}

#[test]
fn nbdcopy_copies_in_and_out() {
    let world = World::new(Setup::default());
    let dir = tempfile::tempdir().unwrap();
    let (from, bytes) = image(dir.path(), "in");
    let to = dir.path().join("out");
    if run("nbdcopy", &["--flush", from.to_str().unwrap(), &uri(&world)]).is_none() {
        return;
    }
    run("nbdcopy", &[&uri(&world), to.to_str().unwrap()]);
    assert!(std::fs::read(&to).unwrap() == bytes, "other bytes came out");
    let report = world.finish();
    assert!(report.memory == bytes, "other bytes went in");
    assert!(report.flushes > 0);
}

#[test]
fn qemu_img_converts_and_compares() {
    let world = World::new(Setup::default());
    let dir = tempfile::tempdir().unwrap();
    let (from, bytes) = image(dir.path(), "in");
    let from = from.to_str().unwrap();
    let convert = ["convert", "-n", "-f", "raw", "-O", "raw", from, &uri(&world)];
    if run("qemu-img", &convert).is_none() {
        return;
    }
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", from, &uri(&world)]);
    let report = world.finish();
    assert!(report.memory == bytes, "other bytes went in");
}
