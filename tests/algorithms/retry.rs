//! `retry` and `retry_if`: repeat after an error.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::StopSource;

/// Returns a sender that fails with the number of the try, until the one that succeeds with it.
fn succeeds_at(tries: &AtomicUsize, at: usize) -> impl Sender<Value = usize, Error = usize> + Clone + Send {
    just_from(|| tries.fetch_add(1, SeqCst))
        .infallible_into()
        .let_value(move |n| match n {
            n if n == at => just(n).infallible_into().boxed(),
            n => just_error(n).boxed(),
        })
}

#[test]
fn retries_until_there_is_a_value() {
    let tries = AtomicUsize::new(0);
    assert_eq!(sync_wait(succeeds_at(&tries, 4).retry()).unwrap(), 4);
    assert_eq!(tries.into_inner(), 5);
}

#[test]
fn retries_if_the_predicate_says_so() {
    let tries = AtomicUsize::new(0);
    assert_eq!(sync_wait(succeeds_at(&tries, 4).retry_if(|&n| n < 9)).unwrap(), 4);
    let tries = AtomicUsize::new(0);
    assert_eq!(sync_wait(succeeds_at(&tries, 4).retry_if(|&n| n < 2)).err(), Some(2));
    assert_eq!(tries.into_inner(), 3);
}

#[test]
fn a_value_a_stop_or_a_panic_ends_it_at_once() {
    let called = |_: &i32| -> bool { panic!("called") };
    assert_eq!(sync_wait(just(1).infallible_into().retry_if(called)).unwrap(), 1);
    assert!(sync_wait(just_stopped::<i32, i32>().retry_if(called)).is_stopped());
    assert!(sync_wait(just_stopped::<i32, i32>().retry()).is_stopped());
    let panics = || just_from(|| -> i32 { panic!("first") }).infallible_into::<i32>();
    assert_eq!(panic_message(|| sync_wait(panics().retry_if(called))), "first");
    assert_eq!(panic_message(|| sync_wait(panics().retry())), "first");
}

#[test]
fn errors_that_cannot_be_copied_are_dropped_between_tries() {
    let census = Census::new();
    let most = AtomicUsize::new(0);
    let mut left = 5;
    let fails = just_from(|| census.value())
        .infallible_into()
        .let_value(just_error::<(), _>);
    let last = sync_wait(fails.retry_if(|_| {
        most.fetch_max(census.alive(), SeqCst);
        left -= 1;
        left > 0
    }))
    .err();
    assert_eq!((most.into_inner(), census.alive()), (1, 1));
    drop(last);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_panic_of_the_clone_arrives() {
    struct Unclonable;
    impl Clone for Unclonable {
        fn clone(&self) -> Self {
            panic!("in clone")
        }
    }
    assert_eq!(panic_message(|| sync_wait(just(Unclonable).retry())), "in clone");
    assert_eq!(
        panic_message(|| sync_wait(just(Unclonable).retry_if(|_| false))),
        "in clone"
    );
}

#[test]
fn a_stop_is_seen_between_two_tries() {
    let source = StopSource::new();
    let tries = AtomicUsize::new(0);
    let work = just_from(|| {
        if tries.fetch_add(1, SeqCst) == 2 {
            source.request_stop();
            source.request_stop();
        }
    })
    .infallible_into()
    .let_value(|()| just_error::<(), _>("no"))
    .retry()
    .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_stopped());
    assert_eq!(tries.into_inner(), 3);
}

#[test]
fn an_error_that_ends_it_is_not_lost_to_a_stop() {
    let source = StopSource::new();
    let work = just_error::<(), _>("no")
        .retry_if(|_| {
            source.request_stop();
            false
        })
        .write_env(WithStopToken(source.token()));
    assert_eq!(sync_wait(work).err(), Some("no"));
}

#[test]
fn a_stop_before_the_start_lets_the_first_try_run() {
    let source = StopSource::new();
    source.request_stop();
    let tries = AtomicUsize::new(0);
    let work = succeeds_at(&tries, 4).retry().write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_stopped());
    assert_eq!(tries.load(SeqCst), 1);
}

#[test]
fn does_not_allocate() {
    let mut left = 10;
    let work = just_error::<(), _>("no").retry_if(|_| {
        left -= 1;
        left > 0
    });
    let (error, allocated) = allocations(|| sync_wait(work).err());
    assert_eq!((error, allocated), (Some("no"), 0));
    let (value, allocated) = allocations(|| sync_wait(just(1).retry()).unwrap());
    assert_eq!((value, allocated), (1, 0));
}

#[test]
fn a_million_tries_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let work = just_error::<(), _>("no").retry_if(|_| {
            left -= 1;
            left > 0
        });
        assert_eq!(sync_wait(work).err(), Some("no"));
        let tries = AtomicUsize::new(0);
        assert_eq!(sync_wait(succeeds_at(&tries, ROUNDS).retry()).unwrap(), ROUNDS);
    });
}

#[test]
fn a_million_rounds_inside_repeat_until_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let round = just_error::<(), _>("no").retry_if(|_| false).upon_error(|_| ()).retry();
        let last = sync_wait(round.repeat_until(|()| {
            left -= 1;
            left == 0
        }));
        assert!(last.is_value());
    });
}

#[test]
fn a_million_tries_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let tries = AtomicUsize::new(0);
        let fails = just_error::<(), usize>(0).continues_on(run_loop.scheduler());
        let work = fails.retry_if(|_| tries.fetch_add(1, SeqCst) + 1 < ROUNDS);
        assert_eq!(run_loop.run_until(work).err(), Some(0));
        assert_eq!(tries.load(SeqCst), ROUNDS);
    });
}

#[test]
fn stays_on_the_scheduler_and_is_never_inline() {
    assert_eq!(completes(&just(1).retry()), Completes::OnStartScheduler);
    assert_eq!(completes(&just(1).retry_if(|_| true)), Completes::OnStartScheduler);
    assert_eq!(completes(&never::<(), ()>().retry()), Completes::Anywhere);
}
