//! Seeded pseudo-random numbers: xoshiro256**, seeded by SplitMix64, and SplitMix64's mixer for keys.
//!
//! Policies that draw (random eviction) must replay: the same seed gives the same decisions on every
//! machine. xoshiro256** is D. Blackman and S. Vigna, "Scrambled Linear Pseudorandom Number
//! Generators", ACM TOMS 47(4), 2021: 32 bytes of state, about a nanosecond a number, passes BigCrush.
//! SplitMix64 is G. Steele, D. Lea and C. Flood, "Fast Splittable Pseudorandom Number Generators",
//! OOPSLA 2014; its authors' successors recommend it to fill xoshiro's state from one word.
//!
//! Limits: not for secrets. Rejected: a crate for this (two dozen lines do it), and wyrand (shorter,
//! but a 64-bit state, so that nearby seeds of many caches may overlap).

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's output function: a bijection on 64-bit words in which every input bit moves about half
/// of the output bits. Use it to hash a key for the policies.
#[inline]
pub const fn mix64(word: u64) -> u64 {
    let word = word.wrapping_add(GOLDEN_GAMMA);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A xoshiro256** generator.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator whose whole sequence follows from `seed`.
    pub fn new(seed: u64) -> Self {
        let at = |n: u64| seed.wrapping_add(GOLDEN_GAMMA.wrapping_mul(n));
        Self { state: [mix64(at(0)), mix64(at(1)), mix64(at(2)), mix64(at(3))] }
    }

    /// The next 64 bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = self.state;
        let output = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let s2x = s2 ^ s0;
        let s3x = s3 ^ s1;
        self.state = [s0 ^ s3x, s1 ^ s2x, s2x ^ (s1 << 17), s3x.rotate_left(45)];
        output
    }

    /// A number in `0..bound`, by multiplication and shift; its bias is at most bound / 2^64.
    ///
    /// # Panics
    /// When `bound` is 0.
    #[inline]
    pub const fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "no number is below 0");
        ((self.next_u64() as u128 * bound as u128) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix64_gives_the_published_splitmix64_sequence() {
        let seed = 1_234_567_u64;
        let outputs: [u64; 5] = core::array::from_fn(|n| mix64(seed.wrapping_add(GOLDEN_GAMMA.wrapping_mul(n as u64))));
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(outputs, published);
    }

    #[test]
    fn next_u64_gives_the_published_xoshiro256starstar_sequence() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let outputs: [u64; 6] = core::array::from_fn(|_| rng.next_u64());
        let published =
            [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240, 1_216_172_134_540_287_360, 607_988_272_756_665_600];
        assert_eq!(outputs, published);
    }

    #[test]
    fn below_is_even_over_its_range_and_replays() {
        let mut rng = Rng::new(7);
        let mut again = Rng::new(7);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            let drawn = rng.below(10);
            assert_eq!(drawn, again.below(10));
            counts[drawn as usize] += 1;
        }
        // Five standard deviations of a binomial(100 000, 0.1) are 475.
        assert!(counts.iter().all(|&n| n.abs_diff(10_000) < 475), "{counts:?}");
    }
}
