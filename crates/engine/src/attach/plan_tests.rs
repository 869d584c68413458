use super::*;
use crate::attach::VolumeEnd;
use crate::device::{Device, DeviceDone, DeviceOp, Geometry, IoError};
use crate::reactor::Reactor;
use forebay_core::{PageKey, VolumeId};
use forebay_uring::Arena;
use forebay_wire::disk::intent::region_bytes;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;
const DEVICE_BYTES: u64 = 64 << 20;

fn volume(name: &str) -> VolumeFacts {
    let identity = name.bytes().map(u64::from).sum();
    VolumeFacts {
        name: name.to_owned(),
        backend: format!("/dev/{name}"),
        identity,
        bytes: GIB,
        mtime_ns: 0,
        log_bytes: 0,
    }
}

fn wanted(volumes: &[VolumeFacts]) -> Wanted<'_> {
    Wanted {
        page_bytes: 65536,
        device_bytes: DEVICE_BYTES,
        volumes,
        generation: Some(3),
        cold: false,
        force_format: false,
        intent_map: true,
        new_cache_id: [7; 16],
        identity: None,
    }
}

fn apply(head: &mut [u8], write: &Write) {
    head[write.offset as usize..][..write.bytes.len()].copy_from_slice(&write.bytes);
}

fn apply_all(head: &mut [u8], plan: &Plan) {
    plan.writes.iter().flatten().for_each(|write| apply(head, write));
}

/// A head on which a cache with these volumes runs.
fn running(volumes: &[VolumeFacts]) -> (Vec<u8>, CacheDisk) {
    let mut head = vec![0; HEAD_BYTES];
    // Formatting raises it to what the tests go on with.
    let plan = plan(&head, &Wanted { generation: Some(2), ..wanted(volumes) }).unwrap();
    assert_eq!((plan.notices.as_slice(), plan.recover), ([Notice::Formatted].as_slice(), false));
    apply_all(&mut head, &plan);
    let mut disk = plan.disk;
    for volume in 0..volumes.len() {
        // Its first sweep has flushed the back end.
        write_intent(&mut head, &mut disk, volume as u16, &[]);
    }
    (head, disk)
}

fn write_intent(head: &mut [u8], disk: &mut CacheDisk, volume: u16, words: &[u64]) {
    let mut bytes = vec![0; SECTOR_BYTES];
    let offset = disk.encode_intent(VolumeId(volume), words, &mut bytes);
    disk.intent_durable(VolumeId(volume));
    apply(head, &Write { offset, bytes });
}

fn stop(head: &mut [u8], disk: &mut CacheDisk, mtimes_ns: &[i64]) {
    let mut bytes = vec![0; SECTOR_BYTES];
    let ends: Vec<VolumeEnd> = mtimes_ns.iter().copied().map(VolumeEnd::without_log).collect();
    let offset = disk.encode_clean(&ends, &mut bytes);
    apply(head, &Write { offset, bytes });
}

fn spaces(plan: &Plan, volumes: u16) -> Vec<u32> {
    (0..volumes).map(|volume| plan.disk.space(VolumeId(volume))).collect()
}

fn in_flight(plan: &Plan, volume: usize) -> u32 {
    plan.in_flight_regions[volume].iter().map(|word| word.count_ones()).sum()
}

#[test]
fn a_blank_device_is_formatted_and_attaches_warm_after_an_orderly_stop() {
    let volumes = [volume("a"), volume("b")];
    let (mut head, mut disk) = running(&volumes);
    write_intent(&mut head, &mut disk, 1, &[0b101]);
    stop(&mut head, &mut disk, &[0, 0]);
    let plan = plan(&head, &wanted(&volumes)).unwrap();
    assert!(plan.recover && plan.notices.is_empty(), "{:?}", plan.notices);
    assert_eq!(spaces(&plan, 2), [1, 2]);
    assert_eq!([in_flight(&plan, 0), in_flight(&plan, 1)], [0, 0]);
    assert_eq!(plan.generation, 3);
    assert_eq!(plan.disk.region_bytes(VolumeId(0)), region_bytes(GIB));
}

