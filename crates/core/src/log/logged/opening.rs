//! Which log counts when a volume is taken up: the one on the disk, or none.
//!
//! | the map says | the disk has | then |
//! |---|---|---|
//! | nothing | whatever it has | that goes on; without a log one begins |
//! | this cache | a log of that life or a later one | it goes on, from the later of the two tails |
//! | this cache | a log of an earlier life, or none | its regions are lost; a log begins |
//! | another cache | whatever it has | its regions are lost; a log begins |
//!
//! Why lives: a disk that comes back after it was given up has records that the back end is past. A map is written in each
//! life, and names the next one when the log is given up.
//!
//! The order in which both learn of the new life: a log that goes on is told first, for the map must never name a life that the
//! log is not in. One that begins is told last, for until the map says what is lost, the log must not look as if it went on.

use super::super::Tail;
use super::regions::{REGION_SECTORS, RegionImage, RegionSet};

/// What is kept beside the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnownRegions {
    /// Nothing was ever written there.
    None,
    /// About a log on this cache disk.
    Same(RegionImage),
    /// About one on another.
    OfAnother(RegionImage),
}

/// What a log's disk says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDisk {
    /// Attaches of the log.
    pub life: u64,
    /// Where it begins.
    pub tail: Tail,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The life that begins.
    pub life: u64,
    /// Where the log is to be scanned from. `None`: one begins, and nothing that lies there counts.
    pub tail: Option<Tail>,
    /// What the map says from now on. Regions of found records are to be added.
    pub image: RegionImage,
}

impl Opening {
    /// Decides, for a volume of so many sectors. `disk`: `None` where no log was ever written, or its disk is not there.
    #[must_use]
    pub fn decide(known: &KnownRegions, disk: Option<OnDisk>, sectors: u64) -> Self {
        let (image, is_same) = match known {
            KnownRegions::None => (None, true),
            KnownRegions::Same(image) => (Some(image), true),
            KnownRegions::OfAnother(image) => (Some(image), false),
        };
        let disk_life = disk.map_or(0, |disk| disk.life);
        let least_life = image.map_or(0, |image| image.life);
        let life = disk_life.max(least_life) + 1;
        let mut new = RegionImage::new(life, sectors);
        let Some(image) = image else { return Self { life, tail: disk.map(|disk| disk.tail), image: new } };
        for extent in image.lost.iter() {
            new.lost.insert(extent.sectors.start.min(sectors)..extent.sectors.end.min(sectors), extent.epoch);
        }
        match disk.filter(|disk| is_same && disk.life >= image.life) {
            Some(disk) => {
                new.dirty = RegionSet::from_words(sectors, image.dirty.words());
                let later = image.tail.filter(|tail| tail.first > disk.tail.first);
                Self { life, tail: Some(later.unwrap_or(disk.tail)), image: new }
            }
            None => {
                for region in image.dirty.iter() {
                    let first = region * REGION_SECTORS;
                    new.lost.insert(first.min(sectors)..(first + REGION_SECTORS).min(sectors), None);
                }
                Self { life, tail: None, image: new }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const SECTORS: u64 = 10 * REGION_SECTORS - 5;

    fn image(life: u64) -> RegionImage {
        let mut image = RegionImage::new(life, SECTORS);
        for region in [2, 3, 9] {
            image.dirty.insert(region);
        }
        image.lost.insert(1..4, Some(7));
        image
    }

    fn on_disk(life: u64, first: u64) -> OnDisk {
        OnDisk { life, tail: Tail { position: 8 * first, first, life } }
    }

    fn lost(opening: &Opening) -> Vec<core::ops::Range<u64>> {
        opening.image.lost.iter().map(|extent| extent.sectors).collect()
    }

    #[test]
    fn a_log_of_that_life_or_a_later_one_goes_on_from_the_later_tail() {
        for life in [5, 6] {
            let mut known = image(5);
            let opening = Opening::decide(&KnownRegions::Same(known.clone()), Some(on_disk(life, 3)), SECTORS);
            assert_eq!((opening.life, opening.tail), (life + 1, Some(on_disk(life, 3).tail)));
            assert_eq!(opening.image, RegionImage { life: life + 1, ..known.clone() });
            for first in [2, 4] {
                known.tail = Some(on_disk(5, first).tail);
                let opening = Opening::decide(&KnownRegions::Same(known.clone()), Some(on_disk(life, 3)), SECTORS);
                let expected = if first == 4 { on_disk(5, 4) } else { on_disk(life, 3) };
                assert_eq!((opening.tail, opening.image.tail), (Some(expected.tail), None));
            }
        }
    }

    #[test]
    fn what_an_older_log_another_or_none_lacks_is_lost() {
        let (same, other) = (KnownRegions::Same(image(5)), KnownRegions::OfAnother(image(5)));
        for (known, disk) in
            [(&same, Some(on_disk(4, 9))), (&same, None), (&other, Some(on_disk(9, 9))), (&other, None)]
        {
            let opening = Opening::decide(known, disk, SECTORS);
            let life = disk.map_or(5, |disk| disk.life.max(5)) + 1;
            assert_eq!((opening.life, opening.tail), (life, None));
            assert!(opening.image.dirty.is_empty() && opening.image.life == life);
            assert_eq!(lost(&opening), [1..4, 2 * REGION_SECTORS..4 * REGION_SECTORS, 9 * REGION_SECTORS..SECTORS]);
            // Should the process die before the log knows its new life, nothing is lost twice, and nothing forgotten.
            let again = Opening::decide(&KnownRegions::Same(opening.image.clone()), disk, SECTORS);
            assert_eq!(
                (again.tail, lost(&again)),
                if disk.is_some_and(|disk| disk.life >= life) {
                    (disk.map(|disk| disk.tail), lost(&opening))
                } else {
                    (None, lost(&opening))
                }
            );
        }
    }

    #[test]
    fn without_a_map_the_disk_counts() {
        let opening = Opening::decide(&KnownRegions::None, Some(on_disk(4, 9)), SECTORS);
        assert_eq!((opening.life, opening.tail, lost(&opening).len()), (5, Some(on_disk(4, 9).tail), 0));
        let opening = Opening::decide(&KnownRegions::None, None, SECTORS);
        assert_eq!((opening.life, opening.tail, lost(&opening).len()), (1, None, 0));
    }
}
