//! `with_stop_token`: a sender that stops with its receiver's token or with a second one.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, ThreadPool};
use bowline::stop::{InplaceStopSource, NeverStop, StopSource};

fn hang() -> impl Sender<Value = (), Error = Infallible> + Clone + Send {
    never()
}

/// Returns a sender that runs forever inside `start`, and reports that it runs.
fn endless(runs: &AtomicBool) -> impl Sender<Value = (), Error = Infallible> + Send {
    just(()).repeat_until(|()| {
        runs.store(true, SeqCst);
        false
    })
}

#[test]
fn the_given_token_stops_it() {
    let run_loop = RunLoop::new();
    let source = StopSource::new();
    let work = hang().with_stop_token(source.token()).into_outcome();
    let request = run_loop.scheduler().schedule().then(|()| source.request_stop());
    let (outcome, first) = run_loop.run_until(when_all((work, request))).unwrap();
    assert!(outcome.is_stopped() && first);
}

#[test]
fn the_token_of_the_receiver_stops_it() {
    let run_loop = RunLoop::new();
    let (given, outer) = (StopSource::new(), InplaceStopSource::new());
    let work = hang()
        .with_stop_token(given.token())
        .write_env(WithStopToken(outer.token()))
        .into_outcome();
    let request = run_loop.scheduler().schedule().then(|()| outer.request_stop());
    let (outcome, _) = run_loop.run_until(when_all((work, request))).unwrap();
    assert!(outcome.is_stopped());
    assert!(!given.stop_requested(), "a stop does not go back up");
}

#[test]
fn both_tokens_stop_it_once() {
    let run_loop = RunLoop::new();
    let (given, outer) = (StopSource::new(), InplaceStopSource::new());
    let stops = AtomicUsize::new(0);
    let work = hang()
        .upon_stopped(|| {
            stops.fetch_add(1, SeqCst);
        })
        .with_stop_token(given.token())
        .write_env(WithStopToken(outer.token()));
    let request = run_loop
        .scheduler()
        .schedule()
        .then(|()| given.request_stop() && outer.request_stop());
    assert_eq!(run_loop.run_until(when_all((work, request))).unwrap(), ((), true));
    assert_eq!(stops.into_inner(), 1);
}

#[test]
fn where_neither_stops_every_completion_passes() {
    let source = StopSource::new();
    let token = || source.token();
    assert_eq!(sync_wait(just(1).with_stop_token(token())), Outcome::Value(1));
    assert_eq!(
        sync_wait(just_error::<(), _>("no").with_stop_token(token())),
        Outcome::Error("no")
    );
    assert!(sync_wait(just_stopped::<(), ()>().with_stop_token(token())).is_stopped());
    let panics = || just_panic::<(), ()>("first").with_stop_token(token());
    assert_eq!(panic_message(|| sync_wait(panics())), "first");
    let run_loop = RunLoop::new();
    let hop = run_loop.scheduler().schedule().with_stop_token(token());
    assert_eq!(run_loop.run_until(hop), Outcome::Value(()));
}

#[test]
fn a_token_that_cannot_stop_leaves_the_receivers() {
    let outer = InplaceStopSource::new();
    let work = || {
        let inner = read_env(StopRequested).with_stop_token(NeverStop);
        inner.write_env(WithStopToken(outer.token()))
    };
    assert!(!sync_wait(work()).unwrap());
    outer.request_stop();
    assert!(sync_wait(work()).unwrap());
}

#[test]
fn a_stop_before_the_start_is_seen() {
    let (given, outer) = (StopSource::new(), InplaceStopSource::new());
    given.request_stop();
    assert!(sync_wait(hang().with_stop_token(given.token())).is_stopped());
    assert!(sync_wait(read_env(StopRequested).with_stop_token(given.token())).unwrap());
    outer.request_stop();
    let fresh = StopSource::new();
    let work = hang().with_stop_token(fresh.token());
    assert!(sync_wait(work.write_env(WithStopToken(outer.token()))).is_stopped());
    let both = hang().with_stop_token(given.token());
    assert!(sync_wait(both.write_env(WithStopToken(outer.token()))).is_stopped());
}

#[test]
fn a_stop_during_the_start_is_seen() {
    let source = StopSource::new();
    let work = just_from(|| source.request_stop()).let_value(|_| hang());
    assert!(sync_wait(work.with_stop_token(source.token())).is_stopped());
}

#[test]
fn tokens_add_up() {
    for stopped in 0..3 {
        let sources = [StopSource::new(), StopSource::new(), StopSource::new()];
        let work = hang()
            .with_stop_token(sources[0].token())
            .with_stop_token(sources[1].token())
            .with_stop_token(sources[2].token());
        let run_loop = RunLoop::new();
        let request = run_loop
            .scheduler()
            .schedule()
            .then(|()| sources[stopped].request_stop());
        let (outcome, _) = run_loop.run_until(when_all((work.into_outcome(), request))).unwrap();
        assert!(outcome.is_stopped());
    }
}

