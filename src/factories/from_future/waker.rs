//! The wakers of a future that runs as a sender.
//!
//! A future that completes without keeping its waker needs no memory: its [`FirstWaker`] is a field of the operation. A clone
//! of that waker, or the first suspension, allocates a [`WakerBlock`], which every later waker shares by a reference count.
//! The block outlives the operation; its state says whether the operation may still be accessed.

use alloc::boxed::Box;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::task::{RawWaker, RawWakerVTable, Waker};

use crate::Transfer;
use crate::memory::Count;
#[cfg(feature = "std")]
use crate::scheduler::{elsewhere, thread_pool::Entry};
use crate::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8,
    Ordering::{AcqRel, Acquire, Release},
};
#[cfg(feature = "std")]
use crate::{Job, sender::stage::container_of};

/// The waker of the first polls: a field of the operation, of which a clone is a [`WakerHandle`].
pub(super) struct FirstWaker {
    /// The operation's own handle. Null until a clone or the first suspension makes it.
    ///
    /// Writers: the thread that polls, and threads that clone, by a compare-exchange from null, with release. Loads acquire,
    /// and pair with that.
    handle: AtomicPtr<WakerBlock>,
    /// Whether this waker woke the future by reference during the poll.
    ///
    /// Writers: `wake`, by a swap that acquires and releases; `suspend` takes it, with acquire, after the poll.
    woken: AtomicBool,
    /// The operation, set by `start`.
    operation: *mut (),
    table: &'static Table,
}

/// The functions of an operation whose type is erased.
///
/// Each is called with the address of an operation that the caller has made `SCHEDULED`.
pub(super) struct Table {
    /// Returns whether the operation's scheduler is the inline one.
    #[cfg(feature = "std")]
    pub(super) is_inline: unsafe fn(NonNull<()>) -> bool,
    /// Starts the trip to the scheduler.
    pub(super) schedule: unsafe fn(NonNull<()>) -> Transfer,
    /// Polls, at the end of the trip.
    #[cfg(feature = "std")]
    pub(super) arrive: unsafe fn(NonNull<()>) -> Transfer,
}

/// The cause of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// A waker, whose caller may hold locks.
    Waker,
    /// A stop, whose driver runs the transfer after its callbacks have returned.
    Stop,
}

impl FirstWaker {
    pub(super) fn new(table: &'static Table) -> Self {
        FirstWaker {
            handle: AtomicPtr::new(ptr::null_mut()),
            woken: AtomicBool::new(false),
            operation: ptr::null_mut(),
            table,
        }
    }

    /// Sets the address of the operation, before the first poll.
    pub(super) fn set_operation(&mut self, operation: NonNull<()>) {
        self.operation = operation.as_ptr();
    }

    /// Returns the operation's own handle, if it was made.
    fn made(&self) -> Option<ManuallyDrop<WakerHandle>> {
        NonNull::new(self.handle.load(Acquire)).map(|block| ManuallyDrop::new(WakerHandle(block)))
    }

    /// Returns the operation's own handle, and makes it if necessary.
    fn handle(&self) -> ManuallyDrop<WakerHandle> {
        if let Some(handle) = self.made() {
            return handle;
        }
        let made = WakerHandle(NonNull::from(Box::leak(Box::new(WakerBlock {
            references: Count::one(),
            state: AtomicU8::new(POLLING),
            // Only an operation that was started has a waker, and `start` has set the address.
            operation: NonNull::new(self.operation).unwrap_or(NonNull::dangling()),
            table: self.table,
            #[cfg(feature = "std")]
            entry: Entry::new(WakerHandle::arrive),
        }))));
        match self
            .handle
            .compare_exchange(ptr::null_mut(), made.0.as_ptr(), AcqRel, Acquire)
        {
            Ok(_) => ManuallyDrop::new(made),
            // Another thread was first, and no other thread has seen this one.
            Err(_) => {
                drop(made);
                self.handle()
            }
        }
    }

    /// Makes the operation's own handle.
    pub(super) fn make_handle(&self) {
        self.handle();
    }

    /// Returns a handle that may outlive the operation.
    pub(super) fn to_handle(&self) -> WakerHandle {
        WakerHandle::clone(&self.handle())
    }

    /// Begins a poll at the end of a trip.
    ///
    /// The swap acquires what the wake-ups during the trip have published: those leave it to this poll to see it.
    pub(super) fn begin_poll(&self) {
        self.handle().state.swap(POLLING, AcqRel);
    }

