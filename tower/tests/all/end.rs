//! The end of the scope: closed, cancelled, over, and services that outlive it.

use std::convert::Infallible;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bowline::prelude::*;
use bowline_tokio::block_on;
use bowline_tower::{Failure, RequestError, Requests, TaskService};
use tokio::sync::{mpsc, oneshot};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::common::*;

fn is_closed<T, E>(response: Result<T, RequestError<E>>) -> bool {
    matches!(response, Err(RequestError::Failed(Failure::Closed)))
}

#[test]
fn a_closed_scope_refuses_and_awaits_what_runs() {
    in_time(|| {
        block_on(&multi_thread(2), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let (open, gate) = oneshot::channel();
                let mut gate = Some(gate);
                let service = service_fn(move |()| {
                    let gate = gate.take();
                    async move { Ok::<u32, Infallible>(gate.unwrap().await.unwrap()) }
                });
                let mut service = requests.layer().layer(service);
                let running = service.call(());
                assert!(!requests.is_closed());
                requests.close();
                requests.close();
                assert!(requests.is_closed());
                // The service inside is not called.
                assert!(is_closed(service.ready().await.unwrap().call(()).await));
                open.send(7).unwrap();
                assert_eq!(running.await.unwrap(), 7);
            })
            .await;
        });
    });
}

#[test]
fn services_outlive_the_scope_and_refuse() {
    in_time(|| {
        let runtime = multi_thread(2);
        let service = block_on(&runtime, async {
            let (leaves, left) = oneshot::channel();
            let (open, gate) = oneshot::channel::<()>();
            let group = task::discarding_group(async move |server| {
                let requests = Requests::new(&server);
                let mut gate = Some(gate);
                let mut service = requests.layer().layer(service_fn(move |()| {
                    let gate = gate.take();
                    async move {
                        if let Some(gate) = gate {
                            task::shield(gate).await.unwrap();
                        }
                        Ok::<_, Infallible>(())
                    }
                }));
                std::mem::forget(service.call(()));
                assert!(leaves.send(service).is_ok());
            });
            // The body has ended and a request runs: the group would still take children.
            let late = async {
                let mut service: TaskService<_> = left.await.unwrap();
                eventually("the end of the body", || {
                    let mut context = Context::from_waker(Waker::noop());
                    assert!(service.poll_ready(&mut context).is_ready());
                    match std::pin::pin!(service.call(())).poll(&mut context) {
                        Poll::Ready(response) => is_closed(response),
                        Poll::Pending => false,
                    }
                })
                .await;
                open.send(()).unwrap();
                service
            };
            let ((), service) = tokio::join!(group, late);
            service
        });
        // The group is over, and its runtime has ended.
        drop(runtime);
        assert!(is_closed(task::block_on(service.oneshot(()))));
    });
}

#[test]
fn a_cancelled_group_refuses() {
    in_time(|| {
        block_on(&multi_thread(2), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let service = requests
                    .layer()
                    .layer(service_fn(|()| async move { Ok::<_, Infallible>(()) }));
                server.cancel_all();
                assert!(requests.is_closed());
                assert!(is_closed(service.oneshot(()).await));
            })
            .await;
        });
    });
}

#[test]
fn the_cancellation_of_the_servers_task_reaches_the_requests() {
    in_time(|| {
        let (cleaned, mut clean_ups) = mpsc::unbounded_channel();
        let (begun, begins) = std::sync::mpsc::channel();
        let server = task::detach(task::discarding_group(async move |server| {
            let requests = Requests::new(&server);
            let mut service = requests.layer().timeout(PATIENCE).layer(service_fn(move |()| {
                let (begun, cleaned) = (begun.clone(), cleaned.clone());
                async move {
                    begun.send(()).unwrap();
                    let Ok(_) = task::sleep(Duration::MAX).stopped_as_option().await;
                    task::shield(task::sleep(Duration::from_millis(1))).await;
                    cleaned.send(task::is_cancelled()).unwrap();
                    Ok::<_, Infallible>(())
                }
            }));
            let _ = service.call(()).await;
            std::future::pending::<()>().await;
        }));
        begins.recv().unwrap();
        server.cancel();
        assert!(task::block_on(server).is_err_and(|error| error.is_cancelled()));
        assert_eq!(clean_ups.try_recv(), Ok(true));
    });
}

#[test]
fn a_group_outside_of_a_task_is_a_scope_too() {
    in_time(|| {
        let runtime = multi_thread(1);
        let served = runtime.block_on(async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server);
                let service = service_fn(|n: u32| async move { Ok::<_, Infallible>(n + 1) });
                requests.layer().layer(service).oneshot(1).await
            })
            .await
        });
        assert_eq!(served.unwrap(), 2);
    });
}

#[test]
fn a_layer_and_its_services_describe_themselves() {
    in_time(|| {
        block_on(&multi_thread(1), async {
            task::discarding_group(async |server| {
                let requests = Requests::new(&server).limit(3);
                assert!(format!("{requests:?}").contains("limit: 3"));
                let mut service = requests
                    .layer()
                    .name_requests(|(): &()| "request")
                    .answer_failures(|_| ())
                    .layer(service_fn(|()| async move { Ok::<_, Infallible>(()) }));
                assert!(format!("{:?}", requests.layer()).starts_with("TaskLayer"));
                let response = service.call(());
                assert!(format!("{response:?}").contains("waiting"));
                response.await.unwrap();
            })
            .await;
        });
    });
}
