//! Awaiting a sender: the bridge from senders to futures.

use core::cell::UnsafeCell;
use core::fmt;
use core::future::Future;
use core::marker::{PhantomData, PhantomPinned};
use core::mem::{self, ManuallyDrop, MaybeUninit};
use core::pin::{Pin, pin};
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};

use super::await_state::AwaitState;
use super::context::TaskEnv;
use super::foreign::{self, Foreign};
use super::frame::{self, Header};
use super::wait::wait_until;
use crate::{Completion, Operation, Panic, Receiver, Sender, Transfer};

/// A sender that is awaited. Made by `.await`, or by [`IntoFuture::into_future`]. It starts the sender when it is first
/// polled.
///
/// This is the bridge from senders to futures, and open to coroutine types of your own: `SenderFuture::new(sender)` does for
/// any sender, in code that is generic over it too, what `.await` does for those of this crate. The second parameter
/// follows from the first, and is left out.
///
/// **In a task** the operation lives in this future, and the task is resumed on its own scheduler.
///
/// **In the other executors**, and under what polls with wakers of its own inside a task (`FuturesUnordered`, say), that
/// executor is the scheduler in the sender's environment: what is scheduled there wakes it, and runs when it polls. Nothing
/// else of the environment is set. The first poll decides which of the two it is.
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
/// The sender's panic unwinds. It also panics when it is sent to another task after its first poll, and polled there before
/// the sender has completed.
///
/// # Cancellation
///
/// The sender sees the task's stop token, and that of this await alone: dropped before the sender has completed, this
/// asks it to stop. Inside a task it then waits until the sender has completed; meanwhile the thread runs the work of
/// the task's scheduler, or of that of the task it was sent to. So a sender that does not stop keeps the drop waiting, and so does a stop callback beneath on
/// the same stack that blocks until this drop is over.
///
/// In another executor it runs what is queued, and lets go: the operation goes on by itself until it has completed, and
/// its result is dropped. What it schedules from then on runs on the [global
/// pool](crate::scheduler::ThreadPool::global). A task in there goes no further than the `.await` it is at; [local
/// tasks](super::LocalTask) are ended right there, and waited for.
///
/// # Allocation
///
/// None in a task, nor elsewhere for a sender that completes inside `start`, by its [`COMPLETES`](Sender::COMPLETES).
/// For any other one, elsewhere, one, which holds its operation.
///
/// # Stack
///
/// Constant: a completion resumes the task from the driver's loop, and not from inside.
#[must_use = "futures do nothing until they are awaited"]
pub struct SenderFuture<S, A = Awaiting<S>> {
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
            awaiting: Awaiting::new(sender),
            _sender: PhantomData,
        }
    }
}

impl<S, A: Future> Future for SenderFuture<S, A> {
    type Output = A::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        // SAFETY: it is pinned with this.
        unsafe { self.map_unchecked_mut(|this| &mut this.awaiting) }.poll(cx)
    }
}

impl<S, A> fmt::Debug for SenderFuture<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SenderFuture").finish_non_exhaustive()
    }
}

/// What is in a [`SenderFuture`].
pub struct Awaiting<S: Sender<Value: Send, Error: Send>> {
    phase: Phase,
    content: Content<S>,
    /// Made when the sender is started, unless that completes inline.
    shared: MaybeUninit<Await<S::Value, S::Error>>,
    _pinned: PhantomPinned,
}

/// What is in the content. A flag beside it, so that the compiler sees what need not be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Sender,
    /// The sender is being connected, or panicked when it was.
    Connecting,
    Operation,
    /// Started outside of a task.
    Foreign,
    Empty,
}

/// The operation of an awaited sender.
type Started<S> = <S as Sender>::Operation<AwaitReceiver<<S as Sender>::Value, <S as Sender>::Error>>;

union Content<S: Sender<Value: Send, Error: Send>> {
    sender: ManuallyDrop<S>,
    operation: ManuallyDrop<Started<S>>,
    foreign: ManuallyDrop<Foreign<S::Value, S::Error>>,
}

/// What the receiver points at.
struct Await<T, E> {
    state: AwaitState,
    /// Written by the completion, and the frame's once it is done.
    result: UnsafeCell<Option<Completion<T, E>>>,
}

