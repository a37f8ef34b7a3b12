//! A pool of bowline's whose threads are inside a runtime.

use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::{BuildError, ThreadPool};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::*;

#[test]
fn sockets_timers_and_spawn_work_in_tasks_on_the_pool() {
    in_time(|| {
        let runtime = multi_thread(1);
        let pool = bowline_tokio::pool(runtime.handle(), 2).unwrap();
        let work = Task::try_new(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            task::try_group(async |group| {
                for _ in 0..4 {
                    group.spawn(async move {
                        let mut socket = TcpStream::connect(address).await?;
                        socket.write_all(b"ping").await?;
                        let mut answer = String::new();
                        socket.read_to_string(&mut answer).await?;
                        assert_eq!(answer, "pong");
                        assert!(here().starts_with("bowline-"), "{}", here());
                        std::io::Result::Ok(())
                    });
                }
                for _ in 0..4 {
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
            Ok::<_, std::io::Error>(tokio::spawn(async { here() }).await.unwrap())
        });
        let there = sync_wait(starts_on(pool.scheduler(), work)).unwrap();
        assert_eq!(there, "tokio-worker");
    });
}

#[test]
fn spare_threads_are_inside_the_runtime_too() {
    in_time(|| {
        let runtime = multi_thread(1);
        let pool = bowline_tokio::pool(runtime.handle(), 1).unwrap();
        let inside = || tokio::runtime::Handle::try_current().is_ok();
        // The only thread waits for a job, which a spare thread runs.
        let both = pool.install(|| {
            (
                inside(),
                sync_wait(starts_on(pool.scheduler(), just_from(inside))).unwrap(),
            )
        });
        assert_eq!(both, (true, true));
        assert_eq!(pool.spare_threads(), 1);
    });
}

#[test]
fn a_pool_of_no_threads_is_refused() {
    let runtime = multi_thread(1);
    assert!(matches!(
        bowline_tokio::pool(runtime.handle(), 0),
        Err(BuildError::NoThreads)
    ));
    let names = ThreadPool::builder().threads(1).names(|n| format!("cook-{n}"));
    let pool = bowline_tokio::inside(runtime.handle(), names).build().unwrap();
    assert_eq!(pool.install(here), "cook-0");
}
