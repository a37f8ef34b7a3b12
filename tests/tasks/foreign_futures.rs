//! Futures of other crates are cancellation points: a stop drops the future that waits for nothing else.

use std::convert::Infallible;
use std::future::{Future, IntoFuture, pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::stop::StopSource;
use bowline::task::{self, DeadlineExceeded, Reason, Task, TaskGroup};
use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::everywhere::everywhere;
use crate::common::thread;

const SOON: Duration = Duration::from_millis(5);
const HOUR: Duration = Duration::from_secs(3600);

/// Sets a flag when it is dropped.
struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// A flag, and the guard that sets it.
fn flag() -> (Arc<AtomicBool>, SetOnDrop) {
    let flag = Arc::new(AtomicBool::new(false));
    (flag.clone(), SetOnDrop(flag))
}

/// Waits for ever, and calls `when_pending` once, after the first poll.
async fn stuck(mut when_pending: impl FnMut()) {
    let mut forever = pin!(pending::<()>());
    let mut is_first = true;
    poll_fn(|cx| {
        let polled = forever.as_mut().poll(cx);
        if std::mem::take(&mut is_first) {
            when_pending();
        }
        polled
    })
    .await;
}

/// Requests the stop on another thread, a little later.
fn stop_soon(source: &StopSource) -> impl FnMut() + use<> {
    let source = source.clone();
    move || {
        let source = source.clone();
        drop(thread::spawn(move || {
            std::thread::sleep(SOON);
            source.request_stop();
        }));
    }
}

#[test]
fn a_task_that_waits_for_a_foreign_future_alone_is_stopped_there() {
    everywhere(|place| {
        let source = StopSource::new();
        let (is_dropped, guard) = flag();
        let stop = stop_soon(&source);
        let work = Task::new(async move {
            let _guard = guard;
            stuck(stop).await;
            unreachable!("the future is dropped");
        });
        let outcome: Outcome<(), Infallible> = place.run(work.write_env(WithStopToken(source.token())));
        assert!(outcome.is_stopped());
        assert!(is_dropped.load(SeqCst), "the locals are dropped before the completion");
    });
}

/// Adds its name to a list when it is dropped.
struct Listed(&'static str, Arc<Mutex<Vec<&'static str>>>);

impl Drop for Listed {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0);
    }
}

#[test]
fn locals_are_dropped_in_the_same_order_at_a_foreign_await_as_at_any_other() {
    #[derive(Clone, Copy)]
    enum End {
        Return,
        Foreign,
        Sender,
        Child,
    }

    /// Awaits something with two locals, one of them in a block, and an argument.
    async fn waits(
        _argument: Listed,
        end: End,
        list: Arc<Mutex<Vec<&'static str>>>,
        stop: impl FnMut() + Send + 'static,
    ) {
        let listed = |name| Listed(name, list.clone());
        let _first = listed("first");
        {
            let _second = listed("second");
            let awaited = listed("awaited");
            let mut stop = stop;
            match end {
                // What a return drops, in the order of the language.
                End::Return => drop(awaited),
                End::Foreign => {
                    let foreign = async move {
                        let _awaited = awaited;
                        stuck(stop).await;
                    };
                    foreign.await;
                }
                End::Sender => {
                    let sender = async move {
                        let _awaited = awaited;
                        stop();
                        never::<(), Infallible>().await.unwrap();
                    };
                    sender.await;
                }
                End::Child => {
                    let child = Task::new(async move {
                        let _awaited = awaited;
                        stuck(stop).await;
                    });
                    child.await.unwrap();
                }
            }
        }
    }

    everywhere(|place| {
        for end in [End::Return, End::Foreign, End::Sender, End::Child] {
            for depth in 0..3 {
                let list = Arc::new(Mutex::new(Vec::new()));
                let source = StopSource::new();
                let argument = Listed("argument", list.clone());
                let work = waits(argument, end, list.clone(), stop_soon(&source));
                let work = Task::new(async move {
                    match depth {
                        0 => work.await,
                        1 => task::with_timeout(HOUR, work).await.unwrap(),
                        _ => Task::new(work).await.unwrap(),
                    }
                });
                let outcome = place.run(work.write_env(WithStopToken(source.token())));
                assert_eq!(outcome.is_value(), matches!(end, End::Return));
                // All of them, before the completion is seen.
                assert_eq!(*list.lock().unwrap(), ["awaited", "second", "first", "argument"]);
            }
        }
    });
}

