//! Awaiting the schedule sender of the task's own pool: the frame itself is queued.

use std::future::{Future as _, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::task::{Context, Poll, Waker};

use crate::common::{CrewAllocations, hold, panic_message};
use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::stop::StopSource;
use bowline::task::{self, ScheduleFuture, Task};
use futures_util::StreamExt as _;
use futures_util::future::{join, select};
use futures_util::stream::FuturesUnordered;

/// Polls a future once, with the waker of the task.
async fn polled_once(future: &mut ScheduleFuture) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx).is_ready())).await
}

/// Wraps a future, and counts its polls.
fn counting<F: Future>(polls: Arc<AtomicUsize>, future: F) -> impl Future<Output = F::Output> {
    let mut future = Box::pin(future);
    poll_fn(move |cx| {
        polls.fetch_add(1, Relaxed);
        future.as_mut().poll(cx)
    })
}

#[test]
fn the_task_itself_gets_in_line_and_nothing_is_allocated() {
    let allocations = CrewAllocations::new();
    let pool = ThreadPool::builder()
        .threads(1)
        .on_start(move |_| allocations.join())
        .build()
        .expect("a pool");
    let scheduler = pool.scheduler();
    let task = Task::new(async move {
        let before = allocations.so_far();
        for _ in 0..100 {
            scheduler.schedule().await;
        }
        allocations.so_far() - before
    });
    // Not even the block that other awaits need.
    assert_eq!(sync_wait(starts_on(scheduler, task)).unwrap(), 0);
}

#[test]
fn each_await_is_one_turn() {
    let (pool, polls) = (ThreadPool::new(1), Arc::new(AtomicUsize::new(0)));
    let scheduler = pool.scheduler();
    let hops = counting(polls.clone(), async move {
        for _ in 0..100 {
            scheduler.schedule().await;
        }
    });
    sync_wait(starts_on(scheduler, Task::new(hops))).unwrap();
    assert_eq!(polls.load(Relaxed), 101);
}

/// Counts how often a task gets its turn before other work that is queued with the same worker.
#[test]
fn a_task_that_hops_starves_neither_its_children_nor_others() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let hops_before = move |ran: Arc<AtomicUsize>| async move {
        let mut hops = 0;
        while ran.load(SeqCst) == 0 {
            scheduler.schedule().await;
            hops += 1;
            assert!(hops < 10_000, "it is starved");
        }
        hops
    };
    let child = Task::new(task::group(async move |group| {
        let ran = Arc::new(AtomicUsize::new(0));
        let inside = ran.clone();
        group.spawn(async move { inside.fetch_add(1, SeqCst) });
        hops_before(ran).await
    }));
    let before_child = sync_wait(starts_on(scheduler, child)).unwrap();
    assert!(before_child <= 8, "{before_child} hops before a child");

    // From outside: it waits in the injector, whose turn comes less often.
    let ran = Arc::new(AtomicUsize::new(0));
    let held = hold(scheduler);
    let inside = ran.clone();
    let task = Task::new(hops_before(ran));
    let (hops, ()) = std::thread::scope(|scope| {
        let hops = scope.spawn(|| sync_wait(starts_on(scheduler, task)).unwrap());
        start_detached(starts_on(scheduler, just_from(move || inside.store(1, SeqCst))));
        drop(held);
        (hops.join().expect("it ends"), ())
    });
    assert!(hops <= 16, "{hops} hops before work from outside");
}

#[test]
fn another_pool_and_another_priority_are_gone_to() {
    let (home, other) = (ThreadPool::new(1), ThreadPool::new(1));
    let (here, there) = (home.scheduler(), other.scheduler());
    let task = Task::new(async move {
        let thread = std::thread::current().id();
        there.schedule().await;
        here.with_priority(Priority::Background).schedule().await;
        // The sender ran elsewhere, and the task resumes at home.
        thread == std::thread::current().id()
    });
    assert!(sync_wait(starts_on(here, task)).unwrap());
}

#[test]
fn a_lower_priority_lets_others_go_first() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let task = Task::new(async move {
        let ran = Arc::new(AtomicUsize::new(0));
        let inside = ran.clone();
        start_detached(starts_on(
            scheduler.with_priority(Priority::Utility),
            just_from(move || inside.store(1, SeqCst)),
        ));
        scheduler.schedule().await;
        let first = ran.load(SeqCst);
        scheduler.with_priority(Priority::Background).schedule().await;
        (first, ran.load(SeqCst))
    });
    assert_eq!(sync_wait(starts_on(scheduler, task)).unwrap(), (0, 1));
}

#[test]
fn a_stop_that_was_requested_by_its_turn_stops_the_task() {
    let (pool, source, polls) = (ThreadPool::new(1), StopSource::new(), Arc::new(AtomicUsize::new(0)));
    let scheduler = pool.scheduler();
    let inside = source.clone();
    let task = Task::new(counting(polls.clone(), async move {
        scheduler.schedule().await;
        inside.request_stop();
        scheduler.schedule().await;
        unreachable!("it was stopped");
    }));
    let outcome = sync_wait(starts_on(scheduler, task.write_env(WithStopToken(source.token()))));
    assert!(matches!(outcome, Outcome::Stopped), "{outcome:?}");
    assert_eq!(polls.load(Relaxed), 3);
}

