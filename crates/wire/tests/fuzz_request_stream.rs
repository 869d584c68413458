//! Fuzzes one codec; see `fuzz_driver`.

mod fuzz_driver;
#[path = "targets/request_stream.rs"]
mod target;

#[test]
fn request_stream() {
    let corpus = fuzz_driver::Corpus { examples: target::examples(), words: target::words() };
    fuzz_driver::run("request_stream", &corpus, target::check);
}
