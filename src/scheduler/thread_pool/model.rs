//! Access to the parts of a pool for the models in `tests/model/`, which drive them step by step.
#![allow(missing_debug_implementations, reason = "for the models alone")]

use core::ptr::{self, NonNull};
use std::boxed::Box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::vec::Vec;

use loom::cell::UnsafeCell;

use super::barrier;
use super::child_queue::ChildQueue;
use super::entry::{Entry, EntryKind, EntryPlace, Item, OwnedEntry};
use super::idle::SleepKind;
use super::injector::Levels;
use super::join::Latch;
use super::pool::forward;
use super::reactor::Reactor;
use super::ring::Ring;
use super::schedule::PoolScheduler;
use super::seat::ThreadRecord;
use super::shared::PoolShared;
use super::slot::Slot;
use super::worker::Worker;
use crate::{Job, Priority, Transfer};

/// Explores models in which the locks of groups are biased towards the frame that owns the group, or are not. It holds for groups
/// outside of pools: a group on a pool is like its pool.
pub fn with_biased_groups<T>(biased: bool, models: impl FnOnce() -> T) -> T {
    barrier::with_prepared(biased, models)
}

/// A job to be queued, whose run is checked.
///
/// The entry is the first field, so the entry, its job and the task have the same address.
#[repr(C)]
pub struct ModelTask {
    entry: Entry,
    /// Written by the creator and read by the runner. `loom` rejects the accesses if they are not ordered.
    number: UnsafeCell<usize>,
    /// The number of times it was taken. Not a `loom` atomic, so it orders nothing.
    runs: AtomicUsize,
    action: Box<dyn Fn()>,
}

impl ModelTask {
    /// Creates a task without an action.
    pub fn new(number: usize) -> Arc<ModelTask> {
        ModelTask::with(number, || ())
    }

    /// Creates a task with an action.
    pub fn with(number: usize, action: impl Fn() + 'static) -> Arc<ModelTask> {
        Arc::new(ModelTask {
            entry: Entry::new(ModelTask::run),
            number: UnsafeCell::new(number),
            runs: AtomicUsize::new(0),
            action: Box::new(action),
        })
    }

    /// Sets the level.
    pub fn at(self: Arc<ModelTask>, level: Priority) -> Arc<ModelTask> {
        self.entry.set_level(level);
        self
    }

    /// Makes the task a child, which is queued among the children of a seat.
    pub fn child(self: Arc<ModelTask>) -> Arc<ModelTask> {
        self.entry.set_kind(EntryKind::Child);
        self
    }

    /// Makes the task one that waited for its children, after it ran on a seat.
    pub fn parent_on(self: Arc<ModelTask>, seat: usize) -> Arc<ModelTask> {
        self.entry.set_running(seat);
        self.entry.set_parent_of(0);
        self
    }

    /// Makes the task one that waited for so many children, of which one has ended.
    pub fn parent_of(self: Arc<ModelTask>, children: u8) -> Arc<ModelTask> {
        self.entry.set_parent_of(children);
        self
    }

    /// Marks the task as about to be queued, as a thread does that resumes one. It may be raised from here on.
    pub fn coming(self: Arc<ModelTask>) -> Arc<ModelTask> {
        self.entry.set_coming();
        self
    }

    /// Returns how often the task has run, or was taken.
    pub fn runs(&self) -> usize {
        self.runs.load(SeqCst)
    }

    /// Returns whether the entry's place is a queue.
    pub fn waits(&self) -> bool {
        self.entry.place() != EntryPlace::Nowhere
    }

    /// Returns the address of the task as its entry's.
    fn entry(self: &Arc<ModelTask>) -> NonNull<Entry> {
        // SAFETY: the pointer of an `Arc` is not null.
        unsafe { NonNull::new_unchecked(Arc::as_ptr(self).cast_mut().cast()) }
    }

