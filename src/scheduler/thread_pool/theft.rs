//! Whether stealing children is worth it.
//!
//! Taking a job over from another core costs more than running a tiny one. So a thief whose last children were tiny *naps*: it
//! leaves the rest to their worker for a while, and looks again. Each nap in a row is twice as long.
//!
//! A worker in a long job takes none of its children itself, so a thief that napped all the time would leave a core idle.
//! The worker is *stuck* when it has made no progress for as long as the shortest nap. Then the thief takes all that it finds.
//! Less time would prove nothing: the job of a task that only consumes what its children return is short, but longer than
//! tiny children. A thief that takes over for it would send each of their frames to another core and back.

use core::cell::Cell;
use core::ptr;
use core::time::Duration;
use std::time::Instant;

use super::seat::Seat;
use crate::sync::atomic::Ordering::Relaxed;

/// Whether thieves nap. A model has no time in which to do so.
pub(super) const NAPS: bool = !cfg!(loom);
/// Stolen children that keep the thief busy for less than this were not worth stealing.
const TINY: Duration = Duration::from_micros(20);
/// How long a thief naps after such children. Each time in a row it naps twice as long.
const NAP: Duration = Duration::from_micros(50);
/// The largest number of doublings.
const DOUBLINGS: u32 = 5;

/// What a thief remembers of its thefts of children. Only its own thread accesses this.
#[derive(Default)]
pub(super) struct Thefts {
    /// The time of the last theft, until the thief is idle again.
    last: Cell<Option<Instant>>,
    /// The worker that was stolen from last.
    victim: Cell<Option<Victim>>,
    /// The number of thefts in a row that were not worth it.
    naps: Cell<u32>,
}

/// A worker that was stolen from.
#[derive(Clone, Copy)]
struct Victim {
    seat: &'static Seat,
    progress: Progress,
    /// When the thief first saw this progress.
    since: Instant,
}

/// Numbers that change while the occupant of a seat picks jobs, or spawns children.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Progress {
    picks: u32,
    pushes: usize,
}

impl Thefts {
    /// Notes a theft from a seat.
    pub(super) fn note(&self, seat: &'static Seat) {
        if !NAPS {
            return;
        }
        let (now, progress) = (Instant::now(), Progress::of(seat));
        let since = match self.victim.get() {
            Some(known) if ptr::eq(known.seat, seat) && known.progress == progress => known.since,
            _ => now,
        };
        self.last.set(Some(now));
        self.victim.set(Some(Victim { seat, progress, since }));
    }

    /// Returns how long the thief naps before it searches again, if its last theft was not worth it.
    pub(super) fn needs_nap(&self) -> Option<Duration> {
        let (last, victim) = (self.last.take()?, self.victim.get()?);
        let now = Instant::now();
        if now - last >= TINY || victim.is_stuck(now) {
            self.naps.set(0);
            return None;
        }
        let naps = self.naps.get();
        self.naps.set(DOUBLINGS.min(naps + 1));
        Some(NAP * (1 << naps))
    }
}

impl Victim {
    fn is_stuck(&self, now: Instant) -> bool {
        self.progress == Progress::of(self.seat) && now - self.since >= NAP
    }
}

impl Progress {
    fn of(seat: &Seat) -> Self {
        Progress {
            picks: seat.picks.load(Relaxed),
            pushes: seat.children.pushes(),
        }
    }
}
