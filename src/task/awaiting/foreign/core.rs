//! The shared part of a block, behind its future, its operation and its schedulers: a reference count and a queue.

use core::cell::Cell;
use core::mem::{self, ManuallyDrop};
use core::ptr::NonNull;
use core::task::Waker;
use std::vec::Vec;

use super::scheduler::ForeignScheduler;
use crate::memory::{Count, Counted, Shared};
use crate::scheduler::elsewhere;
use crate::scheduler::thread_pool::Entry;
use crate::sender::current;
use crate::sender::stage::container_of;
use crate::stop::{Relay, Why};
use crate::sync::{Mutex, lock, thread_id};
use crate::task::awaiting::receiver::AwaitCore;
use crate::task::awaiting::{TaskEnv, environment};
use crate::task::frame::{self, Header, Polling};
use crate::task::strand::{Awaiter, Context, Tether, Tethered};
use crate::{Panic, Transfer};

/// How often one poll checks the queue again before it returns to the executor.
pub(super) const ROUNDS: usize = 32;

/// The part of a block that does not depend on the awaited sender.
pub(super) struct ForeignCore {
    /// One reference for the future, one for the operation until it has completed, one for each scheduler handed out. The last
    /// frees the memory.
    pub(super) count: Count,
    pub(super) queue: Mutex<ForeignQueue>,
    /// Stopped when the future is dropped, and with the task in which it began, if any.
    pub(super) relay: Relay,
    /// The task in which it began, which counts it as an await, and its context, of which it is a user; until the operation has
    /// completed.
    pub(super) around: Option<Awaiter>,
    /// Ties it to that task, which ends it with its own future, since the polling future may have been forgotten. Written
    /// before the operation is started.
    pub(super) tether: Option<NonNull<Tether<ForeignCore>>>,
    /// Whether the tether owns its reference. Accessed by the thread that polls that task, or frees it.
    pub(super) has_tether: Cell<bool>,
    /// The operation's scheduler, without a reference of its own. Both point at this block, and are valid as long as it is.
    pub(super) scheduler: Option<ManuallyDrop<ForeignScheduler>>,
    pub(super) context: Option<Context>,
    pub(super) vtable: &'static ForeignVtable,
}

/// The queue of a block, and the state of its future.
///
/// | field | set by | meaning |
/// |---|---|---|
/// | `waker` | the future, when it is pending; taken by the first party that wakes it | the waker of the executor |
/// | `jobs` | a scheduling party | the work of the next poll |
/// | `frames` | a party that wakes a task | the same, kept apart: stopped instead of polled when the future is dropped |
/// | `later` | a party that yields while the future polls | the work of the poll after this one |
/// | `driver` | the future, while it polls or is dropped: its thread; zero after it has checked the rest | no wake is needed; a wait on that thread runs the queue |
/// | `homed` | a local task that starts here, until it is done | the drop of the future ends these first, on this thread |
/// | `done` | the completion, after it wrote the result | the future takes the result, or drops it |
/// | `announced` | the completion, after it woke `waker` | the task around may stop although the future was not polled |
/// | `stopping` | the future, when it is dropped before that | queued frames stop |
/// | `closed` | the future, when it has the result, or was dropped and has run the queue | no poll follows: scheduled work runs on the global pool, the completion drops the result |
///
/// The lock is held for a check or a change, never while a job, a waker or user code runs. The party that sets the second of
/// `done` and `closed` destroys the operation.
#[derive(Default)]
pub(super) struct ForeignQueue {
    pub(super) waker: Option<Waker>,
    pub(super) jobs: Transfer,
    pub(super) frames: Transfer,
    pub(super) later: Transfer,
    pub(super) driver: usize,
    pub(super) homed: Vec<NonNull<Header>>,
    pub(super) done: bool,
    pub(super) announced: bool,
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

    /// Moves the work for later to the next turn.
    pub(super) fn turn(&mut self) {
        self.jobs.append(mem::take(&mut self.later));
    }

