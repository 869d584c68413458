//! State that lives beside the configuration and not on the cache disk: the generation number.

mod generation;

pub use generation::{GenerationFile, StateError};
