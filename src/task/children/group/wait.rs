//! Waiting in a group: for a result, for room for a child, or for the end of all running children.

use core::cell::Cell;
use core::convert::Infallible;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use super::child::{EndedChild, Finished, Room};
use super::core::GroupRef;
use crate::memory::{Links, links};
use crate::sender::stage::container_of;
use crate::stop::{ErasedStopToken, StopSlot, StopToken};
use crate::task::strand::Awaiter;
use crate::{Env, Operation, Receiver, Sender, Transfer};

/// The event that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitFor {
    /// The next child that ends.
    Next,
    /// Room for another child.
    Room,
    /// The end of all running children.
    All,
}

/// The grant that a waiter received.
pub(super) enum Given {
    /// Nothing is left to wait for.
    Nothing,
    Child(EndedChild),
    Room,
}

/// The part of an operation that the group points at. Protected by the group's lock until it is removed from the list. Then it
/// belongs to the removing party, which completes the operation.
///
/// ```text
/// New ──wait──▶ Waiting ──grant──▶ Granted
///  │               └──────stop──▶ Stopped
///  └──────────────────────stop──────▲
/// ```
pub(super) struct GroupWaiter {
    links: Links<GroupWaiter>,
    pub(super) kind: WaitFor,
    state: Cell<WaiterPhase>,
    given: Cell<Given>,
    complete: unsafe fn(NonNull<GroupWaiter>) -> Transfer,
}

links!(GroupWaiter, links);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaiterPhase {
    New,
    Waiting,
    Granted,
    Stopped,
}

impl GroupWaiter {
    fn new(kind: WaitFor, complete: unsafe fn(NonNull<GroupWaiter>) -> Transfer) -> Self {
        GroupWaiter {
            links: Links::new(),
            kind,
            state: Cell::new(WaiterPhase::New),
            given: Cell::new(Given::Nothing),
            complete,
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.get() == WaiterPhase::Stopped
    }

    /// Marks the waiter as listed.
    pub(super) fn begin(&self) {
        self.state.set(WaiterPhase::Waiting);
    }

    /// Stores the grant.
    pub(super) fn give(&self, given: Given) {
        self.given.set(given);
        self.state.set(WaiterPhase::Granted);
    }

    /// Ends the wait, by a stop or by a late grant. Returns `true` if it is listed, and is to be removed.
    pub(super) fn stop(&self, given: Option<Given>) -> bool {
        let before = self.state.get();
        if before == WaiterPhase::New || before == WaiterPhase::Waiting {
            match given {
                Some(given) if before == WaiterPhase::Waiting => self.give(given),
                // A wait that has not begun checks for itself.
                Some(_) => {}
                None => self.state.set(WaiterPhase::Stopped),
            }
        }
        before == WaiterPhase::Waiting
    }

    /// # Safety
    ///
    /// The caller removed the waiter from the list, under the lock.
    pub(super) unsafe fn complete(this: NonNull<GroupWaiter>) -> Transfer {
        // SAFETY: a waiter is alive until it is completed.
        let complete = unsafe { this.as_ref() }.complete;
        // SAFETY: the caller's promise.
        unsafe { complete(this) }
    }
}

/// A sender of the event that is waited for.
pub(super) struct GroupWait {
    pub(super) core: GroupRef,
    pub(super) kind: WaitFor,
}

/// The result of a wait.
pub(super) enum Waited {
    Nothing,
    Child(Finished),
    Room(Room),
}

// SAFETY: the operation touches nothing once another party may complete it, nor after its completion; it is `!Unpin`.
unsafe impl Sender for GroupWait {
    type Value = Waited;
    type Error = Infallible;
    type Operation<R: Receiver<Waited, Infallible>> = GroupWaitOperation<R>;

