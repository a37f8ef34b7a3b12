//! The memory of a hosted queue, and the protocol between pushes, drivers and the end. `mod.rs` has the states.

use core::mem;
use core::ptr::NonNull;
use core::task::Waker;
use std::boxed::Box;
use std::vec::Vec;

use crate::scheduler::thread_pool::{Entry, Levels, Lists, OwnedEntry, forward, interrupt_other};
use crate::sync::{Mutex, lock};
use crate::{Panic, Priority, Transfer};

/// Every so many jobs, the oldest of one level is taken, whatever is queued above it. The levels take turns.
const TURN: usize = 64;

/// The memory of a queue. It is never freed.
pub(super) struct HostedShared {
    state: Mutex<HostedState>,
}

/// The state of a queue. All of it is lock-protected.
struct HostedState {
    lists: Lists,
    /// The number of entries in the lists.
    queued: usize,
    /// The number of jobs taken, for the turns of the levels.
    taken: usize,
    /// The slots of the drivers. A driver that has left leaves a vacant one.
    slots: Vec<Slot>,
    /// The number of drivers that have not left.
    drivers: usize,
    /// The number of drivers among them that wait inside a job.
    blocked: usize,
    parked: usize,
    notified: usize,
    /// The number of drivers asked for. More of them exist only while others are blocked.
    wanted: usize,
    /// Whether a woken driver waits for the thread that woke it: see `Host::keeps_woken_task`.
    keeps_woken: bool,
    /// Whether a thread forwards the entries of a closed queue.
    forwarding: bool,
}

/// The state of a driver.
enum Slot {
    Vacant,
    Awake,
    Parked(Waker),
    Notified,
}

/// A waker that was taken out of a slot, to be called without the lock.
struct Wakeup {
    slot: usize,
    waker: Waker,
}

/// What follows a driver's last job in a poll.
pub(super) enum PollEnd {
    /// The driver has parked, or has woken itself.
    Rest,
    /// The driver has left.
    Over,
    /// The host's waker has panicked.
    Panicked(Panic),
}

impl HostedShared {
    fn new() -> Self {
        HostedShared {
            state: Mutex::new(HostedState {
                lists: Lists::new(),
                queued: 0,
                taken: 0,
                slots: Vec::new(),
                drivers: 0,
                blocked: 0,
                parked: 0,
                notified: 0,
                wanted: 0,
                keeps_woken: false,
                forwarding: false,
            }),
        }
    }

    /// Begins a new generation with this number of drivers, in the first slots. Returns its number.
    pub(super) fn open(&self, drivers: usize, keeps_woken: bool) -> u32 {
        let mut state = lock(&self.state);
        // The memory has no drivers, so every slot is vacant, and every count is zero.
        state.slots.clear();
        state.slots.resize_with(drivers, || Slot::Awake);
        state.drivers = drivers;
        state.wanted = drivers;
        state.taken = 0;
        state.keeps_woken = keeps_woken;
        state.lists.open()
    }

    pub(super) fn has_ended(&self, generation: u32) -> bool {
        !lock(&self.state).lists.accepts(generation)
    }

    /// Queues an entry, and wakes a parked driver if fewer are notified than entries are queued. `own` says that the calling
    /// thread is in a job of a driver of this queue. Returns the entry if the queue has ended.
    ///
    /// A driver takes a single entry that its own job queued after that job. If the host keeps the task that a thread woke last
    /// for that thread, waking another driver for it is useless. For a second entry two are woken, so that one is stolen.
    pub(super) fn push(&'static self, entry: OwnedEntry, generation: u32, own: bool) -> Result<(), OwnedEntry> {
        let (wakeup, second) = {
            let mut state = lock(&self.state);
            state.lists.push(entry, generation)?;
            state.queued += 1;
            if own && state.keeps_woken {
                match state.queued {
                    1 => (None, None),
                    2 => (state.wakeup(), state.wakeup()),
                    _ => (state.wakeup(), None),
                }
            } else {
                (state.wakeup(), None)
            }
        };
        // The entry may have run by now. The memory of the queue is static.
        self.wake(wakeup);
        self.wake(second);
        Ok(())
    }

    /// Returns the next entry for the driver in a slot, or ends its poll. `first` says that the poll has just begun.
    ///
    /// If the driver parks, its waker is moved into the slot. The check for jobs and the store of the waker are one
    /// critical section, so a push before it is seen, and a push after it sees the waker.
    pub(super) fn next(
        &'static self,
        slot: usize,
        first: bool,
        waker: &mut Option<Waker>,
    ) -> Result<OwnedEntry, PollEnd> {
        let mut state = lock(&self.state);
        let stale = if first { state.awake(slot) } else { None };
        let next = state.take().ok_or_else(|| state.rest(slot, waker));
        // A driver that was woken looks whether more of them are needed, so that a burst of pushes wakes a chain of them.
        let wakeup = if first { state.wakeup() } else { None };
        let retires = matches!(next, Err(PollEnd::Over)) && state.is_over();
        drop(state);
        discard(stale);
        self.wake(wakeup);
        if retires {
            retire(self);
        }
        next
    }

