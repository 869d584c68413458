//! Readers of whole pages anywhere in a volume, one request at a time each, who check every byte.

use crate::demo::client::NbdClient;
use crate::demo::measure::{MeasureError, fill};
use forebay_policy::rng::Rng;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(super) const PAGE_BYTES: usize = 64 << 10;

/// What all readers have read, and whether they are to go on.
#[derive(Debug)]
pub(super) struct Load {
    pages: u32,
    bytes: AtomicU64,
    ended: AtomicBool,
}

impl Load {
    /// Of a volume of so many bytes.
    pub(super) fn new(volume_bytes: u64) -> Self {
        let pages = (volume_bytes / PAGE_BYTES as u64) as u32;
        Self { pages, bytes: AtomicU64::new(0), ended: AtomicBool::new(false) }
    }

    /// A reader, until the end. One that fails ends the others.
    pub(super) fn read(&self, socket: &Path, volume: &str, seed: u64, stop: &AtomicBool) -> Result<(), MeasureError> {
        let read = self.read_pages(socket, volume, seed, stop);
        if read.is_err() {
            self.end();
        }
        read
    }

    fn read_pages(&self, socket: &Path, volume: &str, seed: u64, stop: &AtomicBool) -> Result<(), MeasureError> {
        let mut client = NbdClient::connect(socket, volume)?;
        let mut rng = Rng::new(seed);
        let (mut data, mut expected) = (vec![0; PAGE_BYTES], vec![0; PAGE_BYTES]);
        while !self.is_ended() && !stop.load(Ordering::Relaxed) {
            let offset = u64::from(rng.below(self.pages)) * PAGE_BYTES as u64;
            client.read(offset, &mut data)?;
            fill(offset, &mut expected);
            if data != expected {
                return Err(MeasureError::Wrong { offset });
            }
            self.bytes.fetch_add(PAGE_BYTES as u64, Ordering::Relaxed);
        }
        Ok(client.disconnect()?)
    }

    /// What was read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Tells all readers to end.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}
