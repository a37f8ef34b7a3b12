//! The state of a scope on the heap: a count of its associations, the waiting joins, and the first panic.
//!
//! [`ScopeState`] is shared by the scope, its tokens, its joins and its associations. [`ScopeRef`] is a counted
//! reference to it. [`Association`] is one piece of work: `spawn`, `spawn_future` and `associate` create it, and its
//! end is the end of that work.
//!
//! # Who may access what
//!
//! | field | accessed by |
//! |---|---|
//! | `word`, `references`, the source | every thread |
//! | the waiters | the thread that holds their lock; the bits `JOINING` and `JOINED` change under it too |
//! | `stop` | the drop of the scope, once, and the driver that runs the job |
//!
//! # Why it is sound
//!
//! All associations together own one reference, from the first to the last. The thread that ends the last one releases
//! that reference after its last access. So an association keeps the state valid without a reference of its own.
//!
//! The last association changes the word under the lock if a join waits. So no join can leave between that change and
//! the removal of the waiters from the list.

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
    /// The number of associations, in steps of `ONE`, and four bits below it:
    ///
    /// | bit | set by | cleared by | means |
    /// |---|---|---|---|
    /// | `USED` | the first association | never | the scope was used |
    /// | `CLOSED` | `close`, at any time | never | new associations are refused |
    /// | `JOINING` | a join that finds an association, under the lock | the last join to leave; the last association to end | the list of waiters is not empty |
    /// | `JOINED` | the last association to end while `JOINING`, or a join that finds none, under the lock | never | new associations are refused; joins complete |
    ///
    /// The bits are the states of a scope:
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
    /// So `JOINING` never occurs with a count of 0. All changes are read-modify-write operations. `JOINING` and
    /// `JOINED` also change under the lock, so that they agree with the list. The end of an association is a release of
    /// its work. Pairs with the acquire of the join, or of the thread that completes it.
    word: AtomicUsize,
    /// The reference count. The scope, each token, each join and a stop on its way own one reference each. All
    /// associations together own one.
    references: Count,
    source: K::Source,
    waiters: SpinLock<Waiters>,
    panics: Panics,
    /// Requests the stop of a dropped scope.
    stop: Job,
}

const USED: usize = 1;
const CLOSED: usize = 2;
const JOINING: usize = 4;
const JOINED: usize = 8;
const ONE: usize = 16;

/// Returns the number of associations in a word.
const fn count(word: usize) -> usize {
    word / ONE
}

impl<K: Kind> ScopeState<K> {
    /// Counts one more association, unless the scope refuses.
    fn try_associate(&self) -> bool {
        let mut word = self.word.load(Acquire);
        loop {
            if word & (CLOSED | JOINED) != 0 {
                return false;
            }
            // Associations can be forgotten without dropping them, so their number is not limited by memory.
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
            // Adds the reference of the associations. The new association cannot end before this, and until then the
            // caller's own reference keeps the state valid.
            self.references.add();
        }
        true
    }

    /// Refuses new associations from now on.
    pub(super) fn close(&self) {
        self.word.fetch_or(CLOSED, AcqRel);
    }

    /// Starts a join, which holds the lock of the waiters.
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

    /// Clears `JOINING` for the last join to leave, which holds the lock of the waiters.
    pub(super) fn leave(&self, _: &Waiters) {
        self.word.fetch_and(!JOINING, Relaxed);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.word.load(Acquire) & (CLOSED | JOINED) != 0
    }

    pub(super) fn in_use(&self) -> usize {
        count(self.word.load(Acquire))
    }

    /// Returns the waiting joins.
    pub(super) fn waiters(&self) -> &SpinLock<Waiters> {
        &self.waiters
    }

    pub(super) fn stop_requested(&self) -> bool {
        K::stop_requested(&self.source)
    }

    /// Returns the first panic of spawned work, or its echo.
    pub(super) fn panic(&self) -> Option<Panic> {
        self.panics.take()
    }

    /// # Safety
    ///
    /// `job` is the field of a state, and owns a counted reference to it.
    unsafe fn stop(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a state. The `ScopeRef` takes over the job's reference.
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

/// A counted reference to a [`ScopeState`].
pub(super) struct ScopeRef<K: Kind>(NonNull<ScopeState<K>>);

// SAFETY: the state consists of atomics, a source, and lock-protected waiters and panics. Waiters may complete on any
// thread.
unsafe impl<K: Kind> Send for ScopeRef<K> {}
// SAFETY: see `Send`.
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

    /// Creates an association, unless the scope refuses.
    pub(super) fn associate(&self) -> Option<Association<K>> {
        self.try_associate().then(|| Association(self.0))
    }

    /// Requests the stop. Returns `true` for the first request.
    pub(super) fn request_stop(&self) -> bool {
        // A callback may release every other reference. This one keeps the source valid until all callbacks have run.
        let handle = self.clone();
        K::request_stop(&handle.source)
    }

    /// Closes a scope that is being dropped, and requests a stop of its running work.
    ///
    /// # Safety
    ///
    /// Called at most once for each state.
    pub(super) unsafe fn abandon(&self) {
        self.close();
        if self.in_use() != 0 && !self.stop_requested() {
            let ScopeRef(state) = *mem::ManuallyDrop::new(self.clone());
            // SAFETY: the job's reference keeps the state valid until the job has run. This function is called once, so
            // the job is in no other list.
            let stop = unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*state.as_ptr()).stop)) };
            outermost(stop);
        }
    }
}