    /// Ends the poll of a driver that has run enough jobs: it wakes itself, or parks if no job is queued.
    pub(super) fn yields(&'static self, slot: usize, waker: &mut Option<Waker>) -> PollEnd {
        let mut state = lock(&self.state);
        if state.queued == 0 {
            // Under the same lock: an entry that comes in between would be taken by a driver that runs no further one.
            let rests = state.rest(slot, waker);
            let retires = matches!(rests, PollEnd::Over) && state.is_over();
            drop(state);
            if retires {
                retire(self);
            }
            return rests;
        }
        let Some(waker) = waker.take() else {
            return PollEnd::Rest;
        };
        state.slots[slot] = Slot::Notified;
        state.notified += 1;
        let wakeup = state.wakeup();
        drop(state);
        self.wake(wakeup);
        match self.call(Wakeup { slot, waker }) {
            Ok(()) => PollEnd::Rest,
            Err(payload) => PollEnd::Panicked(payload),
        }
    }

    /// Marks a driver as awake that cannot take a job, and wakes another one in its place.
    #[cold]
    pub(super) fn pass_on(&'static self, slot: usize) {
        let (stale, wakeup) = {
            let mut state = lock(&self.state);
            (state.awake(slot), state.wakeup())
        };
        discard(stale);
        self.wake(wakeup);
    }

    /// Counts the driver of the calling thread as blocked. Returns the slot of a driver to be started in its place, if
    /// the host `replaces` it.
    pub(super) fn begin_block(&'static self, replaces: bool) -> Option<usize> {
        let (replacement, wakeup) = {
            let mut state = lock(&self.state);
            state.blocked += 1;
            let active = state.drivers - state.blocked;
            let replacement = (replaces && active < state.wanted && !state.is_closed()).then(|| state.add_driver());
            (replacement, state.wakeup())
        };
        self.wake(wakeup);
        replacement
    }

    /// Counts the driver of the calling thread as active again.
    pub(super) fn end_block(&self) {
        lock(&self.state).blocked -= 1;
    }

    /// Removes a driver that its host has dropped. The first one ends the queue.
    pub(super) fn leave(&'static self, slot: usize) {
        let (stale, wakeup, closes, retires) = {
            let mut state = lock(&self.state);
            let stale = state.awake(slot);
            state.remove_driver(slot);
            let closes = state.close();
            // The driver may have been woken to leave, so it wakes the next one.
            (stale, state.wakeup(), closes, state.is_over())
        };
        discard(stale);
        self.wake(wakeup);
        if closes {
            self.forward_all();
        } else if retires {
            retire(self);
        }
    }

    /// Ends the queue of a generation, if it is open.
    pub(super) fn end(&'static self, generation: u32) {
        let wakeup = {
            let mut state = lock(&self.state);
            if !state.lists.accepts(generation) {
                return;
            }
            state.close();
            state.wakeup()
        };
        self.wake(wakeup);
        self.forward_all();
    }

    /// Forwards the entries of a queue that this thread has closed.
    #[cold]
    fn forward_all(&'static self) {
        let mut left = Transfer::none();
        let retires = loop {
            let mut state = lock(&self.state);
            let Some(entry) = state.lists.pop_to_forward() else {
                state.forwarding = false;
                break state.is_over();
            };
            state.queued -= 1;
            drop(state);
            left.append(forward(entry));
        };
        if retires {
            retire(self);
        }
        // Empty, unless the system refuses every thread of a global pool.
        left.run();
    }

    /// Moves a raised entry to the list of its level. Returns `false` if the entry is not in this queue.
    ///
    /// # Safety
    ///
    /// The entry is valid, and was pushed to no queue but this one and the global pool.
    pub(super) unsafe fn raise(&self, entry: NonNull<Entry>) -> bool {
        let mut state = lock(&self.state);
        // SAFETY: the entry is valid, by the contract. It is marked under this lock before it leaves for the global pool.
        // So without the mark, and with an injector as its place, it is in these lists.
        unsafe { !entry.as_ref().is_forwarded() && state.lists.raise(entry) }
    }

    /// Calls a waker, if there is one: after [`without_interrupts`](crate::scheduler::thread_pool::without_interrupts), if that is beneath
    /// the caller.
    fn wake(&'static self, wakeup: Option<Wakeup>) {
        if let Some(wakeup) = wakeup {
            interrupt_other(move || self.wake_now(wakeup));
        }
    }

    /// Calls a waker. If it panics, another driver is tried.
    fn wake_now(&self, wakeup: Wakeup) {
        let mut wakeup = Some(wakeup);
        while let Some(next) = wakeup {
            wakeup = match self.call(next) {
                Ok(()) => None,
                Err(payload) => {
                    payload.discard();
                    lock(&self.state).wakeup()
                }
            };
        }
    }

