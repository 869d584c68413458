//! What the first part does with its volume: write, read cold, read again, and check every byte.

use super::client::{ClientError, NbdClient};
use serde::Serialize;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Bytes that are written and read in sequence.
pub(super) const SEQUENTIAL_BYTES: u64 = 32 << 20;
const SEQUENTIAL_REQUEST_BYTES: usize = 1 << 20;
const RANDOM_READS: u64 = 64;
const BLOCK_BYTES: usize = 4096;

/// What was seen. Times of single reads are medians but for the first.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    pub(super) write_bytes_per_s: f64,
    pub(super) first_miss_ns: u64,
    pub(super) first_hit_ns: u64,
    pub(super) random_miss_ns: u64,
    pub(super) random_hit_ns: u64,
    pub(super) sequential_cold_bytes_per_s: f64,
    pub(super) sequential_cached_bytes_per_s: f64,
}

/// Why it ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum MeasureError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the bytes read at {offset} are not those written there: report this as a bug")]
    Wrong { offset: u64 },
    #[error("{0}")]
    Cache(String),
    #[error("interrupted")]
    Interrupted,
}

/// Runs it all. The volume is at least twice [`SEQUENTIAL_BYTES`] long: random reads go to the part behind.
pub(super) fn measure<S: Read + Write>(client: &mut NbdClient<S>, stop: &AtomicBool) -> Result<Measured, MeasureError> {
    let write_bytes_per_s = write(client, stop)?;
    let first_offset = SEQUENTIAL_BYTES;
    let first_miss_ns = read_block(client, first_offset, stop)?;
    let first_hit_ns = read_block(client, first_offset, stop)?;
    // Strides of a MiB and a page: no two reads share a page, and no stream is to be seen in them.
    let span = client.size_bytes() - SEQUENTIAL_BYTES - (1 << 20);
    let offsets: Vec<_> = (1..=RANDOM_READS)
        .map(|i| SEQUENTIAL_BYTES + (i * 7 * ((1 << 20) + (64 << 10)) % span).next_multiple_of(64 << 10))
        .collect();
    let random_miss_ns = median(client, &offsets, stop)?;
    let random_hit_ns = median(client, &offsets, stop)?;
    let sequential_cold_bytes_per_s = sequential(client, stop)?;
    let sequential_cached_bytes_per_s = sequential(client, stop)?;
    Ok(Measured {
        write_bytes_per_s,
        first_miss_ns,
        first_hit_ns,
        random_miss_ns,
        random_hit_ns,
        sequential_cold_bytes_per_s,
        sequential_cached_bytes_per_s,
    })
}

fn write<S: Read + Write>(client: &mut NbdClient<S>, stop: &AtomicBool) -> Result<f64, MeasureError> {
    let mut data = vec![0; SEQUENTIAL_REQUEST_BYTES];
    let begin = Instant::now();
    for offset in (0..SEQUENTIAL_BYTES).step_by(SEQUENTIAL_REQUEST_BYTES) {
        go_on(stop)?;
        fill(offset, &mut data);
        client.write(offset, &data)?;
    }
    client.flush()?;
    Ok(SEQUENTIAL_BYTES as f64 / begin.elapsed().as_secs_f64())
}

fn sequential<S: Read + Write>(client: &mut NbdClient<S>, stop: &AtomicBool) -> Result<f64, MeasureError> {
    let (mut data, mut expected) = (vec![0; SEQUENTIAL_REQUEST_BYTES], vec![0; SEQUENTIAL_REQUEST_BYTES]);
    let mut spent_s = 0.0;
    for offset in (0..SEQUENTIAL_BYTES).step_by(SEQUENTIAL_REQUEST_BYTES) {
        go_on(stop)?;
        let begin = Instant::now();
        client.read(offset, &mut data)?;
        spent_s += begin.elapsed().as_secs_f64();
        fill(offset, &mut expected);
        if data != expected {
            return Err(MeasureError::Wrong { offset });
        }
    }
    Ok(SEQUENTIAL_BYTES as f64 / spent_s)
}

/// Reads a block of the part that was never written, which is zero.
fn read_block<S: Read + Write>(client: &mut NbdClient<S>, offset: u64, stop: &AtomicBool) -> Result<u64, MeasureError> {
    go_on(stop)?;
    let mut block = [1; BLOCK_BYTES];
    let begin = Instant::now();
    client.read(offset, &mut block)?;
    let spent_ns = begin.elapsed().as_nanos() as u64;
    if block != [0; BLOCK_BYTES] { Err(MeasureError::Wrong { offset }) } else { Ok(spent_ns) }
}

fn median<S: Read + Write>(client: &mut NbdClient<S>, offsets: &[u64], stop: &AtomicBool) -> Result<u64, MeasureError> {
    let times: Result<Vec<_>, _> = offsets.iter().map(|offset| read_block(client, *offset, stop)).collect();
    let mut times = times?;
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

pub(super) fn go_on(stop: &AtomicBool) -> Result<(), MeasureError> {
    if stop.load(Ordering::Relaxed) { Err(MeasureError::Interrupted) } else { Ok(()) }
}

/// Bytes that say where they belong.
pub(super) fn fill(offset: u64, data: &mut [u8]) {
    for (word, at) in data.chunks_exact_mut(8).zip((offset..).step_by(8)) {
        word.copy_from_slice(&(at ^ 0x5bd1_e995_9e37_79b9).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::client::tests::{Export, connected};

    const EXPORT: Export = Export { bytes: 2 * SEQUENTIAL_BYTES + (4 << 20), failing: None, wrong: None };

    fn measured(export: Export, stop: bool) -> Result<Measured, MeasureError> {
        let (client, _server) = connected("demo", export);
        measure(&mut client.expect("the handshake"), &AtomicBool::new(stop))
    }

    #[test]
    fn a_sound_volume_is_measured() {
        let measured = measured(EXPORT, false).expect("numbers");
        assert!(measured.first_hit_ns > 0 && measured.sequential_cached_bytes_per_s > 0.0);
    }

    #[test]
    fn a_wrong_byte_a_failed_read_and_an_interrupt_end_it() {
        for wrong in [0, SEQUENTIAL_BYTES - (1 << 20), SEQUENTIAL_BYTES] {
            let ended = measured(Export { wrong: Some(wrong), ..EXPORT }, false);
            assert!(matches!(ended, Err(MeasureError::Wrong { offset }) if offset == wrong), "{ended:?}");
        }
        let ended = measured(Export { failing: Some(1 << 20), ..EXPORT }, false);
        assert!(matches!(ended, Err(MeasureError::Client(ClientError::Refused(_)))), "{ended:?}");
        assert!(matches!(measured(EXPORT, true), Err(MeasureError::Interrupted)));
    }

    #[test]
    fn every_word_says_where_it_belongs() {
        let (mut whole, mut half) = (vec![0; 64], vec![0; 32]);
        fill(4096, &mut whole);
        fill(4096 + 32, &mut half);
        assert_eq!(whole[32..], half[..]);
        assert_ne!(whole[..32], half[..]);
    }
}
