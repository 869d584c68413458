//! Fuzzes one codec; see `fuzz_driver`.

mod fuzz_driver;
#[path = "targets/server_handshake.rs"]
mod target;

#[test]
fn server_handshake() {
    let corpus = fuzz_driver::Corpus { examples: target::examples(), words: target::words() };
    fuzz_driver::run("server_handshake", &corpus, target::check);
}
