//! What a scope is on the heap: a count of what runs in it, those who wait for its end, and the first panic.

use alloc::boxed::Box;
use core::convert::Infallible;
use core::fmt;
use core::mem;
use core::ptr::NonNull;

use super::kind::Kind;
use super::panics::Panics;
use crate::adaptors::waiters::{Begin, Taken, Waiters};
use crate::memory::Count;
use crate::sender::stage::container_of;
use crate::sync::SpinLock;
use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::{Job, Panic, Transfer};

/// The state that a scope, its tokens, its joins and its associations share.
pub(super) struct ScopeState<K: Kind> {
    /// How many associations there are, in steps of `ONE`, and beneath it four bits:
    ///
    /// | bit | set by | cleared by | means |
    /// |---|---|---|---|
    /// | `USED` | the first association | nobody | it was used |
    /// | `CLOSED` | `close`, at any time | nobody | no more associations |
    /// | `JOINING` | a join that finds some association, under the lock | the last join to leave; the last association to end | somebody is in the list |
    /// | `JOINED` | the last association to end while `JOINING`, or a join that finds none, under the lock | nobody | no more associations; whoever joins completes |
    ///
    /// Together they are the states of a scope:
    ///
    /// | state | bits | an association | a join | the last association ends |
    /// |---|---|---|---|---|
    /// | unused | none | open | joined | |
    /// | unused and closed | `CLOSED` | refused | joined | |
    /// | open | `USED` | counted | open and joining; joined if the count is 0 | open |
    /// | closed | `USED`, `CLOSED` | refused | closed and joining; joined if the count is 0 | closed |
    /// | open and joining | `USED`, `JOINING` | counted | waits | joined |
    /// | closed and joining | `USED`, `CLOSED`, `JOINING` | refused | waits | joined |
    /// | joined | `JOINED` | refused | completes | |
    ///
    /// So `JOINING` is never seen with a count of 0. Each bit and the count change by compare-and-exchange, and `JOINING`
    /// and `JOINED` under the lock too, so that they agree with the list. An association that ends releases what its work
    /// did; the join, or whoever completes it, acquires all of it.
    word: AtomicUsize,
    /// One for the scope, each token and each join, one for all associations together while there are some, and one for
    /// a stop on its way. When it falls to zero, the memory goes.
    references: Count,
    source: K::Source,
    waiters: SpinLock<Waiters>,
    panics: Panics,
    /// Requests the stop of a scope that was dropped.
    stop: Job,
}

const USED: usize = 1;
const CLOSED: usize = 2;
const JOINING: usize = 4;
const JOINED: usize = 8;
const ONE: usize = 16;

const fn count(word: usize) -> usize {
    word / ONE
}

