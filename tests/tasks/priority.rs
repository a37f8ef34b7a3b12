//! Priorities of tasks: inherited, given, and raised by a waiting task, for queued, suspended and running tasks.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;

use crate::common::*;
use Priority::{Background, Default, UserInitiated, UserInteractive, Utility};
use bowline::prelude::*;
use bowline::scheduler::{PoolScheduler, ThreadPool};
use bowline::task::{self, Handle, SpawnOptions, Task};

/// A pool whose workers are all busy. Once released, one of them runs the queued work in the order of its levels.
struct Busy {
    held: Vec<Held>,
    pool: ThreadPool,
}

impl Busy {
    fn new(workers: usize) -> Self {
        let pool = ThreadPool::new(workers);
        let held = (0..workers).map(|_| hold(pool.scheduler())).collect();
        Busy { held, pool }
    }

    fn scheduler(&self) -> PoolScheduler {
        self.pool.scheduler()
    }

    fn options(&self, priority: Priority) -> SpawnOptions {
        SpawnOptions::new().scheduler(self.scheduler()).priority(priority)
    }

    fn let_go(&mut self) {
        drop(self.held.pop());
    }
}

/// The order in which tasks have run.
#[derive(Clone, std::default::Default)]
struct Order(Arc<Mutex<Vec<&'static str>>>);

impl Order {
    fn note(&self, name: &'static str) {
        lock(&self.0).push(name);
    }

    /// Returns a task that records its run.
    fn run(&self, name: &'static str) -> impl Future<Output = ()> + Send + 'static {
        let order = self.clone();
        async move { order.note(name) }
    }

    fn seen(&self) -> Vec<&'static str> {
        lock(&self.0).clone()
    }
}

const WORKERS: [usize; 3] = [1, 2, 8];

fn gate() -> (async_channel::Sender<()>, async_channel::Receiver<()>) {
    async_channel::bounded(8)
}

fn join<T: Send + 'static>(handle: Handle<T>) -> T {
    task::block_on(handle).unwrap()
}

/// Polls a future once, and continues if it is pending.
async fn begin<F: Future>(mut future: Pin<&mut F>) {
    poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
}

// Inherited, and given.

#[test]
fn there_is_a_default_outside_of_tasks() {
    assert_eq!((task::base_priority(), task::priority()), (Default, Default));
}

#[test]
fn children_of_all_kinds_inherit_and_detached_tasks_do_not() {
    for priority in Priority::ALL {
        let task = Task::new(async move {
            let now = || async { (task::base_priority(), task::priority()) };
            let awaited = Task::new(now()).await.unwrap();
            let nested = starts_on(ThreadPool::global().scheduler(), Task::new(now()))
                .await
                .unwrap();
            let bound = task::let_async(now()).await;
            let in_group = task::group(async move |group| {
                group.spawn(now());
                group.next().await.unwrap()
            });
            let detached = task::detach(now()).await.unwrap();
            assert_eq!([awaited, nested, bound, in_group.await], [(priority, priority); 4]);
            // It has no priority of its own, but a task waits for it.
            assert_eq!(detached.0, Default);
        });
        sync_wait(task.write_env(With(priority))).unwrap();
    }
}

#[test]
fn a_child_may_be_given_its_own_and_its_children_inherit_that() {
    let task = Task::new(task::group(async |group| {
        group.spawn_with(SpawnOptions::new().priority(UserInitiated), async {
            let below = task::let_async(async { task::base_priority() }).await;
            (task::base_priority(), below)
        });
        group.next().await.unwrap()
    }));
    let levels = sync_wait(task.write_env(With(Utility))).unwrap();
    assert_eq!(levels, (UserInitiated, UserInitiated));
}

#[test]
fn a_run_loop_takes_priorities_and_runs_in_its_order() {
    let order = Order::default();
    let noted = order.clone();
    let task = Task::new(task::group(async move |group| {
        group.spawn_with(SpawnOptions::new().priority(Background), noted.run("first"));
        group.spawn_with(SpawnOptions::new().priority(UserInteractive), noted.run("second"));
        let third = task::let_async(noted.run("third"));
        third.await;
    }));
    sync_wait(task.write_env(With(UserInteractive))).unwrap();
    assert_eq!(order.seen(), ["first", "second", "third"]);
}

