//! `execute`: runs a function on a scheduler, detached.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop};

#[test]
fn runs_the_function_on_the_scheduler() {
    static LOOP: RunLoop = RunLoop::new();
    let (sent, received) = mpsc::channel();
    execute(LOOP.scheduler(), move || sent.send(thread::current().id()).unwrap());
    assert!(received.try_recv().is_err(), "nobody drives the loop yet");
    let driver = thread::spawn(|| {
        LOOP.run_ready();
        thread::current().id()
    });
    assert_eq!(received.recv().unwrap(), driver.join().unwrap());
}

#[test]
fn runs_at_once_on_the_inline_scheduler_and_drops_what_was_captured() {
    let census = Census::new();
    let (value, runs) = (census.value(), Arc::new(AtomicUsize::new(0)));
    let counted = runs.clone();
    execute(InlineScheduler, move || {
        let _value = value;
        counted.fetch_add(1, SeqCst);
    });
    assert_eq!((runs.load(SeqCst), census.alive()), (1, 0));
}

#[test]
fn a_panic_of_the_function_ends_there_and_drops_what_was_captured() {
    let census = Census::new();
    let value = census.value();
    execute(InlineScheduler, move || panic!("called with {value:?}"));
    assert_eq!(census.alive(), 0);
}

#[test]
fn functions_run_in_order_on_a_run_loop() {
    static LOOP: RunLoop = RunLoop::new();
    let (sent, received) = mpsc::channel();
    for n in 0..100 {
        let sent = sent.clone();
        execute(LOOP.scheduler(), move || sent.send(n).unwrap());
    }
    drop(sent);
    LOOP.run_ready();
    assert!(received.into_iter().eq(0..100));
}

#[test]
fn allocates_once() {
    static LOOP: RunLoop = RunLoop::new();
    // A warm-up: the first drive of a thread may allocate its wake-up handle.
    LOOP.run_ready();
    let ((), allocated) = allocations(|| {
        execute(LOOP.scheduler(), || ());
        LOOP.run_ready();
    });
    assert_eq!(allocated, 1);
}

#[test]
fn a_million_functions_each_from_the_last_take_constant_stack() {
    static LOOP: RunLoop = RunLoop::new();
    fn next(left: usize, done: mpsc::Sender<()>) {
        execute(LOOP.scheduler(), move || {
            if left == 0 {
                done.send(()).unwrap()
            } else {
                next(left - 1, done)
            }
        });
    }
    with_stack(SMALL_STACK, || {
        let (done, finished) = mpsc::channel();
        next(ROUNDS, done);
        LOOP.run_ready();
        finished.try_recv().unwrap();
    });
}
