//! Whatever a client sends, the server's handshake takes what it was given, answers in bounds, and ends or waits.

use forebay_wire::nbd::BlockSizes;
use forebay_wire::nbd::constants::{TransmissionFlags, opt};
use forebay_wire::nbd::option::{InfoRequest, push_option};
use forebay_wire::nbd::server_handshake::{ExportInfo, OUTBOX_BYTES_MAX, Outcome, ServerHandshake};

fn exports() -> Vec<ExportInfo> {
    let export = |name: &str| ExportInfo {
        name: name.to_string(),
        description: "a volume".to_string(),
        size_bytes: 1 << 30,
        flags: TransmissionFlags::SEND_FLUSH.with(TransmissionFlags::SEND_DF),
        blocks: BlockSizes { min_bytes: 512, preferred_bytes: 65_536, max_bytes: 32 << 20 },
    };
    vec![export("vol"), export("a"), export(&"long".repeat(1024))]
}

/// The options a client may send.
pub(crate) fn words() -> Vec<Vec<u8>> {
    let option = |option, data: &[u8]| {
        let mut out = Vec::new();
        push_option(&mut out, option, data);
        out
    };
    let info = |kind, name: &str, requests: &[u16]| {
        let mut data = Vec::new();
        InfoRequest::encode(&mut data, name, requests);
        option(kind, &data)
    };
    let context = b"\0\0\0\x03vol\0\0\0\x01\0\0\0\x0fbase:allocation";
    vec![
        option(opt::EXPORT_NAME, b"vol"),
        option(opt::EXPORT_NAME, b"none"),
        option(opt::ABORT, b""),
        option(opt::LIST, b""),
        option(opt::STARTTLS, b""),
        option(opt::STRUCTURED_REPLY, b""),
        option(opt::LIST_META_CONTEXT, context),
        option(opt::SET_META_CONTEXT, context),
        option(opt::EXTENDED_HEADERS, b""),
        option(99, &[7; 100]),
        option(99, &[7; 9000]),
        info(opt::INFO, "vol", &[0, 1, 2, 3]),
        info(opt::INFO, "none", &[]),
        info(opt::GO, "none", &[3]),
        info(opt::GO, "vol", &[3]),
    ]
}

/// A byte that chooses how the input is cut, the client's flags, and options.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    let words = words();
    let everything: Vec<u8> = words.iter().skip(3).flatten().copied().collect();
    let prefix = |cut: u8, flags: u8| vec![cut, 0, 0, 0, flags];
    let mut examples: Vec<Vec<u8>> = words.iter().map(|word| [prefix(255, 3), word.clone()].concat()).collect();
    examples.extend([0, 10, 255].map(|cut| [prefix(cut, 3), everything.clone()].concat()));
    examples.push([prefix(3, 0), words[0].clone()].concat());
    examples
}

/// Plays the client's bytes in pieces, taking the server's output in pieces, too.
pub(crate) fn check(data: &[u8]) {
    let Some((cut, mut rest)) = data.split_first() else { return };
    let piece_max = usize::from(*cut) * 64 + 1;
    let exports = exports();
    let mut server = ServerHandshake::new();
    let mut ended: Option<Outcome> = None;
    loop {
        let output = server.output().len();
        assert!(output <= OUTBOX_BYTES_MAX);
        let sent = output.min(piece_max);
        server.sent(sent);
        let piece = &rest[..rest.len().min(piece_max)];
        let (consumed, outcome) = server.feed(piece, &exports);
        assert!(consumed <= piece.len());
        assert!(consumed == 0 || sent == output, "input was taken while output waited");
        if ended.is_some() {
            assert_eq!((consumed, outcome), (0, ended), "an ended handshake changes its mind");
        }
        ended = outcome;
        rest = &rest[consumed..];
        if sent == 0 && consumed == 0 {
            // No progress: the end, or no input is left. Anything else would be a livelock.
            assert!(ended.is_some() || (rest.is_empty() && server.output().is_empty()) || !server.output().is_empty());
            if server.output().is_empty() {
                break;
            }
        }
    }
    if let Some(Outcome::Transmission { export, terms }) = ended {
        assert!(export < exports.len() && terms.flags.has(TransmissionFlags::HAS_FLAGS));
        assert!(terms.structured || !terms.flags.has(TransmissionFlags::SEND_DF));
    }
}
