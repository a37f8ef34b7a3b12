use core::cell::Cell;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::{self, NonNull};

use super::RunLoop;
use crate::memory;
use crate::scheduler::hosted::while_blocked;
use crate::scheduler::thread_pool::Worker;
use crate::scheduler::timer::{PendingTimers, Taken};
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sync::park;
use crate::{Job, Transfer};

/// The right to run the jobs of a loop. Only the loop's one driver, on the driving thread, has it.
pub(crate) struct Driver<'a> {
    run_loop: &'a RunLoop,
    /// Neither `Send` nor `Sync`.
    _thread: PhantomData<*const ()>,
}

impl Deref for Driver<'_> {
    type Target = RunLoop;

    #[inline]
    fn deref(&self) -> &RunLoop {
        self.run_loop
    }
}

impl<'a> Driver<'a> {
    /// Creates the driver. The caller holds the loop's lock, or no other thread can drive the loop.
    pub(super) fn of(run_loop: &'a RunLoop) -> Self {
        Driver {
            run_loop,
            _thread: PhantomData,
        }
    }

    /// Runs the oldest job and the work that it resumes. Sleeps until there is a job. A worker of a pool passes its
    /// seat on while it sleeps.
    pub(crate) fn run_one(&self, until: RunUntil) {
        let over = || until == RunUntil::NextJobOrFinish && self.finishing.load(Acquire);
        loop {
            if self.try_run_one() || over() {
                return;
            }
            // A worker spins first: parking and passing its seat on cost more than a short wait.
            let worker = Worker::current();
            if worker.is_some_and(|worker| worker.look(|| !self.pushed.load(Relaxed).is_null())) {
                continue;
            }
            // A number that no producer has seen, so that a producer with the handle of an earlier sleep cannot end
            // this one.
            let sleep = self.own.sleep.get().wrapping_add(2);
            self.own.sleep.set(sleep);
            let asleep = ptr::without_provenance_mut(sleep);
            if self
                .pushed
                .compare_exchange(ptr::null_mut(), asleep, AcqRel, Relaxed)
                .is_err()
            {
                continue;
            }
            // Sleep until a producer pushes, a timer is due, or the loop finishes. A worker passes its seat on meanwhile.
            let due = Cell::new(ptr::null_mut::<Job>());
            let awake = || self.pushed.load(Acquire) != asleep || !due.get().is_null() || over();
            let nap = || match self.served().map(PendingTimers::take_due_or_park) {
                // A thread that rests for long frees memory that no task needs.
                None => park(memory::tidy()),
                Some(taken) => due.set(taken.map_or(ptr::null_mut(), |due| due.head)),
            };
            while_blocked(|| match worker {
                None => {
                    while !awake() {
                        nap();
                    }
                }
                Some(worker) => worker.block_until(awake, nap),
            });
            // Ends the sleep, unless a producer has ended it already.
            self.own.ready.set(due.get());
            let _ = self.pushed.compare_exchange(asleep, ptr::null_mut(), Relaxed, Relaxed);
        }
    }

    /// Runs the oldest job and the work that it resumes, or wakes the wakers of due alarms. Returns `false` if there is neither.
    fn try_run_one(&self) -> bool {
        if self.own.ready.get().is_null() {
            // The driver is awake, so the value is null or a list.
            let mut newest = if self.pushed.load(Relaxed).is_null() {
                ptr::null_mut()
            } else {
                self.pushed.swap(ptr::null_mut(), Acquire)
            };
            let mut ready = ptr::null_mut();
            while let Some(job) = NonNull::new(newest) {
                // SAFETY: a queued job is valid until it runs, and the swap made this thread the owner of the list.
                let job = unsafe { job.as_ref() };
                newest = job.next();
                job.set_next(ready);
                ready = ptr::from_ref(job).cast_mut();
            }
            // Due timers are taken with every refill. So neither a full queue nor dense timers starve the other.
            match self.served().map(PendingTimers::take_due) {
                Some(Taken::Jobs(due)) => {
                    due.append(ready);
                    ready = due.head;
                }
                Some(Taken::Woken) if ready.is_null() => return true,
                _ => {}
            }
            self.own.ready.set(ready);
        }
        let Some(job) = NonNull::new(self.own.ready.get()) else {
            return false;
        };
        // SAFETY: a queued job is valid until it runs.
        self.own.ready.set(unsafe { job.as_ref() }.next());
        // SAFETY: the job is out of the queue, and runs once. A `Transfer` does not unwind.
        unsafe { Transfer::to(job) }.run();
        true
    }

    /// Runs jobs until the queue is empty, and returns their number.
    pub(super) fn drain(&self) -> usize {
        let mut jobs = 0;
        while self.try_run_one() {
            jobs += 1;
        }
        jobs
    }
}

/// The condition that ends [`Driver::run_one`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunUntil {
    /// A job has run.
    NextJob,
    /// A job has run, or [`RunLoop::finish`] was called.
    NextJobOrFinish,
}
