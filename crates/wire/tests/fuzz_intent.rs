//! Fuzzes one codec; see `fuzz_driver`.

mod fuzz_driver;
#[path = "targets/intent.rs"]
mod target;

#[test]
fn intent() {
    let corpus = fuzz_driver::Corpus { examples: target::examples(), words: Vec::new() };
    fuzz_driver::run("intent", &corpus, target::check);
}
