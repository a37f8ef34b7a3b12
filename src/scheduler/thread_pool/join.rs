use core::cell::UnsafeCell;
use core::marker::PhantomPinned;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::entry::Item;
use super::pool::ThreadPool;
use super::seat::ThreadRecord;
use super::worker::Worker;
use crate::sender::current;
use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::{park, thread};
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
/// While it waits for a `b` that another worker runs, it runs parts of that `b` on this stack: the closures that `b` has
/// given to `join` in turn. It runs nothing else. When there are none it blocks, as
/// [`ThreadPool`](ThreadPool#blocking) says.
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
    let fork = Fork::new(worker.record, b);
    let job = NonNull::from(&fork).cast::<Job>();
    // Without a seat, or without room in its queue, `b` is not offered to others.
    let forked = if worker.finds_seat() { worker.seated() } else { None }.and_then(|seated| {
        // SAFETY: the fork stays on this frame until it was taken back or has run: see below.
        let number = unsafe { seated.fork(job) }?;
        Some((seated.seat, number))
    });
    let left = Panic::catch(a);
    let is_own = forked.is_none_or(|(seat, number)| {
        if worker.sits_on(seat) {
            seat.ring.take_back_fork(number, Item::fork(job))
        } else {
            // `a` has blocked, and another thread has the seat.
            seat.ring.remove(number, Item::fork(job))
        }
    });
    if is_own {
        // SAFETY: it is in no queue, and did not run.
        let b = unsafe { fork.reclaim() };
        return match left {
            Ok(left) => (left, b()),
            Err(payload) => {
                let _ = Panic::catch(b);
                payload.resume()
            }
        };
    }
    fork.wait(worker);
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
    /// Where the thief puts the forks that it makes while it runs this one. Written by the thief before it says in the
    /// latch which seat it has.
    taken: UnsafeCell<MaybeUninit<TakenFork>>,
    latch: Latch,
    _pinned: PhantomPinned,
}

/// What tells the forks that a thief makes for a fork from the others in the ring of its seat.
#[derive(Clone, Copy)]
struct TakenFork {
    /// They have this number or a later one.
    since: usize,
    /// The thief has the seat as long as this is its number.
    tenure: u32,
}

enum Work<F, T> {
    Waiting(F),
    Running,
    Done(Result<T, Panic>),
}

impl<F: FnOnce() -> T + Send, T: Send> Fork<F, T> {
    #[inline]
    fn new(owner: &'static ThreadRecord, function: F) -> Self {
        Fork {
            job: Job::new(Self::run),
            work: UnsafeCell::new(Work::Waiting(function)),
            taken: UnsafeCell::new(MaybeUninit::uninit()),
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
        if let Some(thief) = Worker::current().and_then(Worker::seated) {
            let taken = TakenFork {
                since: thief.seat.ring.next_number(),
                tenure: thief.seat.tenure.load(Relaxed),
            };
            // SAFETY: the thief alone writes it, and its owner reads it after the latch has said so.
            unsafe { (*fork.taken.get()).write(taken) };
            fork.latch.say_taken(thief.seat.index);
        }
        // SAFETY: as above.
        let work = unsafe { &mut *fork.work.get() };
        if let Work::Waiting(function) = core::mem::replace(work, Work::Running) {
            *work = Work::Done(Panic::catch(function));
        }
        // SAFETY: this is the last that is done with it.
        unsafe { Latch::set(NonNull::from(&fork.latch)) };
        Transfer::none()
    }

    /// Waits until it has run, on the thread that made it. Runs parts of it meanwhile, which the thief has forked.
    #[cold]
    fn wait(&self, worker: &Worker) {
        let mut looks = 0;
        while looks < LOOKS {
            if self.latch.is_set() {
                return;
            }
            if let Some(part) = self.take_part(worker) {
                // SAFETY: it was taken out of a ring.
                unsafe { worker.run_on_top(part) };
                looks = 0;
            } else {
                looks += 1;
                pause(looks);
            }
        }
        self.latch.wait(worker);
    }

    /// Takes a fork out of the ring of the thief, one that it has made for this fork. Such a fork can wait for nothing
    /// that comes after this one's end, so it may run on top of the wait for that.
    fn take_part(&self, worker: &Worker) -> Option<Item> {
        worker.seated()?;
        let seat = worker.shared.seats.get(self.latch.taken_by()?)?;
        // SAFETY: the thief wrote it before it said which seat it has, and writes it once.
        let taken = unsafe { (*self.taken.get()).assume_init() };
        // Asked after a fork was seen: what the thief, or another thread on its seat, has forked later for something else
        // was pushed after the latch was set, or after the seat was passed on.
        let still = || !self.latch.is_set() && seat.tenure.load(Acquire) == taken.tenure;
        seat.ring.pop_fork_since(taken.since, still)
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

/// How often a `join` looks for a part of its other half, and for the end of that, before it blocks.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 12 };

/// Lets some time pass between two looks.
fn pause(looks: u32) {
    // To `loom`, to yield is to wait until all others are stuck, and so to leave out what a model is about.
    if cfg!(loom) {
        return;
    }
    if looks < 8 {
        for _ in 0..1 << looks {
            core::hint::spin_loop();
        }
    } else {
        thread::yield_now();
    }
}

/// What a thread of a pool waits for.
pub(super) struct Latch {
    /// | bits | mean | set by |
    /// |---|---|---|
    /// | [`AWAITED`] | the owner may be parked | the owner, each time before it parks; acquire |
    /// | [`SET`] | the owner may go on; the latch may be gone | the other thread, which clears the rest; acquire and release |
    /// | from [`THIEF`] on | one more than the index of the seat of the thief | the thief of a fork; release |
    ///
    /// Setting pairs with the loads of the owner, which acquire what was done before. So does the third: the owner acquires
    /// what the thief wrote for it.
    state: AtomicUsize,
    /// The thread that waits. Its record is never freed, so that it can be unparked when the latch is gone.
    owner: &'static ThreadRecord,
}

const UNSET: usize = 0;
const AWAITED: usize = 1;
const SET: usize = 2;
const THIEF: usize = 4;

impl Latch {
    #[inline]
    pub(super) fn new(owner: &'static ThreadRecord) -> Self {
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
        if unsafe { this.as_ref() }.state.swap(SET, AcqRel) & AWAITED != 0 {
            owner.unpark();
        }
    }

    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.state.load(Acquire) & SET != 0
    }

    /// Says which seat the thief has, which calls this once, before it sets the latch.
    fn say_taken(&self, seat: usize) {
        self.state.fetch_or((seat + 1) * THIEF, Release);
    }

    /// The seat of the thief, if it has said so and the latch is not set.
    fn taken_by(&self) -> Option<usize> {
        (self.state.load(Acquire) / THIEF).checked_sub(1)
    }

    /// Blocks until it is set. The calling thread is the owner.
    #[cold]
    pub(super) fn wait(&self, worker: &Worker) {
        if !worker.look(|| self.is_set()) {
            current::publish();
            let is_set = || self.state.fetch_or(AWAITED, Acquire) & SET != 0;
            worker.block_until(is_set, || park(None));
        }
    }
}
