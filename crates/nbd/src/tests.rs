//! The server as clients see it: a real listener and front end on a real ring, over a trivial core.

mod client;
mod commands;
mod core;
mod fuzz;
mod hostile;
mod limits;
mod listening;
mod tools;
mod world;
