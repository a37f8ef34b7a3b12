use alloc::boxed::Box;
use core::cell::{Cell, UnsafeCell};
use core::convert::Infallible;
use core::fmt;
use core::future::Future;
use core::marker::{PhantomData, PhantomPinned};
use core::mem::ManuallyDrop;
use core::ops::Deref;
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
            slot: StopSlot::new(FromFutureOperation::<F, R>::stop_requested),
            own: UnsafeCell::new(Own {
                trip: None,
                inline: false,
                future: Some(self.future),
                listening: false,
                receiver: Some(receiver),
            }),
            travelling: Cell::new(false),
            first: FirstWaker {
                handle: AtomicPtr::new(ptr::null_mut()),
                woken: AtomicBool::new(false),
                operation: ptr::null_mut(),
                table: FromFutureOperation::<F, R>::TABLE,
            },
            poll: Job::new(FromFutureOperation::<F, R>::run),
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
    slot: StopSlot<<R::Env as Env>::StopToken>,
    /// For the one that has [`Access`].
    own: UnsafeCell<Own<F, R>>,
    /// Whether the trip was started and has not arrived. A receiver of a trip that goes at another time, inside `connect` or
    /// with a trip that was not made, means nothing. For the one that has access, and for what that drops.
    travelling: Cell<bool>,
    first: FirstWaker,
    /// Polls, from the driver's loop, so that a future that wakes itself does not recurse.
    poll: Job,
    _pinned: PhantomPinned,
}

/// What only one thread at a time uses.
struct Own<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    /// The way to the scheduler for the next wake-up, connected before the future is polled. `None` where that is inline.
    trip: Option<Trip<F, R>>,
    /// Whether the scheduler is the inline one. Written before each poll.
    inline: bool,
    /// Dropped in place, before the completion.
    future: Option<F>,
    /// The slot listens, from the first suspension on.
    listening: bool,
    receiver: Option<R>,
}

/// Exclusive access to what an operation owns. The operation was started, and does not complete while this exists.
///
/// It is made by the start, by the thread that has made the state `SCHEDULED`, and by the trip that this thread starts. It
/// is consumed by what suspends or completes.
struct Access<F, R>(NonNull<FromFutureOperation<F, R>>)
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>;

