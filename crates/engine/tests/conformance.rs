//! The contract of [`forebay_engine::device`], held over every device on the real reactor.

mod rig;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use forebay_engine::device::{Device, DeviceOp, FrameId, IoError, OpKind};
use forebay_engine::devices::faulty::{Effect, Faults, Faulty, Kinds, Rule};
use forebay_engine::devices::file::FileDevice;
use forebay_engine::devices::memory::Memory;
use forebay_engine::devices::paced::{Pace, Paced};
use forebay_engine::devices::recording::{Record, Recording};
use forebay_engine::reactor::Reactor;
use forebay_uring::{Direct, FileKind, OpenOptions};
use rig::Rig;

const OPEN: OpenOptions = OpenOptions { write: true, direct: true, exclusive: true, create: false };

fn sized_file(directory: &Path, bytes: u64) -> PathBuf {
    let path = directory.join("device");
    let file = std::fs::File::create(&path).expect("a file in a new directory");
    file.set_len(bytes).expect("a sparse file");
    path
}

/// A directory on a disk, where O_DIRECT works; the directory for temporary files may be in memory.
fn disk_directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

#[test]
fn memory() {
    let mut rig = Rig::new();
    let mut device = Memory::new(Rc::clone(&rig.arena), (3 << 20) + 512);
    rig.conform(&mut device, 2500);
}

#[test]
fn layers_keep_the_contract() {
    let mut rig = Rig::new();
    let faults = Faults::new();
    faults.add(Rule { skip: 100, times: 50, ..Rule::of(Kinds::READ, Effect::DelayNs(200_000)) });
    let memory = Memory::new(Rc::clone(&rig.arena), (3 << 20) + 512);
    let paced = Paced::new(memory, Pace::new(2_000_000_000, 10_000));
    let mut device = Recording::new(Faulty::new(paced, faults), Record::with_log(100));
    rig.conform(&mut device, 2000);
}

#[test]
fn file_past_the_page_cache() {
    let directory = disk_directory();
    let path = sized_file(directory.path(), (4 << 20) + 3 * 512);
    let mut rig = Rig::new();
    let mut device = FileDevice::open(rig.port(), rig.frames, &path, OPEN).expect("a file that opens");
    if device.facts().direct != Direct::On {
        rig::skipped(&format!("no O_DIRECT on {}: {:?}", path.display(), device.facts().direct));
    }
    rig.conform(&mut device, 2500);
}

/// Short transfers are continued; one that cannot be is an error, and no old bytes pass for read ones.
#[test]
fn a_file_that_became_shorter_fails_what_is_behind_its_end() {
    let directory = disk_directory();
    let path = sized_file(directory.path(), 131_072);
    let mut rig = Rig::new();
    let mut device = FileDevice::open(rig.port(), rig.frames, &path, OPEN).expect("a file that opens");
    std::fs::OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(69_632)).expect("a shorter file");
    let mut done = Vec::new();
    for (token, length) in [(1, 65_536), (2, 131_072)] {
        let op = DeviceOp { token, kind: OpKind::Read, offset: 0, length, frame: FrameId(0), at: 0 };
        device.submit(0, op);
        while done.len() < token as usize {
            rig.reactor.wait(rig.reactor.now_ns() + 1_000_000_000);
            device.poll(0, &mut done);
        }
    }
    assert_eq!([done[0].result, done[1].result], [Ok(()), Err(IoError::Failed)]);
}

/// A loop device: another size of sectors, and the commands of block devices. Needs root.
#[test]
fn block_devices() {
    for sector_bytes in [512, 4096] {
        let directory = disk_directory();
        let path = sized_file(directory.path(), 3 << 20);
        let Some(loop_device) = LoopDevice::attach(&path, sector_bytes) else { return };
        let mut rig = Rig::new();
        let mut device = match FileDevice::open(rig.port(), rig.frames, &loop_device.0, OPEN) {
            Ok(device) => device,
            Err(error) => return rig::skipped(&error.to_string()),
        };
        assert_eq!((device.facts().kind, device.facts().sector_bytes), (FileKind::Block, sector_bytes));
        rig.conform(&mut device, 1000);
    }
}

struct LoopDevice(PathBuf);

impl LoopDevice {
    fn attach(file: &Path, sector_bytes: u32) -> Option<Self> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--direct-io=on", &format!("--sector-size={sector_bytes}")]).arg(file);
        match losetup.output() {
            Ok(output) if output.status.success() => {
                Some(Self(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())))
            }
            Ok(output) => {
                rig::skipped(&format!("no loop device: {}", String::from_utf8_lossy(&output.stderr).trim()));
                None
            }
            Err(error) => {
                rig::skipped(&format!("no loop device: losetup cannot be run ({error})"));
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn file_through_the_page_cache() {
    let directory = disk_directory();
    let path = sized_file(directory.path(), (1 << 20) + 512 + 100);
    let mut rig = Rig::new();
    let options = OpenOptions { direct: false, ..OPEN };
    let mut device = FileDevice::open(rig.port(), rig.frames, &path, options).expect("a file that opens");
    assert_eq!(device.geometry().bytes, (1 << 20) + 512, "whole sectors only");
    rig.conform(&mut device, 2000);
}

/// A file on tmpfs has direct I/O in units of 4096 bytes where the kernel has it at all.
#[test]
fn file_in_memory() {
    let directory = match tempfile::tempdir_in("/dev/shm") {
        Ok(directory) => directory,
        Err(error) => return rig::skipped(&format!("no /dev/shm ({error})")),
    };
    let path = sized_file(directory.path(), (2 << 20) + 7 * 512);
    let mut rig = Rig::new();
    let mut device = FileDevice::open(rig.port(), rig.frames, &path, OPEN).expect("a file that opens");
    if device.facts().sector_bytes != 4096 {
        rig::skipped(&format!("sectors of 4096 bytes in memory: {:?}", device.facts()));
    }
    rig.conform(&mut device, 2500);
}