#[test]
fn two_at_once_share_a_turn() {
    let (pool, polls) = (ThreadPool::new(1), Arc::new(AtomicUsize::new(0)));
    let scheduler = pool.scheduler();
    let hops = move || async move {
        for _ in 0..100 {
            scheduler.schedule().await;
        }
    };
    let both = counting(polls.clone(), async move { join(hops(), hops()).await });
    sync_wait(starts_on(scheduler, Task::new(both))).unwrap();
    assert_eq!(polls.load(Relaxed), 101);
}

#[test]
fn a_child_that_hops_inside_the_poll_of_its_parent_gets_in_line_alone() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let polls = Arc::new(AtomicUsize::new(0));
    let child = move || {
        Task::new(async move {
            for _ in 0..10 {
                scheduler.schedule().await;
            }
        })
    };
    let parent = counting(polls.clone(), async move {
        let (one, other) = join(child().into_future(), child().into_future()).await;
        one.unwrap();
        other.unwrap();
    });
    sync_wait(starts_on(scheduler, Task::new(parent))).unwrap();
    assert!(polls.load(Relaxed) <= 3, "{polls:?}");
}

/// A future that is polled twice in one turn still completes: another thread runs the sender.
#[test]
fn a_task_that_polls_in_a_loop_gets_the_value_from_another_thread() {
    let pool = ThreadPool::new(2);
    let scheduler = pool.scheduler();
    let task = Task::new(async move {
        let mut future = scheduler.schedule().into_future();
        while !polled_once(&mut future).await {
            std::thread::yield_now();
        }
    });
    sync_wait(starts_on(scheduler, task)).unwrap();
}

#[test]
fn it_may_be_dropped_or_forgotten_in_flight() {
    let (pool, polls) = (ThreadPool::new(1), Arc::new(AtomicUsize::new(0)));
    let scheduler = pool.scheduler();
    let task = Task::new(counting(polls.clone(), async move {
        let mut dropped = scheduler.schedule().into_future();
        assert!(!polled_once(&mut dropped).await);
        drop(dropped);
        let mut forgotten = scheduler.schedule().into_future();
        assert!(!polled_once(&mut forgotten).await);
        mem::forget(forgotten);
        // The frame is queued already, and this is the same turn.
        scheduler.schedule().await;
        let waits = pin!(never::<(), ()>().into_future());
        let _ = select(waits, scheduler.schedule().into_future()).await;
        // The task ends while its frame is to be queued.
        let mut left = scheduler.schedule().into_future();
        assert!(!polled_once(&mut left).await);
    }));
    let outcome = sync_wait(starts_on(scheduler, task));
    assert!(matches!(outcome, Outcome::Value(())), "{outcome:?}");
    assert!(polls.load(Relaxed) <= 4, "{polls:?}");
}

#[test]
fn it_is_refused_in_another_task_and_goes_on_in_its_own() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let task = Task::new(async move {
        let mut future = scheduler.schedule().into_future();
        assert!(!polled_once(&mut future).await);
        let other = Task::new(async move {
            let refused = panic_message(|| {
                let mut cx = Context::from_waker(Waker::noop());
                let _ = Pin::new(&mut future).poll(&mut cx);
            });
            (future, refused)
        });
        let (future, refused) = other.await.unwrap();
        assert!(refused.contains("was sent elsewhere"), "{refused}");
        future.await;
    });
    sync_wait(starts_on(scheduler, task)).unwrap();
}

#[test]
fn it_works_under_wakers_of_others() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let task = Task::new(async move {
        let mut begun = scheduler.schedule().into_future();
        assert!(!polled_once(&mut begun).await);
        let mut all: FuturesUnordered<_> = [begun, scheduler.schedule().into_future()].into_iter().collect();
        let mut many = 0;
        while let Some(done) = all.next().await {
            let () = done;
            many += 1;
        }
        many
    });
    assert_eq!(sync_wait(starts_on(scheduler, task)).unwrap(), 2);
    pollster::block_on(scheduler.schedule().into_future());
}

#[test]
fn a_wake_while_it_is_in_line_is_not_lost() {
    let pool = ThreadPool::new(2);
    let scheduler = pool.scheduler();
    for _ in 0..1_000 {
        let task = Task::new(async move {
            let (mut sent, mut hop) = (false, pin!(scheduler.schedule().into_future()));
            let flag = Arc::new(AtomicUsize::new(0));
            let mut hopped = false;
            poll_fn(|cx| {
                if !sent {
                    let (flag, waker) = (flag.clone(), cx.waker().clone());
                    start_detached(starts_on(
                        scheduler,
                        just_from(move || {
                            flag.store(1, SeqCst);
                            waker.wake();
                        }),
                    ));
                    sent = true;
                }
                hopped = hopped || hop.as_mut().poll(cx).is_ready();
                if hopped && flag.load(SeqCst) == 1 {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
        });
        sync_wait(starts_on(scheduler, task)).unwrap();
    }
}
