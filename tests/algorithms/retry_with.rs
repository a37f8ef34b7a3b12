//! `retry_with` and `retry_with_if`: repeat after an error and a delay, for senders and for futures.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::common::*;
use bowline::factories::JustError;
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, ThreadPool, Timer};
use bowline::stop::StopSource;
use bowline::{EmptyEnv, Patched};

const HOUR: Duration = Duration::from_secs(3600);

/// A policy with so many attempts, and tiny delays.
fn quickly(attempts: usize) -> RetryPolicy {
    RetryPolicy::new()
        .attempts(attempts)
        .initial_delay(Duration::from_micros(50))
        .max_delay(Duration::from_micros(200))
}

/// A policy with so many attempts, and no delays.
fn at_once(attempts: usize) -> RetryPolicy {
    RetryPolicy::new().attempts(attempts).initial_delay(Duration::ZERO)
}

/// Returns a sender that fails with the number of the try, until the one that succeeds with it.
fn succeeds_at(tries: &AtomicUsize, at: usize) -> impl Sender<Value = usize, Error = usize> + Clone + Send {
    just_from(|| tries.fetch_add(1, SeqCst))
        .infallible_into()
        .try_then(move |n| if n == at { Ok(n) } else { Err(n) })
}

/// Waits until another thread makes `done` true.
fn eventually(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come about");
        thread::yield_now();
    }
}

// The delays of a policy.

#[test]
fn the_delays_grow_up_to_their_maximum() {
    let policy = RetryPolicy::new().jitter(0.0);
    let expected = [100, 200, 400, 800].map(Duration::from_millis);
    assert!(policy.delays().eq(expected));
    let capped = policy.attempts(6).factor(10.0).max_delay(Duration::from_secs(2));
    let expected = [100, 1_000, 2_000, 2_000, 2_000].map(Duration::from_millis);
    assert!(capped.delays().eq(expected));
    // The first one, too.
    assert!(
        policy
            .attempts(2)
            .initial_delay(HOUR)
            .delays()
            .eq([Duration::from_secs(10)])
    );
}

#[test]
fn the_number_of_delays_is_one_less_than_the_attempts() {
    for (attempts, delays) in [(0, 0), (1, 0), (2, 1), (7, 6)] {
        let policy = RetryPolicy::new().attempts(attempts);
        assert_eq!(policy.delays().count(), delays);
        assert_eq!(policy.delays().size_hint(), (delays, Some(delays)));
    }
    let mut endless = RetryPolicy::new().attempts(usize::MAX).delays();
    assert_eq!(endless.size_hint(), (usize::MAX, None));
    assert_eq!(endless.by_ref().take(1_000).count(), 1_000);
    assert_eq!(endless.size_hint(), (usize::MAX, None));
}

#[test]
fn jitter_shortens_by_at_most_its_part() {
    let second = Duration::from_secs(1);
    let policy = RetryPolicy::new()
        .attempts(1_000)
        .initial_delay(second)
        .factor(1.0)
        .jitter(0.25);
    let delays: Vec<_> = policy.delays().collect();
    assert!(
        delays
            .iter()
            .all(|delay| (Duration::from_millis(750)..=second).contains(delay))
    );
    let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
    // The chance that a thousand random numbers leave a fifth of their range free at either end is nil.
    assert!(*least < Duration::from_millis(800) && *most > Duration::from_millis(950));
    // Jitter does not add up.
    assert!(policy.jitter(1.0).delays().last() <= Some(second));
    assert_ne!(policy.delays().collect::<Vec<_>>(), delays);
}

#[test]
fn odd_numbers_are_harmless() {
    let delays = |policy: RetryPolicy| policy.attempts(4).delays().collect::<Vec<_>>();
    let plain = RetryPolicy::new().jitter(0.0).factor(1.0);
    for factor in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY, 0.5] {
        assert_eq!(delays(plain.factor(factor)), delays(plain));
    }
    for jitter in [-1.0, f64::NAN, f64::NEG_INFINITY] {
        assert_eq!(delays(plain.jitter(jitter)), delays(plain));
    }
    let ten = Duration::from_secs(10);
    assert_eq!(delays(plain.factor(f64::INFINITY))[1..], [ten, ten]);
    let none = plain.initial_delay(Duration::ZERO).factor(f64::INFINITY);
    assert_eq!(delays(none), [Duration::ZERO; 3]);
    let longest = plain
        .initial_delay(Duration::MAX)
        .max_delay(Duration::MAX)
        .factor(1e300);
    assert_eq!(delays(longest), [Duration::MAX; 3]);
    assert!(
        delays(longest.jitter(7.0))
            .into_iter()
            .all(|delay| delay <= Duration::MAX)
    );
}

