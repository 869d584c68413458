//! What clients ask for: how much, where, how long, how often; as data that the world changes from phase to phase.

use crate::dice::Dice;

/// Sectors `first..first + count` of a volume, where most of the work is.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// First sector.
    pub first: u64,
    /// Sectors.
    pub count: u64,
    /// A sector that many requests touch.
    pub hot: u64,
}

/// How clients behave. Chances are of a thousand.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Clients ask for more when they are answered.
    pub on: bool,
    /// The pause between an answer and the next request is up to this.
    pub think_ns: u64,
    /// By volume.
    pub windows: Vec<Window>,
    /// Reads, writes, flushes, trims, zeroings, evictions: their weights.
    pub weights: [u64; 6],
    /// Requests outside of the window: reads, and everything else.
    pub strays: [u32; 2],
    /// Requests that touch the hot sector.
    pub hot: u32,
    /// Writes, trims and zeroings with FUA.
    pub fua: u32,
    /// Writes whose payload never comes.
    pub vanish: u32,
    /// Payloads and replies that take up to `slow_ns`.
    pub slow: u32,
    /// See `slow`.
    pub slow_ns: u64,
    /// Requests that make no sense.
    pub invalid: u32,
    /// Whole pages, for the lengths.
    pub page_sectors: u64,
    /// The longest request.
    pub sectors_max: u64,
}

/// What to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in `forebay_engine::front::FrontEvent`")]
pub enum Ask {
    Read,
    Write,
    Flush,
    Trim,
    WriteZeroes,
    Evict,
}

impl Traffic {
    /// Draws a behaviour for volumes of so many sectors.
    #[must_use]
    pub fn draw(dice: &mut Dice, volumes: &[u64], page_sectors: u64, sectors_max: u64) -> Self {
        let windows = volumes.iter().map(|&sectors| Self::window(dice, sectors, page_sectors)).collect();
        let weights = dice.pick(&[
            [500, 400, 40, 20, 20, 20],
            [850, 100, 20, 10, 10, 10],
            [200, 700, 60, 15, 15, 10],
            [400, 400, 100, 40, 40, 20],
            [700, 250, 5, 15, 15, 15],
            [950, 30, 10, 0, 0, 10],
        ]);
        Self {
            on: true,
            think_ns: dice.pick(&[20_000, 500_000, 5_000_000, 40_000_000, 100_000_000]),
            windows,
            weights,
            strays: [dice.pick(&[0, 100, 300]), dice.pick(&[0, 0, 20])],
            hot: dice.pick(&[0, 200, 600]),
            fua: dice.pick(&[0, 50, 300]),
            vanish: dice.pick(&[0, 20, 100]),
            slow: dice.pick(&[0, 20, 200]),
            slow_ns: dice.pick(&[1_000_000, 100_000_000, 3_000_000_000]),
            invalid: dice.pick(&[0, 0, 10]),
            page_sectors,
            sectors_max,
        }
    }

    fn window(dice: &mut Dice, sectors: u64, page_sectors: u64) -> Window {
        let pages = dice.pick(&[2, 6, 20, 60]);
        let count = (pages * page_sectors).min(sectors);
        let first = dice.below(sectors - count + 1);
        // Sometimes at the very end, where the last page and the last block may be short.
        let first = if dice.chance(250) { sectors - count } else { first };
        Window { first, count, hot: first + dice.below(count) }
    }

    /// Draws what to ask for.
    pub fn ask(&self, dice: &mut Dice) -> Ask {
        let mut at = dice.below(self.weights.iter().sum());
        for (weight, ask) in
            self.weights.iter().zip([Ask::Read, Ask::Write, Ask::Flush, Ask::Trim, Ask::WriteZeroes, Ask::Evict])
        {
            if at < *weight {
                return ask;
            }
            at -= weight;
        }
        Ask::Read
    }

    /// Draws a range of sectors of a volume that has `sectors`.
    pub fn range(&self, dice: &mut Dice, volume: usize, sectors: u64, ask: Ask) -> (u64, u64) {
        let (count, align) = match dice.below(100) {
            0..40 => (dice.between(1, 8), 1),
            40..62 => (8, 8),
            62..78 => (dice.between(1, 64), 1),
            78..90 => (self.page_sectors, self.page_sectors),
            90..98 => (dice.between(1, 256), 8),
            _ => (dice.between(1, self.sectors_max), 1),
        };
        let long = !matches!(ask, Ask::Read | Ask::Write) && dice.chance(100);
        let count = if long { dice.between(1, 8192) } else { count.min(self.sectors_max) }.min(sectors);
        let window = self.windows[volume];
        let strays = self.strays[usize::from(ask != Ask::Read)];
        let first = if dice.chance(strays) {
            dice.below(sectors - count + 1)
        } else if dice.chance(self.hot) {
            window.hot.saturating_sub(dice.below(count))
        } else {
            window.first + dice.below(window.count)
        };
        let first = first / align * align;
        // What leaves the volume is moved back into it.
        (first.min(sectors - count), count)
    }
}
