//! Handlers that run when the current task is cancelled.

use core::future::{Future, IntoFuture};
use core::marker::PhantomPinned;
use core::mem;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};

use super::frame::{self, Activity, Awaited, Polling, Site};
use super::strand::StopHandler;
use crate::sender::unwind::OnDrop;

/// Runs a future, or awaits a sender, and calls `handler` if the task is cancelled before the operation has ended.
///
/// A handler ends an operation of another crate in the way that suits that: it closes a channel, or wakes a thread. It is called
/// at most once, on the cancelling thread, while the operation runs on. The operation decides how it ends, and is never dropped
/// because of the cancellation. In a task that is already cancelled, the handler is
/// called before the operation starts, on the polling thread. The handler is not part of the task: inside,
/// [`current`](super::current()) returns `None`.
///
/// If the operation ends before the cancellation has reached the handler, the task itself calls the handler.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::stop::StopSource;
/// use bowline::task::{self, Task};
///
/// // A channel of another crate, closed when the task is cancelled.
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
/// Cancelled means that [`is_cancelled`](super::is_cancelled) returns `true` where this is awaited. Outside of tasks the
/// handler is never called.
///
/// # Panics
///
/// The operation's panic unwinds. A panic of the handler is passed to the panic hook and otherwise ignored: the other handlers
/// run, and the cancellation continues.
///
/// # Cancellation
///
/// The handler is called outside of any lock of this crate. It may complete operations, cancel, spawn, and drop this future.
///
/// The end of the operation removes the handler. If the handler is running on another thread then, this future becomes ready
/// after it has returned; no thread blocks. Dropping this future removes the handler too, and the task ends only after a
/// running handler has returned. So a handler may block, but not on its own task. Forgetting this future, or sending it away,
/// keeps the handler installed until the task ends.
///
/// # Allocation
///
/// None once the frame has a chunk of memory, which it allocates when it first suspends: the handler is stored there. The
/// operation may borrow, and need not be `Send`. The handler must be `Send + 'static`, since other threads call it and this
/// future can be forgotten.
#[cfg_attr(feature = "inspect", track_caller)]
pub fn with_cancellation_handler<H, F>(handler: H, operation: F) -> WithCancellationHandler<H, F::IntoFuture>
where
    H: FnOnce() + Send + 'static,
    F: IntoFuture,
{
    WithCancellationHandler {
        operation: operation.into_future(),
        output: None,
        handler: CancellationHandler::Given(handler),
        site: Site::here(),
        _pinned: PhantomPinned,
    }
}

/// The future of [`with_cancellation_handler`].
#[must_use = "futures do nothing until they are awaited"]
pub struct WithCancellationHandler<H: FnOnce() + Send + 'static, F: Future> {
    operation: F,
    /// The operation's output, while the handler runs on another thread.
    output: Option<F::Output>,
    handler: CancellationHandler<H>,
    site: Site,
    _pinned: PhantomPinned,
}

enum CancellationHandler<H: FnOnce() + Send + 'static> {
    Given(H),
    /// In the memory of a frame, to which this holds a reference.
    Installed(NonNull<StopHandler<H>>),
    /// Called or removed, or the task cannot be cancelled.
    Gone,
}

// SAFETY: the handler and the output are `Send`. The installed block is accessed according to its claim.
unsafe impl<H: FnOnce() + Send, F: Future<Output: Send> + Send> Send for WithCancellationHandler<H, F> {}

impl<H: FnOnce() + Send + 'static, F: Future> WithCancellationHandler<H, F> {
    /// Removes the handler. Pending while it runs on another thread: its return wakes the task, and the waker of another executor in it.
    fn poll_removed(&mut self, cx: &Cx<'_>) -> Poll<()> {
        let CancellationHandler::Installed(installed) = self.handler else {
            return Poll::Ready(());
        };
        // SAFETY: the future owns the block until it calls `release`.
        let handler = unsafe {
            StopHandler::remove(installed);
            installed.as_ref()
        };
        let has_returned = || handler.is_done();
        let has_returned = has_returned()
            || frame::frame_of(cx.waker()) != Some(handler.frame)
                && Polling::with_frame(handler.frame, |polling| match polling {
                    Some(polling) => {
                        let began_here = handler.began_in_context_of(polling);
                        polling.wakes_also(installed.cast(), cx.waker(), began_here, has_returned)
                    }
                    None => {
                        // The future was sent away from its task, which may end before it: poll again.
                        cx.waker().wake_by_ref();
                        false
                    }
                });
        if !has_returned {
            return Poll::Pending;
        }
        self.handler = CancellationHandler::Gone;
        // SAFETY: the handler was removed or has fired, and the block is not used afterwards.
        unsafe { StopHandler::release(installed) };
        Poll::Ready(())
    }
}

/// Polls an operation. Its futures of other crates are not dropped because of a stop, which the handler answers.
fn handled<T>(poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
    Polling::with(|polling| {
        let Some(polling) = polling else { return poll() };
        let outside = polling.set_handled(true);
        let _restore = OnDrop(|| _ = polling.set_handled(outside));
        let polled = poll();
        if polled.is_pending() {
            polling.waits();
        }
        polled
    })
}

impl<H: FnOnce() + Send + 'static, F: Future> Future for WithCancellationHandler<H, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<F::Output> {
        // SAFETY: only the handler and the output are moved, and they are not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        // The first poll installs the handler, because only a poll knows the frame.
        if matches!(this.handler, CancellationHandler::Given(_)) {
            Polling::with(|polling| {
                if let Some(polling) = polling
                    && let CancellationHandler::Given(handler) =
                        mem::replace(&mut this.handler, CancellationHandler::Gone)
                    && let Some(installed) = StopHandler::new(handler, polling)
                {
                    this.handler = CancellationHandler::Installed(installed);
                }
            });
        }
        // An output was kept if the operation ended while the handler ran: the operation must not be polled again.
        let output = match this.output.take() {
            Some(output) => output,
            // SAFETY: `operation` is structurally pinned.
            None => match handled(|| unsafe { Pin::new_unchecked(&mut this.operation) }.poll(cx)) {
                Poll::Ready(output) => output,
                Poll::Pending => {
                    Activity::with(|activity| activity.awaits_around(this.site));
                    return Poll::Pending;
                }
            },
        };
        // A handler that runs on another thread must not outlive this future: the output waits for its return.
        if this.poll_removed(cx).is_pending() {
            Polling::with(|polling| _ = polling.map(Polling::waits));
            Activity::with(|activity| activity.awaits_what(Awaited::HANDLER, this.site));
            this.output = Some(output);
            return Poll::Pending;
        }
        Poll::Ready(output)
    }
}

impl<H: FnOnce() + Send + 'static, F: Future> Drop for WithCancellationHandler<H, F> {
    fn drop(&mut self) {
        if let CancellationHandler::Installed(installed) = self.handler {
            // SAFETY: the future owns the block, and does not use it after this.
            unsafe {
                StopHandler::remove(installed);
                StopHandler::release(installed);
            }
            // The poll may have noted that it waits for this. The next poll finds out what else it waits for.
            Polling::with(|polling| _ = polling.map(Polling::poll_again));
        }
    }
}

crate::opaque!([H: FnOnce() + Send + 'static, F: Future] WithCancellationHandler<H, F>);
