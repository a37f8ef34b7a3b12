//! Callbacks that are awaited.
//!
//! [`continuation()`] calls a function with a [`Continuation`], and completes when that is resumed. The operation and the
//! continuation share a [block](block), whose state decides which of the two completes the operation.

mod block;
mod handle;

use core::fmt;
use core::marker::{PhantomData, PhantomPinned};
use core::panic::Location;
use core::pin::Pin;
use core::ptr::NonNull;

use crate::sender::stage::container_of;
use crate::stop::{StopSlot, StopToken};
use crate::sync::Arc;
use crate::{Completion, Env, Operation, Panic, Receiver, Sender, Transfer};
use block::{Completer, ContinuationBlock, call};
pub use handle::Continuation;

/// Waits for a callback: calls `function` with a [`Continuation`], and completes when that is resumed.
///
/// It leads from an interface that calls back, in any language, to one that is awaited.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Continuation, Task};
/// use std::thread;
///
/// /// Calls back when it is done, on a thread of its own.
/// fn add_later(a: u32, b: u32, done: impl FnOnce(Result<u32, String>) + Send + 'static) {
///     thread::spawn(move || done(a.checked_add(b).ok_or_else(|| "too much".to_owned())));
/// }
///
/// async fn add(a: u32, b: u32) -> Result<u32, String> {
///     task::continuation(move |continuation: Continuation<u32, String>| {
///         add_later(a, b, move |sum| {
///             // An abandoned continuation has no use for the sum.
///             let _ = continuation.resume_with(sum);
///         });
///     })
///     .await
/// }
///
/// assert_eq!(sync_wait(Task::try_new(add(1, 2))).unwrap(), 3);
/// assert_eq!(sync_wait(Task::try_new(add(1, u32::MAX))).unwrap_err(), "too much");
/// ```
///
/// The parameter of the closure says which types the continuation is resumed with: `|continuation: Continuation<u32>|` for one
/// that cannot fail.
///
/// # Completions
///
/// The value, the error or the stop that the continuation is resumed with. A continuation that is dropped completes stopped, and
/// the [report hook](crate::task::set_report_hook) is called.
///
/// A task that waits is queued with its scheduler, and continues there: the thread that resumes it runs none of it. Any other
/// receiver is completed inside [`resume`](Continuation::resume), and so is a task on the inline scheduler. A resume before
/// `function` has returned completes the operation inside `start`.
///
/// # Panics
///
/// A panic of `function` is the completion, even after a resume: the resumption is dropped. The continuation is abandoned.
///
/// # Cancellation
///
/// A stop completes the operation at once, on the thread that requests it, after the [handler](Continuation::on_stop). The
/// continuation is abandoned: resuming it returns the value or error. Where the stop was requested before the start, `function` is
/// not called. A stop during `function` is seen when `function` has returned.
///
/// # Allocation
///
/// One at the start, shared with the continuation, which may outlive the operation. A handler that captures something is one
/// more.
///
/// # Stack
///
/// Constant: [`resume`](Continuation::resume) runs in a loop what it resumes. Tasks that resume one another take no stack, except
/// on the inline scheduler, where each runs inside the other's call.
#[track_caller]
pub fn continuation<T, E, F>(function: F) -> ContinuationSender<T, E, F>
where
    F: FnOnce(Continuation<T, E>),
    T: Send,
    E: Send,
{
    ContinuationSender {
        function,
        location: Location::caller(),
        _types: PhantomData,
    }
}

/// Sender created by [`continuation()`].
#[must_use = "senders do nothing until they are connected and started"]
pub struct ContinuationSender<T, E, F> {
    function: F,
    location: &'static Location<'static>,
    _types: PhantomData<fn() -> (T, E)>,
}

// Not derived: neither the value nor the error need be `Clone`.
impl<T, E, F: Clone> Clone for ContinuationSender<T, E, F> {
    fn clone(&self) -> Self {
        ContinuationSender {
            function: self.function.clone(),
            location: self.location,
            _types: PhantomData,
        }
    }
}

impl<T, E, F> fmt::Debug for ContinuationSender<T, E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContinuationSender")
            .field("location", &self.location)
            .finish_non_exhaustive()
    }
}

