//! State that lives beside the configuration and not on the cache disk: the generation number, and of each write-back log
//! which regions it may have bytes of.

mod generation;
mod region_map;

pub use generation::{GenerationFile, StateError};
pub use region_map::{LogIdentity, RegionMapError, RegionMapFile, region_map_path};
