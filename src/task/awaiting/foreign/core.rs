//! What a block is behind its future, its operation and its schedulers: a reference count and a queue.

use core::cell::Cell;
use core::mem;
use core::ptr::NonNull;
use core::task::Waker;
use std::vec::Vec;

use super::scheduler::ForeignScheduler;
use crate::Transfer;
use crate::memory::Count;
use crate::scheduler::elsewhere;
use crate::scheduler::thread_pool::Entry;
use crate::sender::current;
use crate::sender::stage::container_of;
use crate::stop::{Relay, Why};
use crate::sync::{Mutex, lock, thread_id};
use crate::task::frame::{self, Header, Polling};
use crate::task::strand::{Awaiter, Context, Tether, Tethered};

/// How often one poll looks for more in the queue before it lets the executor poll something else.
pub(super) const ROUNDS: usize = 32;

/// What a block is, whatever is awaited in it.
pub(super) struct ForeignCore {
    /// One for the future, one for the operation until it has completed, one for each scheduler handed out. The last
    /// frees the memory.
    pub(super) count: Count,
    pub(super) queue: Mutex<ForeignQueue>,
    /// Stopped when the future is dropped, and with the task that it began in, if it did in one.
    pub(super) relay: Relay,
    /// The task that it began in, which counts it as an await, and the context there, of which it is a user; both until the
    /// operation has completed.
    pub(super) around: Option<Awaiter>,
    /// Ties it to that task, which ends it when its own future is gone: the future that polls it may have been forgotten. Written
    /// before the operation is started.
    pub(super) tether: Option<NonNull<Tether<ForeignCore>>>,
    /// The tether has its count. Belongs to the thread that polls that task, or that frees it.
    pub(super) has_tether: Cell<bool>,
    /// Where the operation runs. Both point at this block, and are valid as long as it is.
    pub(super) scheduler: Option<ForeignScheduler>,
    pub(super) context: Option<Context>,
    pub(super) vtable: &'static ForeignVtable,
}

/// Who waits for what.
///
/// | field | set by | means |
/// |---|---|---|
/// | `waker` | the future, when it is pending; taken by the first to wake it | who is to be woken |
/// | `jobs` | whoever schedules | what the next poll runs |
/// | `frames` | whoever wakes a task | the same; told apart, since they are not polled but stopped when the future is dropped |
/// | `later` | whoever makes way while the future polls | what the next poll runs, and this one does not |
/// | `driver` | the future, while it polls or is dropped: its thread; zero after a look at the rest | no need to wake; what waits on that thread runs what is queued |
/// | `homed` | a local task that starts here, until it is done | dropped, the future ends these first, on this very thread |
/// | `done` | the completion, once the result is there | the future takes the result, or drops it |
/// | `stopping` | the future, when it is dropped before that | frames that are queued stop |
/// | `closed` | the future, when it has the result, or has run what was queued when it was dropped | no poll comes any more: what is scheduled runs on the global pool, the completion drops the result |
///
/// The lock is held for a look or a change, never while a job, a waker or anything of the user's runs. Of `done` and
/// `closed` one comes second: whoever sets that destroys the operation.
pub(super) struct ForeignQueue {
    pub(super) waker: Option<Waker>,
    pub(super) jobs: Transfer,
    pub(super) frames: Transfer,
    pub(super) later: Transfer,
    pub(super) driver: usize,
    pub(super) homed: Vec<NonNull<Header>>,
    pub(super) done: bool,
    pub(super) stopping: bool,
    pub(super) closed: bool,
}

impl ForeignQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_none() && self.frames.is_none()
    }

    pub(super) fn take(&mut self) -> Transfer {
        mem::take(&mut self.jobs).and(mem::take(&mut self.frames))
    }

    /// What was to run later is next.
    pub(super) fn turn(&mut self) {
        self.jobs.append(mem::take(&mut self.later));
    }

    /// Has frames stop instead of going on, those that are queued and those that will be.
    pub(super) fn stop_frames(&mut self) {
        self.stopping = true;
        let mut stopped = Transfer::none();
        while let Some(frame) = self.frames.pop() {
            // SAFETY: it is the first field of a frame, which is queued and so not done. It is in no list now.
            stopped.append(unsafe {
                Header::stop(frame.cast());
                Transfer::to(frame)
            });
        }
        self.frames = stopped;
    }
}

