//! `spawn_future`: work that runs in a scope, and delivers its result to the owner of the future.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::StopSource;
use bowline::task::Task;

#[test]
fn the_work_starts_at_once_and_the_result_is_kept() {
    let scope = CountingScope::new();
    let started = Arc::new(AtomicBool::new(false));
    let flag = started.clone();
    let future = scope.spawn_future(just_from(move || flag.store(true, SeqCst)).then(|()| 7));
    assert!(started.load(SeqCst));
    assert_eq!(scope.in_use(), 0, "a result is not a part of the scope");
    assert_eq!(sync_wait(future).unwrap(), 7);
}

#[test]
fn every_channel_arrives() {
    let scope = CountingScope::new();
    let census = Census::new();
    assert_eq!(
        sync_wait(scope.spawn_future(just_error::<i32, _>("no"))).err(),
        Some("no")
    );
    assert!(sync_wait(scope.spawn_future(just_stopped::<i32, Infallible>())).is_stopped());
    let panicked = scope.spawn_future(just_from(|| -> i32 { std::panic::panic_any(7u8) }));
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sync_wait(panicked))).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&7u8), "the payload itself");
    let kept = sync_wait(scope.spawn_future(just(census.value()))).unwrap();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
    sync_wait(scope.join()).unwrap();
}

#[test]
fn results_come_back_from_everywhere() {
    on_loop_and_pools(|scheduler| {
        let scope = CountingScope::new();
        let futures: Vec<_> = (0..100)
            .map(|number| scope.spawn_future(starts_on(scheduler.clone(), just(number).then(|x| x * x))))
            .collect();
        let squares = sync_wait(when_all_iter(futures)).unwrap();
        assert!(
            squares
                .iter()
                .enumerate()
                .all(|(number, &square)| square == number * number)
        );
        sync_wait(scope.join()).unwrap();
    });
}

#[test]
fn a_result_can_be_taken_after_the_join() {
    on_loop_and_pools(|scheduler| {
        let scope = CountingScope::new();
        let future = scope.spawn_future(starts_on(scheduler, just(7)));
        sync_wait(scope.join()).unwrap();
        drop(scope);
        let (value, allocated) = allocations(|| sync_wait(future).unwrap());
        assert_eq!((value, allocated), (7, 0));
    });
}

#[test]
fn the_result_is_there_when_the_join_completes() {
    on_loop_and_pools(|scheduler| {
        for _ in 0..100 {
            let scope = CountingScope::new();
            let future = scope.spawn_future(starts_on(scheduler.clone(), just(7)));
            sync_wait(scope.join()).unwrap();
            let (record, ends) = Record::<i32, Infallible>::new();
            submit(future, record);
            assert_eq!(ends.try_recv(), Ok(Recorded::Value(7)));
        }
    });
}

#[test]
fn a_closed_scope_gives_a_future_that_completes_stopped() {
    let scope = CountingScope::new();
    scope.close();
    let census = Census::new();
    let refused = scope.spawn_future(just(census.value()).then(|_| -> () { panic!("started") }));
    assert_eq!(census.alive(), 0);
    assert!(sync_wait(refused).is_stopped());
}

#[test]
fn dropping_it_asks_the_work_to_stop_and_leaves_the_scope_alone() {
    on_loop_and_pools(|scheduler| {
        let scope = CountingScope::new();
        let stopped = Arc::new(AtomicBool::new(false));
        let others = Arc::new(AtomicUsize::new(0));
        let other = others.clone();
        let future = scope.spawn_future(notes_its_stop(&stopped));
        let stays =
            scope.spawn_future(starts_on(scheduler.clone(), just(())).then(move |()| other.fetch_add(1, SeqCst)));
        assert!(!stopped.load(SeqCst));
        drop(future);
        assert!(stopped.load(SeqCst) && !scope.stop_requested());
        sync_wait(stays).unwrap();
        sync_wait(scope.join()).unwrap();
        assert_eq!(others.load(SeqCst), 1);
    });
}

#[test]
fn the_scope_waits_for_work_whose_future_was_dropped() {
    static LOOP: RunLoop = RunLoop::new();
    let scope = CountingScope::new();
    let census = Census::new();
    let value = census.value();
    drop(scope.spawn_future(LOOP.scheduler().schedule().unstoppable().then(move |()| value)));
    assert_eq!((census.alive(), scope.in_use()), (1, 1), "it is still queued");
    LOOP.run_until(scope.join()).unwrap();
    assert_eq!(census.alive(), 0);
}

