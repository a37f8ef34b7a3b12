//! Callbacks that are awaited.

use core::cell::UnsafeCell;
use core::convert::Infallible;
use core::fmt;
use core::marker::{PhantomData, PhantomPinned};
use core::mem::ManuallyDrop;
use core::panic::Location;
use core::pin::Pin;
use core::ptr::NonNull;
use std::boxed::Box;

use crate::report::{Report, report};
use crate::sender::current;
use crate::sender::stage::container_of;
use crate::stop::{StopSlot, StopToken};
use crate::sync::atomic::{
    AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::sync::{Arc, Mutex, lock};
use crate::{Completion, Env, Operation, Panic, Receiver, Sender, Transfer};

/// Waits for a callback: calls `function` with a [`Continuation`], and completes when that is resumed.
///
/// It is the way from an interface that calls back, in whatever language, to one that is awaited.
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
///             // Where nobody waits any more, nobody wants to know.
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
/// The closure says what the continuation is resumed with: `|continuation: Continuation<u32>|` for one that cannot fail.
///
/// # Completions
///
/// What the continuation is resumed with: a value, an error, or a stop. Once it was dropped, un-resumed, stopped; and the
/// [report hook](crate::task::set_report_hook) is told.
///
/// A task that waits is queued with its scheduler, and goes on there: whoever resumes it runs nothing of it. Anything else
/// completes in the midst of [`resume`](Continuation::resume), as every sender completes where its work ends; and so does
/// a task on the inline scheduler. What was resumed before `function` has returned completes inside `start`.
///
/// # Panics
///
/// A panic of `function` is the completion, even if it has resumed the continuation: what that was resumed with is dropped.
/// The continuation, should it be elsewhere, is abandoned.
///
/// # Cancellation
///
/// A stop completes it at once, on the thread that requests it, after the [handler](Continuation::on_stop). The continuation
/// is abandoned then: whoever resumes it gets back what it was to be resumed with. Where the stop was requested
/// before, `function` is not called; where that happens while `function` runs, it is seen when that has returned.
///
/// # Allocation
///
/// One when it is started, shared with the continuation, which may outlive the operation. A handler is one more, unless it
/// captures nothing.
///
/// # Stack
///
/// Constant: [`resume`](Continuation::resume) runs in a loop what comes of it. Tasks that resume one another take none, but
/// on the inline scheduler, where each runs in the midst of the other's call.
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

/// Resumes whoever waits in [`continuation()`], at most once, since that takes it by value.
///
/// It may be kept, sent to other threads, and given through C as a [pointer](Continuation::into_raw). Dropping it un-resumed
/// stops who waits, and is [reported](crate::task::Report::ContinuationDropped).
#[must_use = "dropping a continuation stops whoever waits for it"]
pub struct Continuation<T, E = Infallible> {
    /// Taken when it ends: nothing of it is left when whoever waits goes on.
    block: ManuallyDrop<Arc<Block<T, E>>>,
}

impl<T, E> Continuation<T, E> {
    /// Resumes with a value.
    ///
    /// # Errors
    ///
    /// The value, where nobody waits any more.
    pub fn resume(self, value: T) -> Result<(), T> {
        match self.end(Resumption::Value(value)) {
            Err(Resumption::Value(value)) => Err(value),
            _ => Ok(()),
        }
    }

    /// Resumes with an error.
    ///
    /// # Errors
    ///
    /// The error, where nobody waits any more.
    pub fn fail(self, error: E) -> Result<(), E> {
        match self.end(Resumption::Error(error)) {
            Err(Resumption::Error(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Resumes with a value or an error.
    ///
    /// # Errors
    ///
    /// The same, where nobody waits any more.
    pub fn resume_with(self, result: Result<T, E>) -> Result<(), Result<T, E>> {
        match result {
            Ok(value) => self.resume(value).map_err(Ok),
            Err(error) => self.fail(error).map_err(Err),
        }
    }

    /// Stops whoever waits, and reports nothing.
    pub fn stop(self) {
        // There is nothing to give back.
        let _ = self.end(Resumption::Stopped);
    }

    /// Whether nobody waits any more, and nobody will. It never becomes `false` again.
    pub fn is_abandoned(&self) -> bool {
        self.block.state.load(Acquire) == ABANDONED
    }

    /// Has `handler` called when whoever waits is stopped: to end the work that was to call back.
    ///
    /// It is called at most once: on the thread that requests the stop, before the waiting side goes on, outside of all
    /// locks of this crate; at once, where nobody waits any more. A panic in it is caught. It takes the place of a handler
    /// that was set before. When the continuation is resumed it is dropped, uncalled.
    ///
    /// A handler that holds the continuation itself keeps it from being dropped.
    pub fn on_stop(&self, handler: impl FnOnce() + Send + 'static) {
        let mut handler: Option<Handler> = Some(Box::new(handler));
        {
            let mut set = lock(&self.block.handler);
            // Asked under the lock, which whoever abandons it takes next.
            if !self.is_abandoned() {
                core::mem::swap(&mut *set, &mut handler);
            } else {
                drop(set);
                call(handler.take());
            }
        }
        // What was set before.
        drop(handler);
    }

    /// A pointer that stands for the continuation, for interfaces that pass one on: [`from_raw`](Continuation::from_raw)
    /// makes a continuation of it, and is to be called, since otherwise whoever waits is neither resumed nor told.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::task::{self, Continuation};
    /// use std::ffi::c_void;
    ///
    /// // What a library in C might offer.
    /// extern "C" fn ask(answer: extern "C" fn(*mut c_void, i32), context: *mut c_void) {
    ///     answer(context, 42);
    /// }
    ///
    /// extern "C" fn answered(context: *mut c_void, answer: i32) {
    ///     // SAFETY: it was made below, and this is called once.
    ///     let continuation = unsafe { Continuation::<i32>::from_raw(context.cast()) };
    ///     let _ = continuation.resume(answer);
    /// }
    ///
    /// let answer = task::continuation(|continuation: Continuation<i32>| ask(answered, continuation.into_raw().cast()));
    /// assert_eq!(sync_wait(answer).unwrap(), 42);
    /// ```
    #[must_use = "whoever waits is neither resumed nor told before the pointer is a continuation again"]
    pub fn into_raw(self) -> *mut () {
        Arc::into_raw(self.into_block()).cast_mut().cast()
    }

    /// The continuation that a pointer stands for.
    ///
    /// # Safety
    ///
    /// The pointer is from [`into_raw`](Continuation::into_raw) of a continuation of this very type, and used this once.
    pub unsafe fn from_raw(pointer: *mut ()) -> Self {
        Continuation {
            // SAFETY: by the caller's promise.
            block: ManuallyDrop::new(unsafe { Arc::from_raw(pointer.cast_const().cast()) }),
        }
    }

    fn into_block(self) -> Arc<Block<T, E>> {
        // SAFETY: it is taken this once, and this is not dropped.
        unsafe { ManuallyDrop::take(&mut ManuallyDrop::new(self).block) }
    }

    /// Ends it: what comes of that is run here. `Err` where it was abandoned.
    fn end(self, resumption: Resumption<T, E>) -> Result<(), Resumption<T, E>> {
        end(self.into_block(), resumption)
    }
}

impl<T, E> Drop for Continuation<T, E> {
    fn drop(&mut self) {
        // SAFETY: it is taken this once.
        let block = unsafe { ManuallyDrop::take(&mut self.block) };
        // Where it was abandoned there is nobody to tell.
        let _ = end(block, Resumption::Dropped);
    }
}

/// See [`Continuation::end`].
fn end<T, E>(block: Arc<Block<T, E>>, resumption: Resumption<T, E>) -> Result<(), Resumption<T, E>> {
    let (resumption, Waiter { operation, complete }) = match block.resume(resumption)? {
        Claim::ByStart => return Ok(()),
        Claim::Ours(resumption, waiter) => (resumption, waiter),
    };
    discard(block.take_handler());
    let completion = resumption.conclude(block.location);
    drop(block);
    // The caller may hold a lock, so a task that comes of this is queued, though this be a thread where it may run.
    let _hidden = current::Hidden::aside();
    // SAFETY: the operation waits, and the claim is ours.
    unsafe { complete(operation, completion) }.run();
    Ok(())
}

impl<T, E> fmt::Debug for Continuation<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Continuation")
            .field("is_abandoned", &self.is_abandoned())
            .finish()
    }
}

/// What a continuation is resumed with.
enum Resumption<T, E> {
    Value(T),
    Error(E),
    Stopped,
    /// It was dropped, and that is still to be reported.
    Dropped,
}

impl<T, E> Resumption<T, E> {
    fn conclude(self, location: &'static Location<'static>) -> Completion<T, E> {
        match self {
            Resumption::Value(value) => Completion::Value(value),
            Resumption::Error(error) => Completion::Error(error),
            Resumption::Stopped => Completion::Stopped,
            Resumption::Dropped => {
                report(Report::ContinuationDropped { location });
                Completion::Stopped
            }
        }
    }
}

/// Who completes after a resume.
enum Claim<T, E> {
    /// `start`, which is still running, with what was left in the block.
    ByStart,
    /// Whoever resumes.
    Ours(Resumption<T, E>, Waiter<T, E>),
}

/// The operation that waits, and what completes it.
struct Waiter<T, E> {
    operation: NonNull<()>,
    complete: unsafe fn(NonNull<()>, Completion<T, E>) -> Transfer,
}

impl<T, E> Clone for Waiter<T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, E> Copy for Waiter<T, E> {}

type Handler = Box<dyn FnOnce() + Send>;

/// Calls a handler. There is nobody to tell of a panic in there but the panic hook.
fn call(handler: Option<Handler>) {
    if let Some(handler) = handler {
        drop(Panic::catch(handler));
    }
}

/// Drops something of the user's where a panic would keep somebody from being completed.
fn discard<D>(value: D) {
    drop(Panic::catch(move || drop(value)));
}

/// What the operation and the continuation share: it is there as long as one of the two.
struct Block<T, E> {
    /// Who completes the operation:
    ///
    /// | value | means |
    /// |---|---|
    /// | `STARTING` | `start` uses the operation, and the continuation is held |
    /// | `WAITING` | the operation waits, with its slot in the list of the stop token |
    /// | `RESUMED` | the continuation has ended |
    /// | `ABANDONED` | nobody waits any more: what the continuation is resumed with is given back |
    ///
    /// | from | by | to | then |
    /// |---|---|---|---|
    /// | `STARTING` | `start`, once it listens | `WAITING` | it touches nothing any more |
    /// | `STARTING` | the end of the continuation, which left its resumption here | `RESUMED` | it touches nothing any more; `start` completes |
    /// | `STARTING` | the stop, once the slot is in the list | `ABANDONED` | it releases the slot; `start` completes |
    /// | `STARTING` | `start`, where the stop came first, or the function has panicked | `ABANDONED` | `start` completes |
    /// | `RESUMED` | `start`, where the function has panicked | `ABANDONED` | `start` drops the resumption, and completes |
    /// | `WAITING` | the end of the continuation | `RESUMED` | it leaves the slot, and completes |
    /// | `WAITING` | the stop | `ABANDONED` | it releases the slot, and completes |
    ///
    /// Every change acquires and releases: who completes sees the operation as `start` left it, and `start` sees the
    /// resumption.
    state: AtomicU8,
    /// Written by the end of the continuation while `STARTING`, and its own again if that has changed meanwhile. Once
    /// `RESUMED`, that of `start`.
    early: UnsafeCell<Option<Resumption<T, E>>>,
    /// What is called when it is stopped. The lock is held to put one there, or to take it. Whoever completes takes it,
    /// after it changed the state; so one that is put there is either taken, or sees that it is too late.
    handler: Mutex<Option<Handler>>,
    waiter: Waiter<T, E>,
    location: &'static Location<'static>,
}

const STARTING: u8 = 0;
const WAITING: u8 = 1;
const RESUMED: u8 = 2;
const ABANDONED: u8 = 3;

// SAFETY: values and errors are `Send`, and one thread at a time has what is in the cell. The operation that the waiter
// points at is used by who completes it alone.
unsafe impl<T: Send, E: Send> Send for Block<T, E> {}
// SAFETY: as above.
unsafe impl<T: Send, E: Send> Sync for Block<T, E> {}

impl<T, E> Block<T, E> {
    fn change(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.state.compare_exchange(from, to, AcqRel, Acquire)
    }

    /// The continuation ends. `Err` where it was abandoned.
    fn resume(&self, mut resumption: Resumption<T, E>) -> Result<Claim<T, E>, Resumption<T, E>> {
        if self.state.load(Relaxed) == STARTING {
            // SAFETY: there is one continuation, and `start` looks only once the state says so.
            let early = unsafe { &mut *self.early.get() };
            *early = Some(resumption);
            if self.change(STARTING, RESUMED).is_ok() {
                return Ok(Claim::ByStart);
            }
            match early.take() {
                Some(taken_back) => resumption = taken_back,
                None => return Ok(Claim::ByStart),
            }
        }
        match self.change(WAITING, RESUMED) {
            Ok(_) => Ok(Claim::Ours(resumption, self.waiter)),
            Err(_) => Err(resumption),
        }
    }

    /// What was left for `start`.
    ///
    /// # Safety
    ///
    /// The caller is `start`, and the continuation has ended.
    unsafe fn take_early(&self) -> Option<Resumption<T, E>> {
        // SAFETY: by the caller's promise.
        unsafe { (*self.early.get()).take() }
    }

    fn take_handler(&self) -> Option<Handler> {
        lock(&self.handler).take()
    }
}

/// The sender that [`continuation()`] makes.
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

// SAFETY: the operation touches nothing once it says that it waits, but where it has the claim to complete; nor after that.
// It is `!Unpin`. The function runs in `start`, as part of the sender.
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
    block: Option<Arc<Block<T, E>>>,
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
    /// Calls the function, and then waits. Returns what is to be completed with, unless somebody else completes.
    ///
    /// # Safety
    ///
    /// The operation is pinned, and being started.
    unsafe fn begin(this: NonNull<Self>, token: <R::Env as Env>::StopToken) -> Option<Completion<T, E>> {
        let operation = this.as_ptr();
        // SAFETY: nobody else knows the operation yet.
        let ContinuationSender { function, location, .. } = unsafe { (*operation).sender.take() }?;
        if token.stop_requested() {
            return Some(Completion::Stopped);
        }
        let block = Arc::new(Block {
            state: AtomicU8::new(STARTING),
            early: UnsafeCell::new(None),
            handler: Mutex::new(None),
            waiter: Waiter {
                operation: this.cast(),
                complete: Self::resumed,
            },
            location,
        });
        let continuation = Continuation {
            block: ManuallyDrop::new(block.clone()),
        };
        if let Err(payload) = Panic::catch(move || function(continuation)) {
            if block.state.swap(ABANDONED, AcqRel) == RESUMED {
                // SAFETY: it has ended.
                discard(unsafe { block.take_early() });
            }
            discard(block.take_handler());
            return Some(Completion::Panicked(payload));
        }
        let block = if block.state.load(Acquire) == STARTING {
            // SAFETY: nobody else uses the operation yet.
            unsafe { Self::wait(this, block, token) }?
        } else {
            block
        };
        if block.state.load(Acquire) == RESUMED {
            discard(block.take_handler());
            // SAFETY: it has ended.
            return unsafe { block.take_early() }.map(|resumption| resumption.conclude(location));
        }
        call(block.take_handler());
        Some(Completion::Stopped)
    }

    /// Begins to wait. The block is returned where it came to an end meanwhile, which is for `start` to see to.
    ///
    /// # Safety
    ///
    /// The operation is pinned, and nobody uses it but `start`.
    unsafe fn wait(
        this: NonNull<Self>,
        block: Arc<Block<T, E>>,
        token: <R::Env as Env>::StopToken,
    ) -> Option<Arc<Block<T, E>>> {
        let operation = this.as_ptr();
        let state = NonNull::from(&block.state);
        // SAFETY: by the caller's promise.
        unsafe { (*operation).block = Some(block) };
        // SAFETY: the slot is pinned with the operation, and left, or released by the callback, before that completes.
        let listens = unsafe { StopSlot::listen(NonNull::new_unchecked(&raw mut (*operation).slot), token) };
        let next = if listens { WAITING } else { ABANDONED };
        // SAFETY: the operation has the block until it is completed, which nobody does before this. Once it waits, both may
        // be gone.
        let waits = unsafe { state.as_ref() }
            .compare_exchange(STARTING, next, AcqRel, Acquire)
            .is_ok();
        if waits && listens {
            return None;
        }
        // SAFETY: it does not wait, so it is still ours. A callback that is running lets go of it.
        unsafe {
            (*operation).slot.leave();
            (*operation).block.take()
        }
    }

    /// The continuation has ended, and has the claim.
    ///
    /// # Safety
    ///
    /// The operation waits, and nobody else completes it.
    unsafe fn resumed(operation: NonNull<()>, completion: Completion<T, E>) -> Transfer {
        let this = operation.cast::<Self>().as_ptr();
        // SAFETY: by the caller's promise. A callback that is running finds that it came too late.
        let receiver = unsafe {
            (*this).slot.leave();
            drop((*this).block.take());
            (*this).receiver.take()
        };
        match receiver {
            Some(receiver) => completion.deliver(receiver),
            None => Transfer::none(),
        }
    }

    /// # Safety
    ///
    /// The slot is that of a started operation.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of an operation, which is not completed before the slot is left or released.
        let this = unsafe { container_of!(slot, Self, slot) }.as_ptr();
        // SAFETY: as above. It was put there before the slot was listed, and is taken after it is left.
        let abandoned = unsafe { &(*this).block }.as_ref().is_some_and(|block| {
            // `start`, if it is not done, completes.
            block.change(STARTING, ABANDONED).is_err() && block.change(WAITING, ABANDONED).is_ok()
        });
        let (block, receiver) = if abandoned {
            // SAFETY: the claim is ours.
            unsafe { ((*this).block.take(), (*this).receiver.take()) }
        } else {
            (None, None)
        };
        // SAFETY: as above; from the release on nothing of the operation is touched.
        unsafe { slot.as_ref() }.release();
        if let Some(block) = block {
            call(block.take_handler());
        }
        match receiver {
            Some(receiver) => receiver.set_stopped(),
            None => Transfer::none(),
        }
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
        // SAFETY: nothing is moved but what is not pinned.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        // SAFETY: nobody else knows the operation yet.
        let Some(token) = (unsafe { &(*this.as_ptr()).receiver })
            .as_ref()
            .map(|receiver| receiver.env().stop_token())
        else {
            return Transfer::none();
        };
        // SAFETY: it is pinned, and this is its start.
        let Some(completion) = (unsafe { Self::begin(this, token) }) else {
            return Transfer::none();
        };
        // SAFETY: nobody else completes it.
        match unsafe { (*this.as_ptr()).receiver.take() } {
            Some(receiver) => completion.deliver(receiver),
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
