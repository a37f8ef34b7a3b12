//! What the models in `tests/model/` see of a pool: its parts, to be driven by hand.
#![allow(missing_debug_implementations, reason = "for the models alone")]

use core::ptr::{self, NonNull};
use std::boxed::Box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::vec::Vec;

use loom::cell::UnsafeCell;

use super::entry::{Entry, EntryPlace, Item};
use super::idle::SleepKind;
use super::injector::Levels;
use super::join::Latch;
use super::pool::forward;
use super::ring::Ring;
use super::schedule::PoolScheduler;
use super::seat::ThreadRecord;
use super::shared::PoolShared;
use super::shelf::Shelf;
use super::worker::Worker;
use crate::{Job, Priority, Transfer};

/// Something to be queued, whose run is watched.
///
/// The entry comes first, so that the address of one, of its job and of the task are the same.
#[repr(C)]
pub struct ModelTask {
    entry: Entry,
    /// What makes the task: written by who made it, read by who runs it. `loom` refuses what is not ordered.
    number: UnsafeCell<usize>,
    /// How often it was taken. Unknown to `loom`, so that nothing is ordered by it.
    runs: AtomicUsize,
    action: Box<dyn Fn()>,
}

impl ModelTask {
    /// A task that does nothing.
    pub fn new(number: usize) -> Arc<ModelTask> {
        ModelTask::with(number, || ())
    }

    /// A task that does this.
    pub fn with(number: usize, action: impl Fn() + 'static) -> Arc<ModelTask> {
        Arc::new(ModelTask {
            entry: Entry::new(ModelTask::run),
            number: UnsafeCell::new(number),
            runs: AtomicUsize::new(0),
            action: Box::new(action),
        })
    }

    /// The same at a level.
    pub fn at(self: Arc<ModelTask>, level: Priority) -> Arc<ModelTask> {
        self.entry.set_level(level);
        self
    }

    /// How often it has run, or was taken.
    pub fn runs(&self) -> usize {
        self.runs.load(SeqCst)
    }

    /// Whether it says that it waits somewhere.
    pub fn waits(&self) -> bool {
        self.entry.place() != EntryPlace::Nowhere
    }

    /// The address of the whole, as that of its entry.
    fn entry(self: &Arc<ModelTask>) -> NonNull<Entry> {
        // SAFETY: the pointer of an `Arc` is not null.
        unsafe { NonNull::new_unchecked(Arc::as_ptr(self).cast_mut().cast()) }
    }

    /// Ends the life of a task that was taken out of a queue, and gives its number.
    fn take(&self) -> usize {
        assert_eq!(self.runs.fetch_add(1, SeqCst), 0, "taken twice");
        // SAFETY: `loom` refuses what is not ordered.
        self.number.with_mut(|number| unsafe { *number })
    }

    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job comes first in a task; the models keep all tasks until the end.
        let this = unsafe { job.cast::<ModelTask>().as_ref() };
        this.take();
        (this.action)();
        Transfer::none()
    }

    /// What a pusher does first: whoever takes the task must be ordered after this.
    fn write(&self) {
        // SAFETY: `loom` refuses what is not ordered.
        self.number.with_mut(|number| unsafe { *number += 0 });
    }

    fn of(item: Item) -> usize {
        // SAFETY: as above.
        unsafe { item.job().cast::<ModelTask>().as_ref() }.take()
    }
}

/// How a task is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    /// As something that can be raised.
    Entry,
    /// As something that its owner takes back.
    Fork,
}

impl As {
    fn item(self, task: &Arc<ModelTask>) -> Item {
        match self {
            As::Entry => Item::entry(task.entry()),
            As::Fork => Item::fork(task.entry().cast()),
        }
    }
}

/// The shelf of one seat.
pub struct ShelfModel(Shelf);

impl ShelfModel {
    pub fn new() -> Self {
        ShelfModel(Shelf::new())
    }

    /// Puts tasks there. The caller is the occupant, and it is empty.
    pub fn fill(&self, tasks: &[Arc<ModelTask>]) {
        let mut jobs = Transfer::none();
        for task in tasks {
            task.write();
            // SAFETY: the models keep all tasks until the end, and queue each once.
            jobs.append(unsafe { Transfer::to(task.entry().cast()) });
        }
        self.0.fill(jobs);
    }

