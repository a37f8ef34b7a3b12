//! `affine`: completes on the scheduler it was started on.

use std::convert::Infallible;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use crate::common::touchy::Touchy;
use crate::common::*;
use bowline::adaptors::{Affine, Then};
use bowline::factories::{Just, ReadEnv};
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, RunLoopSchedule, RunLoopScheduler, TaskScheduler};
use bowline::stop::StopSource;
use bowline::{Completes, Operation, Transfer};

/// A log of events, in order.
type Log = Mutex<Vec<&'static str>>;

/// A run loop's scheduler that logs every trip: created, connected, started.
#[derive(Clone, Copy)]
struct Noting<'a> {
    run_loop: RunLoopScheduler<'a>,
    log: &'a Log,
}

impl PartialEq for Noting<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.run_loop == other.run_loop
    }
}

impl<'a> Scheduler for Noting<'a> {
    type Schedule = NotingSchedule<'a>;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> NotingSchedule<'a> {
        self.log.lock().unwrap().push("trip asked for");
        NotingSchedule {
            schedule: self.run_loop.schedule(),
            log: self.log,
        }
    }
}

struct NotingSchedule<'a> {
    schedule: RunLoopSchedule<'a>,
    log: &'a Log,
}

// SAFETY: the operation touches nothing after it started the inner one, which keeps the contract; it is `!Unpin` like the inner
// one.
unsafe impl<'a> Sender for NotingSchedule<'a> {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = NotingOperation<'a, <RunLoopSchedule<'a> as Sender>::Operation<R>>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> Self::Operation<R> {
        self.log.lock().unwrap().push("trip connected");
        NotingOperation {
            inside: self.schedule.connect(receiver),
            log: self.log,
        }
    }
}

struct NotingOperation<'a, O> {
    inside: O,
    log: &'a Log,
}

impl<O: Operation> Operation for NotingOperation<'_, O> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        self.log.lock().unwrap().push("trip started");
        // SAFETY: the inner operation is pinned with this, and started once.
        unsafe { self.map_unchecked_mut(|this| &mut this.inside).start() }
    }
}

/// Waits for `work` on a logging scheduler, and returns the log.
fn noted<S: Sender<Value: Send, Error: Send>>(log: &Log, work: S) -> (Outcome<S::Value, S::Error>, Vec<&'static str>) {
    let run_loop = RunLoop::new();
    let scheduler = Noting {
        run_loop: run_loop.scheduler(),
        log,
    };
    let outcome = run_loop.run_until(work.write_env(WithScheduler(scheduler)));
    (outcome, std::mem::take(&mut *log.lock().unwrap()))
}

/// A sender that completes with the completing thread, on another thread, before `start` returns.
#[derive(Clone, Copy)]
struct ElsewhereInStart;

struct ElsewhereOperation<R> {
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

// SAFETY: the operation touches nothing after the other thread completed the receiver, and is `!Unpin`.
unsafe impl Sender for ElsewhereInStart {
    type Value = ThreadId;
    type Error = Infallible;
    type Operation<R: Receiver<ThreadId, Infallible>> = ElsewhereOperation<R>;

