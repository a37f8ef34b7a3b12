//! `sync_wait`: starts a sender and blocks until it has completed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use crate::common::*;
use bowline::Query;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::InplaceStopSource;

#[test]
fn gives_the_value_the_error_or_the_stop() {
    assert_eq!(sync_wait(just(1)), Outcome::Value(1));
    assert_eq!(sync_wait(just_error::<i32, _>("no")), Outcome::Error("no"));
    assert_eq!(sync_wait(just_stopped::<i32, &str>()), Outcome::Stopped);
}

#[test]
fn a_panic_goes_on_unwinding_with_its_payload() {
    let wait = || sync_wait(just_from(|| -> i32 { std::panic::panic_any(7u8) }));
    let payload = std::panic::catch_unwind(wait).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&7u8));
}

#[test]
fn a_panic_unwinds_after_everything_has_ended() {
    let ended = AtomicBool::new(false);
    let message = panic_message(|| {
        with_loop(|scheduler| {
            let slow_to_stop = never().let_stopped(|| {
                let hop = scheduler.schedule().unstoppable();
                hop.then(|()| ended.store(true, SeqCst))
            });
            sync_wait(when_all((slow_to_stop, just_from(|| -> i32 { panic!("boom") }))))
        })
    });
    assert_eq!(message, "boom");
    assert!(ended.into_inner());
}

#[test]
fn a_completion_on_another_thread_wakes_it() {
    with_loop(|scheduler| {
        for round in 0..1_000 {
            let here = thread::current().id();
            let work = starts_on(scheduler, just_from(|| thread::current().id() != here));
            assert!(sync_wait(work).unwrap(), "round {round}");
        }
    });
}

#[test]
fn drives_the_run_loop_whose_scheduler_is_in_the_environment() {
    with_loop(|scheduler| {
        let here = thread::current().id();
        let back = just(())
            .continues_on(scheduler)
            .affine()
            .then(|()| thread::current().id());
        assert_eq!(sync_wait(back).unwrap(), here);
    });
}

#[test]
fn its_token_never_stops() {
    struct Possible;
    impl Query for Possible {
        type Answer = (bool, bool);
        fn ask<E: Env>(self, env: &E) -> (bool, bool) {
            (E::StopToken::STOPPABLE, env.stop_token().stop_possible())
        }
    }
    assert_eq!(sync_wait(read_env(Possible)).unwrap(), (false, false));
    let source = InplaceStopSource::new();
    let written = read_env(Possible).write_env(WithStopToken(source.token()));
    assert_eq!(sync_wait(written).unwrap(), (true, true));
}

#[test]
fn a_stop_from_outside_ends_the_wait() {
    let source = InplaceStopSource::new();
    let waiting = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !waiting.load(SeqCst) {
                thread::yield_now();
            }
            source.request_stop();
        });
        let work = just_from(|| waiting.store(true, SeqCst)).let_value(|()| never::<(), _>());
        assert!(sync_wait(work.write_env(WithStopToken(source.token()))).is_stopped());
    });
}

#[test]
fn waits_may_nest() {
    let work = just_from(|| sync_wait(just_from(|| sync_wait(just(1)).unwrap() + 1)).unwrap() + 1);
    assert_eq!(sync_wait(work).unwrap(), 3);
    let run_loop = RunLoop::new();
    let inner = run_loop.scheduler().schedule();
    let work = run_loop.scheduler().schedule().then(|()| run_loop.run_until(inner));
    assert!(run_loop.run_until(work).unwrap().is_value());
}

#[test]
fn borrows_and_moves() {
    let census = Census::new();
    let count = AtomicUsize::new(0);
    let value = census.value();
    let kept = sync_wait(just(value).then(|value| (count.fetch_add(1, SeqCst), value).1)).unwrap();
    assert_eq!((count.into_inner(), census.alive()), (1, 1));
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn the_operation_is_gone_when_it_returns() {
    let census = Census::new();
    let value = census.value();
    let outcome = with_loop(|scheduler| {
        sync_wait(
            just_error::<(), _>("no")
                .continues_on(scheduler)
                .then(move |()| drop(value)),
        )
    });
    assert_eq!((outcome.err(), census.alive()), (Some("no"), 0));
}

/// Another thread may point into the frame of the wait, so a destructor must not unwind out of it.
#[test]
fn a_destructor_that_panics_while_the_sender_runs_aborts() {
    let said = aborts("a_destructor_that_panics_while_the_sender_runs_aborts", || {
        // The loser's value is dropped inside its completion.
        std::mem::forget(sync_wait(when_any((just(Bomb), just(Bomb)))));
    });
    assert!(said.contains("bowline:"), "{said}");
}

#[test]
fn does_not_allocate() {
    let (value, allocated) = allocations(|| sync_wait(just(1)).unwrap());
    assert_eq!((value, allocated), (1, 0));
    with_loop(|scheduler| {
        sync_wait(scheduler.schedule()).unwrap();
        let (value, allocated) = allocations(|| sync_wait(starts_on(scheduler, just(1))).unwrap());
        assert_eq!((value, allocated), (1, 0));
    });
}

#[test]
fn a_million_waits_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut sum = 0;
        for round in 0..ROUNDS {
            sum += sync_wait(just(round)).unwrap();
        }
        assert_eq!(sum, ROUNDS * (ROUNDS - 1) / 2);
        // A whole round, on the loop that the wait drives.
        let left = AtomicUsize::new(ROUNDS);
        let run_loop = RunLoop::new();
        let round = run_loop
            .scheduler()
            .schedule()
            .then(|()| left.fetch_sub(1, SeqCst) == 1);
        assert!(run_loop.run_until(round.repeat_until(|last| *last)).unwrap());
    });
}
