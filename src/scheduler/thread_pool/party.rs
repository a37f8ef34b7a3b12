//! Work that several workers of a pool take part in.

use core::ptr::NonNull;

use super::entry::{Entry, Item};
use super::seat::Seat;
use super::worker::Worker;
use crate::sender::stage::container_of;
use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};
use crate::{Job, Transfer};

/// Counts who takes part in a piece of work, and invites more.
///
/// It begins with one member, on a worker. There is one invitation, which a member that holds it puts into its ring; who
/// takes it out of there is a member too, holds the invitation now, and may send it on. A member that has nothing left to
/// do takes back the invitation that it sent, if that still waits, and leaves. The last to leave ends the work.
///
/// So an invitation never waits with somebody who is not a member, and the end waits for nobody but for those who
/// are at work.
pub(crate) struct Party {
    /// Held by one member, or waiting in the ring of the one that sent it. It is an entry, so that it can be removed from
    /// there; nobody raises it.
    invitation: Entry,
    /// The members, and one more while the invitation waits: whoever takes it inherits that one.
    ///
    /// | by | how | then |
    /// |---|---|---|
    /// | [`Party::begin`] | set to 1 | the caller is the first member |
    /// | [`Party::invite`] | 1 more, before the invitation can be seen | it waits; or there was no room, and the 1 is given back |
    /// | [`Party::leave`] | 1 less, or 2 with an invitation that was taken back | at 0 all have left; else the caller touches nothing any more |
    ///
    /// Only the holder of the invitation adds, so nobody comes to a party that is over. Leaving releases what a member did,
    /// and the last acquires all of it.
    members: AtomicUsize,
}

/// An invitation that was sent: the seat in whose ring it was put, and its number there.
pub(crate) struct Invited {
    seat: &'static Seat,
    number: usize,
}

impl Party {
    /// `come` is called with the job of whoever takes the invitation; see [`Party::of`].
    pub(crate) fn new(come: unsafe fn(NonNull<Job>) -> Transfer) -> Self {
        Party {
            invitation: Entry::new(come),
            members: AtomicUsize::new(0),
        }
    }

    /// The party of an invitation.
    ///
    /// # Safety
    ///
    /// The job is what `come` was called with.
    pub(crate) unsafe fn of(job: NonNull<Job>) -> NonNull<Self> {
        // SAFETY: the job is that of an entry, which is a field of a party.
        unsafe { container_of!(job.cast::<Entry>(), Self, invitation) }
    }

    /// Makes the caller the first member, which holds the invitation. Nobody else knows of the party yet.
    pub(crate) fn begin(&self) {
        self.members.store(1, Relaxed);
    }

    /// Invites another worker of the pool, unless there are as many members as seats, or there is no room, or the caller
    /// has no seat.
    ///
    /// # Safety
    ///
    /// The caller is a member and holds the invitation, and its thread is that of the worker. What is returned goes to
    /// [`Party::leave`].
    pub(crate) unsafe fn invite(this: NonNull<Self>, worker: &Worker) -> Option<Invited> {
        let seated = worker.seated()?;
        // SAFETY: the caller is a member, so the party is alive.
        let members = unsafe { &(*this.as_ptr()).members };
        // Others only leave meanwhile.
        if members.load(Relaxed) >= worker.crew() {
            return None;
        }
        members.fetch_add(1, Relaxed);
        // SAFETY: as above.
        let item = unsafe { Self::item(this) };
        let Some(number) = seated.seat.ring.push(item, true) else {
            members.fetch_sub(1, Relaxed);
            return None;
        };
        seated.wake_another();
        Some(Invited {
            seat: seated.seat,
            number,
        })
    }

    /// A member leaves, with the invitation that it has sent, if it has. `true` for the last: the work is over, and the
    /// party its own. For others the party may be gone.
    ///
    /// # Safety
    ///
    /// The caller is a member, and the last invitation that it sent, from the thread of the worker, is `invited`.
    pub(crate) unsafe fn leave(this: NonNull<Self>, worker: &Worker, invited: Option<Invited>) -> bool {
        // SAFETY: the caller is a member, so the party is alive.
        let item = unsafe { Self::item(this) };
        let taken_back = invited.is_some_and(|Invited { seat, number }| {
            if worker.sits_on(seat) {
                seat.ring.take_back(number, item)
            } else {
                // The worker has blocked since, and another thread has the seat.
                seat.ring.remove(number, item)
            }
        });
        let leaving = if taken_back { 2 } else { 1 };
        // SAFETY: as above.
        unsafe { &(*this.as_ptr()).members }.fetch_sub(leaving, AcqRel) == leaving
    }

    /// # Safety
    ///
    /// The party is there.
    unsafe fn item(this: NonNull<Self>) -> Item {
        // SAFETY: the caller's promise. The address is made from the party's, which it leads back to.
        Item::entry(unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).invitation) })
    }
}
