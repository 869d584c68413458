//! What else a device may hold: well-known signatures at well-known offsets.
//!
//! Before a device is formatted, its first [`PROBE_BYTES`] are looked at. All zero: blank. A signature of the table:
//! it is named in the refusal, since "holds ext4" stops a person where "holds something" does not. Anything else is
//! unknown data, and refused just the same.
//!
//! Limits: signatures at the end of a device (md 0.90 and 1.0, DRBD) are not looked for, nor are data that begin after
//! the first 128 KiB. Rejected: linking libblkid, which is C and cannot be in a crate without I/O.

/// How much of a device's start is looked at.
pub const PROBE_BYTES: usize = 128 << 10;

/// What the start of a device holds, when it is not a cache of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing but zeroes.
    Blank,
    /// Something of a known kind.
    Known(&'static str),
    /// Data of no known kind.
    Unknown,
}

struct Signature {
    name: &'static str,
    offset: usize,
    bytes: &'static [u8],
}

const fn at(offset: usize, bytes: &'static [u8], name: &'static str) -> Signature {
    Signature { name, offset, bytes }
}

/// The first match counts: what lies inside something else comes before what contains it.
const SIGNATURES: &[Signature] = &[
    at(0, b"LUKS\xba\xbe", "a LUKS encrypted volume"),
    at(0, b"XFSB", "an XFS file system"),
    at(0, b"hsqs", "a SquashFS file system"),
    at(0, b"QFI\xfb", "a qcow2 image"),
    at(0, b"integrt\0", "a dm-integrity volume"),
    at(0, b"verity\0\0", "a dm-verity hash tree"),
    at(0, b"dmvdo001", "a VDO volume"),
    at(0, b"\x21\x93\x48\x23", "a dm-writecache cache"),
    at(0, b"FBMIRROR", "a mirror of Forebay's write-back logs"),
    at(0, b"bluestore block device", "a Ceph BlueStore device"),
    at(4, b"\xa6\x1c\x7e\x18", "an Open CAS cache"),
    at(32, b"\x03\xc4\x18\0\0\0\0\0", "dm-cache metadata"),
    at(32, b"\xba\x52\x9c\x01\0\0\0\0", "dm-thin metadata"),
    at(32, b"NXSB", "an APFS container"),
    at(0, b"LABELONE", "an LVM physical volume"),
    at(512, b"LABELONE", "an LVM physical volume"),
    at(1024, b"LABELONE", "an LVM physical volume"),
    at(1536, b"LABELONE", "an LVM physical volume"),
    at(1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    at(1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    at(1024, b"H+\0\x04", "an HFS+ file system"),
    at(1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    at(4086, b"SWAPSPACE2", "swap space"),
    at(4086, b"SWAP-SPACE", "swap space"),
    at(4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "a bcache or bcachefs device"),
    at(4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", "a bcachefs file system"),
    at(0, b"\xfc\x4e\x2b\xa9", "a member of an md array"),
    at(4096, b"\xfc\x4e\x2b\xa9", "a member of an md array"),
    at(8192, b"OCFSV2", "an OCFS2 file system"),
    at(32_768, b"JFS1", "a JFS file system"),
    at(32_769, b"CD001", "an ISO 9660 file system"),
    at(65_536, b"\x01\x16\x19\x70", "a GFS2 file system"),
    at(65_588, b"ReIsEr", "a ReiserFS file system"),
    at(65_600, b"_BHRfS_M", "a btrfs file system"),
    at(3, b"NTFS    ", "an NTFS file system"),
    at(3, b"EXFAT   ", "an exFAT file system"),
    at(54, b"FAT1", "a FAT file system"),
    at(82, b"FAT32   ", "a FAT file system"),
    at(512, b"EFI PART", "a GPT partition table"),
    at(4096, b"EFI PART", "a GPT partition table"),
    at(510, b"\x55\xaa", "an MBR partition table or boot sector"),
];

/// Names what the start of a device holds; `head` is its first [`PROBE_BYTES`], or all of a smaller one.
pub fn identify(head: &[u8]) -> Content {
    if head.iter().all(|byte| *byte == 0) {
        return Content::Blank;
    }
    let found = SIGNATURES.iter().find(|s| head.get(s.offset..s.offset + s.bytes.len()) == Some(s.bytes));
    found.map_or(Content::Unknown, |signature| Content::Known(signature.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn zeroes_are_blank_and_one_byte_is_not() {
        let mut head = vec![0; PROBE_BYTES];
        assert_eq!(identify(&head), Content::Blank);
        assert_eq!(identify(&[]), Content::Blank);
        head[PROBE_BYTES - 1] = 1;
        assert_eq!(identify(&head), Content::Unknown);
    }

    #[test]
    fn every_signature_names_its_owner() {
        for signature in SIGNATURES {
            let mut head = vec![0; PROBE_BYTES];
            head[signature.offset..signature.offset + signature.bytes.len()].copy_from_slice(signature.bytes);
            assert_eq!(identify(&head), Content::Known(signature.name));
            let cut = &head[..signature.offset + signature.bytes.len() - 1];
            assert_ne!(identify(cut), Content::Known(signature.name), "cut short");
        }
    }

    #[test]
    fn a_partitioned_disk_is_named_by_its_gpt_and_not_by_the_mbr_that_protects_it() {
        let mut head = vec![0; PROBE_BYTES];
        head[510..512].copy_from_slice(b"\x55\xaa");
        assert_eq!(identify(&head), Content::Known("an MBR partition table or boot sector"));
        head[512..520].copy_from_slice(b"EFI PART");
        assert_eq!(identify(&head), Content::Known("a GPT partition table"));
    }
}
