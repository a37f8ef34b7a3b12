use core::fmt;
use core::marker::{PhantomData, PhantomPinned};
use core::pin::Pin;
use core::ptr::NonNull;

use crate::sender::stage::container_of;
use crate::stop::StopSlot;
use crate::{Completion, Env, Operation, Receiver, Sender, Transfer};

/// Makes a sender that completes only when it is stopped.
///
/// ```
/// use bowline::prelude::*;
///
/// let race = when_any((never(), just(1)));
/// assert_eq!(sync_wait(race).unwrap(), 1);
/// ```
///
/// # Completions
///
/// Stopped, when the stop is requested, or inside `start` where it was before. With a token that cannot stop it never
/// completes.
///
/// # Cancellation
///
/// The sender completes on the thread that requests the stop.
#[inline]
pub fn never<T, E>() -> Never<T, E> {
    Never { _types: PhantomData }
}

/// Sender created by [`never()`].
#[derive(Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Never<T, E> {
    _types: PhantomData<fn() -> (T, E)>,
}

// Not derived: neither type need be `Clone`.
impl<T, E> Clone for Never<T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, E> Copy for Never<T, E> {}

// SAFETY: the operation is `!Unpin`, and accesses nothing of itself once its slot is registered, when the stop may
// complete it.
unsafe impl<T, E> Sender for Never<T, E> {
    type Value = T;
    type Error = E;
    type Operation<R: Receiver<T, E>> = NeverOperation<T, E, R>;

    fn connect<R: Receiver<T, E>>(self, receiver: R) -> Self::Operation<R> {
        NeverOperation {
            slot: StopSlot::new(NeverOperation::<T, E, R>::stop_requested),
            receiver: Some(receiver),
            _types: PhantomData,
            _pinned: PhantomPinned,
        }
    }
}

/// The operation of [`Never`].
pub struct NeverOperation<T, E, R: Receiver<T, E>> {
    slot: StopSlot<<R::Env as Env>::StopToken>,
    receiver: Option<R>,
    _types: PhantomData<fn() -> (T, E)>,
    _pinned: PhantomPinned,
}

impl<T, E, R: Receiver<T, E>> NeverOperation<T, E, R> {
    /// # Safety
    ///
    /// The slot is that of a started operation.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of an operation, which only this callback completes. Nothing of the operation is
        // accessed after the release.
        let receiver = unsafe {
            let receiver = (*container_of!(slot, Self, slot).as_ptr()).receiver.take();
            slot.as_ref().release();
            receiver
        };
        Completion::Stopped.deliver_to(receiver)
    }
}

impl<T, E, R: Receiver<T, E>> Operation for NeverOperation<T, E, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing pinned is moved: the receiver is not.
        let this = unsafe { self.get_unchecked_mut() };
        let token = match &this.receiver {
            Some(receiver) => receiver.env().stop_token(),
            None => return Transfer::none(),
        };
        let this = NonNull::from(this);
        // SAFETY: the slot is pinned with the operation, which is completed by the callback alone, after its release.
        if unsafe { StopSlot::listen(NonNull::new_unchecked(&raw mut (*this.as_ptr()).slot), token) } {
            return Transfer::none();
        }
        // SAFETY: the slot is not registered, so no other thread knows the operation.
        Completion::Stopped.deliver_to(unsafe { (*this.as_ptr()).receiver.take() })
    }
}

impl<T, E, R: Receiver<T, E>> fmt::Debug for NeverOperation<T, E, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NeverOperation")
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}