    /// Marks a task that was taken out of a queue as run, and returns its number.
    fn take(&self) -> usize {
        assert_eq!(self.runs.fetch_add(1, SeqCst), 0, "taken twice");
        // SAFETY: `loom` checks that the accesses are ordered.
        self.number.with_mut(|number| unsafe { *number })
    }

    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first field of a task, and the models keep all tasks until the end.
        let this = unsafe { job.cast::<ModelTask>().as_ref() };
        this.take();
        (this.action)();
        Transfer::none()
    }

    /// Writes the number, as a pusher does first. The thread that takes the task must be ordered after this.
    fn write(&self) {
        // SAFETY: `loom` checks that the accesses are ordered.
        self.number.with_mut(|number| unsafe { *number += 0 });
    }

    fn of(item: Item) -> usize {
        // SAFETY: the job is the first field of a task, and the models keep all tasks until the end.
        unsafe { item.job().cast::<ModelTask>().as_ref() }.take()
    }
}

/// The form in which a task is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    /// An entry, which can be raised.
    Entry,
    /// A fork, which its owner takes back.
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

/// The queue of one worker.
pub struct RingModel(Ring);

impl RingModel {
    /// Creates an empty ring, which is light or not.
    pub fn new(light: bool) -> Self {
        let ring = Ring::new();
        ring.open(light);
        RingModel(ring)
    }

    /// Pushes a task and returns its number, or `None` if the ring is full.
    pub fn push(&self, task: &Arc<ModelTask>, how: As) -> Option<usize> {
        task.write();
        self.0.push(how.item(task), true)
    }

    /// Takes the newest item if it is an entry, as the owner does.
    pub fn pop_newest(&self) -> Option<usize> {
        self.0.pop_newest_if(|_| true).map(ModelTask::of)
    }

    /// Takes the newest entry, as the owner does.
    pub fn take_newest_entry(&self) -> Option<usize> {
        self.0.take_newest_entry().map(ModelTask::of)
    }

    /// Takes back a fork, as the owner that pushed it does.
    pub fn take_back(&self, number: usize, task: &Arc<ModelTask>) -> Option<usize> {
        let item = As::Fork.item(task);
        self.0.take_back_fork(number, item).then(|| ModelTask::of(item))
    }

    /// Takes the oldest item if it is a fork with such a number. A thread does so while it waits for a fork that the
    /// owner runs.
    pub fn pop_fork_since(&self, since: usize) -> Option<usize> {
        self.0.pop_fork_since(since, || true).map(ModelTask::of)
    }

    /// Takes the oldest item, as any thread may.
    pub fn pop_oldest(&self) -> Option<usize> {
        self.0.pop_oldest().map(ModelTask::of)
    }

    /// Removes an item, as a thread that raises an entry does, or the pusher of a fork that has lost the seat.
    pub fn remove(&self, number: usize, task: &Arc<ModelTask>, how: As) -> bool {
        let item = how.item(task);
        let removed = self.0.remove(number, item);
        if removed {
            ModelTask::of(item);
        }
        removed
    }

    /// Returns whether the ring has items.
    pub fn has_items(&self) -> bool {
        self.0.has_items()
    }
}

/// The children of one seat.
pub struct ChildrenModel(ChildQueue);

impl ChildrenModel {
    /// Creates an empty queue, whose lock is biased or not.
    pub fn new(biased: bool) -> Self {
        let children = ChildQueue::new(0);
        children.open(biased);
        ChildrenModel(children)
    }

    /// Pushes a task and returns the number of tasks. One thread at a time is the owner.
    pub fn push(&self, task: &Arc<ModelTask>) -> usize {
        task.write();
        // SAFETY: the models push a task once and keep it until the end. The caller is the owner.
        unsafe { self.0.push(OwnedEntry::new(task.entry())) }
    }

