//! What the client gets: responses, errors, failures.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bowline::prelude::*;
use bowline::task::{Reason, Report, SpawnOptions};
use bowline_tokio::block_on;
use bowline_tower::{CLIENT_LEFT, Failure, RequestError, Requests};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::common::*;

#[test]
fn the_responses_and_errors_of_the_service_pass_through() {
    in_time(|| {
        block_on(&multi_thread(2), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let half = service_fn(|n: u32| async move {
                    match n % 2 {
                        0 => Ok(n / 2),
                        _ => Err(io::Error::other("it is odd")),
                    }
                });
                let service = requests.layer().layer(half);
                assert_eq!(service.clone().oneshot(84).await.unwrap(), 42);
                let error = service.oneshot(7).await.unwrap_err();
                assert!(matches!(&error, RequestError::Service(error) if error.to_string() == "it is odd"));
                assert!(error.failure().is_none());
                assert_eq!(error.to_string(), "it is odd");
            })
            .await;
        });
    });
}

#[test]
fn a_request_runs_where_the_group_runs_whatever_executor_calls() {
    in_time(|| {
        let runtime = multi_thread(2);
        block_on(&runtime, async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let place = service_fn(|()| async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    Ok::<_, Infallible>((here(), task::current().is_some()))
                });
                let service = requests.layer().layer(place);
                // A plain task of tokio, and a thread that is in no executor of tokio's.
                let (inside, outside) = (service.clone(), service);
                let from_tokio = tokio::spawn(inside.oneshot(())).await.unwrap().unwrap();
                assert_eq!(from_tokio, ("tokio-worker".to_owned(), true));
                let (sender, receiver) = oneshot::channel();
                std::thread::spawn(move || sender.send(task::block_on(outside.oneshot(()))));
                let from_thread = receiver.await.unwrap().unwrap();
                assert_eq!(from_thread, ("tokio-worker".to_owned(), true));
            })
            .await;
        });
    });
}

#[test]
fn a_layer_chooses_scheduler_priority_and_name() {
    in_time(|| {
        block_on(&multi_thread(1), async {
            task::discarding_group(async |server| {
                let pool = ThreadPool::builder()
                    .threads(1)
                    .names(|_| "cook".to_owned())
                    .build()
                    .unwrap();
                let requests = Requests::new(&server);
                let layer = requests
                    .layer()
                    .options(
                        SpawnOptions::new()
                            .scheduler(pool.scheduler())
                            .priority(Priority::Utility),
                    )
                    .name_requests(|path: &String| format!("GET {path}"));
                let ask = service_fn(|_: String| async move {
                    let name = task::current().and_then(|task| task.name().map(str::to_owned));
                    Ok::<_, Infallible>((here(), task::priority(), name))
                });
                let asked = layer.layer(ask).oneshot("/menu".to_owned()).await.unwrap();
                assert_eq!(
                    asked,
                    ("cook".to_owned(), Priority::Utility, Some("GET /menu".to_owned()))
                );
                server.wait_for_all().await;
            })
            .await;
        });
    });
}

#[test]
fn a_panic_is_a_failure_of_its_request_alone() {
    in_time(|| {
        block_on(&multi_thread(2), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let service = requests.layer().layer(service_fn(|fails: bool| async move {
                    task::yield_now().await;
                    if fails {
                        std::panic::resume_unwind(Box::new("spilled"));
                    }
                    Ok::<_, Infallible>(7)
                }));
                let error = service.clone().oneshot(true).await.unwrap_err();
                assert_eq!(error.to_string(), "handler panicked: spilled");
                let RequestError::Failed(Failure::Panicked(panic)) = error else {
                    panic!("not a panic")
                };
                assert_eq!(panic.message(), Some("spilled"));
                assert!(!server.is_cancelled() && !requests.is_closed());
                assert_eq!(service.oneshot(false).await.unwrap(), 7);
            })
            .await;
        });
    });
}

