//! What sectors hold: a value of 8 bytes each, spread so that half a sector of one value and half of another shows.
//!
//! Word i of a sector of value v is v * (2i + 1), modulo 2^64. Value 0 is the sector of zeroes. A value names the write
//! it came from, so that a reader knows which one it sees.

/// The unit of content.
pub const SECTOR_BYTES: usize = 512;
const WORDS: usize = SECTOR_BYTES / 8;

/// The value that write `number` gives to a sector of a volume. Never 0.
#[must_use]
pub fn value_of(number: u64, volume: usize, sector: u64) -> u64 {
    assert!(number > 0 && volume < 16 && sector < 1 << 20, "write {number} of volume {volume} at sector {sector}");
    number << 24 | (volume as u64) << 20 | sector
}

/// Fills one sector.
pub fn fill(sector: &mut [u8], value: u64) {
    assert_eq!(sector.len(), SECTOR_BYTES);
    let mut word = value;
    for bytes in sector.chunks_exact_mut(8) {
        bytes.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(value.wrapping_mul(2));
    }
}

/// The value of a sector; `None` if it holds no one value: it is torn, or foreign.
#[must_use]
pub fn value_in(sector: &[u8]) -> Option<u64> {
    assert_eq!(sector.len(), SECTOR_BYTES);
    let word = |at: usize| u64::from_le_bytes(sector[at * 8..at * 8 + 8].try_into().expect("eight bytes"));
    let value = word(0);
    let mut expected = value;
    let mut differs = 0;
    for at in 0..WORDS {
        differs |= word(at) ^ expected;
        expected = expected.wrapping_add(value.wrapping_mul(2));
    }
    (differs == 0).then_some(value)
}

/// A value as people read it.
#[must_use]
pub fn describe(value: u64) -> String {
    match value {
        0 => "zeroes".to_owned(),
        _ => format!("write {} (volume {}, sector {})", value >> 24, value >> 20 & 15, value & 0xf_ffff),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_of_two_values_has_none() {
        let (mut one, mut other) = ([0; SECTOR_BYTES], [0; SECTOR_BYTES]);
        fill(&mut one, value_of(7, 1, 3));
        fill(&mut other, value_of(8, 1, 3));
        assert_eq!(value_in(&one), Some(value_of(7, 1, 3)));
        assert_eq!(value_in(&[0; SECTOR_BYTES]), Some(0));
        for at in (8..SECTOR_BYTES).step_by(8) {
            let mut torn = one;
            torn[at..].copy_from_slice(&other[at..]);
            assert_eq!(value_in(&torn), None);
        }
        one[511] ^= 1;
        assert_eq!(value_in(&one), None);
    }
}
