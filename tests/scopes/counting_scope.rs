//! `CountingScope`: work that is counted, stopped together and joined.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop, TaskScheduler, ThreadPool};
use bowline::scope::ScopeToken;
use bowline::stop::StopSource;
use bowline::task::Task;

/// Returns work that counts on the scheduler.
fn count_on(
    scheduler: &TaskScheduler<'static>,
    count: &Arc<AtomicUsize>,
) -> impl Sender<Value = (), Error = Infallible> + use<> {
    let count = count.clone();
    starts_on(
        scheduler.clone(),
        just_from(move || {
            count.fetch_add(1, SeqCst);
        }),
    )
}

fn state(scope: &CountingScope) -> String {
    let text = format!("{scope:?}");
    let (_, rest) = text.split_once("state: \"").expect("its state");
    rest.split_once('"').expect("a name").0.to_owned()
}

#[test]
fn an_unused_scope_and_a_closed_unused_one_can_be_dropped() {
    drop(CountingScope::new());
    let closed = CountingScope::new();
    closed.close();
    drop(closed);
}

#[test]
fn a_closed_scope_refuses_and_what_it_refuses_is_dropped_unstarted() {
    let scope = CountingScope::new();
    scope.close();
    assert!(scope.is_closed() && scope.token().is_closed());
    let census = Census::new();
    let value = census.value();
    assert!(!scope.spawn(just_from(move || drop::<Counted>(value)).then(|()| -> () { panic!("started") })));
    assert_eq!(census.alive(), 0);
    let value = census.value();
    let refused = scope.associate(just(value));
    assert_eq!(census.alive(), 0, "dropped at once");
    assert!(refused.is_refused());
    assert!(sync_wait(refused).is_stopped());
    assert!(sync_wait(scope.spawn_future(just(census.value()))).is_stopped());
    assert_eq!((census.alive(), scope.in_use()), (0, 0));
}

#[test]
fn a_closed_scope_goes_on_with_what_it_has() {
    let scope = CountingScope::new();
    let work = scope.associate(just(7));
    scope.close();
    assert_eq!(sync_wait(work).unwrap(), 7);
}

#[test]
fn a_joined_scope_refuses() {
    let scope = CountingScope::new();
    sync_wait(scope.join()).unwrap();
    assert!(!scope.spawn(just(())));
    assert!(sync_wait(scope.associate(just(1))).is_stopped());
    sync_wait(scope.join()).unwrap();
}

#[test]
fn join_completes_after_the_last_association_has_ended() {
    on_loop_and_pools(|scheduler| {
        let scope = CountingScope::new();
        let count = Arc::new(AtomicUsize::new(0));
        for _ in 0..1000 {
            assert!(scope.spawn(count_on(&scheduler, &count)));
        }
        sync_wait(scope.join()).unwrap();
        assert_eq!((count.load(SeqCst), scope.in_use()), (1000, 0));
    });
}

#[test]
fn join_waits_for_what_was_associated_and_not_started() {
    static LOOP: RunLoop = RunLoop::new();
    let scope = CountingScope::new();
    let held = scope.associate(just(1));
    let (record, ends) = Record::<(), Infallible>::new();
    submit(starts_on(LOOP.scheduler(), scope.join()), record);
    LOOP.run_ready();
    assert!(ends.try_recv().is_err());
    drop(held);
    LOOP.run_ready();
    assert_eq!(ends.try_recv(), Ok(Recorded::Value(())));
}

#[test]
fn join_completes_on_the_scheduler_of_its_receiver() {
    on_loop_and_pools(|scheduler| {
        let scope = CountingScope::new();
        let here = std::thread::current().id();
        for round in 0..100 {
            let count = Arc::new(AtomicUsize::new(0));
            let scope = if round % 2 == 0 { &scope } else { &CountingScope::new() };
            scope.spawn(count_on(&scheduler, &count));
            // `sync_wait` has a loop of its own on this thread.
            let back = scope.join().then(move |()| std::thread::current().id() == here);
            assert!(sync_wait(back).unwrap());
        }
    });
    assert_eq!(completes(&CountingScope::new().join()), Completes::OnStartScheduler);
}

