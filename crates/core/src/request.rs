//! Requests in flight and their parts.
//!
//! A request is cut at page boundaries into parts; each part is ordered, fetched or written by itself, and the request
//! is answered when its last part ended. Records live in a table of fixed size and are reused; a part is named by its
//! request and its place in it.

use crate::action::Piece;
use crate::activity::ActivityId;
use crate::error::ReplyError;
use crate::page::{
    BLOCK_BYTES, BlockMask, FrameId, PageKey, REQUEST_PAGES_MAX, RequestId, VolumeId, blocks_covered, blocks_touched,
};
use alloc::vec::Vec;
use forebay_policy::split;

/// A part, named by request and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartId(u32);

impl PartId {
    const SHIFT: u32 = 5;

    pub(crate) fn new(request: RequestId, place: usize) -> Self {
        assert!(place < REQUEST_PAGES_MAX, "a request has at most {REQUEST_PAGES_MAX} parts");
        Self(request.0 << Self::SHIFT | place as u32)
    }

    pub(crate) fn request(self) -> RequestId {
        RequestId(self.0 >> Self::SHIFT)
    }

    fn place(self) -> usize {
        (self.0 & ((1 << Self::SHIFT) - 1)) as usize
    }
}

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write {
        fua: bool,
    },
    /// See [`crate::fill`].
    Fill,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Free,
    /// Waits for frames.
    Queued,
    /// A write or fill whose payload is on its way.
    Receiving,
    /// Its parts are at work.
    Working,
    /// A read whose reply is being sent.
    Sending,
}

/// Where the bytes of a read part came from (the farthest, if several).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Path {
    Memory,
    Disk,
    /// A hit on the cache disk that the back end served.
    Split,
    Backend,
}

/// A second read, of the back end, of what a part waits for: see [`crate::hedge`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hedge {
    /// Where to, pinned by it.
    pub(crate) frame: FrameId,
    pub(crate) blocks: BlockMask,
    /// Orders unanswered.
    pub(crate) orders_left: u16,
    /// What it took of the budget of silent frames.
    pub(crate) reserved: u16,
}

/// The share of a request that lies in one page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) key: PageKey,
    /// First byte in the page, and bytes.
    pub(crate) at: u32,
    pub(crate) length: u32,
    /// The page's last bytes that belong to the volume end here.
    pub(crate) page_end: u32,
    pub(crate) frame: Option<FrameId>,
    pub(crate) activity: Option<ActivityId>,
    /// Blocks this part is fetching.
    pub(crate) fetch: BlockMask,
    /// Of these, what has come from the back end, and what failed.
    pub(crate) from_backend: BlockMask,
    pub(crate) failed: BlockMask,
    /// Operations unanswered.
    pub(crate) ops_left: u16,
    /// Its slot was late: the back end is asked too, or was.
    pub(crate) hedge: Option<Hedge>,
    pub(crate) hedged: bool,
    /// It continues a sequential stream of this many bytes.
    pub(crate) run_bytes: u64,
}

impl Part {
    /// The blocks it touches.
    pub(crate) fn blocks(&self) -> BlockMask {
        blocks_touched(self.at, self.length)
    }

    /// The blocks whose bytes it has all of: covered whole, or cut short only by the volume's end.
    pub(crate) fn blocks_whole(&self) -> BlockMask {
        let end = self.at + self.length;
        let reach = if end == self.page_end { end.next_multiple_of(BLOCK_BYTES) } else { end };
        blocks_covered(self.at, reach - self.at)
    }

    /// All blocks of its page that belong to the volume.
    pub(crate) fn page_blocks(&self) -> BlockMask {
        blocks_touched(0, self.page_end)
    }
}

const NO_PART: Part = Part {
    key: PageKey::NONE,
    at: 0,
    length: 0,
    page_end: 0,
    frame: None,
    activity: None,
    fetch: 0,
    from_backend: 0,
    failed: 0,
    ops_left: 0,
    hedge: None,
    hedged: false,
    run_bytes: 0,
};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) stage: Stage,
    pub(crate) kind: Kind,
    pub(crate) volume: VolumeId,
    pub(crate) tag: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) start_ns: u64,
    pub(crate) error: Option<ReplyError>,
    /// It failed for its deadline, before its orders ended; what they hold is released when they do.
    pub(crate) answered: bool,
    /// Who serves its hits on the cache disk, once that was decided.
    pub(crate) split: Option<split::Path>,
    pub(crate) parts_count: u8,
    pub(crate) parts_left: u8,
    parts: [Part; REQUEST_PAGES_MAX],
    pub(crate) pieces: [Piece; REQUEST_PAGES_MAX],
}

