//! The limit of requests in flight, as readiness.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bowline::Panic;
use bowline::prelude::*;
use bowline_tokio::block_on;
use bowline_tower::{Failure, RequestError, Requests};
use tokio::sync::{Semaphore, mpsc};
use tower::load_shed::LoadShed;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::common::*;

#[test]
fn a_permit_is_free_at_the_end_of_the_request_not_when_the_client_leaves() {
    in_time(|| {
        block_on(&multi_thread(2), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server).limit(1);
                let (begun, mut begins) = mpsc::unbounded_channel();
                let gate = Arc::new(Semaphore::new(0));
                let waits = gate.clone();
                let mut service = requests.layer().layer(service_fn(move |()| {
                    let (begun, waits) = (begun.clone(), waits.clone());
                    async move {
                        begun.send("begun").unwrap();
                        let Ok(_) = task::sleep(Duration::MAX).stopped_as_option().await;
                        begun.send("cancelled").unwrap();
                        task::shield(waits.acquire()).await.unwrap().forget();
                        Ok::<_, Infallible>(())
                    }
                }));
                let mut waiting = service.clone();
                service.ready().await.unwrap();
                let response = service.call(());
                let (wakes, waker) = Wakes::new();
                assert!(!is_ready(&mut waiting, &waker));
                assert_eq!(begins.recv().await, Some("begun"));
                drop(response);
                assert_eq!(begins.recv().await, Some("cancelled"));
                assert!(!is_ready(&mut waiting, &waker));
                assert_eq!(wakes.count(), 0);
                gate.add_permits(1);
                eventually("the wake-up", || wakes.count() == 1).await;
                assert!(is_ready(&mut waiting, &waker));
                assert!(is_ready(&mut waiting, &waker), "it stays ready");
            })
            .await;
        });
    });
}

#[test]
fn a_permit_passes_to_the_oldest_service_that_still_waits() {
    in_time(|| {
        block_on(&multi_thread(1), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server).limit(1);
                let mut first = requests
                    .layer()
                    .layer(service_fn(|()| async move { Ok::<_, Infallible>(()) }));
                let (mut second, mut third, mut fourth) = (first.clone(), first.clone(), first.clone());
                let (seconds, thirds, fourths) = (Wakes::new(), Wakes::new(), Wakes::new());
                assert!(is_ready(&mut first, Waker::noop()));
                assert!(!is_ready(&mut second, &seconds.1));
                assert!(!is_ready(&mut third, &thirds.1));
                assert!(!is_ready(&mut fourth, &fourths.1));
                let counts = || (seconds.0.count(), thirds.0.count(), fourths.0.count());
                // A clone of a ready service is not ready.
                assert!(!is_ready(&mut first.clone(), Waker::noop()));
                // Ready, and dropped without a call.
                drop(first);
                assert_eq!(counts(), (1, 0, 0));
                // Woken, and dropped without a poll.
                drop(second);
                assert_eq!(counts(), (1, 1, 0));
                assert!(!is_ready(&mut fourth, &fourths.1));
                assert!(is_ready(&mut third, &thirds.1));
                // One that waits leaves, and the permit finds the one after it.
                let mut fifth = third.clone();
                let fifths = Wakes::new();
                assert!(!is_ready(&mut fifth, &fifths.1));
                drop(fourth);
                third.call(()).await.unwrap();
                eventually("the wake-up", || fifths.0.count() == 1).await;
                assert_eq!(counts(), (1, 1, 0));
                assert!(is_ready(&mut fifth, &fifths.1));
            })
            .await;
        });
    });
}

#[test]
fn a_service_that_waits_wakes_its_last_waker() {
    in_time(|| {
        block_on(&multi_thread(1), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server).limit(1);
                let mut first = requests
                    .layer()
                    .layer(service_fn(|()| async move { Ok::<_, Infallible>(()) }));
                let mut second = first.clone();
                let (old, new) = (Wakes::new(), Wakes::new());
                assert!(is_ready(&mut first, Waker::noop()));
                assert!(!is_ready(&mut second, &old.1));
                assert!(!is_ready(&mut second, &new.1));
                drop(first);
                assert_eq!((old.0.count(), new.0.count()), (0, 1));
            })
            .await;
        });
    });
}

