//! What the workers of a pool, and its handles, share.

use core::ptr::NonNull;
use std::boxed::Box;
use std::sync::Arc;

use super::entry::{Entry, EntryPlace, Item};
use super::idle::Idle;
use super::injector::{Injector, InjectorClosed, Levels};
use super::ring::Line;
use super::seat::Seat;
use super::spare::{SpareConfig, Spares};
use super::worker::Worker;
use crate::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use crate::sync::{Mutex, lock, park, thread};

/// The shared part of a pool.
///
/// It is never freed, only used again by a later pool of the same size, one *generation* after the other. So a handle is a
/// plain pointer and a generation, free to copy, and nobody who pushes has to fear that the memory is gone. A
/// push of an older generation is refused under the lock of the injector.
pub(super) struct PoolShared {
    pub(super) seats: Box<[Seat]>,
    pub(super) injector: Injector,
    pub(super) idle: Line<Idle>,
    pub(super) spares: Spares,
    /// The threads that have not left, workers and spare ones. A thread of the pool adds one for a spare thread before it
    /// starts that. Leaving releases what a thread did; the last one to leave acquires it, and retires the memory.
    present: AtomicUsize,
    /// The last generation that all threads have left. Written by the last one, before it retires the memory, with
    /// release; so what says that a pool has ended stays true when the memory is used again.
    ended: AtomicU32,
    /// The worker of another pool that waits for the last thread to leave. Written before the pool is closed, that
    /// is, while the memory is still this pool's.
    awaited_by: Mutex<Option<thread::Thread>>,
}

impl PoolShared {
    pub(super) fn new(workers: usize) -> Self {
        PoolShared {
            seats: (0..workers).map(Seat::new).collect(),
            injector: Injector::new(),
            idle: Line(Idle::new(workers)),
            spares: Spares::new(),
            present: AtomicUsize::new(0),
            ended: AtomicU32::new(0),
            awaited_by: Mutex::new(None),
        }
    }

    /// Begins a new life, in which spare threads are started so, if at all, and returns its number.
    pub(super) fn open(&'static self, start: Option<Arc<SpareConfig>>) -> u32 {
        self.idle.0.open(&self.seats);
        self.spares.open(start);
        self.present.store(self.seats.len(), SeqCst);
        *lock(&self.awaited_by) = None;
        self.injector.open()
    }

    /// Queues an entry: with the calling worker, if it is one of this pool's and has a seat, or in the injector.
    ///
    /// # Safety
    ///
    /// The entry is in no queue, and stays where it is until it runs. It may have run when this returns.
    #[inline]
    pub(super) unsafe fn push(&'static self, entry: NonNull<Entry>, generation: u32) -> Result<(), InjectorClosed> {
        // SAFETY: the caller's promise: the entry is ours until it is queued.
        if unsafe { entry.as_ref() }.is_default()
            && let Some(worker) = Worker::current()
            && worker.works_for(self, generation)
            && let Some(seated) = worker.seated()
        {
            // SAFETY: the caller's promise.
            unsafe { seated.push(entry) };
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.inject(entry, generation) }
    }

    /// Queues an entry behind what the calling worker would take before it, and behind what waits in the injector at its
    /// level.
    ///
    /// Of what is queued with a worker, others take the oldest first too. Where the injector has something the order among
    /// several workers is not as strict: one that has nothing else to do may get there before the caller is through its own.
    ///
    /// # Safety
    ///
    /// As for [`PoolShared::push`].
    pub(super) unsafe fn push_last(
        &'static self,
        entry: NonNull<Entry>,
        generation: u32,
    ) -> Result<(), InjectorClosed> {
        // SAFETY: the caller's promise: the entry is ours until it is queued.
        if unsafe { entry.as_ref() }.is_default()
            && self.injector.occupied().and(Levels::DEFAULT).is_empty()
            && let Some(worker) = Worker::current()
            && worker.works_for(self, generation)
            && let Some(seated) = worker.seated()
        {
            // SAFETY: the caller's promise.
            unsafe { seated.push_last(entry) };
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.inject(entry, generation) }
    }