// Queued.

#[test]
fn a_queued_task_is_moved_up_when_it_is_raised() {
    for workers in WORKERS {
        let mut busy = Busy::new(workers);
        let order = Order::default();
        let low = task::detach_with(busy.options(Background), order.run("low"));
        let plain = task::detach_with(busy.options(Default), order.run("plain"));
        let raised = task::detach_with(busy.options(Background), order.run("raised"));
        raised.raise(UserInteractive);
        // Lower than its level.
        plain.raise(Background);
        busy.let_go();
        join(low);
        assert_eq!(order.seen(), ["raised", "plain", "low"]);
        join(plain);
        join(raised);
    }
}

#[test]
fn each_level_may_be_raised_to_each_higher_one() {
    for from in Priority::ALL {
        for to in Priority::ALL {
            let mut busy = Busy::new(1);
            let order = Order::default();
            let raised = task::detach_with(busy.options(from), order.run("raised"));
            let rival = task::detach_with(busy.options(to), order.run("rival"));
            raised.raise(to);
            let last = task::detach_with(busy.options(Background), async {});
            busy.let_go();
            join(last);
            // Raised, it goes behind the entries of its new level; otherwise it keeps its place.
            let first = if from >= to { "raised" } else { "rival" };
            assert_eq!(order.seen()[0], first, "{from:?} to {to:?}");
            assert_eq!(order.seen().len(), 2);
            join(raised);
            join(rival);
        }
    }
}

#[test]
fn a_scheduler_with_a_priority_of_its_own_is_outdone_too() {
    let mut busy = Busy::new(1);
    let order = Order::default();
    let options = SpawnOptions::new().scheduler(busy.scheduler().with_priority(Background));
    let plain = task::detach_with(busy.options(Default), order.run("plain"));
    let low = task::detach_with(options.clone(), order.run("low"));
    let raised = task::detach_with(options, order.run("raised"));
    raised.raise(UserInitiated);
    busy.let_go();
    join(low);
    assert_eq!(order.seen(), ["raised", "plain", "low"]);
    join(plain);
    join(raised);
}

#[test]
fn awaiting_a_handle_raises_the_task() {
    for workers in WORKERS {
        let mut busy = Busy::new(workers);
        let order = Order::default();
        let plain = task::detach_with(busy.options(Default), order.run("plain"));
        let awaited = task::detach_with(busy.options(Background), {
            let order = order.clone();
            async move {
                order.note("awaited");
                (task::base_priority(), task::priority())
            }
        });
        let waits = Task::new(async move {
            let mut awaited = Box::pin(awaited);
            begin(awaited.as_mut()).await;
            busy.let_go();
            let levels = awaited.await.unwrap();
            (levels, plain.await.unwrap())
        });
        let (levels, ()) = sync_wait(waits.write_env(With(UserInitiated))).unwrap();
        assert_eq!(levels, (Background, UserInitiated));
        assert_eq!(order.seen(), ["awaited", "plain"]);
    }
}

#[test]
fn who_is_less_urgent_raises_nobody() {
    let (open, opened) = gate();
    let awaited = task::detach_with(SpawnOptions::new().priority(Utility), async move {
        opened.recv().await.unwrap();
        task::priority()
    });
    let waits = Task::new(async move {
        let mut awaited = Box::pin(awaited);
        begin(awaited.as_mut()).await;
        open.send(()).await.unwrap();
        awaited.await.unwrap()
    });
    assert_eq!(sync_wait(waits.write_env(With(Background))).unwrap(), Utility);
}

// Awaits.

