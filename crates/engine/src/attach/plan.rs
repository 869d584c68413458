//! The decision: from the bytes at the start of a device, what to do with it, what to write, and what is warm.
//!
//! Pure, so that the simulator attaches from its modelled disks by the very same rules.
//!
//! | found | then |
//! |---|---|
//! | nothing but zeroes | format |
//! | ours, fitting | warm |
//! | ours, of another page size or device size | format, with a notice |
//! | ours, older than the generation beside the configuration | empty it (raise the table's epoch), with a notice |
//! | ours, a volume of another back end | refuse; with `cold` the volume starts empty |
//! | an older version of the format | format, with a notice |
//! | a newer version, damage, or anything else | refuse |
//! | anything, `force_format` given | format |
//! | ours, with a write-back log in use that would not stay as it is | refuse |
//!
//! Writes are given in groups; all of a group is durable before the next begins. Wherever a crash falls, even within a
//! write, a disk that was ours is attached again:
//! 1. (only over what is not ours) zeroes over superblocks and intent maps, so that nothing there is found again;
//! 2. one copy of each intent map with the regions in flight (over what is not ours after 3);
//! 3. one superblock, without the clean mark, sparing the last one;
//! 4. the other superblock, and the other copy of the maps. Were only one superblock written, damage to it would bring
//!    the older one back, clean mark and all.
//!
//! The maps come first because an emptied disk begins with every region in flight: the last run did not write down here
//! what it wrote, and the back end may still hold it in a volatile cache. Only a flush of the back end clears that, and
//! a crash before must not leave an emptied table with maps of before. To what was there until then, the new maps, or
//! half of one, mean more regions in flight, not fewer.

use forebay_wire::disk::intent::{self, IntentMap};
use forebay_wire::disk::layout::{Layout, TABLE_OFFSET};
use forebay_wire::disk::superblock::{Found, LogArea, Superblock, VolumeEntry, probe};
use forebay_wire::disk::{SECTOR_BYTES, VOLUMES_MAX};

use super::cache_disk::CacheDisk;
use super::error::Refusal;
use super::volumes::{self, VolumeFacts};

/// How much of the device's start [`plan`] looks at: the superblocks and the intent maps.
pub const HEAD_BYTES: usize = TABLE_OFFSET as usize;

/// What the device is to be.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of the device that may be used.
    pub device_bytes: u64,
    /// The volumes, in the order of their ids.
    pub volumes: &'a [VolumeFacts],
    /// The generation beside the configuration; `None` when its file is missing or unreadable.
    pub generation: Option<u64>,
    /// Start every volume empty.
    pub cold: bool,
    /// Format whatever is there.
    pub force_format: bool,
    /// Whether the write-intent maps will be kept up to date; if not, they say now that everything is in flight.
    pub intent_map: bool,
    /// The identity of a new cache: random, and never used before.
    pub new_cache_id: [u8; 16],
    /// The cache that a disk which has to be formatted becomes, if its logs are elsewhere, too.
    pub identity: Option<&'a Identity>,
}

/// Which cache this was, where the cache disk cannot tell any more: a mirror has its logs, and they name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cache.
    pub cache_id: [u8; 16],
    /// The space that its next new volume gets.
    pub next_space: u32,
    /// The spaces of volumes with logs, by name.
    pub spaces: Vec<(String, u32)>,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Byte offset on the device.
    pub offset: u64,
    /// Whole sectors.
    pub bytes: Vec<u8>,
}

