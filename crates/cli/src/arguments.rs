//! The command line.

use crate::config::Overrides;
use crate::config::key::{KEYS, Key};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A cache between compute and remote storage.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 partial, 5 temporary.")]
pub struct Arguments {
    /// How results are printed.
    #[arg(short, long, global = true, value_enum, default_value = "table")]
    pub output: Output,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs: one JSON value on standard output.
    Json,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Serve the configured volumes until SIGTERM or SIGINT, then leave a warm, clean cache.
    Serve(Serve),
    /// Check a configuration: every problem at once, and how memory and disk would be divided.
    Check(Check),
    /// Show a running server's state, tiers and volumes.
    Status(Running),
    /// Show what a running server has counted.
    Stats(Stats),
    /// Show where objects of the S3 gateway are: in memory, on disk, or in the store only.
    Stat(Stat),
    /// Show what the volumes do now, looked at once a second; until an interrupt, if there is a terminal.
    Top(Top),
    /// Make every answered write of volumes durable.
    Flush(Flush),
    /// Drop clean pages of a volume from the cache, or all that is known of objects.
    Evict(Evict),
    /// Switch a volume that has a write-back log between write-back and write-through, until the server stops.
    Mode(Mode),
    /// List what is lost of volumes in write-back, and accept it.
    Fsck(Fsck),
    /// Tell how a volume's hits are split over cache disk and back end, and why; or what is known of an object, and why answers for it were not
    /// cached.
    Explain(Explain),
    /// Split a volume's hits by another policy, until the server stops.
    Split(Split),
    /// Measure what a volume's cache disk and back end deliver, for policies that need to know (netcas, orthus-paper). It
    /// only reads, as hard as it can: clients are slower meanwhile.
    Profile(Profile),
    /// Show the gain: a slow back end, a cached volume, reads and writes through NBD; cleans up after itself.
    Demo(Demo),
    /// Run an experiment: policies in a world, judged beside what their papers report.
    Experiment(Experiment),
    /// Write the generated reference pages.
    #[command(hide = true)]
    Docs(Docs),
}

/// `forebay serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// The configuration.
    #[arg(short, long, value_name = "FILE", env = "FOREBAY_CONFIG", default_value = "/etc/forebay/forebay.toml")]
    #[arg(hide_env_values = true)]
    pub config: PathBuf,
    /// Drop what the cache disk holds: for when a back end was changed behind the cache's back.
    #[arg(long)]
    pub cold: bool,
    /// Overwrite a cache disk that holds something else. Whatever that is will be lost.
    #[arg(long)]
    pub force_format: bool,
    /// Values that win over environment and file.
    #[command(flatten)]
    pub overrides: OverrideFlags,
}

/// `forebay check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The configuration.
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// Values that win over environment and file.
    #[command(flatten)]
    pub overrides: OverrideFlags,
}

/// Which server is asked.
#[derive(Debug, Args)]
pub struct Running {
    /// Address of the server's admin endpoint.
    #[arg(long, value_name = "ADDRESS", env = "FOREBAY_ADMIN_LISTEN", default_value = "127.0.0.1:9809")]
    #[arg(hide_env_values = true)]
    pub admin: SocketAddr,
}

/// `forebay stats`.
#[derive(Debug, Args)]
pub struct Stats {
    /// Only this volume.
    pub volume: Option<String>,
    /// Which server.
    #[command(flatten)]
    pub running: Running,
}

/// `forebay stat`.
#[derive(Debug, Args)]
pub struct Stat {
    /// Which: s3://BUCKET/KEY (with ?versionId=ID for one version; with `-o json` it is told which bytes are where),
    /// s3://BUCKET/PREFIX* or s3://BUCKET; s3:// for the sums of all.
    #[arg(value_name = "OBJECT")]
    pub uri: String,
    /// Which server.
    #[command(flatten)]
    pub running: Running,
}

