//! The memory of a task for its awaits: its size, its allocator, and allocation failure.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocator_api2::alloc::{AllocError, Allocator};
use bowline::factories::Never;
use bowline::prelude::*;
use bowline::scheduler::{PoolScheduler, RunLoop, ThreadPool, Timer};
use bowline::stop::{NeverStop, StopSource, StopToken};
use bowline::task::{self, SenderFuture, Task};
use bowline::{Operation, Receiver, Sender, Transfer, task_local};
use futures_util::future::{join, select};

use crate::common::tasks::{begin, begin_unless_ready, hops, wakes_itself};
use crate::common::{
    self, Census, CrewAllocations, XorShift, for_good, forget, hold, panic_message, settles_at, thread,
};

task_local! { static KEY: u32; }

const HOUR: Duration = Duration::from_secs(3600);

/// An allocator that counts, with memory for `left` more allocations.
#[derive(Debug)]
struct Arena {
    left: AtomicUsize,
    given: AtomicUsize,
    bytes: AtomicUsize,
    /// The maximum of bytes allocated at a time.
    peak: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
struct In(&'static Arena);

impl In {
    fn new() -> Self {
        In::with_memory_for(usize::MAX)
    }

    fn with_memory_for(left: usize) -> Self {
        In(for_good(Arena {
            left: AtomicUsize::new(left),
            given: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
        }))
    }

    fn given(&self) -> usize {
        self.0.given.load(SeqCst)
    }

    fn bytes(&self) -> usize {
        self.0.bytes.load(SeqCst)
    }

    fn peak(&self) -> usize {
        self.0.peak.load(SeqCst)
    }
}

// SAFETY: forwards to the system allocator.
unsafe impl Allocator for In {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.0
            .left
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
            .map_err(|_| AllocError)?;
        assert_ne!(layout.size(), 0, "the system has no memory of no size");
        // SAFETY: the size is not zero.
        let memory = NonNull::new(unsafe { System.alloc(layout) }).ok_or(AllocError)?;
        self.0.given.fetch_add(1, SeqCst);
        let bytes = self.0.bytes.fetch_add(layout.size(), SeqCst) + layout.size();
        self.0.peak.fetch_max(bytes, SeqCst);
        Ok(NonNull::slice_from_raw_parts(memory, layout.size()))
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        self.0.bytes.fetch_sub(layout.size(), SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(memory.as_ptr(), layout) };
    }
}

/// A sender whose operation wraps another's, with padding that is filled at the start and checked at the drop.
struct Padded<S, P> {
    inner: S,
    pad: P,
}

trait Pad: Clone + Send + PartialEq + 'static {
    const FULL: Self;
}

#[derive(Clone, PartialEq)]
#[repr(align(128))]
struct Aligned([u8; 128]);

impl Pad for Aligned {
    const FULL: Self = Aligned([0xA5; 128]);
}

impl<const N: usize> Pad for [u8; N] {
    const FULL: Self = [0xA5; N];
}

fn padded<S, P: Pad>(inner: S, pad: P) -> Padded<S, P> {
    Padded { inner, pad }
}

// SAFETY: the inner operation keeps the contract; this one adds nothing, and is `!Unpin`.
unsafe impl<S: Sender, P: Pad> Sender for Padded<S, P> {
    type Value = S::Value;
    type Error = S::Error;
    type Operation<R: Receiver<S::Value, S::Error>> = PaddedOperation<S::Operation<R>, P>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        PaddedOperation {
            pad: self.pad,
            is_full: false,
            inner: self.inner.connect(receiver),
            _pinned: PhantomPinned,
        }
    }
}

struct PaddedOperation<O, P: Pad> {
    pad: P,
    is_full: bool,
    inner: O,
    _pinned: PhantomPinned,
}

impl<O: Operation, P: Pad> Operation for PaddedOperation<O, P> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        assert!((&raw const this.pad).is_aligned(), "where it was put");
        this.pad = P::FULL;
        this.is_full = true;
        // SAFETY: `inner` is structurally pinned, and started once.
        unsafe { Pin::new_unchecked(&mut this.inner).start() }
    }
}

