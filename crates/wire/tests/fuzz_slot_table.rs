//! Fuzzes one codec; see `fuzz_driver`.

mod fuzz_driver;
#[path = "targets/slot_table.rs"]
mod target;

#[test]
fn slot_table() {
    let corpus = fuzz_driver::Corpus { examples: target::examples(), words: Vec::new() };
    fuzz_driver::run("slot_table", &corpus, target::check);
}
