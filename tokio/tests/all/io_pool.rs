//! A pool whose workers wait for tokio's sockets and timers themselves.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::{BuildError, ThreadPool};
use bowline_tokio::IoPool;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::*;

fn run<T: Send + 'static>(pool: &IoPool, work: impl Future<Output = T> + Send + 'static) -> T {
    sync_wait(starts_on(pool.scheduler(), Task::new(work))).unwrap()
}

#[test]
fn sockets_timers_and_spawn_work_in_tasks_on_the_pool() {
    in_time(|| {
        for threads in [1, 2, 3] {
            let pool = IoPool::new(threads).unwrap();
            let served = run(&pool, async move {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let address = listener.local_addr()?;
                task::try_group(async |group| {
                    for _ in 0..20 {
                        group.spawn(async move {
                            let mut socket = TcpStream::connect(address).await?;
                            socket.write_all(b"ping").await?;
                            let mut answer = String::new();
                            socket.read_to_string(&mut answer).await?;
                            assert_eq!(answer, "pong");
                            assert!(here().starts_with("bowline-"), "{}", here());
                            io::Result::Ok(())
                        });
                    }
                    for _ in 0..20 {
                        let (mut socket, _) = listener.accept().await?;
                        group.spawn(async move {
                            let mut question = [0; 4];
                            socket.read_exact(&mut question).await?;
                            tokio::time::sleep(Duration::from_millis(1)).await;
                            socket.write_all(b"pong").await
                        });
                    }
                    Ok(())
                })
                .await?;
                Ok::<_, io::Error>(tokio::spawn(async { 6 * 7 }).await.unwrap())
            });
            assert_eq!(served.unwrap(), 42);
        }
    });
}

#[test]
fn the_worker_that_has_waited_for_an_event_resumes_the_task() {
    in_time(|| {
        let pool = IoPool::new(1).unwrap();
        for _ in 0..20 {
            let resumed = run(&pool, async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                here()
            });
            assert_eq!(resumed, "bowline-0");
        }
    });
}

#[test]
fn events_do_not_wait_for_a_worker_that_is_busy_for_long() {
    in_time(|| {
        let pool = IoPool::new(1).unwrap();
        // The only worker blocks in a way that no pool knows of, until a timer has fired.
        let heard = run(&pool, async {
            let (send, receive) = mpsc::channel();
            let timer = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                send.send(here()).unwrap();
            });
            let heard = receive.recv().unwrap();
            timer.await.unwrap();
            heard
        });
        assert_eq!(heard, "bowline-reserve");
        // The worker waits for events again.
        let resumed = run(&pool, async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            here()
        });
        assert_eq!(resumed, "bowline-0");
    });
}

#[test]
fn events_occur_while_all_workers_have_jobs_at_all_times() {
    in_time(|| {
        let pool = IoPool::new(2).unwrap();
        let rounds = run(&pool, async {
            task::group(async |group| {
                for _ in 0..4 {
                    group.spawn(async {
                        let slept = tokio::spawn(tokio::time::sleep(Duration::from_millis(10)));
                        let mut rounds = 0_u64;
                        while !slept.is_finished() {
                            task::yield_now().await;
                            rounds += 1;
                        }
                        rounds
                    });
                }
                let mut most = 0;
                while let Some(rounds) = group.next().await {
                    most = most.max(rounds);
                }
                most
            })
            .await
        });
        assert!(rounds > 0);
    });
}

#[test]
fn a_blocked_worker_is_replaced_by_one_that_waits_for_events() {
    in_time(|| {
        let pool = IoPool::new(1).unwrap();
        let scheduler = pool.scheduler();
        let slept = pool.threads().install(move || {
            let sleep = Task::new(async { tokio::time::sleep(Duration::from_millis(5)).await });
            sync_wait(starts_on(scheduler, sleep)).unwrap();
            here()
        });
        assert_eq!(slept, "bowline-0");
        assert_eq!(pool.threads().spare_threads(), 1);
    });
}

#[test]
fn the_drop_waits_for_tasks_and_ends_all_threads() {
    in_time(|| {
        let (send, receive) = mpsc::channel();
        for _ in 0..20 {
            let pool = IoPool::new(2).unwrap();
            let send = send.clone();
            drop(task::detach_with(
                task::SpawnOptions::new().scheduler(pool.scheduler()),
                async move {
                    tokio::task::yield_now().await;
                    send.send(()).unwrap();
                },
            ));
            drop(pool);
        }
        assert_eq!(receive.try_iter().count(), 20);
    });
}

#[test]
fn a_pool_may_be_dropped_by_its_own_task() {
    in_time(|| {
        let pool = IoPool::new(2).unwrap();
        let (send, receive) = mpsc::channel();
        let scheduler = pool.scheduler();
        execute(scheduler, move || {
            drop(pool);
            send.send(()).unwrap();
        });
        receive.recv().unwrap();
    });
}

#[test]
fn a_pool_may_be_dropped_by_a_future_of_its_runtime() {
    in_time(|| {
        let pool = IoPool::new(2).unwrap();
        let (send, receive) = mpsc::channel();
        let handle = pool.handle().clone();
        handle.spawn(async move {
            drop(pool);
            send.send(()).unwrap();
        });
        receive.recv().unwrap();
    });
}

#[test]
fn a_pool_may_be_dropped_inside_of_another_runtime() {
    in_time(|| {
        let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (send, receive) = mpsc::channel();
        other.block_on(async {
            let pool = IoPool::new(2).unwrap();
            drop(pool.handle().spawn_blocking(move || {
                std::thread::sleep(Duration::from_millis(5));
                send.send(()).unwrap();
            }));
            drop(pool);
            // The drop has waited for the closure.
            receive.try_recv().unwrap();
            IoPool::new(0).unwrap_err();
        });
    });
}

#[test]
fn settings_are_those_of_the_builder() {
    in_time(|| {
        let pool = IoPool::with(ThreadPool::builder().threads(1).names(|n| format!("cook-{n}"))).unwrap();
        assert_eq!(run(&pool, async { here() }), "cook-0");
        assert!(pool.threads().install(|| tokio::runtime::Handle::try_current().is_ok()));
        let error = IoPool::new(0).unwrap_err();
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<BuildError>());
        assert!(matches!(inner, Some(BuildError::NoThreads)), "{error}");
    });
}