#[test]
fn a_stop_during_the_poll_and_one_before_it_are_heard() {
    everywhere(|place| {
        for before in [true, false] {
            let source = StopSource::new();
            if before {
                source.request_stop();
            }
            let inside = source.clone();
            let work = Task::new(async move {
                // A future that is ready is not a point of suspension.
                assert_eq!(std::future::ready(7).await, 7);
                stuck(|| _ = inside.request_stop()).await;
            });
            assert!(place.run(work.write_env(WithStopToken(source.token()))).is_stopped());
        }
    });
}

#[test]
fn an_awaited_task_that_waits_for_a_foreign_future_stops_its_parent() {
    everywhere(|place| {
        for depth in [1, 2, 50] {
            fn nested(depth: usize, stop: impl FnMut() + Send + 'static) -> Task<()> {
                Task::new(async move {
                    match depth {
                        0 => stuck(stop).await,
                        _ => nested(depth - 1, Box::new(stop) as Box<dyn FnMut() + Send>)
                            .await
                            .unwrap(),
                    }
                })
            }
            let source = StopSource::new();
            let work = nested(depth, stop_soon(&source));
            assert!(place.run(work.write_env(WithStopToken(source.token()))).is_stopped());
        }
    });
}

#[test]
fn a_task_without_a_stop_goes_on_waiting() {
    everywhere(|place| {
        let (wake, woken) = async_channel::bounded(1);
        let work = Task::new(async move {
            drop(thread::spawn(move || {
                std::thread::sleep(SOON);
                wake.send_blocking(5).expect("the task waits");
            }));
            woken.recv().await
        });
        let source = StopSource::new();
        assert_eq!(place.run(work.write_env(WithStopToken(source.token()))).unwrap(), Ok(5));
    });
}

#[test]
fn children_that_wait_for_foreign_futures_are_cancelled_with_their_group() {
    everywhere(|place| {
        let ended = Arc::new(AtomicUsize::new(0));
        let count = ended.clone();
        let work = Task::new(async move {
            task::group(async |group| {
                let (ready, mut all_wait) = tokio::sync::mpsc::unbounded_channel();
                for _ in 0..10 {
                    let (count, ready) = (count.clone(), ready.clone());
                    group.spawn(async move {
                        let _count = scopeguard(move || _ = count.fetch_add(1, SeqCst));
                        stuck(|| ready.send(()).unwrap()).await;
                    });
                }
                for _ in 0..10 {
                    all_wait.recv().await.unwrap();
                }
                group.cancel_all();
                assert!(!task::is_cancelled(), "the parent goes on");
            })
            .await;
        });
        place.run(work).unwrap();
        assert_eq!(ended.load(SeqCst), 10);
    });
}

/// Calls a function when it is dropped.
fn scopeguard(run: impl FnOnce()) -> impl Drop {
    struct Guard<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for Guard<F> {
        fn drop(&mut self) {
            if let Some(run) = self.0.take() {
                run();
            }
        }
    }
    Guard(Some(run))
}

#[test]
fn the_body_of_a_group_is_stopped_in_a_foreign_future_and_its_children_end() {
    everywhere(|place| {
        let source = StopSource::new();
        let stop = stop_soon(&source);
        let (is_dropped, guard) = flag();
        let work = Task::new(async move {
            task::group(async |group| {
                let child = async move {
                    let _guard = guard;
                    pending::<()>().await;
                };
                group.spawn(child);
                stuck(stop).await;
            })
            .await;
        });
        assert!(place.run(work.write_env(WithStopToken(source.token()))).is_stopped());
        assert!(is_dropped.load(SeqCst));
    });
}

