//! Does: nbd.
#![forbid(unsafe_code)]
