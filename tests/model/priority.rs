//! Raising tasks: against their queueing, their dequeueing, their children, and the end of their awaits.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bowline::Priority::{Background, Default, UserInitiated, UserInteractive};
use bowline::model::{ModelTask as Job, ModelWorker as Member, PoolModel};
use bowline::prelude::*;
use bowline::task::{self, Handle, SpawnOptions};

use crate::support::{Census, Order, Threads, explore_both_ways};

/// A wrapper that is `Send`: the threads of a model share one system thread, and `loom` watches what they share.
pub(crate) struct Sendable<F>(F);

// SAFETY: see the type.
unsafe impl<F> Send for Sendable<F> {}

impl<F: Future> Future for Sendable<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is structurally pinned.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(context)
    }
}

pub(crate) type Actor = Box<dyn FnOnce()>;

pub(crate) fn actor(body: impl FnOnce() + 'static) -> Actor {
    Box::new(body)
}

pub(crate) fn play<const N: usize>(order: Order, actors: [Actor; N]) {
    Threads::default().run(order, actors);
}

/// Detaches a task onto a pool of the model.
pub(crate) fn detach(pool: PoolModel, level: Priority, future: impl Future<Output = ()> + 'static) -> Handle<()> {
    let options = SpawnOptions::new().scheduler(pool.scheduler()).priority(level);
    task::detach_with(options, Sendable(future))
}

/// Raises a task, and drops its handle.
pub(crate) fn raiser(handle: Handle<()>) -> Actor {
    actor(move || {
        handle.raise(UserInteractive);
        drop(handle);
    })
}

/// An event that happens once, and its waiter.
#[derive(Clone, std::default::Default)]
pub(crate) struct Event(Arc<loom::sync::Mutex<(bool, Option<Waker>)>>);

