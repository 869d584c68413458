//! Magics, flags, commands and error numbers, as the NBD specification names them.

/// `NBDMAGIC`, the first 8 bytes a server sends.
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: the second 8 bytes a server sends, and the head of every option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
/// The head of every option reply.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The head of every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// The head of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// The head of a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flag of the server: it speaks fixed newstyle.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag of the server: it can leave out the 124 zeroes.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;
/// Handshake flag of the client: it speaks fixed newstyle.
pub const FLAG_C_FIXED_NEWSTYLE: u32 = 1 << 0;
/// Handshake flag of the client: leave out the 124 zeroes.
pub const FLAG_C_NO_ZEROES: u32 = 1 << 1;

/// The longest string the protocol allows, in bytes.
pub const STRING_BYTES_MAX: usize = 4096;

/// Options a client may send. Names follow the specification without `NBD_OPT_`.
pub mod opt {
    #![allow(missing_docs)]
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Option replies. Names follow the specification without `NBD_REP_`.
pub mod rep {
    #![allow(missing_docs)]
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    /// Bit 31 marks every error.
    pub const ERROR_BIT: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR_BIT | 1;
    pub const ERR_POLICY: u32 = ERROR_BIT | 2;
    pub const ERR_INVALID: u32 = ERROR_BIT | 3;
    pub const ERR_PLATFORM: u32 = ERROR_BIT | 4;
    pub const ERR_TLS_REQD: u32 = ERROR_BIT | 5;
    pub const ERR_UNKNOWN: u32 = ERROR_BIT | 6;
    pub const ERR_SHUTDOWN: u32 = ERROR_BIT | 7;
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERROR_BIT | 8;
    pub const ERR_TOO_BIG: u32 = ERROR_BIT | 9;
}

/// What an `NBD_REP_INFO` speaks of. Names follow the specification without `NBD_INFO_`.
pub mod info {
    #![allow(missing_docs)]
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Chunk types of a structured reply. Names follow the specification without `NBD_REPLY_TYPE_`.
pub mod chunk {
    #![allow(missing_docs)]
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    /// Bit 15 marks every error.
    pub const ERROR_BIT: u16 = 1 << 15;
    pub const ERROR: u16 = ERROR_BIT | 1;
    pub const ERROR_OFFSET: u16 = ERROR_BIT | 2;
    /// The flag of the last chunk of a reply.
    pub const FLAG_DONE: u16 = 1;
}

macro_rules! flag_set {
    ($(#[$doc:meta])* $name:ident { $($(#[$flag_doc:meta])* $flag:ident = $bit:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(pub u16);

        impl $name {
            /// No flag.
            pub const NONE: Self = Self(0);
            $($(#[$flag_doc])* pub const $flag: Self = Self(1 << $bit);)*
            /// Every flag named here.
            pub const KNOWN: Self = Self(0 $(| 1 << $bit)*);

            /// True when every flag of `other` is set.
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// These flags and those of `other`.
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// These flags but those of `other`.
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }
    };
}

flag_set! {
    /// What an export can do (`NBD_FLAG_*`), told in the handshake.
    TransmissionFlags {
        /// Always set.
        HAS_FLAGS = 0;
        /// Writes are refused with EPERM.
        READ_ONLY = 1;
        /// Flush is understood.
        SEND_FLUSH = 2;
        /// FUA is understood.
        SEND_FUA = 3;
        /// The medium seeks.
        ROTATIONAL = 4;
        /// Trim is understood.
        SEND_TRIM = 5;
        /// Write-zeroes is understood.
        SEND_WRITE_ZEROES = 6;
        /// "Do not fragment" is understood; only with structured replies.
        SEND_DF = 7;
        /// A flush on one connection covers the writes answered on every other.
        CAN_MULTI_CONN = 8;
        /// Resize is understood (an extension; never offered here).
        SEND_RESIZE = 9;
        /// The cache hint is understood.
        SEND_CACHE = 10;
        /// Fast-zero is understood.
        SEND_FAST_ZERO = 11;
    }
}

flag_set! {
    /// The flags of one request (`NBD_CMD_FLAG_*`).
    CommandFlags {
        /// Durable before the reply.
        FUA = 0;
        /// Write-zeroes must not punch a hole.
        NO_HOLE = 1;
        /// One content chunk at most in the reply.
        DF = 2;
        /// One extent at most in a block status.
        REQ_ONE = 3;
        /// Fail with ENOTSUP rather than be slow.
        FAST_ZERO = 4;
    }
}

/// The error numbers a reply may carry. The values are the protocol's, whatever the platform's are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Errno {
    /// EPERM: the export is read-only.
    Permission = 1,
    /// EIO: the storage failed.
    Io = 5,
    /// ENOMEM: the server lacks memory.
    NoMemory = 12,
    /// EINVAL: the request makes no sense here.
    Invalid = 22,
    /// ENOSPC: a write past the end, or no room.
    NoSpace = 28,
    /// EOVERFLOW: an unfragmented read is too long.
    Overflow = 75,
    /// ENOTSUP: understood, but not offered.
    NotSupported = 95,
    /// ESHUTDOWN: the server is stopping.
    Shutdown = 108,
}

impl Errno {
    /// The error a peer sent; `None` for 0, which is success. Unknown numbers count as EINVAL.
    pub fn from_wire(value: u32) -> Option<Self> {
        Some(match value {
            0 => return None,
            1 => Errno::Permission,
            5 => Errno::Io,
            12 => Errno::NoMemory,
            28 => Errno::NoSpace,
            75 => Errno::Overflow,
            95 => Errno::NotSupported,
            108 => Errno::Shutdown,
            _ => Errno::Invalid,
        })
    }

    /// The number on the wire.
    pub fn to_wire(self) -> u32 {
        self as u32
    }
}

/// What an option error means, in words for a user.
pub(crate) fn option_error_text(reply: u32) -> &'static str {
    match reply {
        0 => "the NBD server hung up: the export may not exist, or may need TLS",
        rep::ERR_UNSUP => "the NBD server does not support the option",
        rep::ERR_POLICY => "the NBD server's policy forbids it",
        rep::ERR_INVALID => "the NBD server found the option invalid",
        rep::ERR_PLATFORM => "the NBD server's platform does not support it",
        rep::ERR_TLS_REQD => "the NBD server requires TLS",
        rep::ERR_UNKNOWN => "the NBD server has no such export",
        rep::ERR_SHUTDOWN => "the NBD server is shutting down",
        rep::ERR_BLOCK_SIZE_REQD => "the NBD server requires its block sizes to be honoured",
        rep::ERR_TOO_BIG => "the NBD server found the option too big",
        _ => "the NBD server refused with an unknown error",
    }
}
