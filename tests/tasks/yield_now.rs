//! `task::yield_now`: lets queued work run first.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crate::common::touchy::Touchy;
use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, PoolScheduler, RunLoop, TaskScheduler, ThreadPool};
use bowline::stop::StopSource;
use bowline::task::{LocalTask, Task, yield_now};
use bowline::{Completes, EmptyEnv, Patched, execute};

/// A log of events, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn note(&self, event: &'static str) {
        lock(&self.0).push(event);
    }

    fn events(&self) -> Vec<&'static str> {
        lock(&self.0).clone()
    }
}

/// Runs `body` on pools in which all workers but one are busy, so that one worker runs the queue in order.
fn pools_with_one_free_worker(body: impl Fn(&ThreadPool)) {
    for workers in [1, 2, 8] {
        let pool = ThreadPool::new(workers);
        let _held: Vec<_> = (1..workers).map(|_| hold(pool.scheduler())).collect();
        body(&pool);
    }
}

/// Returns a task that logs its start, queues others on its scheduler, yields twice, and logs its return.
fn makes_way<C: Scheduler + 'static>(scheduler: C, log: Log) -> Task<Vec<&'static str>> {
    Task::new(async move {
        log.note("begin");
        for event in ["first", "second", "third"] {
            let log = log.clone();
            execute(scheduler.clone(), move || log.note(event));
        }
        yield_now().await;
        log.note("back");
        let other = log.clone();
        execute(scheduler.clone(), move || other.note("fourth"));
        yield_now().await;
        log.note("back again");
        log.events()
    })
}

#[test]
fn on_a_run_loop_all_that_is_queued_runs_first() {
    let run_loop = for_good(RunLoop::new());
    let log = Log::default();
    let events = run_loop.run_until(makes_way(run_loop.scheduler(), log)).unwrap();
    let expected = ["begin", "first", "second", "third", "back", "fourth", "back again"];
    assert_eq!(events, expected);
}

#[test]
fn on_a_pool_all_that_the_worker_has_queued_runs_first() {
    pools_with_one_free_worker(|pool| {
        let scheduler = pool.scheduler();
        let events = sync_wait(starts_on(scheduler, makes_way(scheduler, Log::default()))).unwrap();
        // The entry queued last is in the slot, and would have been next.
        let before = |a, b| {
            let at = |event| events.iter().position(|noted| *noted == event);
            assert!(at(a) < at(b), "{a} before {b}: {events:?}");
        };
        for event in ["first", "second", "third"] {
            before(event, "back");
        }
        before("fourth", "back again");
        assert_eq!(events.len(), 7);
    });
}

/// Queues work on a pool from a thread that is not one of its workers.
fn queue_from_outside(scheduler: PoolScheduler, work: impl FnOnce() + Send + 'static) {
    thread::scope(|scope| {
        scope.spawn(move || execute(scheduler, work));
    });
}

#[test]
fn on_a_pool_what_came_from_outside_runs_first() {
    pools_with_one_free_worker(|pool| {
        let scheduler = pool.scheduler();
        let log = Log::default();
        let inside = log.clone();
        let task = Task::new(async move {
            for event in ["first", "second"] {
                let log = inside.clone();
                queue_from_outside(scheduler, move || log.note(event));
            }
            let log = inside.clone();
            execute(scheduler, move || log.note("own"));
            yield_now().await;
            inside.note("back");
        });
        sync_wait(starts_on(scheduler, task)).unwrap();
        let events = log.events();
        assert_eq!((events.len(), events.last()), (4, Some(&"back")), "{events:?}");
    });
}

#[test]
fn on_a_pool_those_that_make_way_take_turns() {
    pools_with_one_free_worker(|pool| {
        let scheduler = pool.scheduler();
        let log = Log::default();
        let turns = |name: &'static str| {
            let log = log.clone();
            Task::new(async move {
                for _ in 0..20 {
                    log.note(name);
                    yield_now().await;
                }
            })
        };
        let both = when_all((turns("a"), turns("b")));
        sync_wait(starts_on(scheduler, both)).unwrap();
        let events = log.events();
        assert_eq!(events.len(), 40);
        // Either may begin; after that they alternate.
        assert!(events.windows(2).all(|two| two[0] != two[1]), "{events:?}");
    });
}

