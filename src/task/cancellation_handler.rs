//! What is called when the task is cancelled, while it does something.

use core::cell::UnsafeCell;
use core::fmt;
use core::future::{Future, IntoFuture};
use core::marker::PhantomPinned;
use core::mem;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};

use super::frame::{self, BlockContent, Header, Polling};
use super::strand::context::Context;
use crate::sender::current;
use crate::stop::{ErasedStopToken, StopSlot, StopToken};
use crate::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{AcqRel, Acquire, Release},
};
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
/// The end of the operation takes the handler back. Where the handler is running on another thread just then, this is ready when
/// it has returned; no thread waits for that. Dropped, this takes the handler back as well, and the task does not end before a
/// handler that is running has returned. So a handler may block, but not for the task that it is of. A future that is forgotten,
/// or sent away, has its handler until the task ends.
///
/// Outside of a task there is no cancellation, and the handler is not called.
///
/// # Allocation
///
/// None once the frame of the task has a chunk of memory, which it gets when it first suspends: the handler is in there. The
/// operation may borrow, and need not be `Send`. The handler may do neither: it runs elsewhere, and a future can be forgotten.
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
    /// What the operation gave, while its handler runs on another thread.
    output: Option<F::Output>,
    handler: CancellationHandler<H>,
    _pinned: PhantomPinned,
}

enum CancellationHandler<H: FnOnce() + Send + 'static> {
    Given(H),
    /// In the memory of a frame, of which this holds a reference.
    Installed(NonNull<Installed<H>>),
    /// It was called, or taken back; or there is nothing that could cancel.
    Gone,
}

// SAFETY: the handler is `Send`; what is installed is touched by the party that claims it.
unsafe impl<H: FnOnce() + Send, F: Future<Output: Send> + Send> Send for WithCancellationHandler<H, F> {}

/// A handler in the memory of its frame. The slot comes first, so that its address is that of the whole.
///
/// It is an await of the frame, and a user of the context whose token it listens to, until it is done.
#[repr(C)]
struct Installed<H> {
    slot: StopSlot<ErasedStopToken>,
    frame: NonNull<Header>,
    /// Where it was installed. Valid until it is done.
    context: NonNull<Context>,
    /// Who has the handler:
    ///
    /// | value | means |
    /// |---|---|
    /// | `LISTENING` | the first to change this |
    /// | `FIRED` | the thread that cancels, which calls it |
    /// | `REMOVED` | the party that took it back: the future, or the frame in its end |
    ///
    /// Changed once, by an exchange that acquires and releases.
    claim: AtomicU8,
    /// The handler has returned, or was taken back: nothing of this is in flight. Stored with release by the party that has the
    /// claim; pairs with the acquire loads of the future and of the frame.
    done: AtomicBool,
    /// The future was dropped while the handler ran. Stored with release; the frame loads it with acquire.
    gone: AtomicBool,
    handler: UnsafeCell<Option<H>>,
}

const LISTENING: u8 = 0;
const FIRED: u8 = 1;
const REMOVED: u8 = 2;