impl<O, P: Pad> Drop for PaddedOperation<O, P> {
    fn drop(&mut self) {
        assert!(!self.is_full || self.pad == P::FULL, "somebody else wrote there");
    }
}

/// Returns a future of any sender.
fn awaited<S: Sender<Value: Send, Error: Send> + 'static>(sender: S) -> SenderFuture<S> {
    SenderFuture::new(sender)
}

/// Threads whose allocations are counted.
struct Crew {
    allocations: CrewAllocations,
    pool: ThreadPool,
}

impl Crew {
    fn new() -> Self {
        let allocations = CrewAllocations::new();
        allocations.join();
        let pool = ThreadPool::builder()
            .threads(2)
            .on_start(move |_| allocations.join())
            .build()
            .expect("a pool");
        // Starts the timer's thread.
        sync_wait(Timer::global().schedule_after(Duration::ZERO)).unwrap();
        Crew { allocations, pool }
    }

    /// Runs rounds of `body` in one task, on this thread's loop and on the pool. The first rounds are not counted.
    fn expect_none<F>(&self, what: &str, body: impl Fn(PoolScheduler) -> F + Copy + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (allocations, scheduler) = (self.allocations, self.pool.scheduler());
        let task = || {
            Task::new(async move {
                // A block that is too small for the next content is replaced a few times.
                for _ in 0..10 {
                    body(scheduler).await;
                }
                let before = allocations.so_far();
                for _ in 0..100 {
                    body(scheduler).await;
                }
                allocations.so_far() - before
            })
        };
        let on_loop = settles_at(0, || sync_wait(task()).unwrap());
        assert_eq!(on_loop, 0, "{what}, on a loop");
        let on_pool = settles_at(0, || sync_wait(starts_on(scheduler, task())).unwrap());
        assert_eq!(on_pool, 0, "{what}, on a pool");
    }
}

#[test]
fn awaits_that_suspend_allocate_nothing_once_a_task_has_its_memory() {
    let crew = Crew::new();
    crew.expect_none("a schedule", |pool| async move {
        pool.schedule().await;
    });
    crew.expect_none("several, one after the other, of different sizes", |pool| async move {
        pool.schedule().await;
        let Ok(_) = padded(pool.schedule(), [0_u8; 500]).into_async().await;
        let Ok(_) = when_all((pool.schedule(), pool.schedule(), just(7))).await;
    });
    crew.expect_none("a timer", |_| async {
        Timer::global().schedule_after(Duration::ZERO).await;
    });
    crew.expect_none("a scope in a scope", |pool| async move {
        let inside = async move {
            pool.schedule().await;
        };
        let inside = task::with_timeout(HOUR, task::shield(inside));
        task::with_cancellation_handler(|| {}, inside)
            .await
            .expect("there is time");
    });
    crew.expect_none("two at once", |pool| async move {
        join(awaited(pool.schedule()), awaited(pool.schedule()))
            .await
            .0
            .unwrap();
    });
    crew.expect_none("one that loses a race", |pool| async move {
        let loser = awaited(never::<(), Infallible>());
        drop(select(loser, awaited(pool.schedule())).await);
    });
}

/// Shortens the code of the tests.
trait IntoAsync: Sender<Value: Send, Error: Send> + Sized + 'static {
    fn into_async(self) -> SenderFuture<Self> {
        SenderFuture::new(self)
    }
}

impl<S: Sender<Value: Send, Error: Send> + 'static> IntoAsync for S {}

#[test]
fn a_task_that_only_awaits_what_is_ready_needs_no_memory() {
    let arena = In::new();
    let work = async {
        let mut sum = 0;
        for _ in 0..100 {
            let Ok(one) = just(1).await;
            let Ok((two, three)) = when_all((just(2), just(3).then(|x| x))).await;
            sum += one + two + three;
            wakes_itself(1).await;
        }
        sum
    };
    assert_eq!(sync_wait(Task::new_in(work, arena)).unwrap(), 600);
    assert_eq!((arena.given(), arena.bytes()), (1, 0), "the task itself");
}

