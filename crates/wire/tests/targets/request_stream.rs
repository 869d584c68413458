//! Whatever requests a client sends, those accepted lie inside the export and within its limits.

use forebay_wire::nbd::constants::{CommandFlags, Errno, TransmissionFlags};
use forebay_wire::nbd::request::{Command, REQUEST_BYTES, Request};
use forebay_wire::nbd::{BlockSizes, Terms};

const SIZE_BYTES: u64 = 10 << 20;

/// Requests with their payloads.
pub(crate) fn words() -> Vec<Vec<u8>> {
    let commands = (0..10).map(Command::from_wire);
    let build = |command: Command| {
        let length = if matches!(command, Command::Flush | Command::Disconnect) { 0 } else { 512 };
        let flags = if command == Command::Write { CommandFlags::FUA } else { CommandFlags::NONE };
        let request = Request { flags, command, cookie: 1, offset: u64::from(length) * 8, length };
        let mut bytes = request.encode().to_vec();
        bytes.resize(bytes.len() + request.payload_bytes() as usize, 0xee);
        bytes
    };
    commands.map(build).collect()
}

/// A byte that chooses the terms, and a stream of requests.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    let stream: Vec<u8> = words().concat();
    (0..8).map(|control| [vec![control], stream.clone()].concat()).collect()
}

/// Reads requests until the bytes end or make no sense.
pub(crate) fn check(data: &[u8]) {
    let Some((control, mut rest)) = data.split_first() else { return };
    let without = if control & 1 == 0 { TransmissionFlags::READ_ONLY } else { TransmissionFlags::SEND_FUA };
    let terms = Terms {
        size_bytes: SIZE_BYTES,
        flags: TransmissionFlags::KNOWN.without(without),
        blocks: BlockSizes { min_bytes: 1 << (control % 13), preferred_bytes: 4096, max_bytes: 1 << 20 },
        structured: control & 2 == 2,
    };
    while let Some((header, after)) = rest.split_first_chunk::<REQUEST_BYTES>() {
        let Some(request) = Request::decode(header) else { return };
        assert_eq!(request.encode(), *header);
        match request.check(&terms) {
            Ok(()) => check_accepted(&request, &terms),
            Err(error) => assert!(error != Errno::Io && Errno::from_wire(error.to_wire()) == Some(error)),
        }
        let payload = (request.payload_bytes() as usize).min(after.len());
        rest = &after[payload..];
    }
}

fn check_accepted(request: &Request, terms: &Terms) {
    let length = u64::from(request.length);
    match request.command {
        Command::Disconnect => {}
        Command::Flush => assert_eq!((request.offset, length), (0, 0)),
        Command::Unknown(_) | Command::BlockStatus => panic!("{request:?} was accepted"),
        command => {
            assert!(length > 0 && request.offset.checked_add(length).is_some_and(|end| end <= SIZE_BYTES));
            assert!(request.offset.is_multiple_of(u64::from(terms.blocks.min_bytes)));
            assert!(request.payload_bytes() <= terms.blocks.max_bytes);
            let writes = matches!(command, Command::Write | Command::Trim | Command::WriteZeroes);
            assert!(!writes || !terms.flags.has(TransmissionFlags::READ_ONLY));
        }
    }
}