impl Request {
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces[..usize::from(self.parts_count)]
    }
}

/// The table of requests.
#[derive(Debug)]
pub(crate) struct Requests {
    table: Vec<Request>,
    free: Vec<RequestId>,
}

impl Requests {
    pub(crate) fn new(requests_max: u32) -> Self {
        let piece = Piece { frame: FrameId(0), at: 0, length: 0 };
        let blank = Request {
            stage: Stage::Free,
            kind: Kind::Read,
            volume: VolumeId(0),
            tag: 0,
            offset: 0,
            length: 0,
            start_ns: 0,
            error: None,
            answered: false,
            split: None,
            parts_count: 0,
            parts_left: 0,
            parts: [NO_PART; REQUEST_PAGES_MAX],
            pieces: [piece; REQUEST_PAGES_MAX],
        };
        Self {
            table: alloc::vec![blank; requests_max as usize],
            free: (0..requests_max).rev().map(RequestId).collect(),
        }
    }

    /// Requests in flight.
    pub(crate) fn len(&self) -> u32 {
        (self.table.len() - self.free.len()) as u32
    }

    pub(crate) fn take(&mut self) -> Option<RequestId> {
        let id = self.free.pop()?;
        assert!(self.get(id).stage == Stage::Free, "a request on the free list is in use");
        Some(id)
    }

    pub(crate) fn release(&mut self, id: RequestId) {
        assert!(self.get(id).stage != Stage::Free, "request {} is released twice", id.0);
        self.get_mut(id).stage = Stage::Free;
        self.free.push(id);
    }

    pub(crate) fn get(&self, id: RequestId) -> &Request {
        &self.table[id.index()]
    }

    pub(crate) fn get_mut(&mut self, id: RequestId) -> &mut Request {
        &mut self.table[id.index()]
    }

    /// Fails the writes under way in the volume of which a part in the range was done.
    pub(crate) fn fail_half_written(&mut self, volume: VolumeId, offset: u64, end: u64) {
        for request in self.table.iter_mut().filter(|request| request.stage == Stage::Working) {
            let inside = request.offset < end && offset < request.offset + u64::from(request.length);
            let half = request.parts_left < request.parts_count;
            if request.volume == volume && matches!(request.kind, Kind::Write { .. }) && inside && half {
                request.error.get_or_insert(ReplyError::Io);
            }
        }
    }

    pub(crate) fn part(&self, id: PartId) -> &Part {
        &self.table[id.request().index()].parts[id.place()]
    }

    pub(crate) fn part_mut(&mut self, id: PartId) -> &mut Part {
        &mut self.table[id.request().index()].parts[id.place()]
    }

    /// Names the frame that holds a part's bytes.
    pub(crate) fn set_frame(&mut self, id: PartId, frame: FrameId) {
        let request = &mut self.table[id.request().index()];
        let part = &mut request.parts[id.place()];
        part.frame = Some(frame);
        request.pieces[id.place()] = Piece { frame, at: part.at, length: part.length };
    }

    /// Cuts the request at page boundaries. `space` and `volume_bytes` are its volume's,
    /// `run_bytes` the length of the stream that the request continues.
    pub(crate) fn cut(&mut self, id: RequestId, space: u32, volume_bytes: u64, page_bytes: u32, run_bytes: u64) {
        let request = &mut self.table[id.index()];
        let (mut offset, end) = (request.offset, request.offset + u64::from(request.length));
        let mut count = 0;
        while offset < end {
            let page = offset / u64::from(page_bytes);
            let start = page * u64::from(page_bytes);
            let page_end = (volume_bytes - start).min(u64::from(page_bytes)) as u32;
            let at = (offset - start) as u32;
            let length = (end - offset).min(u64::from(page_bytes - at)) as u32;
            let key = PageKey { space, page: page as u32 };
            request.parts[count] = Part { key, at, length, page_end, run_bytes, ..NO_PART };
            offset += u64::from(length);
            count += 1;
        }
        request.parts_count = count as u8;
        request.parts_left = count as u8;
    }
}
