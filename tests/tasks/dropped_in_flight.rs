//! Dropping an await of a task before it has completed: it is asked to stop, the drop returns at once, and the task is done
//! after it has ended.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::common::tasks::begin;
use crate::common::*;
use bowline::WithStopToken;
use bowline::factories::Never;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop, ThreadPool, Timer};
use bowline::stop::StopSource;
use bowline::task::{self, LocalTask, SenderFuture, Task, TaskFuture};

/// Polls a future once, drops it, and returns whether it was ready.
async fn poll_and_drop<F: Future>(future: F) -> bool {
    let mut future = Box::pin(future);
    let ready = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await;
    drop(future);
    ready
}

/// Polls both until one is ready, and drops the other before it returns.
async fn race<A: Future, B: Future>(a: A, b: B) -> Result<A::Output, B::Output> {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    poll_fn(move |cx| {
        if let Poll::Ready(value) = a.as_mut().poll(cx) {
            return Poll::Ready(Ok(value));
        }
        b.as_mut().poll(cx).map(Err)
    })
    .await
}

/// Suspends this often through its scheduler's queue.
async fn hops(rounds: usize) {
    for _ in 0..rounds {
        let mut waited = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut waited, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

fn forever() -> Never<(), Infallible> {
    never()
}

/// Returns a sender that completes only by a stop, and counts its stops.
fn counted(stops: &Arc<AtomicUsize>) -> impl Sender<Value = (), Error = Infallible> + Send + 'static {
    let stops = stops.clone();
    forever().let_stopped(move || {
        stops.fetch_add(1, SeqCst);
        just_stopped()
    })
}

/// Returns a future of any sender.
fn awaited<S>(sender: S) -> bowline::task::SenderFuture<S>
where
    S: Sender<Value: Send, Error: Send> + 'static,
{
    bowline::task::SenderFuture::new(sender)
}

/// Returns a future of a type-erased sender, which sees an erased token.
fn behind_a_box<S>(sender: S) -> Pin<Box<dyn Future<Output = ()> + Send>>
where
    S: Sender<Value = (), Error = Infallible> + Send + 'static,
{
    let future = awaited(sender.boxed());
    Box::pin(async {
        let _ = future.await;
    })
}

/// Runs a future as a task of its own. Everything begun in it has ended when this returns.
async fn as_a_task<F>(future: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    let Ok(value) = Task::new(future).await;
    value
}

/// Runs tasks of `body` on a run loop, and on pools with one and two workers.
fn everywhere<F>(body: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    assert!(sync_wait(Task::new(body())).is_value());
    for workers in [1, 2] {
        let pool = ThreadPool::new(workers);
        assert!(sync_wait(starts_on(pool.scheduler(), Task::new(body()))).is_value());
    }
}

/// Returns a chain of tasks, each awaiting the next, down to `leaf`.
fn nested<F>(depth: usize, leaf: impl FnOnce() -> F, census: &Census) -> Task<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let value = census.value();
    let leaf = leaf();
    let mut task = Task::new(async move {
        let _value = value;
        leaf.await;
    });
    for _ in 0..depth {
        let (inner, value) = (task, census.value());
        task = Task::new(async move {
            let _value = value;
            let Ok(()) = inner.await;
        });
    }
    task
}

#[test]
fn a_sender_dropped_in_flight_is_stopped_once_and_has_ended() {
    everywhere(|| async {
        let stops = Arc::new(AtomicUsize::new(0));
        assert!(!poll_and_drop(awaited(counted(&stops))).await);
        assert_eq!(stops.load(SeqCst), 1);
    });
}

#[test]
fn it_is_stopped_in_a_later_poll_too() {
    everywhere(|| async {
        let stops = Arc::new(AtomicUsize::new(0));
        let won = race(awaited(counted(&stops)), hops(3)).await;
        assert_eq!(won, Err(()));
        assert_eq!(stops.load(SeqCst), 1);
    });
}

