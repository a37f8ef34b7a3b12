use core::mem;
use std::collections::VecDeque;
use std::vec::Vec;

use super::super::seat::{Seat, ThreadRecord};
use crate::sync::atomic::Ordering::Release;

pub(super) struct Sleepers {
    /// The seats of the sleepers and of the holders. The holders come first. The last to lie down is the first to be woken: its
    /// caches are warm.
    pub(super) list: Vec<usize>,
    /// How many of them sleep with nothing beneath them on their stacks, and not in the middle of a job that waits.
    pub(super) at_rest: usize,
    /// The pool was dropped: the last one to come to rest ends it.
    pub(super) closing: bool,
    /// The thread that has each seat.
    pub(super) occupants: Vec<&'static ThreadRecord>,
    /// The seats whose occupants block and found no spare thread.
    pub(super) stuck: VecDeque<usize>,
    /// The spare threads that are parked. Empty while a seat is stuck.
    pub(super) spares: Vec<&'static ThreadRecord>,
    /// How many threads are without a seat in the middle of a job, or about to be spare ones.
    pub(super) unseated: usize,
    /// How many spare threads are being started.
    pub(super) starting: usize,
}

impl Sleepers {
    /// Whether no thread runs anything: all seats are asleep, and all other threads are spares.
    pub(super) fn is_quiet(&self) -> bool {
        self.at_rest == self.occupants.len() && self.unseated == 0
    }

    /// Takes a seat off the list, if it is on it.
    pub(super) fn unlist(&mut self, seat: &Seat) -> bool {
        match self.list.iter().position(|&listed| listed == seat.index) {
            Some(at) => {
                self.list.remove(at);
                true
            }
            None => false,
        }
    }
}

/// With so many threads blocked, or without a seat, what was queued last goes first for a while: see
/// [`Seated`](super::worker::Seated).
const CROWD: usize = if cfg!(loom) { 2 } else { 16 };

/// Makes a thread the occupant of a seat. Its occupant so far, which is returned, counts as a thread without a seat.
pub(super) fn pass_on(sleepers: &mut Sleepers, seat: &Seat, to: &'static ThreadRecord) -> &'static ThreadRecord {
    let from = mem::replace(&mut sleepers.occupants[seat.index], to);
    from.set_seat(None, false);
    sleepers.unseated += 1;
    seat.tenure.fetch_add(1, Release);
    to.set_seat(Some(seat.index), sleepers.unseated + sleepers.stuck.len() >= CROWD);
    from
}