#[test]
fn the_source_may_be_gone() {
    let token = StopSource::new().token();
    let run_loop = RunLoop::new();
    let hop = run_loop.scheduler().schedule();
    assert_eq!(run_loop.run_until(hop.with_stop_token(token)), Outcome::Value(()));
    // The source is dropped while the work listens, and after it has requested the stop.
    let source = StopSource::new();
    let work = hang().with_stop_token(source.token()).into_outcome();
    let request = run_loop.scheduler().schedule().then(move |()| source.request_stop());
    let (outcome, _) = run_loop.run_until(when_all((work, request))).unwrap();
    assert!(outcome.is_stopped());
}

#[test]
fn the_rest_of_the_environment_is_seen() {
    #[derive(Clone, Debug, PartialEq)]
    struct Depth(u32);
    let work = read_env(Get::<Depth>::new()).with_stop_token(NeverStop);
    assert_eq!(sync_wait(work.with_env(Depth(1))).unwrap(), Some(Depth(1)));
}

#[test]
fn a_stop_from_another_thread_ends_an_inline_loop() {
    for _ in 0..100 {
        let (given, outer) = (StopSource::new(), StopSource::new());
        let runs = AtomicBool::new(false);
        for source in [&given, &outer] {
            runs.store(false, SeqCst);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !runs.load(SeqCst) {
                        std::hint::spin_loop();
                    }
                    source.request_stop();
                });
                let work = endless(&runs).with_stop_token(given.token());
                assert!(sync_wait(work.with_stop_token(outer.token())).is_stopped());
            });
        }
    }
}

#[test]
fn stops_from_two_threads_race_with_the_completion() {
    let pool = ThreadPool::new(2);
    for _ in 0..2000 {
        let (given, outer) = (StopSource::new(), StopSource::new());
        let work = pool.scheduler().schedule().then(|()| 1);
        let work = work
            .with_stop_token(given.token())
            .write_env(WithStopToken(outer.token()))
            .into_outcome();
        let request = |source: StopSource| starts_on(pool.scheduler(), just_from(move || source.request_stop()));
        let (outcome, ..) = sync_wait(when_all((work, request(given), request(outer)))).unwrap();
        assert!(matches!(outcome, Outcome::Value(1) | Outcome::Stopped), "{outcome:?}");
    }
}

#[test]
fn moves_what_cannot_be_copied_and_borrows() {
    let census = Census::new();
    let source = InplaceStopSource::new();
    let kept = sync_wait(just(census.value()).with_stop_token(source.token())).unwrap();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
    let text = "borrowed".to_owned();
    assert_eq!(
        sync_wait(just(&text).with_stop_token(source.token())).unwrap(),
        "borrowed"
    );
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let source = StopSource::new();
    let mut slot = WaitSlot::new();
    let work = just(census.value()).then(|_| panic!("called"));
    drop(prepare(work.with_stop_token(source.token()), &mut slot));
    assert_eq!(census.alive(), 0);
    assert!(source.request_stop());
}

#[test]
fn completes_inline_or_anywhere() {
    assert_eq!(completes(&just(1).with_stop_token(NeverStop)), Completes::Inline);
    let ready = from_future(std::future::ready(1));
    assert_eq!(completes(&ready.with_stop_token(NeverStop)), Completes::Anywhere);
}

#[test]
fn says_what_it_is() {
    let sender = just(1).with_stop_token(NeverStop);
    assert_eq!(
        format!("{sender:?}"),
        "AlsoStops { sender: Just { value: 1 }, token: NeverStop }"
    );
}

#[test]
fn does_not_allocate() {
    let source = StopSource::new();
    let run_loop = RunLoop::new();
    let hop = || run_loop.scheduler().schedule().with_stop_token(source.token());
    assert_eq!(allocations(|| run_loop.run_until(hop()).unwrap()), ((), 0));
    assert_eq!(
        allocations(|| sync_wait(just(1).with_stop_token(source.token())).unwrap()),
        (1, 0)
    );
    source.request_stop();
    let stopped = allocations(|| sync_wait(hang().with_stop_token(source.token())).is_stopped());
    assert_eq!(stopped, (true, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let source = InplaceStopSource::new();
        let round = just(1).with_stop_token(source.token());
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), 1);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let source = InplaceStopSource::new();
        let round = run_loop.scheduler().schedule().with_stop_token(source.token());
        assert_eq!(run_loop.run_until(round.repeat_until(million())), Outcome::Value(()));
    });
}