#[test]
fn a_task_that_can_be_stopped_goes_on_when_only_an_await_is() {
    let source = StopSource::new();
    let task = Task::new(async {
        let stops = Arc::new(AtomicUsize::new(0));
        for round in 1..=3 {
            assert!(race(awaited(counted(&stops)), hops(1)).await.is_err());
            assert_eq!(stops.load(SeqCst), round);
        }
    });
    assert!(sync_wait(task.write_env(WithStopToken(source.token()))).is_value());
    assert!(!source.stop_requested());
}

#[test]
fn several_at_once_behind_a_box_too() {
    everywhere(|| async {
        let stops = Arc::new(AtomicUsize::new(0));
        let all = when_all((counted(&stops), counted(&stops), counted(&stops)));
        assert!(race(awaited(all), hops(2)).await.is_err());
        assert_eq!(stops.load(SeqCst), 3);
        assert!(race(behind_a_box(counted(&stops)), hops(2)).await.is_err());
        assert_eq!(stops.load(SeqCst), 4);
    });
}

#[test]
fn timers_are_not_waited_out() {
    everywhere(|| async {
        let timer = Timer::global();
        assert!(
            race(awaited(timer.schedule_after(Duration::from_secs(3600))), hops(2))
                .await
                .is_err()
        );
    });
}

#[test]
fn what_is_queued_on_the_only_worker_is_run_before_the_task_is_done() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let ran = Arc::new(AtomicUsize::new(0));
    let seen = ran.clone();
    let task = Task::new(async move {
        for _ in 0..100 {
            let ran = ran.clone();
            // It does not listen, and ends only by being run.
            let queued = scheduler
                .schedule()
                .unstoppable()
                .then(move |()| ran.fetch_add(1, SeqCst));
            assert!(!poll_and_drop(awaited(queued)).await);
        }
    });
    assert!(sync_wait(starts_on(scheduler, task)).is_value());
    assert_eq!(seen.load(SeqCst), 100);
}

/// The worker that would run it is held until after the drop.
#[test]
fn the_drop_returns_while_the_sender_is_in_flight() {
    let busy = ThreadPool::new(1);
    everywhere(|| {
        let (scheduler, census) = (busy.scheduler(), Census::new());
        async move {
            let (value, seen) = (census.value(), census.clone());
            as_a_task(async move {
                let worker = hold(scheduler);
                let queued = scheduler.schedule().unstoppable().then(move |()| drop(value));
                assert!(!poll_and_drop(awaited(queued)).await);
                assert_eq!(seen.alive(), 1);
                drop(worker);
            })
            .await;
            assert_eq!(census.alive(), 0);
        }
    });
}