#[test]
fn dropping_it_after_the_work_has_ended_drops_the_result() {
    let scope = CountingScope::new();
    let census = Census::new();
    let future = scope.spawn_future(just(census.value()));
    assert_eq!(census.alive(), 1);
    drop(future);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_stop_of_the_scope_reaches_the_work_and_its_future_completes_stopped() {
    on_loop_and_pools(|scheduler| {
        let scope = CountingScope::new();
        let future = scope.spawn_future(starts_on(scheduler, never::<(), Infallible>()));
        scope.request_stop();
        assert!(sync_wait(future).is_stopped());
        sync_wait(scope.join()).unwrap();
    });
}

#[test]
fn a_receiver_that_is_stopped_leaves_at_once_and_stops_the_work() {
    let scope = CountingScope::new();
    let stopped = Arc::new(AtomicBool::new(false));
    let source = StopSource::new();
    let (record, ends) = Record::<i32, Infallible>::new();
    let future = scope.spawn_future(notes_its_stop(&stopped));
    submit(future.write_env(WithStopToken(source.token())), record);
    assert!(ends.try_recv().is_err());
    source.request_stop();
    assert_eq!(ends.try_recv(), Ok(Recorded::Stopped));
    assert!(stopped.load(SeqCst));
    sync_wait(scope.join()).unwrap();
}

#[test]
fn completion_races_with_the_drop_with_the_stop_and_with_the_wait() {
    on_loop_and_pools(|scheduler| {
        let census = Census::new();
        let scope = CountingScope::new();
        for round in 0..1000 {
            let value = census.value();
            let work = starts_on(scheduler.clone(), just(value));
            match round % 3 {
                0 => drop(scope.spawn_future(work)),
                1 => drop(sync_wait(scope.spawn_future(work)).unwrap()),
                _ => {
                    let own = CountingScope::new();
                    let future = own.spawn_future(work);
                    own.request_stop();
                    let join = own.join();
                    drop(own);
                    drop(sync_wait(future).ok());
                    sync_wait(join).unwrap();
                }
            }
        }
        sync_wait(scope.join()).unwrap();
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn it_can_be_awaited_and_is_send() {
    fn assert_send<T: Send>(value: T) -> T {
        value
    }
    on_loop_and_pools(|scheduler| {
        let inside = scheduler.clone();
        let task = Task::new(async move {
            let scope = CountingScope::new();
            let future = assert_send(scope.spawn_future(starts_on(inside.clone(), just(6))));
            let failed = scope.spawn_future(
                starts_on(inside, just(1))
                    .infallible_into()
                    .try_then(|_| Err::<(), _>("no")),
            );
            let Ok(six) = future.await;
            let error = failed.await.expect_err("it fails");
            scope.join().await;
            (six * 7, error)
        });
        assert_eq!(sync_wait(starts_on(scheduler, task)).unwrap(), (42, "no"));
    });
}

#[test]
fn it_allocates_once() {
    let counting = CountingScope::new();
    let (value, allocated) = allocations(|| sync_wait(counting.spawn_future(just(7).then(|x| x + 1))).unwrap());
    assert_eq!((value, allocated), (8, 1));
    let simple = SimpleCountingScope::new();
    let (value, allocated) = allocations(|| sync_wait(simple.spawn_future(just(7).then(|x| x + 1))).unwrap());
    assert_eq!((value, allocated), (8, 1));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let scope = CountingScope::new();
        let token = scope.token();
        let round = just(token).let_value(|token| token.spawn_future(just(1)));
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), 1);
        sync_wait(scope.join()).unwrap();
    });
}

#[test]
fn a_line_of_futures_is_stopped_in_constant_stack() {
    with_stack(SMALL_STACK, || {
        let scope = CountingScope::new();
        let census = Census::new();
        let mut last: BoxedSender<'static, (), Infallible> = never().boxed();
        for _ in 0..ROUNDS / 10 {
            let value = census.value();
            last = scope.spawn_future(last.then(move |()| drop(value))).boxed();
        }
        drop(last);
        assert_eq!((census.alive(), scope.in_use()), (0, 0));
    });
}