// Senders.

#[test]
fn tries_until_there_is_a_value() {
    let tries = AtomicUsize::new(0);
    assert_eq!(sync_wait(succeeds_at(&tries, 3).retry_with(quickly(9))).unwrap(), 3);
    assert_eq!(tries.into_inner(), 4);
}

#[test]
fn the_error_of_the_last_attempt_arrives() {
    for (attempts, last) in [(0, 0), (1, 0), (4, 3)] {
        for policy in [quickly(attempts), at_once(attempts)] {
            let tries = AtomicUsize::new(0);
            let work = succeeds_at(&tries, 9).retry_with(policy);
            assert_eq!(sync_wait(work).err(), Some(last));
            assert_eq!(tries.into_inner(), last + 1);
        }
    }
}

#[test]
fn the_predicate_decides_unless_no_attempt_is_left() {
    let (tries, asked) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let predicate = |error: &usize| {
        lock(&asked).push(*error);
        *error < 2
    };
    let work = succeeds_at(&tries, 9).retry_with_if(quickly(9), predicate);
    assert_eq!(sync_wait(work).err(), Some(2));
    assert_eq!(*lock(&asked), [0, 1, 2]);
    lock(&asked).clear();
    let tries = AtomicUsize::new(0);
    let work = succeeds_at(&tries, 9).retry_with_if(quickly(2), predicate);
    assert_eq!(sync_wait(work).err(), Some(1));
    assert_eq!(*lock(&asked), [0]);
}

#[test]
fn a_value_a_stop_or_a_panic_ends_it_at_once() {
    let called = |_: &i32| -> bool { panic!("called") };
    let policy = quickly(9);
    assert_eq!(
        sync_wait(just(1).infallible_into().retry_with_if(policy, called)).unwrap(),
        1
    );
    assert!(sync_wait(just_stopped::<i32, i32>().retry_with_if(policy, called)).is_stopped());
    let panics = just_from(|| -> i32 { panic!("first") }).infallible_into::<i32>();
    assert_eq!(
        panic_message(|| sync_wait(panics.retry_with_if(policy, called))),
        "first"
    );
}

#[test]
fn panics_of_the_predicate_and_of_the_clone_arrive() {
    struct Unclonable;
    impl Clone for Unclonable {
        fn clone(&self) -> Self {
            panic!("in clone")
        }
    }
    let policy = quickly(9);
    assert_eq!(
        panic_message(|| sync_wait(just(Unclonable).retry_with(policy))),
        "in clone"
    );
    let fails = just_error::<(), _>("no").retry_with_if(policy, |_| panic!("in the predicate"));
    assert_eq!(panic_message(|| sync_wait(fails)), "in the predicate");
    // The attempt after a delay, too: on the timer's thread a panic must not be lost.
    let tries = AtomicUsize::new(0);
    let later = succeeds_at(&tries, 9)
        .then(|_| ())
        .retry_with_if(policy, |n| if *n == 1 { panic!("later") } else { true });
    assert_eq!(panic_message(|| sync_wait(later)), "later");
}

#[test]
fn a_stop_ends_a_delay_at_once() {
    let source = StopSource::new();
    let tries = Arc::new(AtomicUsize::new(0));
    let policy = RetryPolicy::new().initial_delay(HOUR).max_delay(HOUR);
    let count = tries.clone();
    let fails = just_from(move || _ = count.fetch_add(1, SeqCst))
        .infallible_into()
        .let_value(|()| just_error::<(), _>("no"));
    let (record, ended) = Record::in_env(Patched::new(WithStopToken(source.token()), EmptyEnv));
    submit(fails.retry_with(policy), record);
    assert_eq!(tries.load(SeqCst), 1);
    assert!(ended.try_recv().is_err());
    source.request_stop();
    // On this thread, so it has completed by now.
    assert_eq!(ended.try_recv().unwrap(), Recorded::Stopped);
    assert_eq!(tries.load(SeqCst), 1);
}

