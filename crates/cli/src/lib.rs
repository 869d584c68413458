//! Does: the `forebay` program. Composes the drivers and talks to people.
#![forbid(unsafe_code)]

pub mod budget;
pub mod config;