/// What an operator should know of how the cache begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The device was blank, or formatting was asked for.
    Formatted,
    /// It had an older format, which was dropped.
    OlderVersion(u32),
    /// It was laid out otherwise, and was formatted.
    LayoutChanged {
        /// What differs.
        what: &'static str,
        /// Before.
        was: u64,
        /// Now.
        is: u64,
    },
    /// The volumes' logs are others than before, and it was formatted.
    LogsChanged,
    /// Writes may have gone by the cache disk while it was out of use: everything was dropped.
    GenerationPassed,
    /// The file with the generation is missing or not to be believed: everything was dropped.
    GenerationUnknown,
    /// Everything was dropped because that was asked for.
    ColdAsked,
    /// A volume starts empty.
    VolumeCold {
        /// Which one.
        volume: String,
        /// Why.
        why: &'static str,
    },
    /// The cache was not stopped in order; so many regions of the volume were in flight.
    Unclean {
        /// Which one.
        volume: String,
        /// Regions whose pages are dropped.
        regions: u32,
    },
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cache disk as it is once everything is written.
    pub disk: CacheDisk,
    /// Whether the slot table has records to be read.
    pub recover: bool,
    /// For each volume, the regions that were in flight, as [`forebay_core::VolumeConfig`] wants them.
    pub in_flight_regions: Vec<Vec<u64>>,
    /// What to write, in groups; each is durable before the next begins, the last before anything is served.
    pub writes: Vec<Vec<Write>>,
    /// What the file beside the configuration is to hold, durably, before anything is served.
    pub generation: u64,
    /// What an operator should know.
    pub notices: Vec<Notice>,
}

/// Decides. `head` is the first [`HEAD_BYTES`] of the device, zeroes where it ends before.
///
/// # Errors
/// Why the device is not to be touched.
///
/// # Panics
/// When `head` is shorter.
pub fn plan(head: &[u8], wanted: &Wanted<'_>) -> Result<Plan, Refusal> {
    assert!(head.len() >= HEAD_BYTES, "a head of {} bytes", head.len());
    volumes::check(wanted.volumes)?;
    let layout = layout(wanted)?;
    match probe(head) {
        Found::Blank => Ok(format(layout, wanted, 0, Notice::Formatted)),
        Found::Older(version) => Ok(format(layout, wanted, 0, Notice::OlderVersion(version))),
        Found::Valid(superblock) if wanted.force_format => {
            Ok(format(layout, wanted, superblock.sequence, Notice::Formatted))
        }
        _ if wanted.force_format => {
            let mut plan = format(layout, wanted, 0, Notice::Formatted);
            plan.writes.insert(0, erased());
            Ok(plan)
        }
        Found::Foreign(what) => Err(Refusal::Foreign { what }),
        Found::Newer(version) => Err(Refusal::Newer { version }),
        Found::Damaged => Err(Refusal::Damaged),
        Found::Valid(superblock) => attach(head, superblock, layout, wanted),
    }
}

/// Slots before, logs behind.
fn layout(wanted: &Wanted<'_>) -> Result<Layout, Refusal> {
    let logs_bytes: u64 = wanted.volumes.iter().map(|facts| facts.log_bytes).sum();
    let slots_bytes = match logs_bytes {
        0 => wanted.device_bytes,
        _ => wanted.device_bytes.saturating_sub(logs_bytes) / SECTOR_BYTES as u64 * SECTOR_BYTES as u64,
    };
    Layout::new(slots_bytes, wanted.page_bytes).map_err(|error| match error {
        forebay_wire::Error::Limit { actual, limit, .. } if actual == slots_bytes => {
            Refusal::TooSmall { bytes: wanted.device_bytes, needed: limit + logs_bytes }
        }
        _ => Refusal::PageBytes { bytes: wanted.page_bytes },
    })
}

