//! The items of a pool's queues.
//!
//! [`Entry`] is a job with a priority, which may wait in any queue of a pool and be raised there. A task's frame, a
//! schedule operation and a scope's closure begin with one. [`Item`] is what a seat's queues store: a tagged pointer to
//! an entry or to a fork.
//!
//! # Who may access what
//!
//! | field | accessed by |
//! |---|---|
//! | the job, its link, `tracked` | the thread with exclusive access: it queues the entry, or has taken it out of a queue |
//! | `previous`, `stamp` | the thread that holds the injector's lock |
//! | `level` | the thread with exclusive access, and threads that raise the entry |
//! | `place`, `kind` | written with exclusive access; read by threads that raise the entry |
//! | `forwarded` | written with exclusive access, before the entry is queued; read by threads that raise it |
//!
//! A thread that raises an entry is the only one that accesses an entry of another owner. It keeps the entry valid
//! meanwhile, by the contract of `raise`, and touches only atomics.
//!
//! # Why raising is sound
//!
//! In the injector and in a queue of children the place is exact, under the lock. For a slot or a ring it is a hint. The
//! raising thread tries to take the entry out of that place. If that fails, the entry was just taken by another thread,
//! which is about to store a new place. So the raising thread retries until the place has changed.

use core::ptr::{self, NonNull};

use crate::memory::Linked;
use crate::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::{Job, Priority, Transfer};

/// A job in the queues of a pool, with its priority and its place there.
///
/// The job is the first field, so both have the same address.
#[repr(C, align(8))]
pub(crate) struct Entry {
    pub(super) job: Job,
    /// The previous entry in a list of the injector. Accessed under its lock, relaxed. The next entry is the job's
    /// link.
    previous: AtomicPtr<Entry>,
    /// The level that the entry was given, plus [`FLOOR`] times one more than the level that it was raised to. The
    /// second only grows. The first is written with exclusive access, and the second by threads that raise the entry,
    /// all relaxed. The injector's lock orders them with the loads.
    level: AtomicU8,
    /// The [`EntryKind`], plus [`QUEUED`] times the number of children of a parent that may still be queued. Written with exclusive access, relaxed; queueing publishes it. A thread that raises the entry
    /// reads it to recognize its item in a queue.
    kind: AtomicU8,
    /// Whether the entry is queued in the global pool, because its own pool had ended. Written before it is queued
    /// there, which publishes it. A thread that reads the place first, and then this, knows the pool of that place.
    forwarded: AtomicBool,
    /// Whether the entry's frame is in a list of its strand. Accessed with exclusive access, relaxed: the queue orders the
    /// thread that runs the entry after the one that queued it.
    tracked: AtomicBool,
    /// The order of arrival in the injector. Accessed under its lock, relaxed.
    pub(super) stamp: AtomicU32,
    /// The [`EntryPlace`]. Written with exclusive access and release: before the entry is queued, and after it was
    /// taken out to run. Pairs with the acquire loads of threads that raise the entry.
    ///
    /// While the entry is in no queue, the bits above the place hold the index of the seat on which it ran last plus 1,
    /// or 0. Only the thread with exclusive access reads these.
    place: AtomicUsize,
}

// SAFETY: each getter reads the value of its setter. While the entry is in a list of the injector, its job is in no
// other list.
unsafe impl Linked for Entry {
    #[inline]
    fn next(&self) -> *mut Entry {
        self.job.next().cast()
    }

    #[inline]
    fn set_next(&self, next: *mut Entry) {
        self.job.set_next(next.cast());
    }

    #[inline]
    fn previous(&self) -> *mut Entry {
        self.previous.load(Relaxed)
    }

    #[inline]
    fn set_previous(&self, previous: *mut Entry) {
        self.previous.store(previous, Relaxed);
    }
}