#[test]
fn what_was_to_be_resumed_after_the_poll_is_ended_before_the_task_is_done() {
    // The operation of a task is resumed by its starter, after the poll.
    everywhere(|| async {
        let census = Census::new();
        let value = census.value();
        let task = Task::new(async move {
            let Ok(()) = forever().await;
            drop(value);
        });
        as_a_task(async move {
            assert!(!poll_and_drop(awaited(task.then(|()| ()))).await);
        })
        .await;
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_child_that_was_not_polled_is_just_dropped() {
    everywhere(|| async {
        let census = Census::new();
        let value = census.value();
        let (first, second) = (
            Task::new(async move {
                drop(value);
                panic!("it was dropped before")
            }),
            Task::new(async { panic!("it was dropped before") }),
        );
        let mut both = (Box::pin(first.into_future()), Box::pin(second.into_future()));
        // At this nesting depth a child is queued, not polled at once.
        let mut innermost = Task::new(async move {
            poll_fn(|cx| {
                let pending = both.0.as_mut().poll(cx).is_pending() && both.1.as_mut().poll(cx).is_pending();
                assert!(pending);
                Poll::Ready(())
            })
            .await;
            drop(both);
        });
        for _ in 0..2 {
            let inner = innermost;
            innermost = Task::new(async move { inner.await.unwrap() });
        }
        innermost.await.unwrap();
        assert_eq!(census.alive(), 0);
    });
}

fn child_at_depth(depth: usize) {
    everywhere(move || async move {
        let (census, stops) = (Census::new(), Arc::new(AtomicUsize::new(0)));
        let leaf = counted(&stops);
        let child = nested(
            depth,
            || async {
                let _ = awaited(leaf).await;
            },
            &census,
        );
        as_a_task(async move {
            assert!(race(child.into_future(), hops(3)).await.is_err());
        })
        .await;
        assert_eq!((census.alive(), stops.load(SeqCst)), (0, 1));
    });
}

#[test]
fn a_child_task_is_ended_with_what_it_awaits() {
    child_at_depth(0);
    child_at_depth(1);
}

/// Ends a chain of a hundred thousand tasks by dropping the outermost.
async fn end_a_deep_chain() {
    let (census, stops) = (Census::new(), Arc::new(AtomicUsize::new(0)));
    let leaf = counted(&stops);
    let child = nested(
        100_000,
        || async {
            let _ = awaited(leaf).await;
        },
        &census,
    );
    as_a_task(async move {
        assert!(race(child.into_future(), hops(3)).await.is_err());
    })
    .await;
    assert_eq!((census.alive(), stops.load(SeqCst)), (0, 1));
}

#[test]
fn a_deep_chain_of_tasks_is_ended_in_a_small_stack() {
    with_stack(DEEP_STACK, || {
        assert!(sync_wait(Task::new(end_a_deep_chain())).is_value());
    });
    for workers in [1, 2] {
        let pool = ThreadPool::new(workers);
        assert!(sync_wait(starts_on(pool.scheduler(), Task::new(end_a_deep_chain()))).is_value());
    }
}

#[test]
fn a_stopped_task_waits_for_all_the_children_it_is_left_with() {
    everywhere(|| async {
        let (census, stops) = (Census::new(), Arc::new(AtomicUsize::new(0)));
        let begun = Arc::new(AtomicUsize::new(0));
        let children = [(); 3].map(|()| {
            let (leaf, begun) = (counted(&stops), begun.clone());
            let leaf = async move {
                begun.fetch_add(1, SeqCst);
                let _ = awaited(leaf).await;
            };
            nested(2, || leaf, &census)
        });
        let parent = Task::new(async move {
            let [a, b, c] = children.map(IntoFuture::into_future);
            let _ = race(a, race(b, c)).await;
        });
        let all_begun = async move {
            while begun.load(SeqCst) < 3 {
                hops(1).await;
            }
        };
        as_a_task(async move {
            assert!(race(parent.into_future(), all_begun).await.is_err());
        })
        .await;
        assert_eq!((census.alive(), stops.load(SeqCst)), (0, 3));
    });
}

/// Stops a task that awaits three senders at once. Returns how many of them were stopped.
fn stopped_as_a_whole(on: Option<&ThreadPool>) -> usize {
    let source = StopSource::new();
    let (census, stops) = (Census::new(), Arc::new(AtomicUsize::new(0)));
    let (a, b, c) = (counted(&stops), counted(&stops), counted(&stops));
    let (value, request) = (census.value(), source.clone());
    // The first one stopped ends the task, which drops the others in flight. They share one list with the stop that ends it.
    let task = Task::new(async move {
        let _value = value;
        let others = race(awaited(when_all((a, b))), behind_a_box(c));
        let _ = race(awaited(forever()), others).await;
    });
    let stopper = just_from(move || {
        request.request_stop();
    });
    let token = WithStopToken(source.token());
    let outcome = match on {
        None => sync_wait(when_all((task.write_env(token).stopped_as_option(), stopper))),
        Some(pool) => sync_wait(when_all((
            starts_on(pool.scheduler(), task).write_env(token).stopped_as_option(),
            starts_on(pool.scheduler(), stopper),
        ))),
    };
    assert_eq!(outcome.unwrap().0, None);
    assert_eq!(census.alive(), 0);
    stops.load(SeqCst)
}

#[test]
fn the_stop_of_the_task_reaches_all_it_awaits() {
    assert_eq!(stopped_as_a_whole(None), 3);
    for workers in [1, 2] {
        let pool = ThreadPool::new(workers);
        for _ in 0..500 {
            // None if the task was stopped before it began.
            assert!([0, 3].contains(&stopped_as_a_whole(Some(&pool))));
        }
    }
}

#[test]
fn a_panic_in_what_is_dropped_reaches_the_task() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            quiet_panic();
        }
    }
    let stops = Arc::new(AtomicUsize::new(0));
    let (bomb, leaf) = (Bomb, counted(&stops));
    let task = Task::new(async move {
        let child = Task::new(async move {
            let _bomb = bomb;
            let _ = awaited(leaf).await;
        });
        let _ = race(child.into_future(), hops(2)).await;
    });
    // The child ends with the panic, which has no receiver.
    assert!(sync_wait(task).is_value());
    assert_eq!(stops.load(SeqCst), 1);
}

