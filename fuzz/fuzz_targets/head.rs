#![no_main]

#[path = "../../crates/objects/tests/targets/head.rs"]
#[allow(dead_code, reason = "the corpus is for the stable driver")]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
