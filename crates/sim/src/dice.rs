//! Chance: a seeded generator with the draws that worlds make.

use forebay_policy::rng::Rng;

/// See the module.
#[derive(Clone, Debug)]
pub struct Dice(Rng);

impl Dice {
    /// Dice whose throws follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// Dice of their own, so that what one part of the world draws does not shift what another draws.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.0.next_u64())
    }

    /// A number in `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        u64::from(self.0.below(u32::try_from(bound).expect("draws are small")))
    }

    /// A number in `from..=to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True `permille` times of a thousand.
    pub fn chance(&mut self, permille: u32) -> bool {
        permille > 0 && self.0.below(1000) < permille
    }

    /// One of the list.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    /// A duration up to `max_ns`, mostly short: its logarithm is even.
    pub fn duration_ns(&mut self, max_ns: u64) -> u64 {
        let bits = u64::from(64 - max_ns.max(1).leading_zeros());
        let shift = self.below(bits.min(16));
        self.0.next_u64() % ((max_ns >> shift).max(1) + 1)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }
}