#[test]
fn a_call_without_readiness_takes_a_permit_or_is_refused() {
    in_time(|| {
        block_on(&multi_thread(1), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server).limit(1);
                let gate = Arc::new(Semaphore::new(0));
                let waits = gate.clone();
                let mut service = requests.layer().layer(service_fn(move |()| {
                    let waits = waits.clone();
                    async move {
                        waits.acquire().await.unwrap().forget();
                        Ok::<_, Infallible>(())
                    }
                }));
                let admitted = service.call(());
                let refused = service.call(()).await.unwrap_err();
                assert!(matches!(refused.failure(), Some(Failure::NoRoom)));
                // Pending is not ready, either.
                assert!(!is_ready(&mut service, Waker::noop()));
                let refused = service.call(()).await.unwrap_err();
                assert!(matches!(refused.failure(), Some(Failure::NoRoom)));
                gate.add_permits(2);
                admitted.await.unwrap();
                service.ready().await.unwrap();
                service.call(()).await.unwrap();
            })
            .await;
        });
    });
}

#[test]
fn a_call_after_a_permit_was_granted_uses_it() {
    in_time(|| {
        block_on(&multi_thread(1), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server).limit(1);
                let mut first = requests
                    .layer()
                    .layer(service_fn(|()| async move { Ok::<_, Infallible>(()) }));
                let mut second = first.clone();
                assert!(is_ready(&mut first, Waker::noop()));
                assert!(!is_ready(&mut second, Waker::noop()));
                drop(first);
                // The permit is its own, though no poll has seen it.
                second.call(()).await.unwrap();
                second.ready().await.unwrap();
            })
            .await;
        });
    });
}

#[test]
fn the_end_of_the_scope_ends_the_waits() {
    in_time(|| {
        block_on(&multi_thread(1), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server).limit(1);
                let mut ready = requests
                    .layer()
                    .layer(service_fn(|()| async move { Ok::<_, Infallible>(()) }));
                let mut waiting = ready.clone();
                let (wakes, waker) = Wakes::new();
                assert!(is_ready(&mut ready, Waker::noop()));
                assert!(!is_ready(&mut waiting, &waker));
                drop(requests);
                assert_eq!(wakes.count(), 1);
                for service in [&mut waiting, &mut ready] {
                    assert!(is_ready(service, Waker::noop()));
                    let refused = service.call(()).await.unwrap_err();
                    assert!(matches!(refused.failure(), Some(Failure::Closed)));
                }
            })
            .await;
        });
    });
}

#[test]
fn a_limit_of_zero_refuses_and_a_larger_one_admits_those_that_wait() {
    in_time(|| {
        block_on(&multi_thread(1), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server).limit(1);
                let mut ready = requests
                    .layer()
                    .layer(service_fn(|()| async move { Ok::<_, Infallible>(()) }));
                let mut waiting = ready.clone();
                let (wakes, waker) = Wakes::new();
                assert!(is_ready(&mut ready, Waker::noop()));
                assert!(!is_ready(&mut waiting, &waker));
                let requests = requests.limit(2);
                assert_eq!(wakes.count(), 1);
                assert!(is_ready(&mut waiting, &waker));
                let mut third = ready.clone();
                assert!(!is_ready(&mut third, &waker));
                let requests = requests.limit(0);
                assert_eq!(wakes.count(), 2);
                assert!(is_ready(&mut third, &waker));
                let refused = third.call(()).await.unwrap_err();
                assert!(matches!(refused.failure(), Some(Failure::NoRoom)));
                // Those that were admitted before are served.
                ready.call(()).await.unwrap();
                waiting.call(()).await.unwrap();
                drop(requests);
            })
            .await;
        });
    });
}

/// A service that is ready after some polls, and then fails if it is told to.
#[derive(Clone)]
struct Inside {
    polls: usize,
    fails: bool,
}

