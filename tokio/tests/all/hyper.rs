//! hyper's executor and timer traits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bowline::prelude::*;
use bowline_tokio::{DetachedExecutor, GroupExecutor, HyperTimer, TokioScheduler, block_on};
use hyper::rt::{Executor, Timer};

use crate::common::*;

#[test]
fn a_group_awaits_and_cancels_what_its_executor_runs() {
    in_time(|| {
        let runtime = multi_thread(2);
        let ended = Arc::new(AtomicUsize::new(0));
        let counts = ended.clone();
        block_on(&runtime, async move {
            task::group(async |group| {
                let executor = GroupExecutor::new(&group);
                for _ in 0..3 {
                    let counts = counts.clone();
                    executor.execute(async move {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        assert_eq!(here(), "tokio-worker");
                        counts.fetch_add(1, SeqCst);
                    });
                }
            })
            .await;
        });
        assert_eq!(ended.load(SeqCst), 3);
        block_on(&runtime, async {
            task::group(async |group| {
                GroupExecutor::new(&group).execute(async { task::sleep(PATIENCE).await });
                group.cancel_all();
            })
            .await;
        });
    });
}

#[test]
fn a_scheduler_runs_what_its_executor_is_given() {
    in_time(|| {
        let runtime = multi_thread(1);
        let (sender, receiver) = tokio::sync::oneshot::channel();
        DetachedExecutor::new(TokioScheduler::new(runtime.handle())).execute(async move {
            sender.send(here()).unwrap();
        });
        assert_eq!(runtime.block_on(receiver).unwrap(), "tokio-worker");
    });
}

#[test]
fn a_timer_sleeps_and_is_reset() {
    in_time(|| {
        let (runtime, timer) = (multi_thread(1), HyperTimer::new());
        let begun = Instant::now();
        block_on(&runtime, async move { timer.sleep(Duration::from_millis(5)).await });
        assert!(begun.elapsed() >= Duration::from_millis(5));
        // Outside of a task, and with another deadline than at first.
        let begun = Instant::now();
        runtime.block_on(async {
            let mut sleep = timer.sleep(PATIENCE);
            timer.reset(&mut sleep, begun + Duration::from_millis(5));
            sleep.await;
        });
        let slept = begun.elapsed();
        assert!(slept >= Duration::from_millis(5) && slept < PATIENCE);
    });
}
