//! Does: engine.
#![forbid(unsafe_code)]
