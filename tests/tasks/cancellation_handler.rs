//! `task::with_cancellation_handler`.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, IntoFuture, pending, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::{RunLoop, ThreadPool, Timer};
use bowline::stop::StopSource;
use bowline::task::{self, LocalTask, Task, with_cancellation_handler};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use crate::common::everywhere::everywhere;
use crate::common::{self, Census, allocations, lock, quiet_panic, thread};

/// A counter of calls.
#[derive(Clone, Debug, Default)]
struct Calls(Arc<AtomicUsize>);

impl Calls {
    fn handler(&self) -> impl FnOnce() + Send + use<> {
        let calls = self.0.clone();
        move || {
            calls.fetch_add(1, SeqCst);
        }
    }

    fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// Polls a future in place, and returns whether it was ready.
fn poll_once<F: Future>(future: &mut Pin<Box<F>>) -> impl Future<Output = bool> {
    poll_fn(move |context| Poll::Ready(future.as_mut().poll(context).is_ready()))
}

#[test]
fn the_handler_runs_during_the_cancel_on_the_thread_that_cancels() {
    everywhere(|place| {
        let source = StopSource::new();
        let (asks, asked) = mpsc::channel();
        let ran = Arc::new(Mutex::new(None));
        let waker = Arc::new(Mutex::new(None::<Waker>));
        thread::scope(|scope| {
            let canceller = scope.spawn({
                let (source, ran) = (source.clone(), ran.clone());
                move || {
                    asked.recv().expect("the operation runs");
                    assert!(source.request_stop());
                    assert_eq!(
                        *lock(&ran),
                        Some(thread::current().id()),
                        "it has run when the cancel returns"
                    );
                }
            });
            let work = Task::new({
                let (ran, waker) = (ran.clone(), waker.clone());
                async move {
                    let handler = {
                        let (ran, waker) = (ran.clone(), waker.clone());
                        move || {
                            *lock(&ran) = Some(thread::current().id());
                            if let Some(waker) = lock(&waker).take() {
                                waker.wake();
                            }
                        }
                    };
                    let mut asks = Some(asks);
                    let operation = poll_fn(move |context| {
                        *lock(&waker) = Some(context.waker().clone());
                        if let Some(asks) = asks.take() {
                            asks.send(()).expect("somebody cancels");
                        }
                        match *lock(&ran) {
                            Some(_) => Poll::Ready(task::is_cancelled()),
                            None => Poll::Pending,
                        }
                    });
                    with_cancellation_handler(handler, operation).await
                }
            });
            let seen = place.run(work.write_env(WithStopToken(source.token()))).unwrap();
            assert!(seen, "the flag is set before");
            canceller.join().expect("it did not panic");
        });
    });
}

#[test]
fn of_many_who_cancel_one_calls_the_handler_once() {
    everywhere(|place| {
        let source = StopSource::new();
        let calls = Calls::default();
        let (asks, asked) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let work = Task::new({
                let handler = calls.handler();
                async move {
                    let mut asks = Some(asks);
                    let operation = poll_fn(move |context| {
                        drop(asks.take());
                        context.waker().wake_by_ref();
                        if task::is_cancelled() {
                            Poll::Ready(())
                        } else {
                            Poll::Pending
                        }
                    });
                    with_cancellation_handler(handler, operation).await;
                }
            });
            let source = &source;
            scope.spawn(move || {
                // Returns after the operation has begun.
                let _ = asked.recv();
                let wins = AtomicUsize::new(0);
                thread::scope(|scope| {
                    for _ in 0..4 {
                        scope.spawn(|| wins.fetch_add(usize::from(source.request_stop()), SeqCst));
                    }
                });
                assert_eq!(wins.into_inner(), 1);
            });
            place.run(work.write_env(WithStopToken(source.token()))).unwrap();
        });
        assert_eq!(calls.count(), 1);
    });
}

#[test]
fn already_cancelled_the_handler_runs_first_and_then_the_operation() {
    everywhere(|place| {
        let source = StopSource::new();
        source.request_stop();
        let order = Arc::new(Mutex::new(Vec::new()));
        let work = Task::new({
            let order = order.clone();
            async move {
                let handler = {
                    let order = order.clone();
                    move || lock(&order).push(("handler", task::is_cancelled()))
                };
                let operation = async {
                    lock(&order).push(("operation", task::is_cancelled()));
                    7
                };
                with_cancellation_handler(handler, operation).await
            }
        });
        assert_eq!(place.run(work.write_env(WithStopToken(source.token()))).unwrap(), 7);
        // A handler is not part of the task.
        assert_eq!(*lock(&order), [("handler", false), ("operation", true)]);
    });
}

