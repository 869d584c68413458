//! The cache disk's format, version 2. Drawn byte by byte in `docs/design/disk-format.md`.
//!
//! ```text
//! 0          superblock copy A (even sequences)     [`superblock`]
//! 4096       superblock copy B (odd sequences)
//! 8192       intent maps: 30 volumes x 2 copies     [`intent`]
//! 253952     slot table                             [`slot_table`]
//! data       slots of one page each                 [`layout`]
//! behind     write-back logs                        [`log`], [`log_tail`]
//! ```
//!
//! All integers are little-endian. Everything but a slot is a *sector*: 4 KiB, aligned to 4 KiB, with a magic and a
//! CRC32C over the whole of it ([`checksum`]). A sector is written whole, and believed whole or not at all.
//!
//! What a device holds is data, not an error: [`superblock::probe`] tells a cache from a blank device and from one
//! that belongs to something else ([`signature`]).

pub mod checksum;
pub mod intent;
pub mod layout;
pub mod log;
pub mod log_tail;
pub mod mirror_label;
pub mod region_map;
pub mod signature;
pub mod slot_table;
pub mod superblock;

/// The version this code writes, and the only one it reads.
pub const VERSION: u32 = 2;
/// The unit in which everything but slots is written, and its alignment.
pub const SECTOR_BYTES: usize = 4096;
/// The unit of validity and of checksums inside a page.
pub const BLOCK_BYTES: usize = 4096;
/// The most volumes a cache disk serves: what fits in a superblock.
pub const VOLUMES_MAX: usize = 30;
/// A region of the intent map is a multiple of this, and slots begin at one.
pub const MIB: u64 = 1 << 20;
