//! Awaiting a sender: the bridge from senders to futures.

use core::cell::UnsafeCell;
use core::convert::Infallible;
use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop, MaybeUninit};
use core::pin::{Pin, pin};
use core::ptr::{self, NonNull};
use core::task::{Context as Cx, Poll};

use crate::sender::start;
use crate::task::awaiting::await_state::AwaitState;
use crate::task::awaiting::environment::{self, TaskEnv};
use crate::task::awaiting::foreign::{self, Foreign};
use crate::task::frame::{BlockContent, Header, Polling};
use crate::task::strand::context::Context;
use crate::{Completion, Panic, Receiver, Sender, Transfer};

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
            awaiting: Awaiting(ManuallyDrop::new(Stage::Sender(sender))),
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

impl<S, A> fmt::Debug for SenderFuture<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SenderFuture").finish_non_exhaustive()
    }
}

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
pub struct ValueFuture<S, A = Awaiting<S>>(SenderFuture<S, A>);

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

impl<S, A> fmt::Debug for ValueFuture<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueFuture").finish_non_exhaustive()
    }
}

/// What is in a [`SenderFuture`].
///
/// What is over need not be dropped, and the compiler sees that: hence the drop by hand.
pub struct Awaiting<S: Sender<Value: Send, Error: Send>>(ManuallyDrop<Stage<S>>);

enum Stage<S: Sender<Value: Send, Error: Send>> {
    Sender(S),
    /// Started in a task, whose frame has the block. The future holds a reference of that frame.
    Started(NonNull<AwaitBlock<S>>),
    /// Started outside of a task, or with the waker of something else in one.
    Foreign(Foreign<S::Value, S::Error>),
    /// The result was taken, or the sender panicked when it was connected.
    Over,
}

/// The operation of an awaited sender.
type Started<S> = <S as Sender>::Operation<AwaitReceiver<<S as Sender>::Value, <S as Sender>::Error>>;

/// An await, in the memory of its frame. The state comes first, so that its address is that of the whole.
#[repr(C)]
struct AwaitBlock<S: Sender<Value: Send, Error: Send>> {
    shared: Await<S::Value, S::Error>,
    /// Whether there is an operation: it was connected, and not destroyed.
    is_connected: bool,
    operation: MaybeUninit<Started<S>>,
}

/// What the receiver points at.
#[repr(C)]
struct Await<T, E> {
    state: AwaitState,
    /// Written by the completion before it is done; then it belongs to the party that destroys the operation.
    result: UnsafeCell<Option<Completion<T, E>>>,
}

