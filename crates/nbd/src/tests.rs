//! The server as clients see it: a real listener and front end on a real ring, over a trivial core.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "seeds and skips are told to whoever runs the tests")]

mod client;
mod commands;
mod core;
mod fuzz;
mod hostile;
mod limits;
mod listening;
mod sharing;
mod tools;
mod world;
