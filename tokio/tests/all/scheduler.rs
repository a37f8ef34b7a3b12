//! `TokioScheduler`: tasks of bowline on the threads of a runtime.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::TaskScheduler;
use bowline::task::SpawnOptions;
use bowline_tokio::{TokioScheduler, block_on};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// An echo server and its clients, all of them children of one group.
async fn echo(clients: usize) -> io::Result<usize> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    task::try_group(async |group| {
        group.spawn(async move {
            task::try_group(async |connections| {
                for _ in 0..clients {
                    let (mut socket, _) = listener.accept().await?;
                    connections.spawn(async move {
                        let mut buffer = [0; 64];
                        loop {
                            match socket.read(&mut buffer).await? {
                                0 => return io::Result::Ok(()),
                                read => socket.write_all(&buffer[..read]).await?,
                            }
                        }
                    });
                }
                Ok(())
            })
            .await
            .map(|()| 0)
        });
        for client in 0..clients {
            group.spawn(async move {
                let mut socket = TcpStream::connect(address).await?;
                for round in 0..20 {
                    let message = format!("client {client}, round {round}");
                    socket.write_all(message.as_bytes()).await?;
                    let mut answer = vec![0; message.len()];
                    socket.read_exact(&mut answer).await?;
                    assert_eq!(answer, message.as_bytes());
                }
                Ok(1)
            });
        }
        let mut done = 0;
        while let Some(one) = group.next().await.transpose()? {
            done += one;
        }
        Ok(done)
    })
    .await
}

/// Channels, locks and timers of tokio between children.
async fn channels_locks_and_timers() -> u32 {
    let (sender, mut receiver) = tokio::sync::mpsc::channel::<u32>(1);
    let total = Arc::new(tokio::sync::Mutex::new(0));
    let begun = Instant::now();
    task::group(async |group| {
        for number in 1..=10 {
            let (sender, total) = (sender.clone(), total.clone());
            group.spawn(async move {
                tokio::time::sleep(Duration::from_millis(2)).await;
                *total.lock().await += number;
                sender.send(number).await.expect("a receiver");
            });
        }
        drop(sender);
        let mut sum = 0;
        while let Some(number) = receiver.recv().await {
            sum += number;
        }
        assert_eq!(sum, *total.lock().await);
        assert!(begun.elapsed() >= Duration::from_millis(2));
        sum
    })
    .await
}

#[test]
fn sockets_timers_channels_and_locks_work_in_tasks_and_groups() {
    in_time(|| {
        for runtime in [multi_thread(1), multi_thread(2), current_thread()] {
            assert_eq!(block_on(&runtime, echo(8)).unwrap(), 8);
            assert_eq!(block_on(&runtime, channels_locks_and_timers()), 55);
            let spawned = block_on(&runtime, async {
                tokio::time::timeout(PATIENCE, tokio::spawn(async { 7 }))
                    .await
                    .unwrap()
                    .unwrap()
            });
            assert_eq!(spawned, 7);
        }
    });
}

#[test]
fn cancelled_and_late_work_ends_at_an_await_of_this_library() {
    in_time(|| {
        let runtime = multi_thread(2);
        let late = block_on(&runtime, async {
            task::with_timeout(Duration::from_millis(5), async { task::sleep(PATIENCE).await }).await
        });
        assert!(late.is_err());
    });
}

#[test]
fn children_run_in_parallel_on_tokios_threads() {
    in_time(|| {
        for threads in [2, 3] {
            let runtime = multi_thread(threads);
            let names = block_on(&runtime, async move {
                let barrier = Arc::new(Barrier::new(threads));
                task::group(async |group| {
                    for _ in 0..threads {
                        let barrier = barrier.clone();
                        group.spawn(async move {
                            // Passes only if the children run at the same time.
                            barrier.wait();
                            here()
                        });
                    }
                    let mut names = Vec::new();
                    while let Some(name) = group.next().await {
                        names.push(name);
                    }
                    names
                })
                .await
            });
            assert_eq!(names, vec!["tokio-worker"; threads]);
        }
    });
}

#[test]
fn children_run_while_their_parent_computes() {
    in_time(|| {
        let runtime = multi_thread(2);
        block_on(&runtime, async {
            task::group(async |group| {
                let (done, ended) = mpsc::channel();
                for _ in 0..2 {
                    let done = done.clone();
                    group.spawn(async move { done.send(()).unwrap() });
                }
                // The parent blocks its thread, by means that tokio does not know of.
                ended.recv_timeout(PATIENCE).unwrap();
                ended.recv_timeout(PATIENCE).unwrap();
            })
            .await;
        });
    });
}

