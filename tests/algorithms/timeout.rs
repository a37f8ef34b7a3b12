//! `timeout`: asks a sender to stop when the time is up, and fails then.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, Timer};
use bowline::stop::InplaceStopSource;

const HOUR: Duration = Duration::from_secs(3600);

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn forever() -> impl Sender<Value = i32, Error = &'static str> + Clone + Send {
    never()
}

#[test]
fn fails_when_the_time_is_up_and_not_before() {
    let timer = Timer::new();
    let begin = Instant::now();
    assert_eq!(
        sync_wait(forever().timeout_on(&timer, ms(5))).unwrap_err(),
        TimeoutError::Elapsed
    );
    assert!(begin.elapsed() >= ms(5));
    let begin = Instant::now();
    assert_eq!(sync_wait(forever().timeout(ms(5))).unwrap_err(), TimeoutError::Elapsed);
    assert!(begin.elapsed() >= ms(5));
}

#[test]
fn what_completes_in_time_passes() {
    let timer = Timer::new();
    let soon = || timer.schedule_after(ms(1)).infallible_into::<&str>();
    assert_eq!(sync_wait(soon().then(|()| 1).timeout(HOUR)).unwrap(), 1);
    let fails = soon().try_then(|()| Err::<i32, _>("no"));
    assert_eq!(sync_wait(fails.timeout(HOUR)).unwrap_err(), TimeoutError::Inner("no"));
    let stops = soon().let_value(|()| just_stopped::<i32, _>());
    assert!(sync_wait(stops.timeout(HOUR)).is_stopped());
    let panics = || soon().then(|()| -> i32 { panic!("work") });
    assert_eq!(panic_message(|| sync_wait(panics().timeout(HOUR))), "work");
    // Inside the start.
    assert_eq!(sync_wait(just(1).timeout(HOUR)).unwrap(), 1);
    assert_eq!(
        sync_wait(just_error::<i32, _>("no").timeout(HOUR)).unwrap_err(),
        TimeoutError::Inner("no")
    );
    assert!(sync_wait(just_stopped::<i32, &str>().timeout(HOUR)).is_stopped());
    assert_eq!(
        panic_message(|| sync_wait(just_panic::<i32, &str>("at once").timeout(HOUR))),
        "at once"
    );
}

#[test]
fn no_time_at_all_is_time_for_what_completes_inside_the_start() {
    let timer = Timer::new();
    assert_eq!(sync_wait(just(1).timeout_on(&timer, Duration::ZERO)).unwrap(), 1);
    assert!(
        sync_wait(forever().timeout_on(&timer, Duration::ZERO))
            .unwrap_err()
            .is_elapsed()
    );
    let started = AtomicBool::new(false);
    let work = just_from(|| started.store(true, SeqCst))
        .infallible_into()
        .let_value(|()| forever());
    assert!(sync_wait(work.timeout_on(&timer, Duration::ZERO)).is_error());
    assert!(started.into_inner());
}

#[test]
fn the_longest_time_is_no_limit() {
    let timer = Timer::new();
    let work = timer
        .schedule_after(ms(2))
        .then(|()| 1)
        .timeout_on(&timer, Duration::MAX);
    assert_eq!(sync_wait(work).unwrap(), 1);
}

#[test]
fn the_sender_is_awaited_after_it_was_stopped() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let ended = AtomicBool::new(false);
    let cleans_up = forever().let_stopped(|| {
        let hops = run_loop.scheduler().schedule().repeat_n(3).unstoppable();
        hops.then(|()| ended.store(true, SeqCst))
            .infallible_into()
            .let_value(|()| just_stopped())
    });
    let work = cleans_up
        .timeout_on(&timer, ms(1))
        .map_err(|error| (error, ended.load(SeqCst)));
    assert_eq!(run_loop.run_until(work).unwrap_err(), (TimeoutError::Elapsed, true));
}

#[test]
fn what_the_sender_completes_with_after_the_time_was_up_counts() {
    let timer = Timer::new();
    let limited = |work| timeout_now(work, &timer);
    assert_eq!(limited(just(7).infallible_into().boxed()).ok(), Some(7));
    assert_eq!(
        limited(just_error("broken off").boxed()).err(),
        Some(TimeoutError::Inner("broken off"))
    );
    assert_eq!(limited(just_stopped().boxed()).err(), Some(TimeoutError::Elapsed));
    assert_eq!(panic_message(|| limited(just_panic("late").boxed())), "late");
}

/// Waits, after the timeout, for a sender that waits for its stop and then completes like `after`.
fn timeout_now(
    after: bowline::adaptors::BoxedSender<'_, i32, &'static str>,
    timer: &Timer,
) -> Outcome<i32, TimeoutError<&'static str>> {
    let stopped = AtomicBool::new(false);
    let work = forever().let_stopped(|| {
        stopped.store(true, SeqCst);
        after
    });
    let outcome = sync_wait(work.timeout_on(timer, ms(1)));
    assert!(stopped.into_inner());
    outcome
}

#[test]
fn a_sender_that_does_not_listen_runs_to_its_end() {
    let timer = Timer::new();
    let work = timer.schedule_after(ms(5)).then(|()| 1).unstoppable();
    assert_eq!(sync_wait(work.timeout_on(&timer, ms(1))).unwrap(), 1);
}