#[test]
fn a_group_is_raised_with_its_task() {
    for workers in WORKERS {
        let mut busy = Busy::new(workers);
        let order = Order::default();
        let plain = task::detach_with(busy.options(Default), order.run("plain"));
        let (spawned, spawns) = mpsc::channel();
        let (noted, options) = (order.clone(), busy.options(Background));
        // It runs elsewhere. It waits for more children than one batch of a raise, and fewer than let other levels have a turn.
        let parent = task::detach_with(
            SpawnOptions::new().priority(Background),
            task::group(async move |group| {
                for _ in 0..40 {
                    group.spawn_with(options.clone(), noted.run("child"));
                }
                spawned.send(group.clone()).unwrap();
                let mut ended = 0;
                while group.next().await.is_some() {
                    ended += 1;
                }
                ended
            }),
        );
        let group = spawns.recv().unwrap();
        parent.raise(UserInitiated);
        // Children spawned later are raised as well.
        group.spawn_with(busy.options(Background), order.run("late"));
        let rival = task::detach_with(busy.options(UserInitiated), order.run("rival"));
        drop(group);
        busy.let_go();
        join(plain);
        let mut expected = vec!["child"; 40];
        expected.extend(["late", "rival", "plain"]);
        assert_eq!(order.seen(), expected);
        assert_eq!(join(parent), 41);
        join(rival);
    }
}

/// Binds more children than one batch of a raise, which are queued while the only worker is busy here, and awaits them.
async fn bind_many(order: Order, began: mpsc::Sender<()>, released: mpsc::Receiver<()>) {
    let children: Vec<_> = (0..40).map(|_| task::let_async(order.run("child"))).collect();
    begun(&began);
    released.recv().unwrap();
    for child in children {
        child.await;
    }
}

#[test]
fn bound_children_are_raised_with_their_task() {
    let mut expected = vec!["child"; 40];
    expected.push("plain");
    // The task itself, and its parent.
    for in_group in [false, true] {
        // The pool serves lower levels now and then, which may come in between: then it is tried again.
        let order = (0..8)
            .map(|_| order_of_bound(in_group))
            .find(|order| *order == expected);
        assert_eq!(order.as_ref(), Some(&expected));
    }
}

/// Returns the order in which bound children, raised with their task, run beside an unrelated job.
fn order_of_bound(in_group: bool) -> Vec<&'static str> {
    let pool = ThreadPool::new(1);
    let options = |level| SpawnOptions::new().scheduler(pool.scheduler()).priority(level);
    let order = Order::default();
    let (began, begins) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let binds = bind_many(order.clone(), began, released);
    let parent = if in_group {
        let options = options(Background);
        let group = task::group(async move |group| {
            group.spawn_with(options, binds);
        });
        task::detach_with(SpawnOptions::new().priority(Background), group)
    } else {
        task::detach_with(options(Background), binds)
    };
    begins.recv().unwrap();
    let plain = task::detach_with(options(Default), order.run("plain"));
    parent.raise(UserInitiated);
    release.send(()).unwrap();
    join(plain);
    join(parent);
    order.seen()
}

#[test]
fn what_a_task_awaits_is_raised_with_it_however_far_down() {
    let mut busy = Busy::new(1);
    let order = Order::default();
    let plain = task::detach_with(busy.options(Default), order.run("plain"));
    let last = task::detach_with(busy.options(Background), order.run("last"));
    let low = || SpawnOptions::new().priority(Background);
    let (began, begins) = mpsc::channel();
    // A handle, awaited in a bound child, in a task, in a group, behind a handle.
    let middle = task::detach_with(low(), async move {
        task::group(async move |group| {
            group.spawn(async move {
                Task::new(async move {
                    let bound = task::let_async(async move {
                        let mut last = Box::pin(last);
                        begin(last.as_mut()).await;
                        began.send(()).unwrap();
                        last.await.unwrap();
                    });
                    bound.await;
                })
                .await
                .unwrap();
            });
            group.next().await;
        })
        .await;
    });
    let (awaits, awaited) = mpsc::channel();
    let outer = task::detach_with(low(), async move {
        let mut middle = Box::pin(middle);
        let _ = poll_fn(|cx| Poll::Ready(middle.as_mut().poll(cx))).await;
        awaits.send(()).unwrap();
        middle.await.unwrap();
    });
    begins.recv().unwrap();
    awaited.recv().unwrap();
    outer.raise(UserInteractive);
    busy.let_go();
    join(plain);
    assert_eq!(order.seen(), ["last", "plain"]);
    join(outer);
}

