use core::cell::Cell;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::{self, NonNull};

use super::RunLoop;
use crate::scheduler::thread_pool::Worker;
use crate::scheduler::timer::PendingTimers;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sync::park;
use crate::{Job, Transfer};

/// The right to run the jobs of a loop: that of its one driver, on the thread that drives.
pub(crate) struct Driver<'a> {
    run_loop: &'a RunLoop,
    /// Stays on its thread.
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
    /// Called with the loop's lock, or where the loop has no other driver.
    pub(super) fn of(run_loop: &'a RunLoop) -> Self {
        Driver {
            run_loop,
            _thread: PhantomData,
        }
    }

    /// Runs the oldest job, and what it resumes; sleeps until there is one. A worker of a pool gives its place there to
    /// another thread meanwhile.
    pub(crate) fn run_one(&self, until: RunUntil) {
        let over = || until == RunUntil::NextJobOrFinish && self.finishing.load(Acquire);
        loop {
            if self.try_run_one() || over() {
                return;
            }
            let worker = Worker::current();
            if worker.is_some_and(|worker| worker.look(|| !self.pushed.load(Relaxed).is_null())) {
                continue;
            }
            // A number that no producer has seen: a producer that holds on to an old one must not end this sleep.
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
            let due = Cell::new(ptr::null_mut::<Job>());
            let awake = || self.pushed.load(Acquire) != asleep || !due.get().is_null() || over();
            let nap = || match self.served().map(PendingTimers::take_due_or_park) {
                None => park(None),
                Some(taken) => due.set(taken.map_or(ptr::null_mut(), |due| due.head)),
            };
            match worker {
                None => {
                    while !awake() {
                        nap();
                    }
                }
                Some(worker) => worker.block_until(awake, nap),
            }
            // The sleep ends, unless a producer has ended it already.
            self.own.ready.set(due.get());
            let _ = self.pushed.compare_exchange(asleep, ptr::null_mut(), Relaxed, Relaxed);
        }
    }

    /// Runs the oldest job, and what it resumes, where there is one.
    fn try_run_one(&self) -> bool {
        if self.own.ready.get().is_null() {
            // A driver is awake, so what was pushed is null or a list.
            let mut newest = if self.pushed.load(Relaxed).is_null() {
                ptr::null_mut()
            } else {
                self.pushed.swap(ptr::null_mut(), Acquire)
            };
            let mut ready = ptr::null_mut();
            while let Some(job) = NonNull::new(newest) {
                // SAFETY: a job in the queue is alive, and the list is ours.
                let job = unsafe { job.as_ref() };
                newest = job.next();
                job.set_next(ready);
                ready = ptr::from_ref(job).cast_mut();
            }
            // A queue that is never empty does not keep timers waiting, nor the other way round.
            if let Some(due) = self.served().and_then(PendingTimers::take_due) {
                due.append(ready);
                ready = due.head;
            }
            self.own.ready.set(ready);
        }
        let Some(job) = NonNull::new(self.own.ready.get()) else {
            return false;
        };
        // SAFETY: a job in the queue is alive.
        self.own.ready.set(unsafe { job.as_ref() }.next());
        // SAFETY: it is out of the queue, and this is its one run. A `Transfer` does not unwind.
        unsafe { Transfer::to(job) }.run();
        true
    }

    /// Runs jobs until there are none, and returns how many they were.
    pub(super) fn drain(&self) -> usize {
        let mut jobs = 0;
        while self.try_run_one() {
            jobs += 1;
        }
        jobs
    }
}

/// What ends [`RunLoop::run_one`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunUntil {
    /// A job has run.
    NextJob,
    /// A job has run, or [`RunLoop::finish`] was called.
    NextJobOrFinish,
}