#[test]
fn a_hundred_concurrent_joins_all_complete() {
    on_loop_and_pools(|scheduler| {
        let scope = CountingScope::new();
        let count = Arc::new(AtomicUsize::new(0));
        let gate = StopSource::new();
        // No work ends before all have joined.
        let wait = never::<(), Infallible>()
            .write_env(WithStopToken(gate.token()))
            .upon_stopped(|| ());
        scope.spawn(wait);
        let (sent, received) = mpsc::channel();
        for _ in 0..100 {
            let (sent, count) = (sent.clone(), count.clone());
            let joined = starts_on(scheduler.clone(), scope.join());
            start_detached(joined.then(move |()| sent.send(count.load(SeqCst)).expect("it listens")));
        }
        drop(sent);
        for _ in 0..10 {
            scope.spawn(count_on(&scheduler, &count));
        }
        // A join that has not started by now comes later: both are correct.
        gate.request_stop();
        assert_eq!(received.into_iter().collect::<Vec<_>>(), [10; 100]);
    });
}

#[test]
fn spawned_work_may_spawn_more_while_a_join_waits() {
    fn grow(token: ScopeToken, scheduler: TaskScheduler<'static>, leaves: Arc<AtomicUsize>, depth: usize) {
        if depth == 0 {
            leaves.fetch_add(1, SeqCst);
            return;
        }
        for _ in 0..2 {
            let (next, here, leaves) = (token.clone(), scheduler.clone(), leaves.clone());
            let work = just_from(move || grow(next, here, leaves, depth - 1));
            assert!(token.spawn(starts_on(scheduler.clone(), work)));
        }
    }
    on_loop_and_pools(|scheduler| {
        let scope = CountingScope::new();
        let leaves = Arc::new(AtomicUsize::new(0));
        grow(scope.token(), scheduler, leaves.clone(), 8);
        sync_wait(scope.join()).unwrap();
        assert_eq!(leaves.load(SeqCst), 256);
    });
}

#[test]
fn its_states_are_those_of_the_paper() {
    static LOOP: RunLoop = RunLoop::new();
    let join = |scope: &CountingScope, stop: &StopSource| {
        let (record, ends) = Record::<(), Infallible>::new();
        let join = scope.join().write_env(WithStopToken(stop.token()));
        submit(starts_on(LOOP.scheduler(), join), record);
        LOOP.run_ready();
        ends
    };
    let scope = CountingScope::new();
    assert_eq!(state(&scope), "unused");
    let first = scope.associate(just(1));
    assert_eq!(state(&scope), "open");
    drop(first);
    assert_eq!(state(&scope), "open", "used once is used");
    let second = scope.associate(just(2));
    let (stop, never) = (StopSource::new(), StopSource::new());
    let left = join(&scope, &stop);
    assert_eq!(state(&scope), "open and joining");
    let third = scope.associate(just(3));
    drop(second);
    assert_eq!(state(&scope), "open and joining");
    stop.request_stop();
    LOOP.run_ready();
    assert_eq!(left.try_recv(), Ok(Recorded::Stopped));
    assert_eq!(state(&scope), "open", "the last who joined has left");
    scope.close();
    assert_eq!(state(&scope), "closed");
    let joined = join(&scope, &never);
    assert_eq!(state(&scope), "closed and joining");
    assert!(joined.try_recv().is_err());
    drop(third);
    assert_eq!(state(&scope), "joined");
    LOOP.run_ready();
    assert_eq!(joined.try_recv(), Ok(Recorded::Value(())));
    let unused = CountingScope::new();
    unused.close();
    assert_eq!(state(&unused), "unused and closed");
    assert_eq!(join(&unused, &never).try_recv(), Ok(Recorded::Value(())));
    assert_eq!(state(&unused), "joined");
}

