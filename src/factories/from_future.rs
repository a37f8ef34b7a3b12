use alloc::boxed::Box;
use core::convert::Infallible;
use core::fmt;
use core::future::Future;
use core::marker::{PhantomData, PhantomPinned};
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use crate::memory::Count;
#[cfg(feature = "std")]
use crate::scheduler::{elsewhere, thread_pool::Entry};
use crate::sender::demand::demand;
use crate::sender::stage::container_of;
use crate::sender::start;
use crate::stop::{StopSlot, StopToken};
use crate::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8,
    Ordering::{AcqRel, Acquire, Release},
};
use crate::{Completes, Completion, EmptyEnv, Env, Job, Operation, Panic, Receiver, Scheduler, Sender, Transfer};

/// A sender of what a future gives.
///
/// The future is polled on the scheduler of the receiver's environment: once when it is started, then whenever it was
/// woken, which schedules it there. A waker may be kept for as long as one likes; it keeps a few words of memory, not
/// the future.
///
/// A future is never polled inside `wake`, where the caller may hold the very lock that the future takes. The
/// [`InlineScheduler`](crate::scheduler::InlineScheduler) has no queue to go to, so there the poll goes to the
/// [global pool](crate::scheduler::ThreadPool::global). Without `std` there is no such pool, and `wake` polls. A scheduler
/// of your own that completes inside `start` polls there too.
///
/// ```
/// use bowline::prelude::*;
///
/// let work = from_future(async { 6 * 7 }).then(|x| x + 1);
/// assert_eq!(sync_wait(work).unwrap(), 43);
/// ```
///
/// # Completions
///
/// The future's output, on the scheduler. The future is dropped first.
///
/// # Panics
///
/// A panic of the future is the completion.
///
/// # Cancellation
///
/// When the stop is requested, the future is dropped, on the scheduler, and it completes stopped. A future is not polled
/// at all when the stop was requested before the start.
///
/// # Allocation
///
/// None for a future that is ready when it is first polled and does not keep its waker. One otherwise, which the wakers
/// share.
///
/// # Stack
///
/// Constant, for any number of wake-ups.
pub fn from_future<F: Future + Send>(future: F) -> FromFuture<F> {
    FromFuture { future }
}

/// The sender that [`from_future`] makes.
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct FromFuture<F> {
    future: F,
}

// SAFETY: the operation touches nothing once a waker or a stop may schedule it, nor after its completion, and is
// `!Unpin`. It is polled, and so completes, on the scheduler of the receiver's environment only.
unsafe impl<F: Future + Send> Sender for FromFuture<F> {
    type Value = F::Output;
    type Error = Infallible;
    const COMPLETES: Completes = Completes::OnStartScheduler;
    type Operation<R: Receiver<F::Output, Infallible>> = FromFutureOperation<F, R>;

