//! `task::gather`: children that are awaited by a policy.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::Mutex;

use crate::common::everywhere::everywhere;
use crate::common::{Census, Counted, PANIC, lock, panic_message, quiet_panic};
use bowline::prelude::*;
use bowline::stop::StopSource;
use bowline::task::{
    AllResults, ChildError, FirstSuccess, Handle, JoinPolicy, Quorum, QuorumError, SenderFuture, TaskError, block_on,
};

/// The behaviour of a child.
#[derive(Clone, Copy, Debug)]
enum Does {
    Give(u32),
    Fail(&'static str),
    Panic,
    Stop,
    Wait,
}

async fn child(does: Does, _held: Counted) -> Result<u32, &'static str> {
    match does {
        Does::Give(number) => Ok(number),
        Does::Fail(error) => Err(error),
        Does::Panic => quiet_panic(),
        Does::Stop => {
            let Ok(()) = just_stopped::<(), Infallible>().await;
            Ok(0)
        }
        Does::Wait => {
            let Ok(()) = never::<(), Infallible>().await;
            Ok(0)
        }
    }
}

/// Gathers such children on every scheduler. All have ended when it returns.
fn gathers<P>(policy: impl Fn() -> P, does: &[Does], check: impl Fn(P::Output))
where
    P: JoinPolicy<Result<u32, &'static str>, Output: Send + 'static> + Send + 'static,
{
    everywhere(|place| {
        let census = Census::new();
        let children: Vec<_> = does.iter().map(|does| child(*does, census.value())).collect();
        let output = place.run(Task::new(task::gather(policy(), children))).unwrap();
        assert_eq!(census.alive(), 0);
        check(output);
    });
}

#[test]
fn the_first_success_ends_the_others() {
    let does = [Does::Wait, Does::Fail("no"), Does::Give(3), Does::Wait];
    gathers(FirstSuccess::new, &does, |first| assert_eq!(first.unwrap(), 3));
}

#[test]
fn without_a_success_there_are_all_errors_in_the_order_of_the_children() {
    let does = [Does::Fail("a"), Does::Stop, Does::Panic, Does::Fail("b")];
    gathers(FirstSuccess::new, &does, |first| {
        let errors = first.unwrap_err();
        assert!(
            matches!(
                &errors[..],
                [
                    ChildError::Failed("a"),
                    ChildError::Ended(TaskError::Cancelled),
                    ChildError::Ended(TaskError::Panicked(_)),
                    ChildError::Failed("b"),
                ]
            ),
            "{errors:?}"
        );
    });
}

#[test]
fn all_results_come_in_the_order_of_the_children() {
    let does = [Does::Give(1), Does::Panic, Does::Stop, Does::Fail("no"), Does::Give(5)];
    gathers(AllResults::new, &does, |results| {
        assert!(
            matches!(
                &results[..],
                [
                    Ok(Ok(1)),
                    Err(TaskError::Panicked(_)),
                    Err(TaskError::Cancelled),
                    Ok(Err("no")),
                    Ok(Ok(5)),
                ]
            ),
            "{results:?}"
        );
    });
}

#[test]
fn a_quorum_ends_the_others() {
    let does = [Does::Give(1), Does::Wait, Does::Fail("no"), Does::Give(2), Does::Wait];
    gathers(
        || Quorum::of(2),
        &does,
        |quorum| {
            let mut numbers = quorum.unwrap();
            numbers.sort_unstable();
            assert_eq!(numbers, [1, 2]);
        },
    );
}

#[test]
fn a_quorum_that_cannot_be_any_more_ends_the_others() {
    let does = [Does::Fail("no"), Does::Panic, Does::Wait];
    gathers(
        || Quorum::of(2),
        &does,
        |quorum| {
            let missed = quorum.unwrap_err();
            assert_eq!(
                (missed.needed, missed.successes.len(), missed.failures.len()),
                (2, 0, 2)
            );
            assert_eq!(missed.to_string(), "no quorum: 0 of 2 succeeded");
        },
    );
}