#[test]
fn who_waits_for_a_group_raises_what_is_less_urgent_in_it() {
    for workers in WORKERS {
        let mut busy = Busy::new(workers);
        let order = Order::default();
        let plain = task::detach_with(busy.options(Default), order.run("plain"));
        let (noted, options) = (order.clone(), busy.options(Background));
        let task = Task::new(task::group(async move |group| {
            group.spawn_with(options, noted.run("child"));
            let mut next = Box::pin(group.next());
            begin(next.as_mut()).await;
            busy.let_go();
            next.await.unwrap();
            plain.await.unwrap();
        }));
        sync_wait(task.write_env(With(UserInitiated))).unwrap();
        assert_eq!(order.seen(), ["child", "plain"]);
    }
}

#[test]
fn the_end_of_a_group_waits_for_its_children_as_urgently() {
    let mut busy = Busy::new(1);
    let order = Order::default();
    let plain = task::detach_with(busy.options(Default), order.run("plain"));
    let (noted, options) = (order.clone(), busy.options(Background));
    let task = Task::new(async move {
        let mut group = Box::pin(task::group(async move |group| {
            group.spawn_with(options, noted.run("child"));
        }));
        begin(group.as_mut()).await;
        busy.let_go();
        group.await;
        plain.await.unwrap();
    });
    sync_wait(task.write_env(With(UserInitiated))).unwrap();
    assert_eq!(order.seen(), ["child", "plain"]);
}

#[test]
fn a_child_that_nobody_waits_for_yet_keeps_the_level_that_it_was_given() {
    let mut busy = Busy::new(1);
    let order = Order::default();
    let (noted, low, plain) = (order.clone(), busy.options(Background), busy.options(Default));
    let task = Task::new(task::group(async move |group| {
        group.spawn_with(low, noted.run("low"));
        group.spawn_with(plain, noted.run("plain"));
        busy.let_go();
        // Not an await of the group.
        while noted.seen().len() < 2 {
            thread::yield_now();
        }
    }));
    sync_wait(task.write_env(With(UserInteractive))).unwrap();
    assert_eq!(order.seen(), ["plain", "low"]);
}

// Suspended, and running.

#[test]
fn a_suspended_task_is_queued_at_its_new_level() {
    let mut busy = Busy::new(1);
    let order = Order::default();
    let (open, opened) = gate();
    let (noted, scheduler) = (order.clone(), busy.scheduler());
    let (began, begins) = mpsc::channel();
    // Inside is a task on the busy pool, which waits.
    let parent = task::detach_with(SpawnOptions::new().priority(Background), async move {
        let inner = Task::new(async move {
            began.send(()).unwrap();
            opened.recv().await.unwrap();
            noted.note("suspended");
            (task::base_priority(), task::priority())
        });
        starts_on(scheduler, inner).await.unwrap()
    });
    busy.let_go();
    begins.recv().unwrap();
    // Once the worker is held again, the task is suspended.
    let held = hold(busy.scheduler());
    parent.raise(UserInitiated);
    let plain = task::detach_with(busy.options(Default), order.run("plain"));
    open.send_blocking(()).unwrap();
    drop(held);
    join(plain);
    assert_eq!(order.seen(), ["suspended", "plain"]);
    assert_eq!(join(parent), (Background, UserInitiated));
}

#[test]
fn a_task_inside_of_another_is_moved_up_with_it() {
    let mut busy = Busy::new(1);
    let order = Order::default();
    let (began, begins) = mpsc::channel();
    let (scheduler, noted) = (busy.scheduler(), order.clone());
    let gates: Vec<_> = (0..3).map(|_| gate()).collect();
    let open: Vec<_> = gates.iter().map(|(open, _)| open.clone()).collect();
    let parent = task::detach_with(SpawnOptions::new().priority(Background), async move {
        // Three strands inside a detached one.
        let mut inner = gates.into_iter().map(|(_, opened)| {
            let (began, noted) = (began.clone(), noted.clone());
            let task = Task::new(async move {
                began.send(()).unwrap();
                opened.recv().await.unwrap();
                noted.note("inner");
            });
            starts_on(scheduler, task)
        });
        let (a, b, c) = (inner.next().unwrap(), inner.next().unwrap(), inner.next().unwrap());
        when_all((a, b, c)).await.unwrap();
    });
    busy.let_go();
    (0..3).for_each(|_| begins.recv().unwrap());
    let held = hold(busy.scheduler());
    let plain = task::detach_with(busy.options(Default), order.run("plain"));
    for open in open {
        open.send_blocking(()).unwrap();
    }
    // They are queued now.
    parent.raise(UserInteractive);
    drop(held);
    join(plain);
    assert_eq!(order.seen(), ["inner", "inner", "inner", "plain"]);
    join(parent);
}

