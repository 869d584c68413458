//! The handshake as its clients see it.

use super::super::client_handshake::{ClientHandshake, Progress};
use super::super::option::push_option;
use super::*;
use alloc::string::ToString;
use alloc::vec;
use proptest::prelude::*;

const BLOCKS: BlockSizes = BlockSizes { min_bytes: 512, preferred_bytes: 65_536, max_bytes: 32 << 20 };

fn export(name: &str) -> ExportInfo {
    ExportInfo {
        name: name.to_string(),
        description: "a volume".to_string(),
        size_bytes: 1 << 30,
        flags: TransmissionFlags::SEND_FLUSH.with(TransmissionFlags::SEND_DF),
        blocks: BLOCKS,
    }
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push_option(&mut out, option, data);
    out
}

fn go(kind: u32, name: &str, requests: &[u16]) -> Vec<u8> {
    let mut data = Vec::new();
    InfoRequest::encode(&mut data, name, requests);
    option(kind, &data)
}

fn meta(kind: u32, name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend_from_slice(&(query.len() as u32).to_be_bytes());
        data.extend_from_slice(query.as_bytes());
    }
    option(kind, &data)
}

/// A server that has read the client's flags.
fn begun(client_flags: u32) -> ServerHandshake {
    let mut server = ServerHandshake::new();
    assert_eq!(server.output(), b"NBDMAGICIHAVEOPT\0\x03");
    assert_eq!(server.feed(&client_flags.to_be_bytes(), &[]), (0, None), "the greeting goes first");
    server.sent(18);
    assert_eq!(server.feed(&client_flags.to_be_bytes(), &[]), (4, None));
    server
}

/// Sends one option; returns the answer and the outcome.
fn ask(server: &mut ServerHandshake, input: &[u8], exports: &[ExportInfo]) -> (Vec<u8>, Option<Outcome>) {
    let (consumed, outcome) = server.feed(input, exports);
    assert_eq!(consumed, input.len());
    let output = server.output().to_vec();
    assert!(output.len() <= OUTBOX_BYTES_MAX);
    server.sent(output.len());
    (output, outcome)
}

/// The reply types in an answer.
fn reply_types(mut answer: &[u8]) -> Vec<u32> {
    let mut types = Vec::new();
    while !answer.is_empty() {
        let header = super::super::option::ReplyHeader::decode(answer[..20].try_into().unwrap()).unwrap();
        types.push(header.reply);
        answer = &answer[20 + header.length as usize..];
    }
    types
}

#[test]
fn go_tells_size_and_block_sizes_and_ends_in_transmission() {
    let mut server = begun(3);
    let exports = [export("a"), export("vol")];
    let (answer, outcome) = ask(&mut server, &go(opt::GO, "vol", &[]), &exports);
    assert_eq!(reply_types(&answer), [rep::INFO, rep::INFO, rep::ACK]);
    let golden = b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\0\0\0\x0c\0\0\0\0\0\0\x40\0\0\0\0\x05";
    assert_eq!(answer[..32], golden[..], "HAS_FLAGS added, SEND_DF left out");
    let Some(Outcome::Transmission { export: 1, terms }) = outcome else { panic!("{outcome:?}") };
    assert!(!terms.structured && !terms.flags.has(TransmissionFlags::SEND_DF));
}

#[test]
fn info_answers_like_go_and_goes_on() {
    let mut server = begun(3);
    let exports = [export("vol")];
    let asked = [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE];
    let (answer, outcome) = ask(&mut server, &go(opt::INFO, "vol", &asked), &exports);
    assert_eq!(reply_types(&answer), [rep::INFO, rep::INFO, rep::INFO, rep::INFO, rep::ACK]);
    assert_eq!(outcome, None);
    let (answer, outcome) = ask(&mut server, &go(opt::GO, "other", &[]), &exports);
    assert_eq!((reply_types(&answer), outcome), (vec![rep::ERR_UNKNOWN], None));
}