#[test]
fn after_a_crash_the_regions_in_flight_are_told_and_stay_told_until_cleared() {
    let volumes = [volume("a"), volume("b")];
    let (mut head, mut disk) = running(&volumes);
    write_intent(&mut head, &mut disk, 1, &[0b111]);
    write_intent(&mut head, &mut disk, 1, &[0b101]);
    for _ in 0..3 {
        let plan = plan(&head, &wanted(&volumes)).unwrap();
        assert!(plan.recover);
        assert_eq!(plan.in_flight_regions[1][0], 0b101);
        assert_eq!(in_flight(&plan, 0), 0);
        apply_all(&mut head, &plan);
    }
}

#[test]
fn the_clean_mark_of_the_last_run_never_comes_back_even_if_a_superblock_is_damaged() {
    let volumes = [volume("a")];
    let (mut head, mut disk) = running(&volumes);
    stop(&mut head, &mut disk, &[0]);
    let attached = plan(&head, &wanted(&volumes)).unwrap();
    apply_all(&mut head, &attached);
    let mut disk = attached.disk;
    write_intent(&mut head, &mut disk, 0, &[0b110]);
    for damaged in [None, Some(0), Some(SECTOR_BYTES)] {
        let mut head = head.clone();
        if let Some(copy) = damaged {
            head[copy + 200] ^= 1;
        }
        let plan = plan(&head, &wanted(&volumes)).unwrap();
        assert_eq!((plan.recover, plan.in_flight_regions[0][0]), (true, 0b110), "{damaged:?}");
    }
}

#[test]
fn a_map_that_may_not_be_the_last_one_counts_as_all_regions() {
    let volumes = [volume("a")];
    let (mut head, mut disk) = running(&volumes);
    write_intent(&mut head, &mut disk, 0, &[0b1]);
    let place = Layout::intent_offset(0, 1) as usize;
    head[place + 100] ^= 1;
    let plan = plan(&head, &wanted(&volumes)).unwrap();
    assert_eq!(in_flight(&plan, 0), 1024);
    apply_all(&mut head, &plan);
    let again = super::plan(&head, &wanted(&volumes)).unwrap();
    assert_eq!(in_flight(&again, 0), 1024);
}

#[test]
fn a_failed_write_of_a_map_is_tried_again_at_the_same_place() {
    let (_, mut disk) = running(&[volume("a")]);
    let mut bytes = vec![0; SECTOR_BYTES];
    let first = disk.encode_intent(VolumeId(0), &[1], &mut bytes);
    assert_eq!(disk.encode_intent(VolumeId(0), &[1], &mut bytes), first);
    disk.intent_durable(VolumeId(0));
    assert_ne!(disk.encode_intent(VolumeId(0), &[1], &mut bytes), first);
}

#[test]
fn without_intent_maps_a_crash_drops_everything_and_an_orderly_stop_nothing() {
    let volumes = [volume("a")];
    let off = Wanted { intent_map: false, generation: Some(2), ..wanted(&volumes) };
    let mut head = vec![0; HEAD_BYTES];
    let first = plan(&head, &off).unwrap();
    apply_all(&mut head, &first);
    assert_eq!(in_flight(&plan(&head, &wanted(&volumes)).unwrap(), 0), 1024);
    stop(&mut head, &mut first.disk.clone(), &[0]);
    assert_eq!(in_flight(&plan(&head, &wanted(&volumes)).unwrap(), 0), 0);
}

#[test]
fn what_is_not_ours_is_refused_and_formatted_only_by_force() {
    let volumes = [volume("a")];
    let refusal = |head: &[u8]| plan(head, &wanted(&volumes)).unwrap_err();
    let mut ext4 = vec![0; HEAD_BYTES];
    ext4[1080..1082].copy_from_slice(&[0x53, 0xef]);
    assert!(matches!(refusal(&ext4), Refusal::Foreign { what: "an ext2, ext3 or ext4 file system" }));
    let mut newer = running(&volumes).0;
    for copy in [0, SECTOR_BYTES] {
        reversion(&mut newer[copy..copy + SECTOR_BYTES], 3);
    }
    assert_eq!(refusal(&newer), Refusal::Newer { version: 3 });
    let mut damaged = running(&volumes).0;
    (damaged[100], damaged[SECTOR_BYTES + 100]) = (0xff, 0xff);
    assert_eq!(refusal(&damaged), Refusal::Damaged);
    for mut head in [ext4, newer, damaged] {
        let plan = plan(&head, &Wanted { force_format: true, ..wanted(&volumes) }).unwrap();
        assert_eq!(plan.notices, [Notice::Formatted]);
        assert_eq!(plan.generation, 4, "the disk used until now is not to be believed again");
        apply_all(&mut head, &plan);
        let again = Wanted { generation: Some(plan.generation), ..wanted(&volumes) };
        assert!(super::plan(&head, &again).unwrap().recover);
    }
}