    /// Ends a poll that is pending. Returns `true` when the operation is idle: a wake-up may then run it on another thread.
    ///
    /// Returns `false` when it was woken during the poll. The operation is `SCHEDULED` then, and the caller starts the trip.
    pub(super) fn suspend(&self) -> bool {
        let handle = self.handle();
        let woken = self.woken.swap(false, Acquire);
        if !woken && handle.state.compare_exchange(POLLING, IDLE, AcqRel, Acquire).is_ok() {
            return true;
        }
        // Acquires what every wake-up so far has published.
        handle.state.swap(SCHEDULED, AcqRel);
        false
    }

    /// Ends the last poll. From here on a wake-up does nothing.
    pub(super) fn finish(&self) {
        if let Some(handle) = self.made() {
            handle.state.store(DONE, Release);
        }
    }

    /// Wakes the future by reference. A swap, so that it releases what an earlier wake-up published as well.
    fn wake(&self) {
        self.woken.swap(true, AcqRel);
    }

    /// Returns a waker that borrows, for one poll. Its clones own a handle.
    pub(super) fn waker(&self) -> ManuallyDrop<Waker> {
        let raw = match self.made() {
            None => RawWaker::new(ptr::from_ref(self).cast(), &FIRST),
            // Equal to the clones that exist, so that `will_wake` recognises it.
            Some(handle) => handle.raw(),
        };
        // SAFETY: the tables keep the contract of a raw waker. This waker and its handle are alive throughout the poll that the
        // result is made for, and only a reference to the result leaves this module.
        ManuallyDrop::new(unsafe { Waker::from_raw(raw) })
    }
}

impl Drop for FirstWaker {
    fn drop(&mut self) {
        self.made().map(ManuallyDrop::into_inner);
    }
}

static FIRST: RawWakerVTable = RawWakerVTable::new(
    // SAFETY: the data is a `FirstWaker`, alive while its waker is used, by the contract of `waker`.
    |first| unsafe { &*first.cast::<FirstWaker>() }.to_handle().into_raw(),
    // Never owned, so never woken by value or dropped; waking by value is waking by reference.
    // SAFETY: the data is a `FirstWaker`, alive while its waker is used.
    |first| unsafe { (*first.cast::<FirstWaker>()).wake() },
    // SAFETY: the data is a `FirstWaker`, alive while its waker is used.
    |first| unsafe { (*first.cast::<FirstWaker>()).wake() },
    |_| {},
);

static HANDLE: RawWakerVTable = RawWakerVTable::new(
    // SAFETY: the data is that of a handle, by `raw`.
    |handle| WakerHandle::clone(&*unsafe { WakerHandle::of(handle) }).into_raw(),
    // A waker is a driver: it runs the transfer that starting the trip returns.
    |handle| {
        // SAFETY: the data is that of a handle, by `raw`, and its reference is consumed.
        let handle = ManuallyDrop::into_inner(unsafe { WakerHandle::of(handle) });
        handle.wake(By::Waker).run();
    },
    // SAFETY: the data is that of a handle, by `raw`.
    |handle| unsafe { WakerHandle::of(handle) }.wake(By::Waker).run(),
    // SAFETY: the data is that of a handle, by `raw`, and its reference is consumed.
    |handle| drop(ManuallyDrop::into_inner(unsafe { WakerHandle::of(handle) })),
);

/// The reference-counted memory that the wakers of one operation share. It outlives the operation.
pub(super) struct WakerBlock {
    references: Count,
    /// | state | means | may access the operation |
    /// |---|---|---|
    /// | `POLLING` | it is being polled | the polling thread |
    /// | `NOTIFIED` | it is being polled, and was woken meanwhile | the polling thread, which schedules it again |
    /// | `IDLE` | it waits for a wake-up | no thread |
    /// | `SCHEDULED` | it is on its way to the scheduler | the thread that made it so, then the scheduler |
    /// | `DONE` | it has completed, or is about to | no thread, through this block |
    ///
    /// `POLLING` to `IDLE` releases what the poll did. `IDLE` to `SCHEDULED` acquires that, and is the one right to start the
    /// trip. Wake-ups in `SCHEDULED` and `NOTIFIED` start nothing, but write the state back with release. The caller of a
    /// wake-up has published something before, and the swap with which the next poll begins must acquire it. A plain load
    /// would let both sides miss each other. Wake-ups in `DONE` do nothing.
    state: AtomicU8,
    operation: NonNull<()>,
    table: &'static Table,
    /// The place in the queue of the global pool, for an operation on the inline scheduler. Used by the thread that made the
    /// state `SCHEDULED`. The queue owns one reference to the block.
    #[cfg(feature = "std")]
    entry: Entry,
}

