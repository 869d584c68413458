//! The 28-byte request: decode, encode, and the check that gives the right error before any work is done.
//!
//! ```text
//! 0      4       6      8        16       24       28
//! | magic | flags | type | cookie | offset | length | (then `length` bytes, for a write)
//! ```
//!
//! [`Request::check`] is one table of rules in the order of the specification's advice: unknown command or flag,
//! read-only, length, alignment, bounds. A refused write still has its payload on the wire:
//! [`Request::payload_bytes`] says how much to drain, or to give up and close when that is beyond
//! [`PAYLOAD_DRAIN_BYTES_MAX`].

use super::Terms;
use super::constants::{CommandFlags, Errno, REQUEST_MAGIC, TransmissionFlags};
use crate::bytes::{be_u16, be_u32, be_u64, put_be_u16, put_be_u32, put_be_u64};

/// The size of a request on the wire, without payload.
pub const REQUEST_BYTES: usize = 28;

/// A refused write with a longer payload than this is answered by closing, not by draining.
///
/// Twice the length any client sends to a server that names no limit (32 MiB).
pub const PAYLOAD_DRAIN_BYTES_MAX: u32 = 64 << 20;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read bytes.
    Read,
    /// Write the bytes that follow.
    Write,
    /// End the session; there is no reply.
    Disconnect,
    /// Make every write answered so far durable.
    Flush,
    /// The bytes are no longer needed.
    Trim,
    /// The bytes will be needed soon.
    Cache,
    /// Write zeroes.
    WriteZeroes,
    /// Tell which parts are holes or zeroes.
    BlockStatus,
    /// A command this code does not know.
    Unknown(u16),
}

impl Command {
    /// The command of a number on the wire.
    pub fn from_wire(value: u16) -> Self {
        match value {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            other => Command::Unknown(other),
        }
    }

    /// The number on the wire.
    pub fn to_wire(self) -> u16 {
        match self {
            Command::Read => 0,
            Command::Write => 1,
            Command::Disconnect => 2,
            Command::Flush => 3,
            Command::Trim => 4,
            Command::Cache => 5,
            Command::WriteZeroes => 6,
            Command::BlockStatus => 7,
            Command::Unknown(other) => other,
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its flags, known or not.
    pub flags: CommandFlags,
    /// What it asks for.
    pub command: Command,
    /// Echoed in the reply; opaque to a server.
    pub cookie: u64,
    /// First byte of the export it speaks of.
    pub offset: u64,
    /// How many bytes it speaks of.
    pub length: u32,
}

/// What a command is allowed to carry and to touch.
struct Rule {
    /// The transmission flag that offers the command; `NONE`: always offered.
    offered_by: TransmissionFlags,
    /// The flags it may carry besides FUA, which is allowed everywhere once negotiated.
    flags: CommandFlags,
    /// It changes the export: refused with EPERM on a read-only one.
    writes: bool,
    /// Its error when it reaches past the end.
    past_end: Errno,
    /// `length` bytes travel in the request or the reply, so the payload limit applies.
    carries_data: bool,
}

const fn rule(command: Command) -> Option<Rule> {
    use TransmissionFlags as T;
    let (offered_by, flags, writes, past_end, carries_data) = match command {
        Command::Read => (T::NONE, CommandFlags::DF, false, Errno::Invalid, true),
        Command::Write => (T::NONE, CommandFlags::NONE, true, Errno::NoSpace, true),
        Command::Trim => (T::SEND_TRIM, CommandFlags::NONE, true, Errno::Invalid, false),
        Command::WriteZeroes => {
            let flags = CommandFlags::NO_HOLE.with(CommandFlags::FAST_ZERO);
            (T::SEND_WRITE_ZEROES, flags, true, Errno::NoSpace, false)
        }
        Command::Cache => (T::SEND_CACHE, CommandFlags::NONE, false, Errno::Invalid, false),
        // No metadata context is ever agreed, so block status is never legal.
        Command::BlockStatus | Command::Unknown(_) | Command::Flush | Command::Disconnect => {
            return None;
        }
    };
    Some(Rule { offered_by, flags, writes, past_end, carries_data })
}

impl Request {
    /// Decodes a request; `None` when the magic is wrong, after which the stream means nothing: close.
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        (be_u32(bytes, 0) == REQUEST_MAGIC).then(|| Self {
            flags: CommandFlags(be_u16(bytes, 4)),
            command: Command::from_wire(be_u16(bytes, 6)),
            cookie: be_u64(bytes, 8),
            offset: be_u64(bytes, 16),
            length: be_u32(bytes, 24),
        })
    }

    /// Encodes the request without payload.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        put_be_u32(&mut bytes, 0, REQUEST_MAGIC);
        put_be_u16(&mut bytes, 4, self.flags.0);
        put_be_u16(&mut bytes, 6, self.command.to_wire());
        put_be_u64(&mut bytes, 8, self.cookie);
        put_be_u64(&mut bytes, 16, self.offset);
        put_be_u32(&mut bytes, 24, self.length);
        bytes
    }