/// `forebay top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Only these volumes.
    #[arg(value_name = "VOLUME")]
    pub volumes: Vec<String>,
    /// Print one second and end, as without a terminal and with `-o json`.
    #[arg(long)]
    pub once: bool,
    /// Which server.
    #[command(flatten)]
    pub running: Running,
}

/// `forebay flush`.
#[derive(Debug, Args)]
pub struct Flush {
    /// The volumes.
    #[arg(required = true, value_name = "VOLUME")]
    pub volumes: Vec<String>,
    /// How far: what was answered is durable in the volume's write-back log, or on its back end. Without a log both are
    /// the same.
    #[arg(long, value_enum, default_value_t = FlushTo::Log)]
    pub to: FlushTo,
    /// Which server.
    #[command(flatten)]
    pub running: Running,
}

/// How far a flush goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FlushTo {
    /// Into the log on the cache disk.
    Log,
    /// To the back end; waits and shows how far it is.
    Backend,
}

/// `forebay mode`.
#[derive(Debug, Args)]
pub struct Mode {
    /// The volume.
    pub volume: String,
    /// back: writes are answered when the log has them. through: when the back end has them; waits until the log is
    /// empty, and shows how far it is.
    #[arg(value_enum)]
    pub mode: LiveMode,
    /// Which server.
    #[command(flatten)]
    pub running: Running,
}

/// What a volume with a log may be switched to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LiveMode {
    /// Write-back.
    Back,
    /// Write-through.
    Through,
}

impl LiveMode {
    /// As in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Back => "back",
            Self::Through => "through",
        }
    }
}

/// `forebay fsck`.
#[derive(Debug, Args)]
pub struct Fsck {
    /// Only these volumes.
    #[arg(value_name = "VOLUME")]
    pub volumes: Vec<String>,
    /// What is lost reads as what the back end has, from now on: older data than was written last.
    #[arg(long)]
    pub accept_loss: bool,
    /// The configuration, for volumes that are not served now.
    #[arg(short, long, value_name = "FILE", env = "FOREBAY_CONFIG", default_value = "/etc/forebay/forebay.toml")]
    #[arg(hide_env_values = true)]
    pub config: PathBuf,
    /// Which server.
    #[command(flatten)]
    pub running: Running,
}

/// `forebay evict`.
#[derive(Debug, Args)]
pub struct Evict {
    /// The volume; or objects: s3://BUCKET/KEY, s3://BUCKET/PREFIX*, s3://BUCKET, or s3:// for all.
    #[arg(value_name = "VOLUME")]
    pub volume: String,
    /// Which part: OFFSET+LENGTH, such as 1GiB+64MiB; without a length to the end. Default: all of it.
    #[arg(value_parser = parse_range)]
    pub range: Option<ByteRange>,
    /// Which server.
    #[command(flatten)]
    pub running: Running,
}

/// `forebay explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// The volume; or an object, s3://BUCKET/KEY.
    #[arg(value_name = "VOLUME")]
    pub volume: String,
    /// Which server.
    #[command(flatten)]
    pub running: Running,
}

/// `forebay split`.
#[derive(Debug, Args)]
pub struct Split {
    /// The volume.
    pub volume: String,
    /// The policy, as in the configuration: off, expected-delay, climb, netcas, netcas-demand, netcas-random, orthus,
    /// orthus-paper, static, cache-only, backend-only.
    pub policy: String,
    /// With static: the share of hits that the cache disk serves, in per cent.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    pub disk_percent: Option<u64>,
    /// Which server.
    #[command(flatten)]
    pub running: Running,
}