impl<S: Sender<Value: Send, Error: Send>> AwaitBlock<S> {
    /// Starts a sender in the memory of the frame.
    fn start(sender: S, polling: Polling<'_>) -> NonNull<Self> {
        /// The sender panics when it is connected.
        struct Unwinding<'p, S: Sender<Value: Send, Error: Send>>(NonNull<AwaitBlock<S>>, Polling<'p>);
        impl<S: Sender<Value: Send, Error: Send>> Drop for Unwinding<'_, S> {
            fn drop(&mut self) {
                // SAFETY: the block is the caller's. A receiver that is not gone yet completes later.
                unsafe {
                    AwaitBlock::started(self.0, self.1);
                    AwaitBlock::leave(self.0);
                }
            }
        }

        // SAFETY: this only stores what it is given.
        let block = unsafe {
            polling.allocate_with(|| AwaitBlock::<S> {
                shared: Await {
                    state: AwaitState::new(polling, S::COMPLETES.stays_on_scheduler()),
                    result: UnsafeCell::new(None),
                },
                is_connected: false,
                operation: MaybeUninit::uninit(),
            })
        };
        polling.context().enter();
        polling.hold();
        let unwinding = Unwinding(block, polling);
        let (place, receiver) = (block.as_ptr(), AwaitReceiver { shared: block.cast() });
        // SAFETY: the block stays until it is destroyed; what is written is pinned there, and started once.
        unsafe {
            connect_in(&mut (*place).operation, sender, receiver);
            (*place).is_connected = true;
            mem::forget(unwinding);
            polling.resume_later(start(Pin::new_unchecked((*place).operation.assume_init_mut())));
            Self::started(block, polling);
        }
        block
    }

    /// Destroys the operation, if there is one.
    ///
    /// # Safety
    ///
    /// The operation belongs to the caller.
    #[inline]
    unsafe fn destroy(this: NonNull<Self>) {
        let place = this.as_ptr();
        // SAFETY: the caller's promise. It is destroyed this once, in place.
        unsafe {
            if mem::replace(&mut (*place).is_connected, false) {
                (*place).operation.assume_init_drop();
            }
        }
    }

    /// `start` has returned: what has not completed by then wakes the frame, which waits for it.
    ///
    /// # Safety
    ///
    /// The block has not ended, and is of this frame.
    unsafe fn started(this: NonNull<Self>, polling: Polling<'_>) {
        // SAFETY: the caller's promise.
        if unsafe { this.as_ref() }.shared.state.starting.replace(false) {
            polling.count_wait();
        }
    }

    /// Takes the result if it is there, destroys the operation and gives the block up.
    ///
    /// # Safety
    ///
    /// The caller is the future, and does not use the block any more where this returns something.
    #[inline]
    unsafe fn take(this: NonNull<Self>) -> Option<Completion<S::Value, S::Error>> {
        // SAFETY: the future holds a reference of the frame.
        unsafe { this.as_ref().shared.state.is_done().then(|| Self::take_done(this)) }
    }

    /// [`take`](AwaitBlock::take) of a sender that has completed.
    ///
    /// # Safety
    ///
    /// The caller is the future, and does not use the block any more. The sender has completed.
    #[inline]
    unsafe fn take_done(this: NonNull<Self>) -> Completion<S::Value, S::Error> {
        /// Also when the operation's destructor unwinds.
        struct Free(NonNull<Header>, NonNull<()>);
        impl Drop for Free {
            #[cold]
            fn drop(&mut self) {
                // SAFETY: the block was the future's, and is destroyed; the future gives its reference up.
                unsafe { Header::release_block(self.0, self.1) };
            }
        }

        // SAFETY: the future holds a reference of the frame. What has completed belongs to the future.
        unsafe {
            let place = this.as_ptr();
            let result = (*(*place).shared.result.get()).take();
            let free = Free((*place).shared.state.frame, this.cast());
            Self::destroy(this);
            let (frame, content) = (free.0, free.1);
            mem::forget(free);
            Header::release_block(frame, content);
            result.unwrap_or(Completion::Stopped)
        }
    }

    /// The future goes before it took the result: asks the sender to stop, and leaves what is in flight to the frame.
    ///
    /// # Safety
    ///
    /// The caller is the future, and does not use the block any more.
    #[cold]
    unsafe fn leave(this: NonNull<Self>) {
        // SAFETY: the future holds a reference of the frame.
        unsafe {
            let state = &this.as_ref().shared.state;
            if !state.is_done() {
                state.request_stop().run();
            }
            if let Some(result) = Self::take(this) {
                drop(result);
                return;
            }
            let frame = state.frame;
            Polling::with_frame(frame, |polling| polling.map(Polling::add_orphan));
            state.set_gone();
            Header::unhold(frame);
        }
    }
}

// SAFETY: what is orphaned was left to the frame by the future, and is used by no other party.
unsafe impl<S: Sender<Value: Send, Error: Send>> BlockContent for AwaitBlock<S> {
    unsafe fn abandon(this: NonNull<Self>, _: Polling<'_>) -> Transfer {
        // SAFETY: the caller's promise. Where the future is dropped meanwhile, on another thread, it destroys the operation and
        // leaves the state as it is; the memory is the frame's.
        let state = unsafe { &(*this.as_ptr()).shared.state };
        if state.is_done() {
            return Transfer::none();
        }
        state.request_stop()
    }

    unsafe fn sweep(this: NonNull<Self>) -> bool {
        let place = this.as_ptr();
        // SAFETY: the caller's promise. What is orphaned is the frame's.
        unsafe {
            if !(*place).shared.state.take_orphan() {
                return false;
            }
            // There is no code left to tell of a panic in there but the panic hook.
            drop(Panic::catch(|| Self::destroy(this)));
            drop(Panic::catch(|| drop((*(*place).shared.result.get()).take())));
        }
        true
    }
}

/// Connects a sender in place. A function of its own, so that the compiler knows that nothing else points there.
#[inline]
fn connect_in<S: Sender<Value: Send, Error: Send>>(
    place: &mut MaybeUninit<Started<S>>,
    sender: S,
    receiver: AwaitReceiver<S::Value, S::Error>,
) {
    place.write(sender.connect(receiver));
}

impl<S: Sender<Value: Send, Error: Send>> Awaiting<S> {
    /// Starts a sender that completes inside `start`, in the frame that this thread polls, if there is one. Nothing is allocated.
    #[inline]
    fn run_inline(sender: S, polling: Option<Polling<'_>>) -> Completion<S::Value, S::Error> {
        let mut result = None;
        let operation = pin!(sender.connect(InlineReceiver {
            result: NonNull::from(&mut result),
            context: polling.map(|polling| NonNull::from(polling.context())),
        }));
        // SAFETY: it is pinned on this stack, started once, and has completed when `start` returns.
        unsafe { start(operation) }.run();
        result.unwrap_or(Completion::Stopped)
    }