impl<K: Kind> core::ops::Deref for ScopeRef<K> {
    type Target = ScopeState<K>;

    #[inline]
    fn deref(&self) -> &ScopeState<K> {
        // SAFETY: this reference is counted, so the state is valid.
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
            // SAFETY: this was the last reference, so it has exclusive access.
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

/// A piece of work in a scope, counted until it ends.
pub(super) struct Association<K: Kind>(NonNull<ScopeState<K>>);

// SAFETY: an association is a reference to the state, like a `ScopeRef`.
unsafe impl<K: Kind> Send for Association<K> {}
// SAFETY: see `Send`.
unsafe impl<K: Kind> Sync for Association<K> {}

impl<K: Kind> Association<K> {
    fn state(&self) -> &ScopeState<K> {
        // SAFETY: this association is counted, so the reference that all associations own keeps the state valid.
        unsafe { self.0.as_ref() }
    }

    /// Creates another association, unless the scope refuses.
    pub(super) fn again(&self) -> Option<Association<K>> {
        self.state().try_associate().then(|| Association(self.0))
    }

    /// Returns the scope's stop token.
    ///
    /// # Safety
    ///
    /// The token is not used after the association has ended.
    pub(super) unsafe fn token(&self) -> K::Token {
        // SAFETY: the association keeps the state valid, and the token is not used after it, by the contract of this
        // function.
        unsafe { K::token(&self.state().source) }
    }

    /// Keeps a panic for the joins.
    pub(super) fn panicked(&self, payload: Panic) {
        self.state().panics.keep(payload);
    }

    /// Ends the association, and returns the transfer of the joins that it completes.
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
            // Releases the reference of the associations.
            drop(ScopeRef(this.0));
        }
        Transfer::none()
    }

    /// Ends an association that appears to be the last while a join waits. Takes the lock, so that no join leaves at
    /// the same time.
    #[cold]
    fn end_joining(&self) -> Transfer {
        // If this is not the last association after all, the lock is released after the association has ended. So the
        // lock needs a reference of its own.
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
        // The joins are completed outside the lock, after the last access to the state.
        let waiters = joined.then(|| list.take());
        drop(list);
        if last {
            // Releases the reference of the associations.
            drop(ScopeRef(self.0));
        }
        waiters.map_or_else(Transfer::none, Taken::deliver)
    }
}

impl<K: Kind> Drop for Association<K> {
    fn drop(&mut self) {
        // `end` consumes the copy without dropping it, so the association ends once.
        Association(self.0).end().run();
    }
}

/// Runs the work that a dropped scope resumes. If that work drops another scope, the inner drop only queues its own
/// stop here. So nested scopes are stopped by a loop, in constant stack.
#[cfg(feature = "std")]
fn outermost(stop: Transfer) {
    use core::cell::Cell;
    use core::ptr;

    crate::sync::per_thread! {
        /// The queued stops: a local of the outermost call on this thread, or null.
        static WAITING: Cell<*mut Transfer> = Cell::new(ptr::null_mut());
    }

    WAITING.with(|waiting| {
        // SAFETY: the pointer is to a local of the outermost call, which is beneath this call on the stack. No
        // reference to it is alive while a stop runs.
        if let Some(waiting) = unsafe { waiting.get().as_mut() } {
            waiting.append(stop);
            return;
        }
        let mut left = stop;
        let list = &raw mut left;
        waiting.set(list);
        // SAFETY: `list` points to a local. Code that runs meanwhile accesses it only through the same pointer.
        while !unsafe { &*list }.is_none() {
            // SAFETY: the pointer is the one that the condition of the loop dereferences.
            mem::take(unsafe { &mut *list }).run();
        }
        waiting.set(ptr::null_mut());
    });
}

/// Runs the work that a dropped scope resumes. Without `std` there is no thread-local storage, so nested scopes are
/// stopped by recursion.
#[cfg(not(feature = "std"))]
fn outermost(stop: Transfer) {
    stop.run();
}