#[test]
fn a_deadline_ends_a_foreign_future_inside() {
    everywhere(|place| {
        let work = Task::new(async {
            let plain = task::with_timeout(SOON, pending::<()>()).await;
            let nested = task::with_timeout(HOUR, task::with_timeout(SOON, pending::<()>())).await;
            let outer = task::with_timeout(SOON, task::with_timeout(HOUR, pending::<()>())).await;
            let child = task::with_timeout(SOON, Task::new(pending::<()>())).await;
            let body = task::with_timeout(SOON, task::group(async |_: TaskGroup<()>| pending::<()>().await)).await;
            let busy = task::with_timeout(
                SOON,
                task::group(async |group| {
                    group.spawn(pending::<()>());
                    let _bound = task::let_async(pending::<()>());
                    pending::<()>().await;
                }),
            )
            .await;
            let bound = task::with_timeout(SOON, DEPTH.scope(1, pending::<()>())).await;
            assert!(!task::is_cancelled());
            (plain, nested, outer, child.map(Result::unwrap), body, busy, bound)
        });
        let late = Err(DeadlineExceeded);
        let ended = place.run(work).unwrap();
        assert_eq!(ended, (late, Ok(late), late.map(Ok), late, late, late, late));
    });
}

bowline::task_local! { static DEPTH: u32; }

#[test]
fn a_deadline_outside_of_tasks_ends_a_foreign_future() {
    let limited = || task::with_timeout(SOON, pending::<()>());
    assert_eq!(pollster::block_on(limited()), Err(DeadlineExceeded));
    assert_eq!(futures_lite::future::block_on(limited()), Err(DeadlineExceeded));
    let runtime = runtime();
    assert_eq!(runtime.block_on(limited()), Err(DeadlineExceeded));
    assert_eq!(
        runtime.block_on(runtime.spawn(limited())).unwrap(),
        Err(DeadlineExceeded)
    );
    let executor = async_executor::Executor::new();
    let on_smol = executor.run(executor.spawn(limited()));
    assert_eq!(futures_lite::future::block_on(on_smol), Err(DeadlineExceeded));
    // Under a waker of another crate, inside a task.
    let inside = Task::new(async {
        let mut all: FuturesUnordered<_> = (0..40).map(|_| task::with_timeout(SOON, pending::<()>())).collect();
        let mut late = 0;
        while let Some(ended) = all.next().await {
            late += usize::from(ended == Err(DeadlineExceeded));
        }
        late
    });
    assert_eq!(sync_wait(inside).unwrap(), 40);
}

#[test]
fn a_cancellation_inside_a_deadline_stops_the_task() {
    everywhere(|place| {
        let source = StopSource::new();
        let stop = stop_soon(&source);
        let work = Task::new(async move {
            let ended = task::with_timeout(HOUR, DEPTH.scope(1, stuck(stop))).await;
            unreachable!("{ended:?}");
        });
        let outcome: Outcome<(), Infallible> = place.run(work.write_env(WithStopToken(source.token())));
        assert!(outcome.is_stopped());
    });
}

#[test]
fn a_shield_protects_a_foreign_future() {
    everywhere(|place| {
        let source = StopSource::new();
        let inside = source.clone();
        let (wake, woken) = async_channel::bounded::<u32>(1);
        let work = Task::new(async move {
            let shielded = task::shield(async {
                inside.request_stop();
                drop(thread::spawn(move || {
                    std::thread::sleep(SOON);
                    wake.send_blocking(5).expect("the task waits");
                }));
                let got = woken.recv().await.unwrap();
                // A deadline inside of the shield is not affected by it.
                assert_eq!(task::with_timeout(SOON, pending::<()>()).await, Err(DeadlineExceeded));
                got
            })
            .await;
            assert_eq!(shielded, 5);
            assert!(task::is_cancelled());
            pending::<()>().await;
        });
        assert!(place.run(work.write_env(WithStopToken(source.token()))).is_stopped());
    });
}

#[test]
fn a_shield_that_another_executor_polls_protects_as_well() {
    let source = StopSource::new();
    let inside = source.clone();
    let (wake, woken) = async_channel::bounded::<u32>(1);
    let work = Task::new(async move {
        let mut all = FuturesUnordered::new();
        all.push(task::shield(async move { woken.recv().await.unwrap() }));
        // The shield is not polled by what wakes the task.
        let first = task::with_cancellation_handler(|| {}, poll_fn(|cx| all.poll_next_unpin(cx)));
        let mut first = pin!(first);
        assert!(poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx))).await.is_pending());
        inside.request_stop();
        drop(thread::spawn(move || {
            std::thread::sleep(SOON);
            wake.send_blocking(5).expect("the task waits");
        }));
        first.await
    });
    let outcome = sync_wait(starts_on(ThreadPool::global().scheduler(), work).write_env(WithStopToken(source.token())));
    assert_eq!(outcome.unwrap(), Some(5));
}