    /// Queues an entry in the injector.
    ///
    /// # Safety
    ///
    /// As for [`PoolShared::push`].
    pub(super) unsafe fn inject(&self, entry: NonNull<Entry>, generation: u32) -> Result<(), InjectorClosed> {
        // SAFETY: the caller's promise.
        unsafe { self.injector.push(entry, generation) }?;
        self.idle.0.wake(&self.seats);
        Ok(())
    }

    /// Moves an entry that was raised to where it belongs now, if it waits at `place`; `false` when it does not.
    ///
    /// `Err` when it was taken out of the queue of a worker and the pool has ended since: it is the caller's then.
    ///
    /// # Safety
    ///
    /// The entry is alive until this returns. If it is in an injector, it is in this one.
    pub(super) unsafe fn move_up(
        &self,
        entry: NonNull<Entry>,
        place: EntryPlace,
        generation: u32,
    ) -> Result<bool, InjectorClosed> {
        // SAFETY: the caller's promise.
        let item = unsafe { Item::queued(entry) };
        // The place is old news, perhaps from before it came here, so there may be no such worker.
        let taken = match place {
            EntryPlace::Nowhere | EntryPlace::Coming => false,
            // SAFETY: the caller's promise.
            EntryPlace::Injector(_) => return Ok(unsafe { self.injector.raise(entry) }),
            EntryPlace::Slot(worker) => self.seats.get(worker).is_some_and(|seat| seat.take_from_slot(item)),
            EntryPlace::Ring(worker, number) => {
                (self.seats.get(worker)).is_some_and(|seat| seat.ring.remove(number, item))
            }
        };
        if taken {
            // SAFETY: we took it, so it is in no queue, and nobody else runs it.
            unsafe { self.inject(entry, generation) }?;
        }
        Ok(taken)
    }

    /// Whether a worker would find anything to do: what it must look at between lying down and parking.
    ///
    /// Not the slots: their workers are awake, and look there first. What becomes of a slot whose worker does not, see
    /// [`Idle`].
    pub(super) fn has_work(&self) -> bool {
        !self.injector.occupied().and(Levels::ALL).is_empty()
            || self
                .seats
                .iter()
                .any(|seat| seat.ring.has_items() || seat.shelf.has_items())
    }

    /// Whether a worker has something in its slot.
    pub(super) fn has_full_slots(&self) -> bool {
        self.seats.iter().any(|seat| !seat.slot.load(SeqCst).is_null())
    }

    /// Counts a thread that is about to be started, until it [leaves](PoolShared::leave). The caller is one that is counted.
    pub(super) fn arrive(&self) {
        self.present.fetch_add(1, Relaxed);
    }

    /// One thread leaves. The last one wakes the thread that waits for that; `true` for the last one.
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

    /// Closes the pool and waits for its end, on a worker of another one.
    pub(super) fn end_and_wait(&self, worker: &Worker, generation: u32) {
        // Before the end may begin, after which the memory may be another pool's.
        *lock(&self.awaited_by) = Some(thread::current());
        self.idle.0.close(&self.seats);
        worker.block_until(|| self.has_ended(generation), || park(None));
    }

    /// Whether all threads of that generation have left.
    pub(super) fn has_ended(&self, generation: u32) -> bool {
        // The numbers wrap.
        self.ended.load(Acquire).wrapping_sub(generation).cast_signed() >= 0
    }
}

/// The last that a thread of a pool does: it leaves, and retires the memory if it is the last one.
pub(super) fn part(shared: &'static PoolShared, generation: u32) {
    if shared.leave(generation) {
        let start = shared.spares.close();
        retire(shared);
        // The memory may be used again before this runs the destructor of a function of the user, which may panic.
        drop(start);
    }
}

/// The memory of pools that have ended.
#[cfg(not(loom))]
static RETIRED: Mutex<std::vec::Vec<&'static PoolShared>> = Mutex::new(std::vec::Vec::new());

/// Memory for a pool: that of one that has ended, or new.
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

/// Keeps the memory of a pool whose threads have all left for a later one.
pub(super) fn retire(shared: &'static PoolShared) {
    #[cfg(not(loom))]
    lock(&RETIRED).push(shared);
    #[cfg(loom)]
    let _ = shared;
}
