//! Does: sim.
#![forbid(unsafe_code)]

fn main() {
    let seeds: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let (from, count) = (seeds[0], seeds.get(1).copied().unwrap_or(1));
    let mut ops = 0;
    let mut s = 0;
    for seed in from..from + count {
        let begin = std::time::Instant::now();
        let out = std::panic::catch_unwind(|| forebay_sim::world::run(seed, count == 1));
        match out {
            Err(_) => println!("FAILED {seed}"),
            Ok(out) => {
                ops += out.operations; s += out.now_ns / 1_000_000_000;
                if count == 1 || begin.elapsed().as_millis() > 500 {
                    println!("seed {seed} {:x} {} ops {} faults {} s, {:?}", out.digest, out.operations, out.faults, out.now_ns/1_000_000_000, begin.elapsed()); }
                }
        }
    }
    println!("{ops} operations, {s} virtual seconds");
}
