#![no_main]

#[path = "../../crates/wire/tests/targets/mirror_label.rs"]
#[allow(dead_code, reason = "the corpus is for the stable driver")]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::check(data));