    fn connect<R: Receiver<F::Output, Infallible>>(self, receiver: R) -> FromFutureOperation<F, R> {
        const {
            demand(
                <R::Env as Env>::Scheduler::PRESENT,
                "`from_future` is polled on the scheduler of the receiver's environment, and there is none: write `starts_on(scheduler, from_future(future))`",
            );
            demand(
                <R::Env as Env>::Scheduler::INFALLIBLE,
                "`from_future` needs a scheduler that cannot fail: start it on `scheduler.or_inline()` or `scheduler.or_abort()`",
            );
        }
        FromFutureOperation {
            trip: None,
            inline: false,
            travelling: false,
            future: Some(self.future),
            slot: StopSlot::new(FromFutureOperation::<F, R>::stop_requested),
            listening: false,
            first: FirstWaker {
                handle: AtomicPtr::new(ptr::null_mut()),
                woken: AtomicBool::new(false),
                operation: ptr::null_mut(),
                table: FromFutureOperation::<F, R>::TABLE,
            },
            poll: Job::new(FromFutureOperation::<F, R>::run),
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

type Trip<F, R> =
    <<<<R as Receiver<<F as Future>::Output, Infallible>>::Env as Env>::Scheduler as Scheduler>::Schedule as Sender>::Operation<
        TripReceiver<F, R>,
    >;

/// The operation of [`FromFuture`].
pub struct FromFutureOperation<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    /// The way to the scheduler for the next wake-up, connected before the future is polled. `None` where that is inline.
    trip: Option<Trip<F, R>>,
    /// Whether the scheduler is the inline one. Written before each poll.
    inline: bool,
    /// Whether the trip was started and has not arrived. A receiver of a trip that goes at another time, inside `connect` or
    /// with a trip that was not made, means nothing.
    travelling: bool,
    /// Dropped in place, before the completion.
    future: Option<F>,
    slot: StopSlot<<R::Env as Env>::StopToken>,
    /// The slot listens, from the first suspension on.
    listening: bool,
    first: FirstWaker,
    /// Polls, from the driver's loop, so that a future that wakes itself does not recurse.
    poll: Job,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<F, R> FromFutureOperation<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    /// Polls the future. The first poll has the token that `start` asked for, and the first suspension listens to it. The
    /// environment is not asked for another: the stop that counts is that of the one token.
    ///
    /// # Safety
    ///
    /// The operation is started, has not completed, and the caller alone polls it. `token` is given if the slot does not
    /// listen.
    unsafe fn poll(this: NonNull<Self>, token: Option<<R::Env as Env>::StopToken>) -> Transfer {
        // SAFETY: by the caller's promise the operation is ours until it is idle.
        let env = match unsafe { &(*this.as_ptr()).receiver } {
            Some(receiver) => receiver.env(),
            None => return Transfer::none(),
        };
        let stopped = match &token {
            Some(token) => token.stop_requested(),
            // A callback that has not come this far wakes the operation after this poll.
            // SAFETY: as above; the slot has not left.
            None => unsafe { &(*this.as_ptr()).slot }.has_fired(),
        };
        if stopped {
            // What came out of the environment goes before the completion, after which it may not be valid.
            drop((token, env));
            // SAFETY: as above.
            return unsafe { Self::complete(this, Completion::Stopped) };
        }
        // The trip comes before the poll, since a wake-up may need it the moment the poll returns.
        // SAFETY: the caller's promise.
        let polled = Panic::catch(move || unsafe {
            Self::connect_trip(this, &env);
            // What came out of the environment goes before the completion, as above.
            drop(env);
            Self::poll_future(this)
        });
        let completion = match polled {
            // SAFETY: as above.
            Ok(Poll::Pending) => return unsafe { Self::suspend(this, token) },
            Ok(Poll::Ready(output)) => Completion::Value(output),
            Err(payload) => Completion::Panicked(payload),
        };
        drop(token);
        // SAFETY: as above.
        unsafe { Self::complete(this, completion) }
    }

    /// Connects the way to the scheduler. It may unwind: the scheduler is the user's.
    ///
    /// # Safety
    ///
    /// As for [`poll`](Self::poll).
    #[inline]
    unsafe fn connect_trip(this: NonNull<Self>, env: &R::Env) {
        let scheduler = env.scheduler();
        let inline = scheduler.native().is_some_and(|queue| queue.raw().is_inline());
        // SAFETY: the caller has exclusive access. The operation is pinned, and stays alive until it completes, which it
        // does not before the trip has arrived.
        unsafe {
            (*this.as_ptr()).inline = inline;
            if !inline && (*this.as_ptr()).trip.is_none() {
                (*this.as_ptr()).trip = Some(scheduler.schedule().connect(TripReceiver::new(this)));
            }
        }
    }

    /// Polls the future. This is the only place that does. It may unwind.
    ///
    /// # Safety
    ///
    /// As for [`poll`](Self::poll).
    #[inline]
    unsafe fn poll_future(this: NonNull<Self>) -> Poll<F::Output> {
        // SAFETY: the caller has exclusive access, and the future is pinned with the operation.
        unsafe {
            // The future is not part of the task in whose poll it may be started.
            #[cfg(feature = "std")]
            let _hidden = crate::sender::current::Hidden::from_poll();
            let waker = FirstWaker::waker(&raw const (*this.as_ptr()).first);
            match &mut (*this.as_ptr()).future {
                Some(future) => Pin::new_unchecked(future).poll(&mut Context::from_waker(&waker)),
                None => Poll::Pending,
            }
        }
    }

    /// # Safety
    ///
    /// The operation is being polled by the caller, and pending.
    unsafe fn suspend(this: NonNull<Self>, token: Option<<R::Env as Env>::StopToken>) -> Transfer {
        // SAFETY: the operation is ours until it is idle.
        let first = unsafe { &(*this.as_ptr()).first };
        let handle = first.handle();
        // SAFETY: the operation's own reference keeps the handle.
        let state = unsafe { &handle.as_ref().state };
        if let Some(token) = token {
            // SAFETY: the slot is pinned with the operation, listens for the first time, and is left before it completes.
            let listening = unsafe {
                (*this.as_ptr()).listening = true;
                StopSlot::listen(NonNull::new_unchecked(&raw mut (*this.as_ptr()).slot), token)
            };
            if !listening {
                // SAFETY: we still poll.
                return unsafe { Self::complete(this, Completion::Stopped) };
            }
        }
        let woken = first.woken.swap(false, Acquire);
        if !woken && state.compare_exchange(POLLING, IDLE, AcqRel, Acquire).is_ok() {
            // From here on a wake-up may run the operation elsewhere.
            return Transfer::none();
        }
        // Takes in what every wake-up so far has published.
        state.swap(SCHEDULED, AcqRel);
        // SAFETY: it is scheduled, by us.
        unsafe { Self::schedule(this.cast()) }
    }

    /// # Safety
    ///
    /// The operation is being polled by the caller.
    unsafe fn complete(this: NonNull<Self>, completion: Completion<F::Output, Infallible>) -> Transfer {
        // SAFETY: the operation is ours.
        unsafe {
            if let Some(handle) = NonNull::new((*this.as_ptr()).first.handle.load(Acquire)) {
                // From here on a wake-up does nothing.
                handle.as_ref().state.store(DONE, Release);
            }
            if (*this.as_ptr()).listening {
                (*this.as_ptr()).slot.leave();
            }
        }
        // SAFETY: as above; the future is dropped in place.
        let dropped = Panic::catch(|| unsafe { (*this.as_ptr()).future = None });
        // SAFETY: as above.
        let Some(receiver) = (unsafe { (*this.as_ptr()).receiver.take() }) else {
            return Transfer::none();
        };
        match (completion, dropped) {
            // The first of two panics is the one that is told.
            (completion @ Completion::Panicked(_), _) | (completion, Ok(())) => completion.deliver(receiver),
            (completion, Err(payload)) => {
                // An output that is not delivered goes before the completion, as everything does.
                drop(completion);
                receiver.set_panicked(payload)
            }
        }
    }

    const TABLE: &'static Table = &Table {
        #[cfg(feature = "std")]
        is_inline: Self::is_inline,
        schedule: Self::schedule,
        #[cfg(feature = "std")]
        arrive: Self::arrive,
    };

    /// # Safety
    ///
    /// `this` is an operation that the caller made `SCHEDULED`.
    #[cfg(feature = "std")]
    unsafe fn is_inline(this: NonNull<()>) -> bool {
        // SAFETY: it is scheduled by the caller, which so has exclusive access.
        unsafe { (*this.cast::<Self>().as_ptr()).inline }
    }

    /// Starts the trip to the scheduler.
    ///
    /// # Safety
    ///
    /// `this` is an operation that the caller made `SCHEDULED`.
    unsafe fn schedule(this: NonNull<()>) -> Transfer {
        let this = this.cast::<Self>();
        // SAFETY: it is scheduled by the caller, which so has exclusive access until the trip is started. The trip is
        // pinned with the operation, and started once: it is replaced before the next poll.
        unsafe {
            match &mut (*this.as_ptr()).trip {
                Some(trip) => {
                    (*this.as_ptr()).travelling = true;
                    start(Pin::new_unchecked(trip))
                }
                None => Transfer::to(NonNull::new_unchecked(&raw mut (*this.as_ptr()).poll)),
            }
        }
    }

    /// # Safety
    ///
    /// The job is that of an operation that is scheduled, and has arrived.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation, which is scheduled, and has arrived.
        unsafe { Self::arrive(container_of!(job, Self, poll).cast()) }
    }

