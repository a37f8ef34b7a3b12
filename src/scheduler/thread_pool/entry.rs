//! What waits in the queues of a pool.

use core::ptr::{self, NonNull};

use crate::memory::Linked;
use crate::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::{Job, Priority, Transfer};

/// A job that a pool was asked to run: it may wait in any queue of the pool, and be raised there.
///
/// The job comes first, so that the address of one is that of the other.
#[repr(C, align(8))]
pub(crate) struct Entry {
    pub(super) job: Job,
    /// The one before, in the list of an injector. Only touched under its lock, so relaxed accesses do. The one after is
    /// the job's link.
    previous: AtomicPtr<Entry>,
    /// The level that it was given, as a number; and above that, from [`FLOOR`] on, one more than the level that it was
    /// raised to, which only grows. The first is written before the entry is queued, by who has it to itself, the second
    /// by whoever raises it; they are read when it is put into a list of the injector, under the lock, which orders the
    /// two.
    level: AtomicU8,
    /// What it is to the entries around it in the queue of a worker: see [`EntryKind`]. Written while it is in no queue, by
    /// whoever queues it, which publishes it.
    kind: AtomicU8,
    /// It waits, if it does, in the global pool, since its own had ended. Set before it is queued there, which publishes
    /// it; who reads its place first, and then this, knows which pool the place is in.
    forwarded: AtomicBool,
    /// What is known of the frame that it is the entry of: [`PLAIN`], [`TRACKED`] or [`LEADS`]. Accessed with relaxed ordering by
    /// the thread that has exclusive access to the entry: the queue orders the thread that runs it after the one that queued it.
    mark: AtomicU8,
    /// The number of its turn in the injector, counted by that. Only touched under its lock, so relaxed accesses do.
    pub(super) stamp: AtomicU32,
    /// Where the entry waits: see [`EntryPlace`].
    ///
    /// Written by whoever has the entry to itself: who queues it, before it can be found there; who takes it out to run
    /// it, before it runs. Between, it may be read by who raises it, who is the only one to touch an entry that it
    /// does not have. In the injector, under its lock, it is the truth. Of a slot or a ring it is a hint: who does not
    /// find the entry there came between two steps of another, and looks again until the place has changed.
    place: AtomicUsize,
}

// SAFETY: each getter reads what its setter wrote. The job is in no other list while the entry is in one of an injector.
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

/// What an entry is to those around it in the queue of a worker.
///
/// A worker goes from a task to the children that it spawned, the newest first, before it goes back to older work: so a
/// tree of tasks is walked in depth, and what is waiting to be run stays few. It goes back to a task that waits for its
/// children when none of those are left at the newer end of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EntryKind {
    Plain = 0,
    /// A child that was spawned, and did not run yet.
    Child = 0b010,
    /// A task that waited for its children, one of which has ended.
    Parent = 0b100,
    /// A closure that was spawned in a [`Scope`](super::Scope). The end of the scope may run it on the waiting thread.
    Scoped = 0b110,
}

/// Where an entry waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryPlace {
    Nowhere,
    /// Nowhere yet: who has it is about to queue it, and says where.
    Coming,
    /// In the injector, in the list of its level.
    Injector(Priority),
    /// In the slot of a worker.
    Slot(usize),
    /// In the ring of a worker, with the lowest bits of its number there.
    Ring(usize, usize),
}

const RING_BITS: u32 = 12;

/// Nothing is to be done but to run it.
const PLAIN: u8 = 0;
/// The strand that it is of keeps a list in which this is.
const TRACKED: u8 = 1;
/// Other frames wait behind this one, and run with it.
const LEADS: u8 = 2;

/// What one level that an entry was raised to is worth in its word.
const FLOOR: u8 = 8;

impl EntryPlace {
    fn encode(self) -> usize {
        match self {
            EntryPlace::Nowhere => 0,
            EntryPlace::Coming => 4,
            EntryPlace::Injector(level) => (level as usize) << 2 | 1,
            EntryPlace::Slot(worker) => worker << 2 | 2,
            EntryPlace::Ring(worker, number) => (worker << RING_BITS | number & ((1 << RING_BITS) - 1)) << 2 | 3,
        }
    }

