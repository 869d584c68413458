//! One place for a connection: its state, and the requests in flight on it.

use alloc::vec::Vec;

use super::action::{Op, cookie_place};
use super::outstanding::Key;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No connection, none wanted yet.
    Idle,
    /// No connection; the next attempt is due then.
    Waiting { until_ns: u64 },
    /// The driver connects and shakes hands.
    Connecting { deadline_ns: u64 },
    /// A member: requests may be sent.
    Up { since_ns: u64 },
    /// `Close` was ordered; the driver has not confirmed it. A member may have requests in flight until then.
    Closing { was_up_since_ns: Option<u64> },
}

/// What a request in flight is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// An operation of the caller's, not a flush.
    Operation(Key),
    /// The held write answered at that time on the logical clock.
    Replay(u64),
    /// The flush under way.
    Flush,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) cookie: u64,
    pub(super) op: Op,
    pub(super) work: Work,
    /// For replays and flushes; an operation has its own.
    pub(super) deadline_ns: u64,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    /// Attempts or short lives in a row.
    pub(super) failures: u32,
    flights: Vec<Option<Flight>>,
    free: Vec<u16>,
}

impl Connection {
    pub(super) fn new(in_flight_max: u16) -> Self {
        Self {
            state: State::Idle,
            failures: 0,
            flights: (0..in_flight_max).map(|_| None).collect(),
            free: (0..in_flight_max).rev().collect(),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// True while a close that was ordered could still change what is in flight.
    pub(super) fn is_closing_member(&self) -> bool {
        matches!(self.state, State::Closing { was_up_since_ns: Some(_) })
    }

    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Takes a place; the cookie is made of the running number and the place. The caller has seen that there is room.
    pub(super) fn launch(&mut self, number: u64, op: Op, work: Work, deadline_ns: u64) -> u64 {
        let place = self.free.pop().expect("a connection with room");
        let cookie = number << 16 | u64::from(place);
        self.flights[usize::from(place)] = Some(Flight { cookie, op, work, deadline_ns });
        cookie
    }

    pub(super) fn flight(&self, cookie: u64) -> Option<Flight> {
        let flight = (*self.flights.get(cookie_place(cookie))?)?;
        (flight.cookie == cookie).then_some(flight)
    }

    pub(super) fn land(&mut self, cookie: u64) {
        let place = cookie_place(cookie);
        let flight = self.flights[place].take().expect("a flight that was seen");
        assert_eq!(flight.cookie, cookie, "another flight in its place");
        self.free.push(place as u16);
    }

    pub(super) fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter().flatten()
    }

    /// Empties the places of a connection that closed.
    pub(super) fn take_flights(&mut self) -> Vec<Flight> {
        let mut lost: Vec<Flight> = self.flights.iter_mut().filter_map(Option::take).collect();
        lost.sort_unstable_by_key(|flight| flight.cookie);
        self.free = (0..self.flights.len() as u16).rev().collect();
        lost
    }
}