/// The task itself calls the handler during its poll: before the operation, by a cancellation inside it, or at its end.
#[test]
fn a_handler_sees_no_task() {
    bowline::task_local! {
        static NAME: u32;
    }
    everywhere(|place| {
        for early in [false, true] {
            let source = StopSource::new();
            let (tells, told) = mpsc::channel();
            let work = Task::new({
                let canceller = source.clone();
                async move {
                    if early {
                        canceller.request_stop();
                    }
                    let handler = move || {
                        let seen = (
                            task::current().is_none(),
                            task::is_cancelled(),
                            task::deadline(),
                            NAME.get(),
                        );
                        tells.send(seen).expect("the test listens");
                    };
                    let operation = async { canceller.request_stop() };
                    let operation = with_cancellation_handler(handler, operation);
                    let operation = task::with_timeout(Duration::from_secs(3600), operation);
                    NAME.scope(7, operation).await.expect("there is time");
                }
            });
            place.run(work.write_env(WithStopToken(source.token()))).unwrap();
            assert_eq!(told.try_recv(), Ok((true, false, None, None)));
        }
    });
}

#[test]
fn a_handler_of_an_operation_that_has_ended_is_not_called_and_gone() {
    everywhere(|place| {
        let source = StopSource::new();
        let (calls, census) = (Calls::default(), Census::new());
        let work = Task::new({
            let (handler, owned, census, canceller) = (calls.handler(), census.value(), census.clone(), source.clone());
            async move {
                let handler = move || {
                    drop(owned);
                    handler();
                };
                let mut handled = Box::pin(with_cancellation_handler(handler, async { 7 }));
                let value = handled.as_mut().await;
                assert_eq!(census.alive(), 0, "what it owned is gone, before the future is");
                canceller.request_stop();
                value
            }
        });
        assert_eq!(place.run(work.write_env(WithStopToken(source.token()))).unwrap(), 7);
        assert_eq!(calls.count(), 0);
    });
}

#[test]
fn a_handler_of_an_operation_that_was_dropped_is_not_called() {
    everywhere(|place| {
        let source = StopSource::new();
        let calls = Calls::default();
        let work = Task::new({
            let (handler, canceller) = (calls.handler(), source.clone());
            async move {
                let mut handled = Box::pin(with_cancellation_handler(handler, pending::<()>()));
                assert!(!poll_once(&mut handled).await);
                drop(handled);
                canceller.request_stop();
            }
        });
        place.run(work.write_env(WithStopToken(source.token()))).unwrap();
        assert_eq!(calls.count(), 0);
    });
}

#[test]
fn a_handler_that_panics_keeps_none_of_the_others_from_running() {
    everywhere(|place| {
        let source = StopSource::new();
        let calls = Calls::default();
        let work = Task::new({
            let (outer, inner, canceller) = (calls.handler(), calls.handler(), source.clone());
            async move {
                let middle = || quiet_panic();
                let operation = async {
                    assert!(canceller.request_stop(), "it returns");
                    task::is_cancelled()
                };
                let operation = with_cancellation_handler(inner, operation);
                let operation = with_cancellation_handler(middle, operation);
                with_cancellation_handler(outer, operation).await
            }
        });
        assert!(place.run(work.write_env(WithStopToken(source.token()))).unwrap());
        assert_eq!(calls.count(), 2);
        // Also at once, if the task is cancelled already.
        let work = Task::new(async { with_cancellation_handler(|| quiet_panic(), async { 7 }).await });
        assert_eq!(place.run(work.write_env(WithStopToken(source.token()))).unwrap(), 7);
    });
}

#[test]
fn a_handler_may_cancel_what_it_is_called_for_and_others() {
    everywhere(|place| {
        let (source, other) = (StopSource::new(), StopSource::new());
        let work = Task::new({
            let (canceller, source, other) = (source.clone(), source.clone(), other.clone());
            async move {
                let handler = move || {
                    assert!(!source.request_stop(), "that was done");
                    assert!(other.request_stop());
                };
                with_cancellation_handler(handler, async { canceller.request_stop() }).await
            }
        });
        assert!(place.run(work.write_env(WithStopToken(source.token()))).unwrap());
        assert!(other.stop_requested());
    });
}