    /// Takes the first, as the occupant does.
    pub fn take_first(&self) -> Option<usize> {
        self.0.take_first().map(|job| ModelTask::of(Item::fork(job)))
    }

    /// Takes all, as a thief does.
    pub fn take_all(&self) -> Vec<usize> {
        let mut jobs = self.0.take();
        core::iter::from_fn(|| jobs.pop().map(|job| ModelTask::of(Item::fork(job)))).collect()
    }
}

/// The queue of one worker.
pub struct RingModel(Ring);

impl RingModel {
    /// An empty one.
    pub fn new() -> Self {
        RingModel(Ring::new())
    }

    /// Pushes, and gives the number that it has there; `None` if there is no room.
    pub fn push(&self, task: &Arc<ModelTask>, how: As) -> Option<usize> {
        task.write();
        self.0.push(how.item(task), true)
    }

    /// As the owner: the newest, if it is an entry.
    pub fn pop_newest(&self) -> Option<usize> {
        self.0.pop_newest_if(|_| true).map(ModelTask::of)
    }

    /// As the owner: the newest entry, wherever it is.
    pub fn take_newest_entry(&self) -> Option<usize> {
        self.0.take_newest_entry().map(ModelTask::of)
    }

    /// As the owner, which pushed the fork.
    pub fn take_back(&self, number: usize, task: &Arc<ModelTask>) -> Option<usize> {
        let item = As::Fork.item(task);
        self.0.take_back_fork(number, item).then(|| ModelTask::of(item))
    }

    /// As one that waits for a fork which the owner has taken: the oldest, if it is a fork with such a number.
    pub fn pop_fork_since(&self, since: usize) -> Option<usize> {
        self.0.pop_fork_since(since, || true).map(ModelTask::of)
    }

    /// As anybody.
    pub fn pop_oldest(&self) -> Option<usize> {
        self.0.pop_oldest().map(ModelTask::of)
    }

    /// As a thread that raises an entry, or as the pusher of a fork that is not the owner any more.
    pub fn remove(&self, number: usize, task: &Arc<ModelTask>, how: As) -> bool {
        let item = how.item(task);
        let removed = self.0.remove(number, item);
        if removed {
            ModelTask::of(item);
        }
        removed
    }

    /// Whether there is anything to be claimed.
    pub fn has_items(&self) -> bool {
        self.0.has_items()
    }
}

/// The shared part of a pool, in one of its lives.
#[derive(Clone, Copy)]
pub struct PoolModel {
    shared: &'static PoolShared,
    generation: u32,
}

impl PoolModel {
    /// One that is open, and has nobody in its seats.
    pub fn new(workers: usize) -> Self {
        let shared: &'static PoolShared = Box::leak(Box::new(PoolShared::new(workers)));
        PoolModel {
            shared,
            generation: shared.open(None),
        }
    }

    /// Ends with the model, which has joined all threads.
    pub fn free(self) {
        // SAFETY: it was made by `new`, and every thread that used it has ended.
        drop(unsafe { Box::from_raw(ptr::from_ref(self.shared).cast_mut()) });
    }

    /// The next life of the same memory.
    pub fn reopen(self) -> Self {
        PoolModel {
            generation: self.shared.open(None),
            ..self
        }
    }

    /// The calling thread takes a seat.
    pub fn worker(self, index: usize) -> ModelWorker {
        ModelWorker {
            worker: Box::new(Worker::new(self.shared, self.generation, index)),
        }
    }

    /// A spare thread that is about to park. The pool waits for it to do so.
    pub fn spare(self) -> ModelWorker {
        let record: &'static ThreadRecord = Box::leak(Box::new(ThreadRecord::new()));
        self.shared.arrive();
        self.shared.idle.0.expect_spare();
        self.shared.idle.0.arrive();
        ModelWorker {
            worker: Box::new(Worker::spare(
                self.shared,
                self.generation,
                record,
                self.shared.seats.len(),
            )),
        }
    }

    /// How many threads are without a seat in the middle of a job.
    pub fn unseated(self) -> usize {
        self.shared.idle.0.unseated()
    }

