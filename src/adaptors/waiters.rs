//! Those who wait for one and the same thing, in a list that whoever waits is a node of.

use core::ptr::{self, NonNull};

use crate::{Job, Transfer};

/// The list. Its owner keeps it under a lock, and with it what is in the waiters.
pub(crate) struct Waiters {
    /// Newest first.
    head: *mut Waiter,
}

/// One who waits, as far as the list knows.
pub(crate) struct Waiter {
    next: *mut Waiter,
    previous: *mut Waiter,
    pub(crate) state: WaiterState,
    /// Delivers what was waited for.
    pub(crate) deliver: Job,
}

/// All of it under the lock. *Over* is what the owner says when it takes everybody out.
///
/// | from | by | to |
/// |---|---|---|
/// | `Starting` | `start`, before it is over | `Waiting`, in the list |
/// | `Starting` | a stop | `Left`: `start` completes stopped |
/// | `Waiting` | a stop, before it is over | `Left`, out of the list: the stop completes |
/// | `Waiting` | the end | over: the job completes, a stop does nothing |
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaiterState {
    Starting,
    Waiting,
    Left,
}

impl Waiter {
    pub(crate) fn new(deliver: unsafe fn(NonNull<Job>) -> Transfer) -> Self {
        Waiter {
            next: ptr::null_mut(),
            previous: ptr::null_mut(),
            state: WaiterState::Starting,
            deliver: Job::new(deliver),
        }
    }
}

impl Waiters {
    pub(crate) const fn new() -> Self {
        Waiters { head: ptr::null_mut() }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// # Safety
    ///
    /// The waiter is alive and in no list; it stays until it is out again.
    pub(crate) unsafe fn link(&mut self, waiter: NonNull<Waiter>) {
        // SAFETY: waiters in the list are alive.
        unsafe {
            (*waiter.as_ptr()).state = WaiterState::Waiting;
            (*waiter.as_ptr()).next = self.head;
            (*waiter.as_ptr()).previous = ptr::null_mut();
            if let Some(next) = self.head.as_mut() {
                next.previous = waiter.as_ptr();
            }
        }
        self.head = waiter.as_ptr();
    }

    /// # Safety
    ///
    /// The waiter is in the list.
    pub(crate) unsafe fn unlink(&mut self, waiter: NonNull<Waiter>) {
        // SAFETY: waiters in the list are alive.
        unsafe {
            let Waiter { next, previous, .. } = *waiter.as_ptr();
            match previous.as_mut() {
                Some(previous) => previous.next = next,
                None => self.head = next,
            }
            if let Some(next) = next.as_mut() {
                next.previous = previous;
            }
            (*waiter.as_ptr()).state = WaiterState::Left;
        }
    }

    /// A stop has come for a waiter. `true` where it was in the list, and is out of it now: the stop completes it.
    ///
    /// # Safety
    ///
    /// The waiter is alive, and of this list; `over` is whether everybody was taken out.
    pub(crate) unsafe fn leave(&mut self, waiter: NonNull<Waiter>, over: bool) -> bool {
        // SAFETY: the waiter is alive, and what it is like belongs to whoever holds the lock.
        match unsafe { (*waiter.as_ptr()).state } {
            WaiterState::Waiting if !over => {
                // SAFETY: it waits, and was not taken out.
                unsafe { self.unlink(waiter) };
                true
            }
            WaiterState::Starting => {
                // SAFETY: as above.
                unsafe { (*waiter.as_ptr()).state = WaiterState::Left };
                false
            }
            _ => false,
        }
    }

    /// Takes everybody out: it is over. [`deliver`](Waiters::deliver) them without the lock.
    pub(crate) const fn take(&mut self) -> Waiters {
        core::mem::replace(self, Waiters::new())
    }

    /// The jobs that deliver, oldest first, as they came.
    ///
    /// # Safety
    ///
    /// The list is one that was [taken](Waiters::take): from then on a waiter is completed by its job alone.
    pub(crate) unsafe fn deliver(self) -> Transfer {
        let mut waiter = self.head;
        let mut resumed = Transfer::none();
        while let Some(taken) = NonNull::new(waiter) {
            // SAFETY: it is completed by its job alone, so it is alive, and the job is in no list.
            unsafe {
                waiter = (*taken.as_ptr()).next;
                let deliver = Transfer::to(NonNull::new_unchecked(&raw mut (*taken.as_ptr()).deliver));
                resumed = deliver.and(resumed);
            }
        }
        resumed
    }
}
