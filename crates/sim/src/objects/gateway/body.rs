//! Bodies from the store, kept on their way: whole blocks of them, as far as they came.

use super::{Ask, Due, FILLS_MAX, Gateway, Hit, Reading, Stage, VOLUME};
use crate::objects::bug::Bug;
use crate::objects::met::Count;
use crate::objects::store::Version;
use forebay_core::BLOCK_BYTES;
use forebay_engine::front::FrontEvent;
use forebay_objects::Kept;
use std::ops::Range;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A body from the store.
pub(super) struct Body {
    version: Version,
    at: u64,
    end: u64,
    is_broken: bool,
    kept: Option<Kept>,
    /// What is before is kept, or left out.
    from: u64,
    /// It is for this.
    hit: Option<Hit>,
}

impl Gateway {
    pub(super) fn begin_body(
        &mut self,
        number: u64,
        mut reading: Reading,
        version: Version,
        part: Range<u64>,
        kept: Option<Kept>,
        hit: Option<Hit>,
    ) {
        if kept.is_some() {
            self.count(Count::Keep, number, part.start);
        }
        let is_broken = self.dice.chance(100);
        let end = if is_broken { part.start + self.dice.below(part.end - part.start) } else { part.end };
        if is_broken {
            self.count(Count::Broken, number, end);
        }
        let from = part.start.next_multiple_of(BLOCK);
        reading.stage = Stage::Body(Body { version, at: part.start, end, is_broken, kept, from, hit });
        self.go_on(number, reading, Due::Piece(number));
    }

    pub(super) fn piece(&mut self, number: u64) {
        let mut reading = self.readings.remove(&number).expect("it waits");
        let Stage::Body(mut body) = reading.stage else { panic!("it is a body") };
        let length = (body.end - body.at).min(self.dice.between(1, 40_000));
        if let Some(hit) = &mut body.hit {
            let is_right = body.version.etag() == *hit.held.etag;
            assert!(is_right || length == 0, "read {number}: {} for {}", body.version.etag(), hit.held.etag);
            hit.left.start = hit.left.start.max(body.at + length);
        }
        body.at += length;
        self.keep(&mut body);
        if body.at < body.end {
            reading.stage = Stage::Body(body);
            return self.go_on(number, reading, Due::Piece(number));
        }
        match body.hit {
            // The rest may be here, or is fetched again.
            Some(hit) if !hit.left.is_empty() => {
                reading.stage = Stage::Hit(hit);
                self.go_on(number, reading, Due::Next(number));
            }
            _ => self.end(),
        }
    }

    /// Gives the cache what came, whole blocks.
    fn keep(&mut self, body: &mut Body) {
        let Some(kept) = body.kept.clone() else { return };
        let is_end = body.at == body.end;
        let is_all = body.at == kept.bytes;
        let mut end = if is_all { body.at.next_multiple_of(BLOCK) } else { body.at / BLOCK * BLOCK };
        if is_end && body.is_broken && self.has(Bug::FillPadded) {
            end = kept.bytes.next_multiple_of(BLOCK);
        }
        if end <= body.from || !(is_end || self.dice.chance(500)) {
            return;
        }
        let from = std::mem::replace(&mut body.from, end);
        if self.objects.catalogue().get(kept.id).is_none() && !self.has(Bug::FillLate) {
            return self.count(Count::FillDropped, from, end);
        }
        let fills = self.asks.values().filter(|ask| matches!(ask, Ask::Fill { .. })).count();
        if fills >= FILLS_MAX {
            return;
        }
        let mut bytes = body.version.content(from..end.min(body.at));
        bytes.resize((end - from) as usize, 0);
        let shift = if from > 0 && self.has(Bug::FillShifted) { BLOCK } else { 0 };
        self.count(Count::Fill, kept.start + from, end - from);
        let (offset, length) = (kept.start + from - shift, bytes.len() as u32);
        let tag = self.ask(Ask::Fill { bytes });
        self.events.push(FrontEvent::Fill { volume: VOLUME, tag, offset, length });
    }
}