/// Suspends this often in a future that knows nothing of the library. [`Bell::ring`] ends each suspension.
async fn suspends(rounds: usize, bell: &'static Bell) {
    for _ in 0..rounds {
        let mut waited = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut waited, true) {
                return Poll::Ready(());
            }
            *bell.waker.lock().unwrap() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// The waker of a task that waits, and the number of times that it was woken.
#[derive(Debug, Default)]
struct Bell {
    waker: Mutex<Option<Waker>>,
    rings: AtomicUsize,
    is_done: AtomicBool,
}

impl Bell {
    /// Wakes the task if it waits. Returns whether there are no more waits.
    fn ring(&self) -> bool {
        let waker = self.waker.lock().unwrap().take();
        if let Some(waker) = waker {
            self.rings.fetch_add(1, SeqCst);
            waker.wake();
        }
        self.is_done.load(SeqCst)
    }
}

/// Runs the task of a future, with this token, on a loop on which a job wakes the task between two polls. Returns the number of
/// allocations of the task: from its allocator, and from the system.
fn allocations_of_waits<F, K>(token: K, body: impl FnOnce(&'static Bell) -> F) -> (usize, usize)
where
    F: Future<Output = ()> + Send + 'static,
    K: StopToken + Send + 'static,
{
    let (run_loop, arena) = (for_good(RunLoop::new()), In::new());
    let bell: &'static Bell = for_good(Bell::default());
    let task = Task::new_in(body(bell), arena).write_env(WithStopToken(token));
    assert_eq!(arena.given(), 1, "the task itself");
    let ringing = run_loop.scheduler().schedule().repeat_until(|()| bell.ring());
    bowline::start_detached(ringing.then(|_| ()));
    let (outcome, from_system) = common::allocations(|| run_loop.run_until(task));
    assert!(outcome.is_value());
    bell.is_done.store(true, SeqCst);
    run_loop.finish();
    run_loop.run();
    assert_eq!(arena.bytes(), 0);
    (arena.given() - 1, from_system)
}

#[test]
fn waits_for_foreign_futures_need_no_memory_in_a_task_that_cannot_be_stopped_and_one_registration_in_another() {
    let waits = |rounds| {
        move |bell: &'static Bell| async move {
            suspends(rounds, bell).await;
            assert_eq!(bell.rings.load(SeqCst), rounds, "each wait suspends until it is woken");
        }
    };
    // A warm-up for first-time allocations of the thread.
    allocations_of_waits(StopSource::new().token(), waits(2));
    for rounds in [0, 1, 2, 100] {
        let source = StopSource::new();
        let registrations = usize::from(rounds > 0);
        assert_eq!(allocations_of_waits(NeverStop, waits(rounds)), (0, 0), "{rounds} waits");
        assert_eq!(
            allocations_of_waits(source.token(), waits(rounds)),
            (registrations, 0),
            "{rounds} waits that a stop can end"
        );
    }
}

/// The number of awaits of a task.
const ROUNDS: usize = if cfg!(sanitized) { 5_000 } else { 100_000 };

/// Runs a task with a counting allocator, on a loop of its own. Returns the number of allocations and the peak in bytes.
fn in_an_arena<F>(body: impl FnOnce(&'static RunLoop) -> F) -> (usize, usize)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (run_loop, arena) = (for_good(RunLoop::new()), In::new());
    let task = Task::new_in(body(run_loop), arena);
    let own = arena.bytes();
    run_loop.run_until(task).unwrap();
    assert_eq!(arena.bytes(), 0);
    (arena.given() - 1, arena.peak() - own)
}

#[test]
fn the_last_begun_ends_first_in_bounded_memory() {
    let (given, peak) = in_an_arena(|run_loop| async {
        for _ in 0..ROUNDS / 4 {
            let schedule = || awaited(run_loop.scheduler().schedule());
            let outer = begin(schedule()).await;
            let middle = begin(awaited(padded(run_loop.scheduler().schedule(), [0_u8; 100]))).await;
            let inner = begin(schedule()).await;
            inner.await.unwrap();
            middle.await.unwrap();
            schedule().await.unwrap();
            outer.await.unwrap();
        }
    });
    assert!(given <= 8 && peak <= 8 * 1024, "{given} times, {peak} bytes");
}

/// A free block may be too small for the next content, while one behind it fits.
#[test]
fn awaits_of_several_sizes_in_each_other_allocate_a_few_times() {
    fn of<const BYTES: usize>(run_loop: &'static RunLoop) -> impl Future<Output = Result<(), Infallible>> + Unpin {
        awaited(padded(run_loop.scheduler().schedule(), [0_u8; BYTES]))
    }

    async fn nested<const A: usize, const B: usize, const C: usize>(run_loop: &'static RunLoop) {
        for _ in 0..ROUNDS / 20 {
            let outer = begin(of::<A>(run_loop)).await;
            let middle = begin(of::<B>(run_loop)).await;
            begin(of::<C>(run_loop)).await.await.unwrap();
            middle.await.unwrap();
            of::<B>(run_loop).await.unwrap();
            outer.await.unwrap();
            of::<C>(run_loop).await.unwrap();
        }
    }

    let all = [
        in_an_arena(nested::<0, 200, 900>),
        in_an_arena(nested::<0, 900, 200>),
        in_an_arena(nested::<200, 0, 900>),
        in_an_arena(nested::<200, 900, 0>),
        in_an_arena(nested::<900, 0, 200>),
        in_an_arena(nested::<900, 200, 0>),
    ];
    assert!(all.iter().all(|&(given, _)| given <= 8), "{all:?}");
}

#[test]
fn the_first_begun_ends_first_in_bounded_memory() {
    for window in [1, 2, 7, 30] {
        let (given, peak) = in_an_arena(move |run_loop| async move {
            let mut begun = VecDeque::new();
            for round in 0..ROUNDS / 4 {
                begun.push_back(begin(awaited(run_loop.scheduler().schedule())).await);
                if round >= window
                    && let Some(first) = begun.pop_front()
                {
                    first.await.unwrap();
                }
            }
        });
        // Two for each in flight, and none for further rounds.
        assert!(
            given <= 2 * (window + 1) && peak <= 64 * 1024,
            "{window}: {given} times, {peak} bytes"
        );
    }
}

#[test]
fn in_any_order_and_of_any_size_memory_is_bounded() {
    enum Begun<A, B, C> {
        Small(A),
        Middle(B),
        Large(C),
    }

    let (given, peak) = in_an_arena(|run_loop| async {
        let mut random = XorShift::new(common::number("BOWLINE_SEED").unwrap_or(1));
        let mut begun = Vec::new();
        let schedule = || run_loop.scheduler().schedule();
        for _ in 0..ROUNDS {
            begun.push(match random.below(3) {
                0 => Begun::Small(begin(awaited(schedule())).await),
                1 => Begun::Middle(begin(awaited(padded(schedule(), Aligned::FULL))).await),
                _ => Begun::Large(begin(awaited(padded(schedule(), [0_u8; 900]))).await),
            });
            if begun.len() > 16 {
                let which = random.below(begun.len() as u64) as usize;
                // One in four is dropped, perhaps in flight.
                match (random.below(4), begun.swap_remove(which)) {
                    (0, dropped) => drop(dropped),
                    (_, Begun::Small(small)) => small.await.unwrap(),
                    (_, Begun::Middle(middle)) => middle.await.unwrap(),
                    (_, Begun::Large(large)) => large.await.unwrap(),
                }
            }
        }
    });
    // The free blocks may be too small for the next content: now and then one is allocated and another freed.
    assert!(peak <= 1024 * 1024, "{given} times, {peak} bytes");
}

/// A scope that was left is freed with the last operation that was moved out of it.
#[test]
fn what_is_moved_out_of_deadlines_stays_in_bounded_memory() {
    for window in [0, 1, 5] {
        let (given, peak) = in_an_arena(move |run_loop| async move {
            let timer = Timer::on(run_loop);
            let mut begun = VecDeque::new();
            for round in 0..ROUNDS / 20 {
                let inside = begin(awaited(run_loop.scheduler().schedule()));
                begun.push_back(
                    task::with_timeout(HOUR, inside)
                        .on(&timer)
                        .await
                        .expect("there is time"),
                );
                if round >= window
                    && let Some(first) = begun.pop_front()
                {
                    first.await.unwrap();
                }
            }
        });
        assert!(peak <= 64 * 1024, "{window}: {given} times, {peak} bytes");
    }
}

/// Stopped and dropped in consecutive polls, they end later on another thread.
#[test]
fn what_is_dropped_in_flight_in_every_poll_stays_in_bounded_memory() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let (given, peak) = in_an_arena(|_| async move {
        for _ in 0..ROUNDS / 10 {
            drop(begin_unless_ready(awaited(scheduler.schedule().unstoppable())).await);
            // Keeps them from piling up in the pool.
            scheduler.schedule().await;
        }
    });
    assert!(peak <= 64 * 1024, "{given} times, {peak} bytes");
}

/// Dropped in a single poll, those that have ended make room for others.
#[test]
fn what_is_dropped_in_flight_in_one_poll_stays_in_bounded_memory() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let rounds = ROUNDS / 10;
    let (given, peak) = in_an_arena(|_| async move {
        poll_fn(|cx| {
            for _ in 0..rounds {
                let mut future = awaited(scheduler.schedule().unstoppable());
                let _ = Pin::new(&mut future).poll(cx);
                drop(future);
                // It has run when this has.
                sync_wait(scheduler.schedule()).unwrap();
            }
            Poll::Ready(())
        })
        .await;
    });
    assert!(peak <= 64 * 1024, "{given} times, {peak} bytes");
}

#[test]
fn ten_thousand_in_flight_at_once() {
    const MANY: usize = 10_000;
    for backwards in [false, true] {
        let (given, peak) = in_an_arena(|run_loop| async move {
            let mut begun = Vec::new();
            for _ in 0..MANY {
                begun.push(begin(awaited(run_loop.scheduler().schedule())).await);
            }
            if backwards {
                begun.reverse();
            }
            for future in begun {
                future.await.unwrap();
            }
        });
        assert!(peak <= MANY * 1024, "{peak} bytes");
        assert!(given <= MANY + 1, "{given} times");
    }
}

#[test]
fn large_and_aligned_operations_are_where_they_should_be() {
    fn try_it<P: Pad>(crew: &Crew) {
        let scheduler = crew.pool.scheduler();
        for round in 0..4 {
            let work = async move {
                // The block below decides the address of this one.
                let beneath = begin_unless_ready(awaited(padded(scheduler.schedule(), [0_u8; 33]))).await;
                if round % 2 == 0 {
                    let Ok(()) = awaited(padded(scheduler.schedule(), P::FULL)).await;
                }
                let (a, b) = join(
                    awaited(padded(scheduler.schedule(), P::FULL)),
                    awaited(padded(scheduler.schedule(), P::FULL)),
                )
                .await;
                a.unwrap();
                b.unwrap();
                // Dropped in flight, it outlives its future.
                drop(begin_unless_ready(awaited(padded(scheduler.schedule().unstoppable(), P::FULL))).await);
                if let Some(beneath) = beneath {
                    beneath.await.unwrap();
                }
                let Ok(()) = awaited(padded(scheduler.schedule(), P::FULL)).await;
            };
            let arena = In::new();
            sync_wait(Task::new_in(work, arena)).unwrap();
            assert_eq!(arena.bytes(), 0);
            sync_wait(starts_on(scheduler, Task::new(work_again(scheduler, P::FULL)))).unwrap();
        }
    }

    async fn work_again<P: Pad>(scheduler: PoolScheduler, pad: P) {
        for _ in 0..3 {
            let Ok(()) = awaited(padded(scheduler.schedule(), pad.clone())).await;
        }
    }

    let crew = Crew::new();
    try_it::<Aligned>(&crew);
    try_it::<[u8; 1]>(&crew);
    common::with_stack(4 << 20, || {
        try_it::<[u8; 100 * 1024]>(&crew);
    });
}

#[test]
fn a_custom_allocator_serves_the_memory_and_gets_all_of_it_back() {
    let pool = ThreadPool::new(2);
    let scheduler = pool.scheduler();
    let census = Census::new();
    // The ways a task ends, and what is in flight then.
    for how in ["with a value", "stopped", "with a panic", "with some left", "dropped"] {
        let (arena, value) = (In::new(), census.value());
        let work = async move {
            let _value = value;
            scheduler.schedule().await;
            let kept = begin(awaited(never::<(), Infallible>())).await;
            let left = begin_unless_ready(awaited(padded(scheduler.schedule().unstoppable(), Aligned::FULL))).await;
            task::shield(KEY.scope(1, awaited(scheduler.schedule()))).await.unwrap();
            match how {
                "stopped" => {
                    let Ok(()) = just_stopped::<(), Infallible>().await;
                }
                "with a panic" => common::quiet_panic(),
                "with some left" => {
                    common::forget(kept);
                    if let Some(left) = left {
                        common::forget(left);
                    }
                }
                "dropped" => std::future::pending::<()>().await,
                _ => {}
            }
        };
        let task = Task::new_in(work, arena);
        let own = arena.bytes();
        if how == "dropped" {
            let parent = Task::new(async move {
                let _ = select(Box::pin(task.into_future()), Box::pin(hops(50))).await;
            });
            sync_wait(starts_on(scheduler, parent)).unwrap();
        } else {
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                sync_wait(starts_on(scheduler, task.stopped_as_option()))
            }));
            assert_eq!(ended.is_err(), how == "with a panic");
        }
        assert!(arena.peak() > own, "{how}: it has served more than the task");
        // A forgotten future keeps the frame and its memory alive.
        if how != "with some left" {
            assert_eq!(arena.bytes(), 0, "{how}");
        }
        assert_eq!(census.alive(), 0, "{how}");
    }
}

