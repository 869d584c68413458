//! What is in flight: clients' requests, and the parts in which the core is asked.
//!
//! A request that the core takes whole has one part; a longer one is split at multiples of the core's longest
//! request. A part's place in its table is the `tag` that the core answers with. Places are reused, so nothing is
//! allocated once the tables have grown to the load; they are bounded by the connections' limits.

use forebay_core::ReplyError;
use forebay_wire::nbd::request::{Command, Request as WireRequest};

/// Entries by place; the places of removed ones are used again.
#[derive(Debug)]
pub(crate) struct Table<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Table<T> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, entry: T) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = Some(entry);
                place
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() as u32 - 1
            }
        }
    }

    /// Panics if there is none: a bug.
    pub(crate) fn get(&mut self, place: u32) -> &mut T {
        match self.entries.get_mut(place as usize) {
            Some(Some(entry)) => entry,
            _ => panic!("nothing is in flight at place {place}"),
        }
    }

    /// Panics if there is none: a bug.
    pub(crate) fn remove(&mut self, place: u32) -> T {
        match self.entries.get_mut(place as usize).and_then(Option::take) {
            Some(entry) => {
                self.free.push(place);
                entry
            }
            None => panic!("nothing is in flight at place {place}"),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

/// A client's request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// What the client asked.
    pub(crate) wire: WireRequest,
    /// Bytes for which the core was asked, or never will be.
    pub(crate) issued: u32,
    /// Parts that the core has not answered.
    pub(crate) parts_open: u32,
    /// The first failure.
    pub(crate) failed: Option<ReplyError>,
    /// The head of its simple reply is out, or on its way.
    pub(crate) head_out: bool,
}

impl Request {
    pub(crate) fn new(wire: WireRequest) -> Self {
        Self { wire, issued: 0, parts_open: 0, failed: None, head_out: false }
    }

    /// Offset and length of the next part when the core takes `part_bytes_max` (a power of two) at most.
    pub(crate) fn next_part(&self, part_bytes_max: u32) -> (u64, u32) {
        let offset = self.wire.offset + u64::from(self.issued);
        let left = self.wire.length - self.issued;
        if left <= part_bytes_max {
            return (offset, left);
        }
        let to_boundary = part_bytes_max - (offset % u64::from(part_bytes_max)) as u32;
        (offset, left.min(to_boundary))
    }

    /// Nothing is left to issue and nothing to wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.parts_open == 0 && self.issued == self.wire.length
    }

    /// Whether the core's answer to it is bytes.
    pub(crate) fn is_read(&self) -> bool {
        self.wire.command == Command::Read
    }
}

/// Where the payload of a write's part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// It has none, or it is in its frames.
    None,
    /// All of it is in the staging buffer, from this byte on.
    Staged(u32),
    /// The stream continues with it.
    Streamed,
}

/// What the core was asked.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) session: u32,
    pub(crate) request: u32,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    /// Frames that it pins.
    pub(crate) frames: u32,
    pub(crate) payload: Payload,
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_wire::nbd::constants::CommandFlags;

    fn parts(offset: u64, length: u32, part_bytes_max: u32) -> Vec<(u64, u32)> {
        let wire = WireRequest { flags: CommandFlags::NONE, command: Command::Read, cookie: 0, offset, length };
        let mut request = Request::new(wire);
        let mut parts = Vec::new();
        while request.issued < length {
            let part = request.next_part(part_bytes_max);
            request.issued += part.1;
            parts.push(part);
        }
        parts
    }

    #[test]
    fn a_request_that_the_core_takes_whole_is_not_split_even_when_misaligned() {
        assert_eq!(parts(512, 4096, 4096), [(512, 4096)]);
    }

    #[test]
    fn a_longer_one_is_split_at_multiples_of_the_longest() {
        assert_eq!(parts(512, 8192, 4096), [(512, 3584), (4096, 4096), (8192, 512)]);
        assert_eq!(parts(4096, 8192, 4096), [(4096, 4096), (8192, 4096)]);
    }
}
