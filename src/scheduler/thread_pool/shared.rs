//! The memory of a pool, which its workers and its handles share.
//!
//! [`PoolShared`] has the seats, the injector, the blocking closures and the idle state. It is never freed. When all threads have left, it is
//! kept for a later pool of the same size, as a new *generation*. So a handle is a plain pointer with a generation
//! number. It is free to copy, and a push never accesses freed memory. The injector refuses pushes of older
//! generations, under its lock.

use core::ptr::NonNull;
use std::boxed::Box;
use std::sync::Arc;

use super::barrier;
use super::blocking::Blocking;
use super::entry::{Entry, EntryPlace, Item, OwnedEntry};
use super::idle::Idle;
use super::injector::{Injector, Levels};
use super::reactor::Vacancy;
use super::ring::Line;
use super::seat::Seat;
use super::spare::{SpareConfig, Spares};
use super::worker::{Seated, Worker};
use crate::Panic;
use crate::memory;
use crate::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use crate::sync::{Mutex, lock, park, thread};

/// The memory of a pool.
pub(super) struct PoolShared {
    pub(super) seats: Box<[Seat]>,
    pub(super) injector: Injector,
    pub(super) idle: Line<Idle>,
    pub(super) spares: Spares,
    pub(super) blocking: Blocking,
    /// Whether a worker may attend the reactor: see `reactor.rs`.
    pub(super) vacancy: Vacancy,
    /// Whether pushes onto a seat use the light barrier, and a worker that goes to rest the heavy one: see
    /// `barrier.rs`. Written before a generation begins, relaxed; the injector's lock publishes it.
    light: AtomicBool,
    /// The number of threads that have not left: workers, spare ones, and those of blocking closures. Incremented, relaxed,
    /// by a thread that starts another one, while the pool cannot end. Decremented with acquire and release by a thread that leaves, so the last one
    /// sees all others' work before it retires the memory.
    present: AtomicUsize,
    /// The last generation that all threads have left. Written with release by the last thread, before it retires the
    /// memory. Pairs with the acquire load in `has_ended`, which stays true when the memory is reused.
    ended: AtomicU32,
    /// The worker of another pool that waits for the last thread to leave. Written before the pool is closed, while the
    /// memory still belongs to this generation.
    awaited_by: Mutex<Option<thread::Thread>>,
}

impl PoolShared {
    pub(super) fn new(workers: usize) -> Self {
        PoolShared {
            seats: (0..workers).map(Seat::new).collect(),
            injector: Injector::new(),
            idle: Line(Idle::new(workers)),
            spares: Spares::new(),
            blocking: Blocking::new(),
            vacancy: Vacancy::new(),
            light: AtomicBool::new(false),
            present: AtomicUsize::new(0),
            ended: AtomicU32::new(0),
            awaited_by: Mutex::new(None),
        }
    }

    /// Begins a new generation with this configuration of spare threads, and returns its number. `light` says whether
    /// the light barrier is used, which requires that it `is_available`.
    pub(super) fn open(&'static self, start: Option<Arc<SpareConfig>>, light: bool) -> u32 {
        self.idle.0.open(&self.seats);
        // The turns of the queues begin anew. The workers wait at the gate, or are not started yet.
        for seat in &self.seats {
            seat.picks.store(0, Relaxed);
            seat.ring.open(light);
            seat.slot.open(light);
            seat.children.open(light);
        }
        self.light.store(light, Relaxed);
        self.vacancy.open();
        self.spares.open(start.clone());
        self.present.store(self.seats.len(), SeqCst);
        *lock(&self.awaited_by) = None;
        let generation = self.injector.open();
        self.blocking.open(generation, start);
        generation
    }

    /// Queues an entry: on the seat of the calling thread, if it is a worker of this pool, or in the injector. Returns
    /// the entry if the pool has ended.
    #[inline]
    pub(super) fn push(&'static self, entry: OwnedEntry, generation: u32) -> Result<(), OwnedEntry> {
        if entry.get().is_default()
            && let Some(seated) = self.seat_of_caller(generation)
        {
            seated.push(entry);
            return Ok(());
        }
        self.inject(entry, generation)
    }

    /// Queues an entry behind all jobs of the calling worker's seat, and behind the entries of its level in the
    /// injector. Returns the entry if the pool has ended.
    ///
    /// Other workers take the oldest job of a seat first, too. If the injector is not empty, the order among several
    /// workers is less strict. An idle worker may run the entry before the caller has emptied its own queues.
    pub(super) fn push_last(&'static self, entry: OwnedEntry, generation: u32) -> Result<(), OwnedEntry> {
        if entry.get().is_default()
            && self.injector.occupied().and(Levels::DEFAULT).is_empty()
            && let Some(seated) = self.seat_of_caller(generation)
        {
            seated.push_last(entry);
            return Ok(());
        }
        self.inject(entry, generation)
    }