#[test]
fn a_busy_task_leaves_the_runtime_its_turn() {
    in_time(|| {
        for runtime in [multi_thread(1), current_thread()] {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            block_on(&runtime, async move {
                task::group(async |group| {
                    group.spawn(async move {
                        tokio::spawn(async move { sender.send(()).unwrap() });
                    });
                    let mut receiver = receiver;
                    // Never waits for anything but its next turn.
                    while receiver.try_recv().is_err() {
                        task::yield_now().await;
                    }
                })
                .await;
            });
        }
    });
}

#[test]
fn tokios_budget_does_not_spin() {
    in_time(|| {
        let runtime = current_thread();
        block_on(&runtime, async {
            // Each receive costs budget, and is ready at once: more of them than tokio grants in a poll.
            let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
            (0..1000).for_each(|n| sender.send(n).unwrap());
            for n in 0..1000 {
                assert_eq!(receiver.recv().await, Some(n));
            }
        });
    });
}

#[test]
fn a_task_that_blocks_does_not_stop_the_others() {
    fn nested(scheduler: TokioScheduler, depth: usize) -> usize {
        if depth == 0 {
            return 0;
        }
        sync_wait(starts_on(scheduler, just_from(move || nested(scheduler, depth - 1)))).unwrap() + 1
    }
    in_time(|| {
        for threads in [1, 2] {
            let runtime = multi_thread(threads);
            let scheduler = TokioScheduler::new(runtime.handle());
            // Deeper than there are threads and drivers.
            assert_eq!(nested(scheduler, 6), 6);
            assert_eq!(sync_wait(starts_on(scheduler, just(1))).unwrap(), 1);
        }
    });
}

#[test]
fn a_runtime_has_one_scheduler() {
    let (one, two) = (multi_thread(1), current_thread());
    let scheduler = TokioScheduler::new(one.handle());
    assert_eq!(scheduler, TokioScheduler::new(one.handle()));
    assert_ne!(scheduler, TokioScheduler::new(two.handle()));
    assert_eq!(one.block_on(async { TokioScheduler::current() }), scheduler);
    assert!(TaskScheduler::new(scheduler) == scheduler);
    assert!(TokioScheduler::try_current().is_err());
    assert!(!scheduler.has_ended());
    drop(one);
    assert!(scheduler.has_ended());
    assert!(format!("{scheduler:?}").starts_with("TokioScheduler(HostedScheduler"));
}

#[test]
fn a_shutdown_loses_nothing_and_runs_nothing_twice() {
    in_time(|| {
        for make in [|| multi_thread(2), current_thread as fn() -> Runtime] {
            for (how, end) in ends() {
                for round in 0..20u32 {
                    let runtime = make();
                    let scheduler = TokioScheduler::new(runtime.handle());
                    let ran: Arc<Vec<AtomicUsize>> = Arc::new((0..200).map(|_| AtomicUsize::new(0)).collect());
                    let handles: Vec<_> = (0..ran.len())
                        .map(|n| {
                            let ran = ran.clone();
                            task::detach_with(SpawnOptions::new().scheduler(scheduler), async move {
                                for _ in 0..n % 3 {
                                    task::yield_now().await;
                                }
                                ran[n].fetch_add(1, SeqCst);
                            })
                        })
                        .collect();
                    let producer = {
                        let ran = ran.clone();
                        thread::spawn(move || {
                            for n in 0..ran.len() {
                                let ran = ran.clone();
                                start_detached(scheduler.schedule().then(move |()| _ = ran[n].fetch_add(1, SeqCst)));
                            }
                        })
                    };
                    if round % 2 == 0 {
                        runtime.block_on(tokio::task::yield_now());
                    }
                    end(runtime);
                    producer.join().unwrap();
                    eventually(how, || ran.iter().all(|count| count.load(SeqCst) == 2));
                    eventually(how, || handles.iter().all(task::Handle::is_finished));
                    assert!(ran.iter().all(|count| count.load(SeqCst) == 2), "{how}");
                    eventually("the end", || scheduler.has_ended());
                }
            }
        }
    });
}

