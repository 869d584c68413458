//! Glob: whether a text is as a pattern says, where `*` is any bytes and `?` one.
//!
//! Limit: time is the product of the two lengths at most.

/// When something does not fit, the last `*` takes one byte more: earlier ones need not, since it takes any.
pub(crate) fn is_like(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[t] => (p, t) = (p + 1, t + 1),
            _ => match &mut star {
                Some((after, taken)) => {
                    *taken += 1;
                    (p, t) = (*after, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_key_and_many_stars_are_judged_in_bounded_time() {
        let pattern = "*a".repeat(128);
        let key = [b'a'; 1024];
        assert!(!is_like(format!("{pattern}b").as_bytes(), &key) && is_like(pattern.as_bytes(), &key));
    }

    /// By the definition, however long it takes.
    fn is_like_naively(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, _) => text.is_empty(),
            (Some((b'*', rest)), _) => (0..=text.len()).any(|taken| is_like_naively(rest, &text[taken..])),
            (Some((first, rest)), Some((byte, text))) => {
                (*first == b'?' || first == byte) && is_like_naively(rest, text)
            }
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn what_matches_is_what_the_definition_says(pattern in "[ab*?/]{0,9}", text in "[ab/*?]{0,12}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(is_like(pattern, text), is_like_naively(pattern, text));
        }

        #[test]
        fn any_bytes_are_judged(
            pattern in proptest::collection::vec(any::<u8>(), 0..40),
            text in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            is_like(&pattern, &text);
        }
    }
}
