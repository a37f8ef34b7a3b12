//! Awaiting a sender: the bridge from senders to futures.

use core::convert::Infallible;
use core::future::Future;
use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop};
use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::task::{Context as Cx, Poll};

use super::{AwaitBlock, Foreign, foreign, run_inline};
use crate::task::frame::{Polling, Site};
use crate::{Completion, Sender};

/// An awaited sender, created by `.await` or by [`IntoFuture::into_future`]. The first poll starts the sender.
///
/// It is public for coroutine types of your own: `SenderFuture::new(sender)` does for any sender, also in generic code, what
/// `.await` does for those of this crate. The second parameter follows from the first, and is left out.
///
/// **In a task** the operation lives in the memory of the task's frame, and the task is resumed on its own scheduler.
///
/// **In other executors**, and under their wakers inside a task (those of `FuturesUnordered`, for example), the executor is the
/// scheduler in the sender's environment: scheduled work wakes it, and runs when it polls. Inside a task the rest of the
/// environment is the task's, and the task ends after the sender has completed. The first poll decides between the two.
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
/// A value is `Ok`, an error is `Err`. A sender that **stops** stops the awaiting task, which is not resumed; outside of a
/// task, this panics. Await [`stopped_as_option`](Sender::stopped_as_option), [`stopped_as_error`](Sender::stopped_as_error) or
/// [`into_outcome`](Sender::into_outcome) to see the stop. If the task awaits the future again, as after a deadline in which it has
/// stopped, that stops the task again. After it was ready, it is pending forever.
///
/// # Panics
///
/// The sender's panic unwinds. Panics if it is polled in another task than at its first poll, before the sender has completed.
/// Panics if the frame's allocator has no memory.
///
/// # Cancellation
///
/// The sender sees the task's stop token, combined with that of this await. Dropping this before the completion asks the sender
/// to stop, and returns at once. Inside a task the operation stays alive in the memory of the frame, and the task ends after
/// it.
///
/// In another executor the drop runs the queued work and detaches the rest: the operation continues until it has completed, and
/// its result is dropped. Work that it schedules afterwards runs on the [global pool](crate::scheduler::ThreadPool::global). A
/// task inside does not resume after its current `.await`; the futures of [local tasks](crate::task::LocalTask) are dropped in
/// place.
///
/// # Allocation
///
/// None for a sender that completes inside `start`, as its [`COMPLETES`](Sender::COMPLETES) declares. In a task, a
/// block of the frame's memory, which the frame keeps for the next await. Elsewhere one, for the operation.
#[must_use = "futures do nothing until they are awaited"]
pub struct SenderFuture<S, A = AwaitedSender<S>> {
    awaiting: A,
    /// The sender that was passed to `new`; invariant.
    _sender: PhantomData<fn(S) -> S>,
}

// For an `async` block, the compiler checks this with lifetimes erased, and may not see that `S` is a sender. So the only bound
// is `S: Send`, and what needs to know more is behind a parameter of its own.
// SAFETY: a `Send` sender may be started, and its operation dropped, on another thread. Its results are `Send`, by the bounds
// of `new`.
unsafe impl<S: Send, A> Send for SenderFuture<S, A> {}

impl<S: Sender<Value: Send, Error: Send>> SenderFuture<S> {
    /// Awaits a sender.
    #[cfg_attr(feature = "inspect", track_caller)]
    #[inline]
    pub fn new(sender: S) -> Self {
        SenderFuture::at(Site::here(), sender)
    }

    /// Awaits a sender at a place in the program.
    #[inline]
    pub(in crate::task) fn at(site: Site, sender: S) -> Self {
        SenderFuture {
            awaiting: AwaitedSender(ManuallyDrop::new(AwaitStage::Sender(sender)), site),
            _sender: PhantomData,
        }
    }
}

// The operation is not stored inside.
impl<S, A> Unpin for SenderFuture<S, A> {}

impl<S: Sender<Value: Send, Error: Send>> SenderFuture<S> {
    /// Returns whether the sender has stopped.
    pub(in crate::task) fn has_stopped(&self) -> bool {
        matches!(*self.awaiting.0, AwaitStage::Stopped)
    }
}

impl<S, A: Future> Future for SenderFuture<S, A> {
    type Output = A::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        // SAFETY: nothing inside is pinned: an operation in flight is in the memory of a frame, or on the heap.
        let awaiting = unsafe { &mut self.get_unchecked_mut().awaiting };
        // SAFETY: nothing inside is pinned, as above.
        unsafe { Pin::new_unchecked(awaiting) }.poll(cx)
    }
}

