//! Who keeps the region map of a log: a file beside the configuration ([`crate::state::RegionMapFile`]), or memory in tests and
//! simulated worlds.

use std::cell::RefCell;
use std::rc::Rc;

use forebay_core::log::logged::{KnownRegions, RegionImage};

use crate::device::IoError;

/// See the module.
pub trait RegionStore {
    /// What was kept when this was opened.
    fn known(&self) -> &KnownRegions;

    /// Begins to make this durable, in place of what is kept. One at a time.
    fn begin(&mut self, image: RegionImage);

    /// How it ended, once. After a failure either is kept.
    fn poll(&mut self) -> Option<Result<(), IoError>>;

    /// The volume's name, for messages.
    fn volume(&self) -> &str {
        ""
    }

    /// When to ask, if nothing wakes who waits.
    fn next_ns(&self) -> Option<u64> {
        None
    }
}

#[derive(Debug, Default)]
struct Kept {
    image: Option<RegionImage>,
    /// Writes that ended well.
    writes: u64,
    /// So many more fail.
    fails: u64,
    /// What is kept is about another disk's log.
    is_of_another: bool,
}

/// A region map in memory, that outlives who uses it.
#[derive(Clone, Debug)]
pub struct MemoryRegions {
    kept: Rc<RefCell<Kept>>,
    known: KnownRegions,
    writing: Option<RegionImage>,
}

impl Default for MemoryRegions {
    fn default() -> Self {
        Self { kept: Rc::default(), known: KnownRegions::None, writing: None }
    }
}

impl MemoryRegions {
    /// As whoever starts next finds it. What is being written is lost.
    #[must_use]
    pub fn reopened(&self) -> Self {
        let kept = self.kept.borrow();
        let known = match kept.image.clone() {
            None => KnownRegions::None,
            Some(image) if kept.is_of_another => KnownRegions::OfAnother(image),
            Some(image) => KnownRegions::Same(image),
        };
        Self { kept: Rc::clone(&self.kept), known, writing: None }
    }

    /// What is kept.
    #[must_use]
    pub fn image(&self) -> Option<RegionImage> {
        self.kept.borrow().image.clone()
    }

    /// Writes that ended well.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.kept.borrow().writes
    }

    /// The next writes fail, so many.
    pub fn fail(&self, count: u64) {
        self.kept.borrow_mut().fails = count;
    }

    /// The log's disk is another one when it is next opened.
    pub fn disk_is_another(&self) {
        self.kept.borrow_mut().is_of_another = true;
    }
}

impl RegionStore for MemoryRegions {
    fn known(&self) -> &KnownRegions {
        &self.known
    }

    fn begin(&mut self, image: RegionImage) {
        assert!(self.writing.replace(image).is_none(), "one write at a time");
    }

    fn poll(&mut self) -> Option<Result<(), IoError>> {
        let image = self.writing.take()?;
        let mut kept = self.kept.borrow_mut();
        if kept.fails > 0 {
            kept.fails -= 1;
            return Some(Err(IoError::Failed));
        }
        kept.writes += 1;
        (kept.image, kept.is_of_another) = (Some(image), false);
        Some(Ok(()))
    }

    fn next_ns(&self) -> Option<u64> {
        self.writing.as_ref().map(|_| 0)
    }
}
