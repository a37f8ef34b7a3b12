//! A count of the workers that share a piece of work, and the invitation of more.

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

/// The members of a piece of work that several workers share.
///
/// A party begins with one member, on a worker. It has one invitation, an entry. The member that holds the invitation
/// pushes it on its ring. The worker that takes it from there becomes a member and the new holder, and may push it
/// again. A member without work left takes back its own invitation, if that is still queued, and leaves. The last
/// member to leave ends the work.
///
/// So a queued invitation always belongs to a member, and the end waits only for members that are at work.
pub(crate) struct Party {
    /// Held by one member, or queued in the ring of the member that pushed it. It is an entry, so that it can be
    /// removed from there. It is never raised.
    invitation: Entry,
    /// The number of members, plus one while the invitation is queued. The worker that takes the invitation inherits
    /// that one.
    ///
    /// | by | how | then |
    /// |---|---|---|
    /// | [`Party::begin`] | set to 1 | the caller is the first member |
    /// | [`Party::invite`] | 1 more, before the invitation is published | the invitation is queued; or the ring was full, and the 1 is subtracted again |
    /// | [`Party::leave`] | 1 less, or 2 with an invitation that was taken back | at 0 all have left; otherwise the caller accesses nothing afterwards |
    ///
    /// Only the holder of the invitation, which is a member, increments it (relaxed). Leaving decrements it with
    /// acquire and release, so the last member sees the work of all others.
    members: AtomicUsize,
}

/// A queued invitation: the seat in whose ring it is, and its number there.
pub(crate) struct Invited {
    seat: &'static Seat,
    number: usize,
}

impl Party {
    /// Creates a party. The worker that takes the invitation calls `come` with its job; see [`Party::of`].
    pub(crate) fn new(come: unsafe fn(NonNull<Job>) -> Transfer) -> Self {
        Party {
            invitation: Entry::new(come),
            members: AtomicUsize::new(0),
        }
    }

    /// Returns the party of an invitation.
    ///
    /// # Safety
    ///
    /// `job` is the argument of `come`.
    pub(crate) unsafe fn of(job: NonNull<Job>) -> NonNull<Self> {
        // SAFETY: the job is the first field of an entry, which is a field of a party.
        unsafe { container_of!(job.cast::<Entry>(), Self, invitation) }
    }

    /// Makes the caller the first member, which holds the invitation. No other thread accesses the party yet.
    pub(crate) fn begin(&self) {
        self.members.store(1, Relaxed);
    }

    /// Queues the invitation on the caller's seat. Returns `None` if there are as many members as seats, the ring is
    /// full, or the caller has no seat.
    ///
    /// # Safety
    ///
    /// The caller is a member, holds the invitation, and runs on the thread of the worker. It passes the result to
    /// [`Party::leave`].
    pub(crate) unsafe fn invite(this: NonNull<Self>, worker: &Worker) -> Option<Invited> {
        let seated = worker.seated()?;
        // SAFETY: the caller is a member, so the party is valid.
        let members = unsafe { &(*this.as_ptr()).members };
        // Other members can only leave, so the number does not grow meanwhile.
        if members.load(Relaxed) >= worker.crew() {
            return None;
        }
        members.fetch_add(1, Relaxed);
        // SAFETY: the caller is a member, so the party is valid.
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

    /// Leaves the party, with the caller's queued invitation, if there is one. Returns `true` for the last member: the
    /// work has ended, and the caller has exclusive access. For others the party may be freed.
    ///
    /// # Safety
    ///
    /// The caller is a member. `invited` is the last invitation that it queued, from the thread of the worker.
    pub(crate) unsafe fn leave(this: NonNull<Self>, worker: &Worker, invited: Option<Invited>) -> bool {
        // SAFETY: the caller is a member, so the party is valid.
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
        // SAFETY: the caller is still a member, so the party is valid until the subtraction.
        unsafe { &(*this.as_ptr()).members }.fetch_sub(leaving, AcqRel) == leaving
    }

    /// # Safety
    ///
    /// The party is valid.
    unsafe fn item(this: NonNull<Self>) -> Item {
        // SAFETY: the party is valid. The entry's pointer is derived from the party's, as `of` requires.
        Item::entry(unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).invitation) })
    }
}
