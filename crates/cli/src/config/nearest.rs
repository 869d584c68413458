//! The nearest known word to one that is unknown, by optimal string alignment distance.
//!
//! The distance counts insertions, deletions, substitutions and swaps of neighbours (Damerau 1964: they are 80 % of
//! human spelling errors, when there is one), so "pgae" is 1 from "page". A word further than a third of its length
//! is not a suggestion but a guess, and is not made.

/// The candidate nearest to `word`, or `None` when none is near. Ties go to the first.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().flat_map(char::to_lowercase).collect();
    let b: Vec<char> = b.chars().flat_map(char::to_lowercase).collect();
    let mut before = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let differs = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (above[j] + 1).min(row[j - 1] + 1).min(above[j - 1] + differs);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_one_step() {
        for (a, b, expected) in [
            ("page", "page", 0),
            ("pgae", "page", 1),
            ("pag", "page", 1),
            ("Page", "page", 0),
            ("disksize", "disk_size", 1),
            ("", "page", 4),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn what_is_far_is_not_suggested() {
        let keys = ["disk", "disk_size", "memory", "page"];
        assert_eq!(nearest("memroy", keys), Some("memory"));
        assert_eq!(nearest("disk-size", keys), Some("disk_size"));
        assert_eq!(nearest("colour", keys), None);
    }
}
