//! Waiting in a group: for a result, for room for a child, or for the end of all running children.

use core::cell::Cell;
use core::convert::Infallible;
use core::marker::PhantomPinned;
use core::mem;
use core::pin::Pin;
use core::ptr::NonNull;

use super::child::EndedChild;
use super::core::{GroupCore, GroupRef};
use super::ready::Room;
use super::state::Settled;
use crate::memory::{Links, links};
use crate::sender::stage::container_of;
use crate::stop::{ErasedStopToken, StopSlot, StopToken};
use crate::task::frame::Awaited;
use crate::task::strand::{Awaiter, Link};
use crate::{Env, Operation, Receiver, Sender, Transfer};

/// The event that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitFor {
    /// The next child that ends.
    Next,
    /// Room for another child, which is reserved.
    Room,
    /// Room for another child, which is not reserved.
    Ready,
    /// The end of all running children.
    All,
}

impl WaitFor {
    /// The number of lists.
    pub(super) const LISTS: usize = 3;

    /// Returns the list of the group in which it waits. All that wait for room are in one, in FIFO order.
    pub(super) fn list(self) -> usize {
        match self {
            WaitFor::Next => 0,
            WaitFor::Room | WaitFor::Ready => 1,
            WaitFor::All => 2,
        }
    }

    /// Returns what a person calls it.
    pub(super) fn what(self) -> Awaited {
        match self {
            WaitFor::Next => Awaited::NEXT_CHILD,
            WaitFor::Room | WaitFor::Ready => Awaited::ROOM,
            WaitFor::All => Awaited::ALL_CHILDREN,
        }
    }

    /// Returns whether a cancelled group ends the wait, since it will not have room again.
    fn ends_with_group(self) -> bool {
        matches!(self, WaitFor::Room | WaitFor::Ready)
    }
}

/// The grant that a waiter received.
pub(super) enum Given {
    /// Nothing is left to wait for. A wait for [`WaitFor::Ready`] is over, and checks again.
    Nothing,
    Child(EndedChild),
    /// A place for a child, counted by `GroupState::running`.
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
    phase: Cell<WaiterPhase>,
    complete: unsafe fn(NonNull<GroupWaiter>) -> Transfer,
}

links!(GroupWaiter, links);

enum WaiterPhase {
    New,
    Waiting,
    Granted(Given),
    Stopped,
}

impl GroupWaiter {
    /// Stores the grant.
    pub(super) fn give(&self, given: Given) {
        self.phase.set(WaiterPhase::Granted(given));
    }

    /// # Safety
    ///
    /// The caller removed the waiter from the list, under the lock.
    pub(super) unsafe fn complete(this: NonNull<GroupWaiter>) -> Transfer {
        // SAFETY: a waiter is alive until it is completed, which the caller may do.
        unsafe { (this.as_ref().complete)(this) }
    }
}

/// A sender of the event that is waited for.
pub(super) struct GroupWait {
    pub(super) core: GroupRef,
    pub(super) kind: WaitFor,
}

/// The result of a wait. Dropping it returns the child or the place to the group.
pub(super) struct Granted {
    core: GroupRef,
    given: Given,
}

impl Granted {
    pub(super) fn is_room(&self) -> bool {
        matches!(self.given, Given::Room)
    }

    pub(super) fn take(mut self) -> Given {
        mem::replace(&mut self.given, Given::Nothing)
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        match mem::replace(&mut self.given, Given::Nothing) {
            Given::Nothing => {}
            Given::Child(child) => self.core.put_back(child),
            Given::Room => {
                let mut settled = Settled::default();
                let last = self.core.lock_closed().one_less(&mut settled);
                // SAFETY: `last` is from `one_less`, once. The place was counted.
                unsafe { GroupCore::settle(self.core.as_ptr(), settled, last) }.run();
            }
        }
    }
}

// SAFETY: the operation touches nothing once another party may complete it, nor after its completion; it is `!Unpin`.
unsafe impl Sender for GroupWait {
    type Value = Granted;
    type Error = Infallible;
    type Operation<R: Receiver<Granted, Infallible>> = GroupWaitOperation<R>;

