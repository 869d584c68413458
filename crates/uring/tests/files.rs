//! Disk operations through a ring, on files of the build's temporary directory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use forebay_uring::{Direct, DiskFile, Errno, ErrorKind, FileKind, Op, OpenOptions, Space, SpaceChange};
use rig::{FRAME_BYTES, Rig, pattern, temp_dir};

const NEW: OpenOptions = OpenOptions { write: true, direct: true, exclusive: true, create: true };

fn new_file(dir: &tempfile::TempDir, frames: u64) -> DiskFile {
    let mut file = DiskFile::open(&dir.path().join("disk"), NEW).unwrap();
    file.resize(frames * u64::from(FRAME_BYTES), Space::Allocated).unwrap();
    file
}

#[test]
fn direct_io_writes_and_reads_back_every_byte() {
    let dir = temp_dir();
    let file = new_file(&dir, 64);
    assert_ne!(file.facts().direct, Direct::Off);
    assert!(FRAME_BYTES.is_multiple_of(file.facts().sector_bytes));
    let mut rig = Rig::new(64, 128);
    let fd = rig.ring.register(file.into_fd()).unwrap();
    for frame in 0..64 {
        rig.arena.copy_in(frame, 0, &pattern(frame));
        let at = u64::from(frame) * u64::from(FRAME_BYTES);
        rig.submit(frame.into(), Op::Write { fd, at, buf: rig.frame(frame), dsync: frame % 2 == 0 });
    }
    rig.expect_all(64, |completion| assert_eq!(completion.result, Ok(FRAME_BYTES)));
    rig.submit(99, Op::Fsync { fd, datasync: true });
    rig.expect_all(1, |completion| assert_eq!((completion.token, completion.result), (99, Ok(0))));
    for frame in 0..64 {
        // Into another frame than it came from.
        let at = u64::from(63 - frame) * u64::from(FRAME_BYTES);
        rig.submit(frame.into(), Op::Read { fd, at, buf: rig.frame(frame) });
        assert!(rig.arena.is_held(frame));
    }
    rig.expect_all(64, |completion| assert_eq!(completion.result, Ok(FRAME_BYTES)));
    for frame in 0..64 {
        assert!(!rig.arena.is_held(frame));
        assert_eq!(rig.bytes(frame), pattern(63 - frame), "frame {frame}");
    }
    let (fixed_bytes, refused) = rig.ring.fixed_bytes();
    assert_eq!((fixed_bytes, refused), (64 * u64::from(FRAME_BYTES), None));
}

#[test]
fn a_read_at_the_end_is_short_and_behind_it_empty() {
    let dir = temp_dir();
    let mut file = new_file(&dir, 1);
    file.resize(4096, Space::Sparse).unwrap();
    let mut rig = Rig::new(2, 8);
    let fd = rig.ring.register(file.into_fd()).unwrap();
    rig.submit(1, Op::Read { fd, at: 0, buf: rig.frame(0) });
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(4096)));
    rig.submit(2, Op::Read { fd, at: 8192, buf: rig.frame(0) });
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(0)));
}

#[test]
fn one_transfer_may_fill_frames_that_lie_side_by_side() {
    let dir = temp_dir();
    let file = new_file(&dir, 4);
    let mut rig = Rig::new(8, 8);
    let fd = rig.ring.register(file.into_fd()).unwrap();
    for frame in 0..4 {
        rig.arena.copy_in(frame, 0, &pattern(frame));
    }
    let three = forebay_uring::Buf { len: 3 * FRAME_BYTES + 4096, ..rig.frame(0) };
    rig.submit(1, Op::Write { fd, at: 0, buf: three, dsync: false });
    assert!((0..4).all(|frame| rig.arena.is_held(frame)));
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(3 * FRAME_BYTES + 4096)));
    assert!((0..8).all(|frame| !rig.arena.is_held(frame)));
    let rest = three.rest(FRAME_BYTES + 4096, FRAME_BYTES);
    assert_eq!((rest.frame, rest.at, rest.len), (1, 4096, 2 * FRAME_BYTES));
    let into = forebay_uring::Buf { frame: 4, ..three };
    rig.submit(2, Op::Read { fd, at: 0, buf: into });
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(3 * FRAME_BYTES + 4096)));
    for frame in 0..3 {
        assert_eq!(rig.bytes(4 + frame), pattern(frame));
    }
    assert_eq!(rig.bytes(7)[..4096], pattern(3)[..4096]);
    assert_eq!(rig.bytes(7)[4096..], vec![0; FRAME_BYTES as usize - 4096]);
}