#[test]
fn a_stop_is_seen_without_delays() {
    let source = StopSource::new();
    let tries = AtomicUsize::new(0);
    let work = just_from(|| {
        if tries.fetch_add(1, SeqCst) == 2 {
            source.request_stop();
        }
    })
    .infallible_into()
    .let_value(|()| just_error::<(), _>("no"))
    .retry_with(at_once(usize::MAX))
    .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_stopped());
    assert_eq!(tries.into_inner(), 3);
}

#[test]
fn an_error_is_dropped_before_its_delay() {
    let census = Census::new();
    let source = StopSource::new();
    let make = census.clone();
    let fails = just_from(move || make.value())
        .infallible_into()
        .let_value(just_error::<(), _>);
    let (record, ended) = Record::in_env(Patched::new(WithStopToken(source.token()), EmptyEnv));
    submit(
        fails.retry_with(RetryPolicy::new().initial_delay(HOUR).max_delay(HOUR)),
        record,
    );
    assert_eq!(census.alive(), 0);
    source.request_stop();
    assert!(matches!(ended.recv(), Ok(Recorded::Stopped)));
}

#[test]
fn the_delay_is_on_the_timer_of_the_environment() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let (tries, ran) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (count, threads) = (tries.clone(), ran.clone());
    let work = just_from(move || {
        lock(&threads).push(thread::current().id());
        count.fetch_add(1, SeqCst)
    })
    .infallible_into()
    .try_then(|n| if n == 2 { Ok(n) } else { Err("no") });
    let (record, ended) = Record::new();
    submit(work.retry_with(quickly(5)).write_env(With(timer)), record);
    assert_eq!(tries.load(SeqCst), 1);
    // Without a scheduler, the next attempt begins on the timer's context: the loop, which this thread drives.
    eventually(|| {
        run_loop.run_ready();
        tries.load(SeqCst) == 3
    });
    assert_eq!(ended.try_recv().unwrap(), Recorded::Value(2));
    assert!(lock(&ran).iter().all(|thread| *thread == thread::current().id()));
}

#[test]
fn every_attempt_begins_on_the_scheduler() {
    let pool = ThreadPool::new(2);
    let places = Mutex::new(Vec::new());
    let work = just_from(|| lock(&places).push(pool.worker_index().is_some()))
        .infallible_into()
        .let_value(|()| just_error::<(), _>("no"))
        .retry_with(quickly(4));
    assert_eq!(sync_wait(starts_on(pool.scheduler(), work)).err(), Some("no"));
    assert_eq!(*lock(&places), [true; 4]);
}

#[test]
fn a_scheduler_that_refuses_does_not_end_it() {
    #[derive(Clone, PartialEq)]
    struct Full;
    impl Scheduler for Full {
        type Schedule = JustError<(), &'static str>;
        const INFALLIBLE: bool = false;

        fn schedule(&self) -> Self::Schedule {
            just_error("full")
        }
    }
    #[derive(Clone, PartialEq)]
    struct Broken;
    impl Scheduler for Broken {
        type Schedule = JustError<(), &'static str>;
        const INFALLIBLE: bool = false;

        fn schedule(&self) -> Self::Schedule {
            panic!("broken")
        }
    }
    let tries = AtomicUsize::new(0);
    let work = succeeds_at(&tries, 2).retry_with(quickly(5));
    assert_eq!(sync_wait(work.write_env(WithScheduler(Full))).unwrap(), 2);
    let tries = AtomicUsize::new(0);
    let work = succeeds_at(&tries, 2).retry_with(quickly(5));
    assert_eq!(
        panic_message(|| sync_wait(work.write_env(WithScheduler(Broken)))),
        "broken"
    );
}

#[test]
fn tries_do_not_allocate() {
    // The first use of the global timer does.
    sync_wait(Timer::global().schedule_after(Duration::ZERO)).unwrap();
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let try_it = |policy: RetryPolicy| {
        let timer = timer.clone();
        allocations(|| {
            run_loop
                .run_until(just_error::<(), _>("no").retry_with(policy).write_env(With(timer)))
                .err()
        })
    };
    assert_eq!(try_it(quickly(20)), (Some("no"), 0));
    assert_eq!(try_it(at_once(20)), (Some("no"), 0));
}