/// Everything that needs memory of a task, each in a task whose allocator only suffices for the task itself.
#[test]
fn without_memory_the_task_panics_and_nothing_is_lost() {
    type Body = fn(PoolScheduler, common::Counted) -> Pin<Box<dyn Future<Output = ()> + Send>>;
    let cases: [(&str, Body); 7] = [
        ("an await", |pool, value| {
            Box::pin(async move {
                let Ok(()) = awaited(pool.schedule().then(move |()| drop(value))).await;
            })
        }),
        ("two awaits", |pool, value| {
            Box::pin(async move {
                let both = when_all((pool.schedule(), pool.schedule().then(move |()| drop(value))));
                let _ = awaited(both).await;
            })
        }),
        ("a shield", |_, value| {
            Box::pin(task::shield(async move {
                let _value = value;
                hops(1).await;
            }))
        }),
        ("a deadline", |_, value| {
            Box::pin(async move {
                let inside = async move {
                    let _value = value;
                    hops(1).await;
                };
                task::with_timeout(HOUR, inside).await.expect("there is time");
            })
        }),
        ("a binding", |_, value| {
            Box::pin(KEY.scope(1, async move {
                let _value = value;
                hops(1).await;
            }))
        }),
        ("a handler", |_, value| {
            Box::pin(task::with_cancellation_handler(move || drop(value), hops(1)))
        }),
        ("a child", |_, value| {
            Box::pin(async move {
                task::let_async(async move {
                    let _value = value;
                    hops(1).await;
                })
                .await;
            })
        }),
    ];
    let pool = ThreadPool::new(1);
    let source = bowline::stop::StopSource::new();
    for (what, body) in cases {
        let (census, arena) = (Census::new(), In::with_memory_for(1));
        let work = body(pool.scheduler(), census.value());
        let task = Task::new_in(work, arena).write_env(WithStopToken(source.token()));
        let message = panic_message(|| sync_wait(task));
        assert!(message.contains("failed to allocate"), "{what}: {message}");
        assert_eq!((census.alive(), arena.bytes()), (0, 0), "{what}");
        // With a little more memory it succeeds.
        let (census, arena) = (Census::new(), In::with_memory_for(4));
        let work = body(pool.scheduler(), census.value());
        sync_wait(Task::new_in(work, arena).write_env(WithStopToken(source.token()))).unwrap();
        assert_eq!((census.alive(), arena.bytes()), (0, 0), "{what}");
    }
}

