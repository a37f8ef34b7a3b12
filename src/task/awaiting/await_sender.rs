//! Awaiting a sender: the bridge from senders to futures.

use core::convert::Infallible;
use core::future::Future;
use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop};
use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::task::{Context as Cx, Poll};

use super::{AwaitBlock, Foreign, foreign, run_inline};
use crate::task::frame::{Header, Polling};
use crate::{Completion, Sender};

/// A sender that is awaited. Made by `.await`, or by [`IntoFuture::into_future`]. It starts the sender when it is first
/// polled.
///
/// This is the bridge from senders to futures, and open to coroutine types of your own: `SenderFuture::new(sender)` does for
/// any sender, in code that is generic over it too, what `.await` does for those of this crate. The second parameter
/// follows from the first, and is left out.
///
/// **In a task** the operation lives in the memory of the task's frame, and the task is resumed on its own scheduler.
///
/// **In the other executors**, and under what polls with wakers of its own inside a task (`FuturesUnordered`, say), that
/// executor is the scheduler in the sender's environment: what is scheduled there wakes it, and runs when it polls. Inside a task
/// all else of the environment is the task's, and the task does not end before the sender has completed. The first poll decides
/// which of the two it is.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::ThreadPool;
///
/// let work = async {
///     let Ok(six) = just(6).await;
///     let Ok(seven) = starts_on(ThreadPool::global().scheduler(), just_from(|| 7)).await;
///     six * seven
/// };
/// assert_eq!(pollster::block_on(work), 42);
/// ```
///
/// # Completions
///
/// A value is `Ok`, an error is `Err`. A sender that **stops** stops the task that awaits it, which is not resumed; where
/// there is no task, this panics. Await it with [`stopped_as_option`](Sender::stopped_as_option),
/// [`stopped_as_error`](Sender::stopped_as_error) or [`into_outcome`](Sender::into_outcome) to see the stop. Polled again
/// after it was ready, it is pending for ever.
///
/// # Panics
///
/// The sender's panic unwinds. It also panics when it is sent out of its task after its first poll, and polled there before
/// the sender has completed; and when the frame's allocator has no memory.
///
/// # Cancellation
///
/// The sender sees the task's stop token, and that of this await alone: dropped before the sender has completed, this
/// asks it to stop, and returns at once. Inside a task the operation stays alive in the memory of the frame, and the task does
/// not end before it has.
///
/// In another executor it runs what is queued, and leaves the rest to itself: the operation goes on until it has completed, and
/// its result is dropped. What it schedules from then on runs on the [global
/// pool](crate::scheduler::ThreadPool::global). A task in there goes no further than the `.await` it is at; the futures of [local
/// tasks](crate::task::LocalTask) are dropped right there.
///
/// # Allocation
///
/// None for a sender that completes inside `start`, by its [`COMPLETES`](Sender::COMPLETES). In a task, none once the frame has
/// a chunk of memory, which it gets when it first suspends. Elsewhere one, which holds the operation.
///
/// # Stack
///
/// Constant: a completion resumes the task from the driver's loop, and not from inside.
#[must_use = "futures do nothing until they are awaited"]
pub struct SenderFuture<S, A = AwaitedSender<S>> {
    awaiting: A,
    /// It is always the sender that was given to `new`.
    _sender: PhantomData<fn(S) -> S>,
}

// The compiler asks this of an `async` block with the lifetimes in its types forgotten, and may not see then that `S` is a
// sender. So nothing is asked of it but to be `Send`, and what needs to know more is behind a parameter of its own.
// SAFETY: a sender that is `Send` may be started, and its operation dropped, on another thread. Its results are `Send`, by
// the bounds of `new`.
unsafe impl<S: Send, A> Send for SenderFuture<S, A> {}

impl<S: Sender<Value: Send, Error: Send>> SenderFuture<S> {
    /// Awaits a sender.
    #[inline]
    pub fn new(sender: S) -> Self {
        SenderFuture {
            awaiting: AwaitedSender(ManuallyDrop::new(AwaitStage::Sender(sender))),
            _sender: PhantomData,
        }
    }
}