impl<S: Sender<Value: Send, Error: Send>> Awaiting<S> {
    #[inline]
    fn new(sender: S) -> Self {
        Awaiting {
            phase: Phase::Sender,
            content: Content {
                sender: ManuallyDrop::new(sender),
            },
            shared: MaybeUninit::uninit(),
            _pinned: PhantomPinned,
        }
    }

    /// What the receiver points at.
    ///
    /// # Safety
    ///
    /// The sender was started, and not inline.
    unsafe fn shared(&self) -> &Await<S::Value, S::Error> {
        // SAFETY: by the caller's promise.
        unsafe { self.shared.assume_init_ref() }
    }

    /// Starts a sender that completes inside `start`.
    #[inline]
    fn run_inline(sender: S, frame: NonNull<Header>) -> Poll<Result<S::Value, S::Error>> {
        let mut result = None;
        let operation = pin!(sender.connect(InlineReceiver {
            result: NonNull::from(&mut result),
            frame,
        }));
        // SAFETY: it is pinned on this stack, started once, and has completed when `start` returns.
        unsafe { operation.start() }.run();
        finish(frame, result)
    }

    /// Starts a sender, in place.
    fn start(&mut self, sender: S, frame: NonNull<Header>) -> Poll<Result<S::Value, S::Error>> {
        let shared = NonNull::from(self.shared.write(Await {
            // SAFETY: this is what the frame's poll is running, and the receiver completes once.
            state: unsafe { AwaitState::new(frame, S::COMPLETES.stays_on_scheduler()) },
            result: UnsafeCell::new(None),
        }));
        self.phase = Phase::Connecting;
        self.content.operation = ManuallyDrop::new(sender.connect(AwaitReceiver { shared }));
        self.phase = Phase::Operation;
        // SAFETY: it is pinned with this future, which waits for it when it is dropped; started once.
        let resumed = unsafe { Pin::new_unchecked(&mut *self.content.operation).start() };
        // SAFETY: this is what the frame's poll is running.
        unsafe { Header::resume_later(frame, resumed) };
        // SAFETY: it was made above.
        if unsafe { self.shared() }.state.starting.replace(false) {
            // It has not completed, or elsewhere, and then it wakes the frame, needed or not.
            // SAFETY: as above.
            unsafe { Header::count_wait(frame) };
        }
        self.check(frame)
    }

    /// Takes the result, if it is there.
    fn check(&mut self, frame: NonNull<Header>) -> Poll<Result<S::Value, S::Error>> {
        match self.take() {
            Poll::Ready(result) => finish(frame, result),
            Poll::Pending => {
                // SAFETY: the operation is there, so it was started.
                let began = unsafe { self.shared() }.state.frame;
                assert_eq!(
                    began, frame,
                    "a sender that is awaited was sent to another task: await it in the one where that began",
                );
                Poll::Pending
            }
        }
    }

    #[inline]
    fn take(&mut self) -> Poll<Option<Completion<S::Value, S::Error>>> {
        // SAFETY: the operation is there, so it was started.
        let shared = unsafe { self.shared() };
        if !shared.state.is_done() {
            return Poll::Pending;
        }
        // SAFETY: the operation has completed, so the result is ours.
        let result = unsafe { (*shared.result.get()).take() };
        self.phase = Phase::Empty;
        // SAFETY: as above. It is dropped this once, in place.
        unsafe { ManuallyDrop::drop(&mut self.content.operation) };
        Poll::Ready(result)
    }

