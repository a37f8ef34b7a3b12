//! Closures that block, on threads beside the workers of a `ThreadPool`.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{HostedScheduler, PoolScheduler, RunLoop, ThreadPool};
use bowline::stop::{InplaceStopToken, StopSource, with_callback};
use bowline::task::{self, Task};

/// The number of queued closures.
const MANY: usize = if cfg!(sanitized) { 500 } else { 10_000 };

/// Returns a pool with so many workers, and at most so many threads for closures.
fn pool(workers: usize, blocking: usize) -> ThreadPool {
    ThreadPool::builder()
        .threads(workers)
        .blocking_threads(blocking)
        .build()
        .unwrap()
}

/// Waits until another thread makes `done` true.
fn eventually(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come about");
        thread::yield_now();
    }
}

/// A closure that keeps a thread of the pool until this is dropped.
struct Occupied {
    release: Option<mpsc::Sender<()>>,
    ended: mpsc::Receiver<Recorded<(), Infallible>>,
}

impl Occupied {
    /// Returns once the closure runs.
    fn new(scheduler: PoolScheduler) -> Self {
        let (arrived, arrives) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let (record, ended) = Record::new();
        let closure = move |_: InplaceStopToken<'_>| {
            arrived.send(()).unwrap();
            // Returns when the sender is dropped.
            let _ = released.recv();
        };
        submit(scheduler.spawn_blocking(closure), record);
        arrives.recv().unwrap();
        Occupied {
            release: Some(release),
            ended,
        }
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.release.take();
        assert_eq!(self.ended.recv().unwrap(), Recorded::Value(()));
    }
}

// Where a closure runs.

#[test]
fn a_closure_runs_beside_the_workers() {
    let pool = pool(1, 4);
    // The only worker is busy all the time.
    let held = hold(pool.scheduler());
    let (name, index) = sync_wait(pool.scheduler().spawn_blocking(|_| {
        let name = thread::current().name().map(str::to_owned);
        (name, pool.worker_index())
    }))
    .unwrap();
    assert_eq!(name.as_deref(), Some("bowline-0-blocking-0"));
    assert_eq!(index, None);
    assert_eq!((pool.blocking_threads(), pool.spare_threads()), (1, 0));
    drop(held);
}

#[test]
fn a_closure_that_blocks_leaves_the_workers_alone() {
    let pool = pool(1, 2);
    let occupied = [Occupied::new(pool.scheduler()), Occupied::new(pool.scheduler())];
    assert_eq!(pool.install(|| 7), 7);
    assert_eq!(pool.blocking_threads(), 2);
    drop(occupied);
}

#[test]
fn a_task_uses_the_pool_that_it_runs_on() {
    let pool = ThreadPool::builder()
        .threads(2)
        .names(|index| format!("baker-{index}"))
        .build()
        .unwrap();
    let name = |_: InplaceStopToken<'_>| thread::current().name().map(str::to_owned);
    let task = Task::new(async move {
        let before = task::spawn_blocking(name).await;
        let inside = task::group(async |group| {
            group.spawn(async move { task::spawn_blocking(name).await });
            group.next().await
        })
        .await;
        // The task continues on its own scheduler.
        (before, inside, thread::current().name().map(str::to_owned))
    });
    let (before, inside, after) = sync_wait(starts_on(pool.scheduler(), task)).unwrap();
    assert!(before.unwrap().starts_with("baker-0-blocking-"));
    assert!(inside.unwrap().unwrap().starts_with("baker-0-blocking-"));
    assert!(["baker-0", "baker-1"].contains(&after.unwrap().as_str()));
}

