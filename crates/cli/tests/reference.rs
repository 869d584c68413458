//! The generated reference pages are those in the repository.

use std::path::Path;

#[test]
fn the_reference_is_up_to_date() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    for (name, text) in forebay_cli::verb::pages() {
        let written = std::fs::read_to_string(directory.join(name)).unwrap_or_default();
        assert!(
            written == text,
            "docs/reference/{name} is not what the code says: run `cargo run -p forebay-cli -- docs docs/reference`"
        );
    }
}
