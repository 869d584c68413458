//! `forebay stats`: what a running server has counted, by volume.

use super::{complain, failed, print, print_json};
use crate::admin_client::AdminClient;
use crate::arguments::{Output, Stats};
use crate::config::unit::size_rounded;
use crate::exit::Exit;
use crate::table;
use forebay_admin::{Latency, Snapshot, Volume};

pub(crate) fn stats(arguments: &Stats, output: Output) -> Exit {
    let mut snapshot = match AdminClient::new(arguments.running.admin).get::<Snapshot>("/api/v1/stats") {
        Ok(snapshot) => snapshot,
        Err(error) => return failed(&error),
    };
    if let Some(name) = &arguments.volume {
        snapshot.volumes.retain(|volume| volume.name == *name);
        if snapshot.volumes.is_empty() {
            complain(&format!("volume \"{name}\": there is none of that name; `forebay status` lists them"));
            return Exit::NotFound;
        }
    }
    match output {
        Output::Json => print_json(&snapshot),
        Output::Table => print(&told(&snapshot)),
    }
    Exit::Ok
}

fn told(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    for volume in &snapshot.volumes {
        out.push_str(&of_volume(volume));
        out.push('\n');
    }
    let nbd = &snapshot.nbd;
    let queues = &snapshot.queues;
    let mut rows = vec![
        ("clients", format!("{} open, {} turned away", nbd.connections_open, nbd.connections_refused)),
        ("requests in flight", format!("{}, {} waiting for memory", queues.requests, queues.requests_waiting)),
        ("device operations", format!("{}, {} stores", queues.operations, queues.stores)),
        ("regions in flight", snapshot.intent_regions.to_string()),
    ];
    if let Some(disk) = &snapshot.disk {
        let state = if disk.attached { "in use" } else { "given up" };
        rows.push(("cache disk", format!("{state}, {} errors, {} bad blocks", disk.errors, disk.bad_blocks)));
        rows.push(("cache disk written", format!("{}, {} sweeps", size_rounded(disk.slot_write_bytes), disk.sweeps)));
        rows.push(("cache disk reads", quantiles(&disk.read_latency)));
    }
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    out.push_str(&table::render(&["SERVER", ""], &rows));
    out
}

fn of_volume(volume: &Volume) -> String {
    let row = |op: &str, count: u64, bytes: Option<u64>, errors: u64, latency: Option<&Latency>| {
        let latency = latency.map_or("-".to_owned(), quantiles);
        vec![op.to_owned(), count.to_string(), bytes.map_or("-".to_owned(), size_rounded), errors.to_string(), latency]
    };
    let v = volume;
    let rows = [
        row("read", v.reads, Some(v.read_bytes), v.read_errors, Some(&v.read_latency)),
        row("write", v.writes, Some(v.write_bytes), v.write_errors, Some(&v.write_latency)),
        row("flush", v.flushes, None, v.flush_errors, Some(&v.flush_latency)),
        row("trim", v.trims, None, 0, None),
    ];
    let head = [volume.name.as_str(), "REQUESTS", "BYTES", "ERRORS", "P50 / P99 / P99.9"];
    let mut out = table::render(&head, &rows);
    let path = |path: &str, parts: u64, read: u64, written: Option<u64>| {
        let written = written.map_or("-".to_owned(), size_rounded);
        vec![path.to_owned(), parts.to_string(), size_rounded(read), written]
    };
    let rows = [
        path("memory", v.memory_hits, v.memory_read_bytes, None),
        path("disk", v.disk_hits, v.disk_read_bytes, Some(v.admitted_bytes)),
        path("back end", v.misses, v.backend_read_bytes, Some(v.backend_write_bytes)),
    ];
    out.push_str(&table::render(&["path", "PARTS", "READ", "WRITTEN"], &rows));
    if v.recovering_misses > 0 {
        out.push_str(&format!("{} of the misses while the slot table was read\n", v.recovering_misses));
    }
    if v.hedged_reads > 0 {
        out.push_str(&format!("{} reads of slow slots also sent to the back end\n", v.hedged_reads));
    }
    out
}

fn quantiles(latency: &Latency) -> String {
    let at = |permil| latency.quantile_ns(permil).map(milliseconds);
    match (at(500), at(990), at(999)) {
        (Some(p50), Some(p99), Some(p999)) => format!("{p50} / {p99} / {p999} ms"),
        _ => "-".to_owned(),
    }
}

fn milliseconds(nanoseconds: u64) -> String {
    format!("{:.3}", nanoseconds as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_admin::Disk;

    #[test]
    fn a_volume_is_told_by_request_and_by_path() {
        let volume = Volume {
            name: "vm1".into(),
            reads: 10,
            read_bytes: 40960,
            memory_hits: 8,
            misses: 2,
            backend_read_bytes: 8192,
            read_latency: Latency::new(10, 0, [(65_536, 8), (2_097_152, 2)]),
            ..Volume::default()
        };
        let snapshot = Snapshot { volumes: vec![volume], disk: Some(Disk::default()), ..Snapshot::default() };
        assert_eq!(
            told(&snapshot),
            "vm1    REQUESTS     BYTES  ERRORS         P50 / P99 / P99.9\n\
             read         10  40.0 KiB       0  0.066 / 2.097 / 2.097 ms\n\
             write         0       0 B       0                         -\n\
             flush         0         -       0                         -\n\
             trim          0         -       0                         -\n\
             path      PARTS     READ  WRITTEN\n\
             memory        8      0 B        -\n\
             disk          0      0 B      0 B\n\
             back end      2  8.0 KiB      0 B\n\n\
             SERVER\n\
             clients             0 open, 0 turned away\n\
             requests in flight  0, 0 waiting for memory\n\
             device operations   0, 0 stores\n\
             regions in flight   0\n\
             cache disk          given up, 0 errors, 0 bad blocks\n\
             cache disk written  0 B, 0 sweeps\n\
             cache disk reads    -\n"
        );
    }
}
