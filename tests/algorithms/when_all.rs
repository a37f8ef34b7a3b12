//! `when_all`: runs several senders at once, and completes when all have.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::InplaceStopSource;

#[test]
fn values_arrive_in_argument_order_whatever_the_order_of_completion() {
    let run_loop = RunLoop::new();
    let hop = || run_loop.scheduler().schedule();
    let order = Mutex::new(Vec::new());
    let log = |name| {
        order.lock().unwrap().push(name);
        name
    };
    let slow = hop().let_value(|()| hop()).then(|()| log("slow"));
    let quick = hop().then(|()| log("quick"));
    let both = run_loop.run_until(when_all((slow, just(2), quick))).unwrap();
    assert_eq!(both, ("slow", 2, "quick"));
    assert_eq!(*order.lock().unwrap(), ["quick", "slow"]);
}

#[test]
fn completes_only_after_every_child_has() {
    let run_loop = RunLoop::new();
    let done = AtomicUsize::new(0);
    let child = |hops| {
        let (done, run_loop) = (&done, &run_loop);
        let hop = run_loop.scheduler().schedule();
        hop.repeat_n(hops).then(|()| done.fetch_add(1, SeqCst))
    };
    let all = when_all([child(3), child(1), child(2)]).then(|_| done.load(SeqCst));
    assert_eq!(run_loop.run_until(all).unwrap(), 3);
}

#[test]
fn takes_tuples_of_one_to_twelve() {
    macro_rules! check {
        ($($value:literal)+) => {
            assert_eq!(sync_wait(when_all(($(just($value),)+))).unwrap(), ($($value,)+));
        };
    }
    check!(1);
    check!(1 "b");
    check!(1 "b" 3);
    check!(1 "b" 3 'd');
    check!(1 "b" 3 'd' 5);
    check!(1 "b" 3 'd' 5 6);
    check!(1 "b" 3 'd' 5 6 7);
    check!(1 "b" 3 'd' 5 6 7 8);
    check!(1 "b" 3 'd' 5 6 7 8 9);
    check!(1 "b" 3 'd' 5 6 7 8 9 10);
    check!(1 "b" 3 'd' 5 6 7 8 9 10 11);
    check!(1 "b" 3 'd' 5 6 7 8 9 10 11 true);
}

#[test]
fn takes_arrays() {
    let squares = when_all([1, 2, 3, 4].map(|n| just(n).then(|n| n * n)));
    assert_eq!(sync_wait(squares).unwrap(), [1, 4, 9, 16]);
    assert_eq!(sync_wait(when_all([just("one")])).unwrap(), ["one"]);
    let many: [usize; 500] = std::array::from_fn(|n| n);
    assert_eq!(sync_wait(when_all(many.map(just))).unwrap(), many);
}

#[test]
fn none_at_all_complete_at_once() {
    sync_wait(when_all(())).unwrap();
    let none: [Never; 0] = [];
    assert_eq!(sync_wait(when_all(none)).unwrap(), []);
    // Also if the stop was requested before: nothing is left to stop.
    let source = InplaceStopSource::new();
    source.request_stop();
    let none: [Never; 0] = [];
    assert!(sync_wait(when_all(none).write_env(WithStopToken(source.token()))).is_value());
}

type Never = bowline::factories::Never<i32, Infallible>;

#[test]
fn completes_inline_only_where_every_child_does() {
    fn completes<S: Sender>(_: &S) -> Completes {
        S::COMPLETES
    }
    let run_loop = RunLoop::new();
    assert_eq!(completes(&when_all((just(1), just(2)))), Completes::Inline);
    assert_eq!(
        completes(&when_all((just(1), run_loop.scheduler().schedule()))),
        Completes::Anywhere
    );
    assert_eq!(completes(&when_all([just(1), just(2)])), Completes::Inline);
}

#[test]
fn the_first_error_stops_the_siblings_and_is_the_one_reported() {
    let stopped = AtomicUsize::new(0);
    let sibling = || {
        never::<i32, &str>().upon_stopped(|| {
            stopped.fetch_add(1, SeqCst);
            0
        })
    };
    let all = when_all((
        sibling(),
        just_error::<i32, _>("first"),
        just_error::<i32, _>("second"),
        sibling(),
    ));
    assert_eq!(sync_wait(all).err(), Some("first"));
    assert_eq!(stopped.load(SeqCst), 2);
    // Likewise in an array, where the failing child comes after one that has a value.
    let fail = |n: i32| {
        just(n).infallible_into().let_value(|n| {
            if n == 1 {
                just_error("odd").boxed()
            } else {
                sibling().boxed()
            }
        })
    };
    assert_eq!(sync_wait(when_all([0, 1, 2].map(fail))).err(), Some("odd"));
    assert_eq!(stopped.load(SeqCst), 4);
}