#[test]
fn a_running_task_sees_at_once_that_it_was_raised_and_so_do_its_later_children() {
    let (began, begins) = mpsc::channel();
    let (raised, raises) = mpsc::channel();
    let handle = task::detach_with(SpawnOptions::new().priority(Utility), async move {
        assert_eq!(task::priority(), Utility);
        began.send(()).unwrap();
        raises.recv().unwrap();
        let bound = task::let_async(async { task::priority() }).await;
        let in_group = task::group(async |group| {
            group.spawn(async { task::priority() });
            group.next().await.unwrap()
        });
        let Ok(env) = read_env(Get::<Priority>::new()).await;
        [
            task::base_priority(),
            task::priority(),
            bound,
            in_group.await,
            env.unwrap(),
        ]
    });
    begins.recv().unwrap();
    handle.raise(UserInitiated);
    raised.send(()).unwrap();
    let high = UserInitiated;
    assert_eq!(join(handle), [Utility, high, high, high, high]);
}

#[test]
fn raising_what_has_ended_is_nothing() {
    let handle = task::detach(async { 7 });
    while !handle.is_finished() {
        thread::yield_now();
    }
    handle.raise(UserInteractive);
    assert_eq!(join(handle), 7);
}

// Handlers.

type Calls = Arc<Mutex<Vec<(Priority, Priority)>>>;

fn noting(calls: &Calls) -> impl Fn(Priority, Priority) + Send + Sync + 'static {
    let calls = calls.clone();
    move |old, new| lock(&calls).push((old, new))
}

#[test]
fn a_handler_is_called_with_the_old_and_the_new_level_while_the_operation_runs() {
    let calls = Calls::default();
    let (began, begins) = mpsc::channel();
    let (open, opened) = gate();
    let handler = noting(&calls);
    let handle = task::detach_with(SpawnOptions::new().priority(Background), async move {
        begun(&began);
        opened.recv().await.unwrap();
        let operation = async {
            begun(&began);
            opened.recv().await.unwrap();
        };
        task::with_escalation_handler(handler, operation).await;
        begun(&began);
        opened.recv().await.unwrap();
    });
    begins.recv().unwrap();
    // Before the handler is installed.
    handle.raise(Utility);
    open.send_blocking(()).unwrap();
    begins.recv().unwrap();
    for level in [Background, Utility, Default, Utility, UserInteractive, UserInteractive] {
        handle.raise(level);
    }
    let raised = [(Utility, Default), (Default, UserInteractive)];
    assert_eq!(*lock(&calls), raised);
    open.send_blocking(()).unwrap();
    begins.recv().unwrap();
    open.send_blocking(()).unwrap();
    join(handle);
    assert_eq!(*lock(&calls), raised);
}

fn begun(began: &mpsc::Sender<()>) {
    began.send(()).unwrap();
}

#[test]
fn a_handler_is_not_called_once_the_operation_has_ended_or_was_dropped() {
    let calls = Calls::default();
    let (began, begins) = mpsc::channel();
    let (open, opened) = gate();
    let handlers = [noting(&calls), noting(&calls), noting(&calls)];
    let handle = task::detach(async move {
        let [first, second, third] = handlers;
        task::with_escalation_handler(first, async {}).await;
        let mut dropped = Box::pin(task::with_escalation_handler(second, std::future::pending::<()>()));
        begin(dropped.as_mut()).await;
        drop(dropped);
        // Dropped on another thread.
        let mut sent = Box::pin(task::with_escalation_handler(third, std::future::pending::<()>()));
        begin(sent.as_mut()).await;
        thread::spawn(move || drop(sent)).join().unwrap();
        begun(&began);
        opened.recv().await.unwrap();
    });
    begins.recv().unwrap();
    handle.raise(UserInteractive);
    open.send_blocking(()).unwrap();
    join(handle);
    assert_eq!(*lock(&calls), []);
}

