//! `SimpleCountingScope`: work that is counted and joined, but not stopped.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, TaskScheduler};
use bowline::scope::{ScopeToken, WithoutStop};
use bowline::stop::StopSource;

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

#[test]
fn an_unused_scope_and_a_closed_unused_one_can_be_dropped() {
    drop(SimpleCountingScope::new());
    let closed = SimpleCountingScope::default();
    closed.close();
    drop(closed);
}

#[test]
fn a_closed_scope_refuses_and_what_it_refuses_is_dropped_unstarted() {
    let scope = SimpleCountingScope::new();
    scope.close();
    let census = Census::new();
    let value = census.value();
    assert!(!scope.spawn(just_from(move || -> () { panic!("started with {value:?}") })));
    assert_eq!(census.alive(), 0);
    assert!(sync_wait(scope.associate(just(census.value()))).is_stopped());
    assert!(sync_wait(scope.spawn_future(just(census.value()))).is_stopped());
    assert_eq!((census.alive(), scope.in_use()), (0, 0));
}

#[test]
fn join_completes_after_the_last_association_has_ended_where_it_was_started() {
    on_loop_and_pools(|scheduler| {
        let here = std::thread::current().id();
        let scope = SimpleCountingScope::new();
        let count = Arc::new(AtomicUsize::new(0));
        for _ in 0..1000 {
            assert!(scope.spawn(count_on(&scheduler, &count)));
        }
        let back = scope.join().then(move |()| std::thread::current().id() == here);
        assert!(sync_wait(back).unwrap());
        assert_eq!((count.load(SeqCst), scope.in_use()), (1000, 0));
        assert!(!scope.spawn(just(())), "joined");
    });
}

#[test]
fn a_hundred_concurrent_joins_all_complete_while_work_spawns_more() {
    fn next(token: ScopeToken<WithoutStop>, scheduler: TaskScheduler<'static>, left: usize, last: mpsc::Sender<()>) {
        if left == 0 {
            last.send(()).expect("it listens");
            return;
        }
        let (again, there) = (token.clone(), scheduler.clone());
        let work = just_from(move || next(again, there, left - 1, last));
        assert!(token.spawn(starts_on(scheduler, work)));
    }
    on_loop_and_pools(|scheduler| {
        let scope = SimpleCountingScope::new();
        let (last, ended) = mpsc::channel();
        let (sent, received) = mpsc::channel();
        next(scope.token(), scheduler.clone(), 1000, last);
        for _ in 0..100 {
            let sent = sent.clone();
            let joined = starts_on(scheduler.clone(), scope.join());
            start_detached(joined.then(move |()| sent.send(()).expect("it listens")));
        }
        drop(sent);
        assert_eq!(received.into_iter().count(), 100);
        assert_eq!(ended.try_iter().count(), 1, "the line was not cut");
    });
}

#[test]
fn spawned_work_sees_no_stop() {
    let scope = SimpleCountingScope::new();
    let (sent, received) = mpsc::channel();
    scope.spawn(read_env(StopRequested).then(move |stopped| sent.send(stopped).expect("it listens")));
    assert!(!received.recv().expect("it ran"));
}

#[test]
fn what_is_associated_is_as_it_was() {
    static LOOP: RunLoop = RunLoop::new();
    let scope = SimpleCountingScope::new();
    assert_eq!(completes(&scope.associate(just(1))), Completes::Inline);
    let schedule = scope.associate(LOOP.scheduler().schedule());
    assert_eq!(completes(&schedule), completes(&LOOP.scheduler().schedule()));
    drop(schedule);
    assert_eq!(completes(&scope.associate(just(1).affine())), Completes::Inline);
    assert_eq!(scope.in_use(), 0);
    // Only the receiver's stop applies.
    let source = StopSource::new();
    let request = source.clone();
    let both = when_all((
        scope.associate(never::<(), Infallible>()),
        just_from(move || request.request_stop()),
    ));
    assert!(sync_wait(both.write_env(WithStopToken(source.token()))).is_stopped());
    assert_eq!(scope.in_use(), 0);
}

#[test]
fn the_first_panic_of_spawned_work_comes_out_of_join() {
    on_loop_and_pools(|scheduler| {
        let scope = SimpleCountingScope::new();
        let count = Arc::new(AtomicUsize::new(0));
        scope.spawn(starts_on(
            scheduler.clone(),
            just_panic::<(), Infallible>("the knot slipped"),
        ));
        for _ in 0..100 {
            scope.spawn(count_on(&scheduler, &count));
        }
        assert_eq!(panic_message(|| sync_wait(scope.join())), "the knot slipped");
        assert_eq!(count.load(SeqCst), 100);
    });
}

#[test]
fn a_scope_that_is_dropped_in_use_is_closed_and_its_work_runs_to_its_end() {
    on_loop_and_pools(|scheduler| {
        let census = Census::new();
        let scope = SimpleCountingScope::new();
        let token = scope.token();
        for _ in 0..100 {
            let value = census.value();
            scope.spawn(starts_on(scheduler.clone(), just(value).then(drop)));
        }
        let join = scope.join();
        drop(scope);
        assert!(token.is_closed() && !token.spawn(just(())));
        sync_wait(join).unwrap();
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_scope_that_is_dropped_in_use_and_never_joined_leaks_nothing() {
    static LOOP: RunLoop = RunLoop::new();
    let census = Census::new();
    let scope = SimpleCountingScope::new();
    let value = census.value();
    scope.spawn(starts_on(LOOP.scheduler(), just(value).then(drop)));
    drop(scope);
    assert_eq!(census.alive(), 1, "it is still queued");
    LOOP.run_ready();
    assert_eq!(census.alive(), 0);
}

#[test]
fn spawning_allocates_once_and_joining_and_associating_never() {
    let scope = SimpleCountingScope::new();
    let (_, allocated) = allocations(|| scope.spawn(just(7).then(drop)));
    assert_eq!(allocated, 1);
    let (_, allocated) = allocations(|| sync_wait(scope.associate(just(7))).unwrap());
    assert_eq!(allocated, 0);
    let ((), allocated) = allocations(|| sync_wait(scope.join()).unwrap());
    assert_eq!(allocated, 0);
}

#[test]
fn a_million_rounds_of_spawning_and_associating_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let scope = SimpleCountingScope::new();
        let token = scope.token();
        let round = just_from(move || token.spawn(just(())));
        let round = scope.associate(round.clone());
        assert!(sync_wait(round.repeat_until(million())).unwrap());
        sync_wait(scope.join()).unwrap();
    });
}