/// What is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    Job,
    /// The same, of somebody who makes way.
    Patient,
    Frame,
}

/// What is known of the type of a block.
pub(super) struct ForeignVtable {
    /// Destroys the operation, and what is left of its result. May be called again.
    pub(super) clear: unsafe fn(NonNull<ForeignCore>),
    /// Frees the memory.
    pub(super) free: unsafe fn(NonNull<ForeignCore>),
}

impl ForeignCore {
    /// The operation has completed, left its result, and no stop is being passed on.
    ///
    /// # Safety
    ///
    /// The relay is that of a block of which the caller has a count. This is called once.
    pub(super) unsafe fn completed(relay: NonNull<Relay>) -> Transfer {
        // SAFETY: the caller's promise.
        let this = unsafe { container_of!(relay, ForeignCore, relay) };
        // The count that the completion has left for this.
        let handle = ForeignRef(this);
        let core = handle.core();
        if let Some(tether) = core.tether {
            // SAFETY: the task counts this until the end. What finds it done may have untied it, so that comes later.
            unsafe { Tether::loosen(tether) };
        }
        let (waker, closed) = {
            let mut queue = lock(&core.queue);
            queue.done = true;
            (if queue.driver != 0 { None } else { queue.waker.take() }, queue.closed)
        };
        if closed {
            // SAFETY: it was closed before it was done, so it is for the completion to do. That may destroy its operation.
            unsafe { (core.vtable.clear)(this) };
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        match core.around {
            // SAFETY: the frame counts this until now, and so its context is valid.
            Some(around) => unsafe {
                around.context.as_ref().exit();
                Header::end_wait(around.frame, |_| false)
            },
            None => Transfer::none(),
        }
    }

    /// Has an entry run by the next poll, or on the global pool if there is none to come: not right here, which may be
    /// the middle of a wake by somebody who holds a lock.
    ///
    /// # Safety
    ///
    /// The entry is in no list, and stays where it is until it runs. The caller is counted until then. It is that of a
    /// frame if `kind` says so.
    pub(super) unsafe fn push(this: NonNull<ForeignCore>, entry: NonNull<Entry>, kind: Queued) -> Transfer {
        // It may run before this returns, and whoever is counted may be gone then.
        // SAFETY: the caller is counted.
        let handle = unsafe { ForeignRef::of(this) };
        let waker = {
            let mut queue = lock(&handle.core().queue);
            if kind == Queued::Frame && queue.stopping {
                // SAFETY: it is the first field of a frame, which is about to be queued, and so not done.
                unsafe { Header::stop(entry.cast()) };
            }
            if queue.closed {
                drop(queue);
                // SAFETY: by the caller's promise.
                return unsafe { elsewhere(entry) };
            }
            // SAFETY: as above.
            let job = unsafe { Transfer::to(entry.cast()) };
            match kind {
                Queued::Frame => queue.frames.append(job),
                Queued::Patient if queue.driver != 0 => queue.later.append(job),
                Queued::Patient | Queued::Job => queue.jobs.append(job),
            }
            if queue.driver != 0 { None } else { queue.waker.take() }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Transfer::none()
    }
}

// SAFETY: the reference is one of the block's count.
unsafe impl Tethered for ForeignCore {
    unsafe fn abandon(this: NonNull<Self>, _: Polling<'_>) -> Transfer {
        // SAFETY: the tether has a count.
        unsafe { ForeignRef::of(this) }.give_up();
        Transfer::none()
    }

    unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the caller's promise: this is the count of the tether.
        let handle = ForeignRef(this);
        handle.core().has_tether.set(false);
    }
}

/// One count of a block.
pub(super) struct ForeignRef(pub(super) NonNull<ForeignCore>);

// SAFETY: what is in the core is atomics, a lock, and what does not change. Jobs may run on any thread.
unsafe impl Send for ForeignRef {}

// SAFETY: as above.
unsafe impl Sync for ForeignRef {}

impl ForeignRef {
    /// # Safety
    ///
    /// The caller is counted.
    pub(super) unsafe fn of(core: NonNull<ForeignCore>) -> Self {
        // SAFETY: so it is there.
        unsafe { core.as_ref() }.count.add();
        ForeignRef(core)
    }