#[test]
fn a_handler_may_complete_the_operation() {
    everywhere(|place| {
        let source = StopSource::new();
        let (sends, receives) = async_channel::bounded::<()>(1);
        let work = Task::new({
            let canceller = source.clone();
            async move {
                let operation = async {
                    let mut receive = Box::pin(receives.recv());
                    assert!(!poll_once(&mut receive).await);
                    canceller.request_stop();
                    receive.await
                };
                let handler = move || {
                    sends.close();
                };
                with_cancellation_handler(handler, operation).await
            }
        });
        let received = place.run(work.write_env(WithStopToken(source.token()))).unwrap();
        assert!(received.is_err(), "it was closed");
    });
}

#[test]
fn a_handler_may_spawn_and_wait_for_what_it_spawned() {
    everywhere(|place| {
        let source = StopSource::new();
        let (done, ends) = mpsc::channel();
        let work = Task::new({
            let canceller = source.clone();
            async move {
                let handler = move || {
                    let seven = starts_on(ThreadPool::global().scheduler(), Task::new(async { 7 }));
                    done.send(sync_wait(seven).unwrap()).expect("somebody listens");
                };
                with_cancellation_handler(handler, async { canceller.request_stop() }).await
            }
        });
        assert!(place.run(work.write_env(WithStopToken(source.token()))).unwrap());
        assert_eq!(ends.recv(), Ok(7));
    });
}

/// The only worker ends the operation while the handler, on another thread, waits for work on that worker. The suspended task
/// occupies no worker.
#[test]
fn a_task_that_waits_for_its_handler_takes_no_worker() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let source = StopSource::new();
    let (asks, asked) = mpsc::channel();
    let (runs, running) = mpsc::channel();
    let value = thread::scope(|scope| {
        scope.spawn({
            let source = source.clone();
            move || {
                asked.recv().expect("the operation runs");
                source.request_stop();
            }
        });
        let work = Task::new(async move {
            let handler = move || {
                runs.send(()).expect("the operation waits for this");
                sync_wait(starts_on(scheduler, just_from(|| ()))).unwrap();
            };
            let operation = async move {
                asks.send(()).expect("somebody cancels");
                running.recv().expect("the handler runs");
                7
            };
            with_cancellation_handler(handler, operation).await
        });
        sync_wait(starts_on(
            pool.scheduler(),
            work.write_env(WithStopToken(source.token())),
        ))
        .unwrap()
    });
    assert_eq!(value, 7);
}

type Slot<F> = Arc<Mutex<Option<Pin<Box<F>>>>>;

#[test]
fn a_handler_may_drop_the_future_that_it_is_of() {
    everywhere(|place| {
        let source = StopSource::new();
        let (calls, census) = (Calls::default(), Census::new());
        let work = Task::new({
            let (call, canceller, owned) = (calls.handler(), source.clone(), census.value());
            async move {
                let slot: Slot<dyn Future<Output = ()> + Send> = Slot::default();
                let handler = {
                    let slot = slot.clone();
                    move || {
                        let own = lock(&slot).take();
                        assert!(own.is_some());
                        drop(own);
                        call();
                    }
                };
                let operation = async move {
                    let _owned = owned;
                    pending::<()>().await;
                };
                let mut handled: Pin<Box<dyn Future<Output = ()> + Send>> =
                    Box::pin(with_cancellation_handler(handler, operation));
                poll_fn(|context| {
                    assert!(handled.as_mut().poll(context).is_pending());
                    Poll::Ready(())
                })
                .await;
                *lock(&slot) = Some(handled);
                assert!(canceller.request_stop());
                assert!(lock(&slot).is_none());
            }
        });
        place.run(work.write_env(WithStopToken(source.token()))).unwrap();
        assert_eq!((calls.count(), census.alive()), (1, 0));
    });
}

