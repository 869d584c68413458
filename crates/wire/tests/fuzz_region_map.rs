//! Fuzzes one codec; see `fuzz_driver`.

mod fuzz_driver;
#[path = "targets/region_map.rs"]
mod target;

#[test]
fn region_map() {
    let corpus = fuzz_driver::Corpus { examples: target::examples(), words: Vec::new() };
    fuzz_driver::run("region_map", &corpus, target::check);
}
