//! Whatever replies a server sends, heads are taken whole and in bounds, and a part of a head asks for more.

use forebay_wire::nbd::constants::Errno;
use forebay_wire::nbd::reply::{Decoded, HEAD_BYTES_MAX, Head, data, decode, done, error, hole, simple};

/// Replies with their data.
pub(crate) fn words() -> Vec<Vec<u8>> {
    let mut chunk = data(1, 4096, 16, false).to_vec();
    chunk.extend_from_slice(&[0xee; 16]);
    vec![
        simple(1, None).to_vec(),
        simple(2, Some(Errno::Io)).to_vec(),
        done(1).to_vec(),
        chunk,
        hole(1, 8192, 4096, true).to_vec(),
        error(1, Errno::NoSpace, "no room", None, true).as_bytes().to_vec(),
        error(1, Errno::Io, "", Some(4096), false).as_bytes().to_vec(),
    ]
}

/// A byte that is not looked at, and a stream of replies.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    vec![[vec![0], words().concat()].concat()]
}

/// Reads heads until the bytes end or make no sense.
pub(crate) fn check(data: &[u8]) {
    let mut rest = data.get(1..).unwrap_or_default();
    loop {
        match decode(rest) {
            Decoded::Need(bytes) => {
                assert!(bytes > rest.len() && bytes <= HEAD_BYTES_MAX);
                return;
            }
            Decoded::Broken(_) => return,
            Decoded::Head(head, used) => {
                assert!(used <= rest.len() && used <= HEAD_BYTES_MAX);
                assert!(matches!(decode(&rest[..used - 1]), Decoded::Need(need) if need <= used));
                assert_eq!(decode(&rest[..used]), Decoded::Head(head, used), "later bytes changed the head");
                let follows = if let Head::Data { data_bytes, .. } = head { data_bytes as usize } else { 0 };
                rest = &rest[used..];
                rest = &rest[follows.min(rest.len())..];
            }
        }
    }
}
