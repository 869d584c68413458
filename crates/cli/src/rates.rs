//! What a cache did between two looks at it, as rates.
//!
//! Counters only grow, so a rate is a difference of counters over the time between the moments that they are of. A
//! server that was started anew in between has counted less: its rates are 0 then, and right at the next look.

use forebay_admin::{Latency, Snapshot, Split, Volume};
use serde::Serialize;

/// A volume between two looks. Ratios are of the parts of reads (one a page); `None` if there was no read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct VolumeRates {
    pub(crate) name: String,
    pub(crate) reads_per_second: f64,
    pub(crate) writes_per_second: f64,
    pub(crate) read_bytes_per_second: f64,
    pub(crate) write_bytes_per_second: f64,
    pub(crate) errors_per_second: f64,
    pub(crate) memory_hit_ratio: Option<f64>,
    pub(crate) disk_hit_ratio: Option<f64>,
    /// Hits on the cache disk that the back end served.
    pub(crate) backend_hit_ratio: Option<f64>,
    pub(crate) miss_ratio: Option<f64>,
    pub(crate) disk_read_bytes_per_second: f64,
    pub(crate) backend_read_bytes_per_second: f64,
    pub(crate) read_p50_ns: Option<u64>,
    pub(crate) read_p99_ns: Option<u64>,
    pub(crate) write_p50_ns: Option<u64>,
    pub(crate) write_p99_ns: Option<u64>,
    /// How it stands now.
    pub(crate) split: Option<Split>,
}

/// Every volume of `now`, since `before`.
pub(crate) fn between(before: &Snapshot, now: &Snapshot) -> Vec<VolumeRates> {
    let seconds = now.counted_seconds - before.counted_seconds;
    let at_start = Volume::default();
    let earlier = |name: &str| before.volumes.iter().find(|volume| volume.name == name).unwrap_or(&at_start);
    now.volumes.iter().map(|volume| of_volume(earlier(&volume.name), volume, seconds)).collect()
}

fn of_volume(before: &Volume, now: &Volume, seconds: f64) -> VolumeRates {
    let gained = |read: fn(&Volume) -> u64| read(now).saturating_sub(read(before)) as f64;
    let rate = |read: fn(&Volume) -> u64| if seconds > 0.0 { gained(read) / seconds } else { 0.0 };
    let by_path: [fn(&Volume) -> u64; 4] = [|v| v.memory_hits, |v| v.disk_hits, |v| v.backend_hits, |v| v.misses];
    let parts: f64 = by_path.into_iter().map(gained).sum();
    let [memory, disk, backend, miss] = by_path.map(|read| (parts > 0.0).then(|| gained(read) / parts));
    let latency = |read: fn(&Volume) -> &Latency| {
        let gained = read(now).since(read(before));
        [500, 990].map(|permil| gained.quantile_ns(permil))
    };
    let [read_p50_ns, read_p99_ns] = latency(|volume| &volume.read_latency);
    let [write_p50_ns, write_p99_ns] = latency(|volume| &volume.write_latency);
    VolumeRates {
        name: now.name.clone(),
        reads_per_second: rate(|volume| volume.reads),
        writes_per_second: rate(|volume| volume.writes),
        read_bytes_per_second: rate(|volume| volume.read_bytes),
        write_bytes_per_second: rate(|volume| volume.write_bytes),
        errors_per_second: rate(Volume::errors),
        memory_hit_ratio: memory,
        disk_hit_ratio: disk,
        backend_hit_ratio: backend,
        miss_ratio: miss,
        disk_read_bytes_per_second: rate(|volume| volume.disk_read_bytes),
        backend_read_bytes_per_second: rate(|volume| volume.backend_read_bytes),
        read_p50_ns,
        read_p99_ns,
        write_p50_ns,
        write_p99_ns,
        split: now.split.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(counted_seconds: f64, reads: u64, disk_hits: u64, latency: Latency) -> Snapshot {
        let volume = Volume {
            name: "v".into(),
            reads,
            read_bytes: reads * 4096,
            memory_hits: reads - disk_hits,
            disk_hits,
            read_latency: latency,
            ..Volume::default()
        };
        Snapshot { counted_seconds, volumes: vec![volume], ..Snapshot::default() }
    }

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let before = look(10.0, 100, 0, Latency::new(100, 0, [(1024, 100)]));
        let now = look(10.5, 300, 50, Latency::new(300, 0, [(1024, 100), (4096, 200)]));
        let rates = &between(&before, &now)[0];
        assert_eq!((rates.reads_per_second, rates.read_bytes_per_second), (400.0, 400.0 * 4096.0));
        assert_eq!(
            (rates.memory_hit_ratio, rates.disk_hit_ratio, rates.miss_ratio),
            (Some(0.75), Some(0.25), Some(0.0))
        );
        assert_eq!(rates.read_p50_ns, Some(4096), "what was counted before is not of this second");
        assert_eq!((rates.write_p50_ns, rates.writes_per_second), (None, 0.0));
    }

    #[test]
    fn nothing_done_no_time_passed_and_a_restart_are_no_rates() {
        let later = look(10.0, 100, 0, Latency::new(100, 0, [(1024, 100)]));
        for before in [later.clone(), look(500.0, 1000, 7, Latency::new(1000, 0, [(1024, 1000)]))] {
            let rates = &between(&before, &later)[0];
            assert_eq!((rates.reads_per_second, rates.disk_hit_ratio, rates.read_p99_ns), (0.0, None, None));
        }
        let fresh = between(&Snapshot { counted_seconds: 9.0, ..Snapshot::default() }, &later);
        assert_eq!(fresh[0].reads_per_second, 100.0, "a volume that was not there before");
    }
}