impl<K: Kind> ScopeState<K> {
    /// Counts one more, unless the scope refuses.
    fn try_associate(&self) -> bool {
        let mut word = self.word.load(Acquire);
        loop {
            if word & (CLOSED | JOINED) != 0 {
                return false;
            }
            // What is associated can be forgotten, so the number is not limited by memory.
            assert!(count(word) < usize::MAX / ONE, "too many associations");
            match self
                .word
                .compare_exchange_weak(word, (word + ONE) | USED, Relaxed, Acquire)
            {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        if count(word) == 0 {
            // That of the associations. It is taken before this one can end, and until then the caller's own reference, which
            // is no association's, keeps the state.
            self.references.add();
        }
        true
    }

    /// Refuses associations from now on.
    pub(super) fn close(&self) {
        self.word.fetch_or(CLOSED, AcqRel);
    }

    /// A join starts, and has the lock.
    pub(super) fn join(&self, _: &Waiters) -> Begin<Infallible> {
        let mut word = self.word.load(Acquire);
        loop {
            if word & JOINED != 0 {
                return Begin::Over;
            }
            let (bit, begin) = if count(word) == 0 {
                (JOINED, Begin::Over)
            } else {
                (JOINING, Begin::Wait(None))
            };
            match self.word.compare_exchange_weak(word, word | bit, AcqRel, Acquire) {
                Ok(_) => return begin,
                Err(now) => word = now,
            }
        }
    }

    /// The last join has left, and has the lock.
    pub(super) fn leave(&self, _: &Waiters) {
        self.word.fetch_and(!JOINING, Relaxed);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.word.load(Acquire) & (CLOSED | JOINED) != 0
    }

    pub(super) fn in_use(&self) -> usize {
        count(self.word.load(Acquire))
    }

    /// Those who join.
    pub(super) fn waiters(&self) -> &SpinLock<Waiters> {
        &self.waiters
    }

    pub(super) fn stop_requested(&self) -> bool {
        K::stop_requested(&self.source)
    }

    /// The first panic of spawned work.
    pub(super) fn panic(&self) -> Option<Panic> {
        self.panics.take()
    }

    /// # Safety
    ///
    /// The job is that of a state, with a reference.
    unsafe fn stop(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a state; the reference that came with it is given back.
        let handle = ScopeRef(unsafe { container_of!(job, Self, stop) });
        K::request_stop_later(&handle.source)
    }

    fn name(word: usize) -> &'static str {
        match (
            word & JOINED != 0,
            word & JOINING != 0,
            word & USED != 0,
            word & CLOSED != 0,
        ) {
            (true, ..) => "joined",
            (_, true, _, false) => "open and joining",
            (_, true, _, true) => "closed and joining",
            (_, _, true, false) => "open",
            (_, _, true, true) => "closed",
            (_, _, false, false) => "unused",
            (_, _, false, true) => "unused and closed",
        }
    }

    pub(super) fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(Relaxed);
        f.debug_struct(name)
            .field("state", &Self::name(word))
            .field("in_use", &count(word))
            .field("stop_requested", &self.stop_requested())
            .finish()
    }
}

/// One reference to a [`ScopeState`].
pub(super) struct ScopeRef<K: Kind>(NonNull<ScopeState<K>>);

// SAFETY: the state is atomics, a source, and what is under a lock: waiters, which complete on any thread, and panics.
unsafe impl<K: Kind> Send for ScopeRef<K> {}
// SAFETY: as above.
unsafe impl<K: Kind> Sync for ScopeRef<K> {}

impl<K: Kind> ScopeRef<K> {
    pub(super) fn new() -> Self {
        let state = Box::new(ScopeState {
            word: AtomicUsize::new(0),
            references: Count::one(),
            source: K::Source::default(),
            waiters: SpinLock::new(Waiters::new()),
            panics: Panics::new(),
            stop: Job::new(ScopeState::<K>::stop),
        });
        ScopeRef(NonNull::from(Box::leak(state)))
    }

    /// A part of the scope, unless it refuses.
    pub(super) fn associate(&self) -> Option<Association<K>> {
        self.try_associate().then(|| Association(self.0))
    }

    /// Requests the stop: `true` for the first request.
    pub(super) fn request_stop(&self) -> bool {
        // A callback may drop the last of the others: the list must outlive the round all the same.
        let handle = self.clone();
        K::request_stop(&handle.source)
    }

    /// Nobody holds the scope any more: what runs in it is asked to stop, and nothing new comes.
    ///
    /// # Safety
    ///
    /// Called once for a state.
    pub(super) unsafe fn abandon(&self) {
        self.close();
        if self.in_use() != 0 && !self.stop_requested() {
            let ScopeRef(state) = *mem::ManuallyDrop::new(self.clone());
            // SAFETY: the job's reference keeps the state until it has run. It is handed out this once.
            let stop = unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*state.as_ptr()).stop)) };
            outermost(stop);
        }
    }
}

impl<K: Kind> core::ops::Deref for ScopeRef<K> {
    type Target = ScopeState<K>;

    #[inline]
    fn deref(&self) -> &ScopeState<K> {
        // SAFETY: a handle is a reference that counts.
        unsafe { self.0.as_ref() }
    }
}

impl<K: Kind> Clone for ScopeRef<K> {
    fn clone(&self) -> Self {
        self.references.add();
        ScopeRef(self.0)
    }
}

