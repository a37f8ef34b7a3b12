use core::mem;
use std::collections::VecDeque;
use std::vec::Vec;

use super::super::seat::{Seat, ThreadRecord};
use crate::sync::atomic::Ordering::Release;

/// The data behind the lock of [`Idle`](super::Idle): which seats are idle, and which threads have which seats.
pub(super) struct Sleepers {
    /// The seats of the sleepers and of the holders. The holders come first. The last to lie down is woken first,
    /// because its caches are warm.
    pub(super) list: Vec<usize>,
    /// The number of listed seats whose occupants sleep without a job on their stack.
    pub(super) at_rest: usize,
    /// Whether the pool was dropped. The last worker that comes to rest then ends it.
    pub(super) closing: bool,
    /// The occupant of each seat.
    pub(super) occupants: Vec<&'static ThreadRecord>,
    /// The seats whose occupants block and found no spare thread.
    pub(super) stuck: VecDeque<usize>,
    /// The parked spare threads. Empty while a seat is stuck.
    pub(super) spares: Vec<&'static ThreadRecord>,
    /// The number of threads without a seat that are in the middle of a job, or about to become spare threads.
    pub(super) unseated: usize,
    /// The number of spare threads that are being started.
    pub(super) starting: usize,
    /// Whether a blocking closure is pending: see `blocking.rs`.
    pub(super) blocking: bool,
}

impl Sleepers {
    /// Returns whether no thread runs a job: all seats are asleep, all other threads are spare ones, and no blocking closure
    /// is pending.
    pub(super) fn is_quiet(&self) -> bool {
        self.at_rest == self.occupants.len() && self.unseated == 0 && !self.blocking
    }

    /// Takes a seat off the list. Returns whether it was on it.
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

/// With this many threads blocked or without a seat, a new occupant picks the newest jobs first: see `pick.rs`.
const CROWD: usize = if cfg!(loom) { 2 } else { 16 };

/// Makes a thread the occupant of a seat, and returns the previous occupant, which counts as a thread without a seat.
pub(super) fn pass_on(sleepers: &mut Sleepers, seat: &Seat, to: &'static ThreadRecord) -> &'static ThreadRecord {
    let from = mem::replace(&mut sleepers.occupants[seat.index], to);
    from.set_seat(None, false);
    sleepers.unseated += 1;
    seat.tenure.fetch_add(1, Release);
    to.set_seat(Some(seat.index), sleepers.unseated + sleepers.stuck.len() >= CROWD);
    from
}
