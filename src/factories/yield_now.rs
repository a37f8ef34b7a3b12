use core::convert::Infallible;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use crate::scheduler::thread_pool::Entry;
use crate::sender::demand::demand;
use crate::sender::stage::container_of;
use crate::stop::StopToken;
use crate::{Completes, Env, Job, Operation, Panic, Receiver, Scheduler, Sender, Transfer};

/// Moves to the end of the scheduler's queue, and continues there.
///
/// Long work that awaits nothing else lets other work on its scheduler run by awaiting it.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
///
/// let sum = Task::new(async {
///     let mut sum = 0u64;
///     for round in 0..10_000u64 {
///         sum += round;
///         if round % 1_000 == 0 {
///             task::yield_now().await;
///         }
///     }
///     sum
/// });
/// assert_eq!(sync_wait(sum).unwrap(), 49_995_000);
/// ```
///
/// # What runs first
///
/// | where | what |
/// |---|---|
/// | on a [`RunLoop`](crate::scheduler::RunLoop) | all that is queued there |
/// | on a [`ThreadPool`](crate::scheduler::ThreadPool) | all that is queued with this worker, and all at the same priority that came from elsewhere and no worker has taken |
/// | in an executor of another crate | what that polls next: it is woken, and what it polls is pending once |
/// | on the [`InlineScheduler`](crate::scheduler::InlineScheduler) | nothing: there is no queue |
/// | on a scheduler of your own | what its `schedule` lets run first |
///
/// A pool runs more urgent work first, so less urgent work need not have run. Of several workers, an idle one may take
/// the yielding work at once, since no other work waits for it. A worker that helps while it waits takes the newest
/// work first, and so perhaps this.
///
/// # Completions
///
/// The value, on the scheduler of the receiver's environment. A missing or fallible scheduler is a compile error.
/// Stopped, in its turn, when the stop was requested by then, even before the start.
///
/// # Panics
///
/// Those of a scheduler of your own pass.
///
/// # Cancellation
///
/// The stop token is asked when its turn has come. A stop does not shorten the wait.
///
/// # Allocation
///
/// None: the operation is the queue's node. An await outside of a task makes the one of
/// [`SenderFuture`](crate::task::SenderFuture).
#[inline]
pub fn yield_now() -> YieldNow {
    YieldNow(())
}

/// Sender created by [`yield_now`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct YieldNow(());

// SAFETY: the operation is `!Unpin`, and accesses nothing of itself once it is queued or its schedule operation
// started. It completes on the scheduler.
unsafe impl Sender for YieldNow {
    type Value = ();
    type Error = Infallible;
    const COMPLETES: Completes = Completes::OnStartScheduler;
    type Operation<R: Receiver<(), Infallible>> = YieldOperation<R>;

    #[inline]
    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> YieldOperation<R> {
        const {
            demand(
                <R::Env as Env>::Scheduler::PRESENT,
                "`yield_now` needs a scheduler in the receiver's environment: write `starts_on(scheduler, sender)`, or give it one with `.with_scheduler(scheduler)`",
            );
            demand(
                <R::Env as Env>::Scheduler::INFALLIBLE,
                "`yield_now` needs a scheduler that cannot fail: start it on `scheduler.or_inline()` or `scheduler.or_abort()`",
            );
        }
        YieldOperation {
            entry: Entry::new(YieldOperation::<R>::run),
            scheduler: None,
            receiver: Some(receiver),
            scheduled: None,
            _pinned: PhantomPinned,
        }
    }
}

/// The scheduler of a receiver.
type SchedulerOf<R> = <<R as Receiver<(), Infallible>>::Env as Env>::Scheduler;
/// The schedule operation of a scheduler whose queue this crate does not know.
type Scheduled<R> = <<SchedulerOf<R> as Scheduler>::Schedule as Sender>::Operation<YieldReceiver<R>>;

