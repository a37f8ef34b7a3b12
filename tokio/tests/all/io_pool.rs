//! A pool whose workers wait for tokio's sockets and timers themselves.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::{BuildError, ThreadPool};
use bowline_tokio::{IoPool, block_on};
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
fn a_pool_may_be_dropped_in_an_asynchronous_context() {
    async fn use_and_drop() {
        let pool = IoPool::new(1).unwrap();
        let sleep = Task::new(async { tokio::time::sleep(Duration::from_millis(1)).await });
        starts_on(pool.scheduler(), sleep).await.unwrap();
        drop(pool);
        assert!(IoPool::new(0).is_err());
    }
    in_time(|| {
        for runtime in [multi_thread(1), multi_thread(2), current_thread()] {
            runtime.block_on(use_and_drop());
            runtime.block_on(runtime.spawn(use_and_drop())).unwrap();
            block_on(&runtime, use_and_drop());
        }
        // On the thread of its own worker, of another pool, and inside of its own runtime.
        let (outer, inner) = (IoPool::new(1).unwrap(), IoPool::new(1).unwrap());
        run(&outer, use_and_drop());
        let spawned = outer.handle().spawn(use_and_drop());
        outer.handle().block_on(spawned).unwrap();
        run(&outer, async move { drop(inner) });
        let handle = outer.handle().clone();
        handle.block_on(async move { drop(outer) });
    });
}

#[test]
fn a_job_may_drive_the_runtime_or_another_one() {
    in_time(|| {
        for threads in [1, 2] {
            let pool = IoPool::new(threads).unwrap();
            let handle = pool.handle().clone();
            let (scheduler, sleep) = (pool.scheduler(), || tokio::time::sleep(Duration::from_millis(2)));
            let sum = pool.threads().install(move || {
                // The worker blocks inside of its own runtime. The reserve drives it meanwhile.
                handle.block_on(sleep());
                let spawned = handle.spawn(async { 1 });
                let own = handle.block_on(spawned).unwrap();
                // In another runtime, it waits for a job of the pool in a way that the pool knows of.
                let other = current_thread().block_on(async {
                    sleep().await;
                    sync_wait(starts_on(scheduler, just_from(|| 6))).unwrap()
                });
                own + other
            });
            assert_eq!(sum, 7);
        }
    });
}

#[test]
fn a_panic_in_a_future_of_the_runtime_or_in_its_waker_ends_neither() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("in a waker");
        }
    }
    in_time(|| {
        let pool = IoPool::new(1).unwrap();
        let spawned = pool.handle().spawn(async { panic!("in a future") });
        assert!(run(&pool, async { spawned.await.unwrap_err().is_panic() }));
        // The waker is called by a future of the runtime, on the thread that waits for events.
        let (send, receive) = tokio::sync::oneshot::channel::<()>();
        let mut receive = Box::pin(receive);
        let waker = std::task::Waker::from(std::sync::Arc::new(Panics));
        let mut cx = std::task::Context::from_waker(&waker);
        assert!(receive.as_mut().poll(&mut cx).is_pending());
        let spawned = pool.handle().spawn(async { send.send(()).unwrap() });
        assert!(run(&pool, async { spawned.await.unwrap_err().is_panic() }));
        run(&pool, tokio_sleep());
    });
}

async fn tokio_sleep() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[test]
fn a_pool_is_not_dropped_before_a_blocking_task_of_its_runtime_has_ended() {
    in_time(|| {
        let (send, receive) = mpsc::channel();
        let pool = IoPool::new(1).unwrap();
        let (began, begins) = mpsc::channel();
        pool.handle().spawn_blocking(move || {
            began.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(10));
            send.send(()).unwrap();
        });
        begins.recv().unwrap();
        current_thread().block_on(async move { drop(pool) });
        assert!(receive.try_recv().is_ok());
    });
}

#[test]
fn a_task_that_waits_at_the_end_continues_on_the_global_pool() {
    in_time(|| {
        let pool = IoPool::with(ThreadPool::builder().threads(2).names(|n| format!("cook-{n}"))).unwrap();
        let on_pool = || task::SpawnOptions::new().scheduler(pool.scheduler());
        let (waits, waiting) = mpsc::channel();
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let begun = waits.clone();
        let channel = task::detach_with(on_pool(), async move {
            begun.send(here()).unwrap();
            gone.await.unwrap();
            here()
        });
        let (begun, silent) = (waits.clone(), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let address = silent.local_addr().unwrap();
        let socket = task::detach_with(on_pool(), async move {
            let mut socket = TcpStream::connect(address).await.unwrap();
            begun.send(here()).unwrap();
            let error = socket.read_u8().await.unwrap_err();
            (here(), error.kind())
        });
        let timer = task::detach_with(on_pool(), async move {
            waits.send(here()).unwrap();
            tokio::time::sleep(PATIENCE).await;
        });
        for _ in 0..3 {
            let place = waiting.recv_timeout(PATIENCE).unwrap();
            assert!(place.starts_with("cook-"), "{place}");
        }
        // The tasks suspend before the workers, which take queued jobs first, end.
        drop(pool);
        let (place, error) = task::block_on(socket).unwrap();
        assert!(place.starts_with("bowline-"), "{place}");
        assert_eq!(error, io::ErrorKind::Other);
        assert!(task::block_on(timer).unwrap_err().is_panic());
        assert!(!channel.is_finished());
        go.send(()).unwrap();
        let place = task::block_on(channel).unwrap();
        assert!(place.starts_with("bowline-"), "{place}");
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
