//! Decides: how bytes on disk and on the wire are laid out. No I/O.
#![no_std]
#![forbid(unsafe_code)]
