//! The first part: what a cache gains, without and with what it holds.
//!
//! A back end in memory slowed down to 200 MB/s and 1 ms, as a remote volume is, and a cache disk in a file. Writes and
//! reads go through NBD, every byte is checked; then the numbers.

use super::client::NbdClient;
use super::measure::{MeasureError, Measured, measure};
use super::{SETTLE, settings_of};
use crate::admin_client::AdminClient;
use crate::serve::{Runtime, StartOptions, start_runtime};
use forebay_admin::AdminServer;
use std::error::Error;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

const VOLUME: &str = "demo";

/// The configuration that the demo runs, and shows.
fn configuration(directory: &Path) -> String {
    let directory = directory.display();
    format!(
        "[cache]\n\
         disk = \"{directory}/cache.img\"\n\
         disk_size = \"256MiB\"\n\
         sparse = true\n\
         memory = \"128MiB\"\n\
         state_dir = \"{directory}\"\n\
         [listen]\n\
         unix = \"{directory}/nbd.sock\"\n\
         [admin]\n\
         listen = \"127.0.0.1:0\"\n\
         [[volume]]\n\
         name = \"{VOLUME}\"\n\
         backend = \"memory:256MiB\"\n\
         paced = {{ rate = \"200MB/s\", latency = \"1ms\" }}\n"
    )
}

/// The cache of the first part, which runs until it is stopped.
pub(super) struct Gain {
    runtime: Runtime,
    admin: AdminServer,
    socket: PathBuf,
}

impl Gain {
    /// Starts it with all its files in `directory`.
    pub(super) fn start(directory: &Path) -> Result<Self, Box<dyn Error>> {
        let settings = settings_of(&configuration(directory))?;
        let socket = settings.listen.unix.clone().ok_or("the demo's configuration has no socket")?;
        let address = settings.admin.ok_or("the demo's configuration has no admin endpoint")?;
        let runtime = start_runtime(&settings, &StartOptions::default())?;
        let admin = AdminServer::start(address, runtime.control())?;
        Ok(Self { runtime, admin, socket })
    }

    /// Writes and reads.
    pub(super) fn measure(&self, stop: &AtomicBool) -> Result<Measured, MeasureError> {
        let mut client = NbdClient::connect(&self.socket, VOLUME)?;
        let measured = measure(&mut client, stop)?;
        client.disconnect()?;
        Ok(measured)
    }

    /// What was measured, for people.
    pub(super) fn told(&self, measured: &Measured) -> Result<String, Box<dyn Error>> {
        std::thread::sleep(SETTLE);
        let metrics = AdminClient::new(self.admin.address()).text("/metrics")?;
        Ok(told(measured, &self.socket, self.admin.address(), &metrics))
    }

    /// Stops it in order.
    pub(super) fn stop(self) -> Result<(), Box<dyn Error>> {
        drop(self.admin);
        Ok(self.runtime.stop()?)
    }
}

fn told(measured: &Measured, socket: &Path, admin: SocketAddr, metrics: &str) -> String {
    let ms = |ns: u64| format!("{:.3} ms", ns as f64 / 1e6);
    let rate = |bytes_per_s: f64| format!("{:.0} MB/s", bytes_per_s / 1e6);
    let gain = |from: f64, to: f64| format!("{:.1} x", to / from);
    let m = measured;
    let mut out = String::new();
    let mut line = |what: &str, number: String, note: String| {
        let _ = writeln!(out, "{}", format!("{what:<34}{number:>12}  {note}").trim_end());
    };
    line("back end, paced", "200 MB/s".into(), "and 1 ms for every operation".into());
    line("write through, 1 MiB each", rate(m.write_bytes_per_s), "durable on the back end".into());
    line("first read, 4 KiB: a miss", ms(m.first_miss_ns), String::new());
    line("the same again: a hit", ms(m.first_hit_ns), gain(m.first_hit_ns as f64, m.first_miss_ns as f64));
    line("64 random misses, median", ms(m.random_miss_ns), String::new());
    line("the same again: hits", ms(m.random_hit_ns), gain(m.random_hit_ns as f64, m.random_miss_ns as f64));
    line("32 MiB in sequence, cold", rate(m.sequential_cold_bytes_per_s), String::new());
    line(
        "the same again, cached",
        rate(m.sequential_cached_bytes_per_s),
        gain(m.sequential_cold_bytes_per_s, m.sequential_cached_bytes_per_s),
    );
    let _ = write!(
        out,
        "\nevery byte read was compared with what was written\n\
         volume   nbd+unix:///{VOLUME}?socket={}\n\
         metrics  http://{admin}/metrics\n",
        socket.display()
    );
    for sample in metrics.lines().filter(|line| line.starts_with("forebay_volume_read_parts_total")) {
        let _ = writeln!(out, "         {sample}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_sound() {
        let text = configuration(Path::new("/nonexistent/demo"));
        let settings = settings_of(&text).unwrap_or_else(|report| panic!("{report}"));
        assert!(settings.volumes[0].paced.is_some());
    }

    #[test]
    fn the_numbers_are_told_in_lines() {
        let measured = Measured {
            write_bytes_per_s: 150e6,
            first_miss_ns: 1_200_000,
            first_hit_ns: 60_000,
            random_miss_ns: 1_100_000,
            random_hit_ns: 50_000,
            sequential_cold_bytes_per_s: 160e6,
            sequential_cached_bytes_per_s: 1600e6,
        };
        let metrics = "a 1\nforebay_volume_read_parts_total{volume=\"demo\",path=\"memory\"} 9\n";
        let told = told(&measured, Path::new("/s"), "127.0.0.1:1".parse().expect("an address"), metrics);
        assert!(told.contains("the same again: a hit                 0.060 ms  20.0 x\n"), "{told}");
        assert!(told.contains("the same again, cached               1600 MB/s  10.0 x\n"), "{told}");
        assert!(
            told.ends_with("         forebay_volume_read_parts_total{volume=\"demo\",path=\"memory\"} 9\n"),
            "{told}"
        );
    }
}