#[test]
fn work_without_a_pool_uses_the_global_one() {
    let name = |_: InplaceStopToken<'_>| thread::current().name().map(str::to_owned).unwrap_or_default();
    let global = |name: String| assert!(name.contains("-blocking-") && name.starts_with("bowline-0"), "{name}");
    // Without a scheduler, on a run loop, and on the queue of another executor.
    global(sync_wait(task::spawn_blocking(name)).unwrap());
    let run_loop = RunLoop::new();
    global(run_loop.run_until(task::spawn_blocking(name)).unwrap());
    global(task::block_on(async move { task::spawn_blocking(name).await }));
    let (scheduler, drivers) = HostedScheduler::new(1);
    let hosted = starts_on(scheduler, Task::new(async move { task::spawn_blocking(name).await }));
    let (record, ended) = Record::new();
    submit(hosted, record);
    let run = thread::spawn(move || {
        for driver in drivers {
            pollster::block_on(driver);
        }
    });
    let Recorded::Value(hosted) = ended.recv().unwrap() else {
        panic!("no name");
    };
    global(hosted);
    drop(run);
}

#[test]
fn a_closure_may_borrow() {
    let pool = pool(1, 2);
    let words = [String::from("hold"), String::from("fast")];
    let mut longest = 0;
    sync_wait(
        pool.scheduler()
            .spawn_blocking(|_| longest = words.iter().map(String::len).max().unwrap_or(0)),
    )
    .unwrap();
    assert_eq!(longest, 4);
}

#[test]
fn it_composes_with_adaptors() {
    let pool = pool(2, 2);
    let scheduler = pool.scheduler();
    let parsed = scheduler
        .spawn_blocking(|_| "40".parse::<i32>())
        .infallible_into()
        .try_then(|parsed| parsed);
    let sum = when_all((
        scheduler.spawn_blocking(|_| 1).then(|n| n + 1).infallible_into(),
        parsed,
    ))
    .continues_on(scheduler)
    .then(|(a, b)| (a + b, pool.worker_index().is_some()));
    let sum = sync_wait(sum);
    assert_eq!(sum.unwrap(), (42, true));
}

// The threads.

#[test]
fn the_number_of_threads_is_bounded_and_all_closures_run() {
    let pool = pool(2, 3);
    let (running, most, threads) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(HashSet::new()));
    let closures = (0..MANY).map(|n| {
        let (running, most, threads) = (&running, &most, &threads);
        pool.scheduler().spawn_blocking(move |_| {
            most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
            if n % 64 == 0 {
                lock(threads).insert(thread::current().id());
                thread::yield_now();
            }
            running.fetch_sub(1, SeqCst);
            n
        })
    });
    let all = sync_wait(when_all_iter(closures.collect::<Vec<_>>())).unwrap();
    assert!(all.into_iter().eq(0..MANY));
    assert!(most.load(SeqCst) <= 3);
    assert!(lock(&threads).len() <= 3);
    assert!(pool.blocking_threads() <= 3);
}

#[test]
fn queued_closures_begin_in_order() {
    let pool = pool(1, 1);
    let order = Order::default();
    let occupied = Occupied::new(pool.scheduler());
    for n in 0..100 {
        let noted = note(&order, n);
        start_detached(pool.scheduler().spawn_blocking(move |_| noted()));
    }
    drop(occupied);
    drop(pool);
    assert!(taken(order).into_iter().eq(0..100));
}

#[test]
fn a_thread_is_reused() {
    let pool = pool(1, 1);
    let id = |_: InplaceStopToken<'_>| thread::current().id();
    let first = sync_wait(pool.scheduler().spawn_blocking(id)).unwrap();
    for _ in 0..50 {
        assert_eq!(sync_wait(pool.scheduler().spawn_blocking(id)).unwrap(), first);
    }
    assert_eq!(pool.blocking_threads(), 1);
}

#[test]
fn an_idle_thread_ends_and_its_number_is_reused() {
    let census = Census::new();
    thread_local!(static PRESENT: std::cell::RefCell<Option<Counted>> = const { std::cell::RefCell::new(None) });
    let counted = census.clone();
    let pool = ThreadPool::builder()
        .threads(1)
        .blocking_keep_alive(Duration::ZERO)
        .on_start(move |_| PRESENT.with(|present| *present.borrow_mut() = Some(counted.value())))
        .build()
        .unwrap();
    for _ in 0..20 {
        let name = sync_wait(
            pool.scheduler()
                .spawn_blocking(|_| thread::current().name().map(str::to_owned)),
        );
        assert_eq!(name.unwrap().as_deref(), Some("bowline-0-blocking-0"));
        eventually(|| pool.blocking_threads() == 0);
    }
    // The worker, at most.
    eventually(|| census.alive() == 1);
    drop(pool);
    assert_eq!(census.alive(), 0);
}