    fn connect<R: Receiver<Waited, Infallible>>(self, receiver: R) -> GroupWaitOperation<R> {
        GroupWaitOperation {
            waiter: GroupWaiter::new(self.kind, GroupWaitOperation::<R>::complete),
            core: Some(self.core),
            receiver: Some(receiver),
            is_reached: false,
            slot: StopSlot::new(GroupWaitOperation::<R>::stop_requested),
            cancelled: StopSlot::new(GroupWaitOperation::<R>::group_cancelled),
            _pinned: PhantomPinned,
        }
    }
}

type WaitToken<R> = <<R as Receiver<Waited, Infallible>>::Env as Env>::StopToken;

/// The operation of [`GroupWait`]. The waiter is first, so both have the same address.
#[repr(C)]
pub(super) struct GroupWaitOperation<R: Receiver<Waited, Infallible>> {
    waiter: GroupWaiter,
    /// Taken by the completion.
    core: Option<GroupRef>,
    receiver: Option<R>,
    /// Whether a stop of the task reaches the children as well: then their ends are waited for.
    is_reached: bool,
    slot: StopSlot<WaitToken<R>>,
    /// Ends a wait for room when the group is cancelled, since it will not have room again.
    cancelled: StopSlot<ErasedStopToken>,
    _pinned: PhantomPinned,
}

// SAFETY: the receiver is `Send`; the rest is lock-protected, or accessed by the completing party.
unsafe impl<R: Receiver<Waited, Infallible>> Send for GroupWaitOperation<R> {}

impl<R: Receiver<Waited, Infallible>> GroupWaitOperation<R> {
    /// # Safety
    ///
    /// `waiter` is that of such an operation. The caller removed it from the list, or it was never listed.
    unsafe fn complete(waiter: NonNull<GroupWaiter>) -> Transfer {
        let this = waiter.cast::<Self>().as_ptr();
        // SAFETY: the removal makes this the completing party. `leave` waits for a running callback, which finds no waiter.
        unsafe {
            (*this).slot.leave();
            (*this).cancelled.leave();
            Self::finish(this)
        }
    }

    /// # Safety
    ///
    /// The caller is the completing party, and no callback uses the operation.
    unsafe fn finish(this: *mut Self) -> Transfer {
        // SAFETY: the caller has exclusive access.
        let (given, stopped, core, receiver) = unsafe {
            let waiter = &(*this).waiter;
            (
                waiter.given.replace(Given::Nothing),
                waiter.is_stopped(),
                (*this).core.take(),
                (*this).receiver.take(),
            )
        };
        let (Some(core), Some(receiver)) = (core, receiver) else {
            return Transfer::none();
        };
        if stopped {
            drop(core);
            return receiver.set_stopped();
        }
        let waited = match given {
            Given::Nothing => Waited::Nothing,
            Given::Child(child) => Waited::Child(Finished::new(core, child)),
            // SAFETY: the grant counted the place.
            Given::Room => Waited::Room(unsafe { Room::new(core) }),
        };
        receiver.set_value(waited)
    }

    /// Returns whether the stop is ignored: it reaches the children too, so their ends are near.
    fn ignores_stop(&self, core: &GroupRef) -> bool {
        self.waiter.kind != WaitFor::Room && self.is_reached && core.outer.stop_requested()
    }

    /// # Safety
    ///
    /// `slot` is that of such an operation, which is alive until the slot is released.
    unsafe fn stop_requested(slot: NonNull<StopSlot<WaitToken<R>>>) -> Transfer {
        // SAFETY: the caller's promise. After the release, only a callback that removed the waiter uses the operation.
        unsafe {
            let this = container_of!(slot, Self, slot).as_ptr();
            let waits = match &(*this).core {
                Some(core) if !(*this).ignores_stop(core) => {
                    core.stop_waiting(NonNull::new_unchecked(&raw mut (*this).waiter), None)
                }
                _ => false,
            };
            if waits {
                (*this).cancelled.leave();
            }
            slot.as_ref().release();
            if waits { Self::finish(this) } else { Transfer::none() }
        }
    }

