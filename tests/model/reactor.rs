//! A reactor: one sleeping worker waits in it, and no wake-up of that worker is missed.

use std::sync::Arc;
use std::time::Duration;

use bowline::model::{ModelTask as Task, PoolModel};
use bowline::scheduler::Reactor;
use loom::sync::{Condvar, Mutex};

use crate::support::{Order, Seen, Threads, explore_both_ways};

/// A reactor whose only event pushes a task to the pool.
struct Event {
    state: Mutex<State>,
    changed: Condvar,
    seen: Seen,
}

#[derive(Default)]
struct State {
    interrupted: bool,
    is_due: bool,
    event: Option<(PoolModel, Arc<Task>)>,
}

impl Event {
    fn new(seen: &Seen, event: Option<(PoolModel, Arc<Task>)>) -> Arc<Self> {
        Arc::new(Event {
            state: Mutex::new(State {
                event,
                ..State::default()
            }),
            changed: Condvar::new(),
            seen: seen.clone(),
        })
    }

    /// Makes the event due.
    fn occur(&self) {
        self.state.lock().unwrap().is_due = true;
        self.changed.notify_all();
    }
}

// SAFETY: the threads of a model share one system thread.
unsafe impl Send for Event {}
// SAFETY: the same.
unsafe impl Sync for Event {}

impl Reactor for Event {
    fn wait(&self, _: Option<Duration>) {
        self.seen.note("waited");
        let mut state = self.state.lock().unwrap();
        while !state.interrupted && !(state.is_due && state.event.is_some()) {
            state = self.changed.wait(state).unwrap();
        }
        state.interrupted = false;
        let event = if state.is_due { state.event.take() } else { None };
        drop(state);
        if let Some((pool, task)) = event {
            self.seen.note("event");
            assert!(pool.push(&task), "the pool is not closed yet");
        }
    }

    fn interrupt(&self) {
        self.seen.note("interrupted");
        self.state.lock().unwrap().interrupted = true;
        self.changed.notify_all();
    }
}

/// A thread pushes a task while a worker goes to sleep in the reactor, and closes the pool. The task runs, and the worker ends.
#[test]
fn a_push_interrupts_the_wait() {
    explore_both_ways(2, &["interrupted", "waited"], |seen, order: Order| {
        let pool = PoolModel::new(1);
        let task = Task::new(1);
        let reactor = Event::new(seen, None);
        let work = Box::new(move || pool.worker_with(0, reactor).run());
        let push = Box::new({
            let task = task.clone();
            move || {
                assert!(pool.push(&task));
                pool.close();
            }
        });
        Threads::default().run(order, [work as Box<dyn FnOnce()>, push]);
        assert_eq!(task.runs(), 1);
        pool.free();
    });
}

/// An event pushes a task inside of the wait, and the task closes the pool. The worker that waited runs it without another's help.
#[test]
fn an_event_makes_its_own_thread_run_a_job() {
    explore_both_ways(2, &["event", "interrupted", "waited"], |seen, order: Order| {
        let pool = PoolModel::new(1);
        let task = Task::with(1, move || pool.close());
        let reactor = Event::new(seen, Some((pool, task.clone())));
        let work = Box::new({
            let reactor = reactor.clone();
            move || pool.worker_with(0, reactor).run()
        });
        let occur = Box::new(move || reactor.occur());
        Threads::default().run(order, [work as Box<dyn FnOnce()>, occur]);
        assert_eq!(task.runs(), 1);
        pool.free();
    });
}

/// Of two workers that go to sleep one waits in the reactor. A task runs on either, and both end.
#[test]
fn one_of_two_workers_waits() {
    explore_both_ways(1, &["interrupted", "waited"], |seen, order: Order| {
        let pool = PoolModel::new(2);
        let task = Task::new(1);
        let reactor = Event::new(seen, None);
        let worker = |index| {
            let reactor = reactor.clone();
            Box::new(move || pool.worker_with(index, reactor).run()) as Box<dyn FnOnce()>
        };
        let push = Box::new({
            let task = task.clone();
            move || {
                assert!(pool.push(&task));
                pool.close();
            }
        });
        Threads::default().run(order, [worker(0), worker(1), push]);
        assert_eq!(task.runs(), 1);
        pool.free();
    });
}
