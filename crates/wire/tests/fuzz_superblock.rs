//! Fuzzes one codec; see `fuzz_driver`.

mod fuzz_driver;
#[path = "targets/superblock.rs"]
mod target;

#[test]
fn superblock() {
    let corpus = fuzz_driver::Corpus { examples: target::examples(), words: Vec::new() };
    fuzz_driver::run("superblock", &corpus, target::check);
}