#[test]
fn a_handler_answers_for_the_foreign_futures_inside() {
    /// Runs an operation that waits for the channel, which the handler closes.
    async fn handled<F: IntoFuture>(
        stop: impl FnMut() + Send + 'static,
        operation: impl FnOnce(async_channel::Receiver<u32>) -> F,
    ) -> F::Output {
        let (keep, channel) = async_channel::bounded::<u32>(1);
        let close = channel.clone();
        let mut stop = stop;
        stop();
        let ended = task::with_cancellation_handler(move || _ = close.close(), operation(channel)).await;
        drop(keep);
        ended
    }

    everywhere(|place| {
        for now in [true, false] {
            let source = StopSource::new();
            let stop = || {
                let (source, mut soon) = (source.clone(), stop_soon(&source));
                move || if now { _ = source.request_stop() } else { soon() }
            };
            let (first, second, third, fourth) = (stop(), stop(), stop(), stop());
            let work = Task::new(async move {
                let plain = handled(first, |channel| async move { channel.recv().await }).await;
                let scoped = handled(second, |channel| DEPTH.scope(1, async move { channel.recv().await })).await;
                let task = handled(third, |channel| Task::new(async move { channel.recv().await }))
                    .await
                    .unwrap();
                let limit = handled(fourth, |channel| {
                    task::with_timeout(HOUR, async move { channel.recv().await })
                })
                .await;
                assert!(task::is_cancelled());
                [plain, scoped, task, limit.unwrap()].map(|ended| ended.is_err())
            });
            let ended = place.run(work.write_env(WithStopToken(source.token()))).unwrap();
            assert_eq!(ended, [true; 4]);
        }
    });
}

#[test]
fn a_deadline_inside_of_a_handler_holds() {
    everywhere(|place| {
        let source = StopSource::new();
        let work = Task::new(async {
            let inner = task::with_timeout(HOUR, task::with_timeout(SOON, pending::<()>()));
            task::with_cancellation_handler(|| unreachable!("the task is not cancelled"), inner).await
        });
        let ended = place.run(work.write_env(WithStopToken(source.token()))).unwrap();
        assert_eq!(ended, Ok(Err(DeadlineExceeded)));
    });
}

#[test]
fn a_deadline_around_a_handler_is_answered_by_the_handler() {
    everywhere(|place| {
        let work = Task::new(async {
            let (_keep, channel) = async_channel::bounded::<u32>(1);
            let close = channel.clone();
            let operation = task::with_cancellation_handler(move || _ = close.close(), async { channel.recv().await });
            task::with_timeout(SOON, operation).await
        });
        // The output, even if it comes after the deadline.
        assert!(matches!(place.run(work).unwrap(), Ok(Err(_))));
    });
}

#[test]
fn an_await_that_does_not_stop_is_waited_for_before_the_foreign_future_is_dropped() {
    everywhere(|place| {
        let source = StopSource::new();
        let stop = stop_soon(&source);
        let (is_sent, guard) = flag();
        let work = Task::new(async move {
            let pool = ThreadPool::global().scheduler();
            let slow = starts_on(
                pool,
                just_from(move || {
                    std::thread::sleep(4 * SOON);
                    drop(guard);
                }),
            );
            let both = join(slow.unstoppable().into_future(), stuck(stop));
            both.await;
        });
        assert!(place.run(work.write_env(WithStopToken(source.token()))).is_stopped());
        assert!(is_sent.load(SeqCst));
    });
}

#[test]
fn values_of_bound_children_are_not_lost_in_another_executor() {
    everywhere(|place| {
        let source = StopSource::new();
        let inside = source.clone();
        let work = Task::new(async move {
            let mut all: FuturesUnordered<_> = (0..40)
                .map(|number| {
                    task::let_async(async move {
                        task::shield(task::sleep(Duration::from_millis(number % 4))).await;
                        number
                    })
                    .into_future()
                })
                .collect();
            inside.request_stop();
            let mut sum = 0;
            while let Some(number) = all.next().await {
                sum += number;
            }
            sum
        });
        let sum = place.run(work.write_env(WithStopToken(source.token()))).unwrap();
        assert_eq!(sum, (0..40).sum::<u64>());
    });
}

