//! The crate without `std` and without `alloc`. Runs with every set of features; `.ci/run` runs it with none.

use std::convert::Infallible;
use std::pin::pin;

use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, TaskScheduler};
use bowline::stop::InplaceStopSource;
use bowline::{Completion, EmptyEnv, Operation, Panic, Patched, Transfer};

/// A receiver that stores its completion in a given place and offers a stop token: all that waiting needs without threads.
struct Leave<'a, T, E> {
    place: &'a mut Option<Completion<T, E>>,
    source: &'a InplaceStopSource,
}

impl<T, E> Leave<'_, T, E> {
    fn leave(self, completion: Completion<T, E>) -> Transfer {
        *self.place = Some(completion);
        Transfer::none()
    }
}

impl<'a, T: Send, E: Send> Receiver<T, E> for Leave<'a, T, E> {
    type Env = Patched<WithStopToken<bowline::stop::InplaceStopToken<'a>>, EmptyEnv>;

    fn env(&self) -> Self::Env {
        Patched::new(WithStopToken(self.source.token()), EmptyEnv)
    }

    fn set_value(self, value: T) -> Transfer {
        self.leave(Completion::Value(value))
    }

    fn set_error(self, error: E) -> Transfer {
        self.leave(Completion::Error(error))
    }

    fn set_stopped(self) -> Transfer {
        self.leave(Completion::Stopped)
    }

    fn set_panicked(self, payload: Panic) -> Transfer {
        self.leave(Completion::Panicked(payload))
    }
}

/// Starts `sender`, calls `during` after the start, and returns the completion.
fn complete<S>(sender: S, source: &InplaceStopSource, during: impl FnOnce()) -> Completion<S::Value, S::Error>
where
    S: Sender<Value: Send, Error: Send>,
{
    let mut place = None;
    {
        let operation = pin!(sender.connect(Leave {
            place: &mut place,
            source,
        }));
        // SAFETY: the operation is pinned and started once, and every sender of this file completes before the end of the
        // block.
        unsafe { operation.start() }.run();
        during();
    }
    place.expect("it completed")
}

#[test]
fn chains_loops_and_fans_run() {
    let source = InplaceStopSource::new();
    let both = when_all((just(1).then(|x| x + 1), just(2).let_value(|x| just(x * 10))));
    let work = both
        .then(|(a, b)| a + b)
        .repeat_until(|&sum| sum == 22)
        .finally(just(()));
    assert!(matches!(complete(work, &source, || ()), Completion::Value(22)));
}

#[test]
fn a_stop_reaches_what_waits() {
    let source = InplaceStopSource::new();
    let work = when_all((never::<(), Infallible>(), never::<(), Infallible>()));
    let completion = complete(work, &source, || assert!(source.request_stop()));
    assert!(matches!(completion, Completion::Stopped));
}

#[test]
fn the_first_value_wins() {
    let source = InplaceStopSource::new();
    assert!(matches!(
        complete(when_any((never(), just(3))), &source, || ()),
        Completion::Value(3)
    ));
}

#[test]
fn a_small_scheduler_is_erased() {
    let source = InplaceStopSource::new();
    let erased = TaskScheduler::new(InlineScheduler.or_inline());
    assert!(erased == InlineScheduler.or_inline() && erased != InlineScheduler);
    assert!(erased.clone() == erased);
    let work = starts_on(erased.clone(), just(1).continues_on(erased));
    assert!(matches!(complete(work, &source, || ()), Completion::Value(1)));
}

#[cfg(feature = "alloc")]
#[test]
fn a_scope_counts_stops_and_is_joined() {
    let source = InplaceStopSource::new();
    let scope = CountingScope::new();
    assert!(scope.spawn(just(())) && scope.spawn(never::<(), Infallible>()));
    let future = scope.spawn_future(just(3));
    assert_eq!(scope.in_use(), 1);
    let join = scope.join().write_env(WithScheduler(InlineScheduler));
    let completion = complete(join, &source, || assert!(scope.request_stop()));
    assert!(matches!(completion, Completion::Value(())));
    assert!(matches!(complete(future, &source, || ()), Completion::Value(3)));
    assert!(!scope.spawn(just(())));
}

#[cfg(not(feature = "std"))]
#[test]
fn the_panic_channel_cannot_be_taken_and_costs_nothing() {
    assert_eq!(size_of::<Option<Panic>>(), 0);
    assert_eq!(size_of::<Completion<u32, Infallible>>(), size_of::<Option<u32>>());
}