/// The thread-local values of closures are dropped when their thread has left: the pool that one of them owns does not wait for it.
#[test]
fn a_pool_that_a_thread_local_value_of_a_closure_owns_ends_with_its_thread() {
    thread_local!(static OWNS: std::cell::RefCell<Option<Arc<ThreadPool>>> = const { std::cell::RefCell::new(None) });
    let census = Census::new();
    let counted = census.value();
    let pool = Arc::new(
        ThreadPool::builder()
            .threads(1)
            .blocking_keep_alive(Duration::from_millis(20))
            .on_start(move |_| _ = &counted)
            .build()
            .unwrap(),
    );
    let scheduler = pool.scheduler();
    let owns = scheduler.spawn_blocking(move |_| OWNS.with(|owned| *owned.borrow_mut() = Some(pool)));
    sync_wait(owns).unwrap();
    // The pool drops its configuration when its last thread has left.
    eventually(|| census.alive() == 0);
}

#[test]
fn a_thread_that_is_kept_for_ever_ends_with_the_pool() {
    let census = Census::new();
    thread_local!(static PRESENT: std::cell::RefCell<Option<Counted>> = const { std::cell::RefCell::new(None) });
    let counted = census.clone();
    let pool = ThreadPool::builder()
        .threads(2)
        .blocking_keep_alive(Duration::MAX)
        .on_start(move |_| PRESENT.with(|present| *present.borrow_mut() = Some(counted.value())))
        .build()
        .unwrap();
    let occupied: Vec<_> = (0..5).map(|_| Occupied::new(pool.scheduler())).collect();
    drop(occupied);
    assert_eq!((pool.blocking_threads(), census.alive()), (5, 7));
    drop(pool);
    assert_eq!(census.alive(), 0);
}

#[test]
fn zero_threads_count_as_one() {
    let pool = pool(1, 0);
    assert_eq!(sync_wait(pool.scheduler().spawn_blocking(|_| 1)).unwrap(), 1);
    assert_eq!(pool.blocking_threads(), 1);
}

#[test]
fn the_hooks_of_the_builder_see_the_threads() {
    let started = Arc::new(Mutex::new(Vec::new()));
    let around = Arc::new(AtomicUsize::new(0));
    let pool = ThreadPool::builder()
        .threads(1)
        .spare_threads(3)
        .on_start({
            let started = started.clone();
            move |index| lock(&started).push(index)
        })
        .around({
            let around = around.clone();
            move |_, run| {
                around.fetch_add(1, SeqCst);
                run();
                around.fetch_sub(1, SeqCst);
            }
        })
        .build()
        .unwrap();
    assert_eq!(
        sync_wait(pool.scheduler().spawn_blocking(|_| around.load(SeqCst))).unwrap(),
        2
    );
    drop(pool);
    assert_eq!(*lock(&started), [0, 4]);
    assert_eq!(around.load(SeqCst), 0);
}

#[test]
fn a_thread_whose_hooks_fail_works_nevertheless() {
    for panics in [false, true] {
        let pool = ThreadPool::builder()
            .threads(1)
            .spare_threads(0)
            .around(move |index, run| match index {
                0 => run(),
                _ if panics => quiet_panic(),
                _ => {}
            })
            .build()
            .unwrap();
        assert_eq!(sync_wait(pool.scheduler().spawn_blocking(|_| 3)).unwrap(), 3);
    }
}

// Panics.

#[test]
fn a_panic_is_the_completion_and_the_thread_goes_on() {
    let pool = pool(1, 1);
    let closure = |_: InplaceStopToken<'_>| -> thread::ThreadId { panic!("blocked too long") };
    assert_eq!(
        panic_message(|| sync_wait(pool.scheduler().spawn_blocking(closure))),
        "blocked too long"
    );
    assert_eq!(sync_wait(pool.scheduler().spawn_blocking(|_| 2)).unwrap(), 2);
    assert_eq!(pool.blocking_threads(), 1);
    let task = Task::new(async { task::spawn_blocking(|_| -> i32 { panic!("in a task") }).await });
    assert_eq!(
        panic_message(|| sync_wait(starts_on(pool.scheduler(), task))),
        "in a task"
    );
}