/// Gives a superblock another version and a right checksum.
fn reversion(sector: &mut [u8], version: u32) {
    sector[8..12].copy_from_slice(&version.to_le_bytes());
    sector[12..16].fill(0);
    let crc = crc32c::crc32c_append(0, sector);
    sector[12..16].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn an_older_version_is_dropped_with_a_word() {
    let volumes = [volume("a")];
    let mut head = running(&volumes).0;
    for copy in [0, SECTOR_BYTES] {
        reversion(&mut head[copy..copy + SECTOR_BYTES], 0);
    }
    let plan = plan(&head, &wanted(&volumes)).unwrap();
    assert_eq!((plan.notices.as_slice(), plan.recover), ([Notice::OlderVersion(0)].as_slice(), false));
}

#[test]
fn another_page_or_device_size_formats_anew() {
    let volumes = [volume("a")];
    let (head, disk) = running(&volumes);
    for (what, wanted) in [
        ("page size", Wanted { page_bytes: 4096, new_cache_id: [8; 16], ..wanted(&volumes) }),
        ("room for slots", Wanted { device_bytes: 2 * DEVICE_BYTES, new_cache_id: [8; 16], ..wanted(&volumes) }),
    ] {
        let mut head = head.clone();
        let plan = plan(&head, &wanted).unwrap();
        assert!(matches!(plan.notices[..], [Notice::LayoutChanged { what: seen, .. }] if seen == what));
        assert!(!plan.recover && plan.disk.superblock().sequence > disk.superblock().sequence);
        apply_all(&mut head, &plan);
        let again = Wanted { generation: Some(plan.generation), ..wanted };
        assert!(super::plan(&head, &again).unwrap().recover);
    }
}

#[test]
fn a_generation_that_is_not_the_disks_empties_it() {
    let volumes = [volume("a")];
    let (mut head, mut disk) = running(&volumes);
    stop(&mut head, &mut disk, &[0]);
    for (generation, notice, then) in [
        (Some(4), Notice::GenerationPassed, 5),
        (Some(2), Notice::GenerationPassed, 4),
        (None, Notice::GenerationUnknown, 4),
    ] {
        let plan = plan(&head, &Wanted { generation, ..wanted(&volumes) }).unwrap();
        assert_eq!((plan.notices.as_slice(), plan.recover), ([notice].as_slice(), false));
        assert_eq!(plan.generation, then);
        assert!(plan.disk.superblock().table_epoch > disk.superblock().table_epoch);
        let mut head = head.clone();
        apply_all(&mut head, &plan);
        let again = Wanted { generation: Some(plan.generation), ..wanted(&volumes) };
        assert!(super::plan(&head, &again).unwrap().recover);
    }
}

#[test]
fn two_disks_that_are_used_in_turns_are_emptied_each_time() {
    let volumes = [volume("a")];
    let first = running(&volumes).0;
    let mut disks = [first, vec![0; HEAD_BYTES]];
    let mut generation = 3;
    for turn in 1..9 {
        let head = &mut disks[turn % 2];
        let new_cache_id = [turn as u8; 16];
        let next = Wanted { generation: Some(generation), new_cache_id, cold: turn == 5, ..wanted(&volumes) };
        let plan = plan(head, &next).unwrap();
        assert!(!plan.recover, "turn {turn}: the other disk was in use since");
        apply_all(head, &plan);
        generation = plan.generation;
    }
}

#[test]
fn volumes_keep_their_spaces_and_new_ones_never_get_an_old_one() {
    let (mut head, _) = running(&[volume("a"), volume("b"), volume("c")]);
    let fewer = [volume("c"), volume("a")];
    let plan_1 = plan(&head, &wanted(&fewer)).unwrap();
    assert_eq!(spaces(&plan_1, 2), [3, 1]);
    apply_all(&mut head, &plan_1);
    let back = [volume("b"), volume("c"), volume("d"), volume("a")];
    let plan_2 = plan(&head, &wanted(&back)).unwrap();
    assert_eq!(spaces(&plan_2, 4), [4, 3, 5, 1], "b was gone meanwhile: it starts empty");
}

#[test]
fn a_volume_of_another_back_end_is_refused_until_cold_is_said() {
    let (mut head, mut disk) = running(&[volume("a"), volume("b")]);
    stop(&mut head, &mut disk, &[0, 0]);
    let other = [volume("a"), VolumeFacts { identity: 1, backend: "/dev/other".to_owned(), ..volume("b") }];
    let refusal = plan(&head, &wanted(&other)).unwrap_err();
    let words = refusal.to_string();
    for expected in ["\"b\"", "/dev/other", "--cold", "--force-format"] {
        assert!(words.contains(expected), "{words}");
    }
    let plan = plan(&head, &Wanted { cold: true, ..wanted(&other) }).unwrap();
    assert_eq!((spaces(&plan, 2), plan.recover), (vec![1, 3], false));
    assert!(plan.notices.contains(&Notice::ColdAsked));
}

#[test]
fn a_back_end_that_changed_while_stopped_makes_its_volume_cold_and_no_other() {
    let facts = |mtime_ns, bytes| [volume("a"), VolumeFacts { mtime_ns, bytes, ..volume("b") }];
    let (mut head, mut disk) = running(&facts(10, GIB));
    let crashed = head.clone();
    stop(&mut head, &mut disk, &[0, 20]);
    let spaces_of = |head: &[u8], volumes: &[VolumeFacts]| {
        let plan = plan(head, &wanted(volumes)).unwrap();
        assert!(plan.recover, "the other volume stays warm");
        spaces(&plan, 2)
    };
    assert_eq!(spaces_of(&head, &facts(20, GIB)), [1, 2]);
    assert_eq!(spaces_of(&head, &facts(0, GIB)), [1, 2], "unknown");
    assert_eq!(spaces_of(&head, &facts(21, GIB)), [1, 3]);
    assert_eq!(spaces_of(&head, &facts(20, 2 * GIB)), [1, 3]);
    let (mut unknown, mut disk) = running(&facts(10, GIB));
    stop(&mut unknown, &mut disk, &[0, 0]);
    assert_eq!(spaces_of(&unknown, &facts(20, GIB)), [1, 2], "unknown then");
    assert_eq!(spaces_of(&crashed, &facts(30, GIB)), [1, 2], "our own writes changed it");
}

fn logged(name: &str, log_bytes: u64) -> VolumeFacts {
    VolumeFacts { log_bytes, ..volume(name) }
}

/// A head with a cache whose logs were opened.
fn with_open_logs(volumes: &[VolumeFacts]) -> (Vec<u8>, CacheDisk) {
    let (mut head, mut disk) = running(volumes);
    let mut bytes = vec![0; SECTOR_BYTES];
    let offset = disk.encode_logs_in_use(&mut bytes);
    apply(&mut head, &Write { offset, bytes });
    (head, disk)
}

#[test]
fn logs_lie_behind_the_slots_and_stay_where_they_are() {
    let volumes = [logged("a", 8 << 20), volume("b"), logged("c", 4 << 20)];
    let (mut head, mut disk) = with_open_logs(&volumes);
    let slots_end = DEVICE_BYTES - (12 << 20);
    assert_eq!(disk.layout().device_bytes(), slots_end);
    let log = |offset, bytes, in_use| Some(LogArea { offset, bytes, in_use });
    let logs = |plan: &Plan| [0, 1, 2].map(|at| plan.disk.log(VolumeId(at)));
    let after_a_crash = plan(&head, &wanted(&volumes)).unwrap();
    assert_eq!(logs(&after_a_crash), [log(slots_end, 8 << 20, true), None, log(slots_end + (8 << 20), 4 << 20, true)]);
    // Named in another order.
    let [a, b, c] = volumes.clone();
    let turned = plan(&head, &wanted(&[c, b, a])).unwrap();
    assert!(turned.recover);
    assert_eq!(logs(&turned)[2], log(slots_end, 8 << 20, true));
    // One of them has followed.
    let end = |log_has_followed| VolumeEnd { mtime_ns: 20, log_has_followed };
    let mut bytes = vec![0; SECTOR_BYTES];
    let offset = disk.encode_clean(&[end(true), end(true), end(false)], &mut bytes);
    apply(&mut head, &Write { offset, bytes });
    let mut modified = volumes.clone();
    modified[2].mtime_ns = 21;
    let stopped = plan(&head, &wanted(&modified)).unwrap();
    assert_eq!(spaces(&stopped, 3), [1, 2, 3], "what modifies the back end later is its own log");
    assert_eq!(logs(&stopped), [log(slots_end, 8 << 20, false), None, log(slots_end + (8 << 20), 4 << 20, true)]);
}

#[test]
fn a_log_in_use_is_never_dropped_but_by_force() {
    let volumes = [logged("a", 8 << 20), volume("b")];
    let (head, _) = with_open_logs(&volumes);
    let other_back_end = VolumeFacts { identity: 1, ..logged("a", 8 << 20) };
    let gone = [volume("b")];
    let moved = [volume("a"), logged("b", 8 << 20)];
    let resized = [logged("a", 4 << 20), volume("b")];
    let more = [logged("a", 8 << 20), logged("b", 4 << 20)];
    let grown = [VolumeFacts { bytes: 2 * GIB, ..logged("a", 8 << 20) }, volume("b")];
    let other = [other_back_end, volume("b")];
    let cold = |volumes| Wanted { cold: true, ..wanted(volumes) };
    let larger = Wanted { device_bytes: 2 * DEVICE_BYTES, ..wanted(&volumes) };
    let pages = Wanted { page_bytes: 4096, ..wanted(&volumes) };
    let changes = [wanted(&gone), wanted(&moved), wanted(&resized), wanted(&more), wanted(&grown), cold(&other)];
    for wanted in changes.into_iter().chain([larger, pages]) {
        let refusal = plan(&head, &wanted).unwrap_err();
        assert_eq!(refusal, Refusal::LogInUse { volume: "a".to_owned(), bytes: 8 << 20 }, "{wanted:?}");
        assert!(refusal.to_string().contains("forebay flush a --to backend"));
        assert!(plan(&head, &Wanted { force_format: true, ..wanted }).is_ok());
    }
    // Emptying the slots leaves the log alone.
    let emptied = plan(&head, &cold(&volumes)).unwrap();
    assert!(!emptied.recover && emptied.disk.log(VolumeId(0)).is_some_and(|log| log.in_use));
}

#[test]
fn an_empty_log_gives_way() {
    let volumes = [logged("a", 8 << 20), volume("b")];
    let (mut head, mut disk) = with_open_logs(&volumes);
    stop(&mut head, &mut disk, &[0, 0]);
    let moved = plan(&head, &wanted(&[volume("a"), logged("b", 8 << 20)])).unwrap();
    assert!(moved.notices.contains(&Notice::LogsChanged), "{:?}", moved.notices);
    assert!(
        moved.disk.superblock().cache_seed()
            == Superblock { cache_id: [7; 16], ..disk.superblock().clone() }.cache_seed()
    );
    let resized = plan(&head, &wanted(&[logged("a", 4 << 20), volume("b")])).unwrap();
    assert!(matches!(resized.notices[..], [Notice::LayoutChanged { what: "room for slots", .. }]));
    let new = [logged("b", 8 << 20), VolumeFacts { identity: 9, ..volume("a") }];
    let taken_over = plan(&head, &Wanted { cold: true, ..wanted(&new) });
    assert!(taken_over.unwrap().notices.contains(&Notice::LogsChanged));
}

#[test]
fn bad_volumes_and_sizes_are_named() {
    let head = vec![0; HEAD_BYTES];
    let refusal = |volumes: &[VolumeFacts]| plan(&head, &wanted(volumes)).unwrap_err();
    assert_eq!(refusal(&[]), Refusal::VolumeCount { count: 0 });
    let many: Vec<VolumeFacts> = (0..31).map(|n| volume(&format!("v{n}"))).collect();
    assert_eq!(refusal(&many), Refusal::VolumeCount { count: 31 });
    assert!(matches!(refusal(&[volume(&"x".repeat(57))]), Refusal::VolumeName { .. }));
    assert!(matches!(refusal(&[volume("a"), volume("a")]), Refusal::VolumeTwice { .. }));
    let volumes = [volume("a")];
    let small = plan(&head, &Wanted { device_bytes: 1 << 20, ..wanted(&volumes) }).unwrap_err();
    assert!(matches!(small, Refusal::TooSmall { bytes: 1_048_576, needed } if needed > 1 << 20));
    let odd = plan(&head, &Wanted { page_bytes: 5000, ..wanted(&volumes) }).unwrap_err();
    assert_eq!(odd, Refusal::PageBytes { bytes: 5000 });
}

#[test]
fn table_sectors_come_back_as_they_were_written() {
    let (_, disk) = running(&[volume("a")]);
    let records = disk.layout().records_per_sector() as usize;
    let key = |slot: usize| (!slot.is_multiple_of(3)).then_some(PageKey { space: 1, page: slot as u32 * 7 });
    let crcs: Vec<u32> = (1..=16).collect();
    let mut bytes = vec![0; 3 * SECTOR_BYTES];
    let written = (0..records).map(|slot| (key(slot), &crcs[..]));
    let offset = disk.encode_table_records(1, written, &mut bytes[SECTOR_BYTES..2 * SECTOR_BYTES]);
    assert_eq!(offset, disk.layout().table_sector_offset(1));
    bytes[2 * SECTOR_BYTES..].fill(0x55);
    let (mut found, mut found_crcs) = (Vec::new(), Vec::new());
    assert_eq!(disk.decode_table_sectors(0, &bytes, &mut found, &mut found_crcs), 0);
    assert_eq!(found.len(), 3 * records);
    assert_eq!(found_crcs.len(), 3 * records * 16);
    for (slot, (record, crcs_found)) in found.iter().zip(found_crcs.chunks(16)).enumerate() {
        let key = if slot / records == 1 { key(slot % records) } else { None };
        assert_eq!((record.space, record.page), key.map_or((0, 0), |key| (key.space, u64::from(key.page))));
        assert_eq!(crcs_found, key.map_or(&[0; 16][..], |_| &crcs[..]));
    }
}

#[test]
fn a_disk_that_starts_empty_takes_every_region_for_in_flight_until_the_back_end_was_flushed() {
    let volumes = [volume("a")];
    let blank = vec![0; HEAD_BYTES];
    assert_eq!(in_flight(&plan(&blank, &wanted(&volumes)).unwrap(), 0), 1024);
    let (head, _) = running(&volumes);
    let passed = Wanted { generation: Some(4), ..wanted(&volumes) };
    for wanted in [passed, Wanted { cold: true, ..wanted(&volumes) }] {
        let plan = plan(&head, &wanted).unwrap();
        assert_eq!((plan.recover, in_flight(&plan, 0)), (false, 1024));
    }
}

proptest! {
    /// Whatever part of the writes of an attachment is on the disk after a crash, the next one is never refused, and
    /// never takes a region for idle that was in flight.
    #[test]
    fn a_crash_while_attaching_costs_nothing_but_warmth(
        clean: bool, emptied: bool, reformat: bool, groups in 0usize..5, picks: u16, torn in 0usize..9,
    ) {
        let volumes = [volume("a"), volume("b")];
        let (mut head, mut disk) = running(&volumes);
        if clean {
            stop(&mut head, &mut disk, &[0, 0]);
        } else {
            write_intent(&mut head, &mut disk, 0, &[0b11]);
        }
        let page_bytes = if reformat { 4096 } else { 65536 };
        let generation = Some(if emptied { 4 } else { 3 });
        let next = Wanted { generation, page_bytes, new_cache_id: [9; 16], ..wanted(&volumes) };
        let interrupted = plan(&head, &next).unwrap();
        for group in interrupted.writes.iter().take(groups) {
            group.iter().for_each(|write| apply(&mut head, write));
        }
        for (nth, write) in interrupted.writes.iter().skip(groups).take(1).flatten().enumerate() {
            if picks >> nth & 1 == 1 {
                let bytes = if nth == torn { write.bytes[..write.bytes.len() / 8].to_vec() } else { write.bytes.clone() };
                apply(&mut head, &Write { bytes, ..*write });
            }
        }
        let plan = plan(&head, &next).unwrap();
        // Otherwise the table is empty already, or the disk is still as it was.
        if plan.recover && !clean && !emptied && !reformat {
            prop_assert_eq!(plan.in_flight_regions[0][0] & 0b11, 0b11);
        }
        if plan.recover && (emptied || reformat) {
            prop_assert_eq!([in_flight(&plan, 0), in_flight(&plan, 1)], [1024; 2]);
        }
        prop_assert!(!(plan.recover && reformat && groups == 0 && picks == 0));
        prop_assert!(plan.recover || emptied || reformat);
    }
}

/// The disk that a mirror's logs were of is gone, and another takes its place.
#[test]
fn a_disk_becomes_the_cache_whose_logs_a_mirror_has_and_nothing_of_a_former_life_is_found_on_it() {
    let volumes = [volume("a"), VolumeFacts { log_bytes: 1 << 20, ..volume("b") }];
    let mut head = vec![0; HEAD_BYTES];
    let first = plan(&head, &wanted(&volumes)).unwrap();
    apply_all(&mut head, &first);
    let superblock = first.disk.superblock();
    let spaces = vec![("b".to_owned(), first.disk.space(VolumeId(1)))];
    let identity = Identity { cache_id: superblock.cache_id, next_space: superblock.next_space, spaces };
    let again = Wanted { new_cache_id: [9; 16], identity: Some(&identity), ..wanted(&volumes) };
    // Blank, and the old one itself, by force: its maps and table have the same seed.
    for mut head in [vec![0; HEAD_BYTES], head] {
        let plan = plan(&head, &Wanted { force_format: true, ..again.clone() }).unwrap();
        let now = plan.disk.superblock();
        assert_eq!(now.cache_id, superblock.cache_id);
        assert_eq!(plan.disk.space(VolumeId(1)), first.disk.space(VolumeId(1)));
        assert!(plan.disk.space(VolumeId(0)) >= superblock.next_space, "never a space of before");
        assert!(now.table_epoch != superblock.table_epoch && now.mirror_side != 0 && !plan.recover);
        assert_eq!(plan.generation, 4);
        assert!(plan.writes[0][0].bytes.iter().all(|byte| *byte == 0) && plan.writes[0][0].bytes.len() == HEAD_BYTES);
        apply_all(&mut head, &plan);
        let attached = super::plan(&head, &Wanted { generation: Some(4), ..wanted(&volumes) }).unwrap();
        assert_eq!(attached.disk.superblock().mirror_side, now.mirror_side, "an attachment leaves the number");
        assert!(attached.in_flight_regions.iter().all(|words| words.iter().any(|word| *word != 0)));
    }
}

/// A disk that takes every other write, and what is then on it.
struct Takes<'a>(&'a Arena, Vec<u8>, bool, Vec<DeviceDone>);