#[test]
fn at_every_priority_what_is_queued_there_runs_first() {
    let levels = [
        Priority::Background,
        Priority::Utility,
        Priority::Default,
        Priority::UserInitiated,
        Priority::UserInteractive,
    ];
    pools_with_one_free_worker(|pool| {
        for level in levels {
            let scheduler = pool.scheduler().with_priority(level);
            let log = Log::default();
            let inside = log.clone();
            let task = Task::new(async move {
                let log = inside.clone();
                execute(scheduler, move || log.note("other"));
                yield_now().await;
                inside.note("back");
            });
            sync_wait(starts_on(scheduler, task)).unwrap();
            assert_eq!(log.events(), ["other", "back"], "{level:?}");
        }
    });
}

#[test]
fn who_waits_for_a_flag_lets_it_be_set() {
    let body = |scheduler: TaskScheduler<'static>| {
        Task::new(async move {
            for _ in 0..100 {
                let flag = Arc::new(AtomicBool::new(false));
                let other = flag.clone();
                execute(scheduler.clone(), move || other.store(true, SeqCst));
                while !flag.load(SeqCst) {
                    yield_now().await;
                }
            }
        })
    };
    for workers in [1, 2, 8] {
        let pool = ThreadPool::new(workers);
        let scheduler = TaskScheduler::new(pool.scheduler());
        sync_wait(starts_on(pool.scheduler(), body(scheduler))).unwrap();
    }
    let run_loop = for_good(RunLoop::new());
    let scheduler = TaskScheduler::new(run_loop.scheduler());
    run_loop.run_until(body(scheduler)).unwrap();
}

#[test]
fn goes_on_where_it_was() {
    for workers in [1, 2, 8] {
        let pool = Arc::new(ThreadPool::new(workers));
        let task = Task::new({
            let pool = pool.clone();
            async move {
                for _ in 0..1_000 {
                    yield_now().await;
                    assert!(pool.worker_index().is_some());
                }
            }
        });
        sync_wait(starts_on(pool.scheduler(), task)).unwrap();
    }
    let home = thread::current().id();
    let task = LocalTask::new(async move {
        let kept = std::rc::Rc::new(());
        for _ in 0..1_000 {
            yield_now().await;
            assert_eq!(thread::current().id(), home);
        }
        drop(kept);
    });
    sync_wait(task).unwrap();
}

#[test]
fn without_a_task_it_is_a_sender_of_its_scheduler() {
    assert_eq!(completes(&yield_now()), Completes::OnStartScheduler);
    let run_loop = for_good(RunLoop::new());
    let log = Log::default();
    let (queued, inside) = (log.clone(), log.clone());
    let work = just_from(move || execute(run_loop.scheduler(), move || queued.note("queued")))
        .let_value(|()| yield_now())
        .then(move |()| inside.note("back"));
    run_loop.run_until(work).unwrap();
    assert_eq!(log.events(), ["queued", "back"]);
    // Nothing else is queued.
    let inline = yield_now().then(|()| 1).write_env(WithScheduler(InlineScheduler));
    assert_eq!(sync_wait(inline).unwrap(), 1);
}

