//! Does: finds out what a volume's hits are split over, so that a profile is not used on other devices.
//!
//! - The cache disk: model and serial number as the kernel tells them in /sys, of the disk itself, or of the one that its
//!   file is on. A disk that has no model is known by its driver (`virtio_blk`), a file system without a disk by its
//!   name (`tmpfs`).
//! - The back end: its kind. A pace (for tests and the demo) is part of the device that it slows down.
//! - The link: the speed of the interface that leads to an NBD back end, as the kernel tells it.
//!
//! Limits: what the kernel does not tell is not known: a virtual machine's interface often has no speed, and all virtual
//! disks may look alike. The link's speed is that of its first hop.

use crate::config::{Backend, Settings, VolumeSettings};
use forebay_admin::Devices;
use std::fs;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The devices of a volume.
pub(crate) fn of(settings: &Settings, volume: &VolumeSettings) -> Devices {
    let disk = settings.cache.disk.as_ref();
    let (mut disk_model, disk_serial) = disk.and_then(|disk| model_of(&disk.path)).unwrap_or_default();
    if let Some(paced) = settings.cache.paced {
        let rate = link_told(paced.rate_bytes_per_s.unwrap_or(0) * 8);
        disk_model = format!("{disk_model}, paced by {} ms, rate {rate}", paced.latency_ns as f64 / 1e6);
    }
    let mut backend_kind = kind(&volume.backend);
    let mut link_bits_per_second = link(&volume.backend);
    if let Some(paced) = volume.paced {
        let latency_ms = paced.latency_ns as f64 / 1e6;
        backend_kind = format!("{backend_kind}, paced by {latency_ms} ms");
        link_bits_per_second = paced.rate_bytes_per_s.map_or(link_bits_per_second, |rate| rate * 8);
    }
    Devices { disk_model, disk_serial, backend_kind, link_bits_per_second }
}

/// A link's speed as people read it.
pub(crate) fn link_told(bits_per_second: u64) -> String {
    if bits_per_second == 0 { "not known".to_owned() } else { format!("{} Mbit/s", bits_per_second / 1_000_000) }
}

fn kind(backend: &Backend) -> String {
    match backend {
        Backend::NbdTcp { .. } => "nbd".to_owned(),
        Backend::NbdUnix { .. } => "nbd on this machine".to_owned(),
        Backend::Memory { .. } => "memory".to_owned(),
        Backend::Path(path) => match model_of(path) {
            Some((model, _)) => format!("file or disk on {model}"),
            None => "file or disk".to_owned(),
        },
    }
}

/// Model and serial number of the disk at a path, or that a file is on.
fn model_of(path: &Path) -> Option<(String, String)> {
    // A cache disk's file may not be there yet.
    let there = path.ancestors().find_map(|path| fs::metadata(path).ok())?;
    let number = if there.st_rdev() != 0 { there.st_rdev() } else { there.st_dev() };
    let (major, minor) = (number >> 8 & 0xfff | number >> 32 & !0xfff, number & 0xff | number >> 12 & !0xff);
    let Ok(sys) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else {
        return Some((file_system(major, minor)?, String::new()));
    };
    // A partition is in its disk's directory.
    let disk = if sys.join("partition").exists() { sys.parent()?.to_owned() } else { sys };
    let first = |names: &[&str]| {
        let told = names.iter().filter_map(|name| fs::read_to_string(disk.join(name)).ok());
        told.map(|text| text.trim().to_owned()).find(|text| !text.is_empty())
    };
    let name = || disk.file_name().map(|name| name.to_string_lossy().trim_end_matches(char::is_numeric).to_owned());
    let model = first(&["device/model", "dm/name", "md/level"]).or_else(|| driver(&disk)).or_else(name)?;
    Some((model, first(&["device/serial", "serial", "device/wwid", "dm/uuid", "md/uuid"]).unwrap_or_default()))
}

fn driver(disk: &Path) -> Option<String> {
    let driver: PathBuf = fs::canonicalize(disk.join("device/driver")).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

/// The name of the file system that has no disk.
fn file_system(major: u64, minor: u64) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let number = format!("{major}:{minor}");
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&number))?;
    let (_, after) = mount.split_once(" - ")?;
    after.split(' ').next().map(str::to_owned)
}

/// Bits a second; 0 if there is no link, or nobody knows.
fn link(backend: &Backend) -> u64 {
    let Backend::NbdTcp { host, port, .. } = backend else { return 0 };
    let address = (host.as_str(), *port).to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    let routes = |file| fs::read_to_string(file).unwrap_or_default();
    let interface = match address.map(|address| address.ip()) {
        Some(IpAddr::V4(to)) => route_v4(&routes("/proc/net/route"), to.to_bits()),
        Some(IpAddr::V6(to)) => route_v6(&routes("/proc/net/ipv6_route"), to.to_bits()),
        None => None,
    };
    let told = interface.and_then(|name| fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok());
    // -1 where there is none.
    told.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0) * 1_000_000
}

/// The interface of the most specific route: name, destination and mask are the columns 1, 2 and 8, addresses in
/// hexadecimal with their bytes turned round.
fn route_v4(table: &str, to: u32) -> Option<String> {
    let routes = table.lines().skip(1).filter_map(|line| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let address = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok().map(u32::swap_bytes);
        let (destination, mask) = (address(1)?, address(7)?);
        (to & mask == destination).then(|| (mask, words[0].to_owned()))
    });
    routes.max_by_key(|(mask, _)| *mask).map(|(_, name)| name)
}

/// The same: destination, length of the prefix and name are the columns 1, 2 and 10.
fn route_v6(table: &str, to: u128) -> Option<String> {
    let routes = table.lines().filter_map(|line| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let destination = u128::from_str_radix(words.first()?, 16).ok()?;
        let bits = u32::from_str_radix(words.get(1)?, 16).ok().filter(|bits| *bits <= 128)?;
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        // The kernel's last row refuses what has no route, over the loopback.
        (to & mask == destination && words.get(9) != Some(&"lo")).then(|| (bits, words[9].to_owned()))
    });
    routes.max_by_key(|(bits, _)| *bits).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn the_most_specific_route_leads_to_a_back_end() {
        let table = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
            eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0\n\
            eth1 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n";
        let route = |a, b, c, d| route_v4(table, Ipv4Addr::new(a, b, c, d).to_bits());
        assert_eq!(route(192, 0, 2, 7).as_deref(), Some("eth1"));
        assert_eq!(route(10, 0, 0, 1).as_deref(), Some("eth0"));
        assert_eq!(route_v4("", 1), None);
        let hop = "0".repeat(32);
        let row = |to: &str, bits, name| format!("{to} {bits} {hop} 00 {hop} 00000400 2 0 00000003 {name}\n");
        let prefix = format!("fd{}", "0".repeat(30));
        let table = row(&prefix, "40", "eth1") + &row(&hop, "00", "eth0") + &row(&hop, "00", "lo");
        let route = |text: &str| route_v6(&table, text.parse::<Ipv6Addr>().expect("an address").to_bits());
        assert_eq!(route("fd00::2").as_deref(), Some("eth1"));
        assert_eq!(route("2001:db8::1").as_deref(), Some("eth0"));
    }

    #[test]
    fn what_a_file_is_on_has_a_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let (model, _) = model_of(&directory.path().join("not/there/yet")).expect("some disk or file system");
        assert!(!model.is_empty());
        assert_eq!(model_of(directory.path()).map(|told| told.0), Some(model));
        assert_eq!(model_of(Path::new("/proc/self/status")).map(|told| told.0).as_deref(), Some("proc"));
    }
}
