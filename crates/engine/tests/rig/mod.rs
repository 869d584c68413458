//! What the tests of devices stand on: a reactor, an arena, and frames in it.
#![allow(dead_code)]

pub(crate) mod server;

use std::io::Write;
use std::rc::Rc;

use forebay_engine::device::Device;
use forebay_engine::devices::conformance::{Plan, conform};
use forebay_engine::ring_reactor::{Port, RingReactor};
use forebay_uring::{Arena, ArenaId, Limits};

pub(crate) const FRAME_BYTES: u32 = 65536;
pub(crate) const DEPTH: u32 = 32;

/// Says that a test could not run here, past the harness, which shows what passing tests print to nobody.
pub(crate) fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

pub(crate) struct Rig {
    pub(crate) reactor: RingReactor,
    pub(crate) arena: Rc<Arena>,
    pub(crate) frames: ArenaId,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let reactor = RingReactor::new(Limits { ops_max: 512, fds_max: 64 }).expect("io_uring works here");
        let arena = Rc::new(Arena::new(DEPTH * 2, FRAME_BYTES).expect("memory for an arena"));
        let frames = reactor.add_arena(Rc::clone(&arena));
        Self { reactor, arena, frames }
    }

    pub(crate) fn port(&self) -> Port {
        self.reactor.port(64)
    }

    pub(crate) fn conform(&mut self, device: &mut dyn Device, operations: u32) {
        for (seed, depth) in [(1, 1), (2, DEPTH)] {
            let plan = Plan { seed, operations, depth };
            conform(device, &mut self.reactor, &self.arena, plan);
        }
    }
}