    /// # Safety
    ///
    /// `slot` is the other slot of such an operation, which is alive until the slot is released.
    unsafe fn group_cancelled(slot: NonNull<StopSlot<ErasedStopToken>>) -> Transfer {
        // SAFETY: the caller's promise. After the release, only a callback that removed the waiter uses the operation.
        unsafe {
            let this = container_of!(slot, Self, cancelled).as_ptr();
            let waits = match &(*this).core {
                Some(core) => core.stop_waiting(NonNull::new_unchecked(&raw mut (*this).waiter), Some(Given::Nothing)),
                None => false,
            };
            if waits {
                (*this).slot.leave();
            }
            slot.as_ref().release();
            if waits { Self::finish(this) } else { Transfer::none() }
        }
    }
}

impl<R: Receiver<Waited, Infallible>> Operation for GroupWaitOperation<R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: only unpinned fields are moved.
        let this = unsafe { self.get_unchecked_mut() } as *mut Self;
        // SAFETY: this call has exclusive access until the waiter is listed. The operation is pinned and started once; the
        // slots are left or released before it completes. The group is alive as long as its token is listened to.
        unsafe {
            let (Some(core), Some(receiver)) = (&(*this).core, &(*this).receiver) else {
                return Transfer::none();
            };
            // The environment is user code, so it is queried before anything is linked.
            let (env, core) = (receiver.env(), core.clone());
            let (token, level, around) = (env.stop_token(), env.priority().unwrap_or_default(), Awaiter::of(&env));
            drop(env);
            (*this).is_reached = around.is_some_and(|around| core.is_reached_from(around.context.as_ref()));
            let waiter = NonNull::new_unchecked(&raw mut (*this).waiter);
            let listening = StopSlot::listen(NonNull::new_unchecked(&raw mut (*this).slot), token);
            if !listening && !(*this).ignores_stop(&core) {
                (*this).waiter.stop(None);
                return Self::finish(this);
            }
            if (*this).waiter.kind == WaitFor::Room {
                // If the group was cancelled before, `wait` below finds nothing to wait for.
                let token = core.relay.token();
                StopSlot::listen(NonNull::new_unchecked(&raw mut (*this).cancelled), token);
            }
            if !core.wait(waiter) {
                return Self::complete(waiter);
            }
            // The operation may be destroyed by now.
            core.wanted_at(level);
            Transfer::none()
        }
    }
}

impl GroupRef {
    /// Lists a waiter, unless it is granted something at once, or was stopped. Then it returns `false`, and the caller completes
    /// the waiter. Otherwise another party does, perhaps already.
    ///
    /// # Safety
    ///
    /// The waiter is pinned, and in no list.
    pub(super) unsafe fn wait(&self, waiter: NonNull<GroupWaiter>) -> bool {
        let mut lock = self.lock();
        // SAFETY: the waiter is pinned, and alive until it is completed.
        let this = unsafe { waiter.as_ref() };
        // The stop callback may have run before the waiter is listed.
        if this.is_stopped() {
            return false;
        }
        // Checked under the lock, so no grant is missed between the check and the listing.
        let given = match this.kind {
            WaitFor::Next => match lock.pop_finished() {
                Some(child) => Some(Given::Child(child)),
                None => (lock.running == 0).then_some(Given::Nothing),
            },
            WaitFor::All => (lock.running == 0).then_some(Given::Nothing),
            WaitFor::Room if self.is_cancelled() || lock.is_over() || lock.limit == 0 => Some(Given::Nothing),
            WaitFor::Room if lock.running < lock.limit => {
                lock.running += 1;
                Some(Given::Room)
            }
            WaitFor::Room => None,
        };
        match given {
            Some(given) => {
                this.give(given);
                false
            }
            None => {
                // SAFETY: the waiter is pinned, and in no list.
                unsafe { lock.waiters.push(waiter) };
                this.begin();
                true
            }
        }
    }

    /// Removes a waiter, if it waits. A caller that gets `true` completes it.
    ///
    /// # Safety
    ///
    /// The waiter is alive, and of this group.
    pub(super) unsafe fn stop_waiting(&self, waiter: NonNull<GroupWaiter>, given: Option<Given>) -> bool {
        let mut lock = self.lock();
        // SAFETY: the waiter is alive. If it waits, it is in a list of this group.
        unsafe {
            let waits = waiter.as_ref().stop(given);
            if waits {
                lock.waiters.remove(waiter);
            }
            waits
        }
    }
}
