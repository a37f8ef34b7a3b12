//! What is called when the task is cancelled, while it does something.

use core::fmt;
use core::future::{Future, IntoFuture};
use core::marker::PhantomPinned;
use core::mem;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};

use super::cancellation::in_context;
use super::frame::Header;
use super::unit::{Attached, AttachedVtable};
use super::wait::wait_until;
use crate::sender::stage::container_of;
use crate::stop::{ErasedStopToken, StopCallback, StopToken};
use crate::{Panic, Transfer};

/// Runs a future, or awaits a sender, and calls `handler` when the task is cancelled before that has ended.
///
/// It is how an operation that knows nothing of this crate is told to give up. The handler is called by whoever cancels,
/// at once, on that very thread, and exactly once; the operation still runs, and it is what it makes of that which counts.
/// Where the task is cancelled already, the handler is called first, and then the operation runs. Once the operation has
/// ended, the handler is not called.
///
/// An operation that is stopped by the very cancel may end while that is still on its way to the handler: then it is the task
/// that calls it, as it takes it back.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::stop::StopSource;
/// use bowline::task::{self, Task};
///
/// // A channel of another crate, which is closed when the task is cancelled.
/// let (sender, receiver) = async_channel::unbounded::<u32>();
/// let source = StopSource::new();
/// let canceller = source.clone();
/// let work = Task::new(async move {
///     let close = receiver.clone();
///     let receive = async {
///         sender.send(1).await.unwrap();
///         assert_eq!(receiver.recv().await, Ok(1));
///         canceller.request_stop();
///         receiver.recv().await
///     };
///     let handler = move || {
///         close.close();
///     };
///     task::with_cancellation_handler(handler, receive).await
/// });
/// let received = sync_wait(work.write_env(WithStopToken(source.token()))).unwrap();
/// assert!(received.is_err(), "the channel is closed");
/// ```
///
/// What counts as cancelled is what [`is_cancelled`](super::is_cancelled) says where this is awaited.
///
/// # Completions
///
/// The output of the operation.
///
/// # Panics
///
/// The operation's panic unwinds. A handler that panics has been reported by the panic hook, and that is all: the other
/// handlers are called, and the cancellation goes on.
///
/// # Cancellation
///
/// The handler is called outside of any lock of this crate: it may complete, cancel, spawn, and drop this very future.
///
/// The end of the operation, and the drop of this future, take the handler back, and wait for one that is running on another
/// thread; meanwhile the thread runs the work of the task's scheduler. So a handler does not wait for the task that it is
/// of. A future that is forgotten, or sent away, has its handler until the task, or the scope in it, ends.
///
/// Outside of a task there is no cancellation, and the handler is not called.
///
/// # Allocation
///
/// None. The operation may borrow, and need not be `Send`. The handler may do neither, since it runs elsewhere, and since a
/// future can be forgotten.
pub fn with_cancellation_handler<H, F>(handler: H, operation: F) -> WithCancellationHandler<H, F::IntoFuture>
where
    H: FnOnce() + Send + 'static,
    F: IntoFuture,
{
    WithCancellationHandler {
        operation: operation.into_future(),
        handler: Handler::Given(handler),
        attached: Attached::new(WithCancellationHandler::<H, F::IntoFuture>::ATTACHED),
        _pinned: PhantomPinned,
    }
}

/// The future of [`with_cancellation_handler`].
#[must_use = "futures do nothing until they are awaited"]
pub struct WithCancellationHandler<H: FnOnce() + Send, F> {
    operation: F,
    handler: Handler<H>,
    /// Attached while the handler is installed: the stop source is there until the frame is done, or the scope in it is left.
    attached: Attached,
    _pinned: PhantomPinned,
}

enum Handler<H: FnOnce() + Send> {
    Given(H),
    Installed(StopCallback<ErasedStopToken, H>),
    /// It was called, or taken back.
    Gone,
}

// SAFETY: the handler is `Send`, and so is its registration; the rest is touched by who polls or drops, and by the frame,
// with which that is ordered.
unsafe impl<H: FnOnce() + Send, F: Send> Send for WithCancellationHandler<H, F> {}

impl<H: FnOnce() + Send + 'static, F> WithCancellationHandler<H, F> {
    /// Installs the handler, or calls it.
    fn install(&mut self) {
        let Some(token) = in_context(|context| context.token) else {
            return;
        };
        if !token.stop_possible() {
            return;
        }
        let (Handler::Given(handler), Some(frame)) =
            (mem::replace(&mut self.handler, Handler::Gone), Header::current())
        else {
            return;
        };
        if token.stop_requested() {
            call(Some(handler));
            return;
        }
        // SAFETY: this is what the frame's poll is running; it is pinned, and detached before it goes.
        unsafe { Attached::attach(NonNull::from(&self.attached), frame) };
        self.handler = Handler::Installed(StopCallback::new(token, handler));
        if let Handler::Installed(callback) = &mut self.handler {
            // SAFETY: it is pinned with this, and stays in its place until this goes, or the operation has ended.
            unsafe { Pin::new_unchecked(callback) }.register();
        }
    }
}

impl<H: FnOnce() + Send, F> WithCancellationHandler<H, F> {
    const ATTACHED: &'static AttachedVtable = &AttachedVtable {
        leave: Self::leave,
        running: None,
    };

    /// Takes the handler back.
    fn remove(&mut self) {
        if let Handler::Installed(callback) = &self.handler {
            if callback.withdraw_inside() {
                // It is in no list any more, so the source is not needed; and the frame does not wait for what we are in.
                self.attached.detach();
            } else {
                let mut late = None;
                self.attached
                    .detach_with(|| late = callback.withdraw(|returned| wait_until(returned)));
                call(late);
            }
        }
        self.handler = Handler::Gone;
    }

    /// # Safety
    ///
    /// It is attached.
    unsafe fn leave(attached: NonNull<Attached>) -> Transfer {
        // SAFETY: it is a field of such a future, which is there until it has left.
        let this = unsafe { container_of!(attached, Self, attached).as_ref() };
        let late = match &this.handler {
            Handler::Installed(callback) => callback.withdraw(|returned| wait_until(returned)),
            _ => None,
        };
        this.attached.left();
        call(late);
        Transfer::none()
    }
}

/// Calls a handler. What panics in there has been reported by the hook.
fn call<H: FnOnce()>(handler: Option<H>) {
    if let Some(handler) = handler {
        drop(Panic::catch(handler));
    }
}

impl<H: FnOnce() + Send + 'static, F: Future> Future for WithCancellationHandler<H, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<F::Output> {
        // SAFETY: nothing is moved but the handler, before it is installed.
        let this = unsafe { self.get_unchecked_mut() };
        if let Handler::Given(_) = this.handler {
            this.install();
        }
        // SAFETY: it is pinned with this.
        let polled = unsafe { Pin::new_unchecked(&mut this.operation) }.poll(cx);
        if polled.is_ready() {
            this.remove();
        }
        polled
    }
}

impl<H: FnOnce() + Send, F> Drop for WithCancellationHandler<H, F> {
    fn drop(&mut self) {
        self.remove();
    }
}

impl<H: FnOnce() + Send, F> fmt::Debug for WithCancellationHandler<H, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithCancellationHandler").finish_non_exhaustive()
    }
}
