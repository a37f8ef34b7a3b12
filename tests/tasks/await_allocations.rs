//! An await allocates nothing once its task has a block of memory: for every sender, completing thread and scheduler.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::common::{CrewAllocations, allocations, for_good, thread};
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, PoolScheduler, RunLoop, RunLoopScheduler, TaskScheduler, ThreadPool, Timer};
use bowline::stop::NeverStop;
use bowline::task::{LocalTask, Task};

/// The threads that take part, and a counter of their allocations.
struct Crew {
    allocations: CrewAllocations,
    pool: ThreadPool,
    timer: Timer,
    elsewhere: RunLoopScheduler<'static>,
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
        let timer = Timer::new();
        // A timer's sender completes on the timer's thread.
        sync_wait(timer.schedule_after(Duration::ZERO).then(move |()| allocations.join())).unwrap();
        let elsewhere = elsewhere();
        sync_wait(starts_on(elsewhere, just_from(move || allocations.join()))).unwrap();
        Crew {
            allocations,
            pool,
            timer,
            elsewhere,
        }
    }

    /// Runs a task that awaits two senders from `make`, one after the other: on this thread's loop, on the pool, and inline.
    /// The memory of the senders, and the one allocation of the task, do not count.
    fn expect_none<S, F>(&self, what: &str, make: impl Fn() -> S)
    where
        S: IntoFuture<IntoFuture = F>,
        F: Future + Send + 'static,
    {
        self.expect(0, what, make);
    }

    fn expect<S, F>(&self, expected: usize, what: &str, make: impl Fn() -> S)
    where
        S: IntoFuture<IntoFuture = F>,
        F: Future + Send + 'static,
    {
        self.each(make, |first, second, home| {
            // The first await allocates the block, unless its thread has one cached; and another one for a sender that erases the type of
            // its stop token, which no thread has cached where there are no slabs.
            let blocks = if cfg!(sanitized = "address") { 2 } else { 1 };
            assert!(first - expected <= blocks, "{what}, first in a task on {home}: {first}");
            assert!(
                second.is_none_or(|second| second == expected),
                "{what}, in a task on {home}: {second:?}"
            );
        });
    }

    /// Runs a task that awaits senders with a task inside, which has memory of its own, perhaps from its thread's cache.
    fn expect_that_of_a_task<S, F>(&self, what: &str, make: impl Fn() -> S)
    where
        S: IntoFuture<IntoFuture = F>,
        F: Future + Send + 'static,
    {
        self.each(make, |_, second, home| {
            assert!(
                second.is_some_and(|second| second <= 1),
                "{what}, in a task on {home}: {second:?}"
            );
        });
    }

    /// Passes the allocations of the first and of the second await in a task to `check`. There is no second one if the first
    /// stops.
    fn each<S, F>(&self, make: impl Fn() -> S, check: impl Fn(usize, Option<usize>, &str))
    where
        S: IntoFuture<IntoFuture = F>,
        F: Future + Send + 'static,
    {
        type Home = fn(Task<()>, PoolScheduler) -> bool;
        let homes: [(&str, Home); 3] = [
            ("a loop", |task, _| sync_wait(task).is_value()),
            ("a pool", |task, pool| sync_wait(starts_on(pool, task)).is_value()),
            ("anywhere", |task, _| {
                sync_wait(starts_on(InlineScheduler, task)).is_value()
            }),
        ];
        let allocations = self.allocations;
        for (home, run) in homes {
            let between = Arc::new(AtomicUsize::new(0));
            let task = || {
                let (first, second) = (make().into_future(), make().into_future());
                let between = between.clone();
                Task::new(async move {
                    let _ = first.await;
                    between.store(allocations.so_far(), SeqCst);
                    let _ = second.await;
                })
            };
            // A warm-up on each of the two workers: first-time allocations of a thread are not counted.
            let one = Busy::begin(self.pool.scheduler());
            run(task(), self.pool.scheduler());
            let other = Busy::begin(self.pool.scheduler());
            one.end();
            run(task(), self.pool.scheduler());
            other.end();
            let task = task();
            let begin = allocations.so_far();
            let ended = run(task, self.pool.scheduler());
            let (between, end) = (between.load(SeqCst), allocations.so_far());
            if ended {
                check(between - begin, Some(end - between), home);
            } else {
                check(end - begin, None, home);
            }
        }
    }
}

/// A worker that is kept busy by a job that allocates nothing: 1 once it has begun, 2 when it is to end, 3 once it has ended.
struct Busy(Arc<AtomicUsize>);

impl Busy {
    fn begin(pool: PoolScheduler) -> Self {
        let phase = Arc::new(AtomicUsize::new(0));
        let inside = phase.clone();
        bowline::execute(pool, move || {
            inside.store(1, SeqCst);
            Self::wait(&inside, 2);
            inside.store(3, SeqCst);
        });
        Self::wait(&phase, 1);
        Busy(phase)
    }

