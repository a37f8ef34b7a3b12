//! A pool: raising queued entries, sleeping and waking, and the end.
//!
//! Its parts have models of their own in `ring.rs` and `injector.rs`; threads that block are in `spare.rs`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use bowline::Priority::{Background, UserInteractive};
use bowline::model::{ModelTask as Task, ModelWorker as Member, PoolModel};
use bowline::prelude::*;
use bowline::scheduler::ThreadPool;

use crate::support::{Order, Threads, World, costly, explore, explore_both_ways};

type Actor = Box<dyn FnOnce()>;

fn actor(body: impl FnOnce() + 'static) -> Actor {
    Box::new(body)
}

fn play<const N: usize>(order: Order, actors: [Actor; N]) {
    Threads::default().run(order, actors);
}

/// A signal that a thread waits for without helping others.
#[derive(Clone, Default)]
struct Signal(Arc<(loom::sync::Mutex<bool>, loom::sync::Condvar)>);

impl Signal {
    fn give(&self) {
        *self.0.0.lock().expect("nobody panicked") = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let mut given = self.0.0.lock().expect("nobody panicked");
        while !*given {
            given = self.0.1.wait(given).expect("nobody panicked");
        }
    }

    /// Returns a task that gives the signal.
    fn task(&self, number: usize) -> Arc<Task> {
        let signal = self.clone();
        Task::with(number, move || signal.give())
    }
}

/// Creates a pool whose first worker has pushed these tasks. None has run, and no thread drives it yet.
fn pushed<const N: usize>(workers: usize, tasks: &[Arc<Task>; N]) -> (PoolModel, Member) {
    let pool = PoolModel::new(workers);
    let worker = pool.worker(0);
    worker.within(|| assert!(tasks.iter().all(|task| pool.push(task))));
    (pool, worker)
}

/// Returns a thread that raises the task.
fn raiser(pool: PoolModel, task: &Arc<Task>) -> Actor {
    let task = task.clone();
    actor(move || pool.raise(&task, UserInteractive))
}

/// Runs a pool of two: a worker that pushes these tasks and then runs them, a thief, and a thread that raises the first task.
/// Returns the thread that ran the first, or "left" if it is still queued.
fn three_meet<const N: usize>(order: Order, numbers: [usize; N], newest: bool) -> &'static str {
    let pool = PoolModel::new(2);
    let who = Rc::new(Cell::new("left"));
    let role = Rc::new(RefCell::new(HashMap::new()));
    let tasks = numbers.map(|number| {
        let (who, role) = (who.clone(), role.clone());
        Task::with(number, move || {
            if number == 1 {
                who.set(role.borrow()[&loom::thread::current().id()]);
            }
        })
    });
    let run = actor({
        let (role, tasks) = (role.clone(), tasks.clone());
        move || {
            role.borrow_mut().insert(loom::thread::current().id(), "owner");
            let worker = pool.worker(0);
            worker.within(|| {
                assert!(tasks.iter().all(|task| pool.push(task)));
                for _ in &tasks {
                    worker.run_next(newest);
                }
            });
        }
    });
    let steal = actor(move || {
        role.borrow_mut().insert(loom::thread::current().id(), "thief");
        pool.worker(1).search();
    });
    play(order, [run, steal, raiser(pool, &tasks[0])]);
    if let Some(left) = pool.pop(UserInteractive) {
        assert_eq!((left, who.get()), (1, "left"));
    }
    let rest = pool.worker(0);
    while rest.run_next(newest) {}
    assert!(tasks.iter().all(|task| task.runs() == 1 && !task.waits()));
    pool.free();
    who.get()
}

/// Covers an entry in a slot going to its worker, to a thief, and to the raising thread.
#[test]
fn three_meet_at_a_slot() {
    explore_both_ways(2, &["owner", "thief", "left"], |seen, order| {
        seen.note(three_meet(order, [1], false));
    });
}

/// Covers an entry in a ring going to its worker, from either end, to a thief, and to the raising thread.
#[test]
fn three_meet_at_a_ring() {
    for newest in [true, false] {
        explore_both_ways(costly(2), &["owner", "thief", "left"], move |seen, order| {
            seen.note(three_meet(order, [1, 2], newest));
        });
    }
}

