use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::boxed::Box;

use super::entry::{Entry, EntryKind};
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

/// Runs `body`, which may spawn any number of closures and coroutines that borrow from outside, and returns when all have
/// ended.
///
/// On a worker of a [`ThreadPool`] it uses that pool; elsewhere the [global](ThreadPool::global) one, where `body` runs as
/// well.
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
/// With the panic of `body`, or else with the first of what was spawned, after all have ended. The others run on;
/// their own panics have been reported by the panic hook.
///
/// # Allocation
///
/// One for each spawned closure, until it has run; two for a coroutine.
///
/// # Stack
///
/// While it waits, it runs closures that were spawned in this scope on this stack, as long as it finds some that no other
/// worker has taken. It runs nothing else. When there are none it blocks, as [`ThreadPool`](ThreadPool#blocking) says.
pub fn scope<'scope, T: Send>(body: impl FnOnce(&Scope<'scope>) -> T + Send) -> T {
    match Worker::current() {
        Some(worker) => scope_on(worker, body),
        None => elsewhere(|| scope(body)),
    }
}

impl ThreadPool {
    /// [`scope`] on this pool.
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
    // SAFETY: the body has ended, and held one count.
    unsafe { Scope::ended(NonNull::from(&scope)) };
    // What was spawned here can wait for nothing that comes after the scope's end, so it may run on top of this wait.
    while !scope.latch.is_set()
        && let Some(own) = worker
            .seated()
            .and_then(|seated| seated.take_scoped(|entry| scope.owns(entry)))
    {
        // SAFETY: it was taken out of a queue.
        unsafe { worker.run_on_top(own) };
    }
    scope.latch.wait(worker);
    let panic = lock(&scope.panic).take();
    match (result, panic) {
        (Ok(value), None) => value,
        (Err(payload), _) | (_, Some(payload)) => payload.resume(),
    }
}

/// Where closures and coroutines are spawned that end before [`scope`] returns. They may borrow what outlives `'scope`.
pub struct Scope<'scope> {
    pool: PoolScheduler,
    /// What was spawned and has not ended, and one for the body. Whoever takes the last one away sets the latch, and
    /// touches nothing after that. Giving one back releases what it did; the last acquires all of it.
    running: AtomicUsize,
    latch: Latch,
    /// The first panic.
    panic: Mutex<Option<Panic>>,
    /// Neither longer nor shorter.
    _lifetime: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

impl<'scope> Scope<'scope> {
    /// Runs a closure on the pool, some time before the scope ends. It may spawn more.
    ///
    /// From a worker it is the first in line there, and the older ones are for others to take.
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
        // SAFETY: the entry stays where it is until it runs.
        unsafe { self.pool.push(entry) }.run();
    }

    /// Whether an entry of [`EntryKind::Scoped`], which the caller has taken out of a queue, was spawned here.
    fn owns(&self, entry: NonNull<Entry>) -> bool {
        // SAFETY: `spawn` alone makes entries of that kind, each the first field of a head; it is alive until it runs.
        let scope = unsafe { entry.cast::<Head>().as_ref() }.scope;
        scope == NonNull::from(self).cast()
    }

    pub(crate) fn pool(&self) -> PoolScheduler {
        self.pool
    }

    /// One more is counted, until it has [ended](Scope::ended).
    pub(crate) fn begin(&self) {
        // The caller has a count itself: it is the body, or something that was spawned.
        self.running.fetch_add(1, Relaxed);
    }

    /// Something that is counted has panicked.
    pub(crate) fn panicked(&self, payload: Panic) {
        // What is not the first is dropped without the lock.
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
    /// One that was counted has ended. The scope may be gone when this returns.
    pub(crate) unsafe fn ended(this: NonNull<Self>) {
        // SAFETY: it waits for the count.
        let scope = unsafe { this.as_ref() };
        if scope.running.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: this was the last, so the latch is set this once.
            unsafe { Latch::set(NonNull::from(&scope.latch)) };
        }
    }
}

/// What a spawned closure begins with, whatever its type. The entry comes first, so that the address of one is that of the
/// other.
#[repr(C)]
struct Head {
    entry: Entry,
    /// The scope that it was spawned in.
    scope: NonNull<()>,
}

/// A spawned closure. The head comes first, so that the address of one is that of the other.
#[repr(C)]
struct ScopedClosure<'scope, F> {
    head: Head,
    function: F,
    _scope: PhantomData<&'scope Scope<'scope>>,
}

impl<'scope, F: FnOnce(&Scope<'scope>) + Send + 'scope> ScopedClosure<'scope, F> {
    /// # Safety
    ///
    /// The job is that of a `ScopedClosure` on the heap, and runs once.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: it was leaked from a box, and this is its one run.
        let spawned = unsafe { Box::from_raw(job.cast::<Self>().as_ptr()) };
        let ScopedClosure { head, function, .. } = *spawned;
        let scope = head.scope.cast::<Scope<'scope>>();
        // SAFETY: the scope waits for the count that this closure has.
        if let Err(payload) = Panic::catch(|| function(unsafe { scope.as_ref() })) {
            // SAFETY: as above.
            unsafe { scope.as_ref() }.panicked(payload);
        }
        // SAFETY: the closure has ended, and what it borrowed is let go.
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