    fn decode(place: usize) -> EntryPlace {
        let rest = place >> 2;
        match place & 3 {
            0 if rest == 0 => EntryPlace::Nowhere,
            0 => EntryPlace::Coming,
            1 => EntryPlace::Injector(level(rest)),
            2 => EntryPlace::Slot(rest),
            _ => EntryPlace::Ring(rest >> RING_BITS, rest & ((1 << RING_BITS) - 1)),
        }
    }
}

/// The bits of an item that are not of its address.
const BITS: usize = 0b111;
/// Those of them that hold the [`EntryKind`] of an entry.
const KINDS: usize = 0b110;
const _: () = assert!(align_of::<Job>() > BITS);
const _: () = assert!(super::ring::CAPACITY <= 1 << RING_BITS);

/// The level of a number.
fn level(number: usize) -> Priority {
    match number {
        0 => Priority::Background,
        1 => Priority::Utility,
        2 => Priority::Default,
        3 => Priority::UserInitiated,
        _ => Priority::UserInteractive,
    }
}

impl core::fmt::Debug for Entry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Entry").finish_non_exhaustive()
    }
}

impl Entry {
    #[inline(always)]
    pub(crate) fn new(run: unsafe fn(NonNull<Job>) -> Transfer) -> Self {
        Entry {
            job: Job::new(run),
            previous: AtomicPtr::new(ptr::null_mut()),
            level: AtomicU8::new(Priority::Default as u8),
            kind: AtomicU8::new(EntryKind::Plain as u8),
            forwarded: AtomicBool::new(false),
            mark: AtomicU8::new(PLAIN),
            stamp: AtomicU32::new(0),
            place: AtomicUsize::new(EntryPlace::Nowhere.encode()),
        }
    }

    /// The level at which it waits, or is to wait.
    #[inline]
    pub(super) fn level(&self) -> Priority {
        Self::higher(self.level.load(Relaxed))
    }

    /// Whether that is the default one.
    #[inline]
    pub(super) fn is_default(&self) -> bool {
        let word = self.level.load(Relaxed);
        word == Priority::Default as u8 || Self::higher(word) == Priority::Default
    }

    /// The higher of the two levels in a word.
    #[inline]
    fn higher(word: u8) -> Priority {
        level(usize::from((word % FLOOR).max((word / FLOOR).saturating_sub(1))))
    }

    /// Its job, whose link is free while the entry is in no queue.
    #[inline]
    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    /// Sets the level, while the entry is in no queue, and nobody raises it.
    #[inline]
    pub(crate) fn set_level(&self, level: Priority) {
        self.level.store(level as u8, Relaxed);
    }

    /// Gives it another level, while it is in no queue. What it was raised to, or is at this moment, holds.
    pub(super) fn change_level(&self, level: Priority) {
        self.update(|word| word / FLOOR * FLOOR + level as u8);
    }

    /// Says what it is, while the entry is in no queue.
    #[inline]
    pub(crate) fn set_kind(&self, kind: EntryKind) {
        self.kind.store(kind as u8, Relaxed);
    }

    /// Makes it at least as urgent as `level`; tells whether that is more than it was.
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

    /// Says that it is about to be queued, before somebody who may raise it knows.
    #[inline]
    pub(crate) fn set_coming(&self) {
        self.set_place(EntryPlace::Coming);
    }

