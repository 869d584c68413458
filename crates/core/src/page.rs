//! The names of things: pages, frames, slots, requests, and the arithmetic between bytes, blocks and pages.
//!
//! Invariant: a page has at most 64 blocks of 4 KiB, so that a set of its blocks is one `u64` ([`BlockMask`]).
//! Limit: a space holds at most 2^32 pages (256 TiB of 64 KiB pages). Rejected: 64-bit page numbers in the index, which
//! would take it from 28 to 36 bytes a page, above the promised 32.

/// The unit of validity and of checksums.
pub const BLOCK_BYTES: u32 = 4096;
/// A request touches at most this many pages (16 pages' worth of bytes may straddle 17).
pub const REQUEST_PAGES_MAX: usize = 17;

/// Blocks of one page, bit i for block i.
pub(crate) type BlockMask = u64;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
        impl $name {
            /// As an index into a table.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}
name!(
    /// A volume, by its place in [`crate::CacheConfig::volumes`].
    VolumeId, u16
);
name!(
    /// A page-sized buffer of the arena.
    FrameId, u32
);
name!(
    /// A page's place on the cache disk.
    SlotId, u32
);
name!(
    /// A request in flight; reused once it is over.
    RequestId, u32
);
name!(
    /// An order that will be answered by one [`crate::Event::Done`].
    OpId, u32
);

/// Which page: the space it belongs to and its number in there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageKey {
    /// The space; 0 is never a space.
    pub space: u32,
    /// Byte offset in the space divided by the page size.
    pub page: u32,
}

/// Blocks of a page that the cache disk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedRun {
    /// Where.
    pub slot: SlotId,
    /// Where the page begins in the volume, in bytes.
    pub page_start: u64,
    /// The first of them in the page.
    pub first_block: u32,
}

impl PageKey {
    /// No page: an empty entry.
    pub(crate) const NONE: Self = Self { space: 0, page: 0 };

    /// A well-mixed hash, the same on every machine.
    #[must_use]
    pub fn hash(self) -> u64 {
        forebay_policy::rng::mix64(u64::from(self.space) << 32 | u64::from(self.page))
    }
}

/// The mask of blocks `first..=last`.
pub(crate) fn blocks_between(first: u32, last: u32) -> BlockMask {
    assert!(first <= last && last < 64, "blocks {first}..={last} are not in a page");
    (u64::MAX >> (63 - (last - first))) << first
}

/// The blocks that `length` bytes at `at` touch, whole or in part. `length` is not 0.
pub(crate) fn blocks_touched(at: u32, length: u32) -> BlockMask {
    blocks_between(at / BLOCK_BYTES, (at + length - 1) / BLOCK_BYTES)
}

/// The blocks that `length` bytes at `at` cover whole.
pub(crate) fn blocks_covered(at: u32, length: u32) -> BlockMask {
    let first = at.div_ceil(BLOCK_BYTES);
    let end = (at + length) / BLOCK_BYTES;
    if first < end { blocks_between(first, end - 1) } else { 0 }
}

/// The runs of set bits, lowest first, as `(first block, count)`.
pub(crate) fn runs(mut mask: BlockMask) -> impl Iterator<Item = (u32, u32)> {
    core::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let first = mask.trailing_zeros();
        let count = (mask >> first).trailing_ones();
        mask &= !blocks_between(first, first + count - 1);
        Some((first, count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_range_touches_more_blocks_than_it_covers() {
        assert_eq!(blocks_touched(512, 512), 0b1);
        assert_eq!(blocks_covered(512, 512), 0);
        assert_eq!(blocks_touched(2048, 8192), 0b111);
        assert_eq!(blocks_covered(2048, 8192), 0b010);
        assert_eq!(blocks_covered(0, 65536), 0xffff);
        assert_eq!(blocks_touched(0, 64 * 4096), u64::MAX);
    }

    #[test]
    fn runs_cover_the_mask_once() {
        assert_eq!(runs(0b1011_0110).collect::<Vec<_>>(), [(1, 2), (4, 2), (7, 1)]);
        assert_eq!(runs(u64::MAX).collect::<Vec<_>>(), [(0, 64)]);
        assert_eq!(runs(0).count(), 0);
    }
}
