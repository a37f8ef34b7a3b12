//! Senders, adaptors and receivers written outside the library: the code of the book's chapter, tested.
#![allow(unreachable_pub, reason = "the files of the example are written as in a library")]

#[path = "../../examples/own_sender/gate.rs"]
mod gate;
#[path = "../../examples/own_sender/inspect.rs"]
mod inspect;
#[path = "../../examples/own_sender/report.rs"]
mod report;
#[path = "../../examples/own_sender/tickets.rs"]
mod tickets;

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::*;
use bowline::prelude::*;
use bowline::stop::{InplaceStopSource, StopSource};
use bowline::{Completion, Operation, Panic};
use gate::Gate;
use inspect::InspectExt;
use report::Report;
use tickets::{SoldOut, Tickets};

#[test]
fn the_book_shows_this_code() {
    let chapter = include_str!("../../docs/writing-your-own.md");
    for (file, code) in [
        ("tickets.rs", include_str!("../../examples/own_sender/tickets.rs")),
        ("inspect.rs", include_str!("../../examples/own_sender/inspect.rs")),
        ("report.rs", include_str!("../../examples/own_sender/report.rs")),
        ("gate.rs", include_str!("../../examples/own_sender/gate.rs")),
    ] {
        // The chapter introduces the file in its own words.
        let (_, code) = code.split_once("\n\n").expect("a first line");
        assert!(chapter.contains(code), "docs/writing-your-own.md shows another {file}");
    }
}

#[test]
fn a_factory_sends_values_and_errors() {
    let tickets = Tickets::new(2);
    assert_eq!(sync_wait(tickets.take()).unwrap(), 2);
    assert_eq!(sync_wait(tickets.take().then(|number| number * 10)).unwrap(), 10);
    assert_eq!(sync_wait(tickets.take()).unwrap_err(), SoldOut);
}

#[test]
fn a_factory_does_nothing_until_it_is_started() {
    let tickets = Tickets::new(1);
    drop(prepare(tickets.take(), &mut WaitSlot::new()));
    assert_eq!(sync_wait(tickets.take()).unwrap(), 1);
}

#[test]
fn a_factory_takes_part_in_every_algorithm() {
    let tickets = Tickets::new(4);
    let all = when_all((tickets.take(), tickets.take().boxed()));
    assert_eq!(sync_wait(all).unwrap(), (4, 3));
    let emptied = tickets.take().repeat_until(|_| false).upon_error(|SoldOut| 0);
    assert_eq!(sync_wait(emptied).unwrap(), 0);
}

#[test]
fn own_senders_do_not_allocate() {
    let tickets = Tickets::new(1);
    let gate = Gate::new();
    gate.open();
    let ((), allocated) = allocations(|| {
        let taken = tickets.take().inspect(|_| ());
        sync_wait(taken).unwrap();
        sync_wait(gate.passed()).unwrap();
    });
    assert_eq!(allocated, 0);
}

#[test]
fn a_million_rounds_of_own_senders_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let seen = AtomicUsize::new(0);
        let tickets = Tickets::new(u32::MAX);
        let gate = Gate::new();
        gate.open();
        let round = gate.passed().infallible_into().sequence(tickets.take()).inspect(|_| {
            seen.fetch_add(1, Ordering::Relaxed);
        });
        sync_wait(round.repeat_n(ROUNDS)).unwrap();
        assert_eq!(seen.into_inner(), ROUNDS);
    });
}

#[test]
fn an_adaptor_sees_the_value_only() {
    let mut seen = None;
    assert_eq!(sync_wait(just(7).inspect(|&value| seen = Some(value))).unwrap(), 7);
    assert_eq!(seen, Some(7));
    let failed = just_error::<i32, _>("no").inspect(|_| panic!("called"));
    assert_eq!(sync_wait(failed).unwrap_err(), "no");
    assert!(sync_wait(just_stopped::<i32, &str>().inspect(|_| panic!("called"))).is_stopped());
}

