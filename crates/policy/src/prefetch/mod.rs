//! Prefetch: what will be asked for next.

pub mod stream;

pub use stream::{STREAMS, Stream, StreamTable};