    /// Takes the result, if it is there.
    #[inline]
    fn check(&mut self, block: NonNull<AwaitBlock<S>>, polling: Polling<'_>) -> Poll<Result<S::Value, S::Error>> {
        // SAFETY: the future has the block.
        unsafe {
            if block.as_ref().shared.state.is_done() {
                // There is nothing in the stage to be dropped.
                ptr::write(&raw mut *self.0, Stage::Over);
                return finish(polling, AwaitBlock::take_done(block));
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
        let completion = match mem::replace(&mut *self.0, Stage::Over) {
            Stage::Over => return Poll::Pending,
            Stage::Started(block) => {
                *self.0 = Stage::Started(block);
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
                *self.0 = Stage::Over;
                // SAFETY: as above.
                unsafe { AwaitBlock::take(block) }.unwrap_or(Completion::Stopped)
            }
            Stage::Sender(sender) if S::COMPLETES.is_inline() => {
                Polling::with(|polling| Self::run_inline(sender, polling))
            }
            stage => {
                let mut foreign = match stage {
                    Stage::Sender(sender) => Foreign::start(sender),
                    Stage::Foreign(foreign) => foreign,
                    _ => return Poll::Pending,
                };
                match foreign.poll(cx) {
                    Poll::Ready(completion) => completion,
                    Poll::Pending => {
                        *self.0 = Stage::Foreign(foreign);
                        return Poll::Pending;
                    }
                }
            }
        };
        Poll::Ready(foreign::conclude(completion))
    }
}

impl<S> Future for Awaiting<S>
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
            Stage::Sender(sender) => {
                // SAFETY: it is moved out of what is overwritten, and not dropped, next. Only this much is moved: there is room
                // for more.
                let sender = unsafe {
                    let sender = ptr::read(sender);
                    ptr::write(&raw mut *this.0, Stage::Over);
                    sender
                };
                if S::COMPLETES.is_inline() {
                    return finish(polling, Self::run_inline(sender, Some(polling)));
                }
                let block = AwaitBlock::start(sender, polling);
                // SAFETY: the stage is over, so nothing is overwritten that is to be dropped.
                unsafe { ptr::write(&raw mut *this.0, Stage::Started(block)) };
                // SAFETY: the future has the block.
                if !unsafe { block.as_ref() }.shared.state.is_done() {
                    return Poll::Pending;
                }
                this.check(block, polling)
            }
            Stage::Started(block) => {
                let block = *block;
                let polled = this.check(block, polling);
                if polled.is_ready() {
                    // So that the compiler sees that nothing is left to be dropped.
                    // SAFETY: the stage is over.
                    unsafe { ptr::write(&raw mut *this.0, Stage::Over) };
                }
                polled
            }
            Stage::Foreign(_) => this.poll_foreign(cx),
            Stage::Over => Poll::Pending,
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
fn finish<T, E>(polling: Polling<'_>, completion: Completion<T, E>) -> Poll<Result<T, E>> {
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

impl<S: Sender<Value: Send, Error: Send>> Drop for Awaiting<S> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(*self.0, Stage::Over) {
            self.end();
        }
    }
}

impl<S: Sender<Value: Send, Error: Send>> Awaiting<S> {
    /// Drops what is not over.
    #[inline(never)]
    fn end(&mut self) {
        match *self.0 {
            // SAFETY: the future has the block, and goes.
            Stage::Started(block) => unsafe { AwaitBlock::leave(block) },
            // SAFETY: it is dropped this once: this is the drop of the whole.
            _ => unsafe { ManuallyDrop::drop(&mut self.0) },
        }
    }
}

impl<S: Sender<Value: Send, Error: Send>> fmt::Debug for Awaiting<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaiting").finish_non_exhaustive()
    }
}

/// The receiver of a sender that is awaited.
pub(in crate::task) struct AwaitReceiver<T, E> {
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
    /// That of the task, which does not end meanwhile. None outside of a task.
    context: Option<NonNull<Context>>,
}

// SAFETY: it completes on the thread it was made on, by the sender's promise.
unsafe impl<T, E> Send for InlineReceiver<T, E> {}

impl<T, E> InlineReceiver<T, E> {
    #[inline]
    fn complete(self, completion: Completion<T, E>) -> Transfer {
        // SAFETY: the code that started the sender waits for it on this stack.
        unsafe { self.result.write(Some(completion)) };
        Transfer::none()
    }
}

impl<T, E> Receiver<T, E> for InlineReceiver<T, E> {
    type Env = TaskEnv;

    #[inline]
    fn env(&self) -> TaskEnv {
        match self.context {
            // SAFETY: the frame is being polled, on this stack.
            Some(context) => unsafe { TaskEnv::new(context, None) },
            None => environment::anywhere(),
        }
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