    /// Polls outside of a task, or what was started there.
    #[cold]
    #[inline(never)]
    fn poll_foreign(&mut self, cx: &Cx<'_>) -> Poll<Result<S::Value, S::Error>>
    where
        S: 'static,
    {
        match self.phase {
            Phase::Connecting | Phase::Empty => return Poll::Pending,
            Phase::Operation => {
                // It was started in a task, which is what its completion wakes. Who polls it now has to look again.
                return match self.take() {
                    Poll::Ready(result) => Poll::Ready(foreign::conclude(result.unwrap_or(Completion::Stopped))),
                    Poll::Pending => {
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                };
            }
            Phase::Sender => {
                self.phase = Phase::Empty;
                // SAFETY: it is there, and taken this once.
                let sender = unsafe { ManuallyDrop::take(&mut self.content.sender) };
                if S::COMPLETES.is_inline() {
                    return Poll::Ready(foreign::conclude(foreign::run_inline(sender)));
                }
                self.content.foreign = ManuallyDrop::new(Foreign::start(sender));
                self.phase = Phase::Foreign;
            }
            Phase::Foreign => {}
        }
        // SAFETY: it was made above, or before.
        let completion = match unsafe { &mut self.content.foreign }.poll(cx) {
            Poll::Ready(completion) => completion,
            Poll::Pending => return Poll::Pending,
        };
        self.phase = Phase::Empty;
        // SAFETY: it is there, and dropped this once.
        unsafe { ManuallyDrop::drop(&mut self.content.foreign) };
        Poll::Ready(foreign::conclude(completion))
    }
}

impl<S> Future for Awaiting<S>
where
    S: Sender<Value: Send, Error: Send> + 'static,
{
    type Output = Result<S::Value, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        // SAFETY: nothing is moved but the sender, which is not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        let Some(frame) = frame::frame_of(cx.waker()) else {
            let polled = this.poll_foreign(cx);
            if polled.is_ready() {
                // So that the compiler sees that nothing is left to be dropped.
                this.phase = Phase::Empty;
            }
            return polled;
        };
        match this.phase {
            Phase::Sender => {
                this.phase = Phase::Empty;
                // SAFETY: it is there, and taken this once.
                let sender = unsafe { ManuallyDrop::take(&mut this.content.sender) };
                if S::COMPLETES.is_inline() {
                    Self::run_inline(sender, frame)
                } else {
                    this.start(sender, frame)
                }
            }
            Phase::Operation => this.check(frame),
            Phase::Foreign => this.poll_foreign(cx),
            Phase::Connecting | Phase::Empty => Poll::Pending,
        }
    }
}

/// What the code that awaits gets to see.
#[inline]
fn finish<T, E>(frame: NonNull<Header>, result: Option<Completion<T, E>>) -> Poll<Result<T, E>> {
    match result {
        Some(Completion::Value(value)) => Poll::Ready(Ok(value)),
        Some(Completion::Error(error)) => Poll::Ready(Err(error)),
        Some(Completion::Panicked(payload)) => payload.resume(),
        Some(Completion::Stopped) | None => {
            // SAFETY: this is what the frame's poll is running.
            unsafe { Header::stop_here(frame) };
            Poll::Pending
        }
    }
}

impl<S: Sender<Value: Send, Error: Send>> Drop for Awaiting<S> {
    #[inline]
    fn drop(&mut self) {
        match self.phase {
            Phase::Empty => {}
            // SAFETY: it is there, and dropped this once.
            Phase::Sender => unsafe { ManuallyDrop::drop(&mut self.content.sender) },
            Phase::Connecting | Phase::Operation => self.abandon(),
            // SAFETY: as above.
            Phase::Foreign => unsafe { ManuallyDrop::drop(&mut self.content.foreign) },
        }
    }
}

impl<S: Sender<Value: Send, Error: Send>> Awaiting<S> {
    /// Dropped before its end was seen: asks the sender to stop, and waits until it has completed.
    #[cold]
    fn abandon(&mut self) {
        /// Also when dropping the operation panics.
        struct DropShared<'a, T, E>(&'a mut MaybeUninit<Await<T, E>>);

        impl<T, E> Drop for DropShared<'_, T, E> {
            fn drop(&mut self) {
                // SAFETY: it was made when the sender was started, and is dropped this once.
                unsafe { self.0.assume_init_drop() };
            }
        }

        // SAFETY: the state is made before the sender is connected.
        let state = unsafe { &self.shared().state };
        if !state.is_done() {
            state.request_stop().run();
            wait_until(|| state.is_done());
        }
        let _shared = DropShared(&mut self.shared);
        if mem::replace(&mut self.phase, Phase::Empty) == Phase::Operation {
            // SAFETY: the operation has completed, and is dropped this once, in place.
            unsafe { ManuallyDrop::drop(&mut self.content.operation) };
        }
    }
}

impl<S: Sender<Value: Send, Error: Send>> fmt::Debug for Awaiting<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaiting").finish_non_exhaustive()
    }
}