    /// How many bytes of payload follow the request on the wire, accepted or not.
    pub fn payload_bytes(&self) -> u32 {
        if self.command == Command::Write { self.length } else { 0 }
    }

    /// Checks the request against what was agreed.
    ///
    /// # Errors
    /// The error number to reply with:
    ///
    /// | error | when |
    /// |---|---|
    /// | EINVAL | unknown or unoffered command or flag, zero length, misaligned, too long, past the end |
    /// | EPERM | it would change a read-only export |
    /// | ENOSPC | a write or write-zeroes past the end |
    /// | EOVERFLOW | an unfragmented read longer than the payload limit |
    pub fn check(&self, terms: &Terms) -> Result<(), Errno> {
        let fua = if terms.flags.has(TransmissionFlags::SEND_FUA) { CommandFlags::FUA } else { CommandFlags::NONE };
        match self.command {
            Command::Disconnect => return Ok(()),
            Command::Flush => {
                let plain = self.offset == 0 && self.length == 0 && fua.has(self.flags);
                let offered = terms.flags.has(TransmissionFlags::SEND_FLUSH);
                return if plain && offered { Ok(()) } else { Err(Errno::Invalid) };
            }
            _ => {}
        }
        let rule = rule(self.command).ok_or(Errno::Invalid)?;
        self.check_flags(&rule, fua, terms)?;
        if rule.writes && terms.flags.has(TransmissionFlags::READ_ONLY) {
            return Err(Errno::Permission);
        }
        self.check_range(&rule, terms)
    }

    fn check_flags(&self, rule: &Rule, fua: CommandFlags, terms: &Terms) -> Result<(), Errno> {
        let mut allowed = rule.flags.with(fua);
        if !terms.structured || !terms.flags.has(TransmissionFlags::SEND_DF) {
            allowed = allowed.without(CommandFlags::DF);
        }
        if !terms.flags.has(TransmissionFlags::SEND_FAST_ZERO) {
            allowed = allowed.without(CommandFlags::FAST_ZERO);
        }
        let offered = terms.flags.has(rule.offered_by);
        if offered && allowed.has(self.flags) { Ok(()) } else { Err(Errno::Invalid) }
    }

