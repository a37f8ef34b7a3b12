//! `bulk`, `bulk_chunked` and `bulk_unchunked`: call a function for every index.

mod common;

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::InplaceStopSource;
use common::*;

/// Counts how often each index was visited.
struct Visits(Vec<AtomicUsize>);

impl Visits {
    fn new(indices: usize) -> Self {
        Visits((0..indices).map(|_| AtomicUsize::new(0)).collect())
    }

    fn visit(&self, index: usize) {
        self.0[index].fetch_add(1, Ordering::SeqCst);
    }

    fn visit_all(&self, range: Range<usize>) {
        range.for_each(|index| self.visit(index));
    }

    fn total(&self) -> usize {
        self.0.iter().map(|visits| visits.load(Ordering::SeqCst)).sum()
    }

    fn all_once(&self) -> bool {
        self.0.iter().all(|visits| visits.load(Ordering::SeqCst) == 1)
    }
}

#[test]
fn every_index_is_visited_exactly_once_and_the_value_handed_on() {
    for shape in [1, 7, 1023, 1024, 1025, 5000] {
        let visits = Visits::new(shape);
        assert_eq!(
            sync_wait(just("v").bulk(shape, |index, _| visits.visit(index))).unwrap(),
            "v"
        );
        assert!(visits.all_once());

        let visits = Visits::new(shape);
        assert_eq!(
            sync_wait(just("v").bulk_unchunked(shape, |index, _| visits.visit(index))).unwrap(),
            "v"
        );
        assert!(visits.all_once());

        let visits = Visits::new(shape);
        assert_eq!(
            sync_wait(just("v").bulk_chunked(shape, |range, _| visits.visit_all(range))).unwrap(),
            "v"
        );
        assert!(visits.all_once());
    }
}

#[test]
fn without_an_index_nothing_is_called() {
    assert_eq!(sync_wait(just(1).bulk(0, |_, _| panic!("called"))).unwrap(), 1);
    assert_eq!(
        sync_wait(just(1).bulk_unchunked(0, |_, _| panic!("called"))).unwrap(),
        1
    );
    assert_eq!(sync_wait(just(1).bulk_chunked(0, |_, _| panic!("called"))).unwrap(), 1);
}

#[test]
fn chunks_are_never_empty() {
    let chunks = Mutex::new(Vec::new());
    sync_wait(just(()).bulk_chunked(3000, |range, ()| chunks.lock().unwrap().push(range))).unwrap();
    assert!(chunks.into_inner().unwrap().iter().all(|range| !range.is_empty()));
}

#[test]
fn the_function_sees_the_value() {
    let sum = AtomicUsize::new(0);
    let add = |index: usize, values: &Vec<usize>| {
        sum.fetch_add(values[index], Ordering::SeqCst);
    };
    assert_eq!(sync_wait(just(vec![1, 2, 3]).bulk(3, add)).unwrap(), [1, 2, 3]);
    assert_eq!(sum.load(Ordering::SeqCst), 6);
}

#[test]
fn is_not_called_for_the_rest() {
    let failed = just_error::<i32, _>("no");
    assert_eq!(sync_wait(failed.bulk(3, |_, _| panic!("called"))).error(), Some("no"));
    assert_eq!(
        sync_wait(failed.bulk_chunked(3, |_, _| panic!("called"))).error(),
        Some("no")
    );
    let stopped = just_stopped::<i32, &str>();
    assert!(sync_wait(stopped.bulk(3, |_, _| panic!("called"))).is_stopped());
    assert!(sync_wait(stopped.bulk_chunked(3, |_, _| panic!("called"))).is_stopped());
    let visits = Visits::new(3);
    let panicked = just_panic::<i32, &str>("first");
    let indices = panicked.clone().bulk(3, |index, _| visits.visit(index));
    assert_eq!(panic_message(|| sync_wait(indices)), "first");
    let chunks = panicked.bulk_chunked(3, |range, _| visits.visit_all(range));
    assert_eq!(panic_message(|| sync_wait(chunks)), "first");
    assert_eq!(visits.total(), 0);
}

#[test]
fn a_panic_of_one_index_ends_the_rest_and_arrives() {
    let visits = Visits::new(10);
    let work = just(()).bulk(10, |index, ()| {
        assert_ne!(index, 3, "the third");
        visits.visit(index);
    });
    assert!(panic_message(|| sync_wait(work)).contains("the third"));
    assert_eq!(visits.total(), 3);

    let visits = Visits::new(10_000);
    let work = just(()).bulk_chunked(10_000, |range, ()| {
        assert!(!range.contains(&9000), "the chunk");
        visits.visit_all(range);
    });
    assert!(panic_message(|| sync_wait(work)).contains("the chunk"));
    assert!(visits.total() <= 9000);
}

