use core::cell::UnsafeCell;
use core::marker::PhantomPinned;
use core::ptr::NonNull;

use super::pool::ThreadPool;
use super::shared::Seat;
use super::worker::Worker;
use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire},
};
use crate::{Job, Panic, Transfer};

/// Runs two closures, side by side if a thread is free, and returns both results.
///
/// On a worker of a [`ThreadPool`] it uses that pool; elsewhere the [global](ThreadPool::global) one. `b` is offered to
/// the other workers while this one runs `a`; if nobody took it, `b` runs here as well. So it costs little more than two
/// calls, and splitting finely is fine.
///
/// ```
/// fn sum(numbers: &[u64]) -> u64 {
///     match numbers {
///         [] => 0,
///         [one] => *one,
///         _ => {
///             let (left, right) = numbers.split_at(numbers.len() / 2);
///             let (left, right) = bowline::join(|| sum(left), || sum(right));
///             left + right
///         }
///     }
/// }
/// let numbers: Vec<u64> = (1..=1000).collect();
/// assert_eq!(sum(&numbers), 500_500);
/// ```
///
/// # Panics
///
/// With the panic of a closure, after the other has finished. If both panic, with that of `a`; that of `b` has been
/// reported by the panic hook.
///
/// # Allocation
///
/// None.
///
/// # Stack
///
/// While it waits for a `b` that another worker runs, it runs other work of the pool on this stack.
#[inline]
pub fn join<A, B>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B)
where
    A: Send,
    B: Send,
{
    match Worker::current() {
        Some(worker) => join_on(worker, a, b),
        None => elsewhere(|| join(a, b)),
    }
}

/// Runs a function on the global pool.
#[cold]
pub(super) fn elsewhere<T: Send>(function: impl FnOnce() -> T + Send) -> T {
    #[cfg(not(loom))]
    return ThreadPool::global().install(function);
    #[cfg(loom)]
    return function();
}

impl ThreadPool {
    /// [`join`] on this pool.
    pub fn join<A, B>(&self, a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B)
    where
        A: Send,
        B: Send,
    {
        self.install(|| join(a, b))
    }
}

#[inline]
fn join_on<A, B>(worker: &Worker, a: impl FnOnce() -> A, b: impl FnOnce() -> B + Send) -> (A, B)
where
    B: Send,
{
    let fork = Fork::new(worker.seat(), b);
    let job = NonNull::from(&fork).cast::<Job>();
    // SAFETY: the fork stays on this frame until it was taken back or has run: see below.
    let forked = unsafe { worker.fork(job) };
    let left = Panic::catch(a);
    if !forked || worker.take_back(job, || fork.latch.is_set()) {
        // SAFETY: nobody else has it.
        let b = unsafe { fork.reclaim() };
        return match left {
            Ok(left) => (left, b()),
            Err(payload) => {
                let _ = Panic::catch(b);
                payload.resume()
            }
        };
    }
    fork.latch.wait(worker);
    // SAFETY: it has run.
    let right = unsafe { fork.into_result() };
    match (left, right) {
        (Ok(left), Ok(right)) => (left, right),
        (Err(payload), _) | (_, Err(payload)) => payload.resume(),
    }
}

/// A closure on the stack of its owner, which somebody else may run.
///
/// The job comes first, so that the address of one is that of the other.
#[repr(C)]
struct Fork<F, T> {
    job: Job,
    /// The closure, then what became of it. Touched by whoever has the fork: its owner, or, from the time it is taken out
    /// of the ring until `latch` is set, the thief.
    work: UnsafeCell<Work<F, T>>,
    latch: Latch,
    _pinned: PhantomPinned,
}

enum Work<F, T> {
    Waiting(F),
    Running,
    Done(Result<T, Panic>),
}

impl<F: FnOnce() -> T + Send, T: Send> Fork<F, T> {
    #[inline]
    fn new(owner: &'static Seat, function: F) -> Self {
        Fork {
            job: Job::new(Self::run),
            work: UnsafeCell::new(Work::Waiting(function)),
            latch: Latch::new(owner),
            _pinned: PhantomPinned,
        }
    }

    /// # Safety
    ///
    /// The job is that of a fork, and was taken out of the ring by the caller.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        let this = job.cast::<Self>();
        // SAFETY: its owner waits for the latch, and nobody else has it.
        let fork = unsafe { this.as_ref() };
        // SAFETY: as above.
        let work = unsafe { &mut *fork.work.get() };
        if let Work::Waiting(function) = core::mem::replace(work, Work::Running) {
            *work = Work::Done(Panic::catch(function));
        }
        // SAFETY: this is the last that is done with it.
        unsafe { Latch::set(NonNull::from(&fork.latch)) };
        Transfer::none()
    }

    /// # Safety
    ///
    /// The fork was not given away, or taken back.
    #[inline]
    unsafe fn reclaim(self) -> F {
        match self.work.into_inner() {
            Work::Waiting(function) => function,
            // SAFETY: it has not run.
            _ => unsafe { core::hint::unreachable_unchecked() },
        }
    }

    /// # Safety
    ///
    /// The latch is set.
    unsafe fn into_result(self) -> Result<T, Panic> {
        match self.work.into_inner() {
            Work::Done(result) => result,
            // SAFETY: it has run.
            _ => unsafe { core::hint::unreachable_unchecked() },
        }
    }
}

/// What a worker waits for while it helps its pool.
pub(super) struct Latch {
    /// | state | means | set by |
    /// |---|---|---|
    /// | `UNSET` | not yet | |
    /// | `AWAITED` | not yet, and the owner may be parked | the owner, each time before it parks |
    /// | `SET` | it may go; the latch may be gone | the other |
    ///
    /// Setting releases what was done before; the owner acquires it.
    state: AtomicUsize,
    owner: &'static Seat,
}

const UNSET: usize = 0;
const AWAITED: usize = 1;
const SET: usize = 2;

impl Latch {
    #[inline]
    pub(super) fn new(owner: &'static Seat) -> Self {
        Latch {
            state: AtomicUsize::new(UNSET),
            owner,
        }
    }

    /// Lets the owner go.
    ///
    /// # Safety
    ///
    /// The latch is not set yet. It may be gone when this returns.
    pub(super) unsafe fn set(this: NonNull<Latch>) {
        // SAFETY: its owner waits until it is set.
        let owner = unsafe { this.as_ref() }.owner;
        // SAFETY: as above.
        if unsafe { this.as_ref() }.state.swap(SET, AcqRel) == AWAITED {
            owner.unpark();
        }
    }

    #[inline]
    fn is_set(&self) -> bool {
        self.state.load(Acquire) == SET
    }

    /// Waits, running other work of the pool. The caller is the owner.
    #[cold]
    pub(super) fn wait(&self, worker: &Worker) {
        crate::sender::current::publish();
        worker.help_until(|| {
            self.state
                .compare_exchange(UNSET, AWAITED, Acquire, Acquire)
                .unwrap_or_else(|state| state)
                == SET
        });
    }
}