    fn check_range(&self, rule: &Rule, terms: &Terms) -> Result<(), Errno> {
        if self.length == 0 {
            return Err(Errno::Invalid);
        }
        if rule.carries_data && self.length > terms.blocks.max_bytes {
            let unfragmented = self.flags.has(CommandFlags::DF);
            return Err(if unfragmented { Errno::Overflow } else { Errno::Invalid });
        }
        let min_bytes = terms.blocks.min_bytes;
        if !self.offset.is_multiple_of(u64::from(min_bytes)) || !self.length.is_multiple_of(min_bytes) {
            return Err(Errno::Invalid);
        }
        match self.offset.checked_add(u64::from(self.length)) {
            Some(end) if end <= terms.size_bytes => Ok(()),
            _ => Err(rule.past_end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::BlockSizes;
    use proptest::prelude::*;

    const BLOCKS: BlockSizes = BlockSizes { min_bytes: 512, preferred_bytes: 65_536, max_bytes: 1 << 20 };
    const ALL: TransmissionFlags = TransmissionFlags::KNOWN.without(TransmissionFlags::READ_ONLY);

    fn terms(flags: TransmissionFlags) -> Terms {
        Terms { size_bytes: 10 << 20, flags, blocks: BLOCKS, structured: true }
    }

    fn request(command: Command, flags: CommandFlags, offset: u64, length: u32) -> Request {
        Request { flags, command, cookie: 9, offset, length }
    }

    #[test]
    fn a_request_has_its_published_bytes() {
        let bytes = Request {
            flags: CommandFlags::FUA,
            command: Command::Write,
            cookie: 0x0102_0304_0506_0708,
            offset: 0x1000,
            length: 512,
        }
        .encode();
        let golden = *b"\x25\x60\x95\x13\0\x01\0\x01\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0\0\0\x10\0\0\0\x02\0";
        assert_eq!(bytes, golden);
    }

    #[test]
    fn a_wrong_magic_is_no_request() {
        assert_eq!(Request::decode(&[0; REQUEST_BYTES]), None);
    }

    #[test]
    fn each_breach_has_its_error() {
        use Command::*;
        use CommandFlags as F;
        let end = 10 << 20;
        for (command, flags, offset, length, expected) in [
            (Read, F::NONE, 0, 512, Ok(())),
            (Read, F::NONE, end - 512, 512, Ok(())),
            (Read, F::NONE, end, 512, Err(Errno::Invalid)),
            (Read, F::NONE, u64::MAX - 511, 512, Err(Errno::Invalid)),
            (Read, F::NONE, 0, 0, Err(Errno::Invalid)),
            (Read, F::NONE, 1, 512, Err(Errno::Invalid)),
            (Read, F::NONE, 0, 513, Err(Errno::Invalid)),
            (Read, F::NONE, 0, 2 << 20, Err(Errno::Invalid)),
            (Read, F::DF, 0, 2 << 20, Err(Errno::Overflow)),
            (Read, F::FUA, 0, 512, Ok(())),
            (Read, F::NO_HOLE, 0, 512, Err(Errno::Invalid)),
            (Write, F::FUA, 0, 1 << 20, Ok(())),
            (Write, F::DF, 0, 512, Err(Errno::Invalid)),
            (Write, F::NONE, end, 512, Err(Errno::NoSpace)),
            (Write, F::NONE, 0, (1 << 20) + 512, Err(Errno::Invalid)),
            (Write, CommandFlags(1 << 15), 0, 512, Err(Errno::Invalid)),
            (Trim, F::FUA, 0, 8 << 20, Ok(())),
            (Trim, F::NONE, end, 512, Err(Errno::Invalid)),
            (WriteZeroes, F::NO_HOLE, 0, 8 << 20, Ok(())),
            (WriteZeroes, F::FAST_ZERO, 0, 512, Ok(())),
            (WriteZeroes, F::NONE, end - 512, 1024, Err(Errno::NoSpace)),
            (Cache, F::NONE, 0, 512, Ok(())),
            (Flush, F::NONE, 0, 0, Ok(())),
            (Flush, F::NONE, 512, 0, Err(Errno::Invalid)),
            (Flush, F::DF, 0, 0, Err(Errno::Invalid)),
            (BlockStatus, F::NONE, 0, 512, Err(Errno::Invalid)),
            (Unknown(99), F::NONE, 0, 512, Err(Errno::Invalid)),
            (Disconnect, F::NONE, 0, 0, Ok(())),
        ] {
            let request = request(command, flags, offset, length);
            assert_eq!(request.check(&terms(ALL)), expected, "{request:?}");
        }
    }

    #[test]
    fn a_read_only_export_refuses_every_change_with_eperm() {
        let terms = terms(ALL.with(TransmissionFlags::READ_ONLY));
        for command in [Command::Write, Command::Trim, Command::WriteZeroes] {
            // Permission counts before bounds: the answer must not depend on where.
            let request = request(command, CommandFlags::NONE, 10 << 20, 512);
            assert_eq!(request.check(&terms), Err(Errno::Permission));
        }
        assert_eq!(request(Command::Read, CommandFlags::NONE, 0, 512).check(&terms), Ok(()));
    }

    #[test]
    fn what_was_not_offered_is_invalid() {
        let terms = Terms { structured: false, ..terms(TransmissionFlags::HAS_FLAGS) };
        for command in [Command::Trim, Command::WriteZeroes, Command::Cache, Command::Flush] {
            let length = if command == Command::Flush { 0 } else { 512 };
            assert_eq!(request(command, CommandFlags::NONE, 0, length).check(&terms), Err(Errno::Invalid));
        }
        for flags in [CommandFlags::FUA, CommandFlags::DF] {
            assert_eq!(request(Command::Read, flags, 0, 512).check(&terms), Err(Errno::Invalid));
        }
        // DF needs structured replies even when the flag is there.
        let terms = Terms { flags: ALL, ..terms };
        assert_eq!(request(Command::Read, CommandFlags::DF, 0, 512).check(&terms), Err(Errno::Invalid));
    }

    #[test]
    fn only_a_write_has_a_payload() {
        assert_eq!(request(Command::Write, CommandFlags::NONE, 0, 512).payload_bytes(), 512);
        assert_eq!(request(Command::Read, CommandFlags::NONE, 0, 512).payload_bytes(), 0);
        assert_eq!(request(Command::Unknown(77), CommandFlags::NONE, 0, 512).payload_bytes(), 0);
    }

    proptest! {
        #[test]
        fn requests_survive_the_wire(flags: u16, kind: u16, cookie: u64, offset: u64, length: u32) {
            let command = Command::from_wire(kind);
            let request = Request { flags: CommandFlags(flags), command, cookie, offset, length };
            prop_assert_eq!(command.to_wire(), kind);
            prop_assert_eq!(Request::decode(&request.encode()), Some(request));
        }

        #[test]
        fn an_accepted_request_lies_inside_the_export(kind in 0u16..9, flags in 0u16..32, offset in 0u64..(11 << 20), length in 0u32..(3 << 20)) {
            let request = request(Command::from_wire(kind), CommandFlags(flags), offset, length);
            if request.check(&terms(ALL)).is_ok() && request.command != Command::Disconnect {
                prop_assert!(request.offset + u64::from(request.length) <= 10 << 20);
                prop_assert!(request.payload_bytes() <= BLOCKS.max_bytes);
            }
        }
    }
}