    pub(super) fn core(&self) -> &ForeignCore {
        // SAFETY: a handle is counted.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for ForeignRef {
    fn drop(&mut self) {
        if self.core().count.release() {
            // SAFETY: that was the last count.
            unsafe { (self.core().vtable.free)(self.0) };
        }
    }
}

impl ForeignRef {
    /// No poll comes any more. What is queued is the caller's to run. The flags say that it was not closed before, and that it was
    /// done before.
    pub(super) fn close(&self) -> (Transfer, bool, bool) {
        let mut queue = lock(&self.core().queue);
        let first = !mem::replace(&mut queue.closed, true);
        queue.turn();
        (queue.take(), first, queue.done)
    }

    /// Unties it from the task that it began in, if this thread polls that. It has completed.
    pub(super) fn untie(&self) {
        let core = self.core();
        if let (Some(around), Some(tether)) = (core.around, core.tether)
            && Header::is_current(around.frame)
            && core.has_tether.get()
        {
            // SAFETY: this is what the poll of the task is running. It was not untied. The completion does not use it any more.
            unsafe { Tether::untie(tether) };
        }
    }

    /// No poll comes any more, and the result was not taken: stops what has not completed, and leaves the rest to itself.
    pub(super) fn give_up(&self) {
        let core = self.core();
        let (waker, done) = {
            let mut queue = lock(&core.queue);
            if queue.closed {
                return;
            }
            if !queue.done {
                queue.stop_frames();
            }
            queue.driver = thread_id();
            (queue.waker.take(), queue.done)
        };
        drop(waker);
        if !done {
            self.end_homed();
            self.stop();
        }
        let (mut left, first, done) = self.close();
        while let Some(job) = left.pop() {
            // SAFETY: it is that of an entry, as all that are queued are, and in no list any more.
            unsafe { elsewhere(job.cast()) }.run();
        }
        if first && done {
            // SAFETY: it was done before it was closed, so it is for us to do.
            unsafe { (core.vtable.clear)(self.0) };
        }
    }

    /// Stops what has not completed, and runs what is queued, and what comes of it, since nobody polls any more.
    #[cold]
    pub(super) fn stop(&self) {
        let core = self.core();
        core.relay
            .request_stop(Why::SCOPE_LEFT.here())
            .unwrap_or_default()
            .run();
        let mut rounds = 0;
        loop {
            let mut queue = lock(&core.queue);
            queue.turn();
            // Local tasks cannot be left to another thread: their futures are dropped here.
            if queue.is_empty() || rounds >= ROUNDS && queue.homed.is_empty() {
                return;
            }
            let jobs = queue.take();
            drop(queue);
            run_queued(jobs);
            rounds += 1;
        }
    }

    /// Makes local tasks drop their futures, on this thread. What those leave in flight ends by itself.
    pub(super) fn end_homed(&self) {
        let homed = lock(&self.core().queue).homed.clone();
        for frame in homed {
            // SAFETY: it is noted as long as it is not done, and only this thread drops its future. A wake only queues it.
            unsafe {
                Header::stop(frame);
                frame::waker(frame).wake_by_ref();
            }
        }
    }
}

/// Runs what was queued, as the scheduler that it was queued with.
pub(super) fn run_queued(jobs: Transfer) {
    let _hidden = current::Hidden::driver();
    jobs.run();
}
