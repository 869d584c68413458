//! Does: sim.
#![forbid(unsafe_code)]

fn main() {}
