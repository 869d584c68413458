//! Fuzzes one codec; see `fuzz_driver`.

mod fuzz_driver;
#[path = "targets/mirror_label.rs"]
mod target;

#[test]
fn mirror_label() {
    let corpus = fuzz_driver::Corpus { examples: target::examples(), words: Vec::new() };
    fuzz_driver::run("mirror_label", &corpus, target::check);
}