#[test]
fn a_panic_drops_the_value_and_what_was_captured() {
    let census = Census::new();
    let (value, other) = (census.value(), census.value());
    let work = just(census.value()).bulk(3, move |_, _| {
        let _value = &value;
        panic!("boom");
    });
    panic_message(|| sync_wait(work));
    let work = just(census.value()).bulk_chunked(3, move |_, _| {
        let _value = &other;
        panic!("boom");
    });
    panic_message(|| sync_wait(work));
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_stop_before_the_start_leaves_everything_out() {
    let source = InplaceStopSource::new();
    source.request_stop();
    let token = || WithStopToken(source.token());
    assert!(sync_wait(just(1).bulk(3, |_, _| panic!("called")).write_env(token())).is_stopped());
    assert!(sync_wait(just(1).bulk_chunked(3, |_, _| panic!("called")).write_env(token())).is_stopped());
    // There is nothing to leave out.
    assert_eq!(sync_wait(just(1).bulk(0, |_, _| ()).write_env(token())).unwrap(), 1);
}

#[test]
fn a_stop_leaves_the_rest_out() {
    let source = InplaceStopSource::new();
    let visits = Visits::new(10);
    let work = just(1).bulk(10, |index, _| {
        visits.visit(index);
        if index == 3 {
            source.request_stop();
        }
    });
    assert!(sync_wait(work.write_env(WithStopToken(source.token()))).is_stopped());
    assert_eq!(visits.total(), 4);

    let source = InplaceStopSource::new();
    let chunks = AtomicUsize::new(0);
    let work = just(1).bulk_chunked(100_000, |_, _| {
        chunks.fetch_add(1, Ordering::SeqCst);
        source.request_stop();
    });
    assert!(sync_wait(work.write_env(WithStopToken(source.token()))).is_stopped());
    assert_eq!(chunks.into_inner(), 1);
}

#[test]
fn a_stop_in_the_last_call_comes_too_late() {
    let source = InplaceStopSource::new();
    let work = just(1).bulk(3, |index, _| {
        if index == 2 {
            source.request_stop();
        }
    });
    assert_eq!(sync_wait(work.write_env(WithStopToken(source.token()))).unwrap(), 1);
}

#[test]
fn the_function_and_a_value_that_is_not_handed_on_are_dropped_before_the_completion() {
    let census = Census::new();
    let captured = || {
        let value = census.value();
        move |_: usize| {
            let _value = &value;
        }
    };
    let call = captured();
    assert_eq!(
        sync_wait(just(0).bulk(1, move |index, _| call(index)).then(|_| census.alive())).unwrap(),
        0
    );
    let call = captured();
    let failed = just_error::<usize, _>(0).bulk(1, move |index, _| call(index));
    assert_eq!(sync_wait(failed.upon_error(|_| census.alive())).unwrap(), 0);

    let source = InplaceStopSource::new();
    source.request_stop();
    let stopped = just(census.value())
        .bulk(1, |_, _| ())
        .write_env(WithStopToken(source.token()));
    let stopped = stopped.then(|_| 1).upon_stopped(|| census.alive());
    assert_eq!(sync_wait(stopped).unwrap(), 0);
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let kept = sync_wait(just(census.value()).bulk(2, |_, _| ()).bulk_chunked(2, |_, _| ())).unwrap();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let mut slot = WaitSlot::new();
    let work = just(census.value())
        .bulk(3, |_, _| panic!("called"))
        .bulk_chunked(3, |_, _| panic!("called"));
    drop(prepare(work, &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn completes_where_the_sender_does() {
    assert_eq!(completes(&just(1).bulk(1, |_, _| ())), Completes::OnStartScheduler);
    assert_eq!(
        completes(&just(1).bulk_chunked(1, |_, _| ())),
        Completes::OnStartScheduler
    );
    assert_eq!(completes(&never::<(), ()>().bulk(1, |_, ()| ())), Completes::Anywhere);
}

#[test]
fn does_not_allocate() {
    let (value, allocated) = allocations(|| {
        let work = just(1)
            .bulk(10, |_, _| ())
            .bulk_unchunked(10, |_, _| ())
            .bulk_chunked(10, |_, _| ());
        sync_wait(work).unwrap()
    });
    assert_eq!((value, allocated), (1, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let calls = AtomicUsize::new(0);
        let count = |_: usize, _: &i32| {
            calls.fetch_add(1, Ordering::Relaxed);
        };
        let round = just(1)
            .bulk(1, count)
            .bulk_chunked(1, |range, value| count(range.start, value));
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), 1);
        assert_eq!(calls.into_inner(), 2 * ROUNDS);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let there = run_loop.scheduler().schedule();
        let round = there.bulk(2, |_, ()| ()).bulk_chunked(2, |_, ()| ());
        let last: Outcome<(), Infallible> = run_loop.run_until(round.repeat_until(million()));
        assert_eq!(last, Outcome::Value(()));
    });
}