/// An entry in the slot of a busy worker is run by a sleeping worker when it is raised.
#[test]
fn a_raise_wakes_a_worker() {
    explore_both_ways(2, &["raised", "stolen"], |seen, order| {
        let pool = PoolModel::new(2);
        let ran = Signal::default();
        let task = ran.task(1);
        let worker = pool.worker(0);
        worker.within(|| assert!(pool.push(&task)));
        let raise = actor({
            let (seen, task) = (seen.clone(), task.clone());
            move || {
                let stolen = task.runs() == 1;
                pool.raise(&task, UserInteractive);
                seen.note(if stolen { "stolen" } else { "raised" });
            }
        });
        let busy = actor(move || {
            worker.within(|| ran.wait());
            pool.close();
            worker.run();
        });
        play(order, [raise, actor(move || pool.worker(1).run()), busy]);
        assert_eq!(task.runs(), 1);
        pool.free();
    });
}

/// An entry that is raised while it moves from the slot to the ring is found in either.
#[test]
fn an_entry_is_raised_while_it_is_displaced() {
    explore_both_ways(4, &["raised"], |seen, order| {
        let tasks = [Task::new(1)];
        let (pool, worker) = pushed(1, &tasks);
        let two = Task::new(2);
        let displace = actor({
            let two = two.clone();
            move || {
                worker.within(|| {
                    assert!(pool.push(&two));
                    assert!(worker.run_next(false));
                });
            }
        });
        play(order, [displace, raiser(pool, &tasks[0])]);
        // The worker has run one of them; a raised one goes first.
        match (tasks[0].runs(), two.runs()) {
            (0, 1) => assert_eq!(pool.pop(UserInteractive), Some(1)),
            (1, 0) => assert_eq!(pool.pop(UserInteractive), None),
            other => panic!("{other:?}"),
        }
        seen.note("raised");
        let rest = pool.worker(0);
        while rest.run_next(false) {}
        assert_eq!((tasks[0].runs(), two.runs()), (1, 1));
        assert!(!pool.has_work());
        pool.free();
    });
}

/// The ring is full, so an entry moves from the slot to the injector, at the level from which it is raised.
#[test]
fn an_entry_is_raised_while_it_overflows() {
    explore_both_ways(4, &["raised"], |seen, order| {
        let tasks = [1, 2, 3].map(Task::new);
        let (pool, worker) = pushed(1, &tasks);
        let last = Task::new(4);
        let displace = actor({
            let last = last.clone();
            move || worker.within(|| assert!(pool.push(&last)))
        });
        play(order, [displace, raiser(pool, &tasks[2])]);
        assert_eq!(pool.pop(UserInteractive), Some(3));
        let rest = pool.worker(0);
        while rest.run_next(false) {}
        assert!(tasks.iter().chain([&last]).all(|task| task.runs() == 1));
        seen.note("raised");
        pool.free();
    });
}

/// Covers a push from outside finding a worker awake, and asleep: the job runs either way.
#[test]
fn a_push_from_outside_meets_a_worker_that_lies_down() {
    explore_both_ways(3, &["awake", "asleep"], |seen, order| {
        let pool = PoolModel::new(1);
        let ran = Signal::default();
        let task = ran.task(1);
        let push = actor({
            let (seen, task) = (seen.clone(), task.clone());
            move || {
                seen.note(if pool.asleep() == 0 { "awake" } else { "asleep" });
                assert!(pool.push(&task));
                ran.wait();
                pool.close();
            }
        });
        play(order, [actor(move || pool.worker(0).run()), push]);
        assert_eq!(task.runs(), 1);
        pool.free();
    });
}

/// A worker that pushes into its ring and is then busy wakes another one.
#[test]
fn a_push_into_the_ring_meets_a_worker_that_lies_down() {
    explore_both_ways(2, &["awake", "asleep"], |seen, order| {
        let pool = PoolModel::new(2);
        let ran = Signal::default();
        let (one, two) = (ran.task(1), Task::new(2));
        let push = actor({
            let (seen, one, two) = (seen.clone(), one.clone(), two.clone());
            move || {
                let worker = pool.worker(0);
                worker.within(|| {
                    assert!(pool.push(&one));
                    seen.note(if pool.asleep() == 0 { "awake" } else { "asleep" });
                    assert!(pool.push(&two));
                    ran.wait();
                });
                pool.close();
                worker.run();
            }
        });
        play(order, [actor(move || pool.worker(1).run()), push]);
        assert_eq!((one.runs(), two.runs()), (1, 1));
        assert!(!one.waits() && !two.waits());
        pool.free();
    });
}