impl<F, R> Access<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    fn own(&mut self) -> &mut Own<F, R> {
        // SAFETY: the operation is alive, and this is exclusive access to what it owns.
        unsafe { &mut *(*self.0.as_ptr()).own.get() }
    }

    fn operation(&self) -> &FromFutureOperation<F, R> {
        // SAFETY: the operation is alive. What others use of it are atomics, and what it owns is in a cell.
        unsafe { self.0.as_ref() }
    }

    /// Polls the future. The first poll has the token that `start` asked for, and the first suspension listens to it. The
    /// environment is not asked for another: the stop that counts is that of the one token. A later poll has none.
    fn poll(mut self, token: Option<<R::Env as Env>::StopToken>) -> Transfer {
        let env = match &self.own().receiver {
            Some(receiver) => receiver.env(),
            None => return Transfer::none(),
        };
        let stopped = match &token {
            Some(token) => token.stop_requested(),
            // A callback that has not come this far wakes the operation after this poll.
            None => self.operation().slot.has_fired(),
        };
        if stopped {
            // What came out of the environment goes before the completion, after which it may not be valid.
            drop((token, env));
            return self.complete(Completion::Stopped);
        }
        // The trip comes before the poll, since a wake-up may need it the moment the poll returns.
        let polled = Panic::catch(|| {
            self.connect_trip(&env);
            // What came out of the environment goes before the completion, as above.
            drop(env);
            self.poll_future()
        });
        let completion = match polled {
            Ok(Poll::Pending) => return self.suspend(token),
            Ok(Poll::Ready(output)) => Completion::Value(output),
            Err(payload) => Completion::Panicked(payload),
        };
        drop(token);
        self.complete(completion)
    }

    /// Connects the way to the scheduler. It may unwind: the scheduler is the user's.
    #[inline]
    fn connect_trip(&mut self, env: &R::Env) {
        let scheduler = env.scheduler();
        let inline = scheduler.native().is_some_and(|queue| queue.raw().is_inline());
        self.own().inline = inline;
        if !inline && self.own().trip.is_none() {
            // SAFETY: the operation is pinned, and stays alive until it completes, which it does not before the trip has
            // arrived.
            let receiver = unsafe { TripReceiver::new(self.0) };
            let trip = scheduler.schedule().connect(receiver);
            self.own().trip = Some(trip);
        }
    }

    /// Polls the future. This is the only place that does. It may unwind.
    #[inline]
    fn poll_future(&mut self) -> Poll<F::Output> {
        // The future is not part of the task in whose poll it may be started.
        #[cfg(feature = "std")]
        let _hidden = crate::sender::current::Hidden::from_poll();
        let waker = self.operation().first.waker();
        match &mut self.own().future {
            // SAFETY: the future is pinned with the operation.
            Some(future) => unsafe { Pin::new_unchecked(future) }.poll(&mut Context::from_waker(&waker)),
            None => Poll::Pending,
        }
    }

    fn suspend(mut self, token: Option<<R::Env as Env>::StopToken>) -> Transfer {
        let handle = self.operation().first.handle();
        if let Some(token) = token {
            self.own().listening = true;
            // SAFETY: the slot is pinned with the operation, listens for the first time, and is left before it completes.
            if !unsafe { StopSlot::listen(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).slot), token) } {
                return self.complete(Completion::Stopped);
            }
        }
        let woken = self.operation().first.woken.swap(false, Acquire);
        if !woken && handle.state.compare_exchange(POLLING, IDLE, AcqRel, Acquire).is_ok() {
            // From here on a wake-up may run the operation elsewhere.
            return Transfer::none();
        }
        // Takes in what every wake-up so far has published.
        handle.state.swap(SCHEDULED, AcqRel);
        self.schedule()
    }

    fn complete(mut self, completion: Completion<F::Output, Infallible>) -> Transfer {
        if let Some(handle) = self.operation().first.made() {
            // From here on a wake-up does nothing.
            handle.state.store(DONE, Release);
        }
        if self.own().listening {
            self.operation().slot.leave();
        }
        let dropped = Panic::catch(|| self.own().future = None);
        let Some(receiver) = self.own().receiver.take() else {
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

    /// Starts the trip to the scheduler.
    fn schedule(mut self) -> Transfer {
        let travelling: *const Cell<bool> = &self.operation().travelling;
        match &mut self.own().trip {
            // SAFETY: the operation is alive until the trip has arrived. The trip is pinned with it, and started once: it is
            // replaced before the next poll.
            Some(trip) => unsafe {
                (*travelling).set(true);
                start(Pin::new_unchecked(trip))
            },
            None => self.poll_later(),
        }
    }

    /// Returns the job that polls.
    fn poll_later(self) -> Transfer {
        // SAFETY: the operation stays until it is polled to its end. The access goes with the job.
        unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).poll)) }
    }

    /// Polls the future of an operation whose trip is over.
    fn arrive(mut self) -> Transfer {
        self.own().trip = None;
        // Takes in what the wake-ups on the way have published: they leave it to this poll to see it.
        self.operation().first.handle().state.swap(POLLING, AcqRel);
        self.poll(None)
    }
}

/// The caller of each function that takes an address has made the operation there `SCHEDULED`, or is its trip.
impl<F, R> FromFutureOperation<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    const TABLE: &'static Table = &Table {
        #[cfg(feature = "std")]
        is_inline: |this| Access::<F, R>(this.cast()).own().inline,
        schedule: |this| Access::<F, R>(this.cast()).schedule(),
        #[cfg(feature = "std")]
        arrive: |this| Access::<F, R>(this.cast()).arrive(),
    };

    /// # Safety
    ///
    /// The job is that of an operation that is scheduled, and has arrived.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation, and comes with the access.
        Access(unsafe { container_of!(job, Self, poll) }).arrive()
    }

    /// # Safety
    ///
    /// The slot is that of a suspended operation.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of an operation, which waits for the slot to be released before it goes.
        let handle = unsafe {
            let handle = Handle::clone(&container_of!(slot, Self, slot).as_ref().first.handle());
            slot.as_ref().release();
            handle
        };
        handle.wake(By::Stop)
    }
}

