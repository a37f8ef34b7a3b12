//! Handlers that run when the current task is cancelled.

use core::cell::UnsafeCell;
use core::future::{Future, IntoFuture};
use core::marker::PhantomPinned;
use core::mem;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll, ready};

use super::frame::{self, Block, BlockContent, Header, Polling};
use super::strand::Context;
use crate::sender::current;
use crate::stop::{ErasedStopToken, StopSlot, StopToken};
use crate::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Acquire, Release},
};
use crate::{Panic, Transfer};

/// Runs a future, or awaits a sender, and calls `handler` if the task is cancelled before the operation has ended.
///
/// A handler can end an operation that does not know this crate's stop tokens. It is called at most once, on the cancelling
/// thread, while the operation runs on. The operation decides how it ends. In a task that is already cancelled, the handler is
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
/// A block of the frame's memory, in which the handler is stored. A frame keeps its blocks, and uses them again. The
/// operation may borrow, and need not be `Send`. The handler must be `Send + 'static`, since other threads call it and this
/// future can be forgotten.
pub fn with_cancellation_handler<H, F>(handler: H, operation: F) -> WithCancellationHandler<H, F::IntoFuture>
where
    H: FnOnce() + Send + 'static,
    F: IntoFuture,
{
    WithCancellationHandler {
        operation: operation.into_future(),
        output: None,
        handler: CancellationHandler::Given(handler),
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
    _pinned: PhantomPinned,
}

enum CancellationHandler<H: FnOnce() + Send + 'static> {
    Given(H),
    /// In the memory of a frame, to which this holds a reference.
    Installed(NonNull<Installed<H>>),
    /// Called or removed, or the task cannot be cancelled.
    Gone,
}

// SAFETY: the handler and the output are `Send`. The installed block is accessed according to `is_claimed`.
unsafe impl<H: FnOnce() + Send, F: Future<Output: Send> + Send> Send for WithCancellationHandler<H, F> {}

/// A handler in the memory of its frame. `slot` is first, so both have the same address.
///
/// Until `done`, it counts as an await of the frame and a user of `context`.
#[repr(C)]
struct Installed<H> {
    slot: StopSlot<ErasedStopToken>,
    frame: NonNull<Header>,
    /// The context in which it was installed. Valid until `done`.
    context: NonNull<Context>,
    /// Whether `handler` has an owner: the cancelling thread, which calls it, or the party that removes it, which is the future or the
    /// ending frame. Set once, by a swap with `AcqRel`; the party that sets it is the owner.
    is_claimed: AtomicBool,
    /// Set when the handler has returned or was removed, so no other thread uses the block. Stored with release by the owner of
    /// the claim; pairs with the acquire loads of the future and of the frame.
    done: AtomicBool,
    /// Set when the future was dropped while the handler ran. Stored with release by the future; pairs with the frame's acquire
    /// load.
    gone: AtomicBool,
    handler: UnsafeCell<Option<H>>,
}