#[test]
fn a_task_that_waits_at_the_shutdown_continues_on_the_global_pool() {
    in_time(|| {
        for (_, end) in ends() {
            let runtime = multi_thread(1);
            let scheduler = TokioScheduler::new(runtime.handle());
            let (go, gone) = tokio::sync::oneshot::channel::<()>();
            let (waits, waiting) = mpsc::channel();
            let handle = task::detach_with(SpawnOptions::new().scheduler(scheduler), async move {
                waits.send(here()).unwrap();
                gone.await.unwrap();
                here()
            });
            assert_eq!(waiting.recv_timeout(PATIENCE).unwrap(), "tokio-worker");
            end(runtime);
            eventually("the end", || scheduler.has_ended());
            go.send(()).unwrap();
            let there = task::block_on(handle).unwrap();
            assert!(there.starts_with("bowline-"), "{there}");
        }
    });
}

#[test]
fn a_task_may_shut_its_own_runtime_down() {
    in_time(|| {
        for threads in [1, 2] {
            let runtime = multi_thread(threads);
            let scheduler = TokioScheduler::new(runtime.handle());
            let handle = task::detach_with(SpawnOptions::new().scheduler(scheduler), async move {
                runtime.shutdown_background();
                let before = here();
                // A thread of the runtime may still run what is queued. In the end none does.
                while here() == "tokio-worker" {
                    task::yield_now().await;
                }
                (before, here())
            });
            let (before, after) = task::block_on(handle).unwrap();
            assert_eq!(before, "tokio-worker");
            assert!(after.starts_with("bowline-"), "{after}");
        }
    });
}

#[test]
fn a_task_that_blocks_at_the_shutdown_does_not_hang_it() {
    in_time(|| {
        let runtime = multi_thread(2);
        let scheduler = TokioScheduler::new(runtime.handle());
        let (waits, waiting) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let handle = task::detach_with(SpawnOptions::new().scheduler(scheduler), async move {
            waits.send(()).unwrap();
            // The runtime is being shut down by then.
            gone.recv_timeout(PATIENCE).unwrap();
            sync_wait(starts_on(scheduler, just_from(|| 7))).unwrap()
        });
        waiting.recv_timeout(PATIENCE).unwrap();
        let ending = thread::spawn(move || drop(runtime));
        thread::sleep(Duration::from_millis(20));
        go.send(()).unwrap();
        assert_eq!(task::block_on(handle).unwrap(), 7);
        ending.join().unwrap();
    });
}

#[test]
fn a_scheduler_of_a_runtime_that_has_ended_uses_the_global_pool() {
    in_time(|| {
        let runtime = multi_thread(1);
        let handle = runtime.handle().clone();
        drop(runtime);
        let scheduler = TokioScheduler::new(&handle);
        assert!(scheduler.has_ended());
        assert!(
            sync_wait(starts_on(scheduler, just_from(here)))
                .unwrap()
                .starts_with("bowline-")
        );
    });
}

#[test]
fn a_task_may_block_inside_of_another_runtime() {
    in_time(|| {
        for nested in [|| multi_thread(1), current_thread as fn() -> Runtime] {
            for threads in [1, 2] {
                let runtime = multi_thread(threads);
                let scheduler = TokioScheduler::new(runtime.handle());
                let sum = block_on(&runtime, async move {
                    // What tokio asks for before a thread may drive another runtime.
                    tokio::task::block_in_place(|| {
                        let nested = nested();
                        let inside = TokioScheduler::new(nested.handle());
                        nested.block_on(async {
                            let slow = just_from(|| {
                                // The thread that waits goes to sleep.
                                thread::sleep(Duration::from_millis(5));
                                1
                            });
                            let here = sync_wait(starts_on(ThreadPool::global().scheduler(), slow));
                            let Ok(there) = starts_on(inside, just_from(|| 2)).await;
                            here.unwrap() + there
                        })
                    }) + sync_wait(starts_on(scheduler, just_from(|| 4))).unwrap()
                });
                assert_eq!(sum, 7);
            }
        }
    });
}

#[test]
fn runtimes_that_have_ended_leave_nothing_open() {
    /// The open files of this process. Other tests open some as well.
    fn open_files() -> usize {
        std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
    }
    in_time(|| {
        let before = open_files();
        for _ in 0..500 {
            let runtime = current_thread();
            let scheduler = TokioScheduler::new(runtime.handle());
            drop(runtime);
            assert!(scheduler.has_ended());
        }
        // A runtime that was kept would be at least two of them.
        assert!(open_files() < before + 500);
    });
}

#[test]
fn a_panic_reaches_the_caller_and_not_the_runtime() {
    in_time(|| {
        let runtime = multi_thread(1);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            block_on(&runtime, async { panic!("in a task") })
        }));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "in a task");
        assert_eq!(block_on(&runtime, async { 1 }), 1);
    });
}
