//! Does: serves volumes over NBD.
//!
//! A client's way: the [`Listener`] thread accepts it and leads it through the handshake with ordinary sockets and
//! poll(2); after GO its socket goes through an [`Inbox`] to the shard that owns the volume. There [`NbdFront`], a
//! [`forebay_engine::front::Front`], serves it over the shard's io_uring, next to the cache it asks.
//!
//! | file | what |
//! |---|---|
//! | `listener`, `endpoint`, `handshake` | from a socket address to an agreed connection, slow clients held off |
//! | `inbox` | the bounded queue from the listener to a shard; how many clients there are |
//! | `front` | all connections of a shard: completions, turns, time limits |
//! | `session` (`session/intake`, `session/answer`) | one connection: requests in, answers out |
//! | `staging`, `outbox` | bytes received and not yet understood; replies and not yet sent |
//! | `pool` | how clients share a shard's frames and requests |
//! | `failure` | which NBD error a failed request gets |
//!
//! Rejected: an async runtime (a second scheduler beside the ring), and the handshake on the shard (a rare, branchy
//! conversation with strangers on the thread that must not wait).
#![forbid(unsafe_code)]

mod config;
mod counters;
mod endpoint;
mod error;
mod export;
mod failure;
mod front;
mod handshake;
mod inbox;
mod inflight;
mod listener;
mod outbox;
mod pool;
mod session;
mod staging;

pub use config::{ConnectionLimits, FrontConfig, ListenerConfig, Share};
pub use counters::{CloseReason, Counters, ERRNOS, ListenerCounters, RequestKind};
pub use endpoint::Endpoint;
pub use error::Error;
pub use export::Export;
pub use front::NbdFront;
pub use inbox::{Clients, Handover, Inbox, InboxSender, inbox};
pub use listener::Listener;

#[cfg(test)]
mod tests;