#[test]
fn a_quorum_of_more_than_there_are_fails() {
    gathers(
        || Quorum::of(3),
        &[Does::Wait, Does::Give(1)],
        |quorum| {
            let QuorumError { needed, successes, .. } = quorum.unwrap_err();
            assert_eq!((needed, successes), (3, vec![]));
        },
    );
    // No child ends by itself.
    gathers(
        || Quorum::of(2),
        &[Does::Wait],
        |quorum| assert_eq!(quorum.unwrap_err().needed, 2),
    );
    gathers(
        || Quorum::of(1),
        &[],
        |quorum| assert_eq!(quorum.unwrap_err().needed, 1),
    );
}

#[test]
fn a_quorum_of_none_has_enough_before_the_first() {
    gathers(
        || Quorum::of(0),
        &[Does::Wait],
        |quorum| assert_eq!(quorum.unwrap(), []),
    );
    gathers(|| Quorum::of(0), &[], |quorum| assert_eq!(quorum.unwrap(), []));
}

#[test]
fn no_children_are_gathered_at_once() {
    gathers(AllResults::new, &[], |results| assert!(results.is_empty()));
    gathers(FirstSuccess::new, &[], |first| assert!(first.unwrap_err().is_empty()));
}

/// A policy that records the ends it sees, and is satisfied after a number of them.
struct Diary {
    told: Arc<Mutex<Vec<usize>>>,
    enough: usize,
    children: Option<usize>,
}

impl JoinPolicy<u32> for Diary {
    type Output = Option<usize>;

    fn begin(&mut self, children: usize) -> ControlFlow<()> {
        assert_eq!(self.children.replace(children), None);
        assert!(lock(&self.told).is_empty());
        ControlFlow::Continue(())
    }

