//! Fuzzes one codec; see `fuzz_driver`.

mod fuzz_driver;
#[path = "targets/signature.rs"]
mod target;

#[test]
fn signature() {
    let corpus = fuzz_driver::Corpus { examples: target::examples(), words: Vec::new() };
    fuzz_driver::run("signature", &corpus, target::check);
}