    fn connect<R: Receiver<Granted, Infallible>>(self, receiver: R) -> GroupWaitOperation<R> {
        GroupWaitOperation {
            waiter: GroupWaiter {
                links: Links::new(),
                kind: self.kind,
                phase: Cell::new(WaiterPhase::New),
                complete: GroupWaitOperation::<R>::complete,
            },
            link: Link::new(|link| {
                // SAFETY: the link is that of such an operation. `finish` removes it before it takes the reference to the group.
                let parts = unsafe { &container_of!(link, GroupWaitOperation<R>, link).as_ref().parts };
                parts.as_ref().map(|(core, _)| core.clone().raisable())
            }),
            parts: Some((self.core, receiver)),
            reached: None,
            slot: StopSlot::new(GroupWaitOperation::<R>::stop_requested),
            cancelled: StopSlot::new(GroupWaitOperation::<R>::group_cancelled),
            _pinned: PhantomPinned,
        }
    }
}

type WaitToken<R> = <<R as Receiver<Granted, Infallible>>::Env as Env>::StopToken;

/// The operation of [`GroupWait`]. The waiter is first, so both have the same address.
#[repr(C)]
pub(super) struct GroupWaitOperation<R: Receiver<Granted, Infallible>> {
    waiter: GroupWaiter,
    /// Raises a single child with an awaiting task that is not its parent.
    link: Link,
    /// Taken by the completion.
    parts: Option<(GroupRef, R)>,
    /// A token whose stop reaches both the awaiting task and the children: then their ends are waited for.
    reached: Option<ErasedStopToken>,
    slot: StopSlot<WaitToken<R>>,
    /// Ends a wait for room when the group is cancelled, since it will not have room again.
    cancelled: StopSlot<ErasedStopToken>,
    _pinned: PhantomPinned,
}

// SAFETY: the receiver is `Send`; the rest is lock-protected, or accessed by the completing party.
unsafe impl<R: Receiver<Granted, Infallible>> Send for GroupWaitOperation<R> {}

impl<R: Receiver<Granted, Infallible>> GroupWaitOperation<R> {
    /// # Safety
    ///
    /// `waiter` is that of such an operation. The caller removed it from the list, or it was never listed.
    unsafe fn complete(waiter: NonNull<GroupWaiter>) -> Transfer {
        let this = waiter.cast::<Self>();
        // SAFETY: the removal makes this the completing party. `leave` waits for a running callback, which finds no waiter.
        unsafe {
            this.as_ref().slot.leave();
            this.as_ref().cancelled.leave();
            Self::finish(this)
        }
    }

    /// # Safety
    ///
    /// The caller is the completing party, and no callback uses the operation.
    unsafe fn finish(mut this: NonNull<Self>) -> Transfer {
        // SAFETY: the caller has exclusive access.
        let this = unsafe { this.as_mut() };
        this.link.leave();
        let Some((core, receiver)) = this.parts.take() else {
            return Transfer::none();
        };
        match this.waiter.phase.replace(WaiterPhase::Stopped) {
            WaiterPhase::Granted(given) => receiver.set_value(Granted { core, given }),
            _ => {
                drop(core);
                receiver.set_stopped()
            }
        }
    }

    /// Returns whether the stop is ignored: it reaches the children too, so their ends are near.
    fn ignores_stop(&self) -> bool {
        !self.waiter.kind.ends_with_group() && self.reached.is_some_and(|token| token.stop_requested())
    }

    /// # Safety
    ///
    /// `slot` is that of such an operation, which is alive until the slot is released.
    unsafe fn stop_requested(slot: NonNull<StopSlot<WaitToken<R>>>) -> Transfer {
        // SAFETY: the caller's promise. After the release, only a callback that removed the waiter uses the operation.
        unsafe {
            let this = container_of!(slot, Self, slot);
            let waits = match &this.as_ref().parts {
                Some((core, _)) if !this.as_ref().ignores_stop() => core.stop_waiting(this.cast(), None),
                _ => false,
            };
            if waits {
                this.as_ref().cancelled.leave();
            }
            slot.as_ref().release();
            if waits { Self::finish(this) } else { Transfer::none() }
        }
    }

    /// # Safety
    ///
    /// `slot` is the other slot of such an operation, which is alive until the slot is released.
    unsafe fn group_cancelled(slot: NonNull<StopSlot<ErasedStopToken>>) -> Transfer {
        // SAFETY: as in `stop_requested`.
        unsafe {
            let this = container_of!(slot, Self, cancelled);
            let parts = &this.as_ref().parts;
            let waits = matches!(parts, Some((core, _)) if core.stop_waiting(this.cast(), Some(Given::Nothing)));
            if waits {
                this.as_ref().slot.leave();
            }
            slot.as_ref().release();
            if waits { Self::finish(this) } else { Transfer::none() }
        }
    }
}