#[test]
fn a_handler_that_was_forgotten_goes_with_the_task() {
    let calls = Calls::default();
    let handler = noting(&calls);
    let (began, begins) = mpsc::channel();
    let (open, opened) = gate();
    let handle = task::detach(async move {
        let mut forgotten = Box::pin(task::with_escalation_handler(handler, std::future::pending::<()>()));
        begin(forgotten.as_mut()).await;
        forget(forgotten);
        begun(&began);
        opened.recv().await.unwrap();
    });
    begins.recv().unwrap();
    handle.raise(UserInitiated);
    open.send_blocking(()).unwrap();
    while !handle.is_finished() {
        thread::yield_now();
    }
    handle.raise(UserInteractive);
    assert_eq!(*lock(&calls), [(Default, UserInitiated)]);
}

#[test]
fn a_handler_that_panics_stops_nobody() {
    let calls = Calls::default();
    let inner = noting(&calls);
    let (began, begins) = mpsc::channel();
    let (open, opened) = gate();
    let handle = task::detach(async move {
        let operation = task::with_escalation_handler(inner, async {
            begun(&began);
            opened.recv().await.unwrap();
            task::priority()
        });
        task::with_escalation_handler(|_, _| quiet_panic(), operation).await
    });
    begins.recv().unwrap();
    handle.raise(UserInteractive);
    assert_eq!(*lock(&calls), [(Default, UserInteractive)]);
    open.send_blocking(()).unwrap();
    assert_eq!(join(handle), UserInteractive);
}

#[test]
fn a_handler_may_raise_others_and_the_task_itself() {
    let (began, begins) = mpsc::channel();
    let (open, opened) = gate();
    let other = Arc::new(Mutex::new(task::detach(never::<(), ()>())));
    let (seen, sees) = mpsc::channel();
    let watched = other.clone();
    let handle = task::detach(task::with_escalation_handler(
        move |_, level| {
            lock(&watched).raise(level);
            seen.send(level).unwrap();
        },
        async move {
            begun(&began);
            opened.recv().await.unwrap();
        },
    ));
    begins.recv().unwrap();
    handle.raise(UserInitiated);
    assert_eq!(sees.recv(), Ok(UserInitiated));
    open.send_blocking(()).unwrap();
    join(handle);
    lock(&other).cancel();
}

#[test]
fn without_anybody_to_raise_it_a_handler_is_not_called() {
    let calls = Calls::default();
    let handler = noting(&calls);
    let operation = task::with_escalation_handler(handler, async { 1 });
    assert_eq!(task::block_on(operation), 1);
    let operation = task::with_escalation_handler(noting(&calls), just(1));
    assert_eq!(futures_lite::future::block_on(operation), Ok(1));
    assert_eq!(*lock(&calls), []);
}

// Many, and deep.

#[test]
fn a_hundred_thousand_children_are_raised() {
    const CHILDREN: usize = 100_000;
    let mut busy = Busy::new(1);
    let (spawned, spawns) = mpsc::channel();
    let options = busy.options(Background);
    let ran = Arc::new(AtomicUsize::new(0));
    let runs = ran.clone();
    let parent = task::detach(task::discarding_group(async move |group| {
        for _ in 0..CHILDREN {
            let runs = runs.clone();
            group.spawn_with(options.clone(), async move {
                assert_eq!(task::priority(), UserInteractive);
                runs.fetch_add(1, SeqCst);
            });
        }
        spawned.send(()).unwrap();
        group.next().await;
    }));
    spawns.recv().unwrap();
    parent.raise(UserInteractive);
    busy.let_go();
    join(parent);
    assert_eq!(ran.load(SeqCst), CHILDREN);
}