#[test]
fn dropped_by_a_panic_of_the_task() {
    let (census, stops) = (Census::new(), Arc::new(AtomicUsize::new(0)));
    let (value, leaf) = (census.value(), counted(&stops));
    let task = Task::new(async move {
        let _value = value;
        let bomb = async {
            hops(2).await;
            quiet_panic()
        };
        let _ = race(awaited(leaf), bomb).await;
    });
    assert_eq!(panic_message(|| sync_wait(task)), PANIC);
    assert_eq!((census.alive(), stops.load(SeqCst)), (0, 1));
}

#[test]
fn ten_thousand_races() {
    let pool = ThreadPool::new(2);
    let rounds = if cfg!(sanitized) { 1_000 } else { 10_000 };
    let seed = number("BOWLINE_SEED").unwrap_or(1);
    let census = Census::new();
    let mut random = XorShift::new(seed);
    for _ in 0..rounds {
        let scheduler = pool.scheduler();
        let source = StopSource::new();
        let (kind, length, stop) = (random.below(6), random.below(4) as usize, random.below(3) == 0);
        let (value, local) = (census.value(), census.clone());
        let task = Task::new(async move {
            let _value = value;
            let loser: Pin<Box<dyn Future<Output = ()> + Send>> = match kind {
                0 => Box::pin(async move {
                    let _ = awaited(scheduler.schedule()).await;
                }),
                1 => Box::pin(async {
                    let _ = awaited(forever()).await;
                }),
                2 => Box::pin(async move {
                    let value = local.value();
                    let both = when_all((forever(), scheduler.schedule().then(move |()| value)));
                    drop(awaited(both).await);
                }),
                3 => Box::pin(async move {
                    let wait = || async {
                        let _ = awaited(forever()).await;
                    };
                    let _ = nested(3, wait, &local).await;
                }),
                4 => Box::pin(async move {
                    let _ = nested(2, || hops(9), &local).await;
                }),
                _ => Box::pin(async move {
                    let wait = || async {
                        let _ = awaited(forever()).await;
                    };
                    let task = nested(1, wait, &local);
                    let _ = awaited(starts_on(scheduler, task)).await;
                }),
            };
            let _ = race(loser, hops(length)).await;
        });
        let work = starts_on(scheduler, task)
            .stopped_as_option()
            .write_env(WithStopToken(source.token()));
        let request = source.clone();
        let stopper = just_from(move || {
            if stop {
                request.request_stop();
            }
        });
        let outcome = sync_wait(when_all((work, starts_on(scheduler, stopper))));
        assert!(outcome.is_value(), "seed {seed}");
        assert_eq!(census.alive(), 0, "seed {seed}");
    }
}

#[test]
fn what_is_queued_on_the_tasks_own_loop_is_run_before_the_task_is_done() {
    static LOOP: RunLoop = RunLoop::new();
    let census = Census::new();
    let held = census.value();
    let task = Task::new(async move {
        let queued = LOOP.scheduler().schedule().then(move |()| drop(held));
        assert!(!poll_and_drop(queued.into_future()).await);
    });
    LOOP.run_until(task).unwrap();
    assert_eq!(census.alive(), 0);
}

#[test]
fn what_was_sent_to_another_task_is_waited_for_by_the_task_that_began_it() {
    static LOOP: RunLoop = RunLoop::new();
    let census = Census::new();
    let held = census.value();
    let (away, received) = mpsc::channel();
    let sends = Task::new(async move {
        let queued = LOOP.scheduler().schedule().unstoppable().then(move |()| drop(held));
        let mut queued = Box::pin(queued.into_future());
        let pending = poll_fn(|cx| Poll::Ready(queued.as_mut().poll(cx).is_pending())).await;
        assert!(pending);
        away.send(queued).expect("the other is there");
    });
    let drops = Task::new(async move {
        drop(received.recv().expect("it was sent"));
    });
    let seen = census.clone();
    LOOP.run_until(when_all((sends.then(move |()| assert_eq!(seen.alive(), 0)), drops)))
        .unwrap();
    assert_eq!(census.alive(), 0);
}