/// A worker that was woken for one of two jobs, and is busy with it, wakes another one for the second.
#[test]
fn a_searcher_that_has_found_something_wakes_the_next() {
    explore(2, &["both"], |seen| {
        let pool = PoolModel::new(2);
        let (first, second) = (Signal::default(), Signal::default());
        let one = Task::with(1, {
            let (first, second) = (first.clone(), second.clone());
            move || {
                second.wait();
                first.give();
            }
        });
        let two = second.task(2);
        let push = actor({
            let (one, two) = (one.clone(), two.clone());
            move || {
                assert!(pool.push(&one));
                assert!(pool.push(&two));
                first.wait();
                pool.close();
            }
        });
        let worker = |index| actor(move || pool.worker(index).run());
        play(Order::AsNamed, [worker(0), worker(1), push]);
        assert_eq!((one.runs(), two.runs()), (1, 1));
        seen.note("both");
        pool.free();
    });
}

/// A searching worker finds a job outside of the injector while a second job is pushed. The pushing thread sees a searcher, and
/// leaves the waking to it.
#[test]
fn a_searcher_that_has_found_something_sees_what_came_meanwhile() {
    explore(2, &["both"], |seen| {
        let pool = PoolModel::new(3);
        let (first, second) = (Signal::default(), Signal::default());
        let one = Task::with(1, {
            let (first, second) = (first.clone(), second.clone());
            move || {
                second.wait();
                first.give();
            }
        });
        let two = second.task(2);
        let busy = pool.worker(0);
        busy.within(|| assert!(pool.push(&one)));
        let push = actor({
            let two = two.clone();
            move || {
                assert!(pool.push(&two));
                first.wait();
                pool.close();
                busy.run();
            }
        });
        let worker = |index| actor(move || pool.worker(index).run());
        play(Order::AsNamed, [push, worker(1), worker(2)]);
        assert_eq!((one.runs(), two.runs()), (1, 1));
        seen.note("both");
        pool.free();
    });
}

/// A worker that is about to park sees an entry that is being raised.
#[test]
fn a_raise_meets_a_worker_that_lies_down() {
    explore_both_ways(3, &["ran"], |seen, order| {
        let pool = PoolModel::new(1);
        let ran = Signal::default();
        let task = ran.task(1).at(Background);
        assert!(pool.push(&task));
        let end = actor(move || {
            ran.wait();
            pool.close();
        });
        play(order, [raiser(pool, &task), actor(move || pool.worker(0).run()), end]);
        assert_eq!(task.runs(), 1);
        seen.note("ran");
        pool.free();
    });
}

