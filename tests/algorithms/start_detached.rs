//! `start_detached`: starts a sender on the heap, detached.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::StopSource;

#[test]
fn runs_before_it_returns_what_completes_at_once() {
    let (sent, received) = mpsc::channel();
    start_detached(just(7).then(move |x| sent.send(x).unwrap()));
    assert_eq!(received.try_recv(), Ok(7));
}

#[test]
fn runs_on_its_own_what_completes_later() {
    static LOOP: RunLoop = RunLoop::new();
    let census = Census::new();
    let value = census.value();
    start_detached(LOOP.scheduler().schedule().then(move |()| drop(value)));
    assert_eq!(census.alive(), 1);
    LOOP.run_ready();
    assert_eq!(census.alive(), 0);
}

#[test]
fn the_value_is_dropped_and_a_stop_or_a_panic_ends_there() {
    let census = Census::new();
    start_detached(just(census.value()));
    let held = census.value();
    start_detached(just_stopped::<(), Infallible>().then(move |()| drop(held)));
    let held = census.value();
    start_detached(just_from(move || panic!("called with {held:?}")));
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_written_token_stops_it() {
    let census = Census::new();
    let source = StopSource::new();
    let held = census.value();
    let work = never::<(), Infallible>().upon_stopped(move || drop(held));
    start_detached(work.write_env(WithStopToken(source.token())));
    assert_eq!(census.alive(), 1);
    source.request_stop();
    assert_eq!(census.alive(), 0);
}

#[test]
fn allocates_once() {
    let ((), allocated) = allocations(|| start_detached(just(1).then(|x| x + 1)));
    assert_eq!(allocated, 1);
    static LOOP: RunLoop = RunLoop::new();
    let ((), allocated) = allocations(|| start_detached(LOOP.scheduler().schedule()));
    assert_eq!(allocated, 1);
    LOOP.run_ready();
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let rounds = Arc::new(AtomicUsize::new(0));
        let counted = rounds.clone();
        let round = just_from(move || counted.fetch_add(1, SeqCst) + 1);
        start_detached(round.repeat_until(|rounds| *rounds == ROUNDS));
        assert_eq!(rounds.load(SeqCst), ROUNDS);
    });
}

#[test]
fn a_line_of_starts_each_from_the_last_takes_constant_stack() {
    static LOOP: RunLoop = RunLoop::new();
    fn next(left: usize, done: mpsc::Sender<()>) {
        let hop = LOOP.scheduler().schedule();
        start_detached(hop.then(move |()| {
            if left == 0 {
                done.send(()).unwrap()
            } else {
                next(left - 1, done)
            }
        }));
    }
    with_stack(SMALL_STACK, || {
        let (done, finished) = mpsc::channel();
        next(ROUNDS, done);
        LOOP.run_ready();
        finished.try_recv().unwrap();
    });
}