    fn ended(&mut self, child: usize, result: Result<u32, TaskError>) -> ControlFlow<()> {
        if let Ok(number) = result {
            assert_eq!(number as usize, child);
        }
        let mut told = lock(&self.told);
        told.push(child);
        if told.len() >= self.enough {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn finish(self) -> Option<usize> {
        self.children
    }
}

#[test]
fn a_policy_is_told_of_each_child_once_and_of_none_when_it_has_enough() {
    for (enough, expected) in [(usize::MAX, 20), (7, 7)] {
        everywhere(|place| {
            let told = Arc::new(Mutex::new(Vec::new()));
            let diary = Diary {
                told: told.clone(),
                enough,
                children: None,
            };
            let children = (0..20).map(|number| async move { number });
            let children: Vec<_> = children.collect();
            assert_eq!(place.run(Task::new(task::gather(diary, children))).unwrap(), Some(20));
            let mut told = lock(&told).clone();
            assert_eq!(told.len(), expected);
            told.sort_unstable();
            told.dedup();
            assert_eq!(told.len(), expected);
        });
    }
}

#[test]
fn a_policy_that_panics_ends_the_children_first() {
    struct Panics;
    impl JoinPolicy<Result<u32, &'static str>> for Panics {
        type Output = ();

        fn ended(&mut self, _: usize, _: Result<Result<u32, &'static str>, TaskError>) -> ControlFlow<()> {
            quiet_panic()
        }

        fn finish(self) {}
    }

    everywhere(|place| {
        let census = Census::new();
        let does = [Does::Wait, Does::Give(1), Does::Wait];
        let children = does.map(|does| child(does, census.value()));
        let message = panic_message(|| place.run(Task::new(task::gather(Panics, children))));
        assert_eq!(message, PANIC);
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn the_cancel_of_the_task_ends_the_children_and_the_policy_is_told() {
    everywhere(|place| {
        let census = Census::new();
        let source = StopSource::new();
        let stop = source.clone();
        let children: Vec<_> = (0..3).map(|_| child(Does::Wait, census.value())).collect();
        let task = Task::new(async move {
            let gathered = task::gather(AllResults::new(), children);
            let mut gathered = Box::pin(gathered);
            assert!(futures_lite::future::poll_once(&mut gathered).await.is_none());
            stop.request_stop();
            gathered.await
        });
        let results = place.run(task.write_env(WithStopToken(source.token()))).unwrap();
        assert_eq!(results.len(), 3);
        assert!(results.iter().all(|result| matches!(result, Err(TaskError::Cancelled))));
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn dropped_half_way_its_children_end_before_the_task() {
    everywhere(|place| {
        let census = Census::new();
        let children: Vec<_> = (0..3).map(|_| child(Does::Wait, census.value())).collect();
        let task = Task::new(async move {
            let mut gathered = Box::pin(task::gather(AllResults::new(), children));
            assert!(futures_lite::future::poll_once(&mut gathered).await.is_none());
        });
        place.run(task).unwrap();
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn it_works_outside_of_a_task() {
    let replicas = [Does::Wait, Does::Give(2)];
    let census = Census::new();
    let children = replicas.map(|does| child(does, census.value()));
    let first = pollster::block_on(task::gather(FirstSuccess::new(), children));
    assert_eq!(first.unwrap(), 2);
    assert_eq!(census.alive(), 0);
}

#[test]
fn of_many_children_the_order_is_kept() {
    let children = (0..10_000).map(|number| async move { number });
    let results = block_on(task::gather(AllResults::new(), children));
    let numbers: Vec<_> = results.into_iter().map(Result::unwrap).collect();
    assert_eq!(numbers, (0..10_000).collect::<Vec<_>>());
}

/// Awaits a sender under a waker that is not the task's.
async fn under_another_waker<S>(sender: S)
where
    S: Sender<Value = (), Error = Infallible> + Send + 'static,
{
    use futures_util::stream::{FuturesUnordered, StreamExt};
    let mut all = FuturesUnordered::new();
    all.push(async move {
        let Ok(()) = SenderFuture::new(sender).await;
    });
    all.next().await;
}

#[test]
fn a_child_that_stops_under_another_waker_is_cancelled_and_has_not_panicked() {
    everywhere(|place| {
        let children = [true, false].map(|stops| async move {
            if stops {
                under_another_waker(just_stopped()).await;
            }
            stops
        });
        let results = place.run(Task::new(task::gather(AllResults::new(), children))).unwrap();
        assert!(
            matches!(&results[..], [Err(TaskError::Cancelled), Ok(false)]),
            "{results:?}"
        );
    });
}

#[test]
fn the_cancel_of_the_task_under_another_waker_is_no_panic_either() {
    everywhere(|place| {
        let source = StopSource::new();
        let stop = source.clone();
        let children = (0..3).map(move |number| {
            let stop = stop.clone();
            async move {
                if number == 2 {
                    stop.request_stop();
                }
                under_another_waker(never()).await;
            }
        });
        let policy = told_of_all();
        let told = policy.0.clone();
        let task = Task::new(async move {
            task::gather(policy, children).await;
        });
        // The gather itself may be stopped or not: only the ends that the policy sees count.
        let _ = place.run(task.write_env(WithStopToken(source.token())));
        let told = std::mem::take(&mut *lock(&told));
        assert_eq!(told, [(0, "cancelled"), (1, "cancelled"), (2, "cancelled")]);
    });
}

/// A policy that records how each child has ended.
struct ToldOfAll(Arc<Mutex<Vec<(usize, &'static str)>>>);

fn told_of_all() -> ToldOfAll {
    ToldOfAll(Arc::default())
}

impl JoinPolicy<()> for ToldOfAll {
    type Output = ();

    fn ended(&mut self, child: usize, result: Result<(), TaskError>) -> ControlFlow<()> {
        let how = match result {
            Ok(()) => "value",
            Err(TaskError::Cancelled) => "cancelled",
            Err(_) => "panicked",
        };
        lock(&self.0).push((child, how));
        ControlFlow::Continue(())
    }

    fn finish(self) {}
}

/// A child's error is shown as itself, with the cause that it has.
#[test]
fn the_error_of_a_child_keeps_its_cause() {
    /// An error with a cause.
    #[derive(Debug)]
    struct Burnt(std::num::ParseIntError);
    impl fmt::Display for Burnt {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("burnt")
        }
    }
    impl Error for Burnt {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    let cause = "x".parse::<i32>().unwrap_err();
    let failed = ChildError::Failed(Burnt(cause.clone()));
    assert_eq!(failed.to_string(), "burnt");
    assert_eq!(failed.source().map(ToString::to_string), Some(cause.to_string()));
    let cancelled = ChildError::<Burnt>::Ended(TaskError::Cancelled);
    assert_eq!(cancelled.to_string(), "task was cancelled");
    assert!(cancelled.source().is_none());
    let child = task::detach(async { quiet_panic() });
    let panicked: TaskError = block_on::<Handle<()>>(child).unwrap_err();
    assert_eq!(panicked.to_string(), format!("task panicked: {PANIC}"));
}
