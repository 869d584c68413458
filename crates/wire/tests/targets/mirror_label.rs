//! Whatever is at the start of a device, what is taken for a label of a mirror survives being written.

use forebay_wire::disk::SECTOR_BYTES;
use forebay_wire::disk::mirror_label::{Found, LABEL_BYTES, MirrorLabel, probe};

pub(crate) fn examples() -> Vec<Vec<u8>> {
    [0, 1, 3, 30]
        .map(|count| {
            let names: Vec<String> = (0..count).map(|nth| format!("volume-{nth}")).collect();
            let logs = (1..).zip(&names).map(|(space, name)| (name.as_str(), space, 7, u64::from(space) << 20));
            MirrorLabel::new([7; 16], 99, 40, logs).encode()
        })
        .to_vec()
}

/// Looks at the bytes as they are, and again with their checksums put right.
pub(crate) fn check(data: &[u8]) {
    let mut head = data.to_vec();
    head.resize(head.len().max(LABEL_BYTES), 0);
    check_head(&head);
    for sector in head[..LABEL_BYTES].chunks_exact_mut(SECTOR_BYTES) {
        sector[..8].copy_from_slice(b"FBMIRROR");
        sector[8..12].fill(0);
        let crc = crc32c::crc32c(sector);
        sector[8..12].copy_from_slice(&crc.to_le_bytes());
    }
    check_head(&head);
}

fn check_head(head: &[u8]) {
    if let Found::Label(label) = probe(head) {
        assert_eq!(probe(&label.encode()), Found::Label(label));
    }
}