#[test]
fn a_panic_of_an_adaptors_function_arrives_and_drops_the_value() {
    let census = Census::new();
    let value = census.value();
    assert_eq!(
        panic_message(|| sync_wait(just(value).inspect(|_| panic!("seen")))),
        "seen"
    );
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_receiver_gets_every_completion() {
    fn completion<S: Sender<Value = i32, Error = &'static str>>(sender: S) -> Completion<i32, &'static str> {
        let (receiver, reports) = Report::new(StopSource::new().token());
        let operation = pin!(sender.connect(receiver));
        // SAFETY: the operation is pinned here, started once, and completes inside `start`.
        unsafe { operation.start() }.run();
        reports.try_recv().expect("a report")
    }
    assert!(matches!(completion(just(1).infallible_into()), Completion::Value(1)));
    assert!(matches!(completion(just_error("no")), Completion::Error("no")));
    assert!(matches!(completion(just_stopped()), Completion::Stopped));
    let panicked = just(1).then(|_| -> i32 { panic!("boom") }).infallible_into();
    let Completion::Panicked(payload) = completion(panicked) else {
        panic!("not a panic");
    };
    assert_eq!(Panic::message(&payload), Some("boom"));
}

#[test]
fn a_receiver_that_is_dropped_closes_its_channel() {
    let (receiver, reports) = Report::<(), std::convert::Infallible>::new(StopSource::new().token());
    drop(never().connect(receiver));
    assert!(reports.recv().is_err());
}

#[test]
fn the_work_sees_the_receivers_stop_token() {
    let source = StopSource::new();
    source.request_stop();
    let (receiver, reports) = Report::new(source.token());
    submit(read_env(StopRequested), receiver);
    assert!(matches!(reports.recv(), Ok(Completion::Value(true))));
}

#[test]
fn an_open_gate_is_passed_at_once() {
    let gate = Gate::new();
    gate.open();
    assert!(sync_wait(gate.passed()).is_value());
}

#[test]
fn another_thread_completes_everyone_who_waits() {
    let gate = Gate::new();
    let passed = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| gate.open());
        let crowd = when_all_iter((0..1000).map(|_| gate.passed().then(|()| passed.fetch_add(1, Ordering::Relaxed))));
        assert_eq!(sync_wait(crowd).unwrap().len(), 1000);
    });
    assert_eq!(passed.into_inner(), 1000);
}

#[test]
fn a_stop_before_the_start_ends_the_wait_at_once() {
    let gate = Gate::new();
    let source = InplaceStopSource::new();
    source.request_stop();
    assert!(sync_wait(gate.passed().write_env(WithStopToken(source.token()))).is_stopped());
}

#[test]
fn a_stop_ends_the_wait_and_leaves_the_others_waiting() {
    let gate = Gate::new();
    let source = StopSource::new();
    let (stopped, of_stopped) = Report::new(source.token());
    let (waiting, of_waiting) = Report::new(StopSource::new().token());
    let mut first = pin!(gate.passed().connect(stopped));
    let mut second = pin!(gate.passed().connect(waiting));
    // SAFETY: both operations are pinned here and started once, and have completed at the end of this test.
    unsafe { first.as_mut().start().and(second.as_mut().start()) }.run();
    source.request_stop();
    assert!(matches!(of_stopped.try_recv(), Ok(Completion::Stopped)));
    assert!(of_waiting.try_recv().is_err());
    gate.open();
    assert!(matches!(of_waiting.try_recv(), Ok(Completion::Value(()))));
    assert!(of_stopped.try_recv().is_err());
}

#[test]
fn opening_and_stopping_at_once_complete_exactly_once() {
    for _ in 0..1000 {
        let gate = Gate::new();
        let source = InplaceStopSource::new();
        let completed = AtomicUsize::new(0);
        thread::scope(|scope| {
            let opener = scope.spawn(|| gate.open());
            let stopper = scope.spawn(|| source.request_stop());
            let wait = gate
                .passed()
                .into_outcome()
                .then(|_| completed.fetch_add(1, Ordering::SeqCst))
                .write_env(WithStopToken(source.token()));
            assert_eq!(sync_wait(wait).unwrap(), 0);
            opener.join().unwrap();
            assert!(stopper.join().unwrap(), "nobody else requested the stop");
        });
        assert_eq!(completed.into_inner(), 1);
    }
}