/// The future is dropped at once while its handler runs on another thread. The task ends after the handler has returned.
#[test]
fn a_drop_does_not_wait_for_the_handler_and_the_end_of_the_task_does() {
    everywhere(|place| {
        let source = StopSource::new();
        let calls = Calls::default();
        let (asks, asked) = mpsc::channel();
        let (runs, running) = mpsc::channel();
        let (drops, dropped) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn({
                let source = source.clone();
                move || {
                    asked.recv().expect("the operation runs");
                    source.request_stop();
                }
            });
            let call = calls.handler();
            let work = Task::new(async move {
                let handler = move || {
                    runs.send(()).expect("the task waits for this");
                    // Returns after the future was dropped.
                    let _ = dropped.recv();
                    call();
                };
                let mut handled = Box::pin(with_cancellation_handler(handler, pending::<()>()));
                assert!(!poll_once(&mut handled).await);
                asks.send(()).expect("somebody cancels");
                running.recv().expect("the handler runs");
                drop(handled);
                drop(drops);
            });
            place.run(work.write_env(WithStopToken(source.token()))).unwrap();
            assert_eq!(calls.count(), 1);
        });
    });
}

/// The operation is polled inside the task with another waker, which is woken like the task.
#[test]
fn under_a_waker_of_something_else_it_waits_for_its_handler_too() {
    everywhere(|place| {
        let source = StopSource::new();
        let calls = Calls::default();
        let (asks, asked) = mpsc::channel();
        let (runs, running) = mpsc::channel();
        let (ends, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn({
                let source = source.clone();
                move || {
                    asked.recv().expect("the operation runs");
                    source.request_stop();
                }
            });
            let call = calls.handler();
            let work = Task::new(async move {
                let handler = move || {
                    runs.send(()).expect("the task waits for this");
                    // Returns a little after the operation has ended.
                    let _ = ended.recv();
                    thread::sleep(Duration::from_millis(1));
                    call();
                };
                let operation = async move {
                    asks.send(()).expect("somebody cancels");
                    running.recv().expect("the handler runs");
                    drop(ends);
                    7
                };
                let mut all = FuturesUnordered::new();
                all.push(with_cancellation_handler(handler, operation));
                all.next().await
            });
            let value = place.run(work.write_env(WithStopToken(source.token()))).unwrap();
            assert_eq!((value, calls.count()), (Some(7), 1));
        });
    });
}

/// The handler drives the loop of its own task, and the operation ends inside the handler. The future is ready after the
/// handler has returned.
#[test]
fn an_operation_may_end_inside_of_its_own_handler() {
    let run_loop: &'static RunLoop = common::for_good(RunLoop::new());
    let source = StopSource::new();
    let (sends, receives) = async_channel::bounded::<()>(1);
    let work = Task::new(async move {
        let handler = move || {
            sends.close();
            run_loop.run_ready();
        };
        with_cancellation_handler(handler, receives.recv()).await.is_err()
    });
    let (ends, ended) = mpsc::channel();
    start_detached(
        starts_on(run_loop.scheduler(), work.write_env(WithStopToken(source.token())))
            .then(move |closed| ends.send(closed).expect("somebody listens")),
    );
    run_loop.run_ready();
    assert!(ended.try_recv().is_err());
    source.request_stop();
    run_loop.run_ready();
    assert_eq!(ended.try_recv(), Ok(true));
}

#[test]
fn a_future_that_was_forgotten_has_no_handler_once_the_task_has_ended() {
    everywhere(|place| {
        let source = StopSource::new();
        let calls = Calls::default();
        let work = Task::new({
            let handler = calls.handler();
            async move {
                let mut handled = Box::pin(with_cancellation_handler(handler, pending::<()>()));
                assert!(!poll_once(&mut handled).await);
                common::forget(handled);
            }
        });
        place.run(work.write_env(WithStopToken(source.token()))).unwrap();
        source.request_stop();
        assert_eq!(calls.count(), 0);
    });
}