// The operation is not in there.
impl<S, A> Unpin for SenderFuture<S, A> {}

impl<S, A: Future> Future for SenderFuture<S, A> {
    type Output = A::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        // SAFETY: nothing in it is pinned: an operation in flight is in the memory of a frame, or of the heap.
        let awaiting = unsafe { &mut self.get_unchecked_mut().awaiting };
        // SAFETY: as above.
        unsafe { Pin::new_unchecked(awaiting) }.poll(cx)
    }
}

crate::opaque!([S, A] SenderFuture<S, A>);

/// A sender that is awaited and cannot fail: a [`SenderFuture`] that gives the value itself. Made by `.await` on
/// [`sleep`](crate::task::sleep), [`yield_now`](crate::task::yield_now), schedule senders and joins of scopes; see
/// [`awaitable!`](crate::awaitable) for senders of your own.
///
/// The second parameter follows from the first, and is left out.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::ThreadPool;
/// use bowline::task::ValueFuture;
///
/// let work = async {
///     ThreadPool::global().scheduler().schedule().await;
///     ValueFuture::new(just(42)).await
/// };
/// assert_eq!(pollster::block_on(work), 42);
/// ```
#[must_use = "futures do nothing until they are awaited"]
pub struct ValueFuture<S, A = AwaitedSender<S>>(SenderFuture<S, A>);

impl<S: Sender<Value: Send, Error = Infallible>> ValueFuture<S> {
    /// Awaits a sender that cannot fail.
    #[inline]
    pub fn new(sender: S) -> Self {
        ValueFuture(SenderFuture::new(sender))
    }
}

impl<S, A: Future<Output = Result<T, Infallible>>, T> Future for ValueFuture<S, A> {
    type Output = T;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<T> {
        match Pin::new(&mut self.0).poll(cx) {
            Poll::Ready(Ok(value)) => Poll::Ready(value),
            Poll::Pending => Poll::Pending,
        }
    }
}

crate::opaque!([S, A] ValueFuture<S, A>);

/// What is in a [`SenderFuture`].
///
/// What is over need not be dropped, and the compiler sees that: hence the drop by hand.
pub struct AwaitedSender<S: Sender<Value: Send, Error: Send>>(ManuallyDrop<AwaitStage<S>>);

enum AwaitStage<S: Sender<Value: Send, Error: Send>> {
    Sender(S),
    /// Started in a task, whose frame has the block. The future holds a reference of that frame.
    Started(NonNull<AwaitBlock<S>>),
    /// Started outside of a task, or with the waker of something else in one.
    Foreign(Foreign<S::Value, S::Error>),
    /// The result was taken, or the sender panicked when it was connected.
    Over,
}

impl<S: Sender<Value: Send, Error: Send>> AwaitedSender<S> {
    /// Takes the result, if it is there.
    #[inline]
    fn check(&mut self, block: NonNull<AwaitBlock<S>>, polling: Polling<'_>) -> Poll<Result<S::Value, S::Error>> {
        // SAFETY: the future has the block.
        unsafe {
            if block.as_ref().shared.state.is_done() {
                // There is nothing in the stage to be dropped.
                ptr::write(&raw mut *self.0, AwaitStage::Over);
                return conclude(polling, AwaitBlock::take_done(block));
            }
            if block.as_ref().shared.state.frame != polling.frame() {
                sent_elsewhere();
            }
        }
        Poll::Pending
    }