#[test]
fn a_join_that_is_stopped_leaves_the_others_waiting() {
    static LOOP: RunLoop = RunLoop::new();
    let scope = CountingScope::new();
    let held = scope.associate(just(1));
    let stop = StopSource::new();
    let mut ends = Vec::new();
    for round in 0..9 {
        let (record, end) = Record::<(), Infallible>::new();
        if round % 3 == 1 {
            let join = scope.join().write_env(WithStopToken(stop.token()));
            submit(starts_on(LOOP.scheduler(), join), record);
        } else {
            submit(starts_on(LOOP.scheduler(), scope.join()), record);
        }
        ends.push(end);
    }
    LOOP.run_ready();
    stop.request_stop();
    LOOP.run_ready();
    for (round, end) in ends.iter().enumerate() {
        assert_eq!(end.try_recv().ok(), (round % 3 == 1).then_some(Recorded::Stopped));
    }
    drop(held);
    LOOP.run_ready();
    for (round, end) in ends.iter().enumerate() {
        assert_eq!(end.try_recv().ok(), (round % 3 != 1).then_some(Recorded::Value(())));
    }
}

#[test]
fn a_join_that_is_stopped_before_or_during_its_start_leaves() {
    let scope = CountingScope::new();
    let held = scope.associate(just(1));
    let source = StopSource::new();
    let request = source.clone();
    let during = when_all((scope.join(), just_from(move || request.request_stop())));
    assert!(sync_wait(during.write_env(WithStopToken(source.token()))).is_stopped());
    assert!(sync_wait(scope.join().write_env(WithStopToken(source.token()))).is_stopped());
    drop(held);
    sync_wait(scope.join()).unwrap();
}

#[test]
fn a_stop_reaches_all_that_runs_and_all_that_comes() {
    on_loop_and_pools(|scheduler| {
        let scope = CountingScope::new();
        let stopped = Arc::new(AtomicUsize::new(0));
        let until_stopped = || {
            let stopped = stopped.clone();
            starts_on(scheduler.clone(), never::<(), Infallible>()).upon_stopped(move || {
                stopped.fetch_add(1, SeqCst);
            })
        };
        for _ in 0..100 {
            assert!(scope.spawn(until_stopped()));
        }
        let future = scope.spawn_future(until_stopped());
        let associated = scope.associate(until_stopped());
        assert!(!scope.stop_requested());
        assert!(scope.request_stop());
        assert!(!scope.request_stop(), "only the first request counts");
        assert!(scope.stop_requested() && !scope.is_closed());
        assert!(scope.spawn(until_stopped()), "a stop does not close");
        sync_wait(future).unwrap();
        sync_wait(associated).unwrap();
        sync_wait(scope.join()).unwrap();
        assert_eq!(stopped.load(SeqCst), 103);
    });
}

#[test]
fn a_stop_from_another_thread_ends_an_inline_loop() {
    let (runs, run) = mpsc::channel();
    let endless = || {
        let runs = runs.clone();
        just(()).repeat_until(move |()| {
            runs.send(()).expect("it listens");
            false
        })
    };
    let scope = CountingScope::new();
    thread::scope(|threads| {
        threads.spawn(|| assert!(scope.spawn(endless())));
        threads.spawn(|| assert!(sync_wait(scope.associate(endless())).is_stopped()));
        for _ in 0..1000 {
            run.recv().expect("a loop runs");
        }
        assert!(scope.request_stop());
    });
    sync_wait(scope.join()).unwrap();
}

#[test]
fn spawned_work_sees_the_stop_of_the_scope_and_no_scheduler() {
    let scope = CountingScope::new();
    let (sent, received) = mpsc::channel();
    let ask = || {
        let sent = sent.clone();
        read_env(StopRequested).then(move |stopped| sent.send(stopped).expect("it listens"))
    };
    scope.spawn(ask());
    scope.request_stop();
    scope.spawn(ask());
    assert_eq!(received.try_iter().collect::<Vec<_>>(), [false, true]);
}

#[test]
fn every_channel_of_what_is_associated_passes() {
    let scope = CountingScope::new();
    let census = Census::new();
    let kept = sync_wait(scope.associate(just(census.value()))).unwrap();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
    assert_eq!(sync_wait(scope.associate(just_error::<(), _>("no"))).err(), Some("no"));
    assert!(sync_wait(scope.associate(just_stopped::<(), Infallible>())).is_stopped());
    let message = panic_message(|| sync_wait(scope.associate(just_panic::<(), Infallible>("the knot slipped"))));
    assert_eq!(message, "the knot slipped");
    assert_eq!(scope.in_use(), 0);
    sync_wait(scope.join()).unwrap();
}

