//! Does: admin.
#![forbid(unsafe_code)]