#[test]
fn a_failure_waits_for_siblings_that_take_their_time_to_stop() {
    let run_loop = RunLoop::new();
    let ended = AtomicBool::new(false);
    let slow_to_stop = never::<(), &str>().let_stopped(|| {
        let hop = run_loop.scheduler().schedule().unstoppable().infallible_into();
        hop.then(|()| ended.store(true, SeqCst))
    });
    let all = when_all((slow_to_stop, just_error::<(), _>("failed")));
    let seen = all.upon_error(|error| {
        assert!(ended.load(SeqCst), "{error} before the sibling had ended");
        ((), ())
    });
    assert!(run_loop.run_until(seen).is_value());
    assert!(ended.load(SeqCst));
}

#[test]
fn a_child_that_stops_stops_the_others_and_the_whole() {
    let all = when_all((never::<(), Infallible>(), just_stopped::<i32, Infallible>()));
    assert!(sync_wait(all).is_stopped());
    // An error takes precedence over an earlier stop.
    let all = when_all((just_stopped::<i32, &str>(), just_error::<(), _>("failed")));
    assert_eq!(sync_wait(all).err(), Some("failed"));
}

#[test]
fn a_panic_stops_the_siblings_and_arrives_after_they_have_ended() {
    let run_loop = RunLoop::new();
    let ended = AtomicBool::new(false);
    let slow_to_stop = never::<(), Infallible>().let_stopped(|| {
        let hop = run_loop.scheduler().schedule().unstoppable();
        hop.then(|()| ended.store(true, SeqCst))
    });
    let message = panic_message(|| {
        run_loop.run_until(when_all((
            slow_to_stop,
            just_from(|| -> i32 { panic!("first") }),
            just_from(|| -> i32 { panic!("second") }),
        )))
    });
    assert_eq!(message, "first");
    assert!(ended.load(SeqCst));
}

#[test]
fn a_panic_weighs_more_than_an_error_that_came_before_it() {
    let panics = || just_from(|| -> () { panic!("boom") }).infallible_into();
    let all = || when_all((just_error::<(), _>("failed"), panics()));
    assert_eq!(panic_message(|| sync_wait(all())), "boom");
    let in_array = || [false, true].map(|panics| just_from(move || assert!(!panics, "boom")));
    assert_eq!(panic_message(|| sync_wait(when_all(in_array()))), "boom");
}

#[test]
fn a_stop_of_the_parent_reaches_the_children() {
    let run_loop = RunLoop::new();
    let source = InplaceStopSource::new();
    let stopped = AtomicUsize::new(0);
    let child = || {
        never::<(), Infallible>().let_stopped(|| {
            stopped.fetch_add(1, SeqCst);
            just_stopped()
        })
    };
    let request = run_loop.scheduler().schedule().then(|()| {
        // Twice: the second changes nothing.
        (source.request_stop(), source.request_stop())
    });
    let all = when_all((child(), when_all([child(), child()]), child())).write_env(WithStopToken(source.token()));
    let (all, requests) = run_loop.run_until(when_all((all.into_outcome(), request))).unwrap();
    assert!(all.is_stopped());
    assert_eq!(requests, (true, false));
    assert_eq!(stopped.load(SeqCst), 4);
}

#[test]
fn a_stop_before_or_during_the_start_reaches_the_children() {
    let source = InplaceStopSource::new();
    source.request_stop();
    let before = when_all((never::<(), Infallible>(), never::<i32, Infallible>()));
    assert!(sync_wait(before.write_env(WithStopToken(source.token()))).is_stopped());

    let source = InplaceStopSource::new();
    let during = when_all((
        never::<(), Infallible>(),
        just_from(|| source.request_stop()),
        never::<i32, Infallible>(),
    ));
    assert!(sync_wait(during.write_env(WithStopToken(source.token()))).is_stopped());
}

#[test]
fn children_that_have_values_all_the_same_give_them() {
    let source = InplaceStopSource::new();
    source.request_stop();
    let all = when_all((just(1), read_env(StopRequested), never().upon_stopped(|| 3)));
    let all = all.write_env(WithStopToken(source.token()));
    assert_eq!(sync_wait(all).unwrap(), (1, true, 3));
    // Also if every child completes inside its start.
    let inline = when_all([just(1), just(2)]).write_env(WithStopToken(source.token()));
    assert_eq!(sync_wait(inline).unwrap(), [1, 2]);
}