    /// Makes frames stop instead of resume, both queued and future ones.
    pub(super) fn stop_frames(&mut self) {
        self.stopping = true;
        let mut stopped = Transfer::none();
        while let Some(frame) = self.frames.pop() {
            // SAFETY: the entry is the first field of a frame, which was queued and so is not done. It is in no list now.
            stopped.append(unsafe {
                Header::stop(frame.cast());
                Transfer::to(frame)
            });
        }
        self.frames = stopped;
    }
}

/// The kind of a queued entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    Job,
    /// A job that yields.
    Patient,
    Frame,
}

/// The type-erased operations of a block.
pub(super) struct ForeignVtable {
    /// Destroys the operation and its remaining result. May be called again.
    pub(super) clear: unsafe fn(NonNull<ForeignCore>),
    /// Frees the memory.
    pub(super) free: unsafe fn(NonNull<ForeignCore>),
}

impl AwaitCore for ForeignCore {
    unsafe fn env(this: NonNull<Self>) -> TaskEnv {
        // SAFETY: the operation's reference keeps the block, and the context in it, alive until the completion.
        let context = unsafe { this.as_ref() }.context.as_ref();
        // SAFETY: as above.
        let mut env = context.map_or_else(environment::anywhere, |context| unsafe {
            TaskEnv::new(context.into(), None)
        });
        env.is_foreign = context.is_some();
        env
    }

    unsafe fn completed(this: NonNull<Self>, _: bool) -> Transfer {
        // SAFETY: the relay is ended once. It passes the operation's reference on to `relay_over`.
        unsafe { Relay::end(NonNull::new_unchecked(&raw mut (*this.as_ptr()).relay)) }
    }
}

impl ForeignCore {
    /// Handles the completion: the result is written, and no stop is being passed on.
    ///
    /// # Safety
    ///
    /// `relay` is that of a block. Called once, with the operation's reference.
    pub(super) unsafe fn relay_over(relay: NonNull<Relay>) -> Transfer {
        // SAFETY: the caller's promise.
        let this = unsafe { container_of!(relay, ForeignCore, relay) };
        // SAFETY: this is the operation's reference.
        let core = unsafe { ForeignRef::from_raw(this) };
        if let Some(tether) = core.tether {
            // SAFETY: the task counts this until the end. Loosened before `done`, since the future that finds that may untie it.
            unsafe { Tether::loosen(tether) };
        }
        let (waker, closed) = {
            let mut queue = lock(&core.queue);
            queue.done = true;
            (if queue.driver != 0 { None } else { queue.waker.take() }, queue.closed)
        };
        if closed {
            // The panic hook has reported a panic of a destructor, and no party is left to receive it. The task around waits for this.
            // SAFETY: the block was closed before it was done, so this party destroys the operation.
            _ = Panic::catch(|| unsafe { (core.vtable.clear)(this) }).map_err(Panic::discard);
        }
        if let Some(waker) = waker {
            wake(waker);
        }
        match core.around {
            // SAFETY: the frame counts this until now, so its context is valid.
            Some(around) => unsafe {
                // In this order: see `frame::moved`.
                Header::announce(around.frame);
                lock(&core.queue).announced = true;
                around.context.as_ref().exit();
                Header::end_wait(around.frame, |_| false)
            },
            None => Transfer::none(),
        }
    }

    /// Queues an entry for the next poll, or on the global pool if none follows. It does not run in place, since the waking
    /// code may hold a lock.
    ///
    /// # Safety
    ///
    /// The entry is in no list, and pinned until it runs. The caller holds a reference until then. `kind` says whether it is a
    /// frame.
    pub(super) unsafe fn push(this: NonNull<ForeignCore>, entry: NonNull<Entry>, kind: Queued) -> Transfer {
        // The entry may run before this returns, and release the caller's reference.
        // SAFETY: the caller holds a reference.
        let handle = unsafe { ForeignRef::of(this) };
        let waker = {
            let mut queue = lock(&handle.queue);
            if kind == Queued::Frame && queue.stopping {
                // SAFETY: the entry is the first field of a frame, which is about to be queued and so is not done.
                unsafe { Header::stop(entry.cast()) };
            }
            if queue.closed {
                drop(queue);
                // SAFETY: the caller's promise.
                return unsafe { elsewhere(entry) };
            }
            // SAFETY: the caller's promise: the entry is pinned, and runs once.
            let job = unsafe { Transfer::to(entry.cast()) };
            match kind {
                Queued::Frame => queue.frames.append(job),
                Queued::Patient if queue.driver != 0 => queue.later.append(job),
                Queued::Patient | Queued::Job => queue.jobs.append(job),
            }
            if queue.driver != 0 { None } else { queue.waker.take() }
        };
        if let Some(waker) = waker {
            wake(waker);
        }
        Transfer::none()
    }
}

