//! `embedded-store`: see the library.
#![forbid(unsafe_code)]

use clap::Parser;
use forebay_embedded_store::{Link, LinkConfig, Store, StoreConfig};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// An S3 store over a directory, for demos and tests. Ends by an interrupt.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where it listens
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The owner's key; without it nobody signs, and everybody may do everything
    #[arg(long, requires = "secret")]
    key: Option<String>,
    /// The owner's secret
    #[arg(long, requires = "key")]
    secret: Option<String>,
    /// What the link to it carries each way, all connections together; without it there is no link
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    link_mbit_per_s: Option<u64>,
    /// What the link takes from one end to the other
    #[arg(long, default_value_t = 0, requires = "link_mbit_per_s")]
    link_latency_ms: u64,
    /// Buckets are directories in it
    directory: PathBuf,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // There is nobody else to be told.
            let _ = writeln!(std::io::stderr(), "embedded-store: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let link = arguments.link_mbit_per_s.map(|mbit_per_s| {
        let latency = Duration::from_millis(arguments.link_latency_ms);
        Link::new(LinkConfig { bytes_per_s: mbit_per_s * 125_000, latency })
    });
    let Arguments { listen, directory, key, secret, .. } = arguments;
    let store = Store::start(StoreConfig { listen, directory, owner: key.zip(secret), link })?;
    writeln!(std::io::stdout(), "http://{}", store.address())?;
    signals.forever().next();
    Ok(())
}