#[test]
fn a_future_that_was_sent_away_goes_on_without_its_handler() {
    everywhere(|place| {
        let source = StopSource::new();
        let calls = Calls::default();
        let (sends, sent) = mpsc::channel();
        let (tells, told) = async_channel::bounded(1);
        let work = Task::new({
            let handler = calls.handler();
            async move {
                let operation = async move { told.recv().await };
                let mut handled = Box::pin(with_cancellation_handler(handler, operation));
                assert!(!poll_once(&mut handled).await);
                sends.send(handled).expect("somebody takes it");
            }
        });
        place.run(work.write_env(WithStopToken(source.token()))).unwrap();
        // The stop source was dropped with the task's operation, and is not used.
        drop(source);
        let mut handled = sent.recv().expect("it was sent");
        let mut context = Context::from_waker(Waker::noop());
        assert!(handled.as_mut().poll(&mut context).is_pending());
        tells.try_send(7).expect("there is room");
        assert_eq!(handled.as_mut().poll(&mut context), Poll::Ready(Ok(7)));
        drop(handled);
        assert_eq!(calls.count(), 0);
    });
}

#[test]
fn a_future_may_be_dropped_elsewhere_while_the_task_goes_on_and_ends() {
    for round in 0..200 {
        let place = ThreadPool::new(1);
        let source = StopSource::new();
        let calls = Calls::default();
        let (sends, sent) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || drop(sent.recv().expect("it is sent")));
            scope.spawn(|| {
                for _ in 0..round {
                    std::hint::spin_loop();
                }
                source.request_stop();
            });
            let work = Task::new({
                let handler = calls.handler();
                async move {
                    let mut handled = Box::pin(with_cancellation_handler(handler, pending::<()>()));
                    assert!(!poll_once(&mut handled).await);
                    sends.send(handled).expect("somebody drops it");
                }
            });
            sync_wait(starts_on(
                place.scheduler(),
                work.write_env(WithStopToken(source.token())),
            ))
            .unwrap();
        });
        assert!(calls.count() <= 1);
    }
}

/// A scope has a stop source of its own, which stays alive as long as a handler listens to it.
#[test]
fn a_future_that_was_moved_out_of_a_scope_may_be_dropped_there() {
    everywhere(|place| {
        let calls = Calls::default();
        let (sends, sent) = mpsc::channel();
        let work = Task::new({
            let handler = calls.handler();
            async move {
                let limited = task::with_timeout(Duration::from_secs(3600), async {
                    let mut handled = Box::pin(with_cancellation_handler(handler, pending::<()>()));
                    assert!(!poll_once(&mut handled).await);
                    sends.send(handled).expect("somebody takes it");
                });
                Box::pin(limited).await.expect("there is time");
                drop(sent.recv().expect("it was sent"));
            }
        });
        place.run(work).unwrap();
        assert_eq!(calls.count(), 0);
    });
}

#[test]
fn a_handler_is_called_when_the_deadline_around_it_passes() {
    everywhere(|place| {
        let (sends, receives) = async_channel::bounded::<()>(1);
        let work = Task::new(async move {
            let close = move || {
                sends.close();
            };
            let operation = with_cancellation_handler(close, receives.recv());
            task::with_timeout(Duration::from_millis(1), operation).await
        });
        assert!(place.run(work).unwrap().expect("it has a value").is_err());
    });
}

/// A deadline inside of a shield is another stop than the one that the handler around the shield answers.
#[test]
fn a_deadline_in_a_shield_holds_after_the_handler_around_it_was_called() {
    everywhere(|place| {
        let source = StopSource::new();
        let calls = Calls::default();
        let limited = || task::with_timeout(Duration::from_millis(1), pending::<()>());
        let work = Task::new({
            let (handler, canceller) = (calls.handler(), source.clone());
            async move {
                let operation = async {
                    canceller.request_stop();
                    let here = limited().await.is_err();
                    let Ok(in_a_task) = Task::new(async move { limited().await.is_err() }).await;
                    (here, in_a_task)
                };
                with_cancellation_handler(handler, task::shield(operation)).await
            }
        });
        let ended = place.run(work.write_env(WithStopToken(source.token())));
        assert_eq!(ended.unwrap(), (true, true));
        assert_eq!(calls.count(), 1);
    });
}

#[test]
fn in_a_shield_no_handler_is_called_for_the_task() {
    everywhere(|place| {
        let source = StopSource::new();
        let calls = Calls::default();
        let work = Task::new({
            let (handler, canceller) = (calls.handler(), source.clone());
            async move {
                task::shield(with_cancellation_handler(handler, async {
                    canceller.request_stop();
                }))
                .await;
                task::is_cancelled()
            }
        });
        assert!(place.run(work.write_env(WithStopToken(source.token()))).unwrap());
        assert_eq!(calls.count(), 0);
    });
}

