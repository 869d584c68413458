//! The descriptors that a ring owns.
//!
//! An entry counts the operations in flight on its descriptor, so that it is closed after the last
//! of them. The index of an entry is also its place in the kernel's table of registered files,
//! which saves the kernel a reference count an operation. Entries are reused; a generation number
//! tells a stale [`Fd`] from the current one.

use std::os::fd::OwnedFd;

use super::op::Fd;

struct Entry {
    fd: Option<OwnedFd>,
    generation: u32,
    in_flight: u32,
    closing: bool,
}

pub(super) struct FdTable {
    entries: Vec<Entry>,
    free: Vec<u32>,
    fds_max: u32,
}

impl FdTable {
    pub(super) fn new(fds_max: u32) -> Self {
        FdTable { entries: Vec::new(), free: Vec::new(), fds_max }
    }

    /// Takes the descriptor in; gives it back if the table is full.
    pub(super) fn insert(&mut self, fd: OwnedFd) -> Result<Fd, OwnedFd> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.entries.len() < self.fds_max as usize => {
                self.entries.push(Entry { fd: None, generation: 0, in_flight: 0, closing: false });
                self.entries.len() as u32 - 1
            }
            None => return Err(fd),
        };
        let entry = &mut self.entries[index as usize];
        entry.fd = Some(fd);
        entry.closing = false;
        Ok(Fd { index, generation: entry.generation })
    }

    /// The descriptor. Panics if `fd` is stale.
    pub(super) fn get(&self, fd: Fd) -> &OwnedFd {
        let entry = &self.entries[fd.index as usize];
        let current = entry.generation == fd.generation && !entry.closing;
        assert!(current, "descriptor {} was closed or taken", fd.index);
        entry.fd.as_ref().expect("a current entry has its descriptor")
    }

    /// Counts an operation that begins.
    pub(super) fn begin(&mut self, fd: Fd) {
        self.entries[fd.index as usize].in_flight += 1;
    }

    /// Counts an operation that ended; returns the descriptor if it was the last of a closing one.
    pub(super) fn end(&mut self, index: u32) -> Option<OwnedFd> {
        let entry = &mut self.entries[index as usize];
        entry.in_flight -= 1;
        if entry.closing && entry.in_flight == 0 { self.vacate(index) } else { None }
    }

    /// Marks the descriptor as closing; returns it if nothing is in flight on it.
    pub(super) fn close(&mut self, fd: Fd) -> Option<OwnedFd> {
        self.get(fd);
        let entry = &mut self.entries[fd.index as usize];
        entry.closing = true;
        if entry.in_flight == 0 { self.vacate(fd.index) } else { None }
    }

    /// Takes the descriptor out unless something is in flight on it.
    pub(super) fn take(&mut self, fd: Fd) -> Option<OwnedFd> {
        self.get(fd);
        if self.entries[fd.index as usize].in_flight > 0 {
            return None;
        }
        self.vacate(fd.index)
    }

    fn vacate(&mut self, index: u32) -> Option<OwnedFd> {
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.closing = false;
        self.free.push(index);
        entry.fd.take()
    }
}
