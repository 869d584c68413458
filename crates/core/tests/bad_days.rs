//! Days on which a device hangs, lies or forgets: what clients are told, and when.
//!
//! Each test sets up one bad day by hand with [`driver::World`], where no order is answered unless the test answers it.
//! The days that nobody has thought of are the random world's (`world.rs`).

#[path = "bad_days/coupling.rs"]
mod coupling;
#[path = "bad_days/doubt.rs"]
mod doubt;
#[path = "bad_days/drain.rs"]
mod drain;
#[path = "bad_days/driver.rs"]
mod driver;
#[path = "bad_days/generation.rs"]
mod generation;
#[path = "bad_days/hedge.rs"]
mod hedge;
#[path = "bad_days/hung_disk.rs"]
mod hung_disk;
#[path = "bad_days/recovery.rs"]
mod recovery;
#[path = "bad_days/split.rs"]
mod split;
