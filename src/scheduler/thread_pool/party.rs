//! Work that several workers of a pool take part in.

use core::ptr::NonNull;

use super::entry::{Entry, Item};
use super::ring::Ring;
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

/// An invitation that was sent: its number in the ring of its sender.
#[derive(Debug)]
pub(crate) struct Invited(usize);

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

    /// Invites another worker of the pool, unless there are as many members as workers, or there is no room.
    ///
    /// # Safety
    ///
    /// The caller is a member and holds the invitation, and its thread is that of the worker. What is returned goes to
    /// [`Party::leave`].
    pub(crate) unsafe fn invite(this: NonNull<Self>, worker: &Worker) -> Option<Invited> {
        // SAFETY: the caller's promise.
        let invited = unsafe { Self::send(this, worker.ring(), worker.crew()) };
        if invited.is_some() {
            worker.wake_another();
        }
        invited
    }

    /// A member leaves, with the invitation that it has sent, if it has. `true` for the last: the work is over, and the
    /// party its own. For others the party may be gone.
    ///
    /// # Safety
    ///
    /// The caller is a member, and the last invitation that it sent, from the thread of the worker, is `invited`.
    pub(crate) unsafe fn leave(this: NonNull<Self>, worker: &Worker, invited: Option<Invited>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { Self::withdraw(this, worker.ring(), invited) }
    }

    /// # Safety
    ///
    /// As for [`Party::invite`]; the caller is the owner of the ring.
    pub(super) unsafe fn send(this: NonNull<Self>, ring: &Ring, most: usize) -> Option<Invited> {
        // SAFETY: the caller is a member.
        let members = unsafe { &(*this.as_ptr()).members };
        // Others only leave meanwhile.
        if members.load(Relaxed) >= most {
            return None;
        }
        members.fetch_add(1, Relaxed);
        let number = ring.next_number();
        // SAFETY: the caller is a member.
        let item = unsafe { Self::item(this) };
        if ring.push(item, true).is_err() {
            members.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Invited(number))
    }

    /// # Safety
    ///
    /// As for [`Party::leave`]; the caller is the owner of the ring.
    pub(super) unsafe fn withdraw(this: NonNull<Self>, ring: &Ring, invited: Option<Invited>) -> bool {
        // SAFETY: the caller is a member.
        let item = unsafe { Self::item(this) };
        let leaving = match invited {
            Some(Invited(number)) if ring.take_back(number, item) => 2,
            _ => 1,
        };
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
