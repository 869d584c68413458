//! Fixed-width integers at fixed offsets: little-endian on disk (`le_`), big-endian on the wire (`be_`).
//!
//! Callers have checked the length: an offset outside the slice is a bug and panics.

macro_rules! integer_at {
    ($get:ident, $put:ident, $kind:ty, $from:ident, $to:ident) => {
        #[inline]
        pub(crate) fn $get(bytes: &[u8], at: usize) -> $kind {
            const WIDTH: usize = size_of::<$kind>();
            let mut raw = [0; WIDTH];
            raw.copy_from_slice(&bytes[at..at + WIDTH]);
            <$kind>::$from(raw)
        }

        #[inline]
        pub(crate) fn $put(bytes: &mut [u8], at: usize, value: $kind) {
            const WIDTH: usize = size_of::<$kind>();
            bytes[at..at + WIDTH].copy_from_slice(&value.$to());
        }
    };
}

integer_at!(le_u32, put_le_u32, u32, from_le_bytes, to_le_bytes);
integer_at!(le_u64, put_le_u64, u64, from_le_bytes, to_le_bytes);
integer_at!(le_i64, put_le_i64, i64, from_le_bytes, to_le_bytes);
integer_at!(be_u16, put_be_u16, u16, from_be_bytes, to_be_bytes);
integer_at!(be_u32, put_be_u32, u32, from_be_bytes, to_be_bytes);
integer_at!(be_u64, put_be_u64, u64, from_be_bytes, to_be_bytes);

/// Where two byte strings first differ, and how: 4 KiB of them side by side help nobody.
#[cfg(test)]
pub(crate) fn first_difference(left: &[u8], right: &[u8]) -> Option<(usize, u8, u8)> {
    assert_eq!(left.len(), right.len());
    (0..left.len()).find(|at| left[*at] != right[*at]).map(|at| (at, left[at], right[at]))
}