/// One completion resumes a task and its child. The task drops the child before its turn, or the child goes first, depending on
/// the order of the list.
#[test]
fn what_is_to_be_resumed_beneath_is_resumed_before_the_task_is_done() {
    let pool = ThreadPool::new(1);
    for child_first in [false, true] {
        let census = Census::new();
        let held = census.value();
        let worker = hold(pool.scheduler());
        let gate = starts_on(pool.scheduler(), just(())).split();
        let task = Task::new(async move {
            let (mut own, inner) = (Box::pin(gate.clone().into_future()), gate);
            let child = Task::new(async move {
                let _held = held;
                let Ok(()) = inner.await;
                std::future::pending::<()>().await;
            });
            let mut child = Some(Box::pin(child.into_future()));
            let mut worker = Some(worker);
            poll_fn(move |cx| {
                let mut ready = !child_first && own.as_mut().poll(cx).is_ready();
                if let Some(child) = &mut child {
                    assert!(child.as_mut().poll(cx).is_pending());
                }
                ready |= child_first && own.as_mut().poll(cx).is_ready();
                // Both wait for it by now.
                drop(worker.take());
                if !ready {
                    return Poll::Pending;
                }
                child = None;
                Poll::Ready(())
            })
            .await;
        });
        sync_wait(starts_on(InlineScheduler, task)).unwrap();
        assert_eq!(census.alive(), 0);
    }
}

/// A stop is passed on to two awaits of a task, and the first to see it drops the other before its turn.
#[test]
fn a_stop_that_is_to_be_passed_on_beneath_is_passed_on_before_the_task_is_done() {
    type Other = Mutex<Option<Pin<Box<dyn Future<Output = Result<(), Infallible>> + Send>>>>;
    let others: Arc<[Other; 2]> = Arc::default();
    let first = Arc::new(AtomicUsize::new(0));
    let (arrived, arrives) = mpsc::channel();
    let awaited = |which: usize| {
        let (others, first) = (others.clone(), first.clone());
        Box::pin(
            forever()
                .upon_stopped(move || {
                    if first.fetch_add(1, SeqCst) == 0 {
                        let other = lock(&others[1 - which]).take();
                        drop(other);
                    }
                })
                .into_future(),
        )
    };
    for which in 0..2 {
        *lock(&others[which]) = Some(awaited(which));
    }
    let inside = Task::new({
        let others = others.clone();
        poll_fn(move |cx| {
            let mut ready = false;
            for other in others.iter() {
                // Not locked during the poll: it may have been stopped already.
                let Some(mut future) = lock(other).take() else { continue };
                match future.as_mut().poll(cx) {
                    Poll::Ready(Ok(())) => ready = true,
                    Poll::Pending => *lock(other) = Some(future),
                }
            }
            if ready {
                return Poll::Ready(());
            }
            let _ = arrived.send(());
            Poll::Pending
        })
    });
    // As a sender, so that a relay is between the source and those two.
    let outside = Task::new(async move {
        let Ok(()) = inside.then(|()| ()).await;
    });
    let source = StopSource::new();
    let token = source.token();
    thread::scope(|scope| {
        scope.spawn(move || {
            arrives.recv().expect("it gets there");
            source.request_stop();
        });
        sync_wait(outside.write_env(WithStopToken(token))).unwrap();
    });
    assert_eq!(first.load(SeqCst), 2);
}

/// A transfer that is deferred during the poll of a child belongs to the child, and the task waits for both.
#[test]
fn what_is_to_be_resumed_further_down_is_resumed_before_the_task_is_done() {
    everywhere(|| async {
        let census = Census::new();
        let value = census.value();
        let inner = Task::new(async move {
            let _value = value;
            let Ok(()) = forever().await;
        });
        // When it is dropped, the child has started the inner task, which has not run yet.
        let child = Task::new(async move {
            let _ = awaited(inner.stopped_as_option()).await;
        });
        as_a_task(async move {
            assert!(!poll_and_drop(child.into_future()).await);
        })
        .await;
        assert_eq!(census.alive(), 0);
    });
}

