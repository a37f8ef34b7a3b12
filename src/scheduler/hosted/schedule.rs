//! The scheduler of a hosted queue, its sender and its operation.

use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::{self, NonNull};
use std::sync::Arc;
use std::vec::Vec;

use super::driver::{HostedDriver, Running};
use super::host::Host;
use super::shared::{self, HostedShared};
use crate::scheduler::thread_pool::{Entry, EntryPlace, OwnedEntry, forward, raise_forwarded};
use crate::sender::native::{Native, Queue};
use crate::sender::stage::container_of;
use crate::stop::StopToken;
use crate::sync::spin;
use crate::{Env, Job, Operation, Priority, Receiver, Scheduler, Sender, Transfer};

/// A scheduler whose work another executor runs: two words, free to copy. Two handles are equal if they belong to one
/// queue.
///
/// [`new`](HostedScheduler::new) returns the scheduler and its *drivers*. Each driver is a future, which the host spawns
/// like any other. Inside `poll`, it runs the work that was scheduled. So tasks run on the host's threads, between the
/// host's own tasks, and see the context that the host gives to its tasks. Several drivers run jobs in parallel.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::HostedScheduler;
///
/// let executor = async_executor::Executor::new();
/// let (scheduler, drivers) = HostedScheduler::new(1);
/// for driver in drivers {
///     executor.spawn(driver).detach();
/// }
/// let work = starts_on(scheduler, Task::new(async { 6 * 7 }));
/// let answer = futures_lite::future::block_on(executor.run(async { work.await }));
/// assert_eq!(answer, Ok(42));
/// ```
///
/// # Order
///
/// FIFO within a [`Priority`]. Work at a higher level is taken first. No level starves: the oldest job of each level is
/// taken at least once in 320 jobs.
///
/// # The end
///
/// The host ends the scheduler by dropping the drivers, as every executor does when it shuts down. Jobs that are queued
/// when the first driver is dropped run on the [global](crate::scheduler::ThreadPool::global) pool. So does work that
/// arrives later. No job is lost, none runs twice, and none runs inside the drop. A job that is running at that time
/// finishes inside its driver's `poll`, before the host can drop that driver. Drivers that are left end when they are polled.
///
/// The end does not wait for the last drop: a job that is running may wait for a queued one, and keeps its driver until then.
///
/// A host that forgets its drivers, or stops polling without dropping them, leaves the queued jobs waiting. If it knows that it
/// will poll none of them, it calls [`end`](HostedScheduler::end).
///
/// # Blocking
///
/// A job that blocks its thread, in [`sync_wait`](crate::sync_wait) for instance, blocks its driver. The other drivers run
/// the queued jobs. If every driver is blocked, queued jobs wait until one returns. So a single driver must not wait for work
/// of its own scheduler, and this is the same as on a [`RunLoop`](crate::scheduler::RunLoop). A [`Host`] can do better: it may
/// [replace](Host::replaces_blocked) a driver that blocks.
#[derive(Clone, Copy)]
pub struct HostedScheduler {
    pub(super) shared: &'static HostedShared,
    pub(super) generation: u32,
}

impl HostedScheduler {
    /// Creates a scheduler, and as many drivers for its host to spawn. At most as many jobs run at once.
    ///
    /// # Panics
    ///
    /// If `drivers` is zero.
    pub fn new(drivers: usize) -> (Self, Vec<HostedDriver>) {
        HostedScheduler::open(drivers, None)
    }

    /// Creates a scheduler whose host spawns the drivers itself.
    ///
    /// # Panics
    ///
    /// If `drivers` is zero, and with the panic of [`Host::spawn`].
    pub fn on(host: impl Host, drivers: usize) -> Self {
        let host: Arc<dyn Host> = Arc::new(host);
        let (scheduler, drivers) = HostedScheduler::open(drivers, Some(host.clone()));
        for driver in drivers {
            host.spawn(driver);
        }
        scheduler
    }

    fn open(drivers: usize, host: Option<Arc<dyn Host>>) -> (Self, Vec<HostedDriver>) {
        assert!(drivers > 0, "hosted scheduler needs at least one driver");
        let keeps_woken = host.as_ref().is_some_and(|host| host.keeps_woken_task());
        let shared = shared::obtain();
        let generation = shared.open(drivers, keeps_woken);
        let scheduler = HostedScheduler { shared, generation };
        let drivers = (0..drivers)
            .map(|slot| HostedDriver::new(scheduler, slot, host.clone()))
            .collect();
        (scheduler, drivers)
    }

    /// Ends the scheduler, as the first drop of a driver does: see [there](HostedScheduler#the-end). Has no effect on a scheduler that has
    /// ended.
    pub fn end(&self) {
        self.shared.end(self.generation);
    }

    /// Returns whether the scheduler has ended, so that work runs on the global pool.
    pub fn has_ended(&self) -> bool {
        self.shared.has_ended(self.generation)
    }

    /// Queues an entry, or forwards it to the global pool if the queue has ended.
    #[inline]
    fn push(self, entry: OwnedEntry) -> Transfer {
        match self.shared.push(entry, self.generation, Running::here(self).is_some()) {
            Ok(()) => Transfer::none(),
            Err(entry) => forward(entry),
        }
    }