    /// Pushes a task beneath the so many newest, as the owner does, or above all if there are not so many.
    pub fn push_beneath(&self, task: &Arc<ModelTask>, many: usize) {
        task.write();
        // SAFETY: the models push a task once and keep it until the end. The caller is the owner.
        unsafe {
            if let Err(entry) = self.0.push_beneath(OwnedEntry::new(task.entry()), many) {
                self.0.push(entry);
            }
        }
    }

    /// Pushes a task as a thread that is not the owner. Takes the task itself if it is refused, and returns its number.
    pub fn push_from_outside(&self, task: &Arc<ModelTask>) -> Option<usize> {
        task.write();
        // SAFETY: the models push a task once and keep it until the end.
        let entry = unsafe { OwnedEntry::new(task.entry()) };
        let refused = self.0.push_from_outside(entry).err()?;
        Some(ModelTask::of(refused.into_item()))
    }

    /// Takes the newest task, as the owner does.
    pub fn pop_newest(&self) -> Option<usize> {
        // SAFETY: the caller is the owner.
        unsafe { self.0.pop_newest() }.map(|entry| ModelTask::of(entry.into_item()))
    }

    /// Takes the oldest task, as the owner does.
    pub fn pop_oldest(&self) -> Option<usize> {
        // SAFETY: the caller is the owner.
        unsafe { self.0.pop_oldest() }.map(|entry| ModelTask::of(entry.into_item()))
    }

    /// Takes some of the tasks, as a thief does.
    pub fn steal(&self) -> Vec<usize> {
        let mut taken = Vec::new();
        self.0.steal(|entry| taken.push(ModelTask::of(entry.into_item())));
        taken
    }

    /// Removes a task, as a thread that raises it does.
    pub fn remove(&self, task: &Arc<ModelTask>) -> bool {
        // SAFETY: the models keep all tasks until the end.
        let removed = unsafe { self.0.remove(task.entry()) };
        removed.map(|entry| ModelTask::of(entry.into_item())).is_some()
    }

    /// Returns the number of tasks.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// The slot of one seat.
pub struct SeatSlotModel(Slot);

impl SeatSlotModel {
    /// Creates an empty slot, whose lock is biased or not.
    pub fn new(biased: bool) -> Self {
        let slot = Slot::new();
        slot.open(biased);
        SeatSlotModel(slot)
    }

    /// Puts a task into the slot, and returns the number of the one that was there. One thread at a time is the owner.
    pub fn put(&self, task: &Arc<ModelTask>) -> Option<usize> {
        task.write();
        // SAFETY: the caller is the owner.
        unsafe { self.0.replace(Some(As::Entry.item(task))) }.map(ModelTask::of)
    }

    /// Empties the slot, as the owner does.
    pub fn empty(&self) -> Option<usize> {
        // SAFETY: the caller is the owner.
        unsafe { self.0.replace(None) }.map(ModelTask::of)
    }

    /// Takes the item that is there, as a searcher does.
    pub fn steal(&self) -> Option<usize> {
        let item = self.0.peek()?;
        self.0.take(item).then(|| ModelTask::of(item))
    }

    /// Takes a task, as a thread that raises it does.
    pub fn remove(&self, task: &Arc<ModelTask>) -> bool {
        let item = As::Entry.item(task);
        let taken = self.0.take(item);
        if taken {
            ModelTask::of(item);
        }
        taken
    }
}

/// The memory of a pool, in one generation.
#[derive(Clone, Copy)]
pub struct PoolModel {
    shared: &'static PoolShared,
    generation: u32,
}

impl PoolModel {
    /// Creates an open pool without threads.
    pub fn new(workers: usize) -> Self {
        PoolModel::with_membarrier(workers, true)
    }

    /// Creates an open pool without threads, which uses the light barrier or not.
    pub fn with_membarrier(workers: usize, membarrier: bool) -> Self {
        PoolModel::of(PoolShared::new(workers), membarrier)
    }

    /// Creates an open pool without threads, in which sleepers watch.
    pub fn with_watch(workers: usize, membarrier: bool) -> Self {
        let mut shared = PoolShared::new(workers);
        shared.idle.0.watching = true;
        PoolModel::of(shared, membarrier)
    }