/// A future begun in a task is sent to another thread and dropped there, while the rest of the task has ended. That thread or
/// the end of the task stops the sender, and the task is done afterwards.
#[test]
fn what_was_sent_to_another_thread_is_stopped_by_its_drop_there() {
    everywhere(|| async {
        let stops = Arc::new(AtomicUsize::new(0));
        let (seen, dropper) = (stops.clone(), ThreadPool::new(1));
        let begun = Task::new(async move {
            let mut away = Some(Box::pin(awaited(counted(&stops))));
            poll_fn(|cx| {
                let mut future = away.take().expect("polled once");
                assert!(future.as_mut().poll(cx).is_pending());
                start_detached(starts_on(dropper.scheduler(), just_from(move || drop(future))));
                Poll::Ready(())
            })
            .await;
            dropper
        });
        drop(begun.await);
        assert_eq!(seen.load(SeqCst), 1);
    });
}

/// The drop does not wait for the other thread; the end of the task does.
#[test]
fn a_child_that_another_thread_polls_is_waited_for() {
    let pool = ThreadPool::new(2);
    let scheduler = pool.scheduler();
    for _ in 0..10 {
        let census = Census::new();
        let held = census.value();
        let (arrived, arrives) = mpsc::channel();
        let (let_go, waits) = mpsc::channel();
        let (give_waker, waker) = mpsc::channel::<Waker>();
        let (give_childs, childs) = mpsc::channel::<Waker>();
        let task = Task::new(async move {
            let child = Task::new(async move {
                let _held = held;
                // Leaves its parent's poll, so that another worker resumes it.
                let mut waited = false;
                poll_fn(|cx| {
                    if std::mem::replace(&mut waited, true) {
                        return Poll::Ready(());
                    }
                    give_childs.send(cx.waker().clone()).expect("somebody wakes it");
                    Poll::Pending
                })
                .await;
                arrived.send(()).expect("somebody waits");
                waits.recv().expect("it is let go");
                std::future::pending::<()>().await;
            });
            let mut child = Some(Box::pin(child.into_future()));
            poll_fn(move |cx| {
                if let Some(polled) = &mut child
                    && give_waker.send(cx.waker().clone()).is_ok()
                {
                    assert!(polled.as_mut().poll(cx).is_pending());
                    return Poll::Pending;
                }
                // The child's thread stays inside its poll until this drop is over.
                child = None;
                let_go.send(()).expect("the child waits");
                Poll::Ready(())
            })
            .await;
        });
        thread::scope(|scope| {
            scope.spawn(move || {
                let task = waker.recv().expect("it begins");
                childs.recv().expect("the child begins").wake();
                arrives.recv().expect("the child gets there");
                // From now on no waker exists.
                drop(waker);
                task.wake();
            });
            sync_wait(starts_on(scheduler, task)).unwrap();
        });
        assert_eq!(census.alive(), 0);
    }
}

type Chain = TaskFuture<Counted, Infallible>;

/// Polls a chain of tasks that is too deep to be polled inside its parent. So it ends while its parent is held. In the next poll
/// the parent calls `then` instead of taking the result, and goes on with the chain that is returned.
fn does_not_take_the_result(census: &Census, mut then: impl FnMut(Chain) -> Option<Chain> + Send + 'static) {
    fn chain(levels: usize, value: Counted) -> Task<Counted> {
        Task::new(async move {
            match levels {
                0 => value,
                _ => chain(levels - 1, value).await.unwrap(),
            }
        })
    }
    let mut at = Some(chain(10, census.value()).into_future());
    let mut polls = 0;
    let work = poll_fn(move |cx| {
        polls += 1;
        if polls == 2 {
            at = at.take().and_then(&mut then);
            if at.is_some() {
                return Poll::Pending;
            }
        }
        let polled = at
            .as_mut()
            .map_or(Poll::Ready(()), |at| Pin::new(at).poll(cx).map(drop));
        assert_eq!(polled.is_pending(), polls == 1);
        polled
    });
    sync_wait(Task::new(work)).unwrap();
}

