//! What the workers of a pool, and its handles, share.

use core::ptr::{self, NonNull};
use std::boxed::Box;

use super::entry::{Entry, Item, Place};
use super::idle::Idle;
use super::injector::{Closed, Injector, Levels};
use super::ring::{Line, Ring};
use super::worker::Worker;
use crate::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use crate::sync::{Mutex, lock, thread};

/// The shared part of a pool.
///
/// It is never freed, only used again by a later pool of the same size, one *generation* after the other. So a handle is a
/// plain pointer and a generation, free to copy, and nobody who pushes has to fear that the memory is gone. A
/// push of an older generation is refused under the lock of the injector.
pub(super) struct Shared {
    pub(super) seats: Box<[Seat]>,
    pub(super) injector: Injector,
    pub(super) idle: Line<Idle>,
    /// The workers that have not left. The last one to leave gives the memory back.
    present: AtomicUsize,
    /// The last generation that all workers have left. Written by the last one, before it gives the memory back, with
    /// release; so what says that a pool has ended stays true when the memory is used again.
    ended: AtomicU32,
    /// Who waits for the last worker to leave, while it helps a pool of its own. Written before the pool is closed, that
    /// is, while the memory is still this pool's.
    awaited_by: Mutex<Option<thread::Thread>>,
}

/// What others see of a worker.
#[repr(align(128))]
pub(super) struct Seat {
    pub(super) ring: Ring,
    /// The newest entry that the worker pushed, or null. It goes before the ring: what was just made ready is in
    /// the caches. The worker swaps entries in and out. Others may take it too, by swinging it to null: who raises it,
    /// and a searcher that sees the worker busy with something long.
    pub(super) slot: AtomicPtr<crate::Job>,
    /// Grows each time the worker picks a job. Only compared: a searcher that sees it change leaves the slot alone.
    pub(super) picks: AtomicU32,
    /// The worker has been taken off the list of sleepers. Set under the lock of that list, which orders it.
    pub(super) woken: AtomicBool,
    /// The worker sleeps with nothing beneath it. Read and written under the same lock.
    pub(super) at_rest: AtomicBool,
    thread: Mutex<Option<thread::Thread>>,
}

impl Seat {
    fn new() -> Self {
        Seat {
            ring: Ring::new(),
            slot: AtomicPtr::new(ptr::null_mut()),
            picks: AtomicU32::new(0),
            woken: AtomicBool::new(false),
            at_rest: AtomicBool::new(false),
            thread: Mutex::new(None),
        }
    }

    /// The calling thread takes the seat.
    pub(super) fn occupy(&self) {
        *lock(&self.thread) = Some(thread::current());
    }

    /// Ends the parking of the worker, now or the next.
    pub(super) fn unpark(&self) {
        if let Some(thread) = lock(&self.thread).as_ref() {
            thread.unpark();
        }
    }

    /// Takes `item` out of the slot, unless it is not there any more.
    pub(super) fn take_from_slot(&self, item: Item) -> bool {
        self.slot
            .compare_exchange(item.into_raw(), ptr::null_mut(), AcqRel, Relaxed)
            .is_ok()
    }
}

impl Shared {
    pub(super) fn new(workers: usize) -> Self {
        Shared {
            seats: (0..workers).map(|_| Seat::new()).collect(),
            injector: Injector::new(),
            idle: Line(Idle::new(workers)),
            present: AtomicUsize::new(0),
            ended: AtomicU32::new(0),
            awaited_by: Mutex::new(None),
        }
    }

    /// Begins a new life, and returns its number.
    pub(super) fn open(&self) -> u32 {
        self.idle.0.open();
        self.present.store(self.seats.len(), SeqCst);
        *lock(&self.awaited_by) = None;
        self.injector.open()
    }