#[test]
fn a_panic_without_a_client_is_reported() {
    const MESSAGE: &str = "spilled after the client has left";
    in_time(|| {
        static REPORTED: AtomicUsize = AtomicUsize::new(0);
        task::set_report_hook(|report| match report {
            Report::ChildPanic { panic, .. } if panic.message() == Some(MESSAGE) => {
                REPORTED.fetch_add(1, SeqCst);
            }
            _ => {}
        });
        block_on(&multi_thread(2), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let (begun, mut begins) = mpsc::unbounded_channel();
                let mut service = requests.layer().layer(service_fn(move |()| {
                    let begun = begun.clone();
                    async move {
                        begun.send(()).unwrap();
                        let Ok(_) = task::sleep(Duration::MAX).stopped_as_option().await;
                        if true {
                            std::panic::resume_unwind(Box::new(MESSAGE));
                        }
                        Ok::<_, Infallible>(())
                    }
                }));
                let response = service.call(());
                begins.recv().await.unwrap();
                drop(response);
                server.wait_for_all().await;
                assert!(!server.is_cancelled());
            })
            .await;
        });
        assert_eq!(REPORTED.load(SeqCst), 1);
        task::reset_report_hook();
    });
}

#[test]
fn the_deadline_answers_the_client_before_the_clean_up_ends() {
    in_time(|| {
        let cleaned = Arc::new(AtomicUsize::new(0));
        let counts = cleaned.clone();
        block_on(&multi_thread(2), async move {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let (seen, mut reasons) = mpsc::unbounded_channel();
                let gate = Arc::new(Semaphore::new(0));
                let (timeout, waits) = (Duration::from_millis(20), gate.clone());
                let mut service = requests.layer().timeout(timeout).layer(service_fn(move |()| {
                    let (seen, waits, counts) = (seen.clone(), waits.clone(), counts.clone());
                    async move {
                        assert!(task::deadline().is_some());
                        let Ok(_) = task::sleep(Duration::MAX).stopped_as_option().await;
                        seen.send(task::cancellation_reason()).unwrap();
                        task::shield(async {
                            waits.acquire().await.unwrap().forget();
                            counts.fetch_add(1, SeqCst);
                        })
                        .await;
                        Ok::<_, Infallible>(())
                    }
                }));
                // On a slow machine the deadline may pass before a request has begun.
                let reason = loop {
                    let begun = Instant::now();
                    let failed = service.call(()).await.unwrap_err();
                    assert!(matches!(failed.failure(), Some(Failure::DeadlineExceeded)));
                    assert!(begun.elapsed() >= timeout);
                    if let Ok(Some(reason)) = tokio::time::timeout(timeout, reasons.recv()).await {
                        break reason;
                    }
                };
                // The gate opens only after the answer.
                assert_eq!((reason, server.is_empty()), (Some(Reason::Deadline), false));
                gate.add_permits(1);
            })
            .await;
        });
        assert_eq!(cleaned.load(SeqCst), 1);
    });
}

#[test]
fn a_deadline_ends_the_wait_for_a_foreign_future_and_a_response_is_made_of_it() {
    in_time(|| {
        block_on(&multi_thread(2), async {
            task::discarding_group(async |server| {
                let (requests, drops) = (Requests::new(&server), Drops::default());
                let layer = requests
                    .layer()
                    .timeout(Duration::from_millis(2))
                    .answer_failures(|failure| failure.to_string());
                let held = drops.clone();
                let stuck = service_fn(move |()| {
                    let held = held.guard();
                    async move {
                        std::future::pending::<()>().await;
                        drop(held);
                        Ok::<_, Infallible>(String::new())
                    }
                });
                let answer: Result<_, Infallible> = layer.layer(stuck).oneshot(()).await;
                assert_eq!(answer.unwrap(), "deadline exceeded");
                server.wait_for_all().await;
                assert_eq!(drops.count(), 1);
            })
            .await;
        });
    });
}