impl Event {
    pub(crate) async fn wait(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock().expect("nobody panicked");
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    pub(crate) fn happen(&self) {
        let waker = {
            let mut state = self.0.lock().expect("nobody panicked");
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The order of a task and a job. The job is queued after the task, at a level between the task's own and its raised one.
#[derive(Clone, std::default::Default)]
struct Race(Rc<Cell<Option<&'static str>>>);

impl Race {
    fn note(&self, who: &'static str) {
        if self.0.get().is_none() {
            self.0.set(Some(who));
        }
    }

    /// Runs both.
    fn decide(&self, pool: PoolModel, worker: &Member) -> &'static str {
        let race = self.clone();
        let rival = Job::with(1, move || race.note("rival")).at(UserInitiated);
        worker.within(|| assert!(pool.push(&rival)));
        while worker.run_next(false) {}
        assert_eq!(rival.runs(), 1);
        self.0.get().expect("both have run")
    }
}

/// A task that is raised while its worker dequeues it runs once and is freed once. Covers it running raised, and not.
#[test]
fn a_raise_meets_the_dequeue() {
    explore_both_ways(2, &["raised", "as it was"], |seen, order| {
        let (pool, census) = (PoolModel::new(1), Census::default());
        let local = census.value(1);
        let runs = Rc::new(Cell::new(0));
        let handle = detach(pool, Background, {
            let (seen, runs) = (seen.clone(), runs.clone());
            async move {
                local.touch();
                runs.set(runs.get() + 1);
                let raised = task::priority() == UserInteractive;
                seen.note(if raised { "raised" } else { "as it was" });
            }
        });
        let work = actor(move || while pool.worker(0).run_next(false) {});
        play(order, [work, raiser(handle)]);
        while pool.worker(0).run_next(false) {}
        assert_eq!((runs.get(), census.alive()), (1, 0));
        pool.free();
    });
}

/// A task in the slot of a worker, which pushed it there itself, is raised while the worker takes it.
#[test]
fn a_raise_meets_the_dequeue_of_a_slot() {
    explore_both_ways(2, &["raised", "as it was"], |seen, order| {
        let (pool, census) = (PoolModel::new(1), Census::default());
        let local = census.value(1);
        let runs = Rc::new(Cell::new(0));
        let inside = {
            let (seen, runs) = (seen.clone(), runs.clone());
            async move {
                local.touch();
                runs.set(runs.get() + 1);
                let raised = task::priority() == UserInteractive;
                seen.note(if raised { "raised" } else { "as it was" });
            }
        };
        let worker = pool.worker(0);
        let mut handle = None;
        worker.within(|| handle = Some(detach(pool, Default, inside)));
        let handle = handle.expect("it was detached");
        let work = actor(move || {
            while worker.run_next(false) {}
            drop(worker);
        });
        play(order, [work, raiser(handle)]);
        while pool.worker(0).run_next(false) {}
        assert_eq!((runs.get(), census.alive()), (1, 0));
        pool.free();
    });
}

/// A task that is raised while another thread queues it ends up at its new level, in either order: in the injector, and in the
/// slot of a worker.
#[test]
fn a_raise_meets_the_queueing() {
    for (level, on_worker) in [(Background, false), (Default, true)] {
        explore_both_ways(2, &["task"], move |seen, order| {
            let (pool, event, race) = (PoolModel::new(1), Event::default(), Race::default());
            let handle = detach(pool, level, {
                let (event, race) = (event.clone(), race.clone());
                async move {
                    event.wait().await;
                    race.note("task");
                }
            });
            let worker = pool.worker(0);
            while worker.run_next(false) {}
            let worker = Rc::new(worker);
            let wake = actor({
                let worker = worker.clone();
                move || {
                    if on_worker {
                        worker.within(|| event.happen());
                    } else {
                        event.happen();
                    }
                }
            });
            play(order, [wake, raiser(handle)]);
            seen.note(race.decide(pool, &worker));
            pool.free();
        });
    }
}

/// A child that is spawned while its parent is raised is raised too, in either order.
#[test]
fn a_raise_meets_the_spawning_of_a_child() {
    explore_both_ways(2, &["task"], |seen, order| {
        let (pool, race) = (PoolModel::new(1), Race::default());
        let handle = detach(pool, Background, {
            let race = race.clone();
            async move {
                task::group(async move |group| {
                    group.spawn(Sendable(async move { race.note("task") }));
                    group.next().await;
                })
                .await;
            }
        });
        let worker = Rc::new(pool.worker(0));
        let work = actor({
            let worker = worker.clone();
            move || assert!(worker.run_next(false))
        });
        play(order, [work, raiser(handle)]);
        seen.note(race.decide(pool, &worker));
        pool.free();
    });
}

/// A child that waits is queued by the stop of its group while its parent is raised. It ends up at the new level, in either order.
#[test]
fn a_raise_meets_the_stop_of_a_child() {
    explore_both_ways(2, &["task"], |seen, order| {
        let (pool, event, race) = (PoolModel::new(1), Event::default(), Race::default());
        let handle = detach(pool, Background, {
            let (event, race) = (event.clone(), race.clone());
            async move {
                task::group(async move |group| {
                    let noted = Sendable(Noted(race));
                    group.spawn(async move {
                        let _noted = noted;
                        never::<(), ()>().await
                    });
                    Sendable(event.wait()).await;
                    group.cancel_all();
                })
                .await;
            }
        });
        let worker = Rc::new(pool.worker(0));
        while worker.run_next(false) {}
        event.happen();
        let work = actor({
            let worker = worker.clone();
            move || assert!(worker.run_next(false))
        });
        play(order, [work, raiser(handle)]);
        seen.note(race.decide(pool, &worker));
        pool.free();
    });
}

/// A local of a task, which notes its drop.
struct Noted(Race);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.note("task");
    }
}

/// A child, the last of its group, ends while its parent is raised.
#[test]
fn a_raise_meets_the_end_of_a_group() {
    explore_both_ways(2, &["raised", "as it was"], |seen, order| {
        let (pool, census) = (PoolModel::new(1), Census::default());
        let (local, held) = (census.value(1), census.value(2));
        let handle = detach(pool, Background, {
            let seen = seen.clone();
            async move {
                task::group(async move |group| {
                    group.spawn(Sendable(async move {
                        local.touch();
                        let raised = task::priority() == UserInteractive;
                        seen.note(if raised { "raised" } else { "as it was" });
                    }));
                })
                .await;
                held.touch();
            }
        });
        assert!(pool.worker(0).run_next(false));
        let work = actor(move || while pool.worker(0).run_next(false) {});
        play(order, [work, raiser(handle)]);
        while pool.worker(0).run_next(false) {}
        assert_eq!(census.alive(), 0);
        pool.free();
    });
}

/// A child that was bound to a variable and dropped there ends while its parent is raised.
#[test]
fn a_raise_meets_the_end_of_a_bound_child() {
    explore_both_ways(2, &["raised", "as it was"], |seen, order| {
        let (pool, census) = (PoolModel::new(1), Census::default());
        let (local, held) = (census.value(1), census.value(2));
        let handle = detach(pool, Background, {
            let seen = seen.clone();
            async move {
                let child = task::let_async(Sendable(async move {
                    local.touch();
                    let raised = task::priority() == UserInteractive;
                    seen.note(if raised { "raised" } else { "as it was" });
                }));
                drop(child);
                held.touch();
            }
        });
        assert!(pool.worker(0).run_next(false));
        let work = actor(move || while pool.worker(0).run_next(false) {});
        play(order, [work, raiser(handle)]);
        while pool.worker(0).run_next(false) {}
        assert_eq!(census.alive(), 0);
        pool.free();
    });
}

/// An awaited task ends while the awaiting task is raised.
#[test]
fn a_raise_meets_the_end_of_what_is_awaited() {
    explore_both_ways(2, &["raised", "as it was"], |seen, order| {
        let (pool, census) = (PoolModel::new(1), Census::default());
        let (local, held) = (census.value(1), census.value(2));
        let awaited = detach(pool, Background, {
            let seen = seen.clone();
            async move {
                local.touch();
                let raised = task::priority() == UserInteractive;
                seen.note(if raised { "raised" } else { "as it was" });
            }
        });
        let handle = detach(pool, UserInitiated, async move {
            drop(awaited.await);
            held.touch();
        });
        assert!(pool.worker(0).run_next(false));
        let work = actor(move || while pool.worker(0).run_next(false) {});
        play(order, [work, raiser(handle)]);
        while pool.worker(0).run_next(false) {}
        assert_eq!(census.alive(), 0);
        pool.free();
    });
}

/// A handler is called or not while its operation ends, and is dropped in the end.
#[test]
fn a_raise_meets_the_end_of_a_handler() {
    explore_both_ways(2, &["called", "not called"], |seen, order| {
        let (pool, census, event) = (PoolModel::new(1), Census::default(), Event::default());
        let (local, held) = (census.value(1), census.value(2));
        let called = Rc::new(Cell::new(false));
        let handle = detach(pool, Background, {
            let (called, event) = (Sendable(called.clone()), event.clone());
            let handler = Handler(called, Sendable(local));
            async move {
                let operation = event.wait();
                task::with_escalation_handler(move |_, _| handler.call(), operation).await;
                held.touch();
            }
        });
        assert!(pool.worker(0).run_next(false));
        event.happen();
        let work = actor(move || while pool.worker(0).run_next(false) {});
        play(order, [work, raiser(handle)]);
        while pool.worker(0).run_next(false) {}
        assert_eq!(census.alive(), 0);
        seen.note(if called.get() { "called" } else { "not called" });
        pool.free();
    });
}

/// The access of a handler: it must be ordered with the handler's creation and drop.
struct Handler(Sendable<Rc<Cell<bool>>>, Sendable<crate::support::Watched>);

// SAFETY: as for `Sendable`.
unsafe impl Sync for Handler {}

impl Handler {
    fn call(&self) {
        assert_eq!(self.1.0.read(), 1);
        self.0.0.set(true);
    }
}
