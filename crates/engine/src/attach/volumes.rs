//! The volume table: which configured volume is which entry of the superblock.
//!
//! A volume keeps its space, and with it its pages, if name, back end and size are what they were, and the back end was
//! not modified since the cache was stopped in order, as far as that can be known. A space is never used twice while
//! the cache lives, so pages of a volume that is gone, or starts empty, are nobody's. The entry of a volume that is no
//! longer configured is dropped: the back end may be written by others from now on.

use forebay_wire::disk::superblock::{LogArea, NAME_BYTES_MAX, Superblock, VolumeEntry};
use forebay_wire::disk::{VOLUMES_MAX, intent};

use super::error::Refusal;
use super::plan::{Notice, Wanted};

/// What is known of a configured volume and its back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFacts {
    /// Its name: 1 to 56 bytes.
    pub name: String,
    /// The back end as the user wrote it, for messages.
    pub backend: String,
    /// A hash of what the back end is ([`crate::devices::spec::BackendSpec`] makes it).
    pub identity: u64,
    /// The volume's size.
    pub bytes: u64,
    /// When the back end was last modified; 0: unknown.
    pub mtime_ns: i64,
    /// Bytes of its write-back log, a multiple of 4 KiB; 0: it has none.
    pub log_bytes: u64,
}

impl VolumeFacts {
    /// Its entry as a running cache has it: the time of modification is unknown while the cache itself writes.
    pub(super) fn entry(&self, space: u32) -> VolumeEntry {
        VolumeEntry {
            space,
            backend_identity: self.identity,
            volume_bytes: self.bytes,
            backend_mtime_ns: 0,
            region_bytes: intent::region_bytes(self.bytes),
            name: self.name.clone(),
            log: None,
        }
    }
}

/// The new volume table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) entries: Vec<Option<VolumeEntry>>,
    pub(super) next_space: u32,
    /// For each configured volume, its place among the entries.
    pub(super) places: Vec<usize>,
    /// Places whose pages are kept.
    pub(super) kept: Vec<usize>,
}

/// What a superblock can hold.
pub(super) fn check(volumes: &[VolumeFacts]) -> Result<(), Refusal> {
    if volumes.is_empty() || volumes.len() > VOLUMES_MAX {
        return Err(Refusal::VolumeCount { count: volumes.len() });
    }
    for (index, facts) in volumes.iter().enumerate() {
        if !(1..=NAME_BYTES_MAX).contains(&facts.name.len()) {
            return Err(Refusal::VolumeName { name: facts.name.clone() });
        }
        if volumes[..index].iter().any(|other| other.name == facts.name) {
            return Err(Refusal::VolumeTwice { name: facts.name.clone() });
        }
        if intent::region_count(facts.bytes, intent::region_bytes(facts.bytes)).is_none() {
            return Err(Refusal::VolumeBytes { name: facts.name.clone(), bytes: facts.bytes });
        }
    }
    Ok(())
}

/// Why a volume whose name and back end are known starts empty, if it does.
fn why_cold(entry: &VolumeEntry, facts: &VolumeFacts) -> Option<&'static str> {
    // Known only after an orderly stop: a running cache modifies the back end itself.
    let modified = entry.backend_mtime_ns != 0 && facts.mtime_ns != 0 && entry.backend_mtime_ns != facts.mtime_ns;
    if entry.backend_identity != facts.identity {
        Some("its back end is another one")
    } else if entry.volume_bytes != facts.bytes {
        Some("its back end has another size than before")
    } else if entry.region_bytes != intent::region_bytes(facts.bytes) {
        Some("its entry on the cache disk is of another kind")
    } else if modified {
        Some("its back end was modified while the cache was stopped")
    } else {
        None
    }
}

/// Each volume's log stays where it was; one that starts empty takes an area that is free. False when they do not fit.
pub(super) fn keep_logs(found: &Superblock, wanted: &Wanted<'_>, table: &mut Table) -> bool {
    let is_kept = |place: usize| table.kept.contains(&place);
    let areas = found.volumes.iter().enumerate().filter(|(place, _)| !is_kept(*place));
    let mut free: Vec<LogArea> = areas.filter_map(|(_, entry)| entry.as_ref()?.log).collect();
    for (facts, place) in wanted.volumes.iter().zip(&table.places) {
        let Some(entry) = &mut table.entries[*place] else { return false };
        if table.kept.contains(place) {
            if entry.log.map_or(0, |log| log.bytes) != facts.log_bytes {
                return false;
            }
        } else if facts.log_bytes > 0 {
            let Some(at) = free.iter().position(|area| area.bytes == facts.log_bytes) else { return false };
            entry.log = Some(LogArea { in_use: false, ..free.swap_remove(at) });
        }
    }
    true
}

/// A log that may hold what its back end lacks must stay.
pub(super) fn refuse_logs_in_use(found: &Superblock, stays: impl Fn(usize) -> bool) -> Result<(), Refusal> {
    for (place, entry) in found.volumes.iter().enumerate() {
        let Some(entry) = entry else { continue };
        if let Some(log) = entry.log.filter(|log| log.in_use && !stays(place)) {
            return Err(Refusal::LogInUse { volume: entry.name.clone(), bytes: log.bytes });
        }
    }
    Ok(())
}

/// Assigns entries; `None` when the numbers of spaces are used up and only a new cache has more.
pub(super) fn assign(
    found: &Superblock,
    wanted: &Wanted<'_>,
    notices: &mut Vec<Notice>,
) -> Result<Option<Table>, Refusal> {
    let place_of = |name: &str| found.volumes.iter().position(|entry| entry.as_ref().is_some_and(|e| e.name == name));
    let mut table = Table {
        entries: vec![None; found.volumes.len()],
        next_space: found.next_space,
        places: vec![usize::MAX; wanted.volumes.len()],
        kept: Vec::new(),
    };
    let mut empty = Vec::new();
    for (volume, facts) in wanted.volumes.iter().enumerate() {
        let known = place_of(&facts.name).and_then(|place| Some((place, found.volumes[place].as_ref()?)));
        let Some((place, entry)) = known else {
            empty.push(volume);
            continue;
        };
        if entry.backend_identity != facts.identity && !wanted.cold {
            return Err(Refusal::OtherBackend {
                volume: facts.name.clone(),
                backend: facts.backend.clone(),
                was: entry.backend_identity,
                is: facts.identity,
            });
        }
        if let Some(why) = why_cold(entry, facts) {
            notices.push(Notice::VolumeCold { volume: facts.name.clone(), why });
            empty.push(volume);
            continue;
        }
        table.entries[place] = Some(VolumeEntry { log: entry.log, ..facts.entry(entry.space) });
        table.places[volume] = place;
        table.kept.push(place);
    }
    for volume in empty {
        let Some(next_space) = table.next_space.checked_add(1) else { return Ok(None) };
        let entry = Some(wanted.volumes[volume].entry(table.next_space));
        table.next_space = next_space;
        table.places[volume] = match table.entries.iter().position(Option::is_none) {
            Some(gap) => {
                table.entries[gap] = entry;
                gap
            }
            None => {
                table.entries.push(entry);
                table.entries.len() - 1
            }
        };
    }
    Ok(Some(table))
}
