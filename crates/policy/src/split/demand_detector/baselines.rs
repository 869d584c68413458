//! How long a read takes on a path while nobody else is in the way, by load.
//!
//! A cell for each octave of block size and half octave of reads in flight holds the mean of both and of the latency. A
//! load without a cell of its own is bounded by those that have one: a path does not get slower when asked for
//! less, and does not deliver less when asked for more. So with a cell of block b', n' in flight and latency L',
//!
//! `latency <= L' max(1, n / n') max(1, b / b')`
//!
//! A cell is believed from its tenth sample on. Invariants: at most [`CELLS_MAX`], reserved at the start; the one not used for longest makes room.

use alloc::vec::Vec;

const CELLS_MAX: usize = 48;
/// A mean moves by at least this part: it forgets in about 25 s.
const PART_MIN: f64 = 1.0 / 256.0;
/// A cell with so many samples is believed.
const SAMPLES_MIN: u32 = 10;

/// What was asked of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    pub(super) block_bytes: f64,
    /// At least a half.
    pub(super) in_flight: f64,
}

impl Load {
    /// Octave of block size and half octave in flight. From the exponent and, for halves, the mantissa of a float.
    fn key(self) -> (u64, u64) {
        let exponent = |x: f64| x.to_bits() >> 52;
        // The square's octaves are the half octaves.
        (exponent(self.block_bytes), exponent(self.in_flight * self.in_flight))
    }
}

#[derive(Clone, Debug)]
struct Cell {
    key: (u64, u64),
    load: Load,
    latency_ns: f64,
    samples: u32,
    used: u64,
}

impl Cell {
    fn is_believed(&self) -> bool {
        self.samples >= SAMPLES_MIN
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Baselines {
    cells: Vec<Cell>,
    uses: u64,
}

impl Baselines {
    pub(super) fn new() -> Self {
        Self { cells: Vec::with_capacity(CELLS_MAX), uses: 0 }
    }

    /// Whether the load has a cell that is believed.
    pub(super) fn knows(&self, load: Load) -> bool {
        self.find(load).is_some_and(|at| self.cells[at].is_believed())
    }

    /// Whether any cell is believed.
    pub(super) fn is_warm(&self) -> bool {
        self.cells.iter().any(Cell::is_believed)
    }

    /// The longest that a read may take; `None` if nothing is known.
    pub(super) fn longest(&self, load: Load) -> Option<f64> {
        let bounds = self.cells.iter().filter(|cell| cell.is_believed()).map(|cell| {
            let Load { block_bytes, in_flight } = cell.load;
            cell.latency_ns * (load.in_flight / in_flight).max(1.0) * (load.block_bytes / block_bytes).max(1.0)
        });
        bounds.min_by(f64::total_cmp)
    }

    /// A read took so long, with nobody in the way.
    pub(super) fn learn(&mut self, load: Load, latency_ns: f64) {
        let at = self.find(load).unwrap_or_else(|| self.add(load));
        self.uses += 1;
        let cell = &mut self.cells[at];
        cell.used = self.uses;
        cell.samples = cell.samples.saturating_add(1);
        let part = (1.0 / f64::from(cell.samples)).max(PART_MIN);
        cell.latency_ns += (latency_ns - cell.latency_ns) * part;
        cell.load.block_bytes += (load.block_bytes - cell.load.block_bytes) * part;
        cell.load.in_flight += (load.in_flight - cell.load.in_flight) * part;
    }

    /// The cell of a load begins anew with the next sample.
    pub(super) fn forget(&mut self, load: Load) {
        if let Some(at) = self.find(load) {
            self.cells[at].samples = 0;
        }
    }

    fn find(&self, load: Load) -> Option<usize> {
        let key = load.key();
        self.cells.iter().position(|cell| cell.key == key)
    }

    fn add(&mut self, load: Load) -> usize {
        if self.cells.len() == CELLS_MAX {
            let oldest = self.cells.iter().enumerate().min_by_key(|(_, cell)| cell.used).map_or(0, |(at, _)| at);
            self.cells.swap_remove(oldest);
        }
        self.cells.push(Cell { key: load.key(), load, latency_ns: 0.0, samples: 0, used: 0 });
        self.cells.len() - 1
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn load(block_bytes: f64, in_flight: f64) -> Load {
        Load { block_bytes, in_flight }
    }

    #[test]
    fn a_cell_is_an_octave_of_size_and_half_an_octave_in_flight() {
        assert_eq!(load(4_096.0, 4.0).key(), load(8_191.0, 5.6).key());
        assert_ne!(load(4_096.0, 4.0).key(), load(8_192.0, 4.0).key());
        assert_ne!(load(4_096.0, 4.0).key(), load(4_096.0, 5.7).key());
        assert_ne!(load(4_096.0, 5.7).key(), load(4_096.0, 8.0).key());
    }

    #[test]
    fn the_mean_is_plain_at_first_and_forgets_later() {
        let mut baselines = Baselines::new();
        for nth in 1..=10 {
            assert_eq!(baselines.longest(load(4_096.0, 1.0)), None);
            baselines.learn(load(4_096.0, 1.0), f64::from(nth));
        }
        assert!((baselines.longest(load(4_096.0, 1.0)).unwrap() - 5.5).abs() < 1e-9);
        (0..10_000).for_each(|_| baselines.learn(load(4_096.0, 1.0), 30.0));
        assert!((baselines.longest(load(4_096.0, 1.0)).unwrap() - 30.0).abs() < 1e-6);
        baselines.forget(load(4_096.0, 1.0));
        assert!(!baselines.knows(load(4_096.0, 1.0)) && !baselines.is_warm());
        (0..10).for_each(|_| baselines.learn(load(4_096.0, 1.0), 5.0));
        assert_eq!(baselines.longest(load(4_096.0, 1.0)), Some(5.0));
    }

    #[test]
    fn the_cells_used_last_are_kept() {
        let mut baselines = Baselines::new();
        for octave in 0..100 {
            let load = load(f64::from(1 << (octave % 20)), f64::from(1 << (octave / 20)));
            (0..10).for_each(|_| baselines.learn(load, 1.0));
        }
        assert_eq!(baselines.cells.len(), CELLS_MAX);
        assert!(!baselines.knows(load(1.0, 1.0)) && baselines.knows(load(1.0, 16.0)));
    }

    proptest! {
        /// A path that takes `base` and then queues: whatever was learned, its latency is bounded.
        #[test]
        fn the_bound_holds_for_a_path_that_queues(
            base in 10.0..1e6_f64,
            bytes_per_ns in 0.01..10.0_f64,
            seen in prop::collection::vec((512.0..1e6_f64, 1.0..512.0_f64), 1..60),
            asked in (512.0..1e6_f64, 1.0..512.0_f64),
        ) {
            let latency = |load: Load| f64::max(base, load.in_flight * load.block_bytes / bytes_per_ns);
            let mut baselines = Baselines::new();
            let loads: Vec<Load> = seen.into_iter().map(|(bytes, in_flight)| load(bytes, in_flight)).collect();
            for load in loads {
                // One load a cell: a mean over its octave is on no curve.
                if !baselines.knows(load) {
                    (0..10).for_each(|_| baselines.learn(load, latency(load)));
                }
            }
            let asked = load(asked.0, asked.1);
            prop_assert!(baselines.longest(asked).unwrap() >= latency(asked) * (1.0 - 1e-9));
        }
    }
}
