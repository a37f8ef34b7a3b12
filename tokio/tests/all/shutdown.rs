//! The shutdown of a runtime while tasks on its `TokioScheduler` block.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::*;
use bowline::prelude::*;
use bowline::task::{Handle, SpawnOptions};
use bowline_tokio::TokioScheduler;
use tokio::runtime::{Handle as RuntimeHandle, Runtime};
use tokio::task::{LocalSet, block_in_place};

/// Waits until the shutdown has begun, so that tokio lends no further thread to a worker that blocks.
fn until_shutdown(runtime: &RuntimeHandle) {
    eventually("the shutdown", || {
        let (runs, ran) = mpsc::channel();
        drop(runtime.spawn_blocking(move || runs.send(())));
        ran.recv().is_err()
    });
}

/// Waits for a job of the scheduler.
fn wait_for_seven(scheduler: TokioScheduler) -> u32 {
    sync_wait(starts_on(scheduler, just_from(|| 7))).unwrap()
}

/// Spawns a task that keeps its worker until the shutdown has begun, and returns the result of `then`. Returns when it runs.
fn at_the_shutdown<T: Send + 'static>(
    scheduler: TokioScheduler,
    runtime: &Runtime,
    then: impl FnOnce() -> T + Send + 'static,
) -> Handle<T> {
    let (begins, begun) = mpsc::channel();
    let runtime = runtime.handle().clone();
    let handle = task::detach_with(SpawnOptions::new().scheduler(scheduler), async move {
        begins.send(()).unwrap();
        until_shutdown(&runtime);
        then()
    });
    begun.recv_timeout(PATIENCE).unwrap();
    handle
}

/// Ends the runtime while these tasks wait for seven.
fn end_while_they_wait(runtime: Runtime, end: fn(Runtime), waits: impl IntoIterator<Item = Handle<u32>>) {
    let ending = thread::spawn(move || end(runtime));
    for wait in waits {
        assert_eq!(task::block_on(wait).unwrap(), 7);
    }
    ending.join().unwrap();
}

#[test]
fn every_worker_may_begin_to_wait_during_the_shutdown() {
    in_time(|| {
        let ways: [fn(TokioScheduler) -> u32; 3] = [
            wait_for_seven,
            |scheduler| block_in_place(|| wait_for_seven(scheduler)),
            |scheduler| sync_wait(starts_on(scheduler, just_from(move || wait_for_seven(scheduler)))).unwrap(),
        ];
        for threads in [1, 2] {
            for way in ways {
                for (_, end) in ends() {
                    let runtime = multi_thread(threads);
                    let scheduler = TokioScheduler::new(runtime.handle());
                    let waits: Vec<_> = (0..threads)
                        .map(|_| at_the_shutdown(scheduler, &runtime, move || way(scheduler)))
                        .collect();
                    end_while_they_wait(runtime, end, waits);
                    eventually("the end", || scheduler.has_ended());
                }
            }
        }
    });
}

/// The tasks wait for one that is woken during the shutdown.
#[test]
fn every_worker_may_wait_when_the_shutdown_begins() {
    in_time(|| {
        for threads in [1, 2] {
            for (_, end) in ends() {
                let runtime = multi_thread(threads);
                let scheduler = TokioScheduler::new(runtime.handle());
                let (begins, begun) = mpsc::channel();
                let (go, gone) = tokio::sync::watch::channel(0);
                let waits: Vec<_> = (0..threads)
                    .map(|_| {
                        let (begins, mut gone) = (begins.clone(), gone.clone());
                        task::detach_with(SpawnOptions::new().scheduler(scheduler), async move {
                            let inner = Task::new(async move {
                                begins.send(()).unwrap();
                                gone.changed().await.unwrap();
                                *gone.borrow()
                            });
                            sync_wait(starts_on(scheduler, inner)).unwrap()
                        })
                    })
                    .collect();
                for _ in 0..threads {
                    begun.recv_timeout(PATIENCE).unwrap();
                }
                let handle = runtime.handle().clone();
                let ending = thread::spawn(move || end(runtime));
                until_shutdown(&handle);
                go.send(7).unwrap();
                for wait in waits {
                    assert_eq!(task::block_on(wait).unwrap(), 7);
                }
                ending.join().unwrap();
            }
        }
    });
}