#[test]
fn what_is_associated_may_borrow_under_sync_wait() {
    let scope = CountingScope::new();
    let words = [String::from("hold"), String::from("fast")];
    let pool = ThreadPool::new(2);
    let joined = starts_on(pool.scheduler(), just_from(|| words.join(" ")));
    assert_eq!(sync_wait(scope.associate(joined)).unwrap(), "hold fast");
}

#[test]
fn a_stop_of_the_receiver_reaches_what_is_associated_and_leaves_the_scope_alone() {
    on_loop_and_pools(|scheduler| {
        let scope = CountingScope::new();
        let source = StopSource::new();
        let work = starts_on(scheduler, never::<(), Infallible>());
        let request = source.clone();
        let both = when_all((scope.associate(work), just_from(move || request.request_stop())));
        assert!(sync_wait(both.write_env(WithStopToken(source.token()))).is_stopped());
        assert!(!scope.stop_requested());
        sync_wait(scope.join()).unwrap();
    });
}

#[test]
fn a_stop_of_the_scope_before_and_during_reaches_what_is_associated() {
    let scope = CountingScope::new();
    let token = scope.associate(never::<(), Infallible>());
    thread::scope(|threads| {
        let running = threads.spawn(|| sync_wait(token));
        while !scope.stop_requested() {
            scope.request_stop();
        }
        assert!(running.join().expect("no panic").is_stopped());
    });
    assert!(sync_wait(scope.associate(never::<(), Infallible>())).is_stopped());
    assert!(
        sync_wait(scope.associate(read_env(StopRequested))).unwrap(),
        "and what completes at once"
    );
}

#[test]
fn a_clone_is_one_more_part_or_is_refused() {
    let scope = CountingScope::new();
    let first = scope.associate(just(1));
    let second = first.clone();
    assert_eq!(scope.in_use(), 2);
    scope.close();
    let third = first.clone();
    assert_eq!((third.is_refused(), scope.in_use()), (true, 2));
    assert!(third.clone().is_refused());
    assert!(sync_wait(third).is_stopped());
    assert_eq!(sync_wait(second).unwrap() + sync_wait(first).unwrap(), 2);
    assert_eq!(scope.in_use(), 0);
}

#[test]
fn what_is_associated_and_dropped_is_gone_before_its_part_ends() {
    struct Look(ScopeToken, mpsc::Sender<String>);
    impl Drop for Look {
        fn drop(&mut self) {
            self.1.send(format!("{:?}", self.0)).expect("it listens");
        }
    }
    let scope = CountingScope::new();
    let (sent, received) = mpsc::channel();
    let look = Look(scope.token(), sent);
    let work = scope.associate(just_from(move || drop(look)));
    let (record, ends) = Record::<(), Infallible>::new();
    submit(scope.join().write_env(WithScheduler(InlineScheduler)), record);
    drop(work);
    assert!(
        received.recv().expect("dropped").contains("closed: false"),
        "not joined then"
    );
    assert_eq!(ends.try_recv(), Ok(Recorded::Value(())));
    assert!(scope.is_closed());
}

#[test]
fn the_first_panic_of_spawned_work_comes_out_of_every_join_after_all_has_ended() {
    on_loop_and_pools(|scheduler| {
        let scope = CountingScope::new();
        let count = Arc::new(AtomicUsize::new(0));
        scope.spawn(just_from(|| -> () { std::panic::panic_any(7u8) }));
        scope.spawn(just_panic::<(), Infallible>("a later one"));
        for _ in 0..100 {
            scope.spawn(count_on(&scheduler, &count));
        }
        let first = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sync_wait(scope.join())));
        assert_eq!(
            first.expect_err("a panic").downcast_ref(),
            Some(&7u8),
            "the payload itself"
        );
        assert_eq!(count.load(SeqCst), 100);
        let message = panic_message(|| sync_wait(scope.join()));
        assert!(message.contains("not text"), "{message}");
    });
    let scope = CountingScope::new();
    scope.spawn(just_panic::<(), Infallible>("the knot slipped"));
    for _ in 0..3 {
        assert_eq!(panic_message(|| sync_wait(scope.join())), "the knot slipped");
    }
}