/// The panic belongs to the task, which may catch it.
#[test]
fn a_task_may_go_on_without_the_await_that_there_was_no_memory_for() {
    let pool = ThreadPool::new(1);
    let (scheduler, arena) = (pool.scheduler(), In::with_memory_for(2));
    let work = async move {
        let small = begin_unless_ready(awaited(scheduler.schedule().unstoppable())).await;
        let large = futures_util::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(awaited(padded(
            scheduler.schedule(),
            [0_u8; 10_000],
        ))));
        let refused = large.await.is_err();
        if let Some(small) = small {
            small.await.unwrap();
        }
        refused
    };
    assert!(sync_wait(Task::new_in(work, arena)).unwrap());
    assert_eq!(arena.bytes(), 0);
}

/// Full memory is swept for blocks that have ended. Their destructors may begin and end other blocks of the same task.
#[test]
fn what_is_destroyed_when_the_memory_is_full_may_begin_something_else() {
    /// A value whose destructor enters a scope of the current task, which needs memory. It is dropped once.
    struct Enters {
        value: Option<common::Counted>,
        levels: usize,
    }

    impl Enters {
        fn new(census: &Census, levels: usize) -> Self {
            Enters {
                value: Some(census.value()),
                levels,
            }
        }
    }

    impl Drop for Enters {
        fn drop(&mut self) {
            assert!(self.value.take().is_some(), "it is dropped once");
            let mut cx = Context::from_waker(Waker::noop());
            let mut scopes: Vec<_> = (0..self.levels)
                .map(|_| Box::pin(task::shield(KEY.scope(1, std::future::pending::<()>()))))
                .collect();
            for scope in &mut scopes {
                assert!(scope.as_mut().poll(&mut cx).is_pending());
            }
        }
    }

    /// In the environment of an operation until that is destroyed.
    #[derive(Clone)]
    struct Shared(#[expect(dead_code, reason = "it is there to be dropped")] std::sync::Arc<Enters>);

    let elsewhere = ThreadPool::new(1);
    let scheduler = elsewhere.scheduler();
    for levels in [1, 4, 40] {
        for in_result in [false, true] {
            let (census, arena) = (Census::new(), In::new());
            let held = census.clone();
            let work = async move {
                poll_fn(|cx| {
                    for round in 0..20 {
                        // One that has ended on another thread, and was dropped before.
                        let worker = hold(scheduler);
                        let enters = Enters::new(&held, levels);
                        let done = scheduler.schedule().unstoppable();
                        if in_result {
                            let mut orphan = awaited(done.then(move |()| enters));
                            assert!(Pin::new(&mut orphan).poll(cx).is_pending());
                        } else {
                            let with = With(Shared(std::sync::Arc::new(enters)));
                            let mut orphan = awaited(done.write_env(with));
                            assert!(Pin::new(&mut orphan).poll(cx).is_pending());
                        }
                        drop(worker);
                        sync_wait(scheduler.schedule()).unwrap();
                        // Larger and larger, until it does not fit.
                        let mut kept = Vec::new();
                        for _ in 0..=round {
                            let mut more = awaited(padded(never::<(), Infallible>(), [0_u8; 700]));
                            assert!(Pin::new(&mut more).poll(cx).is_pending());
                            kept.push(more);
                        }
                    }
                    Poll::Ready(())
                })
                .await;
            };
            sync_wait(Task::new_in(work, arena)).unwrap();
            assert_eq!((census.alive(), arena.bytes()), (0, 0), "{levels}, {in_result}");
        }
    }
}

/// The result of a group that was left behind has a destructor that begins another block.
#[test]
fn what_a_group_gave_may_begin_something_else_when_it_goes() {
    struct Enters(Option<common::Counted>);

    impl Drop for Enters {
        fn drop(&mut self) {
            assert!(self.0.take().is_some(), "it is dropped once");
            let mut cx = Context::from_waker(Waker::noop());
            let mut scope = Box::pin(task::shield(std::future::pending::<()>()));
            assert!(scope.as_mut().poll(&mut cx).is_pending());
        }
    }

    let pool = ThreadPool::new(2);
    let scheduler = pool.scheduler();
    let (census, arena) = (Census::new(), In::new());
    let held = census.clone();
    let work = async move {
        for round in 0..50_usize {
            let (first, second) = (Enters(Some(held.value())), Enters(Some(held.value())));
            let mut group = Box::pin(task::group(async move |group| {
                group.try_spawn(async move { first }).expect("it is open");
                group
                    .try_spawn(async move {
                        hops(1).await;
                        second
                    })
                    .expect("it is open");
                std::future::pending::<()>().await;
            }));
            let pending = poll_fn(|cx| Poll::Ready(group.as_mut().poll(cx).is_pending())).await;
            assert!(pending);
            hops(round % 3).await;
            if round % 2 == 0 {
                drop(group);
            } else {
                thread::spawn(move || drop(group)).join().expect("it does not panic");
            }
            let mut kept = Vec::new();
            for _ in 0..round {
                kept.push(begin(awaited(padded(never::<(), Infallible>(), [0_u8; 700]))).await);
            }
        }
    };
    sync_wait(starts_on(scheduler, Task::new_in(work, arena))).unwrap();
    assert_eq!((census.alive(), arena.bytes()), (0, 0));
}

/// The operation is not stored in the future.
#[test]
fn a_future_is_small_whatever_it_awaits() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let word = size_of::<usize>();
    let limits: [(&str, usize, usize); 6] = [
        ("a schedule", size_of_val(&awaited(scheduler.schedule())), 4 * word),
        (
            "two at once",
            size_of_val(&awaited(when_all((scheduler.schedule(), scheduler.schedule())))),
            6 * word,
        ),
        (
            "a timer",
            size_of_val(&awaited(Timer::global().schedule_after(HOUR))),
            6 * word,
        ),
        (
            "an `async` block with a schedule",
            size_of_val(&async move { scheduler.schedule().await }),
            8 * word,
        ),
        (
            "a shield",
            size_of_val(&task::shield(awaited(scheduler.schedule()))),
            8 * word,
        ),
        (
            "a group",
            size_of_val(&task::group(async |group| {
                group.try_spawn(async {}).expect("it is open");
                group.next().await
            })),
            24 * word,
        ),
    ];
    for (what, size, limit) in limits {
        println!("{what}: {size} of {limit}");
    }
    for (what, size, limit) in limits {
        assert!(size <= limit, "{what}: {size} of {limit}");
    }
}

/// The header of a frame notes 2^15 changes of a count at a time.
#[test]
fn one_poll_may_begin_and_end_more_awaits_than_the_header_notes_at_a_time() {
    const MANY: usize = 70_000;
    /// What becomes of the awaits after they were polled.
    type After = fn(Vec<SenderFuture<Never<(), ()>>>);
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    for hops in [false, true] {
        for after in [drop as After, (|all| forget(Box::pin(all))) as After] {
            let census = Census::new();
            let value = census.value();
            let task = Task::new(async move {
                let _value = value;
                let mut all: Vec<_> = (0..MANY).map(|_| SenderFuture::new(never())).collect();
                poll_fn(|cx| {
                    let pending = all
                        .iter_mut()
                        .filter_map(|one| Pin::new(one).poll(cx).is_pending().then_some(()));
                    assert_eq!(pending.count(), MANY);
                    Poll::Ready(())
                })
                .await;
                if hops {
                    scheduler.schedule().await;
                }
                after(all);
                MANY
            });
            assert_eq!(sync_wait(starts_on(scheduler, task)).unwrap(), MANY);
            assert_eq!(census.alive(), 0);
        }
    }
}