/// The receiver of a sender that is awaited.
pub(super) struct AwaitReceiver<T, E> {
    shared: NonNull<Await<T, E>>,
}

// SAFETY: it is used by the completion alone, which is ordered with the frame.
unsafe impl<T: Send, E: Send> Send for AwaitReceiver<T, E> {}

impl<T, E> AwaitReceiver<T, E> {
    /// Its address is made from that of the whole.
    #[inline]
    fn state(&self) -> NonNull<AwaitState> {
        // SAFETY: the future waits for the completion, and the state is a field of what is there.
        unsafe { NonNull::new_unchecked(&raw mut (*self.shared.as_ptr()).state) }
    }

    #[inline]
    fn complete(self, completion: Completion<T, E>) -> Transfer {
        let this = ManuallyDrop::new(self);
        // SAFETY: this is the one completion.
        unsafe { this.deliver(completion, true) }
    }

    /// `promised` says that it comes where the sender promised it would.
    ///
    /// # Safety
    ///
    /// This is the one completion.
    #[inline]
    unsafe fn deliver(&self, completion: Completion<T, E>, promised: bool) -> Transfer {
        // SAFETY: the future waits for the completion.
        let shared = unsafe { self.shared.as_ref() };
        // SAFETY: nobody looks at it before it is done, and there is nothing there to be dropped.
        unsafe { shared.result.get().write(Some(completion)) };
        // SAFETY: this is the one completion.
        unsafe { AwaitState::completed(self.state(), promised) }
    }
}

impl<T: Send, E: Send> Receiver<T, E> for AwaitReceiver<T, E> {
    type Env = TaskEnv;

    #[inline]
    fn env(&self) -> TaskEnv {
        // SAFETY: the future waits for the completion, and so does the context in which that began.
        unsafe { TaskEnv::new(self.shared.as_ref().state.context, Some(self.state())) }
    }

    #[inline]
    fn set_value(self, value: T) -> Transfer {
        self.complete(Completion::Value(value))
    }

    #[inline]
    fn set_error(self, error: E) -> Transfer {
        self.complete(Completion::Error(error))
    }

    #[inline]
    fn set_stopped(self) -> Transfer {
        self.complete(Completion::Stopped)
    }

    #[inline]
    fn set_panicked(self, payload: Panic) -> Transfer {
        self.complete(Completion::Panicked(payload))
    }
}

impl<T, E> Drop for AwaitReceiver<T, E> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: it was not completed, so this is the one completion.
        // The sender's promise is about completions, and not about where its operation lets go of a receiver.
        unsafe { self.deliver(Completion::Stopped, false) }.run();
    }
}

impl<T, E> fmt::Debug for AwaitReceiver<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwaitReceiver").finish_non_exhaustive()
    }
}

/// The receiver of a sender that completes inside `start`.
struct InlineReceiver<T, E> {
    result: NonNull<Option<Completion<T, E>>>,
    frame: NonNull<Header>,
}

// SAFETY: it completes on the thread it was made on, by the sender's promise.
unsafe impl<T, E> Send for InlineReceiver<T, E> {}

impl<T, E> InlineReceiver<T, E> {
    #[inline]
    fn complete(self, completion: Completion<T, E>) -> Transfer {
        // SAFETY: whoever started the sender waits for it on this stack.
        unsafe { self.result.write(Some(completion)) };
        Transfer::none()
    }
}

impl<T, E> Receiver<T, E> for InlineReceiver<T, E> {
    type Env = TaskEnv;

    #[inline]
    fn env(&self) -> TaskEnv {
        // SAFETY: the frame is being polled.
        unsafe { TaskEnv::new(Header::context(self.frame), None) }
    }

    #[inline]
    fn set_value(self, value: T) -> Transfer {
        self.complete(Completion::Value(value))
    }

    #[inline]
    fn set_error(self, error: E) -> Transfer {
        self.complete(Completion::Error(error))
    }

    #[inline]
    fn set_stopped(self) -> Transfer {
        self.complete(Completion::Stopped)
    }

    #[inline]
    fn set_panicked(self, payload: Panic) -> Transfer {
        self.complete(Completion::Panicked(payload))
    }
}