/// The relation of an entry to its neighbours in the queue of a worker.
///
/// A worker runs the children and the branches of a task, the newest first, before it returns to older work. So a tree of tasks is
/// walked depth-first, and few jobs are queued. The worker returns to a task that waits for its children when many of
/// them have run, or none is left in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EntryKind {
    Plain = 0,
    /// A spawned child that has not run yet. It is in the queue of children alone, so an item has no bits for it.
    Child = 0b001,
    /// A schedule operation. On a seat, only if a task has started it: the task waits for it, most likely together with others.
    Branch = 0b010,
    /// A task that waited for its children, one of which has ended.
    Parent = 0b100,
    /// A closure of a [`Scope`](super::Scope). The end of the scope may run it on the waiting thread.
    Scoped = 0b110,
}

/// The queue in which an entry waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scheduler) enum EntryPlace {
    Nowhere,
    /// Not queued yet: the owner is about to queue the entry, and stores its place then.
    Coming,
    /// In the list of this level of the injector.
    Injector(Priority),
    /// In the slot of the seat with this index.
    Slot(usize),
    /// In the ring of a seat, with the lowest bits of its number there.
    Ring(usize, usize),
    /// In the array of a seat's children, at this position.
    Children(usize, usize),
    /// In the list of a seat's older children.
    OlderChildren(usize),
}

/// The bits of a place that tell the queue.
const PLACE_BITS: u32 = 3;
/// The bits of a place for a position in a ring or an array.
const POSITION_BITS: u32 = 10;

/// The factor of the raised level in the `level` word.
const FLOOR: u8 = 8;

impl EntryPlace {
    fn encode(self) -> usize {
        match self {
            EntryPlace::Nowhere => 0,
            EntryPlace::Coming => 1,
            EntryPlace::Injector(level) => (level as usize) << PLACE_BITS | 2,
            EntryPlace::Slot(seat) => seat << PLACE_BITS | 3,
            EntryPlace::Ring(seat, number) => Self::position(seat, number) << PLACE_BITS | 4,
            EntryPlace::Children(seat, at) => Self::position(seat, at) << PLACE_BITS | 5,
            EntryPlace::OlderChildren(seat) => seat << PLACE_BITS | 6,
        }
    }

    fn decode(place: usize) -> EntryPlace {
        let rest = place >> PLACE_BITS;
        let (seat, number) = (rest >> POSITION_BITS, rest & ((1 << POSITION_BITS) - 1));
        match place & ((1 << PLACE_BITS) - 1) {
            0 => EntryPlace::Nowhere,
            1 => EntryPlace::Coming,
            2 => EntryPlace::Injector(level(rest)),
            3 => EntryPlace::Slot(rest),
            4 => EntryPlace::Ring(seat, number),
            5 => EntryPlace::Children(seat, number),
            _ => EntryPlace::OlderChildren(rest),
        }
    }

    #[inline]
    fn position(seat: usize, number: usize) -> usize {
        seat << POSITION_BITS | number & ((1 << POSITION_BITS) - 1)
    }
}

/// The factor of the number of children in the `kind` word.
const QUEUED: u8 = 8;
/// The largest number of children in the `kind` word, which stands for larger ones as well.
const MOST_QUEUED: u8 = u8::MAX / QUEUED;
/// The bits of an item that are not part of the address.
const BITS: usize = 0b111;
/// The bits of an item that hold the [`EntryKind`].
const KINDS: usize = 0b110;
const _: () = assert!(align_of::<Job>() > BITS);
const _: () = assert!(super::ring::CAPACITY <= 1 << POSITION_BITS);
const _: () = assert!(super::child_queue::CAPACITY <= 1 << POSITION_BITS);

/// Returns the level with a number.
fn level(number: usize) -> Priority {
    match number {
        0 => Priority::Background,
        1 => Priority::Utility,
        2 => Priority::Default,
        3 => Priority::UserInitiated,
        _ => Priority::UserInteractive,
    }
}

impl Entry {
    #[inline(always)]
    pub(crate) fn new(run: unsafe fn(NonNull<Job>) -> Transfer) -> Self {
        Entry::of_kind(run, EntryKind::Plain)
    }

