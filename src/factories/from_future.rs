mod waker;

use core::cell::{Cell, UnsafeCell};
use core::convert::Infallible;
use core::fmt;
use core::future::Future;
use core::marker::{PhantomData, PhantomPinned};
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll};

use crate::sender::demand::demand;
use crate::sender::stage::container_of;
use crate::sender::start;
use crate::stop::{StopSlot, StopToken};
use crate::{Completes, Completion, EmptyEnv, Env, Job, Operation, Panic, Receiver, Scheduler, Sender, Transfer};
use waker::{FirstWaker, Table};

/// Makes a sender of a future.
///
/// The future is polled on the scheduler of the receiver's environment: once at the start, then after each wake-up, which
/// schedules it there. A waker may be kept without limit: it keeps a few words of memory alive, not the future.
///
/// A future is never polled inside `wake`, whose caller may hold a lock that the future takes. The
/// [`InlineScheduler`](crate::scheduler::InlineScheduler) has no queue, so its futures are polled on the
/// [global pool](crate::scheduler::ThreadPool::global) after a wake-up. Without `std` there is no such pool, and `wake` polls.
/// So does a scheduler of your own that completes inside `start`.
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
/// # Cancellation
///
/// A stop drops the future, on the scheduler, and completes stopped. Where the stop was requested before the start, the future
/// is not polled.
///
/// # Allocation
///
/// None for a future that is ready at its first poll and does not keep its waker. One otherwise, which the wakers share.
pub fn from_future<F: Future + Send>(future: F) -> FromFuture<F> {
    FromFuture { future }
}

/// Sender created by [`from_future`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct FromFuture<F> {
    future: F,
}

// SAFETY: the operation is `!Unpin`. It accesses nothing of itself once a waker or a stop may schedule it, nor after its
// completion. It is polled, and so completes, on the scheduler of the receiver's environment only.
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
            first: FirstWaker::new(FromFutureOperation::<F, R>::TABLE),
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
    /// Accessed through [`Access`].
    own: UnsafeCell<Own<F, R>>,
    /// Whether the trip was started and has not arrived. A trip's receiver that is dropped at another time, inside `connect` or
    /// with an unstarted trip, completes nothing. Accessed by the holder of [`Access`], and by receivers that it drops.
    travelling: Cell<bool>,
    first: FirstWaker,
    /// Polls from the driver's loop, so that a future that wakes itself does not recurse.
    poll: Job,
    _pinned: PhantomPinned,
}

/// The fields of an operation that one thread at a time uses.
struct Own<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    /// The trip to the scheduler for the next wake-up, connected before each poll. `None` where the scheduler is inline.
    trip: Option<Trip<F, R>>,
    /// Whether the scheduler is the inline one. Written before each poll.
    inline: bool,
    /// Dropped in place, before the completion.
    future: Option<F>,
    /// Whether the slot listens: from the first suspension on.
    listening: bool,
    receiver: Option<R>,
}