    /// Calls a waker. If it panics, its driver does not count as notified any more.
    fn call(&self, Wakeup { slot, waker }: Wakeup) -> Result<(), Panic> {
        let called = Panic::catch(|| waker.wake());
        if called.is_err() {
            lock(&self.state).take_back(slot);
        }
        called
    }
}

impl HostedState {
    /// Takes the waker of a parked driver, if more jobs are queued than drivers are notified. The drivers of a closed queue wake one
    /// another, and leave.
    fn wakeup(&mut self) -> Option<Wakeup> {
        if self.parked == 0 || (self.queued <= self.notified && !self.is_closed()) {
            return None;
        }
        let slot = self.slots.iter().position(|slot| matches!(slot, Slot::Parked(_)))?;
        let Slot::Parked(waker) = mem::replace(&mut self.slots[slot], Slot::Notified) else {
            return None;
        };
        self.parked -= 1;
        self.notified += 1;
        Some(Wakeup { slot, waker })
    }

    /// Marks a driver as awake. Returns a waker that was not called, to be dropped without the lock.
    fn awake(&mut self, slot: usize) -> Option<Waker> {
        match mem::replace(&mut self.slots[slot], Slot::Awake) {
            Slot::Awake | Slot::Vacant => None,
            Slot::Parked(waker) => {
                self.parked -= 1;
                Some(waker)
            }
            Slot::Notified => {
                self.notified -= 1;
                None
            }
        }
    }

    /// Marks a driver whose waker has panicked as awake.
    ///
    /// The report may be late: the driver was polled and notified again, or its slot belongs to another one. Then the count is
    /// one too low until that driver is polled, and a push may wake a driver more than necessary.
    fn take_back(&mut self, slot: usize) {
        if let Some(slot @ Slot::Notified) = self.slots.get_mut(slot) {
            *slot = Slot::Awake;
            self.notified -= 1;
        }
    }

    /// Takes the next entry to run.
    fn take(&mut self) -> Option<OwnedEntry> {
        if self.queued == 0 {
            return None;
        }
        self.taken = self.taken.wrapping_add(1);
        let in_turn = if self.taken.is_multiple_of(TURN) {
            let level = Priority::ALL[self.taken / TURN % Priority::ALL.len()];
            self.lists.pop(Levels::of(level))
        } else {
            None
        };
        let entry = in_turn.or_else(|| self.lists.pop(Levels::ALL))?;
        self.queued -= 1;
        Some(entry)
    }

    /// Parks a driver, or removes it if it is not needed. The queue is empty.
    fn rest(&mut self, slot: usize, waker: &mut Option<Waker>) -> PollEnd {
        let is_surplus = self.drivers - self.blocked > self.wanted;
        if is_surplus || self.is_closed() {
            self.remove_driver(slot);
            return PollEnd::Over;
        }
        if let Some(waker) = waker.take() {
            self.slots[slot] = Slot::Parked(waker);
            self.parked += 1;
        }
        PollEnd::Rest
    }

    /// Adds a driver, and returns its slot.
    fn add_driver(&mut self) -> usize {
        self.drivers += 1;
        match self.slots.iter().position(|slot| matches!(slot, Slot::Vacant)) {
            Some(slot) => {
                self.slots[slot] = Slot::Awake;
                slot
            }
            None => {
                self.slots.push(Slot::Awake);
                self.slots.len() - 1
            }
        }
    }

    /// Removes a driver, which is awake.
    fn remove_driver(&mut self, slot: usize) {
        self.slots[slot] = Slot::Vacant;
        self.drivers -= 1;
    }

    fn is_closed(&self) -> bool {
        self.lists.is_closed()
    }

    /// Closes the queue. Returns whether it was open, so that the caller must forward the entries.
    fn close(&mut self) -> bool {
        if self.is_closed() {
            return false;
        }
        self.lists.close();
        self.forwarding = true;
        true
    }

    /// Returns whether the memory is not used any more: the last driver has left, and the lists are empty. True for one
    /// caller, the one that has made the last of these changes.
    fn is_over(&self) -> bool {
        self.is_closed() && self.drivers == 0 && !self.forwarding
    }
}

/// Drops a waker that was not called. The panic of its destructor must not reach a driver that owns an entry.
fn discard(waker: Option<Waker>) {
    if waker.is_some()
        && let Err(payload) = Panic::catch(|| drop(waker))
    {
        payload.discard();
    }
}

/// The memory of queues that have ended.
#[cfg(not(loom))]
static RETIRED: Mutex<Vec<&'static HostedShared>> = Mutex::new(Vec::new());

/// Returns memory for a queue: reused, or new.
pub(super) fn obtain() -> &'static HostedShared {
    #[cfg(not(loom))]
    if let Some(shared) = lock(&RETIRED).pop() {
        return shared;
    }
    Box::leak(Box::new(HostedShared::new()))
}

/// Keeps the memory of a queue that has ended for a later one.
fn retire(shared: &'static HostedShared) {
    #[cfg(not(loom))]
    lock(&RETIRED).push(shared);
    #[cfg(loom)]
    let _ = shared;
}