// Cancellation.

#[test]
fn a_closure_that_waits_is_dropped_uncalled() {
    let pool = pool(1, 1);
    let occupied = Occupied::new(pool.scheduler());
    let census = Census::new();
    let (source, called) = (StopSource::new(), Arc::new(AtomicBool::new(false)));
    let ends: Vec<_> = (0..10)
        .map(|_| {
            let (record, ended) =
                Record::in_env(bowline::Patched::new(WithStopToken(source.token()), bowline::EmptyEnv));
            let (owned, called) = (census.value(), called.clone());
            let closure = move |_: InplaceStopToken<'_>| {
                let _owned = owned;
                called.store(true, SeqCst);
            };
            submit(pool.scheduler().spawn_blocking(closure), record);
            ended
        })
        .collect();
    let behind = Order::default();
    let noted = note(&behind, 1);
    start_detached(pool.scheduler().spawn_blocking(move |_| noted()));
    assert_eq!(census.alive(), 10);
    source.request_stop();
    // They have completed here, while the thread is still occupied.
    for ended in ends {
        assert_eq!(ended.try_recv().unwrap(), Recorded::Stopped);
    }
    assert_eq!(census.alive(), 0);
    drop(occupied);
    drop(pool);
    assert!(!called.load(SeqCst));
    assert_eq!(taken(behind), [1]);
}

#[test]
fn a_closure_that_runs_is_told_and_awaited() {
    let pool = pool(1, 1);
    let source = StopSource::new();
    let (begun, begins) = mpsc::channel();
    let closure = move |token: InplaceStopToken<'_>| {
        begun.send(token.stop_requested()).unwrap();
        while !token.stop_requested() {
            thread::yield_now();
        }
        "ended by itself"
    };
    let result = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            sync_wait(
                pool.scheduler()
                    .spawn_blocking(closure)
                    .write_env(WithStopToken(source.token())),
            )
        });
        assert!(!begins.recv().unwrap());
        source.request_stop();
        waiting.join().unwrap()
    });
    assert_eq!(result.unwrap(), "ended by itself");
}

#[test]
fn a_callback_of_the_token_interrupts_the_closure() {
    let pool = pool(1, 1);
    let source = StopSource::new();
    let (sender, receiver) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel();
    let closure = move |token: InplaceStopToken<'_>| {
        with_callback(
            token,
            || drop(sender),
            || {
                begun.send(()).unwrap();
                receiver.recv().is_err()
            },
        )
    };
    let (record, ended) = Record::in_env(bowline::Patched::new(WithStopToken(source.token()), bowline::EmptyEnv));
    submit(pool.scheduler().spawn_blocking(closure), record);
    begins.recv().unwrap();
    source.request_stop();
    assert_eq!(ended.recv().unwrap(), Recorded::Value(true));
}

#[test]
fn a_stop_before_the_start_calls_nothing() {
    let pool = pool(1, 1);
    let source = StopSource::new();
    source.request_stop();
    let closure = |_: InplaceStopToken<'_>| panic!("called");
    let stopped = pool
        .scheduler()
        .spawn_blocking(closure)
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(stopped).is_stopped());
    assert_eq!(pool.blocking_threads(), 0);
}

#[test]
fn a_closure_may_request_its_own_stop() {
    let pool = pool(1, 1);
    let source = StopSource::new();
    let closure = |token: InplaceStopToken<'_>| {
        source.request_stop();
        token.stop_requested()
    };
    let own = pool
        .scheduler()
        .spawn_blocking(closure)
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(own).unwrap());
}

