//! The life of a policy that needs a profile: No Table -> Warmup -> Stable <-> Congestion.
//!
//! NetCAS (Hwang et al., section III-H, Fig. 7): calibration and monitoring are kept to the phases that need them, so
//! that most of the time a share is looked up and nothing else. Only events move it, and an event that has no arrow
//! from where it stands moves nothing; so the caller tells each control period what is the case.
//!
//! | from | event | to |
//! |---|---|---|
//! | No Table | the profile has an answer for this load | Warmup |
//! | Warmup | the detector has its baselines | Stable |
//! | Stable | congestion is seen | Congestion |
//! | Congestion | congestion is over | Stable |
//! | any | the profile is gone | No Table |
//!
//! The last row is ours: the paper's table is never refused, ours is when the devices change.

use super::Mode;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The profile has an answer for this load.
    Profiled,
    /// The profile has none any more.
    ProfileGone,
    /// The detector has its baselines.
    Warm,
    /// A path delivers less than it could.
    Congested,
    /// Each path delivers what it can.
    Clear,
}

/// The arrows; what is not among them stays.
const ARROWS: [(Mode, Event, Mode); 7] = [
    (Mode::NoTable, Event::Profiled, Mode::Warmup),
    (Mode::Warmup, Event::Warm, Mode::Stable),
    (Mode::Stable, Event::Congested, Mode::Congestion),
    (Mode::Congestion, Event::Clear, Mode::Stable),
    (Mode::Warmup, Event::ProfileGone, Mode::NoTable),
    (Mode::Stable, Event::ProfileGone, Mode::NoTable),
    (Mode::Congestion, Event::ProfileGone, Mode::NoTable),
];

/// Where `mode` goes on `event`.
#[must_use]
pub fn after(mode: Mode, event: Event) -> Mode {
    ARROWS.iter().find(|(from, by, _)| *from == mode && *by == event).map_or(mode, |(.., to)| *to)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Mode; 4] = [Mode::NoTable, Mode::Warmup, Mode::Stable, Mode::Congestion];
    const EVENTS: [Event; 5] = [Event::Profiled, Event::ProfileGone, Event::Warm, Event::Congested, Event::Clear];

    #[test]
    fn the_papers_path_is_walked() {
        let walk = [Event::Profiled, Event::Warm, Event::Congested, Event::Clear, Event::Congested];
        let mut mode = Mode::NoTable;
        let seen = walk.map(|event| {
            mode = after(mode, event);
            mode
        });
        assert_eq!(seen, [Mode::Warmup, Mode::Stable, Mode::Congestion, Mode::Stable, Mode::Congestion]);
    }

    #[test]
    fn every_other_event_leaves_it_where_it_is() {
        for mode in MODES {
            let moves = EVENTS.iter().filter(|event| after(mode, **event) != mode).count();
            assert_eq!(moves, if mode == Mode::NoTable { 1 } else { 2 }, "{mode:?}");
            if mode != Mode::NoTable {
                assert_eq!(after(mode, Event::ProfileGone), Mode::NoTable);
            }
        }
    }

    #[test]
    fn congestion_is_not_seen_before_there_are_baselines() {
        assert_eq!(after(Mode::Warmup, Event::Congested), Mode::Warmup);
        assert_eq!(after(Mode::NoTable, Event::Warm), Mode::NoTable);
    }
}