#[test]
fn export_name_sends_zeroes_unless_agreed_otherwise() {
    for (flags, length) in [(3, 10), (1, 134), (0, 134)] {
        let mut server = begun(flags);
        let (answer, outcome) = ask(&mut server, &option(opt::EXPORT_NAME, b"vol"), &[export("vol")]);
        assert_eq!(answer.len(), length);
        assert!(matches!(outcome, Some(Outcome::Transmission { export: 0, .. })));
    }
}

#[test]
fn export_name_of_nothing_closes() {
    for name in [&b"other"[..], b"\xff", b""] {
        let mut server = begun(3);
        let (answer, outcome) = ask(&mut server, &option(opt::EXPORT_NAME, name), &[export("a"), export("b")]);
        assert!(answer.is_empty());
        assert_eq!(outcome, Some(Outcome::Closed(Closed::UnknownExport)));
    }
}

#[test]
fn the_empty_name_means_the_only_export() {
    let (_, outcome) = ask(&mut begun(3), &go(opt::GO, "", &[]), &[export("vol")]);
    assert!(matches!(outcome, Some(Outcome::Transmission { export: 0, .. })));
    let (_, outcome) = ask(&mut begun(3), &go(opt::GO, "", &[]), &[export("a"), export("")]);
    assert!(matches!(outcome, Some(Outcome::Transmission { export: 1, .. })), "unless one bears that name");
}

#[test]
fn list_names_every_export() {
    let (answer, _) = ask(&mut begun(3), &option(opt::LIST, b""), &[export("a"), export("bc")]);
    assert_eq!(reply_types(&answer), [rep::SERVER, rep::SERVER, rep::ACK]);
    assert_eq!(answer[20..25], *b"\0\0\0\x01a");
    let many: Vec<ExportInfo> = (0..100).map(|_| export(&"x".repeat(4096))).collect();
    let (answer, outcome) = ask(&mut begun(3), &option(opt::LIST, b""), &many);
    assert_eq!((reply_types(&answer).pop(), outcome), (Some(rep::ERR_TOO_BIG), None));
}

#[test]
fn each_option_has_its_answer() {
    let exports = [export("vol")];
    for (input, expected) in [
        (option(opt::LIST, b"x"), rep::ERR_INVALID),
        (option(opt::STARTTLS, b""), rep::ERR_POLICY),
        (option(opt::STARTTLS, b"x"), rep::ERR_INVALID),
        (option(opt::STRUCTURED_REPLY, b"x"), rep::ERR_INVALID),
        (option(opt::EXTENDED_HEADERS, b""), rep::ERR_UNSUP),
        (option(4, b"x"), rep::ERR_UNSUP),
        (option(0, b""), rep::ERR_UNSUP),
        (option(opt::GO, b"x"), rep::ERR_INVALID),
        (meta(opt::SET_META_CONTEXT, "vol", &["base:allocation"]), rep::ERR_INVALID),
        (option(opt::STRUCTURED_REPLY, b""), rep::ACK),
        (meta(opt::SET_META_CONTEXT, "vol", &["base:allocation", "qemu:x"]), rep::ACK),
        (meta(opt::LIST_META_CONTEXT, "vol", &[]), rep::ACK),
        (meta(opt::LIST_META_CONTEXT, "other", &[]), rep::ERR_UNKNOWN),
        (option(opt::SET_META_CONTEXT, b"\0\0\0\x01v\xff\xff\xff\xff"), rep::ERR_INVALID),
        (option(opt::SET_META_CONTEXT, &[0; 9]), rep::ERR_INVALID),
        (option(99, &[0; OPTION_DATA_BYTES_MAX + 1]), rep::ERR_TOO_BIG),
        (option(opt::LIST, &[0; OPTION_SKIP_BYTES_MAX]), rep::ERR_TOO_BIG),
    ] {
        // One that negotiates nothing, one after structured replies: the answers of the table hold in order.
        let mut server = begun(3);
        if expected == rep::ACK || expected == rep::ERR_UNKNOWN {
            ask(&mut server, &option(opt::STRUCTURED_REPLY, b""), &exports);
        }
        let (answer, outcome) = ask(&mut server, &input, &exports);
        assert_eq!((reply_types(&answer), outcome), (vec![expected], None), "{:?}", &input[..16]);
        let (answer, _) = ask(&mut server, &option(opt::ABORT, b"any"), &exports);
        assert_eq!(reply_types(&answer), [rep::ACK], "still in step after {:?}", &input[..16]);
    }
}