    /// Polls the future of an operation that has arrived.
    ///
    /// # Safety
    ///
    /// `this` is an operation that is scheduled, and whose trip is over.
    unsafe fn arrive(this: NonNull<()>) -> Transfer {
        let this = this.cast::<Self>();
        // SAFETY: it is scheduled, so it is alive, and this has exclusive access.
        unsafe {
            (*this.as_ptr()).trip = None;
            // Takes in what the wake-ups on the way have published: they leave it to this poll to see it.
            (*this.as_ptr()).first.handle().as_ref().state.swap(POLLING, AcqRel);
            Self::poll(this, None)
        }
    }

    /// # Safety
    ///
    /// The slot is that of a suspended operation.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of an operation, which waits for the slot to be released before it goes.
        let this = unsafe { container_of!(slot, Self, slot) };
        // SAFETY: as above.
        let handle = unsafe { (*this.as_ptr()).first.handle() };
        // SAFETY: the operation's own reference keeps the handle until the slot is released; ours from then on.
        unsafe {
            handle.as_ref().references.add();
            slot.as_ref().release();
            let resumed = Handle::wake(handle, By::Stop);
            Handle::release(handle);
            resumed
        }
    }
}

impl<F, R> Operation for FromFutureOperation<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        // SAFETY: nobody else knows the operation yet.
        let token = match unsafe { &(*this.as_ptr()).receiver } {
            Some(receiver) => receiver.env().stop_token(),
            None => return Transfer::none(),
        };
        // SAFETY: as above. The slot does not listen.
        unsafe {
            (*this.as_ptr()).first.operation = this.as_ptr().cast();
            Self::poll(this, Some(token))
        }
    }
}

