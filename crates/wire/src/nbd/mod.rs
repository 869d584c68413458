//! The NBD protocol: fixed newstyle handshake, requests, simple and structured replies.
//!
//! Source: the protocol document of the NBD project (`doc/proto.md`). All integers are big-endian.
//!
//! | module | side | what |
//! |---|---|---|
//! | [`constants`] | both | magics, flags, commands, error numbers |
//! | [`option`] | both | the frames of option haggling |
//! | [`server_handshake`] | server | sans-I/O handshake, ends in the export chosen |
//! | [`client_handshake`] | client | sans-I/O handshake, ends in [`Terms`] |
//! | [`request`] | both | the 28-byte request and its check against [`Terms`] |
//! | [`reply`] | both | reply headers, encoded by the server, decoded by the client |
//! | [`client`] | client | connections, replay, reconnection |

pub mod client;
pub mod client_handshake;
pub mod constants;
mod gather;
pub mod option;
pub mod reply;
pub mod request;
pub mod server_handshake;

use constants::TransmissionFlags;

/// The block sizes of an export, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of this: a power of two, 1 to 65,536.
    pub min_bytes: u32,
    /// What performs well: a power of two, at least 512.
    pub preferred_bytes: u32,
    /// The longest payload of one request, or `u32::MAX` for no limit.
    pub max_bytes: u32,
}

impl BlockSizes {
    /// What a client assumes of a server that names no block sizes.
    ///
    /// The specification asks such a client to keep to these for interoperability.
    pub const UNSTATED: Self = Self { min_bytes: 512, preferred_bytes: 4096, max_bytes: 32 << 20 };

    /// True when the sizes keep the rules of the specification that matter to us.
    pub fn is_sound(&self) -> bool {
        self.min_bytes.is_power_of_two()
            && self.min_bytes <= 65_536
            && self.max_bytes >= self.min_bytes
            && (self.max_bytes == u32::MAX || self.max_bytes.is_multiple_of(self.min_bytes))
    }
}

/// What both sides agreed on in the handshake; requests are checked against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The size of the export.
    pub size_bytes: u64,
    /// What the export can do.
    pub flags: TransmissionFlags,
    /// Alignment and length limits.
    pub blocks: BlockSizes,
    /// Structured replies were negotiated.
    pub structured: bool,
}
