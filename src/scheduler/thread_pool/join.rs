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

/// Runs two closures, in parallel if a thread is free, and returns both results.
///
/// On a worker of a [`ThreadPool`] it uses that pool, and on other threads the [global](ThreadPool::global) one. Other
/// workers may take `b` while this one runs `a`. If none does, `b` runs here as well. So a `join` costs little more
/// than two calls, and fine-grained splitting is efficient.
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
/// With the panic of a closure, after the other has ended. If both panic, with the panic of `a`; the panic hook reports
/// the one of `b`.
///
/// # Allocation
///
/// None.
///
/// # Stack
///
/// While another worker runs `b`, this thread runs parts of that `b` on its stack: the closures that `b` passed to
/// `join` in turn. It runs no other jobs. If there are none, it blocks as described at
/// [`ThreadPool`](ThreadPool#blocking).
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

/// Runs a function on the global pool, for a caller that is not a worker.
#[cold]
pub(super) fn elsewhere<T: Send>(function: impl FnOnce() -> T + Send) -> T {
    #[cfg(not(loom))]
    return ThreadPool::global().install(function);
    #[cfg(loom)]
    return function();
}

impl ThreadPool {
    /// Runs [`join`] on this pool.
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
    // Without a seat, or without room in its ring, `b` is not offered to other workers.
    let forked = if worker.finds_seat() { worker.seated() } else { None }.and_then(|seated| {
        // SAFETY: the fork stays on this stack frame until it was taken back or has run: see below.
        let number = unsafe { seated.fork(job) }?;
        Some((seated.seat, number))
    });
    // A panic of `a` must not unwind past a fork that another worker may be running.
    let left = Panic::catch(a);
    // If no other worker took `b`, it is taken back and runs here.
    let is_own = forked.is_none_or(|(seat, number)| {
        if worker.sits_on(seat) {
            seat.ring.take_back_fork(number, Item::fork(job))
        } else {
            // `a` has blocked, and another thread has the seat.
            seat.ring.remove(number, Item::fork(job))
        }
    });
    if is_own {
        // SAFETY: the fork is in no queue, and has not run.
        let b = unsafe { fork.reclaim() };
        return match left {
            Ok(left) => (left, b()),
            Err(payload) => {
                let _ = Panic::catch(b);
                payload.resume()
            }
        };
    }
    // Another worker runs `b`: wait for it, and run parts of it meanwhile.
    fork.wait(worker);
    let right = fork.into_result();
    match (left, right) {
        (Ok(left), Ok(right)) => (left, right),
        (Err(payload), _) | (_, Err(payload)) => payload.resume(),
    }
}

/// A closure on the stack of its owner, which another worker may run.
///
/// The job is the first field, so both have the same address.
#[repr(C)]
struct Fork<F, T> {
    job: Job,
    /// The closure, then its result. Accessed by the owner, except from the time a thief takes the fork until it sets
    /// `latch`.
    work: UnsafeCell<Work<F, T>>,
    /// Identifies the forks that the thief pushes while it runs this one. Written by the thief before it stores its
    /// seat in the latch, which publishes it.
    taken: UnsafeCell<MaybeUninit<TakenFork>>,
    latch: Latch,
    _pinned: PhantomPinned,
}

/// Identifies the forks that a thief makes while it runs a fork, among the items of its ring.
#[derive(Clone, Copy)]
struct TakenFork {
    /// The lowest number of these forks.
    since: usize,
    /// The tenure of the thief's seat. The thief has the seat while it does not change.
    tenure: u32,
}