#[test]
fn a_transfer_across_registered_buffers_works_unregistered() {
    let dir = temp_dir();
    let file = new_file(&dir, 2);
    // Buffers are registered by 16 MiB, which is 256 frames.
    let mut rig = Rig::new(300, 8);
    let fd = rig.ring.register(file.into_fd()).unwrap();
    rig.arena.copy_in(255, 0, &pattern(1));
    rig.arena.copy_in(256, 0, &pattern(2));
    let two = forebay_uring::Buf { len: 2 * FRAME_BYTES, ..rig.frame(255) };
    rig.submit(1, Op::Write { fd, at: 0, buf: two, dsync: true });
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(2 * FRAME_BYTES)));
    rig.arena.fill_zero(255, 0, FRAME_BYTES);
    rig.arena.fill_zero(256, 0, FRAME_BYTES);
    rig.submit(2, Op::Read { fd, at: 0, buf: two });
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(2 * FRAME_BYTES)));
    assert_eq!((rig.bytes(255), rig.bytes(256)), (pattern(1), pattern(2)));
    assert_eq!(rig.ring.fixed_bytes(), (16 << 20, None));
    rig.submit(3, Op::Read { fd, at: 0, buf: rig.frame(299) });
    rig.expect_all(1, |completion| assert_eq!(completion.result, Ok(FRAME_BYTES)));
    assert_eq!(rig.ring.fixed_bytes(), (300 * u64::from(FRAME_BYTES), None));
    assert_eq!(rig.bytes(299), pattern(1));
}

#[test]
fn punched_and_zeroed_ranges_read_as_zeroes() {
    let dir = temp_dir();
    let file = new_file(&dir, 3);
    assert!(file.facts().punch);
    let mut rig = Rig::new(3, 8);
    let fd = rig.ring.register(file.into_fd()).unwrap();
    for frame in 0..3 {
        rig.arena.copy_in(frame, 0, &pattern(frame));
        let at = u64::from(frame * FRAME_BYTES);
        rig.submit(0, Op::Write { fd, at, buf: rig.frame(frame), dsync: false });
    }
    rig.expect_all(3, |completion| assert_eq!(completion.result, Ok(FRAME_BYTES)));
    let (at, len) = (u64::from(FRAME_BYTES), u64::from(FRAME_BYTES));
    rig.submit(1, Op::Fallocate { fd, change: SpaceChange::Punch, at, len: len / 2 });
    rig.submit(2, Op::Fallocate { fd, change: SpaceChange::Zero, at: at + len / 2, len: len / 2 });
    rig.expect_all(2, |completion| assert_eq!(completion.result, Ok(0)));
    for frame in 0..3 {
        let at = u64::from(frame * FRAME_BYTES);
        rig.submit(3, Op::Read { fd, at, buf: rig.frame(frame) });
    }
    rig.expect_all(3, |completion| assert_eq!(completion.result, Ok(FRAME_BYTES)));
    assert_eq!(rig.bytes(0), pattern(0));
    assert_eq!(rig.bytes(1), vec![0; FRAME_BYTES as usize]);
    assert_eq!(rig.bytes(2), pattern(2));
}

#[test]
fn a_refused_operation_does_not_touch_its_neighbours() {
    let dir = temp_dir();
    drop(new_file(&dir, 1));
    let read_only = OpenOptions { write: false, ..NEW };
    let file = DiskFile::open(&dir.path().join("disk"), OpenOptions { create: false, ..read_only });
    let mut rig = Rig::new(2, 8);
    let fd = rig.ring.register(file.unwrap().into_fd()).unwrap();
    rig.submit(1, Op::Write { fd, at: 0, buf: rig.frame(0), dsync: false });
    rig.submit(2, Op::Read { fd, at: 0, buf: rig.frame(1) });
    rig.expect_all(2, |completion| {
        let expected = if completion.token == 1 { Err(Errno::BADF) } else { Ok(FRAME_BYTES) };
        assert_eq!(completion.result, expected);
    });
}