#[test]
fn a_child_that_has_ended_is_taken_in_a_later_poll() {
    let census = Census::new();
    does_not_take_the_result(&census, Some);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_child_that_has_ended_is_dropped_with_its_result() {
    let census = Census::new();
    does_not_take_the_result(&census, |chain| {
        drop(chain);
        None
    });
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_child_that_has_ended_is_dropped_on_another_thread() {
    let census = Census::new();
    does_not_take_the_result(&census, |chain| {
        thread::spawn(move || drop(chain)).join().unwrap();
        None
    });
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_child_that_has_ended_is_forgotten() {
    let census = Census::new();
    does_not_take_the_result(&census, |chain| {
        forget(Box::pin(chain));
        None
    });
    assert_eq!(census.alive(), 1);
}

#[test]
fn the_result_of_a_task_whose_future_was_dropped_is_dropped_though_a_forgotten_await_refers_to_the_task() {
    let busy = ThreadPool::new(1);
    everywhere(|| {
        let (scheduler, census) = (busy.scheduler(), Census::new());
        async move {
            let (value, seen) = (census.value(), census.clone());
            as_a_task(async move {
                let worker = hold(scheduler);
                let forgets = Task::new(async move {
                    forget(begin(awaited(scheduler.schedule().unstoppable())).await);
                    value
                });
                // It has its result, and waits for what it has forgotten.
                assert!(!poll_and_drop(forgets.into_future()).await);
                assert_eq!(seen.alive(), 1);
                drop(worker);
            })
            .await;
            assert_eq!(census.alive(), 0);
        }
    });
}

#[test]
fn the_result_of_a_child_that_its_group_discards_is_dropped_though_a_forgotten_await_refers_to_the_child() {
    everywhere(|| async {
        let census = Census::new();
        let value = census.value();
        task::group(async |group| {
            group.spawn(async move {
                forget(begin(awaited(forever())).await);
                value
            });
        })
        .await;
        assert_eq!(census.alive(), 0);
    });
}

/// A flag that wakes one waker.
#[derive(Default)]
struct Gate {
    open: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Gate {
    fn open(&self) {
        self.open.store(true, SeqCst);
        if let Some(waker) = lock(&self.waker).take() {
            waker.wake();
        }
    }

    fn poll(&self, context: &Context<'_>) -> Poll<()> {
        *lock(&self.waker) = Some(context.waker().clone());
        match self.open.load(SeqCst) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

#[test]
fn a_drop_elsewhere_during_the_completion_resumes_the_task_on_its_own_thread() {
    let run_loop = RunLoop::new();
    let source = StopSource::new();
    let (send, receive) = mpsc::channel::<(Pin<Box<dyn Future<Output = ()> + Send>>, [Arc<Gate>; 3])>();
    let dropping = thread::spawn(move || {
        for (future, [begins, completes, dropped]) in receive {
            begins.open();
            while !completes.open.load(SeqCst) {
                std::hint::spin_loop();
            }
            drop(future);
            dropped.open();
        }
    });
    let here = thread::current().id();
    let work = LocalTask::new(async move {
        for n in 0..30_000 {
            let gates: [Arc<Gate>; 3] = std::array::from_fn(|_| Arc::default());
            let [begins, completes, dropped] = gates.clone();
            let sender = from_future(poll_fn(move |context| begins.poll(context))).then(move |()| {
                // The await no longer listens to a stop, and has not completed.
                completes.open();
                (0..n % 500).for_each(|n| _ = std::hint::black_box(n));
            });
            let mut future = Box::pin(async { _ = SenderFuture::new(sender).await });
            assert!(
                poll_fn(|context| Poll::Ready(future.as_mut().poll(context)))
                    .await
                    .is_pending()
            );
            send.send((future, gates)).unwrap();
            poll_fn(|context| dropped.poll(context)).await;
            assert_eq!(thread::current().id(), here);
        }
    });
    let work = work.write_env(WithStopToken(source.token()));
    run_loop.run_until(work).unwrap();
    dropping.join().unwrap();
}