impl<F, R> Operation for FromFutureOperation<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        let token = match &this.own.get_mut().receiver {
            Some(receiver) => receiver.env().stop_token(),
            None => return Transfer::none(),
        };
        let address = NonNull::from(&mut *this);
        this.first.operation = address.as_ptr().cast();
        Access(address).poll(Some(token))
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
    /// The operation is pinned, and stays until this has completed. What is dropped with it drops this first.
    unsafe fn new(operation: NonNull<FromFutureOperation<F, R>>) -> Self {
        TripReceiver {
            operation: operation.cast(),
            _types: PhantomData,
        }
    }

    fn complete(self, panicked: Option<Panic>) -> Transfer {
        ManuallyDrop::new(self).arrived(panicked)
    }

    /// The future is polled, also when the trip failed: an infallible scheduler has only one way. A panic on the way
    /// is the completion.
    fn arrived(&mut self, panicked: Option<Panic>) -> Transfer {
        // A trip that was started has the access. One that was not is dropped by what has.
        let access = Access::<F, R>(self.operation.cast());
        if !access.operation().travelling.take() {
            return Transfer::none();
        }
        match panicked {
            Some(payload) => access.complete(Completion::Panicked(payload)),
            None => access.poll_later(),
        }
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
        self.arrived(None).run();
    }
}

impl<F, R> fmt::Debug for FromFutureOperation<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFutureOperation").finish_non_exhaustive()
    }
}

/// The waker of the first polls, which lives in the operation and becomes a [`Handle`] when it is cloned.
struct FirstWaker {
    /// Null until a clone, or the first suspension, needs it. Set once, by whoever comes first.
    handle: AtomicPtr<Shared>,
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
    /// The operation's own handle, if there is one.
    fn made(&self) -> Option<ManuallyDrop<Handle>> {
        NonNull::new(self.handle.load(Acquire)).map(|shared| ManuallyDrop::new(Handle(shared)))
    }

    /// The operation's own handle, which is made now if there is none.
    fn handle(&self) -> ManuallyDrop<Handle> {
        if let Some(handle) = self.made() {
            return handle;
        }
        let made = Handle(NonNull::from(Box::leak(Box::new(Shared {
            references: Count::one(),
            state: AtomicU8::new(POLLING),
            // Only an operation that was started has a waker, and `start` has set the address.
            operation: NonNull::new(self.operation).unwrap_or(NonNull::dangling()),
            table: self.table,
            #[cfg(feature = "std")]
            entry: Entry::new(Handle::arrive),
        }))));
        match self
            .handle
            .compare_exchange(ptr::null_mut(), made.0.as_ptr(), AcqRel, Acquire)
        {
            Ok(_) => ManuallyDrop::new(made),
            // There is another, and nothing has seen this one.
            Err(_) => {
                drop(made);
                self.handle()
            }
        }
    }

    /// A swap, so that what an earlier wake-up published is passed on with it.
    fn wake(&self) {
        self.woken.swap(true, AcqRel);
    }

    /// A waker that borrows, for the poll that it is used in. Its clones own a handle.
    fn waker(&self) -> ManuallyDrop<Waker> {
        let raw = match self.made() {
            None => RawWaker::new(ptr::from_ref(self).cast(), &FIRST),
            // The same that was cloned before, so that `will_wake` recognises it.
            Some(handle) => handle.raw(),
        };
        // SAFETY: the tables keep the contract of a raw waker. This is alive, and its handle with it, for as long as the poll
        // is that the waker is made for: only a reference leaves this module.
        ManuallyDrop::new(unsafe { Waker::from_raw(raw) })
    }
}

impl Drop for FirstWaker {
    fn drop(&mut self) {
        self.made().map(ManuallyDrop::into_inner);
    }
}

