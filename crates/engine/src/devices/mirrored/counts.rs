//! Which side of a mirror counts at a start.
//!
//! Each side has a number that names what it holds, given anew whenever it is filled from the other. The state directory keeps the
//! numbers of the sides that count. A side counts if, and only if, its number is there:
//!
//! | cache disk | mirror | then |
//! |---|---|---|
//! | counts | counts | both go on |
//! | counts | blank, old, damaged, not there or not asked for | the cache disk goes on; a mirror that is there is filled |
//! | blank, or old and of this cache | counts | the mirror goes on; the cache disk is filled |
//! | of another cache | counts | refused |
//! | whatever it has | of another cache | refused |
//! | old, of this cache | does not count | refused: what is newer is elsewhere |
//! | blank, or of another cache | blank, or a mirror never counted | the logs are lost, as without a mirror; new ones begin |
//! | blank, or of another cache | one counted, and it is not this | refused |
//! | of another cache, and was mirrored | does not count | refused |
//!
//! Where the state directory knows nothing: a cache disk that was never mirrored goes on, and a blank mirror is filled; anything that
//! once was of a mirror is refused.
//!
//! What does not count any more is dropped from the state directory before the cache disk is touched.

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The cache disk.
    Disk,
    /// The mirror.
    Mirror,
}

impl Side {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Disk, Self::Mirror];

    /// The one that this one is not.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Disk => Self::Mirror,
            Self::Mirror => Self::Disk,
        }
    }

    pub(super) fn at(self) -> usize {
        self as usize
    }
}

/// Which sides count; kept beside the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    /// The cache whose logs they have.
    pub cache_id: [u8; 16],
    /// By [`Side`]: the number of what it holds, if it counts. At least one does.
    pub sides: [Option<u64>; 2],
}

/// What is on the cache disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFound {
    /// Nothing that could be taken for a log: blank, or about to be formatted.
    Blank,
    /// A cache.
    Cache {
        /// Which.
        cache_id: [u8; 16],
        /// The number of what its logs hold; 0: none.
        side: u64,
    },
}

/// What is on the mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorFound {
    /// None is configured.
    NotAsked,
    /// It cannot be opened.
    Missing,
    /// Nothing is on it.
    Blank,
    /// Its label cannot be believed: it was being filled, or has failed.
    Damaged,
    /// Logs.
    Logs {
        /// Of which cache.
        cache_id: [u8; 16],
        /// Their number.
        side: u64,
        /// They are those of the configured volumes, and as long.
        fits: bool,
    },
}

/// Why nothing may be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorRefusal {
    /// The state directory was lost or is another.
    #[error(
        "the state directory does not know which of cache disk and mirror has the newest write-back logs, and one of them may be old: \
         name the state directory that they were used with (state_dir in [cache]); if it is lost, overwrite both (--force-format, \
         a blank mirror), which gives up what only the logs had"
    )]
    StateLost,
    /// The cache disk came back, or the mirror is gone.
    #[error(
        "the write-back logs on the cache disk are old: they went on on the mirror, which is not there: name it in log_mirror; if it \
         is lost, name a blank one and start with --force-format: what only the logs had is lost then, and listed"
    )]
    DiskIsOld,
    /// Both are gone, but for a mirror somewhere.
    #[error(
        "the cache disk has none of the write-back logs, and their mirror is not there: name it in log_mirror; if it is lost, name \
         a blank one: what only the logs had is lost then, and listed"
    )]
    MirrorElsewhere,
    /// The cache disk is somebody else's.
    #[error(
        "the cache disk is another cache's, and the mirror has the write-back logs of this one: name a blank cache disk, or overwrite \
         this one with --force-format; it is then filled from the mirror"
    )]
    DiskOfAnother,
    /// The mirror is somebody else's.
    #[error(
        "the mirror has the write-back logs of another cache: name a blank one; if nobody needs them, erase its beginning \
         (`dd if=/dev/zero of=MIRROR bs=8k count=1 conv=notrunc`)"
    )]
    MirrorOfAnother,
    /// The volumes changed.
    #[error(
        "the mirror has the newest write-back logs, and not for these volumes: configure the same volumes with the same back ends and \
         logs of the same size; they can be changed when the cache disk has been filled"
    )]
    OtherVolumes,
}