#[test]
fn a_scope_that_is_dropped_in_use_is_closed_and_stopped_and_its_work_runs_to_its_end() {
    on_loop_and_pools(|scheduler| {
        let census = Census::new();
        let scope = CountingScope::new();
        let token = scope.token();
        let (sent, received) = mpsc::channel();
        for round in 0..100 {
            let (value, sent) = (census.value(), sent.clone());
            let end = move || {
                drop(value);
                sent.send(round).expect("it listens");
            };
            if round % 2 == 0 {
                scope.spawn(starts_on(scheduler.clone(), never::<(), Infallible>()).upon_stopped(end));
            } else {
                scope.spawn(starts_on(scheduler.clone(), just(()).then(move |()| end())).unstoppable());
            }
        }
        drop(sent);
        let join = scope.join();
        drop(scope);
        assert!(token.is_closed() && !token.spawn(just(())));
        sync_wait(join).unwrap();
        assert_eq!((received.iter().count(), census.alive()), (100, 0));
    });
}

#[test]
fn a_scope_may_be_dropped_by_its_own_work() {
    let scope = CountingScope::new();
    let token = scope.token();
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = stopped.clone();
    scope.spawn(never::<(), Infallible>().upon_stopped(move || flag.store(true, SeqCst)));
    token.spawn(just(scope).then(drop));
    assert!(stopped.load(SeqCst));
    assert!(token.is_closed());
}

#[test]
fn tokens_of_one_scope_are_equal() {
    let (one, other) = (CountingScope::new(), CountingScope::new());
    assert_eq!(one.token(), one.token().clone());
    assert_ne!(one.token(), other.token());
}

#[test]
fn a_scope_is_shared_between_threads() {
    fn assert_shared<T: Send + Sync + 'static>(value: T) -> T {
        value
    }
    on_loop_and_pools(|scheduler| {
        let scope = assert_shared(Arc::new(CountingScope::new()));
        let _ = (assert_shared(scope.token()), assert_shared(scope.join()));
        let count = Arc::new(AtomicUsize::new(0));
        thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..100 {
                        assert!(scope.spawn(count_on(&scheduler, &count)));
                    }
                });
            }
        });
        sync_wait(scope.join()).unwrap();
        assert_eq!(count.load(SeqCst), 400);
    });
}

#[test]
fn a_join_that_is_dropped_in_flight_leaves() {
    on_loop_and_pools(|scheduler| {
        let scope = Arc::new(CountingScope::new());
        let held = scope.associate(just(()));
        let inside = scope.clone();
        let task = Task::new(async move {
            let mut join = std::pin::pin!(inside.join().into_future());
            let waits = std::future::poll_fn(|cx| std::task::Poll::Ready(join.as_mut().poll(cx).is_pending())).await;
            assert!(waits);
        });
        sync_wait(starts_on(scheduler, task)).unwrap();
        assert_eq!(state(&scope), "open", "nobody joins any more");
        drop(held);
        sync_wait(scope.join()).unwrap();
    });
}

#[test]
fn tasks_are_spawned_and_joined_in_tasks() {
    on_loop_and_pools(|scheduler| {
        let inner = scheduler.clone();
        let count = Arc::new(AtomicUsize::new(0));
        let served = count.clone();
        let task = Task::new(async move {
            let scope = CountingScope::new();
            for _ in 0..10 {
                let served = served.clone();
                let serve = Task::new(async move {
                    let Ok(one) = just(1).await;
                    served.fetch_add(one, SeqCst);
                });
                assert!(scope.spawn(starts_on(inner.clone(), serve)));
            }
            let Ok(()) = scope.associate(just(())).await;
            let Ok(answer) = scope.spawn_future(starts_on(inner.clone(), just(42))).await;
            scope.join().await;
            answer
        });
        assert_eq!(sync_wait(starts_on(scheduler, task)).unwrap(), 42);
        assert_eq!(count.load(SeqCst), 10);
    });
}

