//! Names that others read are those that docs/experiments.md lists, and no others.

use forebay_lab::EXPERIMENTS;
use std::path::Path;

#[test]
fn the_page_lists_what_experiments_say() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiments.md");
    let written = std::fs::read_to_string(page).unwrap_or_default();
    let begin = written.find("\n## ").map_or(written.len(), |at| at + 1);
    let declared: Vec<_> = EXPERIMENTS.iter().map(|experiment| experiment.interface()).collect();
    let declared = declared.join("\n");
    assert!(written[begin..] == declared, "docs/experiments.md ends with other experiments than these:\n{declared}");
}
