//! What the disk gives a ring that does nothing else: random direct reads with registered buffers.
//!
//! `rawread FILE BLOCK_BYTES DEPTH SECONDS` prints one line of JSON: reads a second, and their
//! latencies. It is the floor that benchmarks of the disk tier compare with.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program's output")]

use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use forebay_uring::{Arena, Buf, Completion, Direct, DiskFile, Limits, Op, OpenOptions, Ring, monotonic_ns};

/// Latencies kept at most; the first so many of a run.
const SAMPLES_MAX: usize = 4 << 20;

struct Run {
    block_bytes: u32,
    depth: u32,
    seconds: u64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = arguments.iter().skip(1).filter_map(|text| text.parse().ok()).collect();
    let (&[block_bytes, depth, seconds], Some(file)) = (&numbers[..], arguments.first()) else {
        eprintln!("usage: rawread FILE BLOCK_BYTES DEPTH SECONDS");
        return ExitCode::from(2);
    };
    let run = Run { block_bytes: block_bytes as u32, depth: depth as u32, seconds };
    match measure(Path::new(file), &run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rawread: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(path: &Path, run: &Run) -> Result<(), Box<dyn std::error::Error>> {
    let options = OpenOptions { write: false, direct: true, exclusive: false, create: false };
    let file = DiskFile::open(path, options)?;
    let facts = file.facts();
    let blocks = facts.size_bytes / u64::from(run.block_bytes.max(1));
    if blocks == 0 || !(1..=4096).contains(&run.depth) || !run.block_bytes.is_multiple_of(4096) {
        return Err("needs a file of at least a block, blocks of 4096 n bytes, a depth up to 4096".into());
    }
    let mut ring = Ring::new(Limits { ops_max: run.depth, fds_max: 1 })?;
    let arena = ring.add_arena(Rc::new(Arena::new(run.depth, run.block_bytes)?));
    let fd = ring.register(file.into_fd())?;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut began_ns = vec![0; run.depth as usize];
    let mut read = |ring: &mut Ring, began_ns: &mut [u64], frame: u32| {
        // Xorshift: the next block.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        began_ns[frame as usize] = monotonic_ns();
        let at = random % blocks * u64::from(run.block_bytes);
        let buf = Buf { arena, frame, at: 0, len: run.block_bytes };
        ring.submit(frame.into(), Op::Read { fd, at, buf }).expect("one operation a frame");
    };
    let start_ns = monotonic_ns();
    let end_ns = start_ns + run.seconds * 1_000_000_000;
    (0..run.depth).for_each(|frame| read(&mut ring, &mut began_ns, frame));
    let mut latencies_ns = Vec::new();
    let mut reads = 0_u64;
    let mut completions: Vec<Completion> = Vec::new();
    let mut now_ns = start_ns;
    while ring.in_flight() > 0 {
        ring.wait(1, Some(end_ns + 5_000_000_000), &mut completions)?;
        now_ns = monotonic_ns();
        for completion in completions.drain(..) {
            if completion.result? != run.block_bytes {
                return Err("a short read".into());
            }
            reads += 1;
            if latencies_ns.len() < SAMPLES_MAX {
                latencies_ns.push(now_ns - began_ns[completion.token as usize]);
            }
            if now_ns < end_ns {
                read(&mut ring, &mut began_ns, completion.token as u32);
            }
        }
    }
    latencies_ns.sort_unstable();
    let percentile_us = |part: f64| latencies_ns[((latencies_ns.len() - 1) as f64 * part) as usize] as f64 / 1e3;
    let seconds = (now_ns - start_ns) as f64 / 1e9;
    let reads_per_s = reads as f64 / seconds;
    println!(
        "{{\"block_bytes\": {}, \"depth\": {}, \"direct\": {}, \"fixed_bytes\": {}, \"seconds\": {seconds:.3}, \
         \"reads_per_s\": {reads_per_s:.0}, \"bytes_per_s\": {:.0}, \"p50_us\": {:.1}, \"p99_us\": {:.1}}}",
        run.block_bytes,
        run.depth,
        facts.direct == Direct::On,
        ring.fixed_bytes().0,
        reads_per_s * f64::from(run.block_bytes),
        percentile_us(0.5),
        percentile_us(0.99),
    );
    Ok(())
}