    /// Creates the entry of a schedule operation.
    #[inline(always)]
    pub(super) fn of_operation(run: unsafe fn(NonNull<Job>) -> Transfer) -> Self {
        Entry::of_kind(run, EntryKind::Branch)
    }

    #[inline(always)]
    fn of_kind(run: unsafe fn(NonNull<Job>) -> Transfer, kind: EntryKind) -> Self {
        Entry {
            job: Job::new(run),
            previous: AtomicPtr::new(ptr::null_mut()),
            level: AtomicU8::new(Priority::Default as u8),
            kind: AtomicU8::new(kind as u8),
            forwarded: AtomicBool::new(false),
            tracked: AtomicBool::new(false),
            stamp: AtomicU32::new(0),
            place: AtomicUsize::new(EntryPlace::Nowhere.encode()),
        }
    }

    /// Returns the level at which the entry waits, or will wait.
    #[inline]
    pub(crate) fn level(&self) -> Priority {
        Self::higher(self.level.load(Relaxed))
    }

    /// Returns whether the level is the default one.
    #[inline]
    pub(super) fn is_default(&self) -> bool {
        let word = self.level.load(Relaxed);
        word == Priority::Default as u8 || Self::higher(word) == Priority::Default
    }

    /// Returns the higher of the two levels in a word.
    #[inline]
    fn higher(word: u8) -> Priority {
        level(usize::from((word % FLOOR).max((word / FLOOR).saturating_sub(1))))
    }

    /// Returns the job, whose link is unused while the entry is in no queue.
    #[inline]
    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    /// Sets the level. The entry is in no queue, and no thread raises it.
    #[inline]
    pub(crate) fn set_level(&self, level: Priority) {
        self.level.store(level as u8, Relaxed);
    }

    /// Changes the given level, and keeps the raised one. The entry is in no queue, but may be raised at the same time.
    pub(super) fn change_level(&self, level: Priority) {
        self.update(|word| word / FLOOR * FLOOR + level as u8);
    }

    /// Returns the kind. The entry is in no queue.
    #[inline]
    pub(super) fn kind(&self) -> EntryKind {
        match self.kind.load(Relaxed) % QUEUED {
            kind if kind == EntryKind::Plain as u8 => EntryKind::Plain,
            kind if kind == EntryKind::Child as u8 => EntryKind::Child,
            kind if kind == EntryKind::Branch as u8 => EntryKind::Branch,
            kind if kind == EntryKind::Parent as u8 => EntryKind::Parent,
            _ => EntryKind::Scoped,
        }
    }

    /// Sets the kind. The entry is in no queue.
    #[inline]
    pub(crate) fn set_kind(&self, kind: EntryKind) {
        self.kind.store(kind as u8, Relaxed);
    }

    /// Makes the entry a parent: of as many children as were `spawned`, one has ended. The entry is in no queue.
    #[inline]
    pub(crate) fn set_parent_of(&self, spawned: u8) {
        let queued = spawned.saturating_sub(1).min(MOST_QUEUED);
        self.kind.store(EntryKind::Parent as u8 + queued * QUEUED, Relaxed);
    }

    /// Returns the number of children of a parent that may still be queued, or zero if it is unknown, or large.
    #[inline]
    pub(super) fn queued_children(&self) -> usize {
        usize::from(self.kind.load(Relaxed) / QUEUED % MOST_QUEUED)
    }

    /// Raises the entry to at least `level`. Returns whether that is higher than before.
    pub(crate) fn raise(&self, level: Priority) -> bool {
        let before = self.update(|word| word % FLOOR + (word / FLOOR).max(level as u8 + 1) * FLOOR);
        Self::higher(before) < level
    }

    fn update(&self, mut change: impl FnMut(u8) -> u8) -> u8 {
        let mut word = self.level.load(Relaxed);
        loop {
            match (self.level).compare_exchange_weak(word, change(word), Relaxed, Relaxed) {
                Ok(before) => return before,
                Err(now) => word = now,
            }
        }
    }

