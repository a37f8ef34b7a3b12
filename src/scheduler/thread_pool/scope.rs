use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::boxed::Box;

use super::entry::{Entry, EntryKind, OwnedEntry};
use super::join::{Latch, elsewhere};
use super::pool::ThreadPool;
use super::schedule::PoolScheduler;
use super::worker::Worker;
use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};
use crate::sync::{Mutex, lock};
use crate::{Job, Panic, Transfer};

/// Runs `body`, which may spawn closures and coroutines that borrow from outside. Returns when all of them have ended.
///
/// On a worker of a [`ThreadPool`] it uses that pool. On other threads it uses the [global](ThreadPool::global) pool,
/// where `body` runs as well.
///
/// ```
/// use bowline::task;
///
/// let mut lines = ["tie", "the", "knot"].map(String::from);
/// task::scope(|scope| {
///     for line in &mut lines {
///         scope.spawn(|_| line.make_ascii_uppercase());
///     }
/// });
/// assert_eq!(lines, ["TIE", "THE", "KNOT"]);
/// ```
///
/// [`Scope::spawn_async`] spawns a coroutine, which may await meanwhile.
///
/// # Panics
///
/// With the panic of `body`, or else the first panic of the spawned work, after all of it has ended. The other work
/// continues, and the panic hook reports its panics.
///
/// # Allocation
///
/// One for each spawned closure, until it has run; two for a coroutine.
///
/// # Stack
///
/// While it waits, it runs closures of this scope that no other worker has taken, on this stack. It runs no other jobs.
/// If there are none, it blocks as described at [`ThreadPool`](ThreadPool#blocking).
pub fn scope<'scope, T: Send>(body: impl FnOnce(&Scope<'scope>) -> T + Send) -> T {
    match Worker::current() {
        Some(worker) => scope_on(worker, body),
        None => elsewhere(|| scope(body)),
    }
}

impl ThreadPool {
    /// Runs [`scope`] on this pool.
    pub fn scope<'scope, T: Send>(&self, body: impl FnOnce(&Scope<'scope>) -> T + Send) -> T {
        self.install(|| scope(body))
    }
}

fn scope_on<'scope, T>(worker: &Worker, body: impl FnOnce(&Scope<'scope>) -> T) -> T {
    let scope = Scope {
        pool: worker.scheduler(),
        running: AtomicUsize::new(1),
        latch: Latch::new(worker.record),
        panic: Mutex::new(None),
        _lifetime: PhantomData,
    };
    let result = Panic::catch(|| body(&scope));
    // SAFETY: the body has ended, and releases its count once.
    unsafe { Scope::ended(NonNull::from(&scope)) };
    // A closure of this scope cannot wait for anything after the scope's end. So it may run on top of this wait.
    while !scope.latch.is_set()
        && let Some(own) = worker
            .seated()
            .and_then(|seated| seated.take_scoped(|entry| scope.owns(entry)))
    {
        // SAFETY: `take_scoped` took the item out of a queue, and it runs once.
        unsafe { worker.run_on_top(own) };
    }
    scope.latch.wait(worker);
    let panic = lock(&scope.panic).take();
    match (result, panic) {
        (Ok(value), None) => value,
        (Err(payload), _) | (_, Some(payload)) => payload.resume(),
    }
}

/// A scope whose closures and coroutines end before [`scope`] returns. They may borrow from outside of `'scope`.
pub struct Scope<'scope> {
    pool: PoolScheduler,
    /// The number of spawned closures that have not ended, plus one for the body. Incremented by the owner of a count,
    /// relaxed. Decremented with acquire and release. The thread that decrements it to zero sets the latch, and
    /// accesses nothing after that.
    running: AtomicUsize,
    latch: Latch,
    /// The first panic of spawned work.
    panic: Mutex<Option<Panic>>,
    /// Makes `'scope` invariant.
    _lifetime: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