/// A disk of ours: warm, or emptied for a reason.
fn attach(head: &[u8], found: Superblock, layout: Layout, wanted: &Wanted<'_>) -> Result<Plan, Refusal> {
    let mut notices = Vec::new();
    let table = volumes::assign(&found, wanted, &mut notices)?;
    let changed_layout = layout != found.layout;
    let Some(mut table) = table else {
        volumes::refuse_logs_in_use(&found, |_| false)?;
        return Ok(format(layout, wanted, found.sequence, Notice::Formatted));
    };
    let keeps_logs = !changed_layout && volumes::keep_logs(&found, wanted, &mut table);
    volumes::refuse_logs_in_use(&found, |place| {
        let entry = table.entries.get(place).and_then(Option::as_ref);
        let log = |superblock: &Superblock| superblock.volumes[place].as_ref().and_then(|entry| entry.log);
        keeps_logs && table.kept.contains(&place) && entry.and_then(|entry| entry.log) == log(&found)
    })?;
    let differs = [
        ("page size", u64::from(found.layout.page_bytes()), u64::from(layout.page_bytes())),
        ("room for slots", found.layout.device_bytes(), layout.device_bytes()),
    ];
    if let Some((what, was, is)) = differs.into_iter().find(|(_, was, is)| was != is) {
        return Ok(format(layout, wanted, found.sequence, Notice::LayoutChanged { what, was, is }));
    }
    if !keeps_logs {
        return Ok(format(layout, wanted, found.sequence, Notice::LogsChanged));
    }
    let empty = match wanted.generation {
        _ if wanted.cold => Some(Notice::ColdAsked),
        None => Some(Notice::GenerationUnknown),
        Some(generation) if generation != found.generation => Some(Notice::GenerationPassed),
        Some(_) => None,
    };
    let seed = found.cache_seed();
    let mut maps = Vec::with_capacity(wanted.volumes.len());
    for (facts, place) in wanted.volumes.iter().zip(&table.places) {
        let Some(entry) = &table.entries[*place] else { panic!("a volume without an entry") };
        let (mut map, unsure) = read_map(head, seed, *place, entry);
        let warm = empty.is_none() && table.kept.contains(place);
        if !warm {
            // What the last run wrote may be in the back end's cache, and was not written down here.
            set_all(&mut map);
        } else if found.clean {
            map.set_words(&[]);
        } else {
            if unsure {
                set_all(&mut map);
            }
            notices.push(Notice::Unclean { volume: facts.name.clone(), regions: map.count_set() });
        }
        maps.push(map);
    }
    let generation = wanted.generation.unwrap_or(0).max(found.generation);
    // Raised, so that another disk of that generation is not believed when it comes back: it misses what is written from here.
    let passes = wanted.generation != Some(found.generation);
    let superblock = Superblock {
        sequence: found.sequence,
        generation: generation + u64::from(passes),
        table_epoch: found.table_epoch + u64::from(empty.is_some()),
        clean: false,
        next_space: table.next_space,
        volumes: table.entries,
        ..found
    };
    let recover = empty.is_none() && !table.kept.is_empty();
    notices.extend(empty);
    Ok(finish(superblock, table.places, maps, First::Maps, wanted.intent_map, recover, notices))
}

/// A new cache over whatever was there; `sequence` is that of the last superblock, if one is ours. With an [`Identity`] it is
/// that cache again, and empty: what the disk has of its former life has the same seed, so the maps are erased, and the
/// table's epoch is one that never was.
fn format(layout: Layout, wanted: &Wanted<'_>, sequence: u64, notice: Notice) -> Plan {
    let identity = wanted.identity;
    let mut next_space = identity.map_or(1, |identity| identity.next_space);
    let mut log_offset = layout.device_bytes();
    let entry = |facts: &VolumeFacts| {
        let offset = log_offset;
        log_offset += facts.log_bytes;
        let log = (facts.log_bytes > 0).then_some(LogArea { offset, bytes: facts.log_bytes, in_use: false });
        let known = identity.and_then(|identity| identity.spaces.iter().find(|(name, _)| *name == facts.name));
        let space = known.map_or(next_space, |(_, space)| *space);
        next_space += u32::from(known.is_none());
        Some(VolumeEntry { log, ..facts.entry(space) })
    };
    let entries: Vec<Option<VolumeEntry>> = wanted.volumes.iter().map(entry).collect();
    let [.., a, b, c, d, e, f, g, h] = wanted.new_cache_id;
    let never_used = identity.map(|_| u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> 1 | 1 << 62);
    let superblock = Superblock {
        sequence,
        cache_id: identity.map_or(wanted.new_cache_id, |identity| identity.cache_id),
        // Raised, so that the disk used until now is not believed when it comes back: it misses what is written from here.
        generation: wanted.generation.map_or(never_used.unwrap_or(0), |generation| generation + 1),
        table_epoch: never_used.unwrap_or(1),
        layout,
        clean: false,
        next_space,
        // Other than whatever the state directory may count.
        mirror_side: never_used.unwrap_or(0),
        volumes: entries,
    };
    let mut maps: Vec<IntentMap> = superblock.volumes.iter().flatten().map(empty_map).collect();
    maps.iter_mut().for_each(set_all);
    let places = (0..wanted.volumes.len()).collect();
    let mut plan = finish(superblock, places, maps, First::Superblock, wanted.intent_map, false, vec![notice]);
    if identity.is_some() {
        plan.writes.insert(0, erased());
    }
    plan
}

