//! Waiting for something of a group: a result, room for a child, or the end of all that run.

use core::cell::Cell;
use core::convert::Infallible;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use super::child::{EndedChild, Finished, Room};
use super::core::GroupRef;
use crate::memory::{Links, links};
use crate::sender::stage::container_of;
use crate::stop::{ErasedStopToken, StopSlot};
use crate::task::strand::Awaiter;
use crate::{Env, Operation, Receiver, Sender, Transfer};

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitFor {
    /// The next child that ends.
    Next,
    /// Room for another child.
    Room,
    /// That no child runs.
    All,
}

/// What a waiter was given.
pub(super) enum Given {
    /// There is nothing to wait for.
    Nothing,
    Child(EndedChild),
    Room,
}

/// The part of an operation that the group knows. All of it is touched under the lock of the group, until it was taken
/// out of the list there: then it belongs to whoever did that, who completes the operation.
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

    /// It is in the list.
    pub(super) fn begin(&self) {
        self.state.set(WaiterPhase::Waiting);
    }

    /// It has what it waited for.
    pub(super) fn give(&self, given: Given) {
        self.given.set(given);
        self.state.set(WaiterPhase::Granted);
    }

    /// It does not wait any more: it is stopped, or given something after all. `true` where it was in the list, and is to be
    /// taken out of that.
    pub(super) fn stop(&self, given: Option<Given>) -> bool {
        let before = self.state.get();
        if before == WaiterPhase::New || before == WaiterPhase::Waiting {
            match given {
                Some(given) if before == WaiterPhase::Waiting => self.give(given),
                // What has not begun looks by itself.
                Some(_) => {}
                None => self.state.set(WaiterPhase::Stopped),
            }
        }
        before == WaiterPhase::Waiting
    }

    /// # Safety
    ///
    /// The caller took it out of the list, under the lock.
    pub(super) unsafe fn complete(this: NonNull<GroupWaiter>) -> Transfer {
        // SAFETY: it is there until it was completed.
        let complete = unsafe { this.as_ref() }.complete;
        // SAFETY: the caller's promise.
        unsafe { complete(this) }
    }
}

/// A sender of what is waited for.
pub(super) struct GroupWait {
    pub(super) core: GroupRef,
    pub(super) kind: WaitFor,
}

/// What was waited for.
pub(super) enum Waited {
    Nothing,
    Child(Finished),
    Room(Room),
}

// SAFETY: the operation touches nothing once somebody else may complete it, nor after its completion; it is `!Unpin`.
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

/// The operation of [`GroupWait`]. The waiter comes first, so that its address is that of the whole.
#[repr(C)]
pub(super) struct GroupWaitOperation<R: Receiver<Waited, Infallible>> {
    waiter: GroupWaiter,
    /// Taken by the completion.
    core: Option<GroupRef>,
    receiver: Option<R>,
    /// A stop of the task reaches the children as well: their ends are waited for then.
    is_reached: bool,
    slot: StopSlot<WaitToken<R>>,
    /// Who waits for room is not kept waiting by a group that gives none any more.
    cancelled: StopSlot<ErasedStopToken>,
    _pinned: PhantomPinned,
}

// SAFETY: the receiver is `Send`; the rest is touched under the lock, or by who completes it.
unsafe impl<R: Receiver<Waited, Infallible>> Send for GroupWaitOperation<R> {}

impl<R: Receiver<Waited, Infallible>> GroupWaitOperation<R> {
    /// # Safety
    ///
    /// The waiter is that of such an operation, which is the caller's to complete.
    unsafe fn complete(waiter: NonNull<GroupWaiter>) -> Transfer {
        let this = waiter.cast::<Self>().as_ptr();
        // SAFETY: by the caller's promise. A callback that still runs finds that it came too late, and is waited for.
        unsafe {
            (*this).slot.leave();
            (*this).cancelled.leave();
            Self::finish(this)
        }
    }

    /// # Safety
    ///
    /// As above; and no callback uses the operation any more.
    unsafe fn finish(this: *mut Self) -> Transfer {
        // SAFETY: by the caller's promise, all of it is ours.
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
            // SAFETY: it was counted for this operation.
            Given::Room => Waited::Room(unsafe { Room::new(core) }),
        };
        receiver.set_value(waited)
    }

    /// Whether the stop is to be ignored: the children were asked to stop as well, and this waits for them.
    fn ignores_stop(&self, core: &GroupRef) -> bool {
        self.waiter.kind != WaitFor::Room && self.is_reached && core.is_stopped_from_outside()
    }

    /// # Safety
    ///
    /// The slot is that of such an operation, which is there until the slot is released.
    unsafe fn stop_requested(slot: NonNull<StopSlot<WaitToken<R>>>) -> Transfer {
        // SAFETY: by the caller's promise.
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
    /// As above.
    unsafe fn group_cancelled(slot: NonNull<StopSlot<ErasedStopToken>>) -> Transfer {
        // SAFETY: by the caller's promise.
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
        // SAFETY: nothing is moved but what is not pinned.
        let this = unsafe { self.get_unchecked_mut() } as *mut Self;
        // SAFETY: it is ours until it waits; pinned; started once. The slots are left, or released, before it completes. The
        // group is there as long as its token is listened to.
        unsafe {
            let (Some(core), Some(receiver)) = (&(*this).core, &(*this).receiver) else {
                return Transfer::none();
            };
            // The environment is the user's, so it is asked before anything is entered.
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
                // Where it was cancelled before, there is nothing to wait for, as is found below.
                let token = core.token();
                StopSlot::listen(NonNull::new_unchecked(&raw mut (*this).cancelled), token);
            }
            match core.wait(waiter) {
                Waits::Waiting => {
                    // Of the operation nothing may be there.
                    core.wanted_at(level);
                    Transfer::none()
                }
                Waits::Granted | Waits::Stopped => Self::complete(waiter),
            }
        }
    }
}

/// What became of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// It has what it waited for, and the caller completes it.
    Granted,
    /// Somebody completes it later, or has done so.
    Waiting,
    /// It was stopped before it began.
    Stopped,
}

impl GroupRef {
    /// Lets an operation wait, unless there is nothing to wait for: then it is granted what there is. `false` where it was
    /// stopped meanwhile.
    ///
    /// # Safety
    ///
    /// The waiter is pinned, and in no list; from here on whoever grants it something completes it.
    pub(super) unsafe fn wait(&self, waiter: NonNull<GroupWaiter>) -> Waits {
        let mut lock = self.lock();
        // SAFETY: the caller's promise.
        let this = unsafe { waiter.as_ref() };
        if this.is_stopped() {
            return Waits::Stopped;
        }
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
                Waits::Granted
            }
            None => {
                // SAFETY: the caller's promise.
                unsafe { lock.waiters.push(waiter) };
                this.begin();
                Waits::Waiting
            }
        }
    }

    /// Takes a waiter back, if it waits. Who gets `true` completes it.
    ///
    /// # Safety
    ///
    /// It is there, and of this group.
    pub(super) unsafe fn stop_waiting(&self, waiter: NonNull<GroupWaiter>, given: Option<Given>) -> bool {
        let mut lock = self.lock();
        // SAFETY: the caller's promise.
        unsafe {
            let waits = waiter.as_ref().stop(given);
            if waits {
                lock.waiters.remove(waiter);
            }
            waits
        }
    }
}
