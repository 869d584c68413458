//! Worlds of objects: what a gateway decides, over the real shard loop and a modelled cache disk, beside a store whose objects change.
//!
//! Why: that no byte of one version is served as another's hangs on addresses that are given out again, on fills that come late, on evictions that
//! are under way, and on pages of an earlier life. Here rings are as small as they may be, and come round all the time.
//!
//! How:
//! 1. [`world`] draws a machine and its lives, each ended by a crash of the process or the machine; the cache disk fails, rots, and loses writes.
//! 2. [`gateway`] is the front end of the shard: its clients plan with `forebay_objects`, ask the [`store`], fill, read and evict.
//! 3. [`store`] knows which version was current when. What is served from the cache is compared with it, byte by byte, and must have been
//!    current while it was asked for, or within the time that the store's word is believed.
//! 4. In some lives the store serves hits on the cache disk too, by addresses ([`device`]).
//! 5. [`bug`]s are planted in the gateway, and around it.
//!
//! Limits: nobody is refused here (`objects/src/objects/tests.rs` has callers who are); HTTP and its bodies are not modelled.

pub mod bug;
pub mod device;
pub mod gateway;
pub mod met;
pub mod store;
pub mod world;

use crate::sweep::Worlds;
use crate::world::Outcome;

/// The worlds of this module.
#[derive(Clone, Copy, Debug)]
pub struct ObjectWorlds;

impl Worlds for ObjectWorlds {
    type Count = met::Count;
    type Bug = bug::Bug;

    fn run(seed: u64, bug: Option<bug::Bug>, verbose: bool) -> Outcome {
        world::run(seed, bug, verbose)
    }
}
