//! A receiver that is dropped without a completion counts as stopped, so no party waits forever.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop};
use bowline::stop::{InplaceStopSource, StopSource};
use bowline::{Completes, Panic, Transfer};

/// A sender that runs `S`, then drops its receiver instead of completing it.
#[derive(Clone)]
struct Lost<S>(S);

struct DropIt<R>(R);

// SAFETY: the operation is that of `S`, and the receiver is dropped inside its completion.
unsafe impl<S: Sender<Value = (), Error = Infallible>> Sender for Lost<S> {
    type Value = i32;
    type Error = &'static str;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<i32, &'static str>> = S::Operation<DropIt<R>>;

    fn connect<R: Receiver<i32, &'static str>>(self, receiver: R) -> Self::Operation<R> {
        self.0.connect(DropIt(receiver))
    }
}

impl<R: Receiver<i32, &'static str>> Receiver<(), Infallible> for DropIt<R> {
    type Env = R::Env;

    fn env(&self) -> R::Env {
        self.0.env()
    }

    fn set_value(self, (): ()) -> Transfer {
        Transfer::none()
    }

    fn set_error(self, error: Infallible) -> Transfer {
        match error {}
    }

    fn set_stopped(self) -> Transfer {
        Transfer::none()
    }

    fn set_panicked(self, _: Panic) -> Transfer {
        Transfer::none()
    }
}

/// Returns a sender that drops its receiver inside `start`.
fn lost() -> impl Sender<Value = i32, Error = &'static str> + Clone + Send {
    Lost(just(()))
}

/// Returns a sender that drops its receiver after `start`, on the thread that drives the loop.
fn lost_on(run_loop: &RunLoop) -> impl Sender<Value = i32, Error = &'static str> + Clone + Send {
    Lost(run_loop.scheduler().schedule())
}

/// Checks an adaptor around a sender that drops its receiver, at once and later.
macro_rules! stops {
    (|$lost:ident| $around:expr) => {{
        let $lost = lost();
        assert!(sync_wait($around).is_stopped());
        static LOOP: RunLoop = RunLoop::new();
        let $lost = lost_on(&LOOP);
        assert!(LOOP.run_until($around).is_stopped());
    }};
}

#[test]
fn a_wait_ends_stopped() {
    stops!(|lost| lost);
    let mut slot = WaitSlot::new();
    assert!(prepare(lost(), &mut slot).wait().is_stopped());
}

#[test]
fn a_wait_for_another_thread_ends_stopped() {
    with_loop(|scheduler| {
        for _ in 0..100 {
            assert!(sync_wait(Lost(scheduler.schedule())).is_stopped());
        }
    });
}

#[test]
fn what_maps_a_completion_passes_the_stop_on() {
    stops!(|lost| lost.then(|_| panic!("called")));
    stops!(|lost| lost.upon_error(|_| panic!("called")));
    stops!(|lost| lost.map_err(|_| -> () { panic!("called") }));
    stops!(|lost| lost.err_into::<String>());
    stops!(|lost| lost.write_env(With(1)));
    stops!(|lost| lost.unstoppable());
}

#[test]
fn what_runs_one_after_the_other_passes_the_stop_on() {
    stops!(|lost| lost.let_value(|x| just(x + 1).infallible_into()));
    stops!(|lost| lost.let_error(|_| -> bowline::factories::JustStopped<i32, ()> { panic!("called") }));
    stops!(|lost| just(()).infallible_into().let_value(|()| lost));
    stops!(|lost| lost.sequence(just(1).infallible_into()));
    stops!(|lost| just(1).infallible_into().sequence(lost));
    stops!(|lost| lost.starts_on(InlineScheduler));
    stops!(|lost| lost.continues_on(InlineScheduler));
    stops!(|lost| lost.on(InlineScheduler));
    stops!(|lost| lost.affine());
    stops!(|lost| lost.repeat_n(3));
    stops!(|lost| lost.repeat_until(|_| true));
    stops!(|lost| lost.retry());
    stops!(|lost| lost.retry_with(RetryPolicy::new()));
    stops!(|lost| lost.bulk(3, |_, _| panic!("called")));
}

#[test]
fn what_follows_a_stop_follows() {
    let run_loop = RunLoop::new();
    let told = lost().let_stopped(|| just(1).infallible_into());
    assert_eq!(sync_wait(told).ok(), Some(1));
    let told = lost_on(&run_loop).let_stopped(|| just(1).infallible_into());
    assert_eq!(run_loop.run_until(told).ok(), Some(1));
    let cleaned = AtomicBool::new(false);
    let finally = lost().finally(just_from(|| cleaned.store(true, SeqCst)));
    assert!(sync_wait(finally).is_stopped());
    assert!(cleaned.into_inner());
}

#[test]
fn what_runs_several_stops_the_siblings_and_itself() {
    stops!(|lost| when_all((never::<(), &str>(), lost)));
    stops!(|lost| when_all([lost.clone(), lost]));
    stops!(|lost| when_all_iter(vec![lost.clone(), lost]));
    stops!(|lost| lost.with_stop_token(StopSource::new().token()));
    stops!(|lost| lost.stop_when(never::<(), &str>()));
    stops!(|lost| never::<(), &str>().stop_when(lost));
    stops!(|lost| when_any((lost.clone(), lost)));
    stops!(|lost| when_any([lost.clone(), lost]));
    stops!(|lost| when_any_iter(vec![lost.clone(), lost]));
    // A stop of one does not end the race of the others.
    assert_eq!(sync_wait(when_any((lost(), just(1).infallible_into()))).ok(), Some(1));
}

#[test]
fn what_is_on_the_heap_passes_the_stop_on() {
    stops!(|lost| lost.boxed());
    stops!(|lost| lost.boxed().boxed());
    stops!(|lost| lost.ensure_started());
    stops!(|lost| {
        let shared = lost.split();
        when_all((shared.clone().into_outcome(), shared.into_outcome())).let_value(|(a, b)| {
            assert!(a.is_stopped() && b.is_stopped());
            just_stopped::<(), Infallible>()
        })
    });
}

#[test]
fn a_submitted_receiver_is_stopped() {
    let (record, seen) = Record::new();
    submit(lost(), record);
    assert_eq!(seen.try_recv(), Ok(Recorded::Stopped));
    static LOOP: RunLoop = RunLoop::new();
    let census = Census::new();
    let held = census.value();
    start_detached(lost_on(&LOOP).into_outcome().then(move |_| drop(held)));
    LOOP.run_ready();
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_receiver_dropped_inside_a_stop_request_counts() {
    /// Returns a sender that drops its receiver when it is asked to stop.
    fn lost_when_stopped() -> impl Sender<Value = i32, Error = &'static str> + Send {
        Lost(never())
    }
    let run_loop = RunLoop::new();
    let source = InplaceStopSource::new();
    let request = run_loop.scheduler().schedule().then(|()| source.request_stop());
    let work = when_all((lost_when_stopped(), lost_when_stopped().boxed(), never::<(), &str>()));
    let work = work.write_env(WithStopToken(source.token())).into_outcome();
    let (outcome, requested) = run_loop.run_until(when_all((work, request))).unwrap();
    assert!(outcome.is_stopped() && requested);
    let source = StopSource::new();
    let (record, seen) = Record::new();
    submit(lost_when_stopped().write_env(WithStopToken(source.token())), record);
    source.request_stop();
    assert_eq!(seen.try_recv(), Ok(Recorded::Stopped));
}