/// The states of a forked closure.
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
    /// `job` is the job of a fork, which the caller took out of a ring.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        let this = job.cast::<Self>();
        // SAFETY: the owner waits for the latch, so the fork is valid. This thread took it, so no other thread accesses
        // `work`.
        let fork = unsafe { this.as_ref() };
        if let Some(thief) = Worker::current().and_then(Worker::seated) {
            let taken = TakenFork {
                since: thief.seat.ring.next_number(),
                tenure: thief.seat.tenure.load(Relaxed),
            };
            // SAFETY: only the thief writes the cell, and the owner reads it after `say_taken`.
            unsafe { (*fork.taken.get()).write(taken) };
            fork.latch.say_taken(thief.seat.index);
        }
        // SAFETY: this thread has exclusive access to `work` until it sets the latch.
        let work = unsafe { &mut *fork.work.get() };
        if let Work::Waiting(function) = core::mem::replace(work, Work::Running) {
            *work = Work::Done(Panic::catch(function));
        }
        // SAFETY: the latch is set once, by this thread, which accesses nothing of the fork after that.
        unsafe { Latch::set(NonNull::from(&fork.latch)) };
        Transfer::none()
    }

    /// Waits until the fork has run. Meanwhile the calling owner runs parts of it, which the thief has forked.
    #[cold]
    fn wait(&self, worker: &Worker) {
        let mut looks = 0;
        while looks < LOOKS {
            if self.latch.is_set() {
                return;
            }
            if let Some(part) = self.take_part(worker) {
                // SAFETY: `take_part` took the item out of a ring, and it runs once.
                unsafe { worker.run_on_top(part) };
                looks = 0;
            } else {
                looks += 1;
                pause(looks);
            }
        }
        self.latch.wait(worker);
    }

    /// Takes a fork that the thief made while it runs this fork. Such a fork cannot wait for anything after this one's
    /// end. So it may run on top of the wait for that end.
    fn take_part(&self, worker: &Worker) -> Option<Item> {
        worker.seated()?;
        let seat = worker.shared.seats.get(self.latch.taken_by()?)?;
        // SAFETY: the thief initialized the cell once, before it stored its seat in the latch.
        let taken = unsafe { (*self.taken.get()).assume_init() };
        // Checked after a fork was seen. A later fork of this seat, for other work, was pushed after the latch was set
        // or after the seat was passed on.
        let still = || !self.latch.is_set() && seat.tenure.load(Acquire) == taken.tenure;
        seat.ring.pop_fork_since(taken.since, still)
    }

    /// # Safety
    ///
    /// The fork was never pushed, or was taken back.
    #[inline]
    unsafe fn reclaim(self) -> F {
        match self.work.into_inner() {
            Work::Waiting(function) => function,
            // SAFETY: the fork has not run, by the contract of this function.
            _ => unsafe { core::hint::unreachable_unchecked() },
        }
    }

    /// Returns the result of a fork that another worker has run. The latch is set.
    fn into_result(self) -> Result<T, Panic> {
        match self.work.into_inner() {
            Work::Done(result) => result,
            _ => unreachable!("the latch is set"),
        }
    }
}

/// How often a `join` looks for a part of its fork, and for its end, before it blocks.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 12 };

/// Pauses between two looks.
fn pause(looks: u32) {
    // In `loom`, a yield waits until all other threads are stuck, and so hides the schedules of interest.
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

/// A flag that a thread of a pool waits for.
pub(super) struct Latch {
    /// | bits | mean | set by |
    /// |---|---|---|
    /// | [`AWAITED`] | the owner may be parked | the owner, each time before it parks; acquire |
    /// | [`SET`] | the wait is over; the latch may be freed | the other thread, which clears the rest; acquire and release |
    /// | from [`THIEF`] on | the index of the thief's seat plus 1 | the thief of a fork; release |
    ///
    /// Both releases pair with the acquire loads of the owner, which sees the work of the other thread and the cell
    /// that the thief wrote.
    state: AtomicUsize,
    /// The waiting thread. Its record is never freed, so it can be unparked after the latch was freed.
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

    /// Sets the latch and unparks the owner.
    ///
    /// # Safety
    ///
    /// The latch is not set yet. It may be freed when this returns.
    pub(super) unsafe fn set(this: NonNull<Latch>) {
        // SAFETY: the owner waits until the latch is set, so it is valid.
        let latch = unsafe { this.as_ref() };
        // Read before the swap, after which the latch may be freed.
        let owner = latch.owner;
        if latch.state.swap(SET, AcqRel) & AWAITED != 0 {
            owner.unpark();
        }
    }

    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.state.load(Acquire) & SET != 0
    }

    /// Stores the seat of the thief, which calls this once, before it sets the latch.
    fn say_taken(&self, seat: usize) {
        self.state.fetch_or((seat + 1) * THIEF, Release);
    }

    /// Returns the seat of the thief, if it is stored and the latch is not set.
    fn taken_by(&self) -> Option<usize> {
        (self.state.load(Acquire) / THIEF).checked_sub(1)
    }

    /// Blocks until the latch is set. The calling thread is the owner.
    #[cold]
    pub(super) fn wait(&self, worker: &Worker) {
        if !worker.look(|| self.is_set()) {
            current::publish();
            let is_set = || self.state.fetch_or(AWAITED, Acquire) & SET != 0;
            worker.block_until(is_set, || park(None));
        }
    }
}