/// Nothing that was there is found again.
fn erased() -> Vec<Write> {
    vec![Write { offset: 0, bytes: vec![0; HEAD_BYTES] }]
}

fn empty_map(entry: &VolumeEntry) -> IntentMap {
    let Some(regions) = entry.region_count() else { panic!("an entry with too many regions: {entry:?}") };
    IntentMap::new(entry.space, regions)
}

fn set_all(map: &mut IntentMap) {
    (0..map.region_count()).for_each(|region| map.set(region));
}

/// The map at a place, and whether it may not be the last one written.
fn read_map(head: &[u8], seed: u32, place: usize, entry: &VolumeEntry) -> (IntentMap, bool) {
    let copy = |sequence| {
        let at = Layout::intent_offset(place, sequence) as usize;
        &head[at..at + SECTOR_BYTES]
    };
    let newest = intent::newest(seed, entry.space, [copy(0), copy(1)]);
    let mut empty = empty_map(entry);
    match newest.map {
        Some(map) if map.region_count() == empty.region_count() => (map, newest.unreadable > 0),
        Some(map) => {
            empty.sequence = map.sequence;
            (empty, true)
        }
        None => (empty, true),
    }
}

/// What is written first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// On a disk of ours.
    Maps,
    /// On any other: only a superblock makes it ours. Without maps that it can read every region is in flight.
    Superblock,
}

/// Adds the writes that every attachment makes.
fn finish(
    mut superblock: Superblock,
    places: Vec<usize>,
    mut maps: Vec<IntentMap>,
    first: First,
    intent_map: bool,
    recover: bool,
    notices: Vec<Notice>,
) -> Plan {
    assert!(superblock.volumes.len() <= VOLUMES_MAX, "{} volumes", superblock.volumes.len());
    let in_flight_regions = maps.iter().map(|map| map.words().to_vec()).collect();
    if !intent_map {
        maps.iter_mut().for_each(set_all);
    }
    let seed = superblock.cache_seed();
    let copies = |maps: &mut Vec<IntentMap>| -> Vec<Write> {
        let write = |(map, place): (&mut IntentMap, &usize)| {
            map.sequence += 1;
            let mut bytes = vec![0; SECTOR_BYTES];
            map.encode(seed, &mut bytes);
            Write { offset: Layout::intent_offset(*place, map.sequence), bytes }
        };
        maps.iter_mut().zip(&places).map(write).collect()
    };
    let mut next_superblock = || {
        superblock.sequence += 1;
        let mut bytes = vec![0; SECTOR_BYTES];
        superblock.encode(&mut bytes);
        Write { offset: superblock.offset(), bytes }
    };
    let mut writes = match first {
        First::Maps => vec![copies(&mut maps), vec![next_superblock()], copies(&mut maps)],
        First::Superblock => vec![vec![next_superblock()], copies(&mut maps), copies(&mut maps)],
    };
    writes[2].push(next_superblock());
    Plan {
        in_flight_regions,
        generation: superblock.generation,
        disk: CacheDisk::new(superblock, places, maps),
        recover,
        writes,
        notices,
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