/// The operation of [`YieldNow`].
///
/// On a scheduler of this crate it waits in the scheduler's queue itself, behind all entries. Elsewhere it uses the
/// schedule sender.
pub struct YieldOperation<R: Receiver<(), Infallible>> {
    /// The entry in the queue.
    entry: Entry,
    /// Set by the start, and dropped before the completion.
    scheduler: Option<SchedulerOf<R>>,
    receiver: Option<R>,
    scheduled: Option<Scheduled<R>>,
    _pinned: PhantomPinned,
}

impl<R: Receiver<(), Infallible>> YieldOperation<R> {
    /// # Safety
    ///
    /// The job is that of a started operation, and runs once.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first field of an entry, which is a field of an operation.
        let this = unsafe { container_of!(job.cast::<Entry>(), Self, entry) };
        // SAFETY: the entry has left the queue, so this job has exclusive access to the operation.
        let this = unsafe { &mut *this.as_ptr() };
        this.scheduler = None;
        match this.receiver.take() {
            Some(receiver) => Receiver::<(), Infallible>::set_value(YieldReceiver(receiver), ()),
            None => Transfer::none(),
        }
    }
}

impl<R: Receiver<(), Infallible>> Operation for YieldOperation<R> {
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing pinned is moved: the receiver is not.
        let this = unsafe { self.get_unchecked_mut() } as *mut Self;
        // SAFETY: no other thread knows the operation before it is queued.
        let Some(receiver) = (unsafe { (*this).receiver.take() }) else {
            return Transfer::none();
        };
        // User code is called before anything is queued.
        let asked = Panic::catch(|| {
            let env = receiver.env();
            // SAFETY: no other thread knows the operation before it is queued. The scheduler is pinned here until the
            // completion.
            let scheduler = unsafe { (*this).scheduler.insert(env.scheduler()) };
            match scheduler.native() {
                Some(queue) => (Ok(queue.raw()), env.priority()),
                None => (Err(scheduler.schedule()), None),
            }
        });
        // SAFETY: the operation is pinned, and alive until the receiver is completed. Nothing of it is accessed once
        // the entry was queued, or the operation inside started. The scheduler, and so its queue, is alive until the
        // entry runs.
        unsafe {
            match asked {
                Ok((Ok(queue), priority)) => {
                    (*this).receiver = Some(receiver);
                    if let Some(priority) = priority {
                        (*this).entry.set_level(priority);
                    }
                    queue.enqueue_last(NonNull::new_unchecked(&raw mut (*this).entry).cast())
                }
                Ok((Err(schedule), _)) => {
                    (*this).scheduler = None;
                    let scheduled = (*this).scheduled.insert(schedule.connect(YieldReceiver(receiver)));
                    Pin::new_unchecked(scheduled).start()
                }
                Err(payload) => {
                    (*this).scheduler = None;
                    receiver.set_panicked(payload)
                }
            }
        }
    }
}

crate::opaque!([R: Receiver<(), Infallible>] YieldOperation<R>);

/// The receiver of a schedule operation.
#[derive(Debug)]
pub struct YieldReceiver<R>(R);

impl<R: Receiver<(), Infallible>, E> Receiver<(), E> for YieldReceiver<R> {
    type Env = R::Env;

    #[inline]
    fn env(&self) -> R::Env {
        self.0.env()
    }

    /// Asks the token, which a scheduler need not do.
    #[inline]
    fn set_value(self, (): ()) -> Transfer {
        if self.0.env().stop_token().stop_requested() {
            self.0.set_stopped()
        } else {
            self.0.set_value(())
        }
    }

    /// Completes with the value: the scheduler was required not to fail, at compile time.
    fn set_error(self, error: E) -> Transfer {
        drop(error);
        Receiver::<(), E>::set_value(self, ())
    }

    #[inline]
    fn set_stopped(self) -> Transfer {
        self.0.set_stopped()
    }

    #[inline]
    fn set_panicked(self, payload: Panic) -> Transfer {
        self.0.set_panicked(payload)
    }
}
