//! Fuzzes one codec; see `fuzz_driver`.

mod fuzz_driver;
#[path = "targets/reply_stream.rs"]
mod target;

#[test]
fn reply_stream() {
    let corpus = fuzz_driver::Corpus { examples: target::examples(), words: target::words() };
    fuzz_driver::run("reply_stream", &corpus, target::check);
}
