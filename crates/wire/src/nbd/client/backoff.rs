//! Truncated binary exponential back-off with equal jitter.
//!
//! Why: a server that comes back meets all its clients at once; without jitter they come in step.
//! How: the n-th delay has the ceiling `min(max, min * 2^n)`; half of it is fixed, half is random.
//! Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015 ("equal jitter").
//! Rejected: full jitter. It spreads better, but may try again at once, which a connection refused in 10 us turns into
//! a busy loop.
//!
//! The random bits are SplitMix64's (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA
//! 2014): 8 bytes of state, good enough for spreading delays.

#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    min_ns: u64,
    max_ns: u64,
    state: u64,
}

impl Backoff {
    pub(super) fn new(min_ns: u64, max_ns: u64, seed: u64) -> Self {
        Self { min_ns, max_ns, state: seed }
    }

    /// The delay after `failures` failures in a row.
    pub(super) fn delay_ns(&mut self, failures: u32) -> u64 {
        let doubled = self.min_ns.saturating_mul(1 << failures.min(32));
        let ceiling = doubled.min(self.max_ns);
        let half = ceiling / 2;
        half + self.next_u64() % (ceiling - half).max(1)
    }

    fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::Backoff;

    #[test]
    fn delays_double_within_their_half_and_stop_at_the_ceiling() {
        let mut backoff = Backoff::new(100, 1_000, 7);
        for _ in 0..200 {
            for (failures, ceiling) in [(0, 100), (1, 200), (3, 800), (4, 1_000), (900, 1_000)] {
                let delay = backoff.delay_ns(failures);
                assert!((ceiling / 2..ceiling).contains(&delay), "{failures} {delay}");
            }
        }
    }

    #[test]
    fn the_seed_decides_the_delays() {
        let delays = |seed| {
            let mut backoff = Backoff::new(1 << 20, 1 << 30, seed);
            core::array::from_fn::<u64, 8, _>(|n| backoff.delay_ns(n as u32))
        };
        assert_eq!(delays(1), delays(1));
        assert_ne!(delays(1), delays(2));
    }
}