    /// As a scheduler does. `false` if it was refused.
    pub fn push(self, task: &Arc<ModelTask>) -> bool {
        task.write();
        // SAFETY: the models push a task once, and keep it until the end.
        unsafe { self.shared.push(task.entry(), self.generation) }.is_ok()
    }

    /// A scheduler of it.
    pub fn scheduler(self) -> PoolScheduler {
        PoolScheduler::new(self.shared, self.generation)
    }

    /// As a scheduler's operation does. If the pool has ended meanwhile, the task runs here.
    pub fn raise(self, task: &Arc<ModelTask>, level: Priority) {
        // SAFETY: the models keep a task until the end, and push it to one pool.
        if unsafe { self.scheduler().raise(task.entry(), level) }.is_err() {
            // SAFETY: it was taken out of its queue, and is in none now.
            unsafe { forward(task.entry()) }.run();
        }
    }

    /// Takes the oldest of a level from the injector.
    pub fn pop(self, level: Priority) -> Option<usize> {
        let entry = self.shared.injector.pop(Levels::of(level))?;
        Some(ModelTask::of(Item::entry(entry)))
    }

    /// How many workers sleep.
    pub fn asleep(self) -> usize {
        self.shared.idle.0.asleep()
    }

    /// What a worker that is about to park would see.
    pub fn has_work(self) -> bool {
        self.shared.has_work()
    }

    /// One worker leaves; `true` for the last.
    pub fn leave(self) -> bool {
        self.shared.leave(self.generation)
    }

    /// A worker comes to rest. Whether it is the last, and asks for the end.
    pub fn lie_down(self, worker: usize) -> bool {
        self.shared.idle.0.lie_down(&self.shared.seats[worker], false) == SleepKind::Last
    }

    /// It goes back to work.
    pub fn get_up(self, worker: usize) {
        let seat = &self.shared.seats[worker];
        assert!(self.shared.idle.0.get_up(seat, &seat.first), "nobody takes its seat");
    }

    /// What the last one does.
    pub fn end(self) -> bool {
        self.shared
            .idle
            .0
            .end(&self.shared.seats, || self.shared.injector.close())
    }

    /// Whether the workers are to leave.
    pub fn is_over(self) -> bool {
        self.shared.idle.0.is_over()
    }

    /// What the drop of a pool begins with.
    pub fn close(self) {
        self.shared.idle.0.close(&self.shared.seats);
    }
}

/// The worker that the calling thread is.
pub struct ModelWorker {
    worker: Box<Worker>,
}

impl ModelWorker {
    /// Until the end of the pool.
    pub fn run(&self) {
        self.worker.run();
    }

    /// Runs `body` as a job of this worker would be run.
    pub fn within(&self, body: impl FnOnce()) {
        self.worker.enter(body);
    }

    /// Runs what a worker would run next, if it is there.
    pub fn run_next(&self, newest: bool) -> bool {
        self.worker.run_next(newest)
    }

    /// Steals and runs what a searcher would find.
    pub fn search(&self) -> bool {
        self.worker.run_found()
    }

    /// Ends another pool, and waits for that.
    pub fn end(&self, other: PoolModel) {
        other.shared.end_and_wait(&self.worker, other.generation);
    }

    /// Whether it has a seat.
    pub fn is_seated(&self) -> bool {
        self.worker.seated().is_some()
    }

    /// Whether it has a seat, or takes one whose thread sleeps.
    pub fn finds_seat(&self) -> bool {
        self.worker.finds_seat()
    }
}

/// What a thread of a pool waits for, in the middle of a job.
pub struct LatchModel(Box<Latch>);

impl LatchModel {
    /// One that the calling thread, a worker, waits for.
    pub fn new() -> Self {
        LatchModel(Box::new(Latch::new(Self::worker().record)))
    }

    /// Lets it go. Once.
    pub fn set(&self) {
        // SAFETY: the models set a latch once.
        unsafe { Latch::set(NonNull::from(&*self.0)) };
    }

    /// Blocks until it is set, on the thread that made it. Tells whether that has its seat still.
    pub fn wait(&self) -> bool {
        self.0.wait(Self::worker());
        Self::worker().seated().is_some()
    }

    fn worker<'a>() -> &'a Worker {
        Worker::current().expect("a worker")
    }
}