    fn of(shared: PoolShared, membarrier: bool) -> Self {
        let shared: &'static PoolShared = Box::leak(Box::new(shared));
        PoolModel {
            shared,
            generation: shared.open(None, membarrier),
        }
    }

    /// Frees the memory. The model has joined all threads.
    pub fn free(self) {
        // SAFETY: `new` leaked the memory, and every thread that used it has ended.
        drop(unsafe { Box::from_raw(ptr::from_ref(self.shared).cast_mut()) });
    }

    /// Begins the next generation of the same memory.
    pub fn reopen(self) -> Self {
        PoolModel {
            generation: self.shared.open(None, true),
            ..self
        }
    }

    /// Creates a worker for the calling thread, with a seat.
    pub fn worker(self, index: usize) -> ModelWorker {
        ModelWorker {
            worker: Box::new(Worker::new(self.shared, self.generation, index, None)),
        }
    }

    /// Creates a worker for the calling thread, with a seat and a reactor.
    pub fn worker_with(self, index: usize, reactor: Arc<dyn Reactor>) -> ModelWorker {
        ModelWorker {
            worker: Box::new(Worker::new(self.shared, self.generation, index, Some(reactor))),
        }
    }

    /// Creates a spare thread that is about to park. The pool waits for it to do so.
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
                None,
            )),
        }
    }

    /// Counts a thread for blocking closures. The result runs closures until the pool ends.
    pub fn blocking_thread(self) -> impl FnOnce() {
        let number = self.shared.expect_blocking_thread();
        move || self.shared.serve_blocking(self.generation, number)
    }

    /// Returns the number of threads for blocking closures that have not left.
    pub fn blocking_threads(self) -> usize {
        self.shared.blocking.threads()
    }

    /// Returns the number of threads without a seat in the middle of a job.
    pub fn unseated(self) -> usize {
        self.shared.idle.0.unseated()
    }

    /// Pushes a task, as a scheduler does. Returns `false` if it was refused.
    pub fn push(self, task: &Arc<ModelTask>) -> bool {
        task.write();
        // SAFETY: the models push a task once, and keep it until the end.
        let entry = unsafe { OwnedEntry::new(task.entry()) };
        self.shared.push(entry, self.generation).is_ok()
    }

    /// Returns a scheduler of the pool.
    pub fn scheduler(self) -> PoolScheduler {
        PoolScheduler::new(self.shared, self.generation)
    }

    /// Raises a task, as a schedule operation does. If the pool has ended meanwhile, the task runs here.
    pub fn raise(self, task: &Arc<ModelTask>, level: Priority) {
        // SAFETY: the models keep a task until the end, and push it to one pool.
        if let Err(entry) = unsafe { self.scheduler().raise(task.entry(), level) } {
            forward(entry).run();
        }
    }

    /// Takes the oldest entry of a level from the injector.
    pub fn pop(self, level: Priority) -> Option<usize> {
        let entry = self.shared.injector.pop(Levels::of(level))?;
        Some(ModelTask::of(entry.into_item()))
    }

    /// Returns the number of sleeping workers.
    pub fn asleep(self) -> usize {
        self.shared.idle.0.asleep()
    }

    /// Returns whether a worker that is about to park would see work.
    pub fn has_work(self) -> bool {
        self.shared.has_work()
    }

    /// Uncounts a worker. Returns `true` for the last one.
    pub fn leave(self) -> bool {
        self.shared.leave(self.generation)
    }

    /// Puts a worker to sleep. Returns whether it is the last, and decides about the end.
    pub fn lie_down(self, worker: usize) -> bool {
        self.shared.idle.0.lie_down(&self.shared.seats[worker], false) == SleepKind::Last
    }

    /// Wakes a worker up by itself, and puts it to sleep again.
    pub fn search_in_vain(self, worker: usize) {
        self.get_up(worker);
        self.shared.idle.0.lie_down(&self.shared.seats[worker], true);
    }

    /// Puts a worker to sleep for a nap that is over at once. Returns whether it sees work then.
    pub fn nap(self, worker: usize) -> bool {
        self.lie_down(worker);
        drop(self.shared.idle.0.nap(self.shared.is_light()));
        self.has_work()
    }

    /// Puts a worker to sleep for a nap, which ends by itself. Returns whether the worker still has its seat. If not, it looks for work
    /// for others.
    pub fn nap_on_seat(self, worker: usize) -> bool {
        self.lie_down(worker);
        let (idle, seat) = (&self.shared.idle.0, &self.shared.seats[worker]);
        let nap = idle.nap(self.shared.is_light());
        let is_seated = idle.get_up(seat, &seat.first);
        drop(nap);
        if !is_seated {
            self.shared.pass_nap_on();
        }
        is_seated
    }

    /// Wakes a worker up by itself.
    pub fn get_up(self, worker: usize) {
        let seat = &self.shared.seats[worker];
        assert!(
            self.shared.idle.0.get_up(seat, &seat.first),
            "no other thread takes its seat"
        );
    }

    /// Ends the pool, as the last worker does.
    pub fn end(self) -> bool {
        self.shared.end()
    }

    /// Returns whether the pool has ended.
    pub fn is_over(self) -> bool {
        self.shared.idle.0.is_over()
    }

    /// Closes the pool, as its drop does first.
    pub fn close(self) {
        self.shared.idle.0.close(&self.shared.seats);
    }
}