#[test]
fn a_stop_that_was_requested_before_stops_it() {
    for workers in [1, 2, 8] {
        let pool = ThreadPool::new(workers);
        let source = StopSource::new();
        let after = Arc::new(AtomicUsize::new(0));
        let task = Task::new({
            let (source, after) = (source.clone(), after.clone());
            async move {
                yield_now().await;
                source.request_stop();
                let stopped = yield_now().stopped_as_option().await;
                assert_eq!(stopped, Ok(None));
                after.fetch_add(1, SeqCst);
                yield_now().await;
                after.fetch_add(1, SeqCst);
            }
        });
        let outcome = sync_wait(starts_on(pool.scheduler(), task).write_env(WithStopToken(source.token())));
        assert!(outcome.is_stopped());
        assert_eq!(after.load(SeqCst), 1);
    }
    // Whether the scheduler checks the token or not.
    for scheduler in [
        TaskScheduler::new(InlineScheduler),
        TaskScheduler::new(HandleScheduler(Arc::new(()))),
    ] {
        let source = StopSource::new();
        source.request_stop();
        let env = Patched::new(WithStopToken(source.token()), EmptyEnv);
        let (record, recorded) = Record::in_env(Patched::new(WithScheduler(scheduler), env));
        submit(yield_now(), record);
        assert_eq!(recorded.try_recv(), Ok(Recorded::Stopped));
    }
}

#[test]
fn a_stop_while_it_is_queued_stops_it_in_its_turn() {
    let run_loop = RunLoop::new();
    let source = StopSource::new();
    let env = Patched::new(WithStopToken(source.token()), EmptyEnv);
    let (record, recorded) = Record::in_env(Patched::new(WithScheduler(run_loop.scheduler()), env));
    let mut slot = std::pin::pin!(yield_now().connect(record));
    // SAFETY: the operation is pinned, started once, and completes before the end of this function.
    unsafe { bowline::Operation::start(slot.as_mut()) }.run();
    source.request_stop();
    assert!(recorded.try_recv().is_err());
    assert_eq!(run_loop.run_ready(), 1);
    assert_eq!(recorded.recv(), Ok(Recorded::Stopped));
}

#[test]
fn dropping_it_in_flight_is_safe() {
    for workers in [1, 2, 8] {
        let pool = ThreadPool::new(workers);
        let task = Task::new(async {
            for _ in 0..100 {
                let mut yielding = Box::pin(yield_now().into_future());
                std::future::poll_fn(|context| {
                    let _ = yielding.as_mut().poll(context);
                    Poll::Ready(())
                })
                .await;
                drop(yielding);
            }
            1
        });
        assert_eq!(sync_wait(starts_on(pool.scheduler(), task)).unwrap(), 1);
    }
}

/// A counter of wake-ups.
#[derive(Default)]
struct CountWakes(AtomicUsize);

impl Wake for CountWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Polls by hand, and asserts that each round is pending once, and has woken.
fn pends(rounds: usize, future: impl Future<Output = ()>) {
    let mut future = pin!(future);
    let wakes = Arc::new(CountWakes::default());
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    for round in 1..=rounds {
        assert_eq!(future.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(wakes.0.load(SeqCst), round);
    }
    assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(()));
    assert_eq!(wakes.0.load(SeqCst), rounds);
}

#[test]
fn in_another_executor_it_wakes_and_is_pending_once() {
    pends(1, async {
        yield_now().await;
    });
    pends(3, async {
        for _ in 0..3 {
            yield_now().await;
        }
    });
    // In an awaited task, and in an awaited sender.
    pends(3, async {
        let task = Task::new(async {
            for _ in 0..3 {
                yield_now().await;
            }
        });
        let Ok(()) = task.await;
    });
    pends(2, async {
        let Ok(()) = yield_now().let_value(|()| yield_now()).await;
    });
}

#[test]
fn in_another_executor_it_is_dropped_in_flight() {
    let census = Census::new();
    let counted = census.value();
    let mut future = Box::pin(async move {
        let Ok(()) = yield_now().then(move |()| drop(counted)).await;
    });
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(future.as_mut().poll(&mut context), Poll::Pending);
    drop(future);
    assert_eq!(census.alive(), 0);
}

#[test]
fn in_another_executor_others_run_first() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let log = Log::default();
    let turns = |name: &'static str| {
        let log = log.clone();
        async move {
            for _ in 0..3 {
                log.note(name);
                yield_now().await;
            }
        }
    };
    runtime.block_on(async {
        let (a, b) = (runtime.spawn(turns("a")), runtime.spawn(turns("b")));
        a.await.expect("it does not panic");
        b.await.expect("it does not panic");
    });
    assert_eq!(log.events(), ["a", "b", "a", "b", "a", "b"]);
}