/// Exclusive access to the fields that an operation owns. The operation was started, and does not complete while this exists.
///
/// It is made by `start`, by the thread that has made the state `SCHEDULED`, and by the trip that this thread starts.
/// Suspending and completing consume it.
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
        // SAFETY: the operation is alive, and its owned fields are this access's alone.
        unsafe { &mut *(*self.0.as_ptr()).own.get() }
    }

    fn operation(&self) -> &FromFutureOperation<F, R> {
        // SAFETY: the operation is alive. Other threads use its atomics only, and its owned fields are in a cell.
        unsafe { self.0.as_ref() }
    }

    /// Polls the future, then suspends or completes.
    ///
    /// The first poll has the token that `start` asked for, and the first suspension listens to it. A later poll has none: the
    /// environment is asked for one token only, whose stop counts.
    fn poll(mut self, token: Option<<R::Env as Env>::StopToken>) -> Transfer {
        let env = match &self.own().receiver {
            Some(receiver) => receiver.env(),
            None => return Transfer::none(),
        };
        let stopped = match &token {
            Some(token) => token.stop_requested(),
            // A callback that has not marked the slot yet wakes the operation after this poll.
            None => self.operation().slot.has_fired(),
        };
        if stopped {
            // Parts of the environment are dropped before the completion, after which they may be invalid.
            drop((token, env));
            return self.complete(Completion::Stopped);
        }
        // The trip is connected before the poll, since a wake-up may need it as soon as the poll returns.
        let polled = Panic::catch(|| {
            self.connect_trip(&env);
            // Dropped before the completion, after which it may be invalid.
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

    /// Connects the trip to the scheduler. It may unwind: the scheduler is the user's.
    #[inline]
    fn connect_trip(&mut self, env: &R::Env) {
        let scheduler = env.scheduler();
        let inline = scheduler.native().is_some_and(|queue| queue.raw().is_inline());
        self.own().inline = inline;
        if !inline && self.own().trip.is_none() {
            // SAFETY: the operation is pinned, and alive until it completes, which is after the trip has arrived.
            let receiver = unsafe { TripReceiver::new(self.0) };
            let trip = scheduler.schedule().connect(receiver);
            self.own().trip = Some(trip);
        }
    }

    /// Polls the future. This is the only place that does. It may unwind.
    #[inline]
    fn poll_future(&mut self) -> Poll<F::Output> {
        // The future does not belong to the task in whose poll it may be started.
        #[cfg(feature = "std")]
        let _hidden = crate::sender::current::Hidden::from_poll();
        let waker = self.operation().first.waker();
        match &mut self.own().future {
            // SAFETY: the future is pinned with the operation.
            Some(future) => unsafe { Pin::new_unchecked(future) }.poll(&mut Context::from_waker(&waker)),
            None => Poll::Pending,
        }
    }

    /// Leaves the operation to the next wake-up, unless one has come during the poll.
    fn suspend(mut self, token: Option<<R::Env as Env>::StopToken>) -> Transfer {
        self.operation().first.make_handle();
        if let Some(token) = token {
            self.own().listening = true;
            // SAFETY: the slot is pinned with the operation, and listens for the first time. It leaves before the completion.
            if !unsafe { StopSlot::listen(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).slot), token) } {
                return self.complete(Completion::Stopped);
            }
        }
        if self.operation().first.suspend() {
            // From here on a wake-up may run the operation on another thread.
            return Transfer::none();
        }
        self.schedule()
    }

    /// Drops the future, then completes the receiver.
    fn complete(mut self, completion: Completion<F::Output, Infallible>) -> Transfer {
        self.operation().first.finish();
        if self.own().listening {
            self.operation().slot.leave();
        }
        let dropped = Panic::catch(|| self.own().future = None);
        let Some(receiver) = self.own().receiver.take() else {
            return Transfer::none();
        };
        match (completion, dropped) {
            // The first of two panics is the completion.
            (completion @ Completion::Panicked(_), _) | (completion, Ok(())) => completion.deliver(receiver),
            (completion, Err(payload)) => {
                // An output that is not delivered is dropped before the completion.
                drop(completion);
                receiver.set_panicked(payload)
            }
        }
    }

    /// Starts the trip to the scheduler.
    fn schedule(mut self) -> Transfer {
        let travelling: *const Cell<bool> = &self.operation().travelling;
        match &mut self.own().trip {
            // SAFETY: the operation is alive until the trip has arrived. The trip is pinned with it, and started once:
            // `arrive` removes it.
            Some(trip) => unsafe {
                (*travelling).set(true);
                start(Pin::new_unchecked(trip))
            },
            None => self.poll_later(),
        }
    }

    /// Returns the job that polls.
    fn poll_later(self) -> Transfer {
        // SAFETY: the operation is alive until it completes, and the access passes to the job.
        unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).poll)) }
    }

    /// Polls the future of an operation whose trip is over.
    fn arrive(mut self) -> Transfer {
        self.own().trip = None;
        self.operation().first.begin_poll();
        self.poll(None)
    }
}

/// Functions that take an address are called by the thread that made the operation `SCHEDULED`, or by its trip.
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

    /// Polls, at the end of the trip.
    ///
    /// # Safety
    ///
    /// The job is that of an operation whose trip has arrived.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation, and `poll_later` passed the access to it.
        Access(unsafe { container_of!(job, Self, poll) }).arrive()
    }

    /// Wakes the operation for a stop.
    ///
    /// # Safety
    ///
    /// The slot is that of a suspended operation.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of an operation, which is alive until the slot is released: `complete` waits for that.
        let handle = unsafe {
            let handle = container_of!(slot, Self, slot).as_ref().first.to_handle();
            slot.as_ref().release();
            handle
        };
        handle.stop()
    }
}

impl<F, R> Operation for FromFutureOperation<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved out of the pinned operation.
        let this = unsafe { self.get_unchecked_mut() };
        let token = match &this.own.get_mut().receiver {
            Some(receiver) => receiver.env().stop_token(),
            None => return Transfer::none(),
        };
        let address = NonNull::from(&mut *this);
        this.first.set_operation(address.cast());
        Access(address).poll(Some(token))
    }
}

/// The receiver of the trip, whose environment has no stop.
///
/// It does not name the type of the operation, which contains the trip. That type would lead back to itself, and incremental
/// builds fail over such a cycle.
struct TripReceiver<F, R>
where
    F: Future + Send,
    R: Receiver<F::Output, Infallible>,
{
    /// A [`FromFutureOperation<F, R>`](FromFutureOperation).
    operation: NonNull<()>,
    _types: PhantomData<fn() -> (F, R)>,
}

// SAFETY: future and receiver are `Send`, and the access that the trip carries is one thread's at a time.
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
    /// The operation is pinned, and alive until this receiver is completed or dropped.
    unsafe fn new(operation: NonNull<FromFutureOperation<F, R>>) -> Self {
        TripReceiver {
            operation: operation.cast(),
            _types: PhantomData,
        }
    }

    fn complete(self, panicked: Option<Panic>) -> Transfer {
        ManuallyDrop::new(self).arrived(panicked)
    }

    /// Polls the future, also after a trip that failed: an infallible scheduler has only one way. A panic on the way is the
    /// completion.
    fn arrived(&mut self, panicked: Option<Panic>) -> Transfer {
        // A started trip carries the access. An unstarted one is dropped by the holder of the access.
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