impl Service<()> for Inside {
    type Response = ();
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<()>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.polls.checked_sub(1) {
            Some(polls) => {
                self.polls = polls;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None if self.fails => Poll::Ready(Err(io::Error::other("it is broken"))),
            None => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, (): ()) -> Self::Future {
        std::future::ready(Ok(()))
    }
}

#[test]
fn the_readiness_of_the_service_inside_counts() {
    in_time(|| {
        block_on(&multi_thread(1), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server).limit(1);
                let mut slow = requests.layer().layer(Inside { polls: 2, fails: false });
                assert!(!is_ready(&mut slow, Waker::noop()));
                slow.ready().await.unwrap();
                slow.call(()).await.unwrap();
                server.wait_for_all().await;
                let mut broken = requests.layer().layer(Inside { polls: 0, fails: true });
                let error = broken.ready().await.map(drop).unwrap_err();
                assert!(matches!(error, RequestError::Service(_)));
                // It has released its permit.
                assert!(is_ready(&mut slow, Waker::noop()));
                assert_eq!((slow.get_ref().polls, slow.get_mut().fails), (0, false));
                let _: Inside = slow.into_inner();
                let mut other = requests.layer().layer(Inside { polls: 0, fails: false });
                assert!(is_ready(&mut other, Waker::noop()));
            })
            .await;
        });
    });
}

#[test]
fn a_call_that_panics_releases_its_permit() {
    in_time(|| {
        block_on(&multi_thread(1), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server).limit(1);
                let mut service = requests.layer().layer(service_fn(|fails: bool| {
                    if fails {
                        std::panic::resume_unwind(Box::new("spilled"));
                    }
                    async move { Ok::<_, Infallible>(()) }
                }));
                service.ready().await.unwrap();
                // The service is called where the client calls, so the panic is the client's.
                assert!(Panic::catch(|| drop(service.call(true))).is_err());
                assert!(server.is_empty());
                service.ready().await.unwrap().call(false).await.unwrap();
            })
            .await;
        });
    });
}

#[test]
fn load_is_shed_by_towers_own_layer() {
    in_time(|| {
        block_on(&multi_thread(1), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server).limit(1);
                let gate = Arc::new(Semaphore::new(0));
                let waits = gate.clone();
                let service = requests.layer().layer(service_fn(move |()| {
                    let waits = waits.clone();
                    async move {
                        waits.acquire().await.unwrap().forget();
                        Ok::<_, Infallible>(())
                    }
                }));
                let mut shedding = LoadShed::new(service);
                shedding.ready().await.unwrap();
                let admitted = shedding.call(());
                shedding.ready().await.unwrap();
                let shed = shedding.call(()).await.unwrap_err();
                assert!(shed.is::<tower::load_shed::error::Overloaded>());
                gate.add_permits(1);
                admitted.await.unwrap();
            })
            .await;
        });
    });
}

#[test]
fn the_limit_holds_and_no_service_waits_for_ever() {
    const LIMIT: usize = 3;
    in_time(|| {
        let most = Arc::new(AtomicUsize::new(0));
        let served = Arc::new(AtomicUsize::new(0));
        let (highest, count) = (most.clone(), served.clone());
        block_on(&multi_thread(4), async move {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server).limit(LIMIT);
                let running = Arc::new(AtomicUsize::new(0));
                let service = requests.layer().layer(service_fn(move |long: bool| {
                    let (running, highest) = (running.clone(), highest.clone());
                    async move {
                        struct Running(Arc<AtomicUsize>);
                        impl Drop for Running {
                            fn drop(&mut self) {
                                self.0.fetch_sub(1, SeqCst);
                            }
                        }
                        highest.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                        let _running = Running(running);
                        for _ in 0..if long { 50 } else { 2 } {
                            tokio::task::yield_now().await;
                        }
                        Ok::<_, Infallible>(())
                    }
                }));
                let clients: Vec<_> = (0..8)
                    .map(|client: usize| {
                        let (mut service, count) = (service.clone(), count.clone());
                        tokio::spawn(async move {
                            for round in 0..200 {
                                service.ready().await.unwrap();
                                let leaves = (round + client).is_multiple_of(3);
                                let response = service.call(leaves);
                                if leaves {
                                    tokio::task::yield_now().await;
                                } else {
                                    response.await.unwrap();
                                    count.fetch_add(1, SeqCst);
                                }
                                // Ready, and then gone.
                                if round % 7 == 0 {
                                    let mut other = service.clone();
                                    let _ = tokio::time::timeout(Duration::from_micros(10), other.ready()).await;
                                }
                            }
                        })
                    })
                    .collect();
                for client in clients {
                    client.await.unwrap();
                }
                server.wait_for_all().await;
                let mut all: Vec<_> = (0..LIMIT).map(|_| service.clone()).collect();
                for service in &mut all {
                    service.ready().await.unwrap();
                }
            })
            .await;
        });
        assert!(most.load(SeqCst) <= LIMIT);
        assert!(served.load(SeqCst) > 0);
    });
}
