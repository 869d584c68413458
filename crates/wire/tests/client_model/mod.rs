//! A model world for the NBD client: see `world`.

pub(crate) mod oracle;
pub(crate) mod random;
pub(crate) mod server;
pub(crate) mod world;
