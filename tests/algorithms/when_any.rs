//! `when_any`: the first value wins; the others are stopped and awaited.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::InplaceStopSource;

type Never<T> = bowline::factories::Never<T, Infallible>;

#[test]
fn the_first_value_wins() {
    assert_eq!(sync_wait(when_any((never(), just(1), just(2)))).unwrap(), 1);
    let run_loop = RunLoop::new();
    let after = |hops| run_loop.scheduler().schedule().repeat_n(hops).then(move |()| hops);
    assert_eq!(run_loop.run_until(when_any((after(3), after(1), after(2)))).unwrap(), 1);
    assert_eq!(run_loop.run_until(when_any([after(3), after(2), after(4)])).unwrap(), 2);
    assert_eq!(run_loop.run_until(when_any_iter((3..6).map(after))).unwrap(), 3);
}

#[test]
fn takes_tuples_of_one_to_twelve() {
    macro_rules! check {
        ($($never:ident)*) => {
            assert_eq!(sync_wait(when_any(($($never(),)* just(7),))).unwrap(), 7);
        };
    }
    check!();
    check!(never);
    check!(never never);
    check!(never never never);
    check!(never never never never);
    check!(never never never never never);
    check!(never never never never never never);
    check!(never never never never never never never);
    check!(never never never never never never never never);
    check!(never never never never never never never never never);
    check!(never never never never never never never never never never);
    check!(never never never never never never never never never never never);
}

#[test]
fn none_at_all_complete_stopped() {
    assert!(sync_wait(when_any(())).is_stopped());
    let none: [Never<i32>; 0] = [];
    assert!(sync_wait(when_any(none)).is_stopped());
    assert!(sync_wait(when_any_iter(none)).is_stopped());
}

#[test]
fn losers_are_stopped_and_awaited_before_it_completes() {
    let run_loop = RunLoop::new();
    let order = Mutex::new(Vec::new());
    let log = |event| order.lock().unwrap().push(event);
    let log = &log;
    let loser = || {
        let hop = run_loop.scheduler().schedule().unstoppable();
        never().let_stopped(move || {
            log("loser stopped");
            hop.then(|()| {
                log("loser ended");
                "loser"
            })
        })
    };
    let race = when_any((loser(), just("winner"), loser())).then(|winner| {
        log("completed");
        winner
    });
    assert_eq!(run_loop.run_until(race).unwrap(), "winner");
    let expected = [
        "loser stopped",
        "loser stopped",
        "loser ended",
        "loser ended",
        "completed",
    ];
    let mut seen = std::mem::take(&mut *order.lock().unwrap());
    // The second loser sees the stop at its start, the first at that of the winner.
    seen[..4].sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(seen, expected);

    let racers = [0, 1, 2].map(|n| {
        if n == 1 {
            just("winner").boxed()
        } else {
            loser().boxed()
        }
    });
    let race = when_any(racers).then(|winner| {
        log("completed");
        winner
    });
    assert_eq!(run_loop.run_until(race).unwrap(), "winner");
    let seen = order.lock().unwrap();
    assert_eq!((seen.len(), seen[4]), (5, "completed"));
}

#[test]
fn an_error_does_not_end_the_race() {
    let run_loop = RunLoop::new();
    let late = run_loop.scheduler().schedule().infallible_into().then(|()| 1);
    assert_eq!(run_loop.run_until(when_any((just_error("failed"), late))).ok(), Some(1));
    let all_fail = when_any([just_error::<i32, _>("first"), just_error("second")]);
    assert_eq!(sync_wait(all_fail).err(), Some("first"));
    let one_fails = when_any((just_stopped(), just_error::<i32, _>("failed"), just_stopped()));
    assert_eq!(sync_wait(one_fails).err(), Some("failed"));
}

#[test]
fn a_stop_of_one_child_does_not_end_the_race() {
    assert_eq!(sync_wait(when_any((just_stopped(), just(1)))).unwrap(), 1);
    assert!(sync_wait(when_any([just_stopped::<i32, Infallible>(); 3])).is_stopped());
}

#[test]
fn a_stop_of_the_parent_reaches_every_child_of_nested_ones() {
    let run_loop = RunLoop::new();
    let source = InplaceStopSource::new();
    let stopped = AtomicUsize::new(0);
    let child = || {
        never::<i32, Infallible>().let_stopped(|| {
            stopped.fetch_add(1, SeqCst);
            just_stopped()
        })
    };
    let nested = when_any((
        when_any([child(), child()]),
        when_any((child(), when_any_iter((0..2).map(|_| child())))),
        child(),
    ));
    let nested = nested.write_env(WithStopToken(source.token())).into_outcome();
    let request = run_loop.scheduler().schedule().then(|()| {
        // Twice: the second changes nothing.
        (source.request_stop(), source.request_stop())
    });
    let (outcome, requests) = run_loop.run_until(when_all((nested, request))).unwrap();
    assert!(outcome.is_stopped());
    assert_eq!((requests, stopped.load(SeqCst)), ((true, false), 6));
}

#[test]
fn the_winner_stops_nested_ones() {
    let stopped = AtomicUsize::new(0);
    let child = || {
        never::<i32, Infallible>().let_stopped(|| {
            stopped.fetch_add(1, SeqCst);
            just_stopped()
        })
    };
    let nested = when_any((when_any((child(), when_any([child(), child()]))), just(1)));
    assert_eq!(sync_wait(nested).unwrap(), 1);
    assert_eq!(stopped.load(SeqCst), 3);
}