    /// Polls outside of a task, or with the waker of something else in one.
    #[cold]
    #[inline(never)]
    fn poll_foreign(&mut self, cx: &Cx<'_>) -> Poll<Result<S::Value, S::Error>>
    where
        S: 'static,
    {
        let completion = match mem::replace(&mut *self.0, AwaitStage::Over) {
            AwaitStage::Over => return Poll::Pending,
            AwaitStage::Started(block) => {
                *self.0 = AwaitStage::Started(block);
                // SAFETY: the future has the block.
                let state = unsafe { &block.as_ref().shared.state };
                if !state.is_done() {
                    if !Header::is_current(state.frame) {
                        sent_elsewhere();
                    }
                    // It wakes the task. What polls it now, in there, looks again.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                *self.0 = AwaitStage::Over;
                // SAFETY: as above.
                unsafe { AwaitBlock::take(block) }.unwrap_or(Completion::Stopped)
            }
            AwaitStage::Sender(sender) if S::COMPLETES.is_inline() => {
                Polling::with(|polling| run_inline(sender, polling))
            }
            stage => {
                let mut foreign = match stage {
                    AwaitStage::Sender(sender) => Foreign::start(sender),
                    AwaitStage::Foreign(foreign) => foreign,
                    _ => return Poll::Pending,
                };
                match foreign.poll(cx) {
                    Poll::Ready(completion) => completion,
                    Poll::Pending => {
                        *self.0 = AwaitStage::Foreign(foreign);
                        return Poll::Pending;
                    }
                }
            }
        };
        Poll::Ready(foreign::conclude(completion))
    }
}

impl<S> Future for AwaitedSender<S>
where
    S: Sender<Value: Send, Error: Send> + 'static,
{
    type Output = Result<S::Value, S::Error>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        // SAFETY: nothing in it is pinned.
        let this = unsafe { self.get_unchecked_mut() };
        let Some(polling) = Polling::with_waker_of(cx) else {
            return this.poll_foreign(cx);
        };
        match &mut *this.0 {
            AwaitStage::Sender(sender) => {
                // SAFETY: it is moved out of what is overwritten, and not dropped, next. Only this much is moved: there is room
                // for more.
                let sender = unsafe {
                    let sender = ptr::read(sender);
                    ptr::write(&raw mut *this.0, AwaitStage::Over);
                    sender
                };
                if S::COMPLETES.is_inline() {
                    return conclude(polling, run_inline(sender, Some(polling)));
                }
                let block = AwaitBlock::start(sender, polling);
                // SAFETY: the stage is over, so nothing is overwritten that is to be dropped.
                unsafe { ptr::write(&raw mut *this.0, AwaitStage::Started(block)) };
                // SAFETY: the future has the block.
                if !unsafe { block.as_ref() }.shared.state.is_done() {
                    return Poll::Pending;
                }
                this.check(block, polling)
            }
            AwaitStage::Started(block) => {
                let block = *block;
                let polled = this.check(block, polling);
                if polled.is_ready() {
                    // So that the compiler sees that nothing is left to be dropped.
                    // SAFETY: the stage is over.
                    unsafe { ptr::write(&raw mut *this.0, AwaitStage::Over) };
                }
                polled
            }
            AwaitStage::Foreign(_) => this.poll_foreign(cx),
            AwaitStage::Over => Poll::Pending,
        }
    }
}

/// A future that began in one task is polled in another, or in none.
#[cold]
pub(in crate::task) fn sent_elsewhere() -> ! {
    panic!("a sender that is awaited in a task was sent elsewhere: await it in the task where that began")
}

/// What the code that awaits gets to see.
#[inline]
pub(in crate::task) fn conclude<T, E>(polling: Polling<'_>, completion: Completion<T, E>) -> Poll<Result<T, E>> {
    match completion {
        Completion::Value(value) => Poll::Ready(Ok(value)),
        Completion::Error(error) => Poll::Ready(Err(error)),
        Completion::Panicked(payload) => payload.resume(),
        Completion::Stopped => {
            polling.stop_here();
            Poll::Pending
        }
    }
}

impl<S: Sender<Value: Send, Error: Send>> Drop for AwaitedSender<S> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(*self.0, AwaitStage::Over) {
            self.end();
        }
    }
}

impl<S: Sender<Value: Send, Error: Send>> AwaitedSender<S> {
    /// Drops what is not over.
    #[inline(never)]
    fn end(&mut self) {
        match *self.0 {
            // SAFETY: the future has the block, and goes.
            AwaitStage::Started(block) => unsafe { AwaitBlock::leave(block) },
            // SAFETY: it is dropped this once: this is the drop of the whole.
            _ => unsafe { ManuallyDrop::drop(&mut self.0) },
        }
    }
}

crate::opaque!([S: Sender<Value: Send, Error: Send>] AwaitedSender<S>);