#[test]
fn a_response_after_the_deadline_is_dropped() {
    in_time(|| {
        let drops = Drops::default();
        let guards = drops.clone();
        block_on(&multi_thread(2), async move {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let late = service_fn(move |()| {
                    let guard = guards.guard();
                    async move {
                        let Ok(_) = task::sleep(Duration::MAX).stopped_as_option().await;
                        Ok::<_, Infallible>(guard)
                    }
                });
                let mut service = requests.layer().timeout(Duration::from_millis(1)).layer(late);
                for _ in 0..50 {
                    let failed = service.call(()).await.unwrap_err();
                    assert!(matches!(failed.failure(), Some(Failure::DeadlineExceeded)));
                }
            })
            .await;
        });
        assert_eq!(drops.count(), 50);
    });
}

#[test]
fn a_deadline_of_no_time_and_one_beyond_all_time() {
    in_time(|| {
        block_on(&multi_thread(2), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let service = service_fn(|()| async move { Ok::<_, Infallible>(7) });
                let never = requests.layer().timeout(Duration::MAX).layer(service);
                assert_eq!(never.oneshot(()).await.unwrap(), 7);
                let at_once = requests.layer().timeout(Duration::ZERO).layer(service);
                let failed = at_once.oneshot(()).await.unwrap_err();
                assert!(matches!(failed.failure(), Some(Failure::DeadlineExceeded)));
            })
            .await;
        });
    });
}

#[test]
fn a_cancelled_server_gets_the_response_of_a_handler_that_still_answers() {
    const REASON: Reason = Reason::Custom("the kitchen closes");
    in_time(|| {
        block_on(&multi_thread(2), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let (begun, mut begins) = mpsc::unbounded_channel();
                let mut service = requests.layer().layer(service_fn(move |answers: bool| {
                    let begun = begun.clone();
                    async move {
                        begun.send(()).unwrap();
                        if answers {
                            let Ok(_) = task::sleep(Duration::MAX).stopped_as_option().await;
                            return Ok::<_, Infallible>(task::cancellation_reason());
                        }
                        std::future::pending().await
                    }
                }));
                let (polite, stopped) = (service.call(true), service.call(false));
                begins.recv().await.unwrap();
                begins.recv().await.unwrap();
                server.cancel_all_for(REASON);
                assert_eq!(polite.await.unwrap(), Some(REASON));
                let failed = stopped.await.unwrap_err();
                assert!(
                    matches!(failed.failure(), Some(Failure::Cancelled(REASON))),
                    "{failed:?}"
                );
                assert_eq!(failed.to_string(), "request was cancelled: the kitchen closes");
            })
            .await;
        });
    });
}

#[test]
fn a_handler_that_stops_by_itself_is_not_cancelled() {
    in_time(|| {
        block_on(&multi_thread(2), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let service = service_fn(|()| async move { just_stopped::<(), Infallible>().await });
                let failed = requests.layer().layer(service).oneshot(()).await.unwrap_err();
                assert!(matches!(failed.failure(), Some(Failure::Stopped)), "{failed:?}");
            })
            .await;
        });
    });
}

#[test]
fn a_response_arrives_before_the_children_of_its_handler_have_ended() {
    in_time(|| {
        block_on(&multi_thread(2), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server).limit(1);
                let (open, gate) = oneshot::channel::<()>();
                let mut gate = Some(gate);
                let mut service = requests.layer().layer(service_fn(move |()| {
                    let gate = gate.take().unwrap();
                    async move {
                        // It is cancelled where the handler returns, and finishes in its shield.
                        drop(task::let_async(async { task::shield(gate).await.unwrap() }));
                        Ok::<_, Infallible>(7)
                    }
                }));
                service.ready().await.unwrap();
                assert_eq!(service.call(()).await.unwrap(), 7);
                // The request is in flight until its child has ended.
                let (wakes, waker) = Wakes::new();
                assert!(!is_ready(&mut service, &waker));
                assert_eq!((server.len(), wakes.count()), (1, 0));
                open.send(()).unwrap();
                service.ready().await.unwrap();
            })
            .await;
        });
    });
}

#[test]
fn the_reason_of_a_client_that_leaves_has_a_text() {
    assert_eq!(CLIENT_LEFT.to_string(), "the client has left");
    assert_eq!(
        Failure::Cancelled(CLIENT_LEFT).to_string(),
        "request was cancelled: the client has left"
    );
}