#[test]
fn waits_that_meet_the_shutdown_end_and_each_job_runs_once() {
    const WAITS: usize = 10;
    fn nested(scheduler: TokioScheduler, ran: &Arc<AtomicUsize>, depth: usize) {
        ran.fetch_add(1, SeqCst);
        if depth > 1 {
            let ran = ran.clone();
            sync_wait(starts_on(
                scheduler,
                just_from(move || nested(scheduler, &ran, depth - 1)),
            ))
            .unwrap();
        }
    }
    in_time(|| {
        for round in 0..120u32 {
            let threads = 1 + round as usize % 2;
            let (how, end) = ends()[round as usize % 3];
            let runtime = multi_thread(threads);
            let scheduler = TokioScheduler::new(runtime.handle());
            let ran = Arc::new(AtomicUsize::new(0));
            let waits: Vec<_> = (0..threads)
                .map(|_| {
                    let ran = ran.clone();
                    task::detach_with(SpawnOptions::new().scheduler(scheduler), async move {
                        for _ in 0..WAITS {
                            nested(scheduler, &ran, 3);
                        }
                    })
                })
                .collect();
            thread::sleep(Duration::from_micros(u64::from(round) * 7));
            end(runtime);
            eventually(how, || waits.iter().all(Handle::is_finished));
            assert_eq!(ran.load(SeqCst), threads * WAITS * 3, "{how}");
        }
    });
}

/// The worker that blocks keeps its driver. The other worker has dropped all others by then.
#[test]
fn a_task_that_blocks_by_other_means_keeps_no_job_at_the_shutdown() {
    in_time(|| {
        for (how, end) in ends() {
            let runtime = multi_thread(2);
            let scheduler = TokioScheduler::new(runtime.handle());
            let wait = at_the_shutdown(scheduler, &runtime, move || {
                let (done, ended) = mpsc::channel();
                start_detached(scheduler.schedule().then(move |()| done.send(7).unwrap()));
                ended.recv_timeout(PATIENCE / 2).expect(how)
            });
            end_while_they_wait(runtime, end, [wait]);
        }
    });
}

#[test]
fn a_scheduler_that_is_made_while_a_task_waits_at_the_shutdown_has_ended() {
    in_time(|| {
        for (_, end) in ends() {
            let runtime = multi_thread(1);
            let scheduler = TokioScheduler::new(runtime.handle());
            let handle = runtime.handle().clone();
            let again = move || {
                // It has nothing to do with the runtime that ends.
                let other = current_thread();
                assert!(!TokioScheduler::new(other.handle()).has_ended());
                wait_for_seven(TokioScheduler::new(&handle))
            };
            let wait = at_the_shutdown(scheduler, &runtime, move || {
                sync_wait(starts_on(scheduler, just_from(again))).unwrap()
            });
            end_while_they_wait(runtime, end, [wait]);
        }
    });
}

/// The thread of a `LocalSet` has no worker to hand over, so the runtime's shutdown does not depend on it.
#[test]
fn a_task_of_a_local_set_may_wait_during_the_shutdown() {
    in_time(|| {
        for make in [|| multi_thread(1), current_thread as fn() -> Runtime] {
            for (_, end) in ends() {
                let runtime = make();
                let scheduler = TokioScheduler::new(runtime.handle());
                let handle = runtime.handle().clone();
                let (begins, begun) = mpsc::channel();
                let local = thread::spawn(move || {
                    let local = LocalSet::new();
                    let waits = local.spawn_local({
                        let handle = handle.clone();
                        async move {
                            begins.send(()).unwrap();
                            until_shutdown(&handle);
                            wait_for_seven(scheduler)
                        }
                    });
                    handle.block_on(local.run_until(waits)).unwrap()
                });
                begun.recv_timeout(PATIENCE).unwrap();
                end(runtime);
                assert_eq!(local.join().unwrap(), 7);
            }
        }
    });
}

/// The task is inside of the context of a runtime that has ended. Its worker is taken over by a thread of its own runtime.
#[test]
fn a_task_may_wait_inside_of_the_context_of_a_runtime_that_has_ended() {
    in_time(|| {
        let ended = multi_thread(1).handle().clone();
        let runtime = multi_thread(1);
        let scheduler = TokioScheduler::new(runtime.handle());
        let wait = just_from(move || {
            let _inside = ended.enter();
            wait_for_seven(scheduler)
        });
        assert_eq!(sync_wait(starts_on(scheduler, wait)).unwrap(), 7);
        assert!(!scheduler.has_ended());
    });
}