#[test]
fn closing_races_with_spawning_and_nothing_is_lost() {
    on_loop_and_pools(|scheduler| {
        for _ in 0..50 {
            let scope = CountingScope::new();
            let (count, accepted) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
            thread::scope(|threads| {
                for _ in 0..2 {
                    let token = scope.token();
                    let (scheduler, count, accepted) = (&scheduler, &count, &accepted);
                    threads.spawn(move || {
                        while token.spawn(count_on(scheduler, count)) {
                            accepted.fetch_add(1, SeqCst);
                            if accepted.load(SeqCst) > 200 {
                                break;
                            }
                        }
                    });
                }
                scope.close();
            });
            sync_wait(scope.join()).unwrap();
            assert_eq!(count.load(SeqCst), accepted.load(SeqCst));
        }
    });
}

#[test]
fn spawning_allocates_once_and_joining_and_associating_never() {
    let (scope, allocated) = allocations(CountingScope::new);
    assert_eq!(allocated, 1);
    let (_, allocated) = allocations(|| scope.spawn(just(7).then(drop)));
    assert_eq!(allocated, 1);
    let (_, allocated) = allocations(|| sync_wait(scope.associate(just(7))).unwrap());
    assert_eq!(allocated, 0);
    let (_, allocated) = allocations(|| scope.token().clone());
    assert_eq!(allocated, 0);
    let (_, allocated) = allocations(|| sync_wait(scope.join()).unwrap());
    assert_eq!(allocated, 0);
    let (spawned, allocated) = allocations(|| scope.spawn(just(())));
    assert_eq!((spawned, allocated), (false, 0), "what is refused");
}

#[test]
fn a_million_rounds_of_spawning_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let scope = CountingScope::new();
        let token = scope.token();
        let round = just_from(move || token.spawn(just(())));
        assert!(sync_wait(round.repeat_until(million())).unwrap());
        assert_eq!(scope.in_use(), 0);
        sync_wait(scope.join()).unwrap();
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    static LOOP: RunLoop = RunLoop::new();
    /// Spawns the next one; the last ends the chain.
    fn next(token: ScopeToken, left: usize) {
        if left > 0 {
            let work = starts_on(
                LOOP.scheduler(),
                just(token.clone()).then(move |token| next(token, left - 1)),
            );
            assert!(token.spawn(work));
        }
    }
    with_stack(SMALL_STACK, || {
        let scope = CountingScope::new();
        next(scope.token(), ROUNDS);
        LOOP.run_until(scope.join()).unwrap();
        assert_eq!(scope.in_use(), 0);
    });
}

#[test]
fn a_million_rounds_of_associating_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let scope = CountingScope::new();
        let round = scope.associate(just(1));
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), 1);
        assert_eq!(scope.in_use(), 0);
    });
}

#[test]
fn a_million_joins_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let round = just(()).let_value(|()| {
            let scope = CountingScope::new();
            scope.spawn(just(()));
            scope.join()
        });
        sync_wait(round.repeat_until(million())).unwrap();
    });
}

#[test]
fn scopes_in_the_work_of_scopes_are_taken_down_in_constant_stack() {
    with_stack(SMALL_STACK, || {
        let census = Census::new();
        let mut outer = CountingScope::new();
        outer.spawn(never::<(), Infallible>());
        for _ in 0..ROUNDS / 10 {
            let (inner, value) = (outer, census.value());
            outer = CountingScope::new();
            outer.spawn(never::<(), Infallible>().upon_stopped(move || drop((inner, value))));
        }
        drop(outer);
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_stop_that_runs_through_scopes_takes_constant_stack() {
    with_stack(SMALL_STACK, || {
        let outer = CountingScope::new();
        let mut token = outer.token();
        let stopped = Arc::new(AtomicUsize::new(0));
        let mut scopes = Vec::new();
        for _ in 0..ROUNDS / 10 {
            let scope = CountingScope::new();
            let (inside, count) = (scope.token(), stopped.clone());
            // Stops the next one, from inside.
            let next = scope;
            token.spawn(never::<(), Infallible>().then(|()| ()).upon_stopped(move || {
                count.fetch_add(1, SeqCst);
                drop(next);
            }));
            token = inside;
            scopes.push(token.clone());
        }
        assert!(outer.request_stop());
        assert_eq!(stopped.load(SeqCst), ROUNDS / 10);
        assert!(scopes.iter().all(ScopeToken::is_closed));
    });
}