#[test]
fn a_stop_of_the_parent_passes_through() {
    let timer = Timer::new();
    let source = InplaceStopSource::new();
    let stopped = AtomicUsize::new(0);
    let work = || {
        let work = forever().let_stopped(|| {
            stopped.fetch_add(1, SeqCst);
            just_stopped()
        });
        work.timeout_on(&timer, HOUR)
            .into_outcome()
            .write_env(WithStopToken(source.token()))
    };
    let request = timer.schedule_after(ms(1)).then(|()| source.request_stop());
    let (outcome, _) = sync_wait(when_all((work(), request))).unwrap();
    assert!(outcome.is_stopped());
    // Requested before the start.
    assert!(sync_wait(work()).unwrap().is_stopped());
    assert_eq!(stopped.load(SeqCst), 2);
}

#[test]
fn the_time_that_is_up_does_not_stop_the_parent() {
    let source = InplaceStopSource::new();
    let work = forever().timeout(ms(1)).write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_error());
    assert!(!source.stop_requested());
}

#[test]
fn nests_and_the_shorter_time_counts() {
    let timer = Timer::new();
    let inner = forever().timeout_on(&timer, ms(1)).timeout_on(&timer, HOUR);
    assert_eq!(
        sync_wait(inner).unwrap_err(),
        TimeoutError::Inner(TimeoutError::Elapsed)
    );
    let outer = forever().timeout_on(&timer, HOUR).timeout_on(&timer, ms(1));
    assert_eq!(sync_wait(outer).unwrap_err(), TimeoutError::Elapsed);
}

#[test]
fn retries_with_a_time_limit_for_each_and_for_all() {
    let timer = Timer::new();
    let tries = AtomicUsize::new(0);
    let attempt = just_from(|| tries.fetch_add(1, SeqCst))
        .infallible_into()
        .let_value(|_| forever());
    let work = attempt.timeout_on(&timer, ms(1)).retry().timeout_on(&timer, ms(20));
    assert_eq!(sync_wait(work).unwrap_err(), TimeoutError::Elapsed);
    assert!(tries.into_inner() >= 1);
}

#[test]
fn sender_timer_and_stop_race() {
    let timer = Timer::new();
    let mut seen = [0; 3];
    for round in 0..3_000 {
        let source = InplaceStopSource::new();
        let soon = |n: u64| timer.schedule_after(Duration::from_nanos(round * n % 30_000));
        let work = soon(7919).timeout_on(&timer, Duration::from_nanos(round * 104_729 % 30_000));
        let work = work.write_env(WithStopToken(source.token())).into_outcome();
        let request = soon(1_299_709).then(|()| source.request_stop());
        match sync_wait(when_all((work, request))).unwrap().0 {
            Outcome::Value(()) => seen[0] += 1,
            Outcome::Error(TimeoutError::Elapsed) => seen[1] += 1,
            Outcome::Stopped => seen[2] += 1,
            Outcome::Error(TimeoutError::Inner(never)) => match never {},
        }
    }
    assert_eq!(seen.iter().sum::<i32>(), 3_000);
}

#[test]
fn its_error_speaks_for_the_senders_error() {
    #[derive(Debug)]
    struct Broken;
    impl fmt::Display for Broken {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("broken")
        }
    }
    #[derive(Debug)]
    struct Because(Broken);
    impl fmt::Display for Because {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("because")
        }
    }
    impl Error for Broken {}
    impl Error for Because {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }
    let elapsed = TimeoutError::<Because>::Elapsed;
    assert!(elapsed.is_elapsed());
    assert_eq!(elapsed.to_string(), "timed out");
    assert!(elapsed.source().is_none());
    assert!(elapsed.into_inner().is_none());
    let inner = TimeoutError::Inner(Because(Broken));
    assert!(!inner.is_elapsed());
    assert_eq!(inner.to_string(), "because");
    assert_eq!(inner.source().map(ToString::to_string).as_deref(), Some("broken"));
    assert_eq!(
        inner.into_inner().map(|error| error.to_string()).as_deref(),
        Some("because")
    );
}

#[test]
fn moves_what_cannot_be_copied_and_borrows_from_the_caller() {
    let census = Census::new();
    let kept = sync_wait(just(census.value()).timeout(HOUR)).unwrap();
    assert_eq!(census.alive(), 1);
    drop(kept);
    let value = census.value();
    let lost = never::<Counted, Infallible>()
        .timeout(ms(1))
        .map_err(move |error| (error, value));
    assert!(sync_wait(lost).is_error());
    assert_eq!(census.alive(), 0);
    let word = "borrowed".to_owned();
    assert_eq!(sync_wait(just(&word).timeout(HOUR)).unwrap(), "borrowed");
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let value = census.value();
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let mut slot = WaitSlot::new();
    let work = just_from(move || panic!("called with {value:?}"));
    drop(prepare(work.timeout_on(&timer, Duration::ZERO), &mut slot));
    assert_eq!(census.alive(), 0);
    assert_eq!(run_loop.run_ready(), 0);
}

#[test]
fn does_not_allocate() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let run = || {
        let value = run_loop.run_until(just(1).timeout_on(&timer, HOUR)).ok();
        let error = run_loop.run_until(forever().timeout_on(&timer, ms(1))).err();
        (value, error)
    };
    run();
    let (ends, allocated) = allocations(run);
    assert_eq!(ends, (Some(1), Some(TimeoutError::Elapsed)));
    assert_eq!(allocated, 0);
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let timer = Timer::on(&run_loop);
        // In time, inside the start; in time, later; and out of time.
        let quick = just(1).timeout_on(&timer, HOUR);
        assert_eq!(run_loop.run_until(quick.repeat_until(million())).unwrap(), 1);
        let hop = run_loop.scheduler().schedule().timeout_on(&timer, HOUR);
        run_loop.run_until(hop.repeat_until(million())).unwrap();
        let slow = forever().timeout_on(&timer, Duration::ZERO).upon_error(|_| 2);
        assert_eq!(run_loop.run_until(slow.repeat_until(million())).unwrap(), 2);
    });
}