#[test]
fn allocates_nothing_in_a_task() {
    let rounds = |times: usize| {
        Task::new(async move {
            // The frame allocates its block when it first suspends.
            yield_now().await;
            let before = allocations_so_far();
            for _ in 0..times {
                yield_now().await;
            }
            allocations_so_far() - before
        })
    };
    assert_eq!(sync_wait(rounds(100)).unwrap(), 0);
    for workers in [1, 2, 8] {
        let crew = CrewAllocations::new();
        let pool = ThreadPool::builder()
            .threads(workers)
            .on_start(move |_| crew.join())
            .build()
            .expect("a pool");
        let task = Task::new(async move {
            yield_now().await;
            let before = crew.so_far();
            for _ in 0..1_000 {
                yield_now().await;
            }
            crew.so_far() - before
        });
        assert_eq!(sync_wait(starts_on(pool.scheduler(), task)).unwrap(), 0, "{workers}");
    }
}

#[test]
fn a_million_times_in_a_small_stack() {
    fn rounds() -> Task<usize> {
        Task::new(async {
            let mut rounds = 0;
            for _ in 0..ROUNDS {
                yield_now().await;
                rounds += 1;
            }
            rounds
        })
    }
    assert_eq!(with_stack(SMALL_STACK, || sync_wait(rounds()).unwrap()), ROUNDS);
    let inline = || sync_wait(rounds().write_env(WithScheduler(InlineScheduler))).unwrap();
    assert_eq!(with_stack(SMALL_STACK, inline), ROUNDS);
    for workers in [1, 2, 8] {
        let pool = ThreadPool::builder()
            .threads(workers)
            .stack_size(SMALL_STACK)
            .build()
            .expect("a pool");
        assert_eq!(sync_wait(starts_on(pool.scheduler(), rounds())).unwrap(), ROUNDS);
    }
    let repeated = || sync_wait(yield_now().repeat_until(million())).unwrap();
    with_stack(SMALL_STACK, repeated);
}

#[test]
fn a_panic_in_schedule_is_the_completion() {
    let census = Census::new();
    let touchy = || Touchy::<0>::new("schedule", &census);
    let work = yield_now().write_env(WithScheduler(touchy()));
    assert_eq!(panic_message(|| sync_wait(work)), "in schedule");
    let erased = yield_now().write_env(WithScheduler(TaskScheduler::new(touchy())));
    assert_eq!(panic_message(|| sync_wait(erased)), "in schedule");
    // In a task it unwinds from the `.await`.
    let task = Task::new(async move {
        yield_now().await;
    });
    assert_eq!(
        panic_message(|| sync_wait(task.write_env(WithScheduler(touchy())))),
        "in schedule"
    );
    assert_eq!(census.alive(), 0);
}

/// A wrapper that exposes the queue of the inner scheduler every other time.
#[derive(Clone)]
struct Fickle<S>(S, Arc<AtomicUsize>);

impl<S: PartialEq> PartialEq for Fickle<S> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<S: Scheduler> Scheduler for Fickle<S> {
    type Schedule = S::Schedule;
    const INFALLIBLE: bool = S::INFALLIBLE;

    fn schedule(&self) -> S::Schedule {
        self.0.schedule()
    }

    fn native(&self) -> Option<bowline::sender::Native<'_>> {
        if self.1.fetch_add(1, SeqCst).is_multiple_of(2) {
            self.0.native()
        } else {
            None
        }
    }
}

#[test]
fn a_wrapper_that_forwards_its_queue_makes_way_there() {
    pools_with_one_free_worker(|pool| {
        let log = Log::default();
        let scheduler = Fickle(pool.scheduler(), Arc::default());
        let task = Task::new(async move {
            for _ in 0..100 {
                yield_now().await;
            }
        });
        let outcome = sync_wait(starts_on(scheduler.clone(), task));
        assert!(outcome.is_value());
        assert!(sync_wait(starts_on(scheduler.clone(), makes_way(scheduler, log))).is_value());
    });
}