const IDLE: u8 = 0;
const SCHEDULED: u8 = 1;
const POLLING: u8 = 2;
const NOTIFIED: u8 = 3;
const DONE: u8 = 4;

/// One counted reference to a [`WakerBlock`].
pub(super) struct WakerHandle(NonNull<WakerBlock>);

impl Deref for WakerHandle {
    type Target = WakerBlock;

    fn deref(&self) -> &WakerBlock {
        // SAFETY: the handle owns a reference, so the block is alive.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for WakerHandle {
    fn clone(&self) -> Self {
        self.references.add();
        WakerHandle(self.0)
    }
}

impl Drop for WakerHandle {
    fn drop(&mut self) {
        if self.references.release() {
            // SAFETY: this was the last reference, and the block was leaked from a box by `FirstWaker::handle`.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

impl WakerHandle {
    /// Returns the handle of a raw waker, without a reference of its own.
    ///
    /// # Safety
    ///
    /// The address is that of a handle's raw waker, whose reference is alive.
    unsafe fn of(data: *const ()) -> ManuallyDrop<WakerHandle> {
        // SAFETY: the address comes from `raw`, by the contract, and is not null.
        ManuallyDrop::new(WakerHandle(unsafe { NonNull::new_unchecked(data.cast_mut().cast()) }))
    }

    /// Returns the raw waker of this handle.
    fn raw(&self) -> RawWaker {
        RawWaker::new(self.0.as_ptr().cast(), &HANDLE)
    }

    fn into_raw(self) -> RawWaker {
        ManuallyDrop::new(self).raw()
    }

    /// Wakes the operation because of a stop.
    pub(super) fn stop(&self) -> Transfer {
        self.wake(By::Stop)
    }

    /// Schedules an idle operation. Notes the wake-up of one that is being polled.
    fn wake(&self, by: By) -> Transfer {
        let mut state = self.state.load(Acquire);
        loop {
            let next = match state {
                IDLE => SCHEDULED,
                POLLING => NOTIFIED,
                DONE => return Transfer::none(),
                coming => coming,
            };
            match self.state.compare_exchange_weak(state, next, AcqRel, Acquire) {
                // SAFETY: this call has made the state `SCHEDULED`.
                Ok(IDLE) => return unsafe { self.schedule(by) },
                Ok(_) => return Transfer::none(),
                Err(now) => state = now,
            }
        }
    }

    /// Starts the trip to the scheduler, or to the global pool where the scheduler is inline: no waker polls.
    ///
    /// # Safety
    ///
    /// The caller made the state `SCHEDULED`.
    unsafe fn schedule(&self, by: By) -> Transfer {
        #[cfg(feature = "std")]
        // SAFETY: the caller made the state `SCHEDULED`, so it has the operation and the entry to itself. The entry is in no
        // queue: it is pushed once each time the state becomes `SCHEDULED`. The clone keeps the block until the job has run.
        unsafe {
            if by == By::Waker && (self.table.is_inline)(self.operation) {
                let block = ManuallyDrop::new(self.clone()).0;
                return elsewhere(NonNull::new_unchecked(&raw mut (*block.as_ptr()).entry));
            }
        }
        #[cfg(not(feature = "std"))]
        let _ = by;
        // SAFETY: the caller made the state `SCHEDULED`.
        unsafe { (self.table.schedule)(self.operation) }
    }

    /// Polls on a thread of the global pool.
    ///
    /// # Safety
    ///
    /// The job is that of the entry of a block, pushed by `schedule` with a reference. The operation is `SCHEDULED`.
    #[cfg(feature = "std")]
    unsafe fn arrive(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first field of an entry, which is a field of a block. The reference comes with the job.
        let this = WakerHandle(unsafe { container_of!(job.cast::<Entry>(), WakerBlock, entry) });
        // SAFETY: the operation is `SCHEDULED`. The inline scheduler lets it continue on any thread.
        unsafe { (this.table.arrive)(this.operation) }
    }
}