// SAFETY: the operation is `!Unpin`. Once its block is `WAITING`, it is accessed only by the side that the block's state lets
// complete it, and by no side after that. The function runs in `start`, as part of the sender.
unsafe impl<T, E, F> Sender for ContinuationSender<T, E, F>
where
    F: FnOnce(Continuation<T, E>),
    T: Send,
    E: Send,
{
    type Value = T;
    type Error = E;
    type Operation<R: Receiver<T, E>> = ContinuationOperation<T, E, F, R>;

    fn connect<R: Receiver<T, E>>(self, receiver: R) -> Self::Operation<R> {
        ContinuationOperation {
            sender: Some(self),
            slot: StopSlot::new(ContinuationOperation::<T, E, F, R>::stop_requested),
            block: None,
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

/// The operation of [`ContinuationSender`].
pub struct ContinuationOperation<T, E, F, R>
where
    F: FnOnce(Continuation<T, E>),
    T: Send,
    E: Send,
    R: Receiver<T, E>,
{
    sender: Option<ContinuationSender<T, E, F>>,
    slot: StopSlot<<R::Env as Env>::StopToken>,
    /// Set before the slot is registered, until the side that completes takes it.
    block: Option<Arc<ContinuationBlock<T, E>>>,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<T, E, F, R> ContinuationOperation<T, E, F, R>
where
    F: FnOnce(Continuation<T, E>),
    T: Send,
    E: Send,
    R: Receiver<T, E>,
{
    /// Calls the function, then waits. Returns the completion if `start` is to complete the operation.
    ///
    /// # Safety
    ///
    /// The operation is pinned, and being started.
    unsafe fn begin(this: NonNull<Self>, token: <R::Env as Env>::StopToken) -> Option<Completion<T, E>> {
        // SAFETY: no other thread knows the operation before it waits.
        let ContinuationSender { function, location, .. } = unsafe { (*this.as_ptr()).sender.take() }?;
        if token.stop_requested() {
            return Some(Completion::Stopped);
        }
        let completer = Completer {
            operation: this.cast(),
            complete: Self::resumed,
        };
        let block = Arc::new(ContinuationBlock::new(completer, location));
        let continuation = Continuation::new(block.clone());
        if let Err(payload) = Panic::catch(move || function(continuation)) {
            // SAFETY: this is part of `start`, and the operation does not wait.
            unsafe { block.abandon() };
            return Some(Completion::Panicked(payload));
        }
        let block = if block.is_starting() {
            // SAFETY: no other thread uses the operation before it waits.
            unsafe { Self::wait(this, block, token) }?
        } else {
            block
        };
        // SAFETY: this is part of `start`, and the operation does not wait: its block was returned.
        unsafe { block.conclude() }
    }

    /// Begins to wait. Returns the block where the continuation has ended or a stop has come: `start` then completes.
    ///
    /// # Safety
    ///
    /// The operation is pinned, and used by `start` alone.
    unsafe fn wait(
        this: NonNull<Self>,
        block: Arc<ContinuationBlock<T, E>>,
        token: <R::Env as Env>::StopToken,
    ) -> Option<Arc<ContinuationBlock<T, E>>> {
        let operation = this.as_ptr();
        let shared = NonNull::from(&*block);
        // SAFETY: `start` alone uses the operation, by the contract.
        unsafe { (*operation).block = Some(block) };
        // SAFETY: the slot is pinned with the operation. It leaves its list, or the callback releases it, before the operation
        // completes.
        let listens = unsafe { StopSlot::listen(NonNull::new_unchecked(&raw mut (*operation).slot), token) };
        // SAFETY: the operation owns the block until it is completed, which no thread does while `STARTING`. After `wait` both may
        // be destroyed.
        unsafe {
            match listens {
                true if shared.as_ref().wait() => return None,
                true => {}
                false => shared.as_ref().abandon_starting(),
            }
        }
        // SAFETY: the operation does not wait, so `start` still has it. `leave` waits for a callback that is running.
        unsafe {
            (*operation).slot.leave();
            (*operation).block.take()
        }
    }

    /// Completes the operation for a continuation that has ended.
    ///
    /// # Safety
    ///
    /// The operation waits, and the block's state lets the caller complete it.
    unsafe fn resumed(operation: NonNull<()>, completion: Completion<T, E>) -> Transfer {
        let this = operation.cast::<Self>().as_ptr();
        // SAFETY: the caller alone completes the operation, by the contract. A callback that is running finds `RESUMED`.
        let receiver = unsafe {
            (*this).slot.leave();
            drop((*this).block.take());
            (*this).receiver.take()
        };
        completion.deliver_to(receiver)
    }

    /// Completes the operation for a stop, unless the continuation has ended.
    ///
    /// # Safety
    ///
    /// The slot is that of a started operation.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of an operation, which is not completed before the slot is left or released.
        let this = unsafe { container_of!(slot, Self, slot) }.as_ptr();
        // SAFETY: the block was set before the slot was registered, and is taken after the slot is left.
        let stopped = unsafe { &(*this).block }.as_ref().is_some_and(|block| block.stop());
        let (block, receiver) = match stopped {
            // SAFETY: the block's state lets this callback complete the operation.
            true => unsafe { ((*this).block.take(), (*this).receiver.take()) },
            false => (None, None),
        };
        // SAFETY: the operation is alive until the slot is released. Nothing of it is accessed after that.
        unsafe { slot.as_ref() }.release();
        if let Some(block) = block {
            call(block.take_handler());
        }
        Completion::Stopped.deliver_to(receiver)
    }
}

impl<T, E, F, R> Operation for ContinuationOperation<T, E, F, R>
where
    F: FnOnce(Continuation<T, E>),
    T: Send,
    E: Send,
    R: Receiver<T, E>,
{
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing pinned is moved: sender, block and receiver are not.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        // SAFETY: no other thread knows the operation before it waits.
        let Some(token) = (unsafe { &(*this.as_ptr()).receiver })
            .as_ref()
            .map(|receiver| receiver.env().stop_token())
        else {
            return Transfer::none();
        };
        // SAFETY: the operation is pinned, and this is its start.
        match unsafe { Self::begin(this, token) } {
            // SAFETY: `begin` has left it to `start` to complete the operation.
            Some(completion) => completion.deliver_to(unsafe { (*this.as_ptr()).receiver.take() }),
            None => Transfer::none(),
        }
    }
}

impl<T, E, F, R> fmt::Debug for ContinuationOperation<T, E, F, R>
where
    F: FnOnce(Continuation<T, E>),
    T: Send,
    E: Send,
    R: Receiver<T, E>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContinuationOperation")
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}