#[test]
fn children_see_the_environment_around_it() {
    #[derive(Clone, Debug, PartialEq)]
    struct Name(&'static str);
    let all = when_all((
        read_env(Get::<Name>::new()),
        read_env(Get::<Name>::new()).write_env(With(Name("inner"))),
    ));
    let seen = sync_wait(all.write_env(With(Name("outer")))).unwrap();
    assert_eq!(seen, (Some(Name("outer")), Some(Name("inner"))));
}

#[test]
fn values_of_a_whole_that_failed_are_dropped() {
    let census = Census::new();
    let value = || just(census.value()).infallible_into();
    let all = when_all((value(), just_error::<(), _>("failed"), value()));
    assert_eq!(sync_wait(all).err(), Some("failed"));
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_childs_operation_is_destroyed_when_it_completes() {
    let census = Census::new();
    let run_loop = RunLoop::new();
    let held = census.value();
    let first = just(1).then(move |x| {
        let _held = &held;
        x
    });
    let second = run_loop.scheduler().schedule().then(|()| census.alive());
    assert_eq!(run_loop.run_until(when_all((first, second))).unwrap(), (1, 0));
}

#[test]
fn children_complete_on_other_threads() {
    with_loop(|a| {
        with_loop(|b| {
            for round in 0..1_000 {
                let all = when_all((
                    starts_on(a, just(round)),
                    starts_on(b, just(round)),
                    just(round).continues_on(b),
                ));
                assert_eq!(sync_wait(all).unwrap(), (round, round, round));
            }
        });
    });
}

#[test]
fn a_failure_on_one_thread_races_with_a_stop_and_a_value_on_others() {
    with_loop(|a| {
        with_loop(|b| {
            for round in 0..2_000 {
                let source = InplaceStopSource::new();
                let all = when_all((
                    starts_on(a, just(()).infallible_into()).let_value(move |()| {
                        if round % 2 == 0 {
                            just_error("failed").boxed()
                        } else {
                            just(1).infallible_into().boxed()
                        }
                    }),
                    never::<(), &str>(),
                    starts_on(b, just(2)).infallible_into(),
                ));
                let all = all.write_env(WithStopToken(source.token())).into_outcome();
                let request = starts_on(b, just_from(|| source.request_stop()));
                let (outcome, requested) = sync_wait(when_all((all, request))).unwrap();
                assert!(requested);
                match outcome {
                    Outcome::Error("failed") => assert_eq!(round % 2, 0),
                    Outcome::Stopped => {}
                    other => panic!("{other:?}"),
                }
            }
        });
    });
}

#[test]
fn does_not_allocate() {
    let (values, allocated) = allocations(|| sync_wait(when_all((just(1), just(2).then(|x| x + 1)))).unwrap());
    assert_eq!((values, allocated), ((1, 3), 0));
    let (values, allocated) = allocations(|| sync_wait(when_all([just(1), just(2)])).unwrap());
    assert_eq!((values, allocated), ([1, 2], 0));
    let run_loop = RunLoop::new();
    let hop = run_loop.scheduler().schedule();
    run_loop.run_until(hop).unwrap();
    let (outcome, allocated) = allocations(|| {
        let failing = hop.infallible_into().let_value(|()| just_error::<(), _>("failed"));
        run_loop.run_until(when_all((never::<(), &str>(), failing)))
    });
    assert_eq!((outcome.err(), allocated), (Some("failed"), 0));
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let mut left = ROUNDS;
        let hop = run_loop.scheduler().schedule();
        let failing = hop.infallible_into().let_value(|()| just_error::<i32, _>("failed"));
        let round = when_all((
            just(1).infallible_into(),
            hop.infallible_into(),
            failing,
            never::<(), _>(),
        ));
        let last = run_loop.run_until(round.into_outcome().repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap().err(), Some("failed"));
    });
}

#[test]
fn a_stop_from_another_thread_ends_an_inline_loop() {
    for _ in 0..100 {
        let source = InplaceStopSource::new();
        let runs = AtomicBool::new(false);
        let endless = || {
            just(()).repeat_until(|()| {
                runs.store(true, SeqCst);
                false
            })
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                while !runs.load(SeqCst) {
                    std::hint::spin_loop();
                }
                source.request_stop();
            });
            let both = when_all((just(1), when_all([endless(), endless()])));
            assert!(sync_wait(both.write_env(WithStopToken(source.token()))).is_stopped());
        });
    }
}
