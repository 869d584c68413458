//! Does: runs worlds in virtual time.
//!
//! A world is a whole machine that exists only as data: a cache disk, back ends, clients, a clock. In it runs the real
//! shard loop with the real `Cache::step`, attached through the real plan, over the real NBD client; only what is below
//! the `Device`, `Front`, `Reactor` and `Host` traits is modelled. Everything that happens follows from one number, the
//! seed, so that a failure is replayed by its seed.
//!
//! 1. [`setup`] draws a machine and a configuration, [`traffic`] what clients do, [`world`] what goes wrong and when.
//! 2. [`front`] issues requests and holds every answer against [`oracle`], which knows what each sector may hold.
//! 3. [`medium`] is where bytes are, durable or not yet; [`model_device`] and [`nbd_device`] are the ways to them.
//! 4. Processes and machines crash at any I/O, in the middle of a turn too, and start again; [`table_check`] compares
//!    what is left on the cache disk with the back ends each time.
//! 5. [`ledger`] counts what was met and digests all of it: a seed that runs twice with two digests is a failure too.
//! 6. [`sweep`] runs many seeds; and with a planted [`bug`], to see that the checks would notice.
//!
//! Beside these stand [`log_world`], where one write-back log is crashed all the time, [`back`], where whole machines with such
//! logs are, [`objects`], where a gateway keeps what a store has, and [`pace`]: worlds in which nothing goes wrong, and what is looked at is how fast things go.
//!
//! Why: the defects that cost data need three or four rare things to happen in a certain order. A world makes rare
//! things common, a thousand seeds a minute, and each find can be looked at again.
//!
//! Limits: one shard. The order of events in a turn is the shard's. A modelled disk does not lie about flush.
#![forbid(unsafe_code)]

pub mod back;
pub mod bug;
pub mod content;
pub mod dice;
pub mod front;
pub mod host;
pub mod ledger;
pub mod life;
pub mod log_world;
pub mod medium;
pub mod model_device;
pub mod nbd_device;
pub mod nbd_server;
pub mod objects;
pub mod oracle;
pub mod pace;
pub mod setup;
pub mod span;
pub mod sweep;
pub mod table_check;
pub mod traffic;
pub mod transfer;
pub mod world;