impl Device for Takes<'_> {
    fn geometry(&self) -> Geometry {
        let bytes = self.1.len() as u64;
        Geometry { bytes, sector_bytes: 512, read_only: false, can_trim: false, can_zero: false, range_bytes_max: 0 }
    }
    fn submit(&mut self, _now_ns: u64, op: DeviceOp) {
        let result = if self.2 { Ok(()) } else { Err(IoError::Failed) };
        if self.2 {
            self.0.copy_out(op.frame.0, op.at, &mut self.1[op.offset as usize..(op.offset + op.length) as usize]);
        }
        self.2 = !self.2;
        self.3.push(DeviceDone { token: op.token, result });
    }
    fn poll(&mut self, _now_ns: u64, done: &mut Vec<DeviceDone>) {
        done.append(&mut self.3);
    }
}

struct NoTime;

impl Reactor for NoTime {
    fn now_ns(&self) -> u64 {
        0
    }
    fn wait(&mut self, _until_ns: u64) {}
}

/// The state directory does not know the name then: with it on the disk the logs would count as old.
#[test]
fn a_name_that_could_not_be_written_is_not_written_with_the_next_superblock() {
    let volumes = [VolumeFacts { log_bytes: 1 << 20, ..volume("a") }];
    let (head, mut disk) = running(&volumes);
    let arena = Arena::new(1, 4096).unwrap();
    let mut device = Takes(&arena, head, false, Vec::new());
    let scratch = (&arena, crate::device::FrameId(0));
    assert_eq!(disk.logs_are_filled(5, &mut device, &mut NoTime, scratch), Err(IoError::Failed));
    assert_eq!(disk.logs_are_open(&mut device, &mut NoTime, scratch), Ok(()));
    let Found::Valid(found) = probe(&device.1) else { panic!("no superblock") };
    assert_eq!(found.mirror_side, 0);
    assert_eq!(disk.logs_are_filled(6, &mut device, &mut NoTime, scratch), Err(IoError::Failed));
    assert_eq!(disk.logs_are_filled(7, &mut device, &mut NoTime, scratch), Ok(()));
    let Found::Valid(found) = probe(&device.1) else { panic!("no superblock") };
    assert_eq!(found.mirror_side, 7);
}