/// The receiver of the trip. Nothing stops it.
///
/// It does not name the operation that it points back at, which holds the trip: the compiler answers a question that leads
/// back to itself in more than one way, and incremental builds fail over that.
struct TripReceiver<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    /// A [`FromFutureOperation<F, R>`](FromFutureOperation).
    operation: NonNull<()>,
    _types: PhantomData<fn() -> (F, R)>,
}

// SAFETY: the future and the receiver are `Send`, and polled by one at a time.
unsafe impl<F, R> Send for TripReceiver<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
}

impl<F, R> TripReceiver<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    /// # Safety
    ///
    /// The operation is pinned, and stays until this has completed.
    unsafe fn new(operation: NonNull<FromFutureOperation<F, R>>) -> Self {
        TripReceiver {
            operation: operation.cast(),
            _types: PhantomData,
        }
    }

    fn complete(self, panicked: Option<Panic>) -> Transfer {
        let operation = ManuallyDrop::new(self).operation;
        // SAFETY: by the promise of `new`; this is the one completion.
        unsafe { Self::arrived(operation, panicked) }
    }

    /// The future is polled, also when the trip failed: an infallible scheduler has only one way. A panic on the way
    /// is the completion.
    ///
    /// # Safety
    ///
    /// It is such an operation, whose trip is over.
    unsafe fn arrived(operation: NonNull<()>, panicked: Option<Panic>) -> Transfer {
        let this = operation.cast::<FromFutureOperation<F, R>>();
        // SAFETY: a trip that was started has exclusive access to its operation. One that was not is dropped by what has.
        if !unsafe { core::mem::take(&mut (*this.as_ptr()).travelling) } {
            return Transfer::none();
        }
        if let Some(payload) = panicked {
            // SAFETY: a scheduled operation is ours, and the trip touches nothing of itself any more.
            return unsafe { FromFutureOperation::complete(this, Completion::Panicked(payload)) };
        }
        // SAFETY: the operation stays until it is polled to its end.
        unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*this.as_ptr()).poll)) }
    }
}

impl<F, R, E> Receiver<(), E> for TripReceiver<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    type Env = EmptyEnv;

    fn env(&self) -> EmptyEnv {
        EmptyEnv
    }

    fn set_value(self, (): ()) -> Transfer {
        TripReceiver::complete(self, None)
    }

    fn set_error(self, error: E) -> Transfer {
        drop(error);
        TripReceiver::complete(self, None)
    }

    fn set_stopped(self) -> Transfer {
        TripReceiver::complete(self, None)
    }

    fn set_panicked(self, payload: Panic) -> Transfer {
        TripReceiver::complete(self, Some(payload))
    }
}

impl<F, R> Drop for TripReceiver<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    #[cold]
    fn drop(&mut self) {
        // SAFETY: by the promise of `new`; one that has completed is not dropped.
        unsafe { Self::arrived(self.operation, None) }.run();
    }
}

impl<F, R> Drop for FromFutureOperation<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    fn drop(&mut self) {
        if let Some(handle) = NonNull::new(self.first.handle.load(Acquire)) {
            // SAFETY: the operation's own reference is given back.
            unsafe { Handle::release(handle) };
        }
    }
}

impl<F, R> fmt::Debug for FromFutureOperation<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFutureOperation")
            .field("completed", &self.receiver.is_none())
            .finish_non_exhaustive()
    }
}