impl<H: FnOnce() + Send + 'static> Installed<H> {
    /// Installs a handler, or calls it where the task is cancelled already.
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
            claim: AtomicU8::new(LISTENING),
            done: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            handler: UnsafeCell::new(Some(handler)),
        });
        context.enter();
        polling.hold();
        polling.count_wait();
        // SAFETY: the block stays until it is destroyed. The slot is left, or released by the callback, before that.
        unsafe {
            if !StopSlot::listen(this.cast(), token) {
                // It was cancelled before.
                Self::remove(this);
                Self::release(this);
                return None;
            }
            Some(this)
        }
    }

    /// The callback of the token.
    ///
    /// # Safety
    ///
    /// The slot is that of such a block.
    unsafe fn fire(slot: NonNull<StopSlot<ErasedStopToken>>) -> Transfer {
        let this = slot.cast::<Self>();
        // SAFETY: a party that takes the handler back waits for the release; the claim keeps the block until it is done.
        unsafe {
            if !this.as_ref().claim(FIRED) {
                slot.as_ref().release();
                return Transfer::none();
            }
            slot.as_ref().release();
            call((*this.as_ref().handler.get()).take());
            let (frame, context) = (this.as_ref().frame, this.as_ref().context);
            context.as_ref().exit();
            this.as_ref().done.store(true, Release);
            // The frame counts it until now.
            Header::end_wait(frame, |_| false)
        }
    }

    fn claim(&self, by: u8) -> bool {
        self.claim.compare_exchange(LISTENING, by, AcqRel, Acquire).is_ok()
    }

    /// Takes the handler back, if it was not called. One that was cancelled before the cancel has got to it is called here.
    ///
    /// # Safety
    ///
    /// The block was not destroyed, and is not before this returns.
    unsafe fn remove(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        let installed = unsafe { this.as_ref() };
        if !installed.claim(REMOVED) {
            return;
        }
        // A callback that came too late only releases the slot.
        installed.slot.leave();
        // SAFETY: the claim gives exclusive access to the handler. The context is valid until this is done.
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

    /// Gives the block up. What runs on another thread is left to the frame.
    ///
    /// # Safety
    ///
    /// The caller is the future, and does not use the block any more. The handler was taken back, or has fired.
    unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the future holds a reference of the frame.
        unsafe {
            let frame = this.as_ref().frame;
            if this.as_ref().done.load(Acquire) {
                Header::free_block(frame, this.cast());
            } else {
                Polling::with_frame(frame, |polling| polling.map(Polling::add_orphan));
                this.as_ref().gone.store(true, Release);
            }
            Header::unhold(frame);
        }
    }
}

// SAFETY: what is done and gone is used by no other party. The handler was called, so nothing is left to be destroyed.
unsafe impl<H: FnOnce() + Send + 'static> BlockContent for Installed<H> {
    unsafe fn abandon(this: NonNull<Self>, _: Polling<'_>) -> Transfer {
        // SAFETY: the caller's promise. The memory is the frame's.
        unsafe { Self::remove(this) };
        Transfer::none()
    }

    unsafe fn sweep(this: NonNull<Self>) -> bool {
        // SAFETY: the caller's promise.
        let this = unsafe { this.as_ref() };
        this.gone.load(Acquire) && this.done.load(Acquire)
    }
}

/// Calls a handler, which is not part of the task. A panic in there has been reported by the panic hook.
fn call<H: FnOnce()>(handler: Option<H>) {
    if let Some(handler) = handler {
        let _hidden = current::Hidden::from_poll();
        current::hand_over();
        drop(Panic::catch(handler));
    }
}

impl<H: FnOnce() + Send + 'static, F: Future> WithCancellationHandler<H, F> {
    /// Takes the handler back. `false` where it is running on another thread: the task is woken when it has returned.
    fn remove(&mut self) -> bool {
        let CancellationHandler::Installed(installed) = self.handler else {
            return true;
        };
        // SAFETY: this has the block.
        unsafe {
            Installed::remove(installed);
            if !installed.as_ref().done.load(Acquire) {
                return false;
            }
            self.handler = CancellationHandler::Gone;
            Installed::release(installed);
        }
        true
    }
}

impl<H: FnOnce() + Send + 'static, F: Future> Future for WithCancellationHandler<H, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<F::Output> {
        // SAFETY: nothing is moved but the handler and the output, which are not pinned.
        let this = unsafe { self.get_unchecked_mut() };
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
        let output = match this.output.take() {
            Some(output) => output,
            // SAFETY: it is pinned with this.
            None => match unsafe { Pin::new_unchecked(&mut this.operation) }.poll(cx) {
                Poll::Ready(output) => output,
                Poll::Pending => return Poll::Pending,
            },
        };
        if this.remove() {
            return Poll::Ready(output);
        }
        this.output = Some(output);
        if frame::frame_of(cx.waker()).is_none() {
            // The end of the handler wakes the task. What polls this, in there, with a waker of its own looks again.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl<H: FnOnce() + Send + 'static, F: Future> Drop for WithCancellationHandler<H, F> {
    fn drop(&mut self) {
        if !self.remove()
            && let CancellationHandler::Installed(installed) = self.handler
        {
            // SAFETY: this has the block, and goes.
            unsafe { Installed::release(installed) };
        }
    }
}

impl<H: FnOnce() + Send + 'static, F: Future> fmt::Debug for WithCancellationHandler<H, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithCancellationHandler").finish_non_exhaustive()
    }
}