#[test]
fn a_million_tries_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let tries = AtomicUsize::new(0);
        let work = succeeds_at(&tries, ROUNDS).retry_with(at_once(usize::MAX));
        assert_eq!(sync_wait(work).unwrap(), ROUNDS);
    });
}

#[test]
fn many_tries_with_delays_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let policy = RetryPolicy::new()
            .attempts(2_000)
            .initial_delay(Duration::from_nanos(1))
            .factor(1.0)
            .jitter(0.0);
        assert_eq!(
            sync_wait(just_error::<(), _>("no").retry_with(policy)).err(),
            Some("no")
        );
    });
}

#[test]
fn a_stop_races_with_the_end_of_a_delay() {
    for round in 0..if cfg!(sanitized) { 50 } else { 500 } {
        let source = StopSource::new();
        let (record, ended) = Record::in_env(Patched::new(WithStopToken(source.token()), EmptyEnv));
        let policy = RetryPolicy::new()
            .attempts(usize::MAX)
            .initial_delay(Duration::from_nanos(1 + round))
            .factor(1.0);
        submit(just_error::<(), _>("no").retry_with(policy), record);
        for _ in 0..round % 100 {
            std::hint::spin_loop();
        }
        source.request_stop();
        assert_eq!(ended.recv().unwrap(), Recorded::Stopped);
    }
}

// Futures.

#[test]
fn a_future_is_tried_again() {
    let work = Task::new(async {
        let tries = AtomicUsize::new(0);
        let attempt = || async {
            task::yield_now().await;
            match tries.fetch_add(1, SeqCst) {
                3 => Ok("the page"),
                n => Err(n),
            }
        };
        assert_eq!(task::retry_with(quickly(9), attempt).await, Ok("the page"));
        assert_eq!(tries.swap(0, SeqCst), 4);
        assert_eq!(task::retry_with(at_once(2), attempt).await, Err(1));
        assert_eq!(tries.swap(0, SeqCst), 2);
        let refused = task::retry_with_if(quickly(9), |error| *error < 1, attempt).await;
        assert_eq!((refused, tries.into_inner()), (Err(1), 2));
    });
    sync_wait(work).unwrap();
}

#[test]
fn a_cancelled_task_leaves_its_delay_at_once() {
    let pool = ThreadPool::new(2);
    let (tries, after) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let work = Task::new({
        let (tries, after) = (tries.clone(), after.clone());
        async move {
            task::group(async move |group| {
                let (told, tells) = mpsc::channel();
                group.spawn(async move {
                    let policy = RetryPolicy::new().initial_delay(HOUR).max_delay(HOUR);
                    let _ = task::retry_with(policy, || {
                        tries.fetch_add(1, SeqCst);
                        told.send(()).unwrap();
                        std::future::ready(Err::<(), _>("no"))
                    })
                    .await;
                    after.store(true, SeqCst);
                });
                tells.recv().unwrap();
                group.cancel_all();
            })
            .await;
        }
    });
    sync_wait(starts_on(pool.scheduler(), work)).unwrap();
    assert_eq!(tries.load(SeqCst), 1);
    assert!(!after.load(SeqCst));
}

#[test]
fn a_task_uses_the_timer_of_its_environment() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let (tries, (record, ended)) = (Arc::new(AtomicUsize::new(0)), Record::<_, Infallible>::new());
    let pool = ThreadPool::new(1);
    let count = tries.clone();
    let work = Task::new(async move {
        task::retry_with(quickly(3), || {
            std::future::ready(Err::<(), _>(count.fetch_add(1, SeqCst)))
        })
        .await
    });
    submit(starts_on(pool.scheduler(), work).write_env(With(timer)), record);
    eventually(|| tries.load(SeqCst) == 1);
    eventually(|| {
        run_loop.run_ready();
        tries.load(SeqCst) == 3
    });
    assert_eq!(ended.recv().unwrap(), Recorded::Value(Err(2)));
}
