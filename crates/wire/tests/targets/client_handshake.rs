//! Whatever a server sends, the client's handshake takes what it was given and ends in sound terms, an error, or waits.

use forebay_wire::nbd::BlockSizes;
use forebay_wire::nbd::client_handshake::{ClientHandshake, Progress};
use forebay_wire::nbd::constants::{TransmissionFlags, opt, rep};
use forebay_wire::nbd::option::{Info, push_reply};

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";

fn reply(option: u32, reply: u32, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push_reply(&mut out, option, reply, data);
    out
}

fn info(info: Info<'_>) -> Vec<u8> {
    let mut data = Vec::new();
    info.encode(&mut data);
    reply(opt::GO, rep::INFO, &data)
}

/// The messages a server may send.
pub(crate) fn words() -> Vec<Vec<u8>> {
    let flags = TransmissionFlags::HAS_FLAGS;
    let blocks = BlockSizes { min_bytes: 1, preferred_bytes: 4096, max_bytes: u32::MAX };
    vec![
        GREETING.to_vec(),
        reply(opt::STRUCTURED_REPLY, rep::ACK, b""),
        reply(opt::STRUCTURED_REPLY, rep::ERR_UNSUP, b"no"),
        info(Info::Export { size_bytes: 1 << 30, flags }),
        info(Info::Blocks(blocks)),
        info(Info::Name("vol")),
        info(Info::Description("a volume")),
        info(Info::Other(77)),
        reply(opt::GO, rep::ERR_UNSUP, b""),
        reply(opt::GO, rep::ERR_UNKNOWN, b"no such export"),
        reply(opt::GO, rep::ERR_SHUTDOWN, b""),
        reply(opt::GO, rep::ACK, b""),
    ]
}

/// A byte that chooses how the input is cut and what is wanted, and a server's side of a handshake.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    let words = words();
    let say = |control: u8, said: &[usize]| {
        let said = said.iter().flat_map(|word| words[*word].clone());
        std::iter::once(control).chain(said).collect::<Vec<u8>>()
    };
    let mut old = say(255, &[0, 2, 8]);
    old.extend_from_slice(b"\0\0\0\0\0\0\x10\0\0\x01");
    let mut unfixed = b"\xffNBDMAGICIHAVEOPT\0\0\0\0\0\0\0\0\x10\0\0\x01".to_vec();
    unfixed.extend_from_slice(&[0; 124]);
    vec![
        say(255, &[0, 1, 3, 4, 5, 6, 7, 11]),
        say(254, &[0, 3, 11]),
        say(3, &[0, 1, 9]),
        say(1, &[0, 1, 10]),
        old,
        unfixed,
    ]
}

/// Plays the server's bytes in pieces.
pub(crate) fn check(data: &[u8]) {
    let Some((control, mut rest)) = data.split_first() else { return };
    let piece_max = usize::from(*control >> 1) + 1;
    let mut client = ClientHandshake::new("vol", control & 1 == 1).expect("a short name");
    let mut progress = Progress::Pending;
    while !rest.is_empty() && progress == Progress::Pending {
        let piece = &rest[..rest.len().min(piece_max)];
        let (consumed, now) = client.feed(piece);
        assert!(consumed == piece.len() || now != Progress::Pending, "input was left");
        assert!(client.output().len() <= 8192);
        if control & 2 == 2 {
            client.sent(client.output().len());
        }
        _ = client.closed().to_string();
        (progress, rest) = (now, &rest[consumed..]);
    }
    if progress != Progress::Pending {
        assert_eq!(client.feed(rest), (0, progress.clone()), "an ended handshake changes its mind");
    }
    match progress {
        Progress::Ready(terms) => assert!(terms.blocks.is_sound() && terms.flags.has(TransmissionFlags::HAS_FLAGS)),
        Progress::Failed(error) => assert!(error.to_string().chars().count() < 512),
        Progress::Pending => {}
    }
}