    fn connect<R: Receiver<ThreadId, Infallible>>(self, receiver: R) -> Self::Operation<R> {
        ElsewhereOperation {
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

impl<R: Receiver<ThreadId, Infallible>> Operation for ElsewhereOperation<R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: the receiver is not pinned.
        let receiver = unsafe { self.get_unchecked_mut() }.receiver.take().expect("one start");
        thread::scope(|scope| {
            scope.spawn(move || receiver.set_value(thread::current().id()).run());
        });
        Transfer::none()
    }
}

#[test]
fn comes_back_after_a_value_an_error_a_stop_and_a_panic() {
    with_loop(|there| {
        let here = thread::current().id();
        let seen = Mutex::new(Vec::new());
        // A clean-up runs where the completion arrives, on every channel.
        let note = || just_from(|| seen.lock().unwrap().push(thread::current().id()));
        assert_eq!(
            sync_wait(just(1).continues_on(there).affine().finally(note())).unwrap(),
            1
        );
        let failed = just_error::<i32, _>("no").continues_on(there).affine().finally(note());
        assert_eq!(sync_wait(failed).err(), Some("no"));
        let stopped = just_stopped::<i32, Infallible>()
            .continues_on(there)
            .affine()
            .finally(note());
        assert!(sync_wait(stopped).is_stopped());
        let panics = starts_on(there, just_from(|| panic!("there"))).affine().finally(note());
        assert_eq!(panic_message(|| sync_wait(panics)), "there");
        assert_eq!(seen.into_inner().unwrap(), [here; 4]);
    });
}

#[test]
fn the_trip_is_connected_before_the_child_starts() {
    let (run_loop, log) = (RunLoop::new(), Log::default());
    let scheduler = Noting {
        run_loop: run_loop.scheduler(),
        log: &log,
    };
    // The child completes on this thread, and so after its start.
    let child = just_from(|| log.lock().unwrap().push("child started")).continues_on(run_loop.scheduler());
    run_loop
        .run_until(child.affine().write_env(WithScheduler(scheduler)))
        .unwrap();
    assert_eq!(
        log.into_inner().unwrap(),
        ["trip asked for", "trip connected", "child started", "trip started"]
    );
}

#[test]
fn there_is_no_trip_for_a_sender_that_completes_inline() {
    let (outcome, log) = noted(&Log::default(), just(1).affine());
    assert_eq!((outcome.unwrap(), log), (1, vec![]));
    let (outcome, log) = noted(&Log::default(), read_env(StopRequested).affine());
    assert_eq!((outcome.unwrap(), log), (false, vec![]));
    let (outcome, log) = noted(&Log::default(), just(1).then(|x| x + 1).affine());
    assert_eq!((outcome.unwrap(), log), (2, vec![]));
    let (outcome, log) = noted(&Log::default(), read_env(StopRequested).then(|stop| !stop).affine());
    assert_eq!((outcome.unwrap(), log), (true, vec![]));
    let (outcome, log) = noted(&Log::default(), just_error::<i32, _>("no").affine());
    assert_eq!((outcome.err(), log), (Some("no"), vec![]));
    assert!(<Affine<Just<i32>> as Sender>::COMPLETES.is_inline());
    assert!(<Affine<Then<ReadEnv<StopRequested>, fn(bool) -> bool>> as Sender>::COMPLETES.is_inline());
}

#[test]
fn there_is_no_second_trip_for_a_sender_that_comes_back_by_itself() {
    with_loop(|there| {
        let (outcome, log) = noted(&Log::default(), just(1).on(there).affine().affine());
        assert_eq!(outcome.unwrap(), 1);
        assert_eq!(log, ["trip asked for", "trip connected", "trip started"]);
        assert_eq!(affine_of(&just(1).on(there)), Completes::OnStartScheduler);
    });
}

fn affine_of<S: Sender<Value: Send, Error: Send>>(_: &S) -> Completes {
    <Affine<S> as Sender>::COMPLETES
}

#[test]
fn completing_on_another_thread_while_it_starts_costs_no_trip() {
    let here = thread::current().id();
    let (outcome, log) = noted(
        &Log::default(),
        ElsewhereInStart.affine().then(|there| (there, thread::current().id())),
    );
    let (there, delivered) = outcome.unwrap();
    assert_ne!(there, here);
    assert_eq!(delivered, here);
    assert_eq!(log, ["trip asked for", "trip connected"]);
}

#[test]
fn completing_on_another_thread_races_with_the_end_of_the_start() {
    with_loop(|there| {
        let here = thread::current().id();
        for _ in 0..10_000 {
            let work = there.schedule().affine().then(|()| thread::current().id());
            assert_eq!(sync_wait(work).unwrap(), here);
        }
    });
}

#[test]
fn comes_back_after_a_stop_that_another_thread_requests() {
    with_loop(|there| {
        let source = StopSource::new();
        let here = thread::current().id();
        let work = when_all((
            never::<bool, Infallible>()
                .affine()
                .upon_stopped(move || thread::current().id() == here),
            starts_on(there, just_from(|| source.request_stop())),
        ))
        .write_env(WithStopToken(source.token()));
        assert_eq!(sync_wait(work).unwrap(), (true, true));
    });
}

#[test]
fn the_trip_is_not_stopped() {
    with_loop(|there| {
        let source = StopSource::new();
        let here = thread::current().id();
        let work = starts_on(there, just_from(|| source.request_stop()))
            .affine()
            .then(move |first| first && thread::current().id() == here)
            .write_env(WithStopToken(source.token()));
        assert!(sync_wait(work).unwrap());
    });
}

#[test]
fn a_stop_before_the_start_reaches_the_child() {
    let source = StopSource::new();
    source.request_stop();
    let work = never::<i32, Infallible>()
        .affine()
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_stopped());
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let last = sync_wait(just(1).affine().affine().repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), 1);
        // The sender does not declare where it completes, so each trip is prepared.
        let mut left = ROUNDS;
        let round = never::<i32, Infallible>()
            .stop_when(just(()))
            .upon_stopped(|| 1)
            .affine();
        assert_eq!(affine_of(&round), Completes::OnStartScheduler);
        let last = sync_wait(round.repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), 1);
    });
}

#[test]
fn a_panic_in_schedule_is_the_completion_and_the_sender_is_not_started() {
    let census = Census::new();
    for (method, message) in [("schedule", "in schedule"), ("clone", "in clone")] {
        // The sender moves to another thread, so a trip is needed.
        let touchy = Touchy::<0>::new(method, &census);
        let value = census.value();
        with_loop(|there| {
            let work = just_from(move || panic!("started with {value:?}"))
                .continues_on(there)
                .affine()
                .write_env(WithScheduler(touchy));
            assert_eq!(panic_message(|| sync_wait(work)), message);
        });
        assert_eq!(census.alive(), 0);
    }
    // Likewise behind an erased scheduler, inline and not.
    fn check<const WORDS: usize>(census: &Census) {
        with_loop(|there| {
            let started = Arc::new(AtomicBool::new(false));
            let returned = started.clone();
            // The sender completes after `start` has returned to the loop of `sync_wait`, so the trip is taken.
            let work = just(census.value())
                .continues_on(there)
                .then(move |value| {
                    while !returned.load(SeqCst) {
                        std::thread::yield_now();
                    }
                    value
                })
                .affine()
                .write_env(WithScheduler(TaskScheduler::new(Touchy::<WORDS>::new(
                    "schedule", census,
                ))));
            // The trip was connected before the sender started, and fails when it is taken.
            let both = when_all((work, just_from(move || started.store(true, SeqCst))));
            assert_eq!(panic_message(|| sync_wait(both)), "in schedule");
        });
        assert_eq!(census.alive(), 0);
    }
    check::<0>(&census);
    check::<100>(&census);
}