impl<H: FnOnce() + Send + 'static> Installed<H> {
    /// Installs a handler, or calls it if the task is already cancelled.
    fn install(handler: H, polling: Polling<'_>) -> Option<NonNull<Self>> {
        let context = polling.context();
        let token = context.token;
        if !token.stop_possible() {
            return None;
        }
        let this = polling.allocate(Installed {
            slot: StopSlot::new(Self::fire),
            frame: polling.frame(),
            context: NonNull::from(context),
            is_claimed: AtomicBool::new(false),
            done: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            handler: UnsafeCell::new(Some(handler)),
        });
        context.enter();
        polling.hold();
        polling.count_wait();
        // SAFETY: the block is alive until the frame is done. Before that the slot is left by `remove`, or released by `fire`.
        unsafe {
            if !StopSlot::listen(this.cast(), token) {
                // A stop was requested before: `remove` calls the handler.
                Self::remove(this);
                Self::release(this);
                return None;
            }
            Some(this)
        }
    }

    /// Calls the handler, as the callback of the token.
    ///
    /// # Safety
    ///
    /// `slot` is the first field of an `Installed<H>` block.
    unsafe fn fire(slot: NonNull<StopSlot<ErasedStopToken>>) -> Transfer {
        let this = slot.cast::<Self>();
        // SAFETY: if the claim is lost, `remove` waits in `leave` for the release, and the block is alive until then. If it is
        // won, block, context and frame are alive until `done` is set and the await count released.
        unsafe {
            if this.as_ref().is_claimed.swap(true, AcqRel) {
                slot.as_ref().release();
                return Transfer::none();
            }
            slot.as_ref().release();
            call((*this.as_ref().handler.get()).take());
            let (frame, context) = (this.as_ref().frame, this.as_ref().context);
            context.as_ref().exit();
            this.as_ref().done.store(true, Release);
            // Releases the await count, which kept the frame alive until here.
            Header::end_await(frame, this.cast(), |_| false)
        }
    }

    /// Removes the handler, if it was not called. Calls it if a stop was requested that has not reached the slot.
    ///
    /// # Safety
    ///
    /// The block is alive until this returns.
    unsafe fn remove(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        let installed = unsafe { this.as_ref() };
        if installed.is_claimed.swap(true, AcqRel) {
            return;
        }
        // A concurrent callback loses the claim and only releases the slot.
        installed.slot.leave();
        // SAFETY: this owns the handler. Context and frame are valid until the await count is released, here, after `done`.
        unsafe {
            let handler = (*installed.handler.get()).take();
            let is_late = installed.context.as_ref().token.stop_requested();
            if is_late {
                call(handler);
            } else {
                drop(Panic::catch(move || drop(handler)));
            }
            installed.context.as_ref().exit();
            let frame = installed.frame;
            installed.done.store(true, Release);
            Polling::with_frame(frame, |polling| match polling {
                Some(polling) => polling.uncount_wait(),
                None => Header::end_wait(frame, |_| false).run(),
            });
        }
    }

    /// Releases the future's use of the block. If the handler still runs, the frame frees the block later.
    ///
    /// # Safety
    ///
    /// The caller is the future, and does not use the block afterwards. The handler was removed, or has fired.
    unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the future's reference to the frame is released last. After `done` no other party uses the block.
        unsafe {
            let frame = this.as_ref().frame;
            if this.as_ref().done.load(Acquire) {
                Block::end(this);
            } else {
                Polling::with_frame(frame, |polling| polling.map(Polling::add_orphan));
                this.as_ref().gone.store(true, Release);
            }
            Header::unhold(frame);
        }
    }
}

// SAFETY: no other party uses a block that is `done` and `gone`. Its handler was taken out, so it needs no destructor.
unsafe impl<H: FnOnce() + Send + 'static> BlockContent for Installed<H> {
    unsafe fn abandon(this: NonNull<Self>, _: Polling<'_>) -> Transfer {
        // SAFETY: the caller's promise: the block is in the memory of the frame that the caller polls.
        unsafe { Self::remove(this) };
        Transfer::none()
    }

    unsafe fn sweep(this: NonNull<Self>) -> bool {
        // SAFETY: the caller's promise.
        let this = unsafe { this.as_ref() };
        this.gone.load(Acquire) && this.done.load(Acquire)
    }
}

/// Calls a handler outside of the current task. A panic went through the panic hook, and is dropped.
fn call<H: FnOnce()>(handler: Option<H>) {
    if let Some(handler) = handler {
        let _hidden = current::Hidden::from_poll();
        drop(Panic::catch(handler));
    }
}

impl<H: FnOnce() + Send + 'static, F: Future> WithCancellationHandler<H, F> {
    /// Removes the handler. Pending while it runs on another thread: its return wakes the task, and the waker of another executor in it.
    fn poll_removed(&mut self, cx: &Cx<'_>) -> Poll<()> {
        let CancellationHandler::Installed(installed) = self.handler else {
            return Poll::Ready(());
        };
        // SAFETY: the future owns the block until it calls `release`.
        let handler = unsafe {
            Installed::remove(installed);
            installed.as_ref()
        };
        let has_returned = || handler.done.load(Acquire);
        let has_returned = has_returned()
            || frame::frame_of(cx.waker()) != Some(handler.frame)
                && Polling::with_frame(handler.frame, |polling| match polling {
                    Some(polling) => polling.wakes_also(installed.cast(), cx.waker(), has_returned),
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
        unsafe { Installed::release(installed) };
        Poll::Ready(())
    }
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
                    && let Some(installed) = Installed::install(handler, polling)
                {
                    this.handler = CancellationHandler::Installed(installed);
                }
            });
        }
        // An output was kept if the operation ended while the handler ran: the operation must not be polled again.
        let output = match this.output.take() {
            Some(output) => output,
            // SAFETY: `operation` is structurally pinned.
            None => ready!(unsafe { Pin::new_unchecked(&mut this.operation) }.poll(cx)),
        };
        // A handler that runs on another thread must not outlive this future: the output waits for its return.
        if this.poll_removed(cx).is_pending() {
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
                Installed::remove(installed);
                Installed::release(installed);
            }
        }
    }
}

crate::opaque!([H: FnOnce() + Send + 'static, F: Future] WithCancellationHandler<H, F>);
