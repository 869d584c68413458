//! Hexadecimal: 64 lower-case digits of a hash or a signature.

/// Digits of a SHA-256.
pub(crate) const DIGITS: usize = 64;

/// A hash or a signature as it is written.
pub(crate) type Digits = [u8; DIGITS];

pub(crate) fn digits(hash: [u8; 32]) -> Digits {
    let mut out = [0; DIGITS];
    for (two, byte) in out.chunks_exact_mut(2).zip(hash) {
        two.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    out
}

fn digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'a' + value - 10 }
}

/// As text, which digits always are.
pub(crate) fn text(digits: &Digits) -> &str {
    std::str::from_utf8(digits).expect("digits")
}

/// The digits that a text is; `None` if it is something else.
pub(crate) fn read(text: &[u8]) -> Option<Digits> {
    let digits: Digits = text.try_into().ok()?;
    digits.iter().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f')).then_some(digits)
}
