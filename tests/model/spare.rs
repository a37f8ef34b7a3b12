//! Threads that block during a job: their seats, the spare threads, and the end of the pool.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bowline::model::{LatchModel, ModelTask as Task, PoolModel};
use bowline::prelude::*;

use crate::support::{Ended, Order, Threads, World, costly, explore_both_ways};

type Actor = Box<dyn FnOnce()>;

fn actor(body: impl FnOnce() + 'static) -> Actor {
    Box::new(body)
}

fn play<const N: usize>(order: Order, actors: [Actor; N]) {
    Threads::default().run(order, actors);
}

/// A latch that one thread waits for and another sets.
#[derive(Clone, Default)]
struct Wait(Rc<Cell<Option<Rc<LatchModel>>>>);

impl Wait {
    /// Creates the latch of the calling thread, and publishes it.
    fn prepare(&self) -> Rc<LatchModel> {
        let latch = Rc::new(LatchModel::new());
        self.0.set(Some(latch.clone()));
        latch
    }

    /// Returns a task that sets the latch, which exists by the time it runs.
    fn task(&self, number: usize) -> Arc<Task> {
        let wait = self.clone();
        Task::with(number, move || wait.0.take().expect("somebody waits").set())
    }
}

/// A worker waits for a sender while it holds its seat. Covers it resuming before a job comes for its pool, and losing the seat
/// to the spare thread that runs the job. Either way the job runs, and a pool that is closed meanwhile ends after both.
#[test]
fn a_job_comes_for_the_seat_of_one_that_waits() {
    explore_both_ways(costly(2), &["seated", "without a seat"], |seen, order| {
        let pool = PoolModel::new(1);
        let world = World::default();
        let task = Task::new(1);
        let spare = pool.spare();
        let wait = actor({
            let (seen, world) = (seen.clone(), world.clone());
            move || {
                let worker = pool.worker(0);
                worker.within(|| {
                    assert_eq!(sync_wait(world.remote(8)).unwrap().read(), 8);
                    seen.note(if worker.is_seated() { "seated" } else { "without a seat" });
                });
                worker.run();
            }
        });
        let push = actor({
            let task = task.clone();
            move || {
                assert!(pool.push(&task));
                pool.close();
            }
        });
        play(order, [wait, actor(move || spare.run()), push]);
        assert_eq!((task.runs(), pool.unseated()), (1, 0));
        world.end();
        pool.free();
    });
}

/// A worker waits for a job in its own queue, and its seat goes to a spare thread, which runs the job. Covers the worker taking
/// its seat back from the sleeping spare thread, and continuing without one.
#[test]
fn a_job_that_waits_for_its_own_queue() {
    explore_both_ways(3, &["seated", "without a seat"], |seen, order| {
        let pool = PoolModel::new(1);
        let spare = pool.spare();
        let wait = Wait::default();
        let task = wait.task(1);
        let job = actor({
            let (seen, task) = (seen.clone(), task.clone());
            move || {
                let worker = pool.worker(0);
                worker.within(|| {
                    let latch = wait.prepare();
                    assert!(pool.push(&task));
                    seen.note(if latch.wait() { "seated" } else { "without a seat" });
                });
                pool.close();
                worker.run();
            }
        });
        play(order, [job, actor(move || spare.run())]);
        assert_eq!((task.runs(), pool.unseated()), (1, 0));
        assert!(!pool.has_work());
        pool.free();
    });
}

/// Without a spare thread a blocked worker keeps its seat, and jobs for it run afterwards.
#[test]
fn without_a_spare_thread_it_merely_blocks() {
    explore_both_ways(3, &["before", "after"], |seen, order| {
        let pool = PoolModel::new(1);
        let world = World::default();
        let task = Task::new(1);
        let wait = actor({
            let (seen, world, task) = (seen.clone(), world.clone(), task.clone());
            move || {
                let worker = pool.worker(0);
                worker.within(|| {
                    assert_eq!(sync_wait(world.remote(8)).unwrap().read(), 8);
                    assert!(worker.is_seated());
                    assert_eq!(task.runs(), 0);
                    seen.note(if pool.has_work() { "before" } else { "after" });
                });
                worker.run();
            }
        });
        let push = actor({
            let task = task.clone();
            move || {
                assert!(pool.push(&task));
                pool.close();
            }
        });
        play(order, [wait, push]);
        assert_eq!(task.runs(), 1);
        world.end();
        pool.free();
    });
}

/// Two jobs block, and there is one spare thread, so the second is stuck on the seat. The first job, once finished, takes the
/// seat over and runs what the second waits for. Otherwise the second comes so late that the first is a spare thread by then.
#[test]
fn a_thread_whose_job_is_over_takes_a_stuck_seat() {
    explore_both_ways(2, &["ran"], |seen, order| {
        let pool = PoolModel::new(1);
        let spare = pool.spare();
        let (first, second) = (Wait::default(), Wait::default());
        let last = second.task(3);
        let two = Task::with(2, {
            let (first, second, last) = (first.clone(), second.clone(), last.clone());
            move || {
                let latch = second.prepare();
                first.0.take().expect("the first one waits").set();
                assert!(pool.push(&last));
                latch.wait();
            }
        });
        let one = actor({
            let two = two.clone();
            move || {
                let worker = pool.worker(0);
                worker.within(|| {
                    let latch = first.prepare();
                    assert!(pool.push(&two));
                    latch.wait();
                });
                pool.close();
                worker.run();
            }
        });
        play(order, [one, actor(move || spare.run())]);
        assert_eq!((two.runs(), last.runs(), pool.unseated()), (1, 1, 0));
        seen.note("ran");
        pool.free();
    });
}

