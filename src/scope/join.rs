use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use super::kind::Kind;
use super::state::{Handle, Joins};
use crate::adaptors::Affine;
use crate::adaptors::waiters::{Waiter, WaiterState};
use crate::sender::demand::demand;
use crate::sender::stage::container_of;
use crate::stop::StopSlot;
use crate::{Completes, Env, Job, Operation, Receiver, Scheduler, Sender, Transfer};

/// Completes when everything in a scope has ended. Made by [`Scope::join`](super::Scope::join).
///
/// From then on the scope is *joined*: it refuses whatever comes, and every other join of it completes. Until then it goes
/// on taking work, unless it is [closed](super::Scope::close); what runs in it may spawn more. Joining a scope in which
/// nothing runs is joining it, too.
///
/// There may be any number of joins, at the same time and later.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::ThreadPool;
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// // A service is given a moment to end in peace, and is told to stop then.
/// let scope = CountingScope::new();
/// scope.spawn(starts_on(ThreadPool::global().scheduler(), never::<(), Infallible>()));
/// scope.close();
/// let peace = scope.join().timeout(Duration::from_millis(1));
/// if !sync_wait(peace).is_value() {
///     scope.request_stop();
///     sync_wait(scope.join()).unwrap();
/// }
/// assert_eq!(scope.in_use(), 0);
/// ```
///
/// # Completions
///
/// `()`, after the last association has ended, on the scheduler it was started on, which must be there and infallible.
///
/// # Panics
///
/// With the first panic of what was [spawned](super::Scope::spawn) in the scope. The first join gets the payload itself,
/// the others its message.
///
/// # Cancellation
///
/// A receiver whose stop is requested leaves at once, with a stop. What runs in the scope goes on, and the scope is not
/// joined: join it again. `scope.join().unstoppable()` does not leave.
///
/// # Allocation
///
/// None.
///
/// # Stack
///
/// Constant.
#[must_use = "senders do nothing until they are connected and started"]
pub struct Join<K: Kind> {
    handle: Handle<K>,
}

impl<K: Kind> Join<K> {
    pub(super) fn new(handle: Handle<K>) -> Self {
        Join { handle }
    }
}

impl<K: Kind> Clone for Join<K> {
    fn clone(&self) -> Self {
        Join::new(self.handle.clone())
    }
}

impl<K: Kind> fmt::Debug for Join<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join").finish_non_exhaustive()
    }
}

// SAFETY: the operation is that of `affine`, which keeps the promises.
unsafe impl<K: Kind> Sender for Join<K> {
    type Value = ();
    type Error = Infallible;
    const COMPLETES: Completes = Affine::<Wait<K>>::COMPLETES;
    type Operation<R: Receiver<(), Infallible>> = <Affine<Wait<K>> as Sender>::Operation<R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> Self::Operation<R> {
        const {
            demand(
                <R::Env as Env>::Scheduler::PRESENT,
                "`join` completes on a scheduler, and there is none here: write `starts_on(scheduler, scope.join())`, or give it one with `.write_env(WithScheduler(scheduler))`",
            );
            demand(
                <R::Env as Env>::Scheduler::INFALLIBLE,
                "`join` needs a scheduler that cannot fail: start it on `scheduler.or_inline()` or `scheduler.or_abort()`",
            );
        }
        Affine::new(Wait { handle: self.handle }).operation(receiver)
    }
}

/// The same, but where the last association ended is where it completes.
#[derive(Debug)]
pub struct Wait<K: Kind> {
    handle: Handle<K>,
}