// SAFETY: `release` drops one reference to the block.
unsafe impl Tethered for ForeignCore {
    unsafe fn abandon(this: NonNull<Self>, _: Polling<'_>) -> Transfer {
        // SAFETY: the tether holds a reference.
        unsafe { ForeignRef::of(this) }.give_up();
        Transfer::none()
    }

    unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the caller's promise: this is the tether's reference.
        unsafe { ForeignRef::from_raw(this) }.has_tether.set(false);
    }

    fn is_awaited(&self) -> bool {
        let queue = lock(&self.queue);
        !queue.announced && !queue.closed
    }
}

/// A reference to a block.
pub(super) type ForeignRef = Shared<ForeignCore>;

// SAFETY: the last reference frees the block. It consists of atomics, a lock, and immutable fields. Jobs may run on any thread.
unsafe impl Counted for ForeignCore {
    fn count(&self) -> &Count {
        &self.count
    }

    unsafe fn free(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        unsafe { (this.as_ref().vtable.free)(this) };
    }
}

impl ForeignRef {
    /// Closes the block: no poll follows. Returns the queued work for the caller to run, whether it was open before, and
    /// whether it was done before.
    pub(super) fn close(&self) -> (Transfer, bool, bool) {
        let mut queue = lock(&self.queue);
        let first = !mem::replace(&mut queue.closed, true);
        queue.turn();
        (queue.take(), first, queue.done)
    }

    /// Unties a completed block from the task in which it began, if this thread polls that.
    pub(super) fn untie(&self) {
        let core = &**self;
        if let (Some(around), Some(tether)) = (core.around, core.tether)
            && Header::is_current(around.frame)
            && core.has_tether.get()
        {
            // SAFETY: this is inside the task's poll. The tether was not untied, and the completion is done with it.
            unsafe { Tether::untie(tether) };
        }
    }

    /// Closes the block without its result: stops an operation in flight, and detaches it.
    pub(super) fn give_up(&self) {
        let core = &**self;
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
        if !done {
            self.end_homed();
            self.stop();
        }
        let (mut left, first, done) = self.close();
        while let Some(job) = left.pop() {
            // SAFETY: every queued job is that of an entry, and this one is in no list any longer.
            unsafe { elsewhere(job.cast()) }.run();
        }
        if first && done {
            // SAFETY: the block was done before it was closed, so this party destroys the operation.
            unsafe { (core.vtable.clear)(self.as_ptr()) };
        }
        // Last, since its destructor may unwind.
        drop(waker);
    }

    /// Stops an operation in flight, and runs the queue until it is empty, since no poll follows.
    #[cold]
    pub(super) fn stop(&self) {
        let core = &**self;
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

    /// Makes local tasks drop their futures on this thread. Operations that are still in flight end later.
    pub(super) fn end_homed(&self) {
        let homed = lock(&self.queue).homed.clone();
        for frame in homed {
            // SAFETY: a recorded frame is not done, and only this thread drops its future. A wake only queues it.
            unsafe {
                Header::stop(frame);
                frame::waker(frame).wake_by_ref();
            }
        }
    }
}

/// Wakes the waker of an executor, in the middle of a completion or a push. A panic went through the panic hook, and no caller can receive
/// it.
fn wake(waker: Waker) {
    _ = Panic::catch(|| waker.wake()).map_err(Panic::discard);
}

/// Runs the queued work, as the scheduler of that work.
pub(super) fn run_queued(jobs: Transfer) {
    let _hidden = current::Hidden::driver();
    jobs.run();
}