    fn end(self) {
        self.0.store(2, SeqCst);
        Self::wait(&self.0, 3);
    }

    fn wait(phase: &AtomicUsize, until: usize) {
        while phase.load(SeqCst) != until {
            thread::yield_now();
        }
    }
}

/// A run loop with a thread of its own, which no other test uses.
fn elsewhere() -> RunLoopScheduler<'static> {
    let elsewhere = for_good(RunLoop::new());
    thread::spawn(|| elsewhere.run());
    elsewhere.scheduler()
}

type Failure = &'static str;

/// Checks every adaptor, over a leaf that completes with a value, an error and a stop.
fn every_adaptor<S>(crew: &Crew, leaf: impl Fn() -> S + Copy + Send + 'static)
where
    S: Sender<Value = u32, Error = Infallible> + Clone + Send + 'static,
{
    let pool = crew.pool.scheduler();
    let fails = move || {
        leaf()
            .infallible_into::<Failure>()
            .let_value(|_| just_error::<u32, Failure>("no"))
    };
    let stops = move || leaf().let_value(|_| just_stopped::<u32, Infallible>());
    let may_fail = move || leaf().infallible_into::<Failure>();

    crew.expect_none("then", || leaf().then(|x| x + 1));
    crew.expect_none("try_then", || {
        may_fail().try_then(|x| if x == 0 { Err("no") } else { Ok(x) })
    });
    crew.expect_none("upon_error", || fails().upon_error(|_| 1));
    crew.expect_none("upon_stopped", || stops().upon_stopped(|| 1));
    crew.expect_none("map_err", || fails().map_err(str::len));
    crew.expect_none("err_into", || fails().err_into::<std::borrow::Cow<'static, str>>());
    crew.expect_none("infallible_into", may_fail);
    crew.expect_none("into_outcome", || fails().into_outcome());
    crew.expect_none("into_option", || stops().into_option());
    crew.expect_none("stopped_as_option", || stops().stopped_as_option());
    crew.expect_none("stopped_as_error", || {
        stops().infallible_into::<Failure>().stopped_as_error("stopped")
    });
    crew.expect_none("let_value", move || leaf().let_value(move |_| leaf()));
    crew.expect_none("let_error", move || fails().let_error(move |_| leaf()));
    crew.expect_none("let_stopped", move || stops().let_stopped(leaf));
    crew.expect_none("sequence", || leaf().sequence(leaf()));
    crew.expect_none("finally", || fails().finally(leaf().then(|_| ())));
    crew.expect_none("repeat_n", || leaf().then(|_| ()).repeat_n(3));
    crew.expect_none("repeat_until", || {
        let mut left = 3;
        leaf().repeat_until(move |_| {
            left -= 1;
            left == 0
        })
    });
    crew.expect_none("retry", || {
        let left = Arc::new(AtomicUsize::new(3));
        may_fail()
            .try_then(move |x| {
                if left.fetch_sub(1, SeqCst) == 1 {
                    Ok(x)
                } else {
                    Err("again")
                }
            })
            .retry()
    });
    crew.expect_none("retry_if", || {
        let mut left = 3;
        fails().retry_if(move |_| {
            left -= 1;
            left > 0
        })
    });
    crew.expect_none("stop_when", || {
        never::<u32, Infallible>().stop_when(leaf()).stopped_as_option()
    });
    crew.expect_none("timeout", || {
        never::<u32, Infallible>()
            .timeout_on(&crew.timer, Duration::ZERO)
            .stopped_as_option()
    });
    crew.expect_none("with_stop_token", || leaf().with_stop_token(NeverStop));
    crew.expect_none("unstoppable", || leaf().unstoppable());
    crew.expect_none("write_env", || leaf().write_env(With(1_u8)));
    crew.expect_none("starts_on", || starts_on(pool, leaf()));
    crew.expect_none("continues_on", || leaf().continues_on(pool));
    crew.expect_none("on", || leaf().on(pool));
    crew.expect_none("affine", || leaf().affine());
    crew.expect_none("bulk", || leaf().bulk(10, |_, _| {}));
    crew.expect_none("bulk_unchunked", || leaf().bulk_unchunked(10, |_, _| {}));
    crew.expect_none("bulk_chunked", || leaf().bulk_chunked(10, |_, _| {}));
    crew.expect_none("bulk, on the pool", || starts_on(pool, leaf().bulk(1000, |_, _| {})));
    crew.expect_none("when_all", || when_all((leaf(), leaf(), leaf())));
    crew.expect_none("when_all, with an error", || when_all((fails(), may_fail())));
    crew.expect_none("when_any", || when_any((leaf(), never::<u32, Infallible>())));
    crew.expect_none("a stop that nobody sees", stops);

    // These are documented to allocate; the await adds nothing.
    crew.expect(2, "when_all_iter", || when_all_iter((0..3).map(move |_| leaf())));
    crew.expect(1, "when_any_iter", || when_any_iter((0..3).map(move |_| leaf())));
    crew.expect_none("boxed, which has its memory already", || leaf().boxed());
    crew.expect_none("ensure_started, the same", || starts_on(pool, leaf()).ensure_started());
    crew.expect_none("split, the same", || starts_on(pool, leaf()).split());
}

#[test]
fn over_what_completes_inside_start() {
    every_adaptor(&Crew::new(), || just(7));
}

#[test]
fn over_what_completes_in_a_pool() {
    let crew = Crew::new();
    let pool = crew.pool.scheduler();
    every_adaptor(&crew, move || pool.schedule().then(|()| 7));
}

#[test]
fn every_factory_and_schedule_sender() {
    let crew = Crew::new();
    let (pool, timer, elsewhere) = (crew.pool.scheduler(), &crew.timer, crew.elsewhere);
    crew.expect_none("just", || just(1));
    crew.expect_none("just_from", || just_from(|| 1));
    crew.expect_none("just_error", || just_error::<u32, _>("no"));
    crew.expect_none("just_stopped", just_stopped::<u32, Infallible>);
    crew.expect_none("never", || never::<u32, Infallible>().stop_when(just(())));
    crew.expect_none("read_env", || read_env(StopRequested));
    crew.expect_none("from_future, of one that is ready", || from_future(async { 1 }));
    crew.expect_none("the inline scheduler", || InlineScheduler.schedule());
    crew.expect_none("a pool", || pool.schedule());
    crew.expect_none("a pool, less urgent", || {
        pool.with_priority(bowline::Priority::Background).schedule()
    });
    crew.expect_none("a run loop", || elsewhere.schedule());
    crew.expect_none("a timer", || timer.schedule_after(Duration::ZERO));
    crew.expect_none("a timer's scheduler", || timer.scheduler().schedule());
    crew.expect_none("an erased scheduler", || TaskScheduler::new(elsewhere).schedule());
    crew.expect_none("one that cannot fail any more", || elsewhere.or_inline().schedule());
    crew.expect_none("a task", || Task::new(async { 1 }));
    crew.expect_that_of_a_task("a task that waits", || Task::new(async move { pool.schedule().await }));
    crew.expect_none("a task that is a sender", || Task::new(async { 1 }).then(|x| x + 1));
}

#[test]
fn a_task_that_is_resumed_a_thousand_times() {
    let crew = Crew::new();
    let (pool, timer) = (crew.pool.scheduler(), crew.timer.scheduler());
    let (allocations, elsewhere) = (crew.allocations, crew.elsewhere);
    // On a pool, a loop, inline and on a timer.
    let rounds = move |rounds: usize| {
        let timer = timer.clone();
        async move {
            for _ in 0..rounds {
                pool.schedule().await;
                elsewhere.schedule().await;
                let mut woken = false;
                std::future::poll_fn(move |cx| {
                    if std::mem::replace(&mut woken, true) {
                        return std::task::Poll::Ready(());
                    }
                    let waker = cx.waker().clone();
                    waker.wake();
                    std::task::Poll::Pending
                })
                .await;
            }
            for _ in 0..10 {
                timer.schedule_after(Duration::ZERO).await;
            }
        }
    };
    let task = || {
        let rounds = rounds.clone();
        Task::new(async move {
            rounds(2).await;
            let before = allocations.so_far();
            rounds(1000).await;
            allocations.so_far() - before
        })
    };
    for _ in 0..2 {
        // A warm-up for first-time allocations of a thread.
        let counts = [
            sync_wait(task()).unwrap(),
            sync_wait(starts_on(pool, task())).unwrap(),
            sync_wait(starts_on(InlineScheduler, task())).unwrap(),
        ];
        assert_eq!(counts, [0; 3]);
    }
}

#[test]
fn a_local_task_is_one_allocation_and_its_awaits_are_none() {
    let crew = Crew::new();
    let pool = crew.pool.scheduler();
    let allocated = crew.allocations;
    let task = || {
        LocalTask::new(async move {
            let mut before = 0;
            for round in 0..100 {
                if round == 1 {
                    // The task has its blocks from here on.
                    before = allocated.so_far();
                }
                pool.schedule().await;
                let Ok(_) = when_all((just(1), starts_on(pool, just(2)))).await;
            }
            allocated.so_far() - before
        })
    };
    sync_wait(task()).unwrap();
    let (task, made) = allocations(task);
    // The frame is from the thread's slabs. There are none under a sanitizer.
    assert_eq!(
        (made, sync_wait(task).unwrap()),
        (usize::from(cfg!(sanitized = "address")), 0)
    );
}
