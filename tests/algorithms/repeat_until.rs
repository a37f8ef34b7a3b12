//! `repeat_until`: repeats until a value satisfies a predicate.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::StopSource;

#[test]
fn completes_with_the_first_value_that_satisfies_the_predicate() {
    let rounds = AtomicUsize::new(0);
    let work = just_from(|| rounds.fetch_add(1, SeqCst)).repeat_until(|&n| n == 4);
    assert_eq!(sync_wait(work).unwrap(), 4);
    assert_eq!(rounds.into_inner(), 5);
}

#[test]
fn an_error_a_stop_or_a_panic_of_a_round_ends_the_loop() {
    let rounds = AtomicUsize::new(0);
    let third = || rounds.fetch_add(1, SeqCst) % 3 == 2;
    let fails = just_from(third).infallible_into().let_value(|third| match third {
        true => just_error("third").boxed(),
        false => just(()).infallible_into().boxed(),
    });
    assert_eq!(sync_wait(fails.repeat_until(|()| false)).err(), Some("third"));
    let stops = just_from(third).let_value(|third| match third {
        true => just_stopped().boxed(),
        false => just(()).boxed(),
    });
    assert!(sync_wait(stops.repeat_until(|()| false)).is_stopped());
    let panics = just_from(third).then(|third| assert!(!third, "third"));
    assert_eq!(panic_message(|| sync_wait(panics.repeat_until(|()| false))), "third");
    assert_eq!(rounds.into_inner(), 9);
}

#[test]
fn values_that_cannot_be_copied_are_dropped_between_rounds() {
    let census = Census::new();
    let most = AtomicUsize::new(0);
    let mut left = 5;
    let work = just_from(|| census.value()).repeat_until(|_| {
        most.fetch_max(census.alive(), SeqCst);
        left -= 1;
        left == 0
    });
    let last = sync_wait(work).unwrap();
    assert_eq!((most.into_inner(), census.alive()), (1, 1));
    drop(last);
    assert_eq!(census.alive(), 0);
}

/// A value that can be cloned a limited number of times.
struct Clonable<'a>(&'a AtomicUsize);

impl Clone for Clonable<'_> {
    fn clone(&self) -> Self {
        let left = self.0.load(SeqCst).checked_sub(1).expect("no more clones");
        self.0.store(left, SeqCst);
        Clonable(self.0)
    }
}

#[test]
fn a_panic_of_the_clone_arrives_from_the_first_and_from_a_later_round() {
    for clones in [0, 3] {
        let left = AtomicUsize::new(clones);
        let mut rounds = 0;
        let inline = just(Clonable(&left)).repeat_until(|_| {
            rounds += 1;
            false
        });
        assert_eq!(panic_message(|| sync_wait(inline)), "no more clones");
        assert_eq!(rounds, clones);

        let left = AtomicUsize::new(clones);
        let mut rounds = 0;
        let run_loop = RunLoop::new();
        let later = just(Clonable(&left))
            .continues_on(run_loop.scheduler())
            .repeat_until(|_| {
                rounds += 1;
                false
            });
        assert_eq!(panic_message(|| run_loop.run_until(later)), "no more clones");
        assert_eq!(rounds, clones);
    }
}

#[test]
fn a_stop_is_seen_between_two_rounds() {
    for stops in 1..=2 {
        let source = StopSource::new();
        let mut rounds = 0;
        let work = just(())
            .repeat_until(|()| {
                rounds += 1;
                if rounds == 3 {
                    (0..stops).for_each(|_| {
                        source.request_stop();
                    });
                }
                false
            })
            .write_env(WithStopToken(source.token()));
        assert!(sync_wait(work).is_stopped());
        assert_eq!(rounds, 3);
    }
}

#[test]
fn a_stop_before_the_start_lets_the_first_round_run() {
    let source = StopSource::new();
    source.request_stop();
    let mut rounds = 0;
    let work = just(())
        .repeat_until(|()| {
            rounds += 1;
            false
        })
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_stopped());
    assert_eq!(rounds, 1);
}

#[test]
fn a_value_that_satisfies_the_predicate_is_not_lost_to_a_stop() {
    let source = StopSource::new();
    let work = just_from(|| source.request_stop())
        .repeat_until(|_| true)
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).unwrap());
}

#[test]
fn does_not_allocate() {
    let mut left = 10;
    let work = just(1).repeat_until(|_| {
        left -= 1;
        left == 0
    });
    let (value, allocated) = allocations(|| sync_wait(work).unwrap());
    assert_eq!((value, allocated), (1, 0));
}

#[test]
fn a_million_rounds_of_a_million_rounds_in_all_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let count = AtomicUsize::new(0);
        let inner = just_from(|| count.fetch_add(1, SeqCst) + 1).repeat_until(|n| n % 1000 == 0);
        assert_eq!(sync_wait(inner.repeat_until(|&n| n == ROUNDS)).unwrap(), ROUNDS);
    });
}

#[test]
fn a_million_rounds_that_may_complete_anywhere_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        // A box does not declare where it completes, so every round goes through the driver.
        let round = just(()).let_value(|()| just(1).boxed());
        let last = sync_wait(round.repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), 1);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let mut left = ROUNDS;
        let last = run_loop.run_until(run_loop.scheduler().schedule().repeat_until(|()| {
            left -= 1;
            left == 0
        }));
        assert!(last.is_value());
    });
}

#[test]
fn rounds_may_complete_on_other_threads() {
    with_loop(|there| {
        let mut left = 1000;
        let round = there.schedule().then(|()| 1);
        let last = sync_wait(round.repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), 1);
    });
}

#[test]
fn stays_on_the_scheduler_and_is_never_inline() {
    assert_eq!(completes(&just(1).repeat_until(|_| true)), Completes::OnStartScheduler);
    assert_eq!(
        completes(&never::<(), ()>().repeat_until(|()| true)),
        Completes::Anywhere
    );
}
