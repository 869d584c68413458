//! Mutation fuzzing on a stable toolchain: the same targets that `fuzz/` gives to libFuzzer, without its coverage.
//!
//! An input is either a whole example from the target's corpus or a sentence of its words (messages of the protocol),
//! mutated a little. Iteration `i` depends on `seed + i` only, so a failure is replayed by its own seed at once.
//!
//! `FOREBAY_FUZZ_SECONDS` sets the time (default 1), `FOREBAY_FUZZ_SEED` the seed (default: fresh, and printed).
//! `FOREBAY_FUZZ_CORPUS=DIR` writes the examples to `DIR/<target>/` instead: the corpus libFuzzer starts from.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test driver reads the clock and settings")]
#![allow(clippy::print_stdout, reason = "the seed must be seen")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant, SystemTime};

/// What inputs are made of.
pub(crate) struct Corpus {
    /// Whole inputs.
    pub(crate) examples: Vec<Vec<u8>>,
    /// Parts of which sentences are made; may be empty.
    pub(crate) words: Vec<Vec<u8>>,
}

/// The longest input, so that no mutation grows without bound.
const INPUT_BYTES_MAX: usize = 256 << 10;

/// Feeds mutated inputs to `check` for the time set; panics as `check` does, after printing how to replay it.
pub(crate) fn run(name: &str, corpus: &Corpus, check: fn(&[u8])) {
    corpus.examples.iter().for_each(|example| check(example));
    if let Ok(folder) = std::env::var("FOREBAY_FUZZ_CORPUS") {
        return write_examples(&format!("{folder}/{name}"), &corpus.examples);
    }
    let fresh = SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64);
    let seed = setting("FOREBAY_FUZZ_SEED").unwrap_or(fresh);
    let time = Duration::from_secs(setting("FOREBAY_FUZZ_SECONDS").unwrap_or(1));
    println!("fuzz {name}: FOREBAY_FUZZ_SEED={seed}");
    let start = Instant::now();
    let mut iterations = 0;
    while start.elapsed() < time {
        for _ in 0..16 {
            let own_seed = seed.wrapping_add(iterations);
            let input = generate(corpus, own_seed);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(&input))) {
                println!("fuzz {name}: failed; replay with FOREBAY_FUZZ_SEED={own_seed}");
                println!("input, {} bytes: {}", input.len(), hex(&input[..input.len().min(8192)]));
                resume_unwind(panic);
            }
            iterations += 1;
        }
    }
    println!("fuzz {name}: {iterations} inputs");
}

fn write_examples(folder: &str, examples: &[Vec<u8>]) {
    std::fs::create_dir_all(folder).expect("the corpus folder can be made");
    for (number, example) in examples.iter().enumerate() {
        std::fs::write(format!("{folder}/example-{number}"), example).expect("the example can be written");
    }
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn pick<'a>(&mut self, from: &'a [Vec<u8>]) -> &'a [u8] {
        &from[self.below(from.len())]
    }
}

fn generate(corpus: &Corpus, seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let sentence = !corpus.words.is_empty() && random.below(2) == 0;
    let mut input = if sentence {
        // The first byte is the target's own choice of how to cut the input.
        let mut input = vec![random.next() as u8];
        for _ in 0..1 + random.below(12) {
            input.extend_from_slice(random.pick(&corpus.words));
        }
        input
    } else {
        random.pick(&corpus.examples).to_vec()
    };
    // A quarter stays as it is: the valid must get through, too.
    for _ in 0..[0, 1, 2, 8][random.below(4)] {
        mutate(&mut input, corpus, &mut random);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn mutate(input: &mut Vec<u8>, corpus: &Corpus, random: &mut Random) {
    let at = random.below(input.len());
    let end = at + random.below((input.len() - at).min(64) + 1);
    match random.below(8) {
        0 if !input.is_empty() => input[at] ^= 1 << random.below(8),
        1 if !input.is_empty() => input[at] = random.next() as u8,
        2 | 3 => put_integer(input, at, random),
        4 => input.truncate(at),
        5 => {
            let piece = input[at..end].to_vec();
            input.splice(at..at, piece);
        }
        6 => {
            input.drain(at..end);
        }
        _ => {
            let from = if corpus.words.is_empty() { &corpus.examples } else { &corpus.words };
            let piece = random.pick(from).to_vec();
            let start = random.below(piece.len());
            let stop = start + random.below(piece.len() - start + 1);
            input.splice(at..at, piece[start..stop].iter().copied());
        }
    }
}

/// Overwrites an integer by one that tends to lie on an edge, in either order of bytes.
fn put_integer(input: &mut [u8], at: usize, random: &mut Random) {
    const EDGES: [u64; 14] =
        [0, 1, 2, 30, 31, 64, 255, 512, 4095, 4096, 65_535, 65_536, u32::MAX as u64 - 7, u64::MAX - 511];
    let edge = if random.below(2) == 0 { EDGES[random.below(EDGES.len())] } else { input.len() as u64 };
    let value = edge.wrapping_add(random.below(3) as u64).wrapping_sub(1);
    let width = [1, 2, 4, 8][random.below(4)];
    let bytes = if random.below(2) == 0 {
        value.to_be_bytes()[8 - width..].to_vec()
    } else {
        value.to_le_bytes()[..width].to_vec()
    };
    for (place, byte) in input[at..].iter_mut().zip(bytes) {
        *place = byte;
    }
}
