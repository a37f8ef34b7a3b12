//! Every algorithm in one chain, a million times, in a small stack.

use std::convert::Infallible;

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop};

/// A chain through which a number passes: every step adds one.
trait Chain: Sender<Value = u32, Error = Infallible> + Clone + Send {}
impl<S: Sender<Value = u32, Error = Infallible> + Clone + Send> Chain for S {}

/// The scheduler on which the steps wait.
trait Place: Scheduler<Schedule: Sender<Error = Infallible> + Clone + Send> + Copy + 'static {}
impl<C: Scheduler<Schedule: Sender<Error = Infallible> + Clone + Send> + Copy + 'static> Place for C {}

fn values<C: Place>(n: u32, scheduler: C) -> impl Chain {
    just(n)
        .then(|n| n + 1)
        .let_value(|n| just_from(move || n + 1))
        .let_value(move |n| scheduler.schedule().then(move |()| n + 1))
}
const VALUES: u32 = 3;

fn errors<C: Place>(n: u32, scheduler: C) -> impl Chain {
    just_error::<u32, u32>(n)
        .map_err(|n| n + 1)
        .err_into::<u64>()
        .let_error(move |n| {
            scheduler
                .schedule()
                .infallible_into()
                .sequence(just_error::<u32, u64>(n + 1))
        })
        .retry_if(|_| false)
        .upon_error(|n| n as u32 + 1)
        .retry()
}
const ERRORS: u32 = 3;

fn stops<C: Place>(n: u32, scheduler: C) -> impl Chain {
    just_stopped::<u32, Infallible>()
        .let_stopped(move || never().stop_when(scheduler.schedule()))
        .upon_stopped(move || n + 1)
        .unstoppable()
}
const STOPS: u32 = 1;

fn outcomes(n: u32) -> impl Chain {
    just_stopped::<u32, u32>()
        .stopped_as_error(n + 1)
        .upon_error(|n| n + 1)
        .stopped_as_option()
        .then(|n| n.map_or(0, |n: u32| n + 1))
        .into_option()
        .then(|n| n.map_or(0, |n: u32| n + 1))
        .into_outcome()
        .then(|outcome: Outcome<u32, Infallible>| outcome.unwrap() + 1)
}
const OUTCOMES: u32 = 5;

/// The increment of a step, from the environment.
#[derive(Clone, Copy)]
struct Step(u32);

fn places<C: Place>(n: u32, scheduler: C) -> impl Chain {
    let reads = read_env(Get::<Step>::new()).then(move |step| n + step.map_or(0, |Step(step)| step));
    reads
        .write_env(With(Step(1)))
        .starts_on(scheduler)
        .continues_on(scheduler)
        .affine()
        .on(scheduler)
        .finally(just(()).continues_on(scheduler))
}
const PLACES: u32 = 1;

fn loops<C: Place>(n: u32, scheduler: C) -> impl Chain {
    scheduler
        .schedule()
        .repeat_n(2)
        .sequence(scheduler.schedule().then(move |()| n + 1).repeat_until(|_| true))
}
const LOOPS: u32 = 1;

fn several<C: Place>(n: u32, scheduler: C) -> impl Chain {
    when_all((just(n), scheduler.schedule().then(|()| 1), when_all([just(1), just(1)])))
        .then(|(n, one, [two, three])| n + one + two + three)
        .let_value(move |n| when_any((never(), scheduler.schedule().then(move |()| n + 1))))
        .let_value(|n| when_any([just(n + 1), just(n + 1)]))
        .bulk(2, |_, _| ())
        .bulk_unchunked(2, |_, _| ())
        .bulk_chunked(2, |_, _| ())
}
const SEVERAL: u32 = 5;

/// Every algorithm that does not allocate. The groups are small and consecutive, to keep the types small.
fn without_allocation<C: Place>(scheduler: C) -> impl Chain {
    values(0, scheduler)
        .let_value(move |n| errors(n, scheduler))
        .let_value(move |n| stops(n, scheduler))
        .let_value(outcomes)
        .let_value(move |n| places(n, scheduler))
        .let_value(move |n| loops(n, scheduler))
        .let_value(move |n| several(n, scheduler))
        .let_value(|n| from_future(async move { n + 1 }))
}
const WITHOUT_ALLOCATION: u32 = VALUES + ERRORS + STOPS + OUTCOMES + PLACES + LOOPS + SEVERAL + 1;

/// Every algorithm that allocates.
fn with_allocation<C: Place>(n: u32, scheduler: C) -> impl Chain {
    just(n)
        .let_value(move |n| scheduler.schedule().then(move |()| n + 1).boxed())
        .let_value(move |n| scheduler.schedule().then(move |()| n + 1).split())
        .let_value(move |n| scheduler.schedule().then(move |()| n + 1).ensure_started())
        .let_value(|n| when_all_iter([just(n), just(1)]).then(|values| values.into_iter().sum::<u32>()))
        .let_value(move |n| when_any_iter([scheduler.schedule(), scheduler.schedule()]).then(move |()| n + 1))
}
const WITH_ALLOCATION: u32 = 5;

#[test]
fn a_million_synchronous_rounds_take_constant_stack_and_no_allocation() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let round = without_allocation(InlineScheduler).repeat_until(|_| {
            left -= 1;
            left == 0
        });
        let (last, allocated) = allocations(|| sync_wait(round));
        assert_eq!((last.unwrap(), allocated), (WITHOUT_ALLOCATION, 0));
    });
}

#[test]
fn a_million_synchronous_rounds_that_allocate_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let round = with_allocation(0, InlineScheduler).repeat_until(|_| {
            left -= 1;
            left == 0
        });
        assert_eq!(sync_wait(round).unwrap(), WITH_ALLOCATION);
    });
}

/// Every algorithm, for a number of rounds on a loop.
fn on_a_loop(run_loop: &'static RunLoop, rounds: usize) -> impl Sender<Value = u32, Error = Infallible> {
    let scheduler = run_loop.scheduler();
    let mut left = rounds;
    without_allocation(scheduler)
        .let_value(move |n| with_allocation(n, scheduler))
        .repeat_until(move |_| {
            left -= 1;
            left == 0
        })
}

#[test]
fn a_million_rounds_that_complete_later_on_a_run_loop_take_constant_stack() {
    static LOOP: RunLoop = RunLoop::new();
    let last = with_stack(SMALL_STACK, || LOOP.run_until(on_a_loop(&LOOP, ROUNDS)));
    assert_eq!(last.unwrap(), WITHOUT_ALLOCATION + WITH_ALLOCATION);
}

#[test]
fn rounds_that_complete_on_another_thread_take_constant_stack() {
    static LOOP: RunLoop = RunLoop::new();
    let last = thread::scope(|scope| {
        scope.spawn(|| with_stack(SMALL_STACK, || LOOP.run()));
        let last = with_stack(SMALL_STACK, || sync_wait(on_a_loop(&LOOP, 1_000)));
        LOOP.finish();
        last
    });
    assert_eq!(last.unwrap(), WITHOUT_ALLOCATION + WITH_ALLOCATION);
}
