//! `or_inline` and `or_abort`: fallible schedulers made infallible.

use crate::common::*;
use bowline::factories::JustError;
use bowline::prelude::*;
use bowline::scheduler::{
    InlineScheduler, OrAbort, OrInline, PoolScheduler, RunLoop, RunLoopScheduler, TaskScheduler, TimerScheduler,
};
use bowline::stop::StopSource;

/// A scheduler with a chosen behaviour.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Told {
    Work,
    Fail,
    Stop,
    Panic,
}

impl Scheduler for Told {
    type Schedule = BoxedSender<'static, (), &'static str>;
    const INFALLIBLE: bool = false;

    fn schedule(&self) -> Self::Schedule {
        match self {
            Told::Work => just(()).infallible_into().boxed(),
            Told::Fail => just_error("full").boxed(),
            Told::Stop => just_stopped().boxed(),
            Told::Panic => just_from(|| panic!("in the scheduler")).infallible_into().boxed(),
        }
    }
}

const _: () = {
    assert!(!<Told as Scheduler>::INFALLIBLE);
    assert!(<OrInline<Told> as Scheduler>::INFALLIBLE);
    assert!(<OrAbort<Told> as Scheduler>::INFALLIBLE);
    // The library's schedulers never fail.
    assert!(<InlineScheduler as Scheduler>::INFALLIBLE);
    assert!(<RunLoopScheduler<'_> as Scheduler>::INFALLIBLE);
    assert!(<PoolScheduler as Scheduler>::INFALLIBLE);
    assert!(<TimerScheduler as Scheduler>::INFALLIBLE);
    assert!(<TaskScheduler<'_> as Scheduler>::INFALLIBLE);
};

#[test]
fn or_inline_goes_on_where_it_is_when_the_scheduler_fails() {
    for told in [Told::Work, Told::Fail, Told::Stop] {
        assert_eq!(sync_wait(just(1).continues_on(told.or_inline())).unwrap(), 1);
        assert_eq!(sync_wait(starts_on(told.or_inline(), just(1))).unwrap(), 1);
        assert_eq!(sync_wait(just(1).on(told.or_inline())).unwrap(), 1);
    }
}

#[test]
fn or_inline_is_somewhere_to_come_back_to() {
    with_loop(|there| {
        for told in [Told::Work, Told::Fail, Told::Stop] {
            let away = just(1).continues_on(there);
            let work = starts_on(told.or_inline(), away.affine());
            assert_eq!(sync_wait(work).unwrap(), 1);
        }
    });
}

#[test]
fn a_scheduler_that_works_is_used() {
    with_loop(|there| {
        let id = sync_wait(there.schedule().then(|()| thread::current().id())).unwrap();
        let inline = starts_on(there.or_inline(), just_from(|| thread::current().id()));
        assert_eq!(sync_wait(inline).unwrap(), id);
        let abort = starts_on(there.or_abort(), just_from(|| thread::current().id()));
        assert_eq!(sync_wait(abort).unwrap(), id);
    });
    assert_eq!(sync_wait(starts_on(Told::Work.or_abort(), just(1))).unwrap(), 1);
}

#[test]
fn a_stop_that_was_requested_is_not_a_failure() {
    let source = StopSource::new();
    source.request_stop();
    let inline = Told::Stop
        .or_inline()
        .schedule()
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(inline).is_stopped());
    let abort = Told::Stop
        .or_abort()
        .schedule()
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(abort).is_stopped());
}

#[test]
fn a_panic_of_the_scheduler_passes() {
    let inline = starts_on(Told::Panic.or_inline(), just(1));
    assert_eq!(panic_message(|| sync_wait(inline)), "in the scheduler");
    let abort = starts_on(Told::Panic.or_abort(), just(1));
    assert_eq!(panic_message(|| sync_wait(abort)), "in the scheduler");
}

#[test]
fn or_abort_ends_the_process_when_the_scheduler_fails() {
    let said = aborts("or_abort_ends_the_process_when_the_scheduler_fails", || {
        let _ = sync_wait(just(1).continues_on(Told::Fail.or_abort()));
    });
    assert!(said.contains("or_abort"), "{said}");
}

#[test]
fn or_abort_ends_the_process_when_the_scheduler_stops_unasked() {
    let said = aborts("or_abort_ends_the_process_when_the_scheduler_stops_unasked", || {
        let _ = sync_wait(just(1).continues_on(Told::Stop.or_abort()));
    });
    assert!(said.contains("or_abort"), "{said}");
}

/// A scheduler that fails with a counted error.
#[derive(Clone)]
struct Full(Census);

impl PartialEq for Full {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Scheduler for Full {
    type Schedule = JustError<(), Counted>;
    const INFALLIBLE: bool = false;

    fn schedule(&self) -> Self::Schedule {
        just_error(self.0.value())
    }
}

#[test]
fn the_error_is_dropped_before_the_completion() {
    let census = Census::new();
    let work = Full(census.clone()).or_inline().schedule().then(|()| census.alive());
    assert_eq!(sync_wait(work).unwrap(), 0);
}

#[test]
fn equal_when_what_they_wrap_is() {
    let (first, second) = (RunLoop::new(), RunLoop::new());
    assert!(first.scheduler().or_inline() == first.scheduler().or_inline());
    assert!(first.scheduler().or_inline() != second.scheduler().or_inline());
    assert!(first.scheduler().or_abort() == first.scheduler().or_abort());
    assert!(first.scheduler().or_abort() != second.scheduler().or_abort());
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let value = census.value();
    let mut slot = WaitSlot::new();
    let work = Full(census.clone()).or_inline().schedule().then(move |()| drop(value));
    drop(prepare(work, &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn does_not_allocate() {
    let run_loop = RunLoop::new();
    let work = just(1)
        .continues_on(run_loop.scheduler().or_inline())
        .continues_on(run_loop.scheduler().or_abort());
    let (value, allocated) = allocations(|| run_loop.run_until(work).unwrap());
    assert_eq!((value, allocated), (1, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    /// A scheduler that fails without an allocation.
    #[derive(Clone, Copy, PartialEq)]
    struct Down;
    impl Scheduler for Down {
        type Schedule = JustError<(), &'static str>;
        const INFALLIBLE: bool = false;
        fn schedule(&self) -> Self::Schedule {
            just_error("down")
        }
    }
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let last = sync_wait(just(1).continues_on(Down.or_inline()).repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), 1);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let mut left = ROUNDS;
        let round = run_loop.scheduler().or_inline().schedule();
        let last = run_loop.run_until(round.repeat_until(|()| {
            left -= 1;
            left == 0
        }));
        assert!(last.is_value());
    });
}