/// The waker of the first polls, which lives in the operation and becomes a [`Handle`] on the heap when it is cloned.
struct FirstWaker {
    /// Null until a clone, or the first suspension, needs it. Set once, by whoever comes first.
    handle: AtomicPtr<Handle>,
    /// A wake-up by reference while the future is being polled. Looked at when the poll has returned.
    woken: AtomicBool,
    operation: *mut (),
    table: &'static Table,
}

/// What a waker knows of its operation, whose type it does not.
struct Table {
    /// Returns whether the operation's scheduler is the inline one.
    #[cfg(feature = "std")]
    is_inline: unsafe fn(NonNull<()>) -> bool,
    /// Starts the trip to the scheduler.
    schedule: unsafe fn(NonNull<()>) -> Transfer,
    /// Polls, at the end of the trip.
    #[cfg(feature = "std")]
    arrive: unsafe fn(NonNull<()>) -> Transfer,
}

/// What makes a future be polled again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// A waker, whose caller may hold locks.
    Waker,
    /// A stop, which is a driver: it runs what it resumes when its callbacks have returned.
    Stop,
}

impl FirstWaker {
    /// The handle, which is made now if there is none.
    fn handle(&self) -> NonNull<Handle> {
        if let Some(handle) = NonNull::new(self.handle.load(Acquire)) {
            return handle;
        }
        let made = NonNull::from(Box::leak(Box::new(Handle {
            references: Count::one(),
            state: AtomicU8::new(POLLING),
            // Only an operation that was started has a waker, and `start` has set the address.
            operation: NonNull::new(self.operation).unwrap_or(NonNull::dangling()),
            table: self.table,
            #[cfg(feature = "std")]
            entry: Entry::new(Handle::arrive),
        })));
        match self
            .handle
            .compare_exchange(ptr::null_mut(), made.as_ptr(), AcqRel, Acquire)
        {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: nobody else saw it.
                drop(unsafe { Box::from_raw(made.as_ptr()) });
                // SAFETY: the exchange failed because there was one.
                unsafe { NonNull::new_unchecked(other) }
            }
        }
    }

    /// A swap, so that what an earlier wake-up published is passed on with it.
    fn wake(&self) {
        self.woken.swap(true, AcqRel);
    }

    /// A waker that borrows.
    ///
    /// # Safety
    ///
    /// It is used only while `this` is alive and the operation is being polled. Clones of it may stay.
    unsafe fn waker(this: *const Self) -> ManuallyDrop<Waker> {
        // SAFETY: by the caller's promise.
        let handle = unsafe { (*this).handle.load(Acquire) };
        ManuallyDrop::new(if handle.is_null() {
            // SAFETY: the table keeps the contract of a raw waker, as long as it is used as promised.
            unsafe { Waker::from_raw(RawWaker::new(this.cast(), &FIRST)) }
        } else {
            // The same that was cloned before, so that `will_wake` recognises it.
            // SAFETY: as above; the operation's own reference keeps the handle.
            unsafe { Waker::from_raw(RawWaker::new(handle.cast(), &HANDLE)) }
        })
    }
}

static FIRST: RawWakerVTable = RawWakerVTable::new(
    |first| {
        // SAFETY: it is alive while its waker is used.
        let handle = unsafe { (*first.cast::<FirstWaker>()).handle() };
        // SAFETY: the operation's own reference keeps it.
        unsafe { handle.as_ref() }.references.add();
        RawWaker::new(handle.as_ptr().cast(), &HANDLE)
    },
    // Never owned, so never woken by value or dropped; waking does the same.
    // SAFETY: it is alive while its waker is used.
    |first| unsafe { (*first.cast::<FirstWaker>()).wake() },
    // SAFETY: as above.
    |first| unsafe { (*first.cast::<FirstWaker>()).wake() },
    |_| {},
);

static HANDLE: RawWakerVTable = RawWakerVTable::new(
    |handle| {
        // SAFETY: a waker is a reference that counts.
        unsafe { (*handle.cast::<Handle>()).references.add() };
        RawWaker::new(handle, &HANDLE)
    },
    // SAFETY: as above. A waker is a driver: it runs what starting the trip resumes. Its reference is given back.
    |handle| unsafe {
        let handle = NonNull::new_unchecked(handle.cast_mut().cast());
        Handle::wake(handle, By::Waker).run();
        Handle::release(handle);
    },
    // SAFETY: as above.
    |handle| unsafe { Handle::wake(NonNull::new_unchecked(handle.cast_mut().cast()), By::Waker).run() },
    // SAFETY: as above.
    |handle| unsafe { Handle::release(NonNull::new_unchecked(handle.cast_mut().cast())) },
);

