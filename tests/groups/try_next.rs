//! `TaskGroup::try_next`: an error leaves with `?`.

use crate::common::tasks::*;
use crate::common::*;
use bowline::prelude::*;
use bowline::task::{self, Task, TaskError, TaskGroup};

#[derive(Debug, PartialEq)]
struct Failed(u32);

#[test]
fn values_come_until_there_are_none() {
    everywhere(|| async {
        let sum = task::try_group(async |group| {
            for number in 1..=10 {
                group.spawn(async move { Ok::<_, Failed>(number) });
            }
            let mut sum = 0;
            while let Some(number) = group.try_next().await? {
                sum += number;
            }
            assert_eq!(poll_once(group.try_next()).await, Some(Ok(None)));
            Ok(sum)
        });
        assert_eq!(sum.await, Ok(55));
    });
}

#[test]
fn an_error_leaves_the_body_and_the_others_are_cancelled_and_awaited() {
    everywhere(|| async {
        let census = Census::new();
        let failed = task::try_group(async |group| {
            for _ in 0..5 {
                group.spawn(lingers(Ok(0), census.value()));
            }
            group.spawn(async { Err(Failed(7)) });
            while let Some(number) = group.try_next().await? {
                assert_eq!(number, 0, "the others end when they are cancelled");
            }
            Ok(())
        });
        assert_eq!(failed.await, Err(Failed(7)));
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn an_error_that_does_not_leave_cancels_no_child() {
    everywhere(|| async {
        let taken = task::try_group(async |group: TaskGroup<Result<u32, Failed>>| {
            group.spawn(async { Err(Failed(1)) });
            assert_eq!(group.try_next().await, Err(Failed(1)));
            group.spawn(async { Ok(2) });
            assert!(!group.is_cancelled());
            group.try_next().await
        });
        assert_eq!(taken.await, Ok(Some(2)));
    });
}

#[test]
fn in_a_group_that_does_not_try_the_others_continue() {
    everywhere(|| async {
        let census = Census::new();
        let counted = census.clone();
        let (result, group) = task::group(async move |group| {
            let held = counted.value();
            group.spawn(async move {
                hops(20).await;
                // A stop would end it here.
                let Ok(()) = from_future(hops(1)).await;
                drop(held);
                Ok(1)
            });
            group.spawn(async { Err(Failed(3)) });
            let first = async {
                while let Some(number) = group.try_next().await? {
                    assert_eq!(number, 1);
                }
                Ok(())
            };
            (first.await, group)
        })
        .await;
        assert_eq!((result, census.alive()), (Err(Failed(3)), 0));
        assert!(!group.is_cancelled());
    });
}

#[test]
fn a_panic_unwinds_and_a_stopped_child_is_skipped() {
    everywhere(|| async {
        let ended = task::supervised_group(async |group| {
            group.spawn(until_stopped());
            group.spawn(async { Ok::<_, Failed>(4) });
            assert_eq!(group.try_next().await, Ok(Some(4)));
            group.cancel_all();
            group.try_next().await
        });
        assert_eq!(ended.await, Ok(None));
        let task = Task::new(task::try_group::<u32, Failed, _, _, _>(async |group| {
            group.spawn(async { quiet_panic() });
            group.try_next().await.map(drop)
        }));
        let ended = task::supervised_group(async |group| {
            group.spawn(task);
            group.next_ended().await
        });
        assert!(matches!(ended.await, Some(Err(TaskError::Panicked(_)))));
    });
}

#[test]
fn one_that_is_dropped_loses_nothing() {
    everywhere(|| async {
        let sum = task::try_group(async |group| {
            for number in 0..20 {
                group.spawn(async move {
                    hops(number).await;
                    Ok::<_, Failed>(number)
                });
            }
            let mut sum = 0;
            while !group.is_empty() {
                if let Some(Ok(Some(number))) = poll_once(group.try_next()).await {
                    sum += number;
                }
                hops(1).await;
            }
            Ok(sum)
        });
        assert_eq!(sum.await, Ok(190));
    });
}