/// Covers the second closure of a `join` run by the caller, and by another worker. Either way the caller gets both results, and
/// is woken for them.
#[test]
fn a_join_waits_for_what_another_has_taken() {
    explore_both_ways(3, &["here", "there"], |seen, order| {
        let pool = PoolModel::new(2);
        let world = World::default();
        let join = actor({
            let (seen, world) = (seen.clone(), world.clone());
            move || {
                let here = loom::thread::current().id();
                let worker = pool.worker(0);
                worker.within(|| {
                    let (input, census) = (world.census.value(2), &world.census);
                    let (left, (right, by)) = bowline::join(
                        || world.census.value(1),
                        || (census.value(input.read()), loom::thread::current().id()),
                    );
                    assert_eq!((left.read(), right.read()), (1, 2));
                    seen.note(if by == here { "here" } else { "there" });
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

/// Covers a task of a `scope` run by the caller, and by another worker. Either way the scope waits for it.
#[test]
fn a_scope_waits_for_what_another_has_taken() {
    explore_both_ways(2, &["here", "there"], |seen, order| {
        let pool = PoolModel::new(2);
        let world = World::default();
        let scope = actor({
            let (seen, world) = (seen.clone(), world.clone());
            move || {
                let here = loom::thread::current().id();
                let worker = pool.worker(0);
                worker.within(|| {
                    let (input, mut output) = (world.census.value(2), None);
                    bowline::task::scope(|scope| {
                        let (input, output) = (&input, &mut output);
                        scope.spawn(move |_| *output = Some((input.clone(), loom::thread::current().id())));
                    });
                    let (output, by) = output.expect("it has run");
                    assert_eq!(output.read(), 2);
                    seen.note(if by == here { "here" } else { "there" });
                });
                pool.close();
                worker.run();
            }
        });
        play(order, [scope, actor(move || pool.worker(1).run())]);
        world.end();
        pool.free();
    });
}

/// A job pushed while a pool ends is accepted, and has run when the workers leave, or is refused. Covers both.
#[test]
fn a_push_meets_the_end() {
    explore_both_ways(3, &["accepted", "refused"], |seen, order| {
        let pool = PoolModel::new(1);
        let task = Task::new(1);
        let accepted = Rc::new(Cell::new(false));
        let push = actor({
            let (seen, task, accepted) = (seen.clone(), task.clone(), accepted.clone());
            move || {
                accepted.set(pool.push(&task));
                seen.note(if accepted.get() { "accepted" } else { "refused" });
            }
        });
        let (run, close) = (actor(move || pool.worker(0).run()), actor(move || pool.close()));
        play(order, [run, push, close]);
        assert_eq!(task.runs(), usize::from(accepted.get()));
        assert!(!pool.has_work());
        pool.free();
    });
}

/// Two workers end together, though each may be the last to come to rest.
#[test]
fn two_workers_end_together() {
    explore_both_ways(2, &["ended"], |seen, order| {
        let pool = PoolModel::new(2);
        let worker = |index| actor(move || pool.worker(index).run());
        play(order, [worker(0), worker(1), actor(move || pool.close())]);
        seen.note("ended");
        pool.free();
    });
}

/// A pool does not end if a resting worker has resumed work, even if another was the last to come to rest. Covers both.
#[test]
fn the_last_to_rest_meets_one_that_gets_up() {
    explore_both_ways(3, &["over", "not over"], |seen, order| {
        let pool = PoolModel::new(2);
        pool.close();
        let (over, ended) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let up = actor({
            let over = over.clone();
            move || {
                // The first of two is not the last, unless the other came to rest before.
                if !pool.lie_down(0) {
                    pool.get_up(0);
                    over.set(pool.is_over());
                }
            }
        });
        let last = actor({
            let ended = ended.clone();
            move || {
                if pool.lie_down(1) {
                    ended.set(pool.end());
                }
            }
        });
        play(order, [up, last]);
        assert_eq!(ended.get(), over.get());
        seen.note(if over.get() { "over" } else { "not over" });
        pool.free();
    });
}

/// An entry that is raised while its pool ends is moved and runs there, or is resumed by the raising thread. Covers both.
#[test]
fn a_raise_meets_the_end() {
    explore_both_ways(4, &["in the pool", "where it was raised"], |seen, order| {
        let pool = PoolModel::new(1);
        let by = Rc::new(Cell::new(None));
        let task = Task::with(1, {
            let by = by.clone();
            move || by.set(Some(loom::thread::current().id()))
        });
        let worker = pool.worker(0);
        worker.within(|| assert!(pool.push(&task)));
        pool.close();
        let raise = actor({
            let (seen, task) = (seen.clone(), task.clone());
            move || {
                pool.raise(&task, UserInteractive);
                let here = by.get() == Some(loom::thread::current().id());
                seen.note(if here { "where it was raised" } else { "in the pool" });
            }
        });
        play(order, [raise, actor(move || worker.run())]);
        assert_eq!(task.runs(), 1);
        assert!(!pool.has_work());
        pool.free();
    });
}

/// The memory of a pool is reused by a later one. A late push to the earlier pool is refused, on any thread. Covers a timely
/// push as well.
#[test]
fn a_push_to_an_earlier_pool_is_refused() {
    explore_both_ways(3, &["accepted", "refused"], |seen, order| {
        let old = PoolModel::new(1);
        let task = Task::new(1);
        old.close();
        let accepted = Rc::new(Cell::new(false));
        let push = actor({
            let (seen, task, accepted) = (seen.clone(), task.clone(), accepted.clone());
            move || {
                accepted.set(old.push(&task));
                seen.note(if accepted.get() { "accepted" } else { "refused" });
            }
        });
        let again = actor(move || {
            old.worker(0).run();
            let new = old.reopen();
            let late = Task::new(2);
            new.worker(0).within(|| assert!(!old.push(&late)));
            assert_eq!(late.runs(), 0);
        });
        play(order, [push, again]);
        assert_eq!(task.runs(), usize::from(accepted.get()));
        assert!(!old.has_work());
        old.free();
    });
}

/// A worker that ends another pool is woken when the last of that pool's workers has left, even if the memory is reused at
/// once.
#[test]
fn a_worker_waits_for_the_end_of_another_pool() {
    explore_both_ways(3, &["ended"], |seen, order| {
        let (pool, other) = (PoolModel::new(1), PoolModel::new(1));
        let end = actor(move || {
            let worker = pool.worker(0);
            worker.within(|| worker.end(other));
            pool.close();
            worker.run();
        });
        let leave = actor(move || {
            other.worker(0).run();
            assert!(other.leave());
            other.reopen();
        });
        play(order, [end, leave]);
        seen.note("ended");
        pool.free();
        other.free();
    });
}

/// Covers a whole pool being created, used from outside, and dropped. Earlier jobs have run on its thread. Jobs that another
/// thread submits meanwhile run there as well, or without it after its end.
#[test]
fn a_pool_runs_what_it_was_given_and_ends() {
    explore(2, &["in the pool", "without it"], |seen| {
        let world = World::default();
        let pool = ThreadPool::new(1);
        let scheduler = pool.scheduler();
        let (first, second) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(None)));
        let job = |by: &Rc<Cell<_>>| {
            let (by, payload) = (SameThread(by.clone()), world.census.value(1));
            move || {
                let by = by;
                assert_eq!(payload.read(), 1);
                by.0.set(Some(loom::thread::current().id()));
            }
        };
        let (one, two) = (job(&first), job(&second));
        execute(scheduler, one);
        world.threads.spawn(move || execute(scheduler, two));
        drop(pool);
        let first = first.get().expect("it has run");
        world.end();
        let second = second.get().expect("it has run");
        assert_ne!(first, loom::thread::current().id());
        seen.note(if first == second { "in the pool" } else { "without it" });
    });
}

/// A wrapper that is `Send`: the threads of a model share one system thread.
struct SameThread<T>(T);

// SAFETY: see the type.
unsafe impl<T> Send for SameThread<T> {}

/// A worker keeps a parent in its slot, or a single child, as the watching sleeper goes to work, or another thread takes its seat. The
/// pusher sees that no sleeper watches, or the other thread sees the kept job: one of them wakes the worker that still sleeps.
#[test]
fn a_kept_job_meets_the_end_of_the_watch() {
    for membarrier in [true, false] {
        for child in [true, false] {
            for taken in [true, false] {
                explore_both_ways(3, &["left to the other", "woken"], move |seen, order| {
                    let pool = PoolModel::with_watch(3, membarrier);
                    let (keeper, watcher, spare) = (pool.worker(0), pool.worker(1), pool.spare());
                    // After three in a row, the next child is not due to wake another worker.
                    let earlier = [1, 2, 3].map(|number| Task::new(number).child());
                    keeper.within(|| assert!(earlier.iter().all(|task| pool.push(task) && keeper.run_next(false))));
                    pool.lie_down(1);
                    pool.lie_down(2);
                    if taken {
                        // The watcher is the last to lie down, whose seat is taken first.
                        pool.search_in_vain(1);
                    }
                    let kept = if child {
                        Task::new(4).child()
                    } else {
                        Task::new(4).parent_on(0)
                    };
                    let keeps = actor({
                        let (seen, kept) = (seen.clone(), kept.clone());
                        move || {
                            keeper.within(|| assert!(pool.push(&kept)));
                            let woken = pool.asleep() == 0;
                            seen.note(if woken { "woken" } else { "left to the other" });
                        }
                    });
                    let ends = actor(move || match taken {
                        true => spare.within(|| assert!(spare.finds_seat())),
                        false => watcher.within(|| watcher.goes_to_work()),
                    });
                    play(order, [keeps, ends]);
                    assert_eq!(pool.asleep(), 0, "the kept job is missed");
                    let rest = pool.worker(0);
                    assert!(rest.run_next(false));
                    assert_eq!(kept.runs(), 1);
                    pool.free();
                });
            }
        }
    }
}