/// The worker of the calling thread.
pub struct ModelWorker {
    worker: Box<Worker>,
}

impl ModelWorker {
    /// Runs jobs until the end of the pool.
    pub fn run(&self) {
        self.worker.run();
    }

    /// Runs `body` like a job of this worker.
    pub fn within(&self, body: impl FnOnce()) {
        self.worker.enter(body);
    }

    /// Runs the next job of the worker, if there is one.
    pub fn run_next(&self, newest: bool) -> bool {
        self.worker.run_next(newest)
    }

    /// Runs the job that a searcher finds.
    pub fn search(&self) -> bool {
        self.worker.run_found()
    }

    /// Gets up by itself, and goes to work, as if its search had found a job.
    pub fn goes_to_work(&self) {
        let seated = self.worker.seated().expect("it has its seat");
        let idle = &self.worker.shared.idle.0;
        assert!(
            idle.get_up(seated.seat, self.worker.record),
            "no other thread takes its seat"
        );
        seated.stop_searching();
    }

    /// Ends another pool, and waits for its end.
    pub fn end(&self, other: PoolModel) {
        other.shared.end_and_wait(&self.worker, other.generation);
    }

    /// Returns whether the worker has a seat.
    pub fn is_seated(&self) -> bool {
        self.worker.seated().is_some()
    }

    /// Returns whether the worker has a seat, or could take the seat of a sleeping thread.
    pub fn finds_seat(&self) -> bool {
        self.worker.finds_seat()
    }
}

/// A latch that a thread of a pool waits for, in the middle of a job.
pub struct LatchModel(Box<Latch>);

impl LatchModel {
    /// Creates a latch that the calling thread, a worker, waits for.
    pub fn new() -> Self {
        LatchModel(Box::new(Latch::new(Self::worker().record)))
    }

    /// Sets the latch. Called once.
    pub fn set(&self) {
        // SAFETY: the models set a latch once.
        unsafe { Latch::set(NonNull::from(&*self.0)) };
    }

    /// Blocks until the latch is set, on the thread that created it. Returns whether the thread still has its seat.
    pub fn wait(&self) -> bool {
        self.0.wait(Self::worker());
        Self::worker().seated().is_some()
    }

    fn worker<'a>() -> &'a Worker {
        Worker::current().expect("a worker")
    }
}