    /// Raises an entry to at least `priority`, and moves it to its new level if it is queued.
    ///
    /// # Safety
    ///
    /// The entry is valid until this returns. If it was pushed, it was by a scheduler of this queue.
    unsafe fn raise(self, entry: NonNull<Entry>, priority: Priority) -> Transfer {
        // SAFETY: the entry is valid, by the contract of this function.
        let this = unsafe { entry.as_ref() };
        if !this.raise(priority) {
            return Transfer::none();
        }
        let mut rounds = 0;
        loop {
            let place = this.place();
            if place == EntryPlace::Nowhere {
                return Transfer::none();
            }
            // Read after the place: an entry in the global pool was marked as forwarded before.
            let found = if this.is_forwarded() {
                // SAFETY: the entry is valid. This queue has marked it, so only the global pool can have it.
                match unsafe { raise_forwarded(entry, place) } {
                    Ok(found) => found,
                    Err(entry) => return forward(entry),
                }
            } else {
                // SAFETY: the entry is valid, and was pushed to this queue if to any.
                unsafe { self.shared.raise(entry) }
            };
            if found {
                return Transfer::none();
            }
            // Another thread is about to queue the entry, or to run it, and to store its new place.
            spin(&mut rounds);
        }
    }
}

impl Scheduler for HostedScheduler {
    type Schedule = HostedSchedule;
    const INFALLIBLE: bool = true;

    #[inline]
    fn schedule(&self) -> HostedSchedule {
        HostedSchedule { scheduler: *self }
    }

    #[inline]
    fn native(&self) -> Option<Native<'_>> {
        Some(Native::of(self))
    }
}

impl Queue for HostedScheduler {
    const MOVES: bool = true;

    #[inline]
    unsafe fn enqueue(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: the contract of this function. The handle is copied before the entry is queued.
        let (scheduler, entry) = unsafe { (*this.as_ref(), OwnedEntry::new(job.cast())) };
        scheduler.push(entry)
    }

    /// Queues the entry: the queue is FIFO, so every push is the last of its level.
    #[inline]
    unsafe fn enqueue_last(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: the contract is the one of `enqueue`, without the frame.
        unsafe { Self::enqueue(this, job) }
    }

    unsafe fn raise(this: NonNull<Self>, job: NonNull<Job>, priority: Priority) -> Transfer {
        // SAFETY: the job is the first field of an entry of this queue, valid until this returns, by the contract of this
        // function.
        unsafe { HostedScheduler::raise(*this.as_ref(), job.cast(), priority) }
    }

    /// Returns whether a driver of this queue is the innermost driver of the calling thread.
    #[inline]
    fn is_here(&self) -> bool {
        Running::here(*self).is_some()
    }

    #[inline]
    fn identity(&self) -> [usize; 2] {
        [ptr::from_ref(self.shared).addr(), self.generation as usize]
    }
}

impl PartialEq for HostedScheduler {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.shared, other.shared) && self.generation == other.generation
    }
}

impl Eq for HostedScheduler {}

impl fmt::Debug for HostedScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostedScheduler")
            .field("queue", &format_args!("{:p}.{}", self.shared, self.generation))
            .field("ended", &self.has_ended())
            .finish()
    }
}

/// The schedule sender of a [`HostedScheduler`].
///
/// # Completions
///
/// The value, inside the poll of a driver. Stopped, also there, if the stop was requested by then.
///
/// # Panics
///
/// None: it runs no user code but the host's waker, whose panic is caught.
///
/// # Cancellation
///
/// The stop token is checked when the job runs. A stop does not shorten the wait.
///
/// # Allocation
///
/// None: the operation is the queue's node. If the host has ended, the first use of the global pool allocates.
///
/// # Stack
///
/// Constant.
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct HostedSchedule {
    scheduler: HostedScheduler,
}

// SAFETY: the operation does not access itself after the push, nor after its completion. It is `!Unpin`.
unsafe impl Sender for HostedSchedule {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = HostedOperation<R>;

    #[inline]
    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> HostedOperation<R> {
        HostedOperation {
            entry: Entry::new(HostedOperation::<R>::run),
            scheduler: self.scheduler,
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

/// The operation of [`HostedSchedule`].
pub struct HostedOperation<R> {
    entry: Entry,
    scheduler: HostedScheduler,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<R: Receiver<(), Infallible>> HostedOperation<R> {
    /// # Safety
    ///
    /// `job` is the job of a started operation, and runs once.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        let entry = job.cast::<Entry>();
        // SAFETY: the job is the first field of an entry, which is a field of an operation. The entry is in no queue,
        // so this function has exclusive access to the receiver.
        match unsafe { (*container_of!(entry, Self, entry).as_ptr()).receiver.take() } {
            Some(receiver) if receiver.env().stop_token().stop_requested() => receiver.set_stopped(),
            Some(receiver) => receiver.set_value(()),
            None => Transfer::none(),
        }
    }
}

impl<R: Receiver<(), Infallible>> Operation for HostedOperation<R> {
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        let scheduler = this.scheduler;
        if let Some(priority) = this.receiver.as_ref().and_then(|receiver| receiver.env().priority()) {
            this.entry.set_level(priority);
        }
        let this = NonNull::from(this).as_ptr();
        // SAFETY: the entry is pinned with the operation, which stays valid until its job completes it.
        let entry = unsafe { OwnedEntry::new(NonNull::new_unchecked(&raw mut (*this).entry)) };
        scheduler.push(entry)
    }

    unsafe fn raise(this: NonNull<Self>, priority: Priority) {
        // SAFETY: the operation is valid, by the contract of `raise`. Both fields were written before the start.
        let (entry, scheduler) = unsafe {
            let this = this.as_ptr();
            (NonNull::new_unchecked(&raw mut (*this).entry), (*this).scheduler)
        };
        // SAFETY: the entry is valid, and the operation pushes it to this queue.
        unsafe { scheduler.raise(entry, priority) }.run();
    }
}

crate::opaque!([R] HostedOperation<R>);