static FIRST: RawWakerVTable = RawWakerVTable::new(
    // SAFETY: it is alive while its waker is used.
    |first| Handle::clone(&unsafe { &*first.cast::<FirstWaker>() }.handle()).into_raw(),
    // Never owned, so never woken by value or dropped; waking does the same.
    // SAFETY: it is alive while its waker is used.
    |first| unsafe { (*first.cast::<FirstWaker>()).wake() },
    // SAFETY: as above.
    |first| unsafe { (*first.cast::<FirstWaker>()).wake() },
    |_| {},
);

static HANDLE: RawWakerVTable = RawWakerVTable::new(
    // SAFETY: the waker is a handle.
    |handle| Handle::clone(&*unsafe { Handle::of(handle) }).into_raw(),
    // A waker is a driver: it runs what starting the trip resumes.
    |handle| {
        // SAFETY: the waker is a handle, and is consumed.
        let handle = ManuallyDrop::into_inner(unsafe { Handle::of(handle) });
        handle.wake(By::Waker).run();
    },
    // SAFETY: the waker is a handle.
    |handle| unsafe { Handle::of(handle) }.wake(By::Waker).run(),
    // SAFETY: the waker is a handle, and is consumed.
    |handle| drop(ManuallyDrop::into_inner(unsafe { Handle::of(handle) })),
);

/// What wakers share. It outlives the operation.
struct Shared {
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

/// One reference to what wakers share, which counts.
struct Handle(NonNull<Shared>);

impl Deref for Handle {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        // SAFETY: a handle keeps what is shared.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.references.add();
        Handle(self.0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.references.release() {
            // SAFETY: that was the last.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

impl Handle {
    /// # Safety
    ///
    /// The address is that of a handle's raw waker, which still counts.
    unsafe fn of(data: *const ()) -> ManuallyDrop<Handle> {
        // SAFETY: the caller's promise.
        ManuallyDrop::new(Handle(unsafe { NonNull::new_unchecked(data.cast_mut().cast()) }))
    }

    /// The raw waker of this handle.
    fn raw(&self) -> RawWaker {
        RawWaker::new(self.0.as_ptr().cast(), &HANDLE)
    }

    fn into_raw(self) -> RawWaker {
        ManuallyDrop::new(self).raw()
    }

    fn wake(&self, by: By) -> Transfer {
        let mut state = self.state.load(Acquire);
        loop {
            let next = match state {
                IDLE => SCHEDULED,
                POLLING => NOTIFIED,
                DONE => return Transfer::none(),
                coming => coming,
            };
            match self.state.compare_exchange_weak(state, next, AcqRel, Acquire) {
                // SAFETY: this call made it scheduled.
                Ok(IDLE) => return unsafe { self.schedule(by) },
                Ok(_) => return Transfer::none(),
                Err(now) => state = now,
            }
        }
    }

    /// Starts the trip to the scheduler; to the global pool where that is inline, so that no waker polls.
    ///
    /// # Safety
    ///
    /// The caller made the state `SCHEDULED`.
    unsafe fn schedule(&self, by: By) -> Transfer {
        #[cfg(feature = "std")]
        // SAFETY: the operation is scheduled by the caller. The entry is in no queue: it goes there once for each time
        // that the state becomes `SCHEDULED`. The handle that goes with it keeps it until its job has run.
        unsafe {
            if by == By::Waker && (self.table.is_inline)(self.operation) {
                let shared = ManuallyDrop::new(self.clone()).0;
                return elsewhere(NonNull::new_unchecked(&raw mut (*shared.as_ptr()).entry));
            }
        }
        #[cfg(not(feature = "std"))]
        let _ = by;
        // SAFETY: the operation is scheduled by the caller.
        unsafe { (self.table.schedule)(self.operation) }
    }

    /// # Safety
    ///
    /// The job is that of the entry of what a handle, which comes with it, shares. The operation is scheduled.
    #[cfg(feature = "std")]
    unsafe fn arrive(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first field of an entry, which is a field of what is shared.
        let this = Handle(unsafe { container_of!(job.cast::<Entry>(), Shared, entry) });
        // SAFETY: the operation is scheduled, and on the inline scheduler any place is as good as another.
        unsafe { (this.table.arrive)(this.operation) }
    }
}