#[test]
fn a_stop_races_with_the_begin() {
    let pool = pool(1, 2);
    for round in 0..if cfg!(sanitized) { 100 } else { 2_000 } {
        let (source, calls) = (StopSource::new(), Arc::new(AtomicUsize::new(0)));
        let (record, ended) = Record::in_env(bowline::Patched::new(WithStopToken(source.token()), bowline::EmptyEnv));
        let count = calls.clone();
        let closure = move |_: InplaceStopToken<'_>| count.fetch_add(1, SeqCst);
        let together = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                for _ in 0..round % 64 {
                    std::hint::spin_loop();
                }
                source.request_stop();
            });
            together.wait();
            submit(pool.scheduler().spawn_blocking(closure), record);
        });
        match ended.recv().unwrap() {
            Recorded::Value(before) => assert_eq!((before, calls.load(SeqCst)), (0, 1)),
            Recorded::Stopped => assert_eq!(calls.load(SeqCst), 0),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_cancelled_group_awaits_its_closures() {
    let pool = pool(2, 1);
    let (begun, begins) = mpsc::channel();
    let (told, waits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let census = Census::new();
    let task = Task::new({
        let (told, waits) = (told.clone(), waits.clone());
        let (owned, dropped) = (census.value(), census.clone());
        async move {
            task::group(async move |group| {
                group.spawn(async move {
                    task::spawn_blocking(move |token| {
                        begun.send(()).unwrap();
                        // The other one is dropped while this one keeps the only thread.
                        eventually(|| token.stop_requested() && dropped.alive() == 0);
                        told.store(true, SeqCst);
                    })
                    .await;
                });
                begins.recv().unwrap();
                // Behind the first, since there is one thread.
                let closure = move |_: InplaceStopToken<'_>| {
                    waits.store(true, SeqCst);
                    drop(owned);
                };
                group.spawn(async move { task::spawn_blocking(closure).await });
                task::yield_now().await;
                group.cancel_all();
            })
            .await;
        }
    });
    sync_wait(starts_on(pool.scheduler(), task)).unwrap();
    assert!(told.load(SeqCst));
    assert!(!waits.load(SeqCst));
}

#[test]
fn an_await_that_is_dropped_in_flight_is_stopped_and_awaited_by_its_task() {
    use std::future::Future;
    use std::task::Poll;

    let pool = pool(1, 1);
    let ended = Arc::new(AtomicBool::new(false));
    let task = Task::new({
        let ended = ended.clone();
        async move {
            let (begun, begins) = mpsc::channel();
            let mut waiting = Box::pin(
                task::spawn_blocking(move |token| {
                    begun.send(()).unwrap();
                    while !token.stop_requested() {
                        thread::yield_now();
                    }
                    ended.store(true, SeqCst);
                })
                .into_future(),
            );
            std::future::poll_fn(|cx| {
                assert!(waiting.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            begins.recv().unwrap();
            drop(waiting);
        }
    });
    sync_wait(starts_on(pool.scheduler(), task)).unwrap();
    assert!(ended.load(SeqCst));
}

#[test]
fn a_sender_that_is_never_started_drops_its_closure() {
    let census = Census::new();
    let owned = census.value();
    let sender = task::spawn_blocking(move |_| drop(owned));
    assert_eq!(census.alive(), 1);
    drop(sender);
    assert_eq!(census.alive(), 0);
}

// Closures that use the library.

#[test]
fn a_closure_waits_for_its_pool() {
    let pool = pool(1, 2);
    let scheduler = pool.scheduler();
    let outer = scheduler.spawn_blocking(|_| {
        let on_a_worker = sync_wait(scheduler.schedule().then(|()| pool.worker_index())).unwrap();
        let inner = sync_wait(scheduler.spawn_blocking(|_| 5)).unwrap();
        let (a, b) = bowline::join(|| 1, || 2);
        // Still no worker.
        (on_a_worker, inner, a + b, pool.worker_index())
    });
    assert_eq!(sync_wait(outer).unwrap(), (Some(0), 5, 3, None));
}

#[test]
fn a_worker_waits_for_a_closure() {
    let pool = pool(1, 1);
    let scheduler = pool.scheduler();
    let answer = pool.install(|| {
        let on_the_pool = scheduler.spawn_blocking(|_| sync_wait(scheduler.schedule().then(|()| 8)).unwrap());
        sync_wait(on_the_pool).unwrap()
    });
    assert_eq!(answer, 8);
}

// The end of the pool.

#[test]
fn the_drop_of_a_pool_waits_for_running_and_queued_closures() {
    for workers in [1, 3] {
        let pool = pool(workers, 2);
        let occupied = [Occupied::new(pool.scheduler()), Occupied::new(pool.scheduler())];
        let (ran, later) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let scheduler = pool.scheduler();
        for _ in 0..100 {
            let (ran, later) = (ran.clone(), later.clone());
            let closure = scheduler.spawn_blocking(move |_| ran.fetch_add(1, SeqCst));
            // The jobs that follow from a closure run on the pool, too.
            start_detached(closure.continues_on(scheduler).then(move |_| {
                later.fetch_add(1, SeqCst);
            }));
        }
        let dropped = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                drop(pool);
                assert_eq!((ran.load(SeqCst), later.load(SeqCst)), (100, 100));
                dropped.store(true, SeqCst);
            });
            for _ in 0..100 {
                thread::yield_now();
            }
            assert!(!dropped.load(SeqCst));
            assert_eq!(ran.load(SeqCst), 0);
            drop(occupied);
        });
        assert!(dropped.load(SeqCst));
    }
}

