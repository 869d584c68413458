//! A model world for the NBD client: see `world`.

pub mod oracle;
pub mod random;
pub mod server;
pub mod world;