/// What is dropped in a poll does not hide that the rest of the poll waits for a foreign future.
#[test]
fn a_future_that_lost_a_race_does_not_keep_the_task_waiting() {
    /// Polls a future once, and drops it.
    async fn lose<F: IntoFuture>(future: F) {
        let mut future = Box::pin(future.into_future());
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await;
    }

    async fn race_and_wait(which: usize, stop: impl FnMut()) {
        match which {
            0 => lose(task::sleep(HOUR)).await,
            1 => lose(Task::new(pending::<()>())).await,
            2 => lose(Task::new(async { task::sleep(HOUR).await })).await,
            3 => lose(task::shield(pending::<()>())).await,
            4 => lose(task::with_cancellation_handler(|| {}, pending::<()>())).await,
            5 => lose(task::let_async(pending::<()>())).await,
            6 => lose(ThreadPool::global().scheduler().schedule()).await,
            7 => lose(task::with_timeout(HOUR, task::sleep(HOUR))).await,
            8 => lose(task::group(async |group| group.spawn(pending::<()>()))).await,
            _ => {}
        }
        stuck(stop).await;
    }

    everywhere(|place| {
        for which in 0..10 {
            let source = StopSource::new();
            let work = Task::new(race_and_wait(which, stop_soon(&source)));
            assert!(place.run(work.write_env(WithStopToken(source.token()))).is_stopped());
            let limited = Task::new(task::with_timeout(SOON, race_and_wait(which, || {})));
            assert_eq!(place.run(limited).unwrap(), Err(DeadlineExceeded));
        }
    });
}

#[test]
fn results_of_a_group_in_a_cancelled_scope_are_delivered() {
    everywhere(|place| {
        let work = Task::new(async {
            let limited = task::with_timeout(
                SOON,
                task::group(async |group| {
                    // On a busy machine the deadline may pass between two spawns, and the group refuses the rest.
                    let mut expected = 0;
                    for number in 1..4_u64 {
                        let child = async move {
                            task::shield(task::sleep(4 * SOON)).await;
                            number
                        };
                        expected += group.try_spawn(child).map_or(0, |()| number);
                    }
                    let mut sum = 0;
                    while let Some(number) = group.next().await {
                        sum += number;
                    }
                    (sum, expected)
                }),
            );
            limited.await
        });
        let (sum, expected) = place.run(work).unwrap().expect("the body returns its value");
        assert_eq!(sum, expected);
    });
}

#[test]
fn a_detached_task_is_cancelled_in_a_foreign_future() {
    let handle = task::detach(pending::<()>());
    std::thread::sleep(SOON);
    handle.cancel();
    let ended = pollster::block_on(handle);
    assert!(ended.is_err_and(|error| error.is_cancelled()));
}

#[test]
fn a_waker_that_outlives_the_stopped_future_is_harmless() {
    let (wakers, kept) = std::sync::mpsc::channel();
    let source = StopSource::new();
    let stop = source.clone();
    let work = Task::new(poll_fn(move |cx| {
        wakers.send(cx.waker().clone()).unwrap();
        stop.request_stop();
        Poll::<()>::Pending
    }));
    assert!(sync_wait(work.write_env(WithStopToken(source.token()))).is_stopped());
    for waker in kept.try_iter() {
        waker.wake_by_ref();
        waker.wake();
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn a_read_from_a_socket_that_stays_silent_ends_with_the_deadline() {
    let runtime = runtime();
    let silent = async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (_server, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 16];
        let read = task::with_timeout(SOON, client.read(&mut buffer)).await;
        assert!(read.is_err());
        // The borrow has ended with the deadline.
        buffer[0] = 1;
        task::with_timeout(HOUR, client.write_all(&buffer))
            .await
            .unwrap()
            .unwrap();
        task::cancellation_reason()
    };
    assert_eq!(runtime.block_on(Task::new(silent).into_future()), Ok(None::<Reason>));
}