    /// Returns the calling thread with its seat, if it is a worker of this pool and has one.
    #[inline]
    fn seat_of_caller<'a>(&'static self, generation: u32) -> Option<Seated<'a>> {
        Worker::current()
            .filter(|worker| worker.works_for(self, generation))
            .and_then(Worker::seated)
    }

    /// Queues an entry in the injector. Returns it if the pool has ended.
    pub(super) fn inject(&self, entry: OwnedEntry, generation: u32) -> Result<(), OwnedEntry> {
        self.injector.push(entry, generation)?;
        self.idle.0.wake(&self.seats);
        Ok(())
    }

    /// Moves a raised entry to its new level, if it waits at `place`. Returns `Ok(false)` if it does not.
    ///
    /// Returns the entry if it was taken out of a seat's queue and the pool has ended since.
    ///
    /// # Safety
    ///
    /// The entry is valid until this returns. If it is in an injector or among children, it is in this pool.
    pub(super) unsafe fn move_up(
        &self,
        entry: NonNull<Entry>,
        place: EntryPlace,
        generation: u32,
    ) -> Result<bool, OwnedEntry> {
        // SAFETY: the contract of this function.
        let item = unsafe { Item::queued(entry) };
        // The place may be stale, and even from another pool. So the seat may not exist.
        let taken = match place {
            EntryPlace::Nowhere | EntryPlace::Coming => false,
            // SAFETY: the contract of this function.
            EntryPlace::Injector(_) => return Ok(unsafe { self.injector.raise(entry) }),
            EntryPlace::Slot(worker) => self.seats.get(worker).is_some_and(|seat| seat.slot.take(item)),
            EntryPlace::Ring(worker, number) => {
                (self.seats.get(worker)).is_some_and(|seat| seat.ring.remove(number, item))
            }
            EntryPlace::Children(worker, _) | EntryPlace::OlderChildren(worker) => {
                // SAFETY: the contract of this function.
                let entry = (self.seats.get(worker)).and_then(|seat| unsafe { seat.children.remove(entry) });
                return match entry {
                    Some(entry) => self.inject(entry, generation).map(|()| true),
                    None => Ok(false),
                };
            }
        };
        if taken {
            // SAFETY: this thread took the entry out of its queue, so it owns the entry until it is queued again.
            self.inject(unsafe { OwnedEntry::new(entry) }, generation)?;
        }
        Ok(taken)
    }

    /// Returns whether pushes onto a seat use the light barrier.
    #[inline]
    pub(super) fn is_light(&self) -> bool {
        self.light.load(Relaxed)
    }

    /// Returns whether a worker would find a job. A worker calls this between coming to rest and parking.
    /// The children count only if `children` is set.
    pub(super) fn has_work_at_rest(&self, children: bool) -> bool {
        if self.is_light() {
            barrier::heavy();
        }
        self.has_work_besides_children() || children && self.has_children()
    }

    /// Returns whether a worker would find a job.
    ///
    /// The slots do not count, nor does a single child: their occupants are awake, and take them first. [`Idle`] says
    /// what happens if an occupant does not.
    pub(super) fn has_work(&self) -> bool {
        self.has_work_besides_children() || self.has_children()
    }

    fn has_work_besides_children(&self) -> bool {
        !self.injector.occupied().and(Levels::ALL).is_empty() || self.seats.iter().any(|seat| seat.ring.has_items())
    }

    fn has_children(&self) -> bool {
        self.seats.iter().any(|seat| seat.children.len() > 1)
    }

    /// Returns whether any occupant has an entry that it is expected to take itself.
    pub(super) fn has_kept_jobs(&self) -> bool {
        self.seats.iter().any(Seat::keeps_items)
    }

    /// Counts a thread that is about to be started, until it [leaves](PoolShared::leave). The pool cannot end meanwhile.
    pub(super) fn arrive(&self) {
        self.present.fetch_add(1, Relaxed);
    }

    /// Uncounts a thread that leaves. The last one wakes the thread that waits for the end. Returns `true` for the last
    /// one.
    pub(super) fn leave(&self, generation: u32) -> bool {
        let last = self.present.fetch_sub(1, AcqRel) == 1;
        if last {
            self.ended.store(generation, Release);
            if let Some(thread) = lock(&self.awaited_by).take() {
                thread.unpark();
            }
        }
        last
    }

    /// Ends the pool, if no thread has a job and none is queued. Returns whether it has ended. Its caller is a worker that has
    /// not left, so the memory is still of this generation.
    pub(super) fn end(&self) -> bool {
        let ended = self.idle.0.end(&self.seats, || self.injector.close());
        if ended {
            let config = self.blocking.close();
            // Contains user code, whose destructor may panic.
            _ = Panic::catch(|| drop(config)).map_err(Panic::discard);
        }
        ended
    }

    /// Closes the pool and waits for its end, on a worker of another pool.
    pub(super) fn end_and_wait(&self, worker: &Worker, generation: u32) {
        // Stored before the pool is closed, because the memory may be reused after its end.
        *lock(&self.awaited_by) = Some(thread::current());
        self.idle.0.close(&self.seats);
        worker.block_until(|| self.has_ended(generation), || park(None));
    }

    /// Returns whether all threads of the generation have left.
    pub(super) fn has_ended(&self, generation: u32) -> bool {
        // Generations wrap.
        self.ended.load(Acquire).wrapping_sub(generation).cast_signed() >= 0
    }
}

/// Ends a thread of a pool: it leaves, and retires the memory if it is the last one.
pub(super) fn part(shared: &'static PoolShared, generation: u32) {
    if shared.leave(generation) {
        memory::release();
        let start = shared.spares.close();
        retire(shared);
        // The memory may be reused from here on. Dropped last, because the configuration contains user code, which may
        // panic.
        drop(start);
    }
}

/// The memory of pools that have ended.
#[cfg(not(loom))]
static RETIRED: Mutex<std::vec::Vec<&'static PoolShared>> = Mutex::new(std::vec::Vec::new());

/// Returns memory for a pool: reused, or new.
pub(super) fn obtain(workers: usize) -> &'static PoolShared {
    #[cfg(not(loom))]
    {
        let mut retired = lock(&RETIRED);
        if let Some(at) = retired.iter().position(|shared| shared.seats.len() == workers) {
            return retired.swap_remove(at);
        }
    }
    Box::leak(Box::new(PoolShared::new(workers)))
}

/// Keeps the memory of a pool, whose threads have all left, for a later one.
pub(super) fn retire(shared: &'static PoolShared) {
    #[cfg(not(loom))]
    lock(&RETIRED).push(shared);
    #[cfg(loom)]
    let _ = shared;
}