// SAFETY: the operation touches nothing once it is in the list, nor after its completion, and is `!Unpin`.
unsafe impl<K: Kind> Sender for Wait<K> {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = WaitOperation<K, R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> WaitOperation<K, R> {
        WaitOperation {
            waiter: Waiter::new(WaitOperation::<K, R>::run),
            slot: StopSlot::new(WaitOperation::<K, R>::stop_requested),
            handle: Some(self.handle),
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

/// The operation of [`Wait`].
pub struct WaitOperation<K: Kind, R: Receiver<(), Infallible>> {
    waiter: Waiter,
    slot: StopSlot<<R::Env as Env>::StopToken>,
    handle: Option<Handle<K>>,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<K: Kind, R: Receiver<(), Infallible>> WaitOperation<K, R> {
    /// # Safety
    ///
    /// The job is that of a waiter that was taken out of the list.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a waiter, which is a field of an operation.
        let this = unsafe { container_of!(container_of!(job, Waiter, deliver), Self, waiter) };
        // SAFETY: the scope is joined, and only this completes the operation, but for a stop that looks and goes.
        unsafe { Self::deliver(this) }
    }

    /// # Safety
    ///
    /// The scope is joined, and the caller completes the operation.
    unsafe fn deliver(this: NonNull<Self>) -> Transfer {
        // SAFETY: the slot outlives a stop that is looking; after this none does.
        unsafe { &(*this.as_ptr()).slot }.leave();
        // SAFETY: nobody else touches the operation.
        let (handle, receiver) = unsafe { ((*this.as_ptr()).handle.take(), (*this.as_ptr()).receiver.take()) };
        let (Some(handle), Some(receiver)) = (handle, receiver) else {
            return Transfer::none();
        };
        // SAFETY: the scope is joined.
        let panic = unsafe { handle.panic() };
        drop(handle);
        match panic {
            None => receiver.set_value(()),
            Some(payload) => receiver.set_panicked(payload),
        }
    }

    /// # Safety
    ///
    /// The operation is in no list, and the caller completes it. Its slot was left, or is released by this.
    unsafe fn leave(this: NonNull<Self>) -> Transfer {
        // SAFETY: nobody else touches the operation.
        let (handle, receiver) = unsafe { ((*this.as_ptr()).handle.take(), (*this.as_ptr()).receiver.take()) };
        // SAFETY: as above. Whoever waits for the slot may go on from here.
        unsafe { &(*this.as_ptr()).slot }.release();
        drop(handle);
        match receiver {
            Some(receiver) => receiver.set_stopped(),
            None => Transfer::none(),
        }
    }

    /// # Safety
    ///
    /// The slot is that of an operation that is starting or waits.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of an operation, which waits for the slot to be released before it goes.
        let this = unsafe { container_of!(slot, Self, slot) };
        // SAFETY: as above. The handle is taken only by who completes, which is after the slot is released.
        let left = unsafe {
            let Some(handle) = &(*this.as_ptr()).handle else {
                slot.as_ref().release();
                return Transfer::none();
            };
            let waiter = NonNull::new_unchecked(&raw mut (*this.as_ptr()).waiter);
            let mut waiters = handle.waiters().lock();
            let left = waiters.leave(waiter, handle.is_joined());
            if left && waiters.is_empty() {
                handle.leave(&waiters);
            }
            left
        };
        if left {
            // SAFETY: it is out of the list, so we complete it.
            unsafe { Self::leave(this) }
        } else {
            // SAFETY: whoever completes waits for this release.
            unsafe { slot.as_ref() }.release();
            Transfer::none()
        }
    }
}

impl<K: Kind, R: Receiver<(), Infallible>> Operation for WaitOperation<K, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        // SAFETY: nobody else knows the operation yet.
        let (token, handle) = match unsafe { (&(*this.as_ptr()).receiver, &(*this.as_ptr()).handle) } {
            (Some(receiver), Some(handle)) => (receiver.env().stop_token(), handle.clone()),
            _ => return Transfer::none(),
        };
        // SAFETY: the slot is pinned with the operation, and left or released before it completes.
        let slot = unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).slot) };
        // SAFETY: as above.
        if !unsafe { StopSlot::listen(slot, token) } {
            // SAFETY: it is in no list.
            return unsafe { Self::leave(this) };
        }
        // SAFETY: the operation is alive until it is in the list and the lock is given back, and under that the waiter's
        // state is ours.
        let waiter = unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).waiter) };
        let mut waiters = handle.waiters().lock();
        // SAFETY: as above.
        if unsafe { (*waiter.as_ptr()).state } == WaiterState::Left {
            drop(waiters);
            // SAFETY: the slot outlives the stop that set `Left`; after this it is over.
            unsafe { slot.as_ref() }.leave();
            // SAFETY: it is in no list.
            return unsafe { Self::leave(this) };
        }
        match handle.join(&waiters) {
            Joins::Later => {
                // SAFETY: the operation is pinned, and stays until it is out of the list.
                unsafe { waiters.link(waiter) };
                Transfer::none()
            }
            Joins::Now => {
                drop(waiters);
                // SAFETY: the scope is joined, and the waiter in no list.
                unsafe { Self::deliver(this) }
            }
        }
    }
}

impl<K: Kind, R: Receiver<(), Infallible>> fmt::Debug for WaitOperation<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitOperation").finish_non_exhaustive()
    }
}