/// `forebay profile`.
#[derive(Debug, Args)]
pub struct Profile {
    /// The volume. Some of it must be cached on disk: 128 pages at least.
    #[arg(value_name = "VOLUME", required_unless_present = "show")]
    pub volume: Option<String>,
    /// Take half a minute instead of three: measure two thirds of the loads and interpolate the others.
    #[arg(long)]
    pub quick: bool,
    /// Where it is saved. Default: VOLUME.profile.json beside the configuration.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Measure nothing; give the running server a saved profile, for instance of an equal machine.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "out"])]
    pub load: Option<PathBuf>,
    /// Measure nothing; show the profile of the running server, with what its policy observed, and save it with --out.
    #[arg(long, conflicts_with_all = ["quick", "load"])]
    pub learnt: bool,
    /// Measure nothing; show a saved profile.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["volume", "quick", "out", "load", "learnt"])]
    pub show: Option<PathBuf>,
    /// The configuration, to save beside.
    #[arg(short, long, value_name = "FILE", env = "FOREBAY_CONFIG", default_value = "/etc/forebay/forebay.toml")]
    #[arg(hide_env_values = true)]
    pub config: PathBuf,
    /// Which server.
    #[command(flatten)]
    pub running: Running,
}

/// Part of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Bytes; `None`: to the end.
    pub length: Option<u64>,
}

/// `forebay demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// How long the second part may take, in which hits are split; 0 leaves it out.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub seconds: u32,
    /// Stay until Enter is pressed or SIGINT comes, so that metrics can be looked at.
    #[arg(long)]
    pub hold: bool,
}

/// `forebay experiment`.
#[derive(Debug, Args)]
pub struct Experiment {
    /// Which one.
    #[arg(value_name = "NAME", required_unless_present = "list")]
    pub name: Option<String>,
    /// List the experiments.
    #[arg(long, conflicts_with_all = ["name", "quick", "out", "seed"])]
    pub list: bool,
    /// Take a short look: fewer and shorter runs, judged by who wins. A bar that is missed is no failure then.
    #[arg(long)]
    pub quick: bool,
    /// Also write NAME.json, NAME.md and NAME-*.svg into this directory.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What is drawn by lot follows from this number: the same number, the same findings.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The part that an experiment runs in a process of its own, as it is told.
    #[arg(long, value_name = "WORDS", hide = true)]
    pub work: Option<String>,
}

/// `forebay docs`.
#[derive(Debug, Args)]
pub struct Docs {
    /// The directory, docs/reference in the repository.
    pub directory: PathBuf,
}

/// A flag for each key that is not of a volume.
#[derive(Debug, Default)]
pub struct OverrideFlags(pub Overrides);

fn keys() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(|key| key.list().is_none())
}

impl Args for OverrideFlags {
    fn augment_args(command: Command) -> Command {
        command.args(keys().map(|key| {
            Arg::new(key.path)
                .long(key.flag())
                .value_name("VALUE")
                .help(format!("{} in place of the file's", key.path))
                .help_heading("Overrides of the configuration")
                .hide_short_help(true)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OverrideFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = keys().filter_map(|key| Some((key, matches.get_one::<String>(key.path)?.clone())));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn parse_range(text: &str) -> Result<ByteRange, String> {
    let size = |text: &str| {
        crate::config::unit::parse_size(text)
            .map_err(|complaint| format!("{}; {}", complaint.problem, complaint.remedy))
    };
    match text.split_once('+') {
        Some((offset, length)) => Ok(ByteRange { offset: size(offset)?, length: Some(size(length)?) }),
        None => Ok(ByteRange { offset: size(text)?, length: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_key_has_its_flag() {
        let arguments = Arguments::parse_from(["forebay", "serve", "--cache-memory", "1GiB", "--log-level=debug"]);
        let Verb::Serve(serve) = arguments.verb else { panic!("serve") };
        let given: Vec<_> = serve.overrides.0.iter().map(|(key, text)| (key.path, text.as_str())).collect();
        assert_eq!(given, [("cache.memory", "1GiB"), ("log.level", "debug")]);
    }

    #[test]
    fn ranges_are_offset_and_length() {
        assert_eq!(parse_range("1GiB+64MiB"), Ok(ByteRange { offset: 1 << 30, length: Some(64 << 20) }));
        assert_eq!(parse_range("4096"), Ok(ByteRange { offset: 4096, length: None }));
        assert!(parse_range("x+1").is_err() && parse_range("1+").is_err());
    }
}
