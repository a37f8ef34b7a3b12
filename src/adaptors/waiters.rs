//! The operations that wait for one and the same thing: a shared run, or the end of a scope.

use core::ptr::NonNull;

use crate::memory::{Links, List, links};
use crate::{Job, Transfer};

/// The list. Its owner keeps it in a lock, which also protects the states of the waiters.
pub(crate) struct Waiters {
    /// Oldest first.
    list: List<Waiter>,
}

/// One that waits, as far as the list knows: a field of a pinned operation.
pub(crate) struct Waiter {
    links: Links<Waiter>,
    pub(crate) state: WaiterState,
    /// Delivers what was waited for.
    pub(crate) deliver: Job,
}

links!(Waiter, links);

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
            links: Links::new(),
            state: WaiterState::Starting,
            deliver: Job::new(deliver),
        }
    }
}

impl Waiters {
    pub(crate) const fn new() -> Self {
        Waiters { list: List::new() }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// # Safety
    ///
    /// The waiter is pinned and in no list. It stays valid until it is taken out.
    pub(crate) unsafe fn link(&mut self, waiter: NonNull<Waiter>) {
        // SAFETY: the caller's promise is that of `push_back`. The state is protected by the owner's lock.
        unsafe {
            (*waiter.as_ptr()).state = WaiterState::Waiting;
            self.list.push_back(waiter);
        }
    }

    /// Takes a waiter out that a stop has come for. Returns `true` where it was in the list: the stop completes it.
    ///
    /// # Safety
    ///
    /// The waiter is valid, and of this list; `over` is whether all waiters were taken out.
    pub(crate) unsafe fn leave(&mut self, waiter: NonNull<Waiter>, over: bool) -> bool {
        // SAFETY: the waiter is valid, and its state is protected by the owner's lock, as this list is.
        let state = unsafe { &mut (*waiter.as_ptr()).state };
        match *state {
            WaiterState::Waiting if !over => {
                *state = WaiterState::Left;
                // SAFETY: it waits, and was not taken out, so it is in the list.
                unsafe { self.list.remove(waiter) };
                true
            }
            WaiterState::Starting => {
                *state = WaiterState::Left;
                false
            }
            _ => false,
        }
    }

    /// Takes all waiters out: it is over. They are [delivered](Waiters::deliver) without the lock.
    pub(crate) const fn take(&mut self) -> Waiters {
        Waiters { list: self.list.take() }
    }

    /// Returns the jobs that deliver, oldest first.
    ///
    /// # Safety
    ///
    /// The list is one that was [taken](Waiters::take): from then on a waiter is completed by its job alone.
    pub(crate) unsafe fn deliver(mut self) -> Transfer {
        let mut resumed = Transfer::none();
        while let Some(waiter) = self.list.pop_front() {
            // SAFETY: the waiter is completed by its job alone, which has not run, so it is valid, and the job is in no list.
            resumed.append(unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*waiter.as_ptr()).deliver)) });
        }
        resumed
    }
}
