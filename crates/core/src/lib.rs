//! Decides: the cache itself, a state machine without I/O.
#![no_std]
#![forbid(unsafe_code)]