    /// Queues an entry: with the calling worker, if it is one of this pool's, or in the injector.
    ///
    /// # Safety
    ///
    /// The entry is in no queue, and stays where it is until it runs. It may have run when this returns.
    #[inline]
    pub(super) unsafe fn push(&'static self, entry: NonNull<Entry>, generation: u32) -> Result<(), Closed> {
        // SAFETY: the caller's promise: the entry is ours until it is queued.
        if unsafe { entry.as_ref() }.is_default()
            && let Some(worker) = Worker::current()
            && worker.works_for(self, generation)
        {
            // SAFETY: the caller's promise.
            unsafe { worker.push(entry) };
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
    /// As for [`Shared::push`].
    pub(super) unsafe fn push_last(&'static self, entry: NonNull<Entry>, generation: u32) -> Result<(), Closed> {
        // SAFETY: the caller's promise: the entry is ours until it is queued.
        if unsafe { entry.as_ref() }.is_default()
            && self.injector.occupied().and(Levels::DEFAULT).is_empty()
            && let Some(worker) = Worker::current()
            && worker.works_for(self, generation)
            && !worker.takes_newest()
        {
            // SAFETY: the caller's promise.
            unsafe { worker.push_last(entry) };
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.inject(entry, generation) }
    }

    /// Queues an entry in the injector.
    ///
    /// # Safety
    ///
    /// As for [`Shared::push`].
    pub(super) unsafe fn inject(&self, entry: NonNull<Entry>, generation: u32) -> Result<(), Closed> {
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
    pub(super) unsafe fn move_up(&self, entry: NonNull<Entry>, place: Place, generation: u32) -> Result<bool, Closed> {
        // SAFETY: the caller's promise.
        let item = unsafe { Item::queued(entry) };
        // The place is old news, perhaps from before it came here, so there may be no such worker.
        let taken = match place {
            Place::Nowhere | Place::Coming => false,
            // SAFETY: the caller's promise.
            Place::Injector(_) => return Ok(unsafe { self.injector.raise(entry) }),
            Place::Slot(worker) => self.seats.get(worker).is_some_and(|seat| seat.take_from_slot(item)),
            Place::Ring(worker, number) => (self.seats.get(worker)).is_some_and(|seat| seat.ring.remove(number, item)),
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
        !self.injector.occupied().and(Levels::ALL).is_empty() || self.seats.iter().any(|seat| seat.ring.has_items())
    }

    /// Whether a worker has something in its slot.
    pub(super) fn has_full_slots(&self) -> bool {
        self.seats.iter().any(|seat| !seat.slot.load(SeqCst).is_null())
    }

    /// One worker leaves. The last one wakes who waits for that; `true` for that one.
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

    /// Closes the pool and waits for its end, which a worker of another one does by doing that one's work.
    pub(super) fn end_while_helping(&self, worker: &Worker, generation: u32) {
        // Before the end may begin, after which the memory may be another pool's.
        *lock(&self.awaited_by) = Some(thread::current());
        self.idle.0.close(&self.seats);
        worker.help_until(|| self.has_ended(generation));
    }

    /// Whether all workers of that generation have left.
    pub(super) fn has_ended(&self, generation: u32) -> bool {
        // The numbers wrap.
        self.ended.load(Acquire).wrapping_sub(generation).cast_signed() >= 0
    }
}

/// The memory of pools that have ended.
#[cfg(not(loom))]
static RETIRED: Mutex<std::vec::Vec<&'static Shared>> = Mutex::new(std::vec::Vec::new());

/// Memory for a pool: that of one that has ended, or new.
pub(super) fn obtain(workers: usize) -> &'static Shared {
    #[cfg(not(loom))]
    {
        let mut retired = lock(&RETIRED);
        if let Some(at) = retired.iter().position(|shared| shared.seats.len() == workers) {
            return retired.swap_remove(at);
        }
    }
    Box::leak(Box::new(Shared::new(workers)))
}

/// Gives the memory of a pool back, whose workers have all left.
pub(super) fn retire(shared: &'static Shared) {
    #[cfg(not(loom))]
    lock(&RETIRED).push(shared);
    #[cfg(loom)]
    let _ = shared;
}
