//! Fuzzes one codec; see `fuzz_driver`.

mod fuzz_driver;
#[path = "targets/client_handshake.rs"]
mod target;

#[test]
fn client_handshake() {
    let corpus = fuzz_driver::Corpus { examples: target::examples(), words: target::words() };
    fuzz_driver::run("client_handshake", &corpus, target::check);
}