    /// Marks the entry as about to be queued. Called before a thread that may raise it can reach it.
    #[inline]
    pub(crate) fn set_coming(&self) {
        let seat = self.last_seat().map_or(0, |seat| seat + 1);
        (self.place).store(EntryPlace::Coming.encode() | seat << PLACE_BITS, Release);
    }

    /// Marks a new entry as about to be queued. No other thread knows it.
    #[inline]
    pub(crate) fn begin_coming(&self) {
        self.place.store(EntryPlace::Coming.encode(), Relaxed);
    }

    /// Marks the entry as running on a seat.
    #[inline]
    pub(super) fn set_running(&self, seat: usize) {
        (self.place).store(EntryPlace::Nowhere.encode() | (seat + 1) << PLACE_BITS, Release);
    }

    /// Returns the index of the seat on which the entry ran last, if it is known. The seat may belong to another pool. The
    /// caller has exclusive access, and the entry is in no queue.
    #[inline]
    pub(super) fn last_seat(&self) -> Option<usize> {
        let place = self.place.load(Relaxed);
        match EntryPlace::decode(place) {
            EntryPlace::Nowhere | EntryPlace::Coming => (place >> PLACE_BITS).checked_sub(1),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn is_tracked(&self) -> bool {
        self.tracked.load(Relaxed)
    }

    #[inline]
    pub(crate) fn set_tracked(&self, tracked: bool) {
        self.tracked.store(tracked, Relaxed);
    }

    /// Returns whether the entry was forwarded to the global pool.
    pub(in crate::scheduler) fn is_forwarded(&self) -> bool {
        self.forwarded.load(Relaxed)
    }

    /// Marks the entry as forwarded. Called before it is queued in the global pool.
    pub(super) fn set_forwarded(&self) {
        self.forwarded.store(true, Relaxed);
    }

    #[inline]
    pub(in crate::scheduler) fn place(&self) -> EntryPlace {
        EntryPlace::decode(self.place.load(Acquire))
    }

    /// Sets the place: before the entry is queued, or after it was taken out.
    #[inline]
    pub(super) fn set_place(&self, place: EntryPlace) {
        self.place.store(place.encode(), Release);
    }
}

/// An entry that its holder owns: it is in no queue, and stays valid at its address until it runs.
///
/// The thread that queues an entry creates one, and a queue creates one for the thread that takes an entry out. So the
/// functions that queue an entry are safe, and one that refuses it returns it. Other threads may only raise the entry.
#[must_use = "an entry that is neither queued nor run is lost"]
pub(in crate::scheduler) struct OwnedEntry(NonNull<Entry>);

impl OwnedEntry {
    /// Takes ownership of an entry.
    ///
    /// # Safety
    ///
    /// The entry is in no queue, and stays valid at its address until it runs. It has no other owner. It may run as
    /// soon as it is queued.
    #[inline]
    pub(in crate::scheduler) unsafe fn new(entry: NonNull<Entry>) -> Self {
        OwnedEntry(entry)
    }

    #[inline]
    pub(super) fn get(&self) -> &Entry {
        // SAFETY: the entry has not run, so it is valid, by the contract of `new`.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(super) fn into_raw(self) -> NonNull<Entry> {
        self.0
    }

    /// Runs the entry's job, and the work that it resumes, on a thread that is not a worker of the pool.
    #[inline]
    pub(in crate::scheduler) fn run(self) {
        let entry = self.into_raw();
        // SAFETY: the entry is valid until it runs, by the contract of `new`. It is in no queue, and this is the only run:
        // `self` was consumed.
        unsafe {
            entry.as_ref().set_place(EntryPlace::Nowhere);
            entry.as_ref().set_kind(EntryKind::Plain);
            Job::run(entry.cast()).run();
        }
    }

    /// Returns the item of the entry, without its kind.
    #[inline]
    pub(super) fn into_item(self) -> Item {
        Item::entry(self.0)
    }

    /// Returns the item of the entry, with its kind, to be queued.
    #[inline]
    pub(super) fn into_queued(self) -> Item {
        self.item()
    }

    /// Does what [`into_queued`](OwnedEntry::into_queued) does, for a queue that may refuse the item.
    #[inline]
    pub(super) fn item(&self) -> Item {
        // SAFETY: the entry is valid, by the contract of `new`.
        unsafe { Item::queued(self.0) }
    }

    /// Returns a transfer that runs the entry's job.
    pub(super) fn into_transfer(self) -> Transfer {
        // A thread that raises the entry may still look for it in its last queue.
        self.get().set_place(EntryPlace::Nowhere);
        // SAFETY: the entry is in no queue and stays valid until its job runs, by the contract of `new`.
        unsafe { Transfer::to(self.0.cast()) }
    }
}

/// An item of a seat's queues. It is the address of an [`Entry`], with the lowest bit set and its [`EntryKind`] in the
/// two bits above. Or it is the address of a plain [`Job`]: a fork that its owner waits for, and that is never raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item(NonNull<Job>);

impl Item {
    #[inline]
    pub(super) fn fork(job: NonNull<Job>) -> Item {
        Item(job)
    }

    /// Creates the item of an entry that was taken out of a queue, or is plain.
    #[inline]
    pub(super) fn entry(entry: NonNull<Entry>) -> Item {
        Item(entry.cast::<Job>().map_addr(|address| address | 1))
    }

    /// Creates the item of an entry, with its kind.
    ///
    /// # Safety
    ///
    /// The entry is valid.
    #[inline]
    pub(super) unsafe fn queued(entry: NonNull<Entry>) -> Item {
        // SAFETY: the entry is valid, by the contract of this function.
        let kind = unsafe { entry.as_ref() }.kind.load(Relaxed);
        Item(
            entry
                .cast::<Job>()
                .map_addr(|address| address | usize::from(kind) & KINDS | 1),
        )
    }

    /// Returns the bits of the [`EntryKind`].
    #[inline]
    fn kind(self) -> usize {
        self.0.addr().get() & KINDS
    }

    /// Returns whether the item is a task that waited for its children.
    #[inline]
    pub(super) fn is_parent(self) -> bool {
        self.kind() == EntryKind::Parent as usize
    }

    /// Returns whether the item is an operation that a task awaits.
    #[inline]
    pub(super) fn is_branch(self) -> bool {
        self.kind() == EntryKind::Branch as usize
    }

    /// Returns whether the item is a closure of a scope.
    #[inline]
    pub(super) fn is_scoped(self) -> bool {
        self.kind() == EntryKind::Scoped as usize
    }

    #[inline]
    pub(super) fn is_entry(self) -> bool {
        self.0.addr().get() & 1 == 1
    }

    /// Returns the entry, unless the item is a fork.
    #[inline]
    pub(super) fn as_entry(self) -> Option<NonNull<Entry>> {
        self.is_entry().then(|| self.job().cast())
    }

    #[inline]
    pub(super) fn job(self) -> NonNull<Job> {
        // SAFETY: a job's address is not null and has none of the masked bits, which the assertion on its alignment
        // checks.
        unsafe { NonNull::new_unchecked(self.0.as_ptr().map_addr(|address| address & !BITS)) }
    }

    #[inline]
    pub(super) fn into_raw(self) -> *mut Job {
        self.0.as_ptr()
    }

    #[inline]
    pub(super) fn from_raw(raw: *mut Job) -> Option<Item> {
        NonNull::new(raw).map(Item)
    }

    /// Runs the job on a worker with this seat, and returns the work that it resumes.
    ///
    /// # Safety
    ///
    /// The caller took the item out of a queue, and runs it once.
    #[inline]
    pub(super) unsafe fn run(self, seat: usize) -> Transfer {
        if let Some(entry) = self.as_entry() {
            // SAFETY: an entry is valid until it runs, by the contract of every push.
            let entry = unsafe { entry.as_ref() };
            entry.set_running(seat);
            entry.set_kind(EntryKind::Plain);
        }
        // SAFETY: the contract of this function.
        unsafe { Job::run(self.job()) }
    }
}