/// What wakers share. It outlives the operation.
struct Handle {
    references: Count,
    /// | state | means | who may touch the operation |
    /// |---|---|---|
    /// | `POLLING` | it is being polled | who polls |
    /// | `NOTIFIED` | the same, and it was woken meanwhile | who polls, who schedules it again |
    /// | `IDLE` | it waits to be woken | nobody |
    /// | `SCHEDULED` | it is on its way to the scheduler | who made it so, then the scheduler |
    /// | `DONE` | it has completed, or is about to | never anybody from here |
    ///
    /// `POLLING → IDLE` releases what the poll did; `IDLE → SCHEDULED` acquires it, and is the one right to start the
    /// trip. Wake-ups in `SCHEDULED` and `NOTIFIED` start nothing, but write the state back: whoever wakes has published
    /// something before, and the swap with which the next poll begins must see it. Only looking would let both sides
    /// miss each other. Wake-ups in `DONE` are nothing new.
    state: AtomicU8,
    operation: NonNull<()>,
    table: &'static Table,
    /// The place in the queue of the global pool, for an operation on the inline scheduler. Used by the thread that made
    /// the state `SCHEDULED`, and in that queue it has a reference.
    #[cfg(feature = "std")]
    entry: Entry,
}

const IDLE: u8 = 0;
const SCHEDULED: u8 = 1;
const POLLING: u8 = 2;
const NOTIFIED: u8 = 3;
const DONE: u8 = 4;

impl Handle {
    /// # Safety
    ///
    /// The caller has a reference.
    unsafe fn wake(this: NonNull<Self>, by: By) -> Transfer {
        // SAFETY: the caller's reference keeps it.
        let state_of = unsafe { &this.as_ref().state };
        let mut state = state_of.load(Acquire);
        loop {
            let next = match state {
                IDLE => SCHEDULED,
                POLLING => NOTIFIED,
                DONE => return Transfer::none(),
                coming => coming,
            };
            match state_of.compare_exchange_weak(state, next, AcqRel, Acquire) {
                // SAFETY: this call made it scheduled.
                Ok(IDLE) => return unsafe { Self::schedule(this, by) },
                Ok(_) => return Transfer::none(),
                Err(now) => state = now,
            }
        }
    }

    /// Starts the trip to the scheduler; to the global pool where that is inline, so that no waker polls.
    ///
    /// # Safety
    ///
    /// The caller has a reference, and made the state `SCHEDULED`.
    unsafe fn schedule(this: NonNull<Self>, by: By) -> Transfer {
        // SAFETY: the caller's reference keeps it.
        let (operation, table) = unsafe { (this.as_ref().operation, this.as_ref().table) };
        #[cfg(feature = "std")]
        // SAFETY: the operation is scheduled by the caller. The entry is in no queue: it goes there once for each time
        // that the state becomes `SCHEDULED`. The reference that is added keeps it until its job has run.
        if by == By::Waker && unsafe { (table.is_inline)(operation) } {
            // SAFETY: as just said.
            unsafe {
                this.as_ref().references.add();
                return elsewhere(NonNull::new_unchecked(&raw mut (*this.as_ptr()).entry));
            }
        }
        #[cfg(not(feature = "std"))]
        let _ = by;
        // SAFETY: the operation is scheduled by the caller.
        unsafe { (table.schedule)(operation) }
    }

    /// # Safety
    ///
    /// The job is that of the entry of a handle, which has a reference, and whose operation is scheduled.
    #[cfg(feature = "std")]
    unsafe fn arrive(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first field of an entry, which is a field of a handle.
        let this = unsafe { container_of!(job.cast::<Entry>(), Self, entry) };
        // SAFETY: the operation is scheduled, and on the inline scheduler any place is as good as another. The reference
        // of the queue is given back.
        unsafe {
            let (operation, table) = (this.as_ref().operation, this.as_ref().table);
            let resumed = (table.arrive)(operation);
            Self::release(this);
            resumed
        }
    }

    /// # Safety
    ///
    /// One reference is given back.
    unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the reference is still ours.
        if unsafe { this.as_ref() }.references.give_back() {
            // SAFETY: that was the last.
            drop(unsafe { Box::from_raw(this.as_ptr()) });
        }
    }
}