impl<R: Receiver<Granted, Infallible>> Operation for GroupWaitOperation<R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: only unpinned fields are moved.
        let this = unsafe { self.get_unchecked_mut() } as *mut Self;
        // SAFETY: this call has exclusive access until the waiter is listed. The operation is pinned and started once; the
        // slots are left or released before it completes. The group is alive as long as its token is listened to.
        unsafe {
            let Some((core, receiver)) = &(*this).parts else {
                return Transfer::none();
            };
            // The environment is user code, so it is queried before anything is linked.
            let (env, core) = (receiver.env(), core.clone());
            let (token, level, around) = (env.stop_token(), env.priority(), Awaiter::of(&env));
            drop(env);
            if let Some(around) = around {
                (*this).reached = core.reached_from(around.context.as_ref());
                if core.single.is_some() && !core.is_frame(Some(around.frame)) {
                    Link::enter(NonNull::new_unchecked(&raw mut (*this).link), around.frame);
                }
            }
            let operation = NonNull::new_unchecked(this);
            let listening = StopSlot::listen(NonNull::new_unchecked(&raw mut (*this).slot), token);
            if !listening && !(*this).ignores_stop() {
                return Self::finish(operation);
            }
            if (*this).waiter.kind.ends_with_group() {
                // If the group was cancelled before, `wait` below finds nothing to wait for.
                let token = core.relay.token();
                StopSlot::listen(NonNull::new_unchecked(&raw mut (*this).cancelled), token);
            }
            if !core.wait(operation.cast()) {
                return Self::complete(operation.cast());
            }
            // The operation may be destroyed by now. The link tells later raises only.
            if level.is_some() || core.single.is_none() {
                core.wanted_at(level.unwrap_or_default());
            }
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
    /// The waiter is pinned, in no list, and alive until it is completed.
    unsafe fn wait(&self, waiter: NonNull<GroupWaiter>) -> bool {
        let mut lock = self.lock_closed();
        // SAFETY: the caller's promise.
        let this = unsafe { waiter.as_ref() };
        // The stop callback may have run before the waiter is listed.
        if let WaiterPhase::Stopped = this.phase.replace(WaiterPhase::Stopped) {
            return false;
        }
        // Checked under the lock, so no grant is missed between the check and the listing.
        let given = match this.kind {
            WaitFor::Next => match lock.pop_finished() {
                Some(child) => Some(Given::Child(child)),
                None => (lock.running == 0).then_some(Given::Nothing),
            },
            WaitFor::All => (lock.running == 0).then_some(Given::Nothing),
            WaitFor::Room | WaitFor::Ready => match self.room_in(&lock) {
                Room::Full => None,
                Room::Free if this.kind == WaitFor::Room => {
                    lock.running += 1;
                    Some(Given::Room)
                }
                Room::Free | Room::Never => Some(Given::Nothing),
            },
        };
        let waits = given.is_none();
        this.phase.set(given.map_or(WaiterPhase::Waiting, WaiterPhase::Granted));
        if waits {
            // SAFETY: the caller's promise.
            unsafe { lock.waiters[this.kind.list()].push_back(waiter) };
        }
        waits
    }

    /// Removes a waiter, if it waits, and stops it or gives it something. A caller that gets `true` completes it.
    ///
    /// # Safety
    ///
    /// The waiter is alive, and of this group.
    unsafe fn stop_waiting(&self, waiter: NonNull<GroupWaiter>, given: Option<Given>) -> bool {
        let mut lock = self.lock();
        // SAFETY: the waiter is alive. If it waits, it is in the list of its kind.
        unsafe {
            let this = waiter.as_ref();
            match this.phase.replace(WaiterPhase::Stopped) {
                WaiterPhase::Waiting => {
                    lock.waiters[this.kind.list()].remove(waiter);
                    if let Some(given) = given {
                        this.give(given);
                    }
                    return true;
                }
                // A wait that has not begun checks for itself whether something is granted.
                WaiterPhase::New if given.is_none() => {}
                phase => this.phase.set(phase),
            }
            false
        }
    }
}