#[test]
fn outside_of_a_task_the_handler_is_not_called() {
    let calls = Calls::default();
    let value = pollster::block_on(with_cancellation_handler(calls.handler(), async { 7 }));
    assert_eq!((value, calls.count()), (7, 0));
}

#[test]
fn a_sender_may_be_the_operation_and_still_stops() {
    everywhere(|place| {
        let source = StopSource::new();
        let calls = Calls::default();
        let work = Task::new({
            let handler = calls.handler();
            async move {
                with_cancellation_handler(handler, Timer::global().schedule_after(Duration::MAX)).await;
            }
        });
        let outcome = thread::scope(|scope| {
            scope.spawn(|| source.request_stop());
            place.run(work.write_env(WithStopToken(source.token())))
        });
        assert!(outcome.is_stopped());
        assert_eq!(calls.count(), 1);
    });
}

#[test]
fn the_operation_may_borrow_and_stay_on_its_thread() {
    let count = Cell::new(0);
    let run_loop = RunLoop::new();
    let local = Rc::new(Cell::new(1));
    let work = LocalTask::new(async move {
        let borrowed = &local;
        let operation = async {
            borrowed.set(borrowed.get() + 1);
            Timer::global().schedule_after(Duration::from_millis(1)).await;
            borrowed.get()
        };
        with_cancellation_handler(|| {}, operation).await
    });
    count.set(run_loop.run_until(work).unwrap());
    assert_eq!(count.get(), 2);
}

#[test]
fn an_operation_that_panics_takes_its_handler_along() {
    everywhere(|place| {
        let source = StopSource::new();
        let (calls, census) = (Calls::default(), Census::new());
        let work = Task::new({
            let (handler, owned) = (calls.handler(), census.value());
            async move {
                let handler = move || {
                    drop(owned);
                    handler();
                };
                with_cancellation_handler(handler, async { quiet_panic() }).await
            }
        });
        let work = work.write_env(WithStopToken(source.token()));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| place.run(work))).is_err();
        source.request_stop();
        assert_eq!((panicked, calls.count(), census.alive()), (true, 0, 0));
    });
}

#[test]
fn installing_and_removing_a_handler_takes_no_memory_but_that_of_its_task() {
    let source = StopSource::new();
    let run_loop = RunLoop::new();
    let work = Task::new(async {
        // The task has its chunk from here on.
        with_cancellation_handler(|| {}, async {}).await;
        let begin = common::allocations_so_far();
        for _ in 0..100 {
            let Ok(()) = with_cancellation_handler(|| {}, async { Ok::<_, Infallible>(()) }).await;
        }
        common::allocations_so_far() - begin
    });
    let (count, _) = allocations(|| {
        run_loop
            .run_until(work.write_env(WithStopToken(source.token())))
            .unwrap()
    });
    assert_eq!(count, 0);
}

#[test]
fn a_handler_may_spawn_into_a_group_and_cancel_it() {
    everywhere(|place| {
        let source = StopSource::new();
        let census = Census::new();
        let (spawned, canceller) = (census.value(), source.clone());
        let work = Task::new(async move {
            task::discarding_group(async move |group| {
                let from_handler = group.clone();
                let handler = move || {
                    // Refused if the stop has reached the group before this handler.
                    drop(from_handler.try_spawn(async move { drop(spawned) }));
                    from_handler.cancel_all();
                };
                with_cancellation_handler(handler, async { canceller.request_stop() }).await
            })
            .await
        });
        assert!(place.run(work.write_env(WithStopToken(source.token()))).unwrap());
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn handlers_of_children_are_called_for_the_group() {
    everywhere(|place| {
        let calls = Calls::default();
        let counted = calls.clone();
        let work = Task::new(async move {
            task::group(async move |group| {
                for _ in 0..10 {
                    let handler = counted.handler();
                    group
                        .try_spawn(async move {
                            let Ok(stopped) = with_cancellation_handler(
                                handler,
                                never::<(), Infallible>().stopped_as_option().into_future(),
                            )
                            .await;
                            assert_eq!(stopped, None);
                        })
                        .expect("it is open");
                }
                group.cancel_all();
            })
            .await;
        });
        place.run(work).unwrap();
        assert_eq!(calls.count(), 10);
    });
}
