//! Clients that leave: the response future is dropped.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::prelude::*;
use bowline_tokio::block_on;
use bowline_tower::{CLIENT_LEFT, Requests};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tower::{Layer, Service, service_fn};

use crate::common::*;

#[test]
fn the_handler_is_cancelled_with_a_reason_and_goes_on_until_it_has_ended() {
    in_time(|| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let entries = log.clone();
        block_on(&multi_thread(2), async move {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let (begun, mut begins) = mpsc::unbounded_channel();
                let (open, gate) = oneshot::channel::<()>();
                let (mut gate, writer) = (Some(gate), entries.clone());
                let mut service = requests.layer().layer(service_fn(move |()| {
                    let (begun, gate, writer) = (begun.clone(), gate.take().unwrap(), writer.clone());
                    async move {
                        begun.send(()).unwrap();
                        let Ok(waited) = task::sleep(Duration::MAX).stopped_as_option().await;
                        assert!(waited.is_none() && task::is_cancelled());
                        writer.lock().unwrap().push("cancelled");
                        assert_eq!(task::cancellation_reason(), Some(CLIENT_LEFT));
                        task::shield(async {
                            begun.send(()).unwrap();
                            gate.await.unwrap();
                            writer.lock().unwrap().push("cleaned up");
                        })
                        .await;
                        Ok::<_, Infallible>(())
                    }
                }));
                let response = service.call(());
                begins.recv().await.unwrap();
                drop(response);
                begins.recv().await.unwrap();
                // It is in its clean-up, and the server waits for it.
                assert_eq!(server.len(), 1);
                entries.lock().unwrap().push("shutdown");
                open.send(()).unwrap();
            })
            .await;
            entries.lock().unwrap().push("ended");
        });
        assert_eq!(*log.lock().unwrap(), ["cancelled", "shutdown", "cleaned up", "ended"]);
    });
}

#[test]
fn a_cancellation_handler_ends_the_operation_its_own_way() {
    in_time(|| {
        block_on(&multi_thread(2), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let (begun, mut begins) = mpsc::unbounded_channel();
                let mut service = requests.layer().layer(service_fn(move |()| {
                    let begun = begun.clone();
                    async move {
                        let room = Arc::new(Semaphore::new(0));
                        let close = room.clone();
                        let wait = async {
                            begun.send("begun").unwrap();
                            room.acquire().await.is_err()
                        };
                        let closed = task::with_cancellation_handler(move || close.close(), wait).await;
                        assert!(closed && task::is_cancelled());
                        begun.send("closed").unwrap();
                        Ok::<_, Infallible>(())
                    }
                }));
                let response = service.call(());
                assert_eq!(begins.recv().await, Some("begun"));
                drop(response);
                assert_eq!(begins.recv().await, Some("closed"));
            })
            .await;
        });
    });
}

#[test]
fn a_request_that_has_not_begun_is_dropped() {
    in_time(|| {
        let drops = Drops::default();
        let guards = drops.clone();
        // The one thread of the runtime runs the body, and nothing else meanwhile.
        block_on(&current_thread(), async move {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let mut service = requests.layer().layer(service_fn(move |()| {
                    let guard = guards.guard();
                    async move {
                        let _guard = guard;
                        if true {
                            panic!("it was begun");
                        }
                        Ok::<_, Infallible>(())
                    }
                }));
                drop(service.call(()));
                assert_eq!(server.len(), 1);
                server.wait_for_all().await;
            })
            .await;
        });
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn a_forgotten_response_leaves_the_request_alone() {
    in_time(|| {
        let (ended, mut ends) = mpsc::unbounded_channel();
        block_on(&multi_thread(2), async move {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let mut service = requests.layer().layer(service_fn(move |()| {
                    let ended = ended.clone();
                    async move {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        ended.send(task::is_cancelled()).unwrap();
                        Ok::<_, Infallible>(())
                    }
                }));
                std::mem::forget(service.call(()));
            })
            .await;
        });
        assert_eq!(ends.try_recv(), Ok(false));
    });
}

#[test]
fn a_response_that_was_taken_and_one_that_was_not_leave_the_handler_alone() {
    in_time(|| {
        block_on(&multi_thread(2), async move {
            task::discarding_group(async |server| {
                let (requests, drops) = (Requests::new(&server), Drops::default());
                let guards = drops.clone();
                let mut service = requests.layer().layer(service_fn(move |()| {
                    let guard = guards.guard();
                    async move { Ok::<_, Infallible>(guard) }
                }));
                let mut response = service.call(());
                let taken = (&mut response).await.unwrap();
                drop(response);
                drop(taken);
                assert_eq!(drops.count(), 1);
                // The response is there, and was never polled.
                let unpolled = service.call(());
                server.wait_for_all().await;
                assert_eq!(drops.count(), 1);
                drop(unpolled);
                assert_eq!(drops.count(), 2);
            })
            .await;
        });
    });
}

/// Awaits something of each kind, and tells before each that it is about to.
async fn every_kind_of_wait(step: mpsc::UnboundedSender<usize>, guard: DropGuard) -> Result<DropGuard, Infallible> {
    let room = Semaphore::new(0);
    let short = Duration::from_micros(50);
    step.send(0).unwrap();
    tokio::time::sleep(short).await;
    step.send(1).unwrap();
    task::sleep(short).await;
    step.send(2).unwrap();
    task::yield_now().await;
    step.send(3).unwrap();
    tokio::select! {
        _ = room.acquire() => unreachable!(),
        () = task::sleep(short).into_future() => {}
    }
    step.send(4).unwrap();
    let _ = Task::new(async move { tokio::task::yield_now().await }).await;
    step.send(5).unwrap();
    task::group(async |group| {
        group.spawn(async move { tokio::time::sleep(short).await });
        group.spawn(async move { task::sleep(short).await });
    })
    .await;
    step.send(6).unwrap();
    let _ = task::with_timeout(short, room.acquire()).await;
    step.send(7).unwrap();
    task::shield(tokio::time::sleep(short)).await;
    Ok(guard)
}

#[test]
fn a_client_may_leave_around_every_wait() {
    const WAITS: usize = 8;
    in_time(|| {
        let drops = Drops::default();
        let guards = drops.clone();
        block_on(&multi_thread(2), async move {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server).limit(2);
                for round in 0..20 * WAITS {
                    let (step, mut steps) = mpsc::unbounded_channel();
                    let mut service = requests
                        .layer()
                        .timeout(PATIENCE)
                        .layer(service_fn(|()| every_kind_of_wait(step.clone(), guards.guard())));
                    std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
                    let response = service.call(());
                    while steps.recv().await.is_some_and(|at| at != round % WAITS) {}
                    drop(response);
                }
            })
            .await;
        });
        assert_eq!(drops.count(), 20 * WAITS);
    });
}
