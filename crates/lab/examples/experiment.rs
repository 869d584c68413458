//! An experiment, for whoever tunes a policy: `cargo run -p forebay-lab --example experiment [NAME [SEED [quick]]]`.
//!
//! The same as `forebay experiment NAME`, but only this crate and the policies have to be built.

use forebay_lab::{EXPERIMENTS, Run, find, page};
use std::error::Error;
use std::io::Write;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let name = words.next().unwrap_or_else(|| EXPERIMENTS[0].name.to_owned());
    let seed = words.next().map_or(Ok(1), |word| word.parse())?;
    let is_quick = words.next().is_some_and(|word| word == "quick");
    let experiment = find(&name).ok_or("there is no such experiment")?;
    let findings = experiment.run(&mut Run { is_quick, seed, program: None, progress: &mut |_, _| {} })?;
    write!(std::io::stdout().lock(), "{}", page::of_findings(&findings))?;
    Ok(())
}