#[test]
fn a_closure_queues_another_while_the_pool_is_being_dropped() {
    fn chain(scheduler: PoolScheduler, left: usize, ran: Arc<AtomicUsize>) {
        if left > 0 {
            start_detached(scheduler.spawn_blocking(move |_| {
                ran.fetch_add(1, SeqCst);
                chain(scheduler, left - 1, ran);
            }));
        }
    }
    let ran = Arc::new(AtomicUsize::new(0));
    let pool = pool(2, 2);
    let occupied = Occupied::new(pool.scheduler());
    chain(pool.scheduler(), 50, ran.clone());
    thread::scope(|scope| {
        scope.spawn(|| drop(pool));
        drop(occupied);
    });
    assert_eq!(ran.load(SeqCst), 50);
}

#[test]
fn a_closure_drops_its_own_pool() {
    let census = Census::new();
    let pool = census_pool(2, &census);
    let scheduler = pool.scheduler();
    let (record, ended) = Record::<_, Infallible>::new();
    submit(
        scheduler.spawn_blocking(move |_| {
            drop(pool);
            6
        }),
        record,
    );
    assert_eq!(ended.recv().unwrap(), Recorded::Value(6));
    eventually(|| census.alive() == 0);
}

#[test]
fn an_ended_pool_leaves_its_closures_to_the_global_one() {
    let pool = ThreadPool::builder()
        .threads(1)
        .names(|_| "gone".to_owned())
        .build()
        .unwrap();
    let scheduler = pool.scheduler();
    drop(pool);
    let name = sync_wait(scheduler.spawn_blocking(|_| thread::current().name().map(str::to_owned)));
    assert!(name.unwrap().unwrap().starts_with("bowline-0-blocking-"));
}

#[test]
fn a_later_pool_in_the_same_memory_is_another_pool() {
    // Closures are started by handles of pools that end at the same time.
    let ran = Arc::new(AtomicUsize::new(0));
    let rounds = if cfg!(sanitized) { 30 } else { 300 };
    for _ in 0..rounds {
        let pool = pool(1, 2);
        let scheduler = pool.scheduler();
        thread::scope(|scope| {
            scope.spawn(|| drop(pool));
            for _ in 0..2 {
                scope.spawn(|| {
                    sync_wait(scheduler.spawn_blocking(|_| ran.fetch_add(1, SeqCst))).unwrap();
                });
            }
        });
    }
    assert_eq!(ran.load(SeqCst), 2 * rounds);
}

// The cost.

#[test]
fn a_call_does_not_allocate() {
    let crew = CrewAllocations::new();
    let pool = ThreadPool::builder()
        .threads(1)
        .blocking_threads(1)
        .on_start(move |_| crew.join())
        .build()
        .unwrap();
    crew.join();
    let call = || sync_wait(pool.scheduler().spawn_blocking(|_| 1)).unwrap();
    // The first call starts the thread, which then has its handle.
    let calls = || assert_eq!((0..100).map(|_| call()).sum::<i32>(), 100);
    assert_eq!(settles_at(0, || crew.during(calls).1), 0);
}