#[test]
fn a_chain_of_ten_thousand_handles_is_raised_in_a_small_stack() {
    let (open, opened) = gate();
    let (began, begins) = mpsc::channel();
    let low = || SpawnOptions::new().priority(Background);
    let mut handle = task::detach_with(low(), async move {
        opened.recv().await.unwrap();
        task::priority()
    });
    for _ in 0..10_000 {
        let (inner, began) = (handle, began.clone());
        handle = task::detach_with(low(), async move {
            let mut inner = Box::pin(inner);
            begin(inner.as_mut()).await;
            began.send(()).unwrap();
            inner.await.unwrap()
        });
    }
    (0..10_000).for_each(|_| begins.recv().unwrap());
    let handle = with_stack(64 * 1024, move || {
        handle.raise(UserInteractive);
        handle
    });
    open.send_blocking(()).unwrap();
    assert_eq!(join(handle), UserInteractive);
}

#[test]
fn more_frames_than_are_watched_may_be_queued_at_a_time() {
    for workers in WORKERS {
        let pool = ThreadPool::new(workers);
        let scheduler = pool.scheduler();
        let options = SpawnOptions::new().scheduler(scheduler).priority(Background);
        let handle = task::detach_with(options, async move {
            let tasks = (0..100_u64).map(|number| {
                Task::new(async move {
                    let mut rounds = 0;
                    poll_fn(|cx| {
                        rounds += 1;
                        cx.waker().wake_by_ref();
                        if rounds > 10 { Poll::Ready(()) } else { Poll::Pending }
                    })
                    .await;
                    number
                })
            });
            let numbers = when_all_iter(tasks.map(move |task| starts_on(scheduler, task)))
                .await
                .unwrap();
            numbers.into_iter().sum::<u64>()
        });
        for level in [Utility, Default, UserInitiated, UserInteractive] {
            handle.raise(level);
            thread::yield_now();
        }
        assert_eq!(join(handle), 4950);
    }
}

#[test]
fn tasks_that_are_raised_while_they_run_run_once() {
    for workers in WORKERS {
        let pool = ThreadPool::new(workers);
        for seed in 0..20 {
            let options = SpawnOptions::new().scheduler(pool.scheduler()).priority(Background);
            let ran = Arc::new(AtomicUsize::new(0));
            let handles: Vec<_> = (0..100)
                .map(|_| {
                    let ran = ran.clone();
                    let handle = task::detach_with(
                        options.clone(),
                        task::group(async move |group| {
                            for _ in 0..3 {
                                let ran = ran.clone();
                                group.spawn(async move {
                                    let mut again = true;
                                    poll_fn(|cx| {
                                        cx.waker().wake_by_ref();
                                        if std::mem::replace(&mut again, false) {
                                            Poll::Pending
                                        } else {
                                            Poll::Ready(())
                                        }
                                    })
                                    .await;
                                    ran.fetch_add(1, SeqCst);
                                });
                            }
                        }),
                    );
                    Mutex::new(handle)
                })
                .collect();
            thread::scope(|scope| {
                for thread in 0..2 {
                    let handles = &handles;
                    scope.spawn(move || {
                        let mut random = XorShift::new(seed * 2 + thread);
                        for _ in 0..200 {
                            let level = Priority::ALL[usize::try_from(random.below(5)).unwrap()];
                            lock(&handles[usize::try_from(random.below(100)).unwrap()]).raise(level);
                        }
                    });
                }
            });
            handles
                .into_iter()
                .for_each(|handle| join(handle.into_inner().unwrap()));
            assert_eq!(ran.load(SeqCst), 300);
        }
    }
}

#[test]
fn what_is_raised_while_its_pool_ends_runs() {
    for _ in 0..50 {
        let pool = ThreadPool::new(2);
        let ran = Arc::new(AtomicUsize::new(0));
        // Some in the queues of a worker, and some in that of the pool.
        let handles: Vec<_> = pool.install(|| {
            let options = |level| SpawnOptions::new().scheduler(pool.scheduler()).priority(level);
            (0..40)
                .map(|number| {
                    let ran = ran.clone();
                    let level = if number % 2 == 0 { Default } else { Background };
                    task::detach_with(options(level), async move {
                        ran.fetch_add(1, SeqCst);
                    })
                })
                .collect()
        });
        let handles = thread::scope(|scope| {
            let raises = scope.spawn(move || {
                handles.iter().for_each(|handle| handle.raise(UserInitiated));
                handles
            });
            drop(pool);
            raises.join().unwrap()
        });
        handles.into_iter().for_each(join);
        assert_eq!(ran.load(SeqCst), 40);
    }
}
