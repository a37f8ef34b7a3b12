//! The code that the messages of the other files recommend compiles.
//!
//! A test that must compile also makes trybuild build the others completely, which evaluates the checks in `connect`.
use bowline::factories::JustError;
use bowline::prelude::*;
use bowline::scheduler::InlineScheduler;

#[derive(Clone, PartialEq)]
struct MayRefuse;

impl Scheduler for MayRefuse {
    type Schedule = JustError<(), &'static str>;
    const INFALLIBLE: bool = false;

    fn schedule(&self) -> Self::Schedule {
        just_error("full")
    }
}

#[derive(Debug, PartialEq)]
struct Failed(String);

impl From<&'static str> for Failed {
    fn from(why: &'static str) -> Self {
        Failed(why.to_owned())
    }
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Failed(why)
    }
}

fn main() {
    start_detached(starts_on(InlineScheduler, just(1).affine()));
    start_detached(starts_on(InlineScheduler, from_future(async { 1 })));
    start_detached(just(1).affine().write_env(WithScheduler(InlineScheduler)));
    start_detached(just_error::<i32, &str>("disk full").upon_error(|_| 0));
    let scope = CountingScope::new();
    scope.spawn(just(7).then(drop));
    scope.spawn(just_error::<(), &str>("disk full").upon_error(|_| ()));
    scope.spawn(starts_on(InlineScheduler, bowline::task::Task::new(async {})));
    start_detached(starts_on(InlineScheduler, scope.join()));
    assert_eq!(sync_wait(starts_on(MayRefuse.or_inline(), just(1).affine())).unwrap(), 1);

    let refused = MayRefuse.schedule().map_err(Failed::from).sequence(just(1).infallible_into());
    assert_eq!(sync_wait(refused).unwrap_err(), Failed::from("full"));

    let number = just_error::<i32, &str>("no number").err_into::<Failed>();
    let name = just_error::<String, String>("no name".to_owned()).err_into::<Failed>();
    assert_eq!(sync_wait(when_all((number, name))).unwrap_err(), Failed::from("no number"));
    let checked = when_all((just(1).infallible_into(), just_error::<i32, &str>("no")));
    assert_eq!(sync_wait(checked).unwrap_err(), "no");
}