impl<'scope> Scope<'scope> {
    /// Spawns a closure on the pool, which runs before the scope ends. It may spawn more.
    ///
    /// On a worker, it becomes that worker's next job, and other workers take the older ones.
    pub fn spawn<F>(&self, function: F)
    where
        F: FnOnce(&Scope<'scope>) + Send + 'scope,
    {
        let spawned = Box::new(ScopedClosure {
            head: Head {
                entry: Entry::new(ScopedClosure::<'scope, F>::run),
                scope: NonNull::from(self).cast(),
            },
            function,
            _scope: PhantomData,
        });
        spawned.head.entry.set_kind(EntryKind::Scoped);
        self.begin();
        let entry = NonNull::from(Box::leak(spawned)).cast::<Entry>();
        // SAFETY: the entry is new, and on the heap until it runs.
        let entry = unsafe { OwnedEntry::new(entry) };
        self.pool.push(entry).run();
    }

    /// Returns whether an entry of [`EntryKind::Scoped`], which the caller took out of a queue, was spawned here.
    fn owns(&self, entry: NonNull<Entry>) -> bool {
        // SAFETY: only `spawn` creates entries of that kind, each the first field of a `Head`. They are valid until
        // they run.
        let scope = unsafe { entry.cast::<Head>().as_ref() }.scope;
        scope == NonNull::from(self).cast()
    }

    pub(crate) fn pool(&self) -> PoolScheduler {
        self.pool
    }

    /// Counts one more piece of work, until it has [ended](Scope::ended).
    pub(crate) fn begin(&self) {
        // Relaxed, because the caller has a count itself: it is the body or spawned work.
        self.running.fetch_add(1, Relaxed);
    }

    /// Keeps the first panic of counted work.
    pub(crate) fn panicked(&self, payload: Panic) {
        // A later payload is dropped outside the lock, because its destructor is user code.
        let _dropped = {
            let mut first = lock(&self.panic);
            if first.is_none() {
                *first = Some(payload);
                None
            } else {
                Some(payload)
            }
        };
    }

    /// # Safety
    ///
    /// The caller has a count, and releases it. The scope may be freed when this returns.
    pub(crate) unsafe fn ended(this: NonNull<Self>) {
        // SAFETY: the scope waits for the caller's count, so it is valid.
        let scope = unsafe { this.as_ref() };
        if scope.running.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: this was the last count, so the latch is set once. The scope waits for it.
            unsafe { Latch::set(NonNull::from(&scope.latch)) };
        }
    }
}

/// The type-independent part of a spawned closure. The entry is the first field, so both have the same address.
#[repr(C)]
struct Head {
    entry: Entry,
    /// The scope of the closure.
    scope: NonNull<()>,
}

/// A spawned closure. The head is the first field, so both have the same address.
#[repr(C)]
struct ScopedClosure<'scope, F> {
    head: Head,
    function: F,
    _scope: PhantomData<&'scope Scope<'scope>>,
}

impl<'scope, F: FnOnce(&Scope<'scope>) + Send + 'scope> ScopedClosure<'scope, F> {
    /// # Safety
    ///
    /// `job` is the job of a `ScopedClosure` on the heap, and runs once.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: `spawn` leaked the closure from a box, and it runs once.
        let spawned = unsafe { Box::from_raw(job.cast::<Self>().as_ptr()) };
        let ScopedClosure { head, function, .. } = *spawned;
        let scope = head.scope.cast::<Scope<'scope>>();
        // SAFETY: the scope waits for the count of this closure, so it is valid until `ended`.
        let waiting = unsafe { scope.as_ref() };
        if let Err(payload) = Panic::catch(|| function(waiting)) {
            waiting.panicked(payload);
        }
        // SAFETY: the closure has ended and was dropped, and releases its count once.
        unsafe { Scope::ended(scope) };
        Transfer::none()
    }
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("running", &self.running.load(Relaxed))
            .finish_non_exhaustive()
    }
}
