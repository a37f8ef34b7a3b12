//! `when_all_iter`: runs every sender of an iterator, and completes when all have.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::InplaceStopSource;

const MANY: usize = 100_000;

#[test]
fn values_arrive_in_the_iterators_order() {
    let run_loop = RunLoop::new();
    // The later ones complete first.
    let children = (0..5).map(|n| run_loop.scheduler().schedule().repeat_n(5 - n).then(move |()| n));
    assert_eq!(run_loop.run_until(when_all_iter(children)).unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(
        sync_wait(when_all_iter(vec![just("a"), just("b")])).unwrap(),
        ["a", "b"]
    );
}

#[test]
fn an_empty_iterator_completes_at_once() {
    let none = std::iter::empty::<bowline::factories::Never<i32, Infallible>>();
    assert_eq!(sync_wait(when_all_iter(none)).unwrap(), []);
}

#[test]
fn the_iterator_runs_when_it_is_started() {
    let made = AtomicUsize::new(0);
    let children = (0..3).map(|n| {
        made.fetch_add(1, SeqCst);
        just(n)
    });
    let mut slot = WaitSlot::new();
    let prepared = prepare(when_all_iter(children), &mut slot);
    assert_eq!(made.load(SeqCst), 0);
    assert_eq!(prepared.wait().unwrap(), [0, 1, 2]);
    assert_eq!(made.load(SeqCst), 3);
}

#[test]
fn an_iterator_that_does_not_know_its_length_will_do() {
    let odd = (0..1_000).filter(|n| n % 2 == 1).map(just);
    assert_eq!(sync_wait(when_all_iter(odd)).unwrap().len(), 500);
}

#[test]
fn a_hundred_thousand_children_start_and_complete_without_recursion() {
    with_stack(SMALL_STACK, || {
        let values = sync_wait(when_all_iter((0..MANY).map(just))).unwrap();
        assert!(values.iter().copied().eq(0..MANY));
        let run_loop = RunLoop::new();
        let children = (0..MANY).map(|n| run_loop.scheduler().schedule().then(move |()| n));
        let values = run_loop.run_until(when_all_iter(children)).unwrap();
        assert!(values.iter().copied().eq(0..MANY));
    });
}

#[test]
fn a_hundred_thousand_children_are_stopped_without_recursion() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let source = InplaceStopSource::new();
        let stopped = AtomicUsize::new(0);
        let children = (0..MANY).map(|_| {
            never::<(), Infallible>().let_stopped(|| {
                stopped.fetch_add(1, SeqCst);
                just_stopped()
            })
        });
        let all = when_all_iter(children).write_env(WithStopToken(source.token()));
        let request = run_loop.scheduler().schedule().then(|()| source.request_stop());
        let (all, requested) = run_loop.run_until(when_all((all.into_outcome(), request))).unwrap();
        assert!(all.is_stopped() && requested);
        assert_eq!(stopped.load(SeqCst), MANY);
    });
}

#[test]
fn the_first_error_stops_the_siblings_and_is_the_one_reported() {
    let stopped = AtomicUsize::new(0);
    let child = |n| {
        if n % 3 == 2 {
            just_error(n).boxed()
        } else {
            let stopped = &stopped;
            never::<(), i32>()
                .upon_stopped(|| {
                    stopped.fetch_add(1, SeqCst);
                })
                .boxed()
        }
    };
    assert_eq!(sync_wait(when_all_iter((0..6).map(child))).err(), Some(2));
    assert_eq!(stopped.load(SeqCst), 4);
}

#[test]
fn a_child_that_stops_or_panics_stops_the_whole() {
    let one_stops = (0..3).map(|n| {
        if n == 1 {
            just_stopped::<(), Infallible>().boxed()
        } else {
            never().boxed()
        }
    });
    assert!(sync_wait(when_all_iter(one_stops)).is_stopped());
    let one_panics = || {
        (0..3).map(|n| {
            if n == 1 {
                just_from(|| panic!("child")).boxed()
            } else {
                never::<(), Infallible>().boxed()
            }
        })
    };
    assert_eq!(panic_message(|| sync_wait(when_all_iter(one_panics()))), "child");
}

#[test]
fn a_panic_of_the_iterator_arrives_and_no_child_is_started() {
    let census = Census::new();
    let started = AtomicUsize::new(0);
    let message = panic_message(|| {
        sync_wait(when_all_iter((0..5).map(|n| {
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
fn a_panic_in_making_the_iterator_arrives() {
    struct Broken;
    impl IntoIterator for Broken {
        type Item = bowline::factories::Just<i32>;
        type IntoIter = std::vec::IntoIter<Self::Item>;
        fn into_iter(self) -> Self::IntoIter {
            panic!("no iterator")
        }
    }
    assert_eq!(panic_message(|| sync_wait(when_all_iter(Broken))), "no iterator");
}

#[test]
fn a_stop_before_or_during_the_start_reaches_the_children() {
    let source = InplaceStopSource::new();
    let children = || {
        (0..3).map(|n| {
            if n == 1 {
                just_from(|| source.request_stop()).then(|_| ()).boxed()
            } else {
                never::<(), Infallible>().boxed()
            }
        })
    };
    assert!(sync_wait(when_all_iter(children()).write_env(WithStopToken(source.token()))).is_stopped());
    assert!(source.stop_requested());
    assert!(sync_wait(when_all_iter(children()).write_env(WithStopToken(source.token()))).is_stopped());
}

#[test]
fn moves_what_cannot_be_copied_and_drops_the_values_of_a_whole_that_failed() {
    let census = Census::new();
    let values = sync_wait(when_all_iter((0..3).map(|_| just(census.value())))).unwrap();
    assert_eq!((values.len(), census.alive()), (3, 3));
    drop(values);
    let failing = (0..3).map(|n| {
        let value = census.value();
        just(value).infallible_into().let_value(move |value| {
            if n == 2 {
                just_error("failed").boxed()
            } else {
                just(value).infallible_into().boxed()
            }
        })
    });
    assert_eq!(sync_wait(when_all_iter(failing)).err(), Some("failed"));
    assert_eq!(census.alive(), 0);
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let value = census.value();
    let children = (0..3).map(move |_| -> bowline::factories::Just<()> { panic!("called with {value:?}") });
    let mut slot = WaitSlot::new();
    drop(prepare(when_all_iter(children), &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn children_complete_on_other_threads() {
    with_loop(|a| {
        with_loop(|b| {
            for _ in 0..200 {
                let children = (0..20).map(|n| just(n).continues_on(if n % 2 == 0 { a } else { b }));
                assert!(sync_wait(when_all_iter(children)).unwrap().into_iter().eq(0..20));
            }
        });
    });
}

#[test]
fn allocates_twice_whatever_the_length() {
    for length in [1, 10, MANY] {
        let (values, allocated) = allocations(|| sync_wait(when_all_iter((0..length).map(just))).unwrap());
        assert_eq!((values.len(), allocated), (length, 2));
    }
    let (_, allocated) = allocations(|| sync_wait(when_all_iter((0..0).map(just))).unwrap());
    assert_eq!(allocated, 0);
    let (_, allocated) = allocations(|| sync_wait(when_all_iter((0..10).map(|_| just_stopped::<(), ()>()))));
    assert_eq!(allocated, 1);
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let mut left = ROUNDS;
        let round = when_all_iter([run_loop.scheduler().schedule(); 2]);
        let last = run_loop.run_until(round.repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), [(), ()]);
    });
}
