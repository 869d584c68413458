//! Any bytes are blank, something known, or something unknown; only zeroes are blank.

use forebay_wire::disk::signature::{Content, PROBE_BYTES, identify};

/// Starts of devices.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    let holding = |at: usize, bytes: &[u8]| {
        let mut head = vec![0; PROBE_BYTES];
        head[at..at + bytes.len()].copy_from_slice(bytes);
        head
    };
    vec![holding(0, b"XFSB"), holding(510, b"\x55\xaa"), holding(65_600, b"_BHRfS_M"), holding(1080, b"\x53\xef")]
}

/// Looks at the bytes whole and cut.
pub(crate) fn check(data: &[u8]) {
    let cut = data.first().map_or(0, |byte| usize::from(*byte) * 512).min(data.len());
    for head in [data, &data[..cut]] {
        assert_eq!(identify(head) == Content::Blank, head.iter().all(|byte| *byte == 0));
    }
}