impl<K: Kind> Drop for ScopeRef<K> {
    fn drop(&mut self) {
        if self.references.release() {
            // SAFETY: that was the last.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

impl<K: Kind> PartialEq for ScopeRef<K> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K: Kind> fmt::Debug for ScopeRef<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.debug("ScopeRef", f)
    }
}

/// A part of a scope: what it counts.
pub(super) struct Association<K: Kind>(NonNull<ScopeState<K>>);

// SAFETY: as for a handle.
unsafe impl<K: Kind> Send for Association<K> {}
// SAFETY: as for a handle.
unsafe impl<K: Kind> Sync for Association<K> {}

impl<K: Kind> Association<K> {
    fn state(&self) -> &ScopeState<K> {
        // SAFETY: while it is counted, the associations have a reference.
        unsafe { self.0.as_ref() }
    }

    /// One more, unless the scope refuses.
    pub(super) fn again(&self) -> Option<Association<K>> {
        self.state().try_associate().then(|| Association(self.0))
    }

    /// The scope's stop token.
    ///
    /// # Safety
    ///
    /// It is not used once the association has ended.
    pub(super) unsafe fn token(&self) -> K::Token {
        // SAFETY: by the caller's promise; the association keeps the state.
        unsafe { K::token(&self.state().source) }
    }

    /// Keeps a panic for whoever joins.
    pub(super) fn panicked(&self, payload: Panic) {
        self.state().panics.keep(payload);
    }

    /// Ends it, and returns what that resumes.
    pub(super) fn end(self) -> Transfer {
        let this = mem::ManuallyDrop::new(self);
        let state = this.state();
        let mut word = state.word.load(Relaxed);
        loop {
            if count(word) == 1 && word & JOINING != 0 {
                return this.end_joining();
            }
            match state.word.compare_exchange_weak(word, word - ONE, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        if count(word) == 1 {
            // The reference of the associations.
            drop(ScopeRef(this.0));
        }
        Transfer::none()
    }

    /// Ends it where it looks like the last and a join waits: under the lock, so that no join leaves meanwhile.
    #[cold]
    fn end_joining(&self) -> Transfer {
        // Where it is not the last after all, the lock is given back after the association. So this has a reference.
        self.state().references.add();
        let state = ScopeRef(self.0);
        let mut list = state.waiters.lock();
        let mut word = state.word.load(Relaxed);
        let (last, joined) = loop {
            let last = count(word) == 1;
            let joined = last && word & JOINING != 0;
            let next = if joined {
                ((word - ONE) & !JOINING) | JOINED
            } else {
                word - ONE
            };
            match state.word.compare_exchange_weak(word, next, AcqRel, Relaxed) {
                Ok(_) => break (last, joined),
                Err(now) => word = now,
            }
        };
        let waiters = joined.then(|| list.take());
        drop(list);
        if last {
            // The reference of the associations.
            drop(ScopeRef(self.0));
        }
        waiters.map_or_else(Transfer::none, Taken::deliver)
    }
}

impl<K: Kind> Drop for Association<K> {
    fn drop(&mut self) {
        // This one is not dropped again: `end` forgets it.
        Association(self.0).end().run();
    }
}

/// Runs what a dropped scope resumes. A scope that is dropped meanwhile, by that, waits until it is done: so scopes that
/// lie in the work of scopes are taken down in a loop.
#[cfg(feature = "std")]
fn outermost(stop: Transfer) {
    use core::cell::Cell;
    use core::ptr;

    crate::sync::per_thread! {
        /// What waits, on the stack of whoever runs it.
        static WAITING: Cell<*mut Transfer> = Cell::new(ptr::null_mut());
    }

    WAITING.with(|waiting| {
        // SAFETY: it is on the stack beneath us, and nobody uses it while a stop runs but through this.
        if let Some(waiting) = unsafe { waiting.get().as_mut() } {
            waiting.append(stop);
            return;
        }
        let mut left = stop;
        let list = &raw mut left;
        waiting.set(list);
        // SAFETY: it is a local, which whatever runs reaches through the same pointer.
        while !unsafe { &*list }.is_none() {
            // SAFETY: as above.
            mem::take(unsafe { &mut *list }).run();
        }
        waiting.set(ptr::null_mut());
    });
}

/// Runs what a dropped scope resumes. Without `std` nothing can be kept per thread, so a nest is taken down by recursion.
#[cfg(not(feature = "std"))]
fn outermost(stop: Transfer) {
    stop.run();
}