crate::opaque!([S, A] SenderFuture<S, A>);

/// An awaited sender that cannot fail: a [`SenderFuture`] that returns the plain value. Created by `.await` on
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
    #[cfg_attr(feature = "inspect", track_caller)]
    #[inline]
    pub fn new(sender: S) -> Self {
        ValueFuture::at(Site::here(), sender)
    }

    /// Awaits a sender at a place in the program.
    #[inline]
    pub(in crate::task) fn at(site: Site, sender: S) -> Self {
        ValueFuture(SenderFuture::at(site, sender))
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

/// The contents of a [`SenderFuture`].
///
/// Dropped by hand, so that the compiler sees that the stage `Over` needs no drop.
pub struct AwaitedSender<S: Sender<Value: Send, Error: Send>>(ManuallyDrop<AwaitStage<S>>, Site);

enum AwaitStage<S: Sender<Value: Send, Error: Send>> {
    Sender(S),
    /// Started in a task, whose frame has the block. The future holds a reference to the frame.
    Started(NonNull<AwaitBlock<S>>),
    /// Started outside of a task, or under the waker of another executor inside one.
    Foreign(Foreign<S::Value, S::Error>),
    /// The result was taken, or the sender panicked in `connect`.
    Over,
    /// The sender has stopped, and so each poll stops the task again: a task may await this in a deadline, and then outside of it.
    Stopped,
}

impl<S: Sender<Value: Send, Error: Send>> AwaitedSender<S> {
    /// Takes the result, if there is one.
    #[inline]
    fn check(&mut self, block: NonNull<AwaitBlock<S>>, polling: Polling<'_>) -> Poll<Result<S::Value, S::Error>> {
        // SAFETY: the future owns the block.
        unsafe {
            if block.as_ref().shared.core.is_done() {
                // The stage contains nothing that needs a drop.
                ptr::write(&raw mut *self.0, AwaitStage::Over);
                return match AwaitBlock::take(block) {
                    Completion::Value(value) => Poll::Ready(Ok(value)),
                    Completion::Error(error) => Poll::Ready(Err(error)),
                    ended => self.end_here(polling, ended),
                };
            }
            if block.as_ref().shared.core.frame != polling.frame() {
                sent_elsewhere();
            }
            match block.as_ref().shared.core.began_in_context_of(polling) {
                true => polling.waits_for::<S>(self.1),
                false => polling.waits_outside_for::<S>(self.1),
            }
        }
        Poll::Pending
    }

    /// Runs a sender that completes inside `start`, in the task that this thread polls, if any. Only an end without a result depends
    /// on the waker.
    #[inline(always)]
    fn poll_inline(&mut self, cx: &Cx<'_>) -> Poll<Result<S::Value, S::Error>> {
        let AwaitStage::Sender(sender) = &mut *self.0 else {
            return Poll::Pending;
        };
        // SAFETY: only the sender is moved out, as the stage may be larger; its place is overwritten without a drop.
        let sender = unsafe {
            let sender = ptr::read(sender);
            ptr::write(&raw mut *self.0, AwaitStage::Over);
            sender
        };
        match Polling::with(|polling| run_inline(sender, polling)) {
            Completion::Value(value) => Poll::Ready(Ok(value)),
            Completion::Error(error) => Poll::Ready(Err(error)),
            ended => match Polling::with_waker_of(cx) {
                Some(polling) => self.end_here(polling, ended),
                None => Poll::Ready(foreign::conclude(ended)),
            },
        }
    }

    /// Stops the task, or resumes the panic.
    #[cold]
    #[inline(never)]
    fn end_here(
        &mut self,
        polling: Polling<'_>,
        completion: Completion<S::Value, S::Error>,
    ) -> Poll<Result<S::Value, S::Error>> {
        if let Completion::Stopped = completion {
            *self.0 = AwaitStage::Stopped;
        }
        end_here(polling, completion)
    }

    /// Polls outside of a task, or under the waker of another executor inside one.
    #[cold]
    #[inline(never)]
    fn poll_foreign(&mut self, cx: &Cx<'_>) -> Poll<Result<S::Value, S::Error>>
    where
        S: 'static,
    {
        let completion = match mem::replace(&mut *self.0, AwaitStage::Over) {
            AwaitStage::Over => return Poll::Pending,
            AwaitStage::Stopped => Completion::Stopped,
            AwaitStage::Started(block) => {
                *self.0 = AwaitStage::Started(block);
                // SAFETY: the future owns the block.
                let state = unsafe { &block.as_ref().shared.core };
                let is_done = state.is_done()
                    || Polling::with_frame(state.frame, |polling| match polling {
                        Some(polling) => {
                            let began_here = state.began_in_context_of(polling);
                            polling.wakes_also(block.cast(), cx.waker(), began_here, || state.is_done())
                        }
                        None => sent_elsewhere(),
                    });
                if !is_done {
                    return Poll::Pending;
                }
                *self.0 = AwaitStage::Over;
                // SAFETY: the future owns the block, which is done.
                unsafe { AwaitBlock::take(block) }
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
        if let Completion::Stopped = completion {
            *self.0 = AwaitStage::Stopped;
        }
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
        // SAFETY: nothing inside is pinned.
        let this = unsafe { self.get_unchecked_mut() };
        if S::COMPLETES.is_inline() {
            return this.poll_inline(cx);
        }
        let Some(polling) = Polling::with_waker_of(cx) else {
            return this.poll_foreign(cx);
        };
        match &mut *this.0 {
            AwaitStage::Sender(sender) => {
                // SAFETY: only the sender is moved out, as the stage may be larger; its place is overwritten without a drop.
                let sender = unsafe {
                    let sender = ptr::read(sender);
                    ptr::write(&raw mut *this.0, AwaitStage::Over);
                    sender
                };
                let block = AwaitBlock::start(sender, polling);
                // SAFETY: the stage is `Over`, so the overwritten value needs no drop.
                unsafe { ptr::write(&raw mut *this.0, AwaitStage::Started(block)) };
                // SAFETY: the future owns the block.
                if !unsafe { block.as_ref() }.shared.core.is_done() {
                    polling.waits_for::<S>(this.1);
                    return Poll::Pending;
                }
                this.check(block, polling)
            }
            AwaitStage::Started(block) => {
                let block = *block;
                let polled = this.check(block, polling);
                if polled.is_ready() {
                    // Shows the compiler that nothing is left to drop.
                    // SAFETY: the stage is `Over`, so the overwritten value needs no drop.
                    unsafe { ptr::write(&raw mut *this.0, AwaitStage::Over) };
                }
                polled
            }
            AwaitStage::Foreign(_) => this.poll_foreign(cx),
            AwaitStage::Over => Poll::Pending,
            AwaitStage::Stopped => end_here(polling, Completion::Stopped),
        }
    }
}

/// Panics because a future that began in one task is polled in another, or in none.
#[cold]
pub(in crate::task) fn sent_elsewhere() -> ! {
    panic!("a sender that is awaited in a task was sent elsewhere: await it in the task where that began")
}

/// Returns the completion as the awaiting code sees it.
#[inline]
pub(in crate::task) fn conclude<T, E>(polling: Polling<'_>, completion: Completion<T, E>) -> Poll<Result<T, E>> {
    match completion {
        Completion::Value(value) => Poll::Ready(Ok(value)),
        Completion::Error(error) => Poll::Ready(Err(error)),
        ended => end_here(polling, ended),
    }
}

/// Stops the task, or resumes the panic.
#[cold]
#[inline(never)]
fn end_here<T, E>(polling: Polling<'_>, completion: Completion<T, E>) -> Poll<Result<T, E>> {
    if let Completion::Panicked(payload) = completion {
        payload.resume();
    }
    polling.stop_here();
    Poll::Pending
}

impl<S: Sender<Value: Send, Error: Send>> Drop for AwaitedSender<S> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(*self.0, AwaitStage::Over | AwaitStage::Stopped) {
            self.end();
        }
    }
}

impl<S: Sender<Value: Send, Error: Send>> AwaitedSender<S> {
    /// Drops the current stage.
    #[inline(never)]
    fn end(&mut self) {
        match *self.0 {
            // SAFETY: the future owns the block, and does not use it afterwards.
            AwaitStage::Started(block) => unsafe { AwaitBlock::leave(block) },
            // SAFETY: called by the drop of the whole, so the stage is dropped once.
            _ => unsafe { ManuallyDrop::drop(&mut self.0) },
        }
    }
}

crate::opaque!([S: Sender<Value: Send, Error: Send>] AwaitedSender<S>);
