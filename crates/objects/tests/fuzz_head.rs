//! Fuzzes what is read of heads; see `fuzz_driver`.

#[path = "../../wire/tests/fuzz_driver/mod.rs"]
mod fuzz_driver;
#[path = "targets/head.rs"]
mod target;

#[test]
fn head() {
    let corpus = fuzz_driver::Corpus { examples: target::examples(), words: target::words() };
    fuzz_driver::run("head", &corpus, target::check);
}