#[test]
fn a_stop_before_or_during_the_start_reaches_the_children() {
    let source = InplaceStopSource::new();
    let request = just_from(|| source.request_stop()).let_value(|_| just_stopped::<i32, Infallible>());
    let during = when_any((never(), request, never()));
    assert!(sync_wait(during.write_env(WithStopToken(source.token()))).is_stopped());
    let before = when_any([never::<i32, Infallible>(); 2]);
    assert!(sync_wait(before.write_env(WithStopToken(source.token()))).is_stopped());
    // A value that still comes wins.
    let value = when_any((never(), just(1)));
    assert_eq!(sync_wait(value.write_env(WithStopToken(source.token()))).unwrap(), 1);
}

#[test]
fn a_panic_stops_the_others_and_arrives() {
    let stopped = AtomicUsize::new(0);
    let child = || {
        never::<i32, Infallible>().let_stopped(|| {
            stopped.fetch_add(1, SeqCst);
            just_stopped()
        })
    };
    let panics = || just_from(|| -> i32 { panic!("child") });
    assert_eq!(
        panic_message(|| sync_wait(when_any((child(), panics(), child())))),
        "child"
    );
    assert_eq!(stopped.load(SeqCst), 2);
    let mixed = || (0..3).map(|n| if n == 1 { panics().boxed() } else { child().boxed() });
    assert_eq!(panic_message(|| sync_wait(when_any_iter(mixed()))), "child");
    assert_eq!(stopped.load(SeqCst), 4);
}

#[test]
fn a_panic_is_not_lost_to_a_winner_nor_to_an_error() {
    // The loser panics because of the stop, after the winner has completed.
    let loser = || never::<i32, &str>().upon_stopped(|| panic!("loser"));
    let winner = || just(1).infallible_into();
    assert_eq!(panic_message(|| sync_wait(when_any((loser(), winner())))), "loser");
    assert_eq!(panic_message(|| sync_wait(when_any((winner(), loser())))), "loser");
    let panics = || just_from(|| -> i32 { panic!("first") }).infallible_into();
    assert_eq!(
        panic_message(|| sync_wait(when_any((just_error("no"), panics(), winner())))),
        "first"
    );
    // The first of several arrives.
    assert_eq!(panic_message(|| sync_wait(when_any((panics(), loser())))), "first");
}

#[test]
fn a_panic_of_the_iterator_arrives_and_no_child_is_started() {
    let census = Census::new();
    let started = AtomicUsize::new(0);
    let message = panic_message(|| {
        sync_wait(when_any_iter((0..5).map(|n| {
            assert!(n < 3, "the iterator");
            let value = census.value();
            let started = &started;
            just_from(move || {
                started.fetch_add(1, SeqCst);
                value
            })
        })))
    });
    assert_eq!(message, "the iterator");
    assert_eq!((started.load(SeqCst), census.alive()), (0, 0));
}

#[test]
fn moves_what_cannot_be_copied_and_drops_what_lost() {
    let census = Census::new();
    let winner = sync_wait(when_any((just(census.value()), just(census.value())))).unwrap();
    assert_eq!(census.alive(), 1);
    drop(winner);
    let racers = [census.value(), census.value(), census.value()];
    let winner = sync_wait(when_any(racers.map(just))).unwrap();
    assert_eq!(census.alive(), 1);
    drop(winner);
    assert_eq!(census.alive(), 0);
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let child = || {
        let value = census.value();
        just_from(move || panic!("called with {value:?}"))
    };
    let mut slot = WaitSlot::new();
    drop(prepare(when_any((child(), child())), &mut slot));
    let mut slot = WaitSlot::new();
    drop(prepare(when_any([child(), child()]), &mut slot));
    let (mut slot, value) = (WaitSlot::new(), census.value());
    let children = (0..3).map(move |_| -> Never<()> { panic!("called with {value:?}") });
    drop(prepare(when_any_iter(children), &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn values_on_several_threads_race_with_a_stop() {
    with_loop(|a| {
        with_loop(|b| {
            for round in 0..2_000 {
                let source = InplaceStopSource::new();
                let race = when_any((starts_on(a, just("a")), never(), starts_on(b, just("b")), never()));
                let race = race.write_env(WithStopToken(source.token())).into_outcome();
                let request = starts_on(if round % 2 == 0 { a } else { b }, just_from(|| source.request_stop()));
                let (outcome, requested) = sync_wait(when_all((race, request))).unwrap();
                assert!(requested);
                assert!(
                    matches!(outcome, Outcome::Value("a" | "b") | Outcome::Stopped),
                    "{outcome:?}"
                );
            }
        });
    });
}

#[test]
fn does_not_allocate_but_once_for_an_iterator() {
    let (winner, allocated) = allocations(|| sync_wait(when_any((never(), just(1), just(2)))).unwrap());
    assert_eq!((winner, allocated), (1, 0));
    let (winner, allocated) = allocations(|| sync_wait(when_any([just(1), just(2)])).unwrap());
    assert_eq!((winner, allocated), (1, 0));
    for length in [1, 100_000] {
        let (winner, allocated) = allocations(|| sync_wait(when_any_iter((0..length).map(just))).unwrap());
        assert_eq!((winner, allocated), (0, 1));
    }
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let mut left = ROUNDS;
        let hop = run_loop.scheduler().schedule();
        let round = when_any((never(), hop.let_value(|()| hop), hop));
        let last = run_loop.run_until(round.repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), ());
    });
}

#[test]
fn a_hundred_thousand_losers_are_stopped_in_a_small_stack() {
    with_stack(SMALL_STACK, || {
        let racers = (0..100_000).map(|n| if n == 50_000 { just(n).boxed() } else { never().boxed() });
        assert_eq!(sync_wait(when_any_iter(racers)).unwrap(), 50_000);
    });
}
