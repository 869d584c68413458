//! A mapping: the memory of an arena, which goes when the last who has a share of it does.

use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::error::{Error, ErrorKind};

/// Anonymous memory, all zeroes at first. It has an address and no more: who may touch which bytes is the arena's business.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is an address and a length, which never change; it hands out no references, and the memory stays where it is
// whichever thread drops the last share.
unsafe impl Send for Mapping {}
// SAFETY: as above: nothing can be done to it through a shared reference.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps so many bytes.
    ///
    /// Errors: [`ErrorKind::Limit`] if the kernel refuses that much address space.
    pub(crate) fn new(bytes: usize) -> Result<Self, Error> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new private mapping at an address of the kernel's choice; it aliases nothing.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) };
        let base = base.map_err(|errno| {
            let message = format!(
                "no memory for a buffer of {bytes} bytes ({errno}): ask for less memory, or raise the limit (ulimit -v)"
            );
            Error::new(ErrorKind::Limit, Some(errno), message)
        })?;
        // SAFETY: the range is the mapping just made. Advice changes no contents; its failure
        // (huge pages switched off) changes nothing at all, so it is ignored.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        Ok(Self { base: NonNull::new(base.cast()).expect("mmap never returns null"), bytes })
    }

    /// Where it begins.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made by `new`. Whoever has a pointer into it has a share of it, too: the arena with its
        // closures and its thread, a ring with operations in flight (it has a share of the arena), and bytes that are lent.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