/// The sides that count, in the order of [`Side`]. None: new logs begin.
///
/// # Errors
/// Why nothing may be served.
pub fn which_count(known: Option<&Counting>, disk: DiskFound, mirror: MirrorFound) -> Result<[bool; 2], MirrorRefusal> {
    let was_mirrored = matches!(disk, DiskFound::Cache { side, .. } if side != 0);
    let Some(known) = known else {
        return match mirror {
            MirrorFound::Logs { .. } | MirrorFound::Damaged => Err(MirrorRefusal::StateLost),
            _ if was_mirrored => Err(MirrorRefusal::StateLost),
            _ => Ok([true, false]),
        };
    };
    let is_ours = matches!(disk, DiskFound::Cache { cache_id, .. } if cache_id == known.cache_id);
    let disk_counts = is_ours && matches!(disk, DiskFound::Cache { side, .. } if Some(side) == known.sides[0]);
    let (mirror_counts, fits) = match mirror {
        MirrorFound::Logs { cache_id, .. } if cache_id != known.cache_id => return Err(MirrorRefusal::MirrorOfAnother),
        MirrorFound::Logs { side, fits, .. } => (Some(side) == known.sides[1], fits),
        _ => (false, false),
    };
    match (disk_counts, mirror_counts) {
        (true, counts) => Ok([true, counts && fits]),
        (false, true) if disk != DiskFound::Blank && !is_ours => Err(MirrorRefusal::DiskOfAnother),
        (false, true) if !fits => Err(MirrorRefusal::OtherVolumes),
        (false, true) => Ok([false, true]),
        (false, false) if is_ours => Err(MirrorRefusal::DiskIsOld),
        (false, false) if was_mirrored => Err(MirrorRefusal::StateLost),
        (false, false) if known.sides[1].is_some() && mirror != MirrorFound::Blank => {
            Err(MirrorRefusal::MirrorElsewhere)
        }
        (false, false) => Ok([false, false]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: [u8; 16] = [1; 16];
    const OTHER: [u8; 16] = [2; 16];

    fn known(disk: Option<u64>, mirror: Option<u64>) -> Counting {
        Counting { cache_id: CACHE, sides: [disk, mirror] }
    }

    fn cache(side: u64) -> DiskFound {
        DiskFound::Cache { cache_id: CACHE, side }
    }

    fn logs(side: u64) -> MirrorFound {
        MirrorFound::Logs { cache_id: CACHE, side, fits: true }
    }

    const ANOTHER_CACHE: DiskFound = DiskFound::Cache { cache_id: OTHER, side: 0 };
    const ANOTHERS_LOGS: MirrorFound = MirrorFound::Logs { cache_id: OTHER, side: 6, fits: true };
    const NOT_THERE: [MirrorFound; 2] = [MirrorFound::NotAsked, MirrorFound::Missing];

    #[test]
    fn each_row_of_the_table() {
        use MirrorRefusal::{DiskIsOld, DiskOfAnother, MirrorElsewhere, OtherVolumes};
        let both = known(Some(5), Some(6));
        let count = |known: Counting, disk, mirror| which_count(Some(&known), disk, mirror);
        assert_eq!(count(both, cache(5), logs(6)), Ok([true, true]));
        let misfit = MirrorFound::Logs { cache_id: CACHE, side: 6, fits: false };
        for mirror in [MirrorFound::Blank, MirrorFound::Damaged, logs(7), misfit, NOT_THERE[0], NOT_THERE[1]] {
            assert_eq!(count(both, cache(5), mirror), Ok([true, false]), "{mirror:?}");
        }
        for disk in [DiskFound::Blank, cache(0), cache(4)] {
            assert_eq!(count(both, disk, logs(6)), Ok([false, true]), "{disk:?}");
            assert_eq!(count(known(None, Some(6)), disk, logs(6)), Ok([false, true]), "{disk:?}");
            assert_eq!(count(both, disk, misfit), Err(OtherVolumes));
        }
        assert_eq!(count(both, ANOTHER_CACHE, logs(6)), Err(DiskOfAnother));
        for disk in [DiskFound::Blank, cache(5), cache(4), ANOTHER_CACHE] {
            assert_eq!(count(both, disk, ANOTHERS_LOGS), Err(MirrorRefusal::MirrorOfAnother));
        }
        for mirror in [MirrorFound::Blank, MirrorFound::Damaged, logs(7), NOT_THERE[0], NOT_THERE[1]] {
            assert_eq!(count(both, cache(4), mirror), Err(DiskIsOld), "{mirror:?}");
            for disk in [DiskFound::Blank, ANOTHER_CACHE] {
                let none = if mirror == MirrorFound::Blank { Ok([false, false]) } else { Err(MirrorElsewhere) };
                assert_eq!(count(both, disk, mirror), none, "{disk:?}, {mirror:?}");
                assert_eq!(count(known(Some(5), None), disk, mirror), Ok([false, false]), "{disk:?}, {mirror:?}");
            }
        }
    }

    #[test]
    fn another_caches_disk_that_was_mirrored_is_not_believed() {
        let disk = DiskFound::Cache { cache_id: OTHER, side: 5 };
        for mirror in [MirrorFound::Blank, MirrorFound::Damaged, logs(7), NOT_THERE[0], NOT_THERE[1]] {
            for known in [known(Some(5), Some(6)), known(Some(5), None), known(None, Some(6))] {
                assert_eq!(which_count(Some(&known), disk, mirror), Err(MirrorRefusal::StateLost));
            }
        }
    }

    #[test]
    fn a_disk_that_was_never_mirrored_counts_as_what_it_is() {
        assert_eq!(which_count(Some(&known(Some(0), None)), cache(0), MirrorFound::Blank), Ok([true, false]));
        assert_eq!(which_count(Some(&known(Some(0), Some(6))), cache(0), logs(6)), Ok([true, true]));
        assert_eq!(which_count(Some(&known(None, Some(6))), cache(0), logs(6)), Ok([false, true]));
    }

    #[test]
    fn a_side_that_went_out_never_counts_again() {
        let (disk_only, mirror_only) = (known(Some(5), None), known(None, Some(6)));
        assert_eq!(which_count(Some(&disk_only), cache(5), logs(6)), Ok([true, false]));
        assert_eq!(which_count(Some(&mirror_only), cache(5), logs(6)), Ok([false, true]));
        for mirror in [MirrorFound::Blank, NOT_THERE[0], NOT_THERE[1], logs(5)] {
            assert_eq!(which_count(Some(&mirror_only), cache(5), mirror), Err(MirrorRefusal::DiskIsOld));
        }
        for disk in [DiskFound::Blank, ANOTHER_CACHE] {
            assert_eq!(which_count(Some(&disk_only), disk, logs(6)), Ok([false, false]));
        }
    }

    #[test]
    fn without_a_state_directory_only_what_was_never_mirrored_counts() {
        for disk in [DiskFound::Blank, cache(0), cache(5)] {
            for mirror in [logs(6), ANOTHERS_LOGS, MirrorFound::Damaged] {
                assert_eq!(which_count(None, disk, mirror), Err(MirrorRefusal::StateLost));
            }
            for mirror in [MirrorFound::Blank, NOT_THERE[0], NOT_THERE[1]] {
                let expected = if disk == cache(5) { Err(MirrorRefusal::StateLost) } else { Ok([true, false]) };
                assert_eq!(which_count(None, disk, mirror), expected);
            }
        }
    }
}
