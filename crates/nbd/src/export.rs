//! A volume as it is offered to clients, and where it is served.

use forebay_core::VolumeId;
use forebay_wire::nbd::BlockSizes;
use forebay_wire::nbd::constants::TransmissionFlags;
use forebay_wire::nbd::server_handshake::ExportInfo;

/// The alignment that the core asks for.
const ALIGN_BYTES: u32 = 512;
/// The longest payload of one request: what clients assume of a server that says nothing.
const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// A volume as clients see it, and its place.
#[derive(Clone, Debug)]
pub struct Export {
    /// What the handshake tells of it.
    pub info: ExportInfo,
    /// The shard that serves it: an index into the listener's inboxes.
    pub shard: usize,
    /// The volume's name in that shard.
    pub volume: VolumeId,
}

impl Export {
    /// A volume of `bytes` bytes (a part of a sector at the end is not offered).
    ///
    /// Offered: FLUSH, FUA, DF, and TRIM and WRITE_ZEROES where writing is allowed. Multi-conn always: every
    /// connection of a volume is on its one shard, so a flush covers what was answered on any of them. Not offered:
    /// CACHE (a hint that could only be obeyed by reading into nothing), FAST_ZERO, block status.
    #[must_use]
    pub fn new(name: &str, description: &str, bytes: u64, read_only: bool, shard: usize, volume: VolumeId) -> Self {
        use TransmissionFlags as T;
        let common = T::HAS_FLAGS.with(T::SEND_FLUSH).with(T::SEND_FUA).with(T::SEND_DF).with(T::CAN_MULTI_CONN);
        let flags =
            if read_only { common.with(T::READ_ONLY) } else { common.with(T::SEND_TRIM).with(T::SEND_WRITE_ZEROES) };
        let blocks = BlockSizes { min_bytes: ALIGN_BYTES, preferred_bytes: 4096, max_bytes: PAYLOAD_BYTES_MAX };
        let size_bytes = bytes - bytes % u64::from(ALIGN_BYTES);
        let info = ExportInfo { name: name.to_owned(), description: description.to_owned(), size_bytes, flags, blocks };
        Self { info, shard, volume }
    }
}