#[test]
fn breaches_close() {
    for (bytes, why) in [
        (option(opt::LIST, &[0; OPTION_SKIP_BYTES_MAX + 1])[..16].to_vec(), "too long"),
        (option(opt::EXPORT_NAME, &[0; OPTION_DATA_BYTES_MAX + 1])[..16].to_vec(), "too long for a name"),
        (vec![0; 16], "wrong magic"),
    ] {
        let (_, outcome) = ask(&mut begun(3), &bytes, &[]);
        assert!(matches!(outcome, Some(Outcome::Closed(Closed::Protocol(_)))), "{why}");
    }
    let mut server = ServerHandshake::new();
    server.sent(18);
    let (consumed, outcome) = server.feed(&4u32.to_be_bytes(), &[]);
    assert_eq!(consumed, 4);
    assert!(matches!(outcome, Some(Outcome::Closed(Closed::Protocol(_)))), "unknown client flag");
}

#[test]
fn options_are_counted() {
    let mut server = begun(3);
    for _ in 0..OPTIONS_MAX {
        assert_eq!(ask(&mut server, &option(99, b""), &[]).1, None);
    }
    let (answer, outcome) = ask(&mut server, &option(99, b""), &[]);
    assert!(answer.is_empty());
    assert_eq!(outcome, Some(Outcome::Closed(Closed::TooManyOptions)));
}

#[test]
fn a_pipelining_client_waits_for_its_answers() {
    let mut server = begun(3);
    let input = [option(99, b"abc"), go(opt::GO, "vol", &[]), vec![0x25, 0x60]].concat();
    let exports = [export("vol")];
    let (first, outcome) = server.feed(&input, &exports);
    assert_eq!((first, outcome), (19, None));
    assert_eq!(server.feed(&input[first..], &exports), (0, None), "the answer goes first");
    server.sent(server.output().len());
    let (second, outcome) = server.feed(&input[first..], &exports);
    assert!(matches!(outcome, Some(Outcome::Transmission { .. })));
    assert_eq!(first + second, input.len() - 2, "the request's bytes are left");
}

proptest! {
    /// Our client and our server agree, however the bytes are cut.
    #[test]
    fn client_and_server_agree(structured: bool, flags: u16, size_bytes: u64, client_cut in 1usize..40, server_cut in 1usize..40, by_default: bool) {
        let exports = [ExportInfo { size_bytes, flags: TransmissionFlags(flags), ..export("vol") }];
        let mut server = ServerHandshake::new();
        let mut client = ClientHandshake::new(if by_default { "" } else { "vol" }, structured).unwrap();
        let mut to_server = Vec::new();
        let mut ends = (None, Progress::Pending);
        for _ in 0..1000 {
            let piece = server.output().len().min(server_cut);
            let bytes = server.output()[..piece].to_vec();
            server.sent(piece);
            let (consumed, progress) = client.feed(&bytes);
            prop_assert_eq!(consumed, piece);
            ends.1 = progress;
            to_server.extend_from_slice(client.output());
            client.sent(client.output().len());
            let piece = to_server.len().min(client_cut);
            let (consumed, outcome) = server.feed(&to_server[..piece], &exports);
            to_server.drain(..consumed);
            ends.0 = outcome;
        }
        let (Some(Outcome::Transmission { export: 0, terms }), Progress::Ready(agreed)) = ends else {
            panic!("no agreement: {ends:?}");
        };
        prop_assert_eq!(terms, agreed);
        prop_assert_eq!(terms.structured, structured);
    }
}
