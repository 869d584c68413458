//! The published measurements: throughput over the share of reads that the cache disk serves, at 36 points of
//! concurrency.

use std::sync::LazyLock;

const TABLE: &str = include_str!("../../data/netcas-measured-split.csv");
/// Shares that were measured at each point: 0 to 100 % in steps of 5.
pub const SHARES: usize = 21;

/// The points in the table's order: by queue depth, then by jobs.
pub static POINTS: LazyLock<Vec<Point>> = LazyLock::new(|| read(TABLE));

/// What was measured at one concurrency.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Reads in flight a job.
    pub depth: u32,
    /// Jobs.
    pub jobs: u32,
    /// Throughput by share: the `n`-th is that of n x 5 %.
    throughput: [f64; SHARES],
}

impl Point {
    /// Throughput at a share of 0 to 1: as measured, and linear between measurements.
    #[must_use]
    pub fn throughput(&self, disk_share: f64) -> f64 {
        assert!((0.0..=1.0).contains(&disk_share), "a share of {disk_share}");
        let at = disk_share * (SHARES - 1) as f64;
        let below = (at as usize).min(SHARES - 2);
        let part = at - below as f64;
        self.throughput[below] * (1.0 - part) + self.throughput[below + 1] * part
    }

    /// All to the cache disk.
    #[must_use]
    pub fn cache_only(&self) -> f64 {
        self.throughput[SHARES - 1]
    }

    /// All to the back end.
    #[must_use]
    pub fn backend_only(&self) -> f64 {
        self.throughput[0]
    }

    /// The share that moves most. It is one of those measured, as lines between them are straight.
    #[must_use]
    pub fn best_share(&self) -> f64 {
        let best = (0..SHARES).max_by(|&a, &b| self.throughput[a].total_cmp(&self.throughput[b]));
        best.map_or(1.0, |best| best as f64 / (SHARES - 1) as f64)
    }

    /// What it moves.
    #[must_use]
    pub fn best(&self) -> f64 {
        self.throughput.iter().copied().fold(0.0, f64::max)
    }

    /// Reads in flight.
    #[must_use]
    pub fn in_flight(&self) -> f64 {
        f64::from(self.depth * self.jobs)
    }

    /// `depth x jobs`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} x {}", self.depth, self.jobs)
    }
}

fn read(table: &str) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for line in table.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())) {
        let fields: Vec<u32> = line.split(',').filter_map(|field| field.parse().ok()).collect();
        let &[depth, jobs, percent, throughput] = fields.as_slice() else { panic!("a row of the table: {line}") };
        let at = points.iter().position(|point| (point.depth, point.jobs) == (depth, jobs)).unwrap_or(points.len());
        if at == points.len() {
            points.push(Point { depth, jobs, throughput: [0.0; SHARES] });
        }
        points[at].throughput[percent as usize / 5] = f64::from(throughput);
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        assert_eq!(POINTS.len(), 36);
        assert!(POINTS.iter().all(|point| point.throughput.iter().all(|&measured| measured > 0.0)));
        let grid = [1, 2, 4, 8, 16, 32].map(|depth| [1, 2, 4, 8, 16, 32].map(|jobs| (depth, jobs)));
        assert!(POINTS.iter().map(|point| (point.depth, point.jobs)).eq(grid.into_iter().flatten()));
    }

    #[test]
    fn measurements_are_met_and_lines_between_them_are_straight() {
        let point = &POINTS[0];
        assert_eq!((point.cache_only(), point.backend_only()), (53_984.0, 2_472.0));
        assert_eq!(
            (point.throughput(1.0), point.throughput(0.0), point.throughput(0.95)),
            (53_984.0, 2_472.0, 23_694.0)
        );
        assert!((point.throughput(0.975) - (53_984.0 + 23_694.0) / 2.0).abs() < 1e-6);
        assert_eq!((point.best_share(), point.best()), (1.0, 53_984.0));
        let last = &POINTS[35];
        assert_eq!((last.best_share(), last.best(), last.in_flight()), (0.55, 119_409.0, 1_024.0));
    }
}