#[test]
fn a_second_owner_is_refused_by_name_until_the_ring_is_gone() {
    let dir = temp_dir();
    let file = new_file(&dir, 1);
    let path = dir.path().join("disk");
    let mut rig = Rig::new(1, 8);
    let fd = rig.ring.register(file.into_fd()).unwrap();
    rig.submit(1, Op::Read { fd, at: 0, buf: rig.frame(0) });
    let error = DiskFile::open(&path, NEW).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InUse);
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    DiskFile::open(&path, OpenOptions { exclusive: false, ..NEW }).unwrap();
    drop(rig);
    DiskFile::open(&path, NEW).unwrap();
}

#[test]
fn a_descriptor_closed_in_the_ring_frees_its_lock_at_once() {
    let dir = temp_dir();
    let file = new_file(&dir, 1);
    let mut rig = Rig::new(1, 8);
    let fd = rig.ring.register(file.into_fd()).unwrap();
    rig.submit(1, Op::Read { fd, at: 0, buf: rig.frame(0) });
    rig.ring.close(fd);
    rig.expect_all(1, |completion| assert!(matches!(completion.result, Ok(_) | Err(Errno::CANCELED))));
    DiskFile::open(&dir.path().join("disk"), NEW).unwrap();
}

#[test]
fn an_idle_descriptor_closed_or_taken_frees_its_lock_at_once() {
    let dir = temp_dir();
    let mut rig = Rig::new(1, 8);
    let fd = rig.ring.register(new_file(&dir, 1).into_fd()).unwrap();
    rig.ring.close(fd);
    let again = DiskFile::open(&dir.path().join("disk"), NEW).unwrap();
    let fd = rig.ring.register(again.into_fd()).unwrap();
    drop(rig.ring.take(fd));
    DiskFile::open(&dir.path().join("disk"), NEW).unwrap();
}

#[test]
fn blocking_calls_move_all_bytes() {
    let dir = temp_dir();
    let file = new_file(&dir, 2);
    let rig = Rig::new(2, 8);
    rig.arena.copy_in(0, 0, &pattern(5));
    rig.arena.with_bytes(0, 0, FRAME_BYTES, |bytes| file.write_at(u64::from(FRAME_BYTES), bytes)).unwrap();
    file.sync().unwrap();
    rig.arena.with_bytes_mut(1, 0, FRAME_BYTES, |bytes| file.read_at(u64::from(FRAME_BYTES), bytes)).unwrap();
    assert_eq!(rig.bytes(1), pattern(5));
    let behind = rig.arena.with_bytes_mut(1, 0, FRAME_BYTES, |bytes| file.read_at(u64::from(2 * FRAME_BYTES), bytes));
    assert!(behind.unwrap_err().to_string().contains("ends before byte"));
}

#[test]
fn facts_tell_what_was_opened() {
    let dir = temp_dir();
    let file = new_file(&dir, 1);
    let facts = file.facts();
    assert_eq!((facts.kind, facts.size_bytes), (FileKind::Regular, FRAME_BYTES.into()));
    assert!(facts.mtime_ns > 1_600_000_000_000_000_000);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path().join("disk"), &link).unwrap();
    let options = OpenOptions { write: false, direct: false, exclusive: false, create: false };
    let same = DiskFile::open(&link, options).unwrap().facts();
    assert_eq!(same.identity, facts.identity);
    assert_eq!((same.direct, same.sector_bytes, same.size_bytes), (Direct::Off, 1, FRAME_BYTES.into()));
}

#[test]
fn opening_a_file_does_not_change_its_time_of_modification() {
    let dir = temp_dir();
    drop(new_file(&dir, 1));
    let open = || DiskFile::open(&dir.path().join("disk"), NEW).unwrap().facts().mtime_ns;
    let before = open();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!((open(), open()), (before, before));
}

#[test]
fn what_cannot_be_opened_is_named_with_the_next_step() {
    let dir = temp_dir();
    let cases = [
        (dir.path().join("missing"), "check the path"),
        (dir.path().to_owned(), "is a directory"),
        ("/dev/null".into(), "is a special file"),
    ];
    for (path, expected) in cases {
        let error = DiskFile::open(&path, OpenOptions { create: false, ..NEW }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unusable);
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    let mut file = new_file(&dir, 1);
    let error = file.resize(1 << 60, Space::Allocated).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unusable);
}
