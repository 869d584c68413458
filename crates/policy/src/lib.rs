//! Decides: published cache algorithms, one a file, pure and without allocation on access.
#![no_std]
#![forbid(unsafe_code)]