/// The first closure of a `join` blocks, so the seat goes to a spare thread. Covers the second closure being taken back by its
/// number and run by the caller, and being run by the spare thread.
#[test]
fn a_join_whose_seat_was_given_away() {
    explore_both_ways(2, &["here", "there"], |seen, order| {
        let pool = PoolModel::new(1);
        let world = World::default();
        let spare = pool.spare();
        let wait = Wait::default();
        let task = wait.task(1);
        let join = actor({
            let (seen, world, task) = (seen.clone(), world.clone(), task.clone());
            move || {
                let here = loom::thread::current().id();
                let worker = pool.worker(0);
                worker.within(|| {
                    let (input, census) = (world.census.value(2), &world.census);
                    let captured = OneThread((&wait, &task));
                    let ((), (right, by)) = bowline::join(
                        move || {
                            let (wait, task) = captured.get();
                            let latch = wait.prepare();
                            assert!(pool.push(task));
                            latch.wait();
                        },
                        || (census.value(input.read()), loom::thread::current().id()),
                    );
                    assert_eq!(right.read(), 2);
                    seen.note(if by == here { "here" } else { "there" });
                });
                pool.close();
                worker.run();
            }
        });
        play(order, [join, actor(move || spare.run())]);
        assert_eq!((task.runs(), pool.unseated()), (1, 0));
        assert!(!pool.has_work());
        world.end();
        pool.free();
    });
}

/// A `join` whose second closure another worker runs helps it: it runs what that worker forks. Covers that, and the other
/// worker doing all of it.
#[test]
fn a_join_runs_a_part_of_what_another_has_taken() {
    explore_both_ways(2, &["a part", "nothing"], |seen, order| {
        let pool = PoolModel::new(2);
        let world = World::default();
        let join = actor({
            let (seen, world) = (seen.clone(), world.clone());
            move || {
                let me = || loom::thread::current().id();
                let here = me();
                let worker = pool.worker(0);
                worker.within(|| {
                    let input = world.census.value(2);
                    let (_, (by, (_, (part, part_by)))) =
                        bowline::join(|| (), || (me(), bowline::join(|| (), || (input.clone(), me()))));
                    assert_eq!(part.read(), 2);
                    if by != here {
                        seen.note(if part_by == here { "a part" } else { "nothing" });
                    }
                });
                pool.close();
                worker.run();
            }
        });
        play(order, [join, actor(move || pool.worker(1).run())]);
        world.end();
        pool.free();
    });
}

/// A thread without a seat takes that of a sleeping worker, which becomes a spare thread, or finds none. Covers both. Jobs that
/// another thread pushes meanwhile run.
#[test]
fn a_seat_is_taken_from_a_sleeper_while_a_job_comes() {
    explore_both_ways(2, &["taken", "not taken"], |seen, order| {
        let pool = PoolModel::new(1);
        let spare = pool.spare();
        let wait = Wait::default();
        let (own, other) = (wait.task(1), Task::new(2));
        let job = actor({
            let (seen, own) = (seen.clone(), own.clone());
            move || {
                let worker = pool.worker(0);
                worker.within(|| {
                    let latch = wait.prepare();
                    assert!(pool.push(&own));
                    latch.wait();
                    seen.note(if worker.finds_seat() { "taken" } else { "not taken" });
                });
                pool.close();
                worker.run();
            }
        });
        let accepted = Rc::new(Cell::new(false));
        let push = actor({
            let (other, accepted) = (other.clone(), accepted.clone());
            move || accepted.set(pool.push(&other))
        });
        play(order, [job, actor(move || spare.run()), push]);
        assert_eq!((own.runs(), pool.unseated()), (1, 0));
        assert_eq!(other.runs(), usize::from(accepted.get()));
        assert!(!pool.has_work());
        pool.free();
    });
}

/// A call of a `bulk` blocks, so the seat with the queued invitation goes to a spare thread. The invitation is withdrawn from
/// there, or the spare thread takes part. Covers both, and each index is called once.
#[test]
fn a_bulk_whose_seat_was_given_away() {
    explore_both_ways(1, &["one", "two"], |seen, order| {
        let pool = PoolModel::new(2);
        let world = World::default();
        let spare = pool.spare();
        let wait = Wait::default();
        let task = wait.task(1);
        let callers = Rc::new(RefCell::new(Vec::new()));
        let (root, report) = world.root();
        let value = world.census.value(6);
        let bulk = actor({
            let (task, callers) = (task.clone(), callers.clone());
            move || {
                let worker = pool.worker(0);
                worker.within(|| {
                    let captured = OneThread((wait, task, callers));
                    let work = just(value).bulk(2, move |index, value| {
                        let (wait, task, callers) = captured.get();
                        assert_eq!(value.read(), 6);
                        callers.borrow_mut().push(loom::thread::current().id());
                        if index == 0 {
                            let latch = wait.prepare();
                            assert!(pool.push(task));
                            latch.wait();
                        }
                    });
                    submit(work, root);
                });
                pool.close();
                worker.run();
            }
        });
        let workers = [bulk, actor(move || pool.worker(1).run()), actor(move || spare.run())];
        play(order, workers);
        assert_eq!((task.runs(), pool.unseated()), (1, 0));
        let callers = callers.take();
        assert_eq!(callers.len(), 2);
        assert_eq!(report.get(), Ended::Value(6));
        seen.note(if callers[0] == callers[1] { "one" } else { "two" });
        assert!(!pool.has_work());
        world.end();
        pool.free();
    });
}

/// A wrapper that is `Send`: the threads of a model share one system thread.
struct OneThread<T>(T);

impl<T> OneThread<T> {
    fn get(&self) -> &T {
        &self.0
    }
}

// SAFETY: see the type.
unsafe impl<T> Send for OneThread<T> {}
// SAFETY: see the type.
unsafe impl<T> Sync for OneThread<T> {}