    /// Whether it is tracked, or leads others.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.mark.load(Relaxed) != PLAIN
    }

    #[inline]
    pub(crate) fn is_tracked(&self) -> bool {
        self.mark.load(Relaxed) == TRACKED
    }

    #[inline]
    pub(crate) fn set_tracked(&self, tracked: bool) {
        self.mark.store(if tracked { TRACKED } else { PLAIN }, Relaxed);
    }

    #[inline]
    pub(crate) fn leads(&self) -> bool {
        self.mark.load(Relaxed) == LEADS
    }

    /// Says whether other frames wait behind this one, which is not tracked.
    #[inline]
    pub(crate) fn set_leads(&self, leads: bool) {
        self.mark.store(if leads { LEADS } else { PLAIN }, Relaxed);
    }

    /// Whether it was given to the global pool, because its own had ended.
    pub(super) fn is_forwarded(&self) -> bool {
        self.forwarded.load(Relaxed)
    }

    /// Says so, before it is queued there.
    #[cfg(not(loom))]
    pub(super) fn set_forwarded(&self) {
        self.forwarded.store(true, Relaxed);
    }

    #[inline]
    pub(super) fn place(&self) -> EntryPlace {
        EntryPlace::decode(self.place.load(Acquire))
    }

    /// Says where it is going to wait, or that it waits no more.
    #[inline]
    pub(super) fn set_place(&self, place: EntryPlace) {
        self.place.store(place.encode(), Release);
    }
}

/// What the queues of a worker hold: the address of an [`Entry`], with the lowest bit set and its [`EntryKind`] in the two
/// above, or that of a plain [`Job`], which is a fork that its owner waits for and nobody raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item(NonNull<Job>);

impl Item {
    #[inline]
    pub(super) fn fork(job: NonNull<Job>) -> Item {
        Item(job)
    }

    /// An entry that is to be run, or is plain.
    #[inline]
    pub(super) fn entry(entry: NonNull<Entry>) -> Item {
        Item(entry.cast::<Job>().map_addr(|address| address | 1))
    }

    /// An entry, as it is in the queue of a worker.
    ///
    /// # Safety
    ///
    /// The entry is alive.
    #[inline]
    pub(super) unsafe fn queued(entry: NonNull<Entry>) -> Item {
        // SAFETY: the caller's promise.
        let kind = unsafe { entry.as_ref() }.kind.load(Relaxed);
        Item(entry.cast::<Job>().map_addr(|address| address | usize::from(kind) | 1))
    }

    /// The bits of its [`EntryKind`].
    #[inline]
    fn kind(self) -> usize {
        self.0.addr().get() & KINDS
    }

    /// Whether it is a child that did not run yet, or a task that waited for such.
    #[inline]
    pub(super) fn is_family(self) -> bool {
        // Of the four numbers these are the two between the first and the last.
        self.kind().wrapping_sub(EntryKind::Child as usize) <= EntryKind::Parent as usize - EntryKind::Child as usize
    }

    /// Whether it is a task that waited for its children.
    #[inline]
    pub(super) fn is_parent(self) -> bool {
        self.kind() == EntryKind::Parent as usize
    }

    /// Whether it is a closure of a scope.
    #[inline]
    pub(super) fn is_scoped(self) -> bool {
        self.kind() == EntryKind::Scoped as usize
    }

    #[inline]
    pub(super) fn is_entry(self) -> bool {
        self.0.addr().get() & 1 == 1
    }

    /// The entry, where it is one.
    #[inline]
    pub(super) fn as_entry(self) -> Option<NonNull<Entry>> {
        self.is_entry().then(|| self.job().cast())
    }

    #[inline]
    pub(super) fn job(self) -> NonNull<Job> {
        // SAFETY: a job is aligned to a word and not at null, so there is more to its address than the lowest bits.
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

    /// Runs the job, and what it resumes.
    ///
    /// # Safety
    ///
    /// The job was taken out of a queue by the caller, who runs it this one time.
    #[inline]
    pub(super) unsafe fn run(self) {
        if let Some(entry) = self.as_entry() {
            // SAFETY: the caller's promise: it is alive until it runs.
            let entry = unsafe { entry.as_ref() };
            entry.set_place(EntryPlace::Nowhere);
            entry.set_kind(EntryKind::Plain);
        }
        // SAFETY: the caller's promise.
        unsafe { Job::run(self.job()) }.run();
    }
}
