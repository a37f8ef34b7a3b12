//! The children of one seat: their owner against thieves, and against threads that raise a child.

use std::sync::{Arc, Mutex};

use bowline::Priority::UserInteractive;
use bowline::model::{ChildrenModel, ModelTask as Task, PoolModel};

use crate::support::{Order, Threads, explore_both_ways};

type Actor = Box<dyn FnOnce()>;

/// A queue shared by the threads of a model, and the tasks that each thread took.
#[derive(Clone)]
struct Scene {
    children: Arc<ChildrenModel>,
    tasks: Vec<Arc<Task>>,
    taken: Arc<Mutex<Vec<(&'static str, usize)>>>,
}

impl Scene {
    fn new(biased: bool, tasks: usize) -> Self {
        Scene {
            children: Arc::new(ChildrenModel::new(biased)),
            tasks: (0..tasks).map(Task::new).collect(),
            taken: Arc::default(),
        }
    }

    fn note(&self, who: &'static str, numbers: impl IntoIterator<Item = usize>) {
        let mut taken = self.taken.lock().expect("no thread panicked");
        taken.extend(numbers.into_iter().map(|number| (who, number)));
    }

    fn push_all(&self) {
        for task in &self.tasks {
            self.children.push(task);
        }
    }

    /// Returns the owner, which takes the newest task so many times after the body.
    fn owner(&self, body: impl FnOnce(&Scene) + 'static, times: usize) -> Actor {
        let scene = self.clone();
        Box::new(move || {
            body(&scene);
            for _ in 0..times {
                scene.note("owner", scene.children.pop_newest());
            }
        })
    }

    fn thief(&self) -> Actor {
        let scene = self.clone();
        Box::new(move || scene.note("thief", scene.children.steal()))
    }

    /// Returns a thread that removes the task with this number.
    fn raiser(&self, number: usize) -> Actor {
        let scene = self.clone();
        Box::new(move || {
            if scene.children.remove(&scene.tasks[number]) {
                scene.note("raiser", [number]);
            }
        })
    }

    /// Runs the threads. Asserts that each task was taken once. Returns the thread that took the first, or "none".
    fn play<const N: usize>(&self, order: Order, actors: [Actor; N]) -> &'static str {
        Threads::default().run(order, actors);
        let left = self.children.len();
        let rest: Vec<_> = std::iter::from_fn(|| self.children.pop_oldest()).collect();
        assert_eq!(rest.len(), left);
        assert!(rest.is_sorted(), "the oldest is first");
        self.note("none", rest);
        assert!(self.tasks.iter().all(|task| task.runs() == 1));
        let taken = self.taken.lock().expect("no thread panicked");
        let of_owner: Vec<_> = taken.iter().filter(|it| it.0 == "owner").map(|it| it.1).collect();
        assert!(of_owner.is_sorted_by(|one, other| one > other), "the newest is first");
        taken.iter().find(|it| it.1 == 0).expect("it was taken").0
    }
}

/// Covers the last child going to the owner and to a thief, with the bias ended before, and during, the owner's access.
#[test]
fn the_last_child_goes_to_one_of_two() {
    for biased in [true, false] {
        explore_both_ways(4, &["owner", "thief"], move |seen, order| {
            let scene = Scene::new(biased, 1);
            let owner = scene.owner(Scene::push_all, 1);
            seen.note(match scene.play(order, [owner, scene.thief()]) {
                "none" => panic!("the owner looked last"),
                who => who,
            });
        });
    }
}

/// Covers a parent that is queued beneath its one child, while a thief takes the oldest, or the child is raised.
#[test]
fn a_parent_goes_beneath_its_child() {
    for biased in [true, false] {
        for thief in [true, false] {
            let others = if thief { ["owner", "thief"] } else { ["owner", "raiser"] };
            explore_both_ways(3, &others, move |seen, order| {
                let scene = Scene::new(biased, 2);
                let push = |scene: &Scene| {
                    // Task 1 is the child, and the thief may take either; only the child is raised.
                    scene.children.push(&scene.tasks[1]);
                    scene.children.push_beneath(&scene.tasks[0], 1);
                };
                let owner = scene.owner(push, 2);
                let other = if thief { scene.thief() } else { scene.raiser(1) };
                scene.play(order, [owner, other]);
                let taken = scene.taken.lock().expect("no thread panicked");
                let of = |number| taken.iter().find(|it| it.1 == number).expect("it was taken").0;
                seen.note(if thief { of(0) } else { of(1) });
            });
        }
    }
}

/// Covers more children than the array has room for, taken by the owner and by a thief.
#[test]
fn more_children_than_the_array_has_room_for() {
    for biased in [true, false] {
        explore_both_ways(2, &["owner", "thief"], move |seen, order| {
            let scene = Scene::new(biased, 4);
            let owner = scene.owner(Scene::push_all, 4);
            seen.note(scene.play(order, [owner, scene.thief()]));
        });
    }
}

/// A thread pushes a task onto the queue of another, whose owner and a thief take tasks meanwhile. It never does so onto an
/// empty queue: once the owner has found its queue empty, the queue stays empty.
#[test]
fn a_push_from_outside_meets_the_last_child() {
    for (biased, thief) in [(false, true), (false, false), (true, true), (true, false)] {
        // Only a thief ends the bias, and it leaves a child if there are two.
        let outcomes: &[_] = if biased && !thief {
            &["refused"]
        } else {
            &["queued", "refused"]
        };
        explore_both_ways(2, outcomes, move |seen, order| {
            let scene = Scene::new(biased, if biased { 3 } else { 2 });
            let (last, before) = scene.tasks.split_last().expect("there are two or three");
            let last = last.clone();
            for task in before {
                scene.children.push(task);
            }
            let owner: Actor = Box::new({
                let scene = scene.clone();
                move || {
                    while let Some(number) = scene.children.pop_newest() {
                        scene.note("owner", [number]);
                    }
                    assert_eq!(scene.children.len(), 0);
                }
            });
            let outside: Actor = Box::new({
                let (scene, seen) = (scene.clone(), seen.clone());
                move || {
                    let refused = scene.children.push_from_outside(&last);
                    seen.note(if refused.is_some() { "refused" } else { "queued" });
                }
            });
            let other: Actor = if thief { scene.thief() } else { Box::new(|| ()) };
            Threads::default().run(order, [owner, outside, other]);
            assert_eq!(scene.children.len(), 0);
            assert!(scene.tasks.iter().all(|task| task.runs() == 1));
        });
    }
}

/// A task is resumed by a stolen child, on a worker other than its own. It goes to the rest of its children, if there are any.
#[test]
fn a_parent_returns_to_the_seat_of_its_children() {
    explore_both_ways(3, &["returned", "stayed"], |seen, order| {
        let pool = PoolModel::with_membarrier(2, false);
        let (child, parent) = (Task::new(1).child(), Task::new(2).parent_on(0));
        let (home, away) = (pool.worker(0), pool.worker(1));
        home.within(|| assert!(pool.push(&child)));
        let runs: Actor = Box::new(move || home.within(|| while home.run_next(false) {}));
        let resumes: Actor = Box::new({
            let (seen, parent) = (seen.clone(), parent.clone());
            move || {
                away.within(|| {
                    assert!(pool.push(&parent));
                    seen.note(if away.run_next(false) { "stayed" } else { "returned" });
                });
            }
        });
        Threads::default().run(order, [runs, resumes]);
        assert_eq!((child.runs(), parent.runs()), (1, 1));
        pool.free();
    });
}

/// Covers a child that is raised while the owner and a thief take children, from the array and from the list.
#[test]
fn a_child_is_raised_while_others_take() {
    for (biased, tasks) in [(true, 1), (true, 3), (false, 1), (false, 3)] {
        explore_both_ways(2, &["owner", "thief", "raiser"], move |seen, order| {
            let scene = Scene::new(biased, tasks);
            scene.push_all();
            let owner = scene.owner(|_| (), tasks);
            seen.note(scene.play(order, [owner, scene.thief(), scene.raiser(0)]));
        });
    }
}

/// Covers a child that is raised while the owner moves it between the array and the list.
#[test]
fn a_child_is_raised_while_it_moves() {
    for biased in [true, false] {
        explore_both_ways(3, &["owner", "raiser"], move |seen, order| {
            let scene = Scene::new(biased, 3);
            let owner = scene.owner(Scene::push_all, 3);
            // The task may not be queued yet.
            seen.note(scene.play(order, [owner, scene.raiser(0)]));
        });
    }
}

/// The occupant pushes two children and is then busy: a worker that lies down sees them, or is woken.
#[test]
fn a_push_of_children_meets_a_worker_that_lies_down() {
    for membarrier in [true, false] {
        explore_both_ways(2, &["awake", "asleep"], move |seen, order| {
            let pool = PoolModel::with_membarrier(2, membarrier);
            let ran = Arc::new((loom::sync::Mutex::new(false), loom::sync::Condvar::new()));
            let one = Task::with(1, {
                let ran = ran.clone();
                move || {
                    *ran.0.lock().expect("no thread panicked") = true;
                    ran.1.notify_all();
                }
            });
            let (one, two) = (one.child(), Task::new(2).child());
            let push: Actor = Box::new({
                let (seen, one, two) = (seen.clone(), one.clone(), two.clone());
                move || {
                    let worker = pool.worker(0);
                    worker.within(|| {
                        assert!(pool.push(&one));
                        seen.note(if pool.asleep() == 0 { "awake" } else { "asleep" });
                        assert!(pool.push(&two));
                        let mut ended = ran.0.lock().expect("no thread panicked");
                        while !*ended {
                            ended = ran.1.wait(ended).expect("no thread panicked");
                        }
                    });
                    pool.close();
                    worker.run();
                }
            });
            Threads::default().run(order, [Box::new(move || pool.worker(1).run()), push]);
            assert_eq!((one.runs(), two.runs()), (1, 1));
            assert!(!one.waits() && !two.waits());
            pool.free();
        });
    }
}

/// The occupant pushes two children while a thief naps: the thief sees them after its nap, or is woken.
#[test]
fn a_push_of_children_meets_a_nap() {
    for membarrier in [true, false] {
        explore_both_ways(3, &["seen", "woken"], move |seen, order| {
            let pool = PoolModel::with_membarrier(2, membarrier);
            let tasks = [Task::new(1).child(), Task::new(2).child()];
            let worker = pool.worker(0);
            let push: Actor = Box::new({
                let tasks = tasks.clone();
                move || worker.within(|| assert!(tasks.iter().all(|task| pool.push(task))))
            });
            let sees = Arc::new(Mutex::new(false));
            let nap: Actor = Box::new({
                let sees = sees.clone();
                move || *sees.lock().expect("no thread panicked") = pool.nap(1)
            });
            Threads::default().run(order, [nap, push]);
            let (sees, woken) = (*sees.lock().expect("no thread panicked"), pool.asleep() == 0);
            assert!(sees || woken, "the children are missed");
            seen.note(if sees { "seen" } else { "woken" });
        });
    }
}

/// A thread without a seat takes that of a thief that naps, and then two children are queued elsewhere. The thief looks at them for the
/// worker that sleeps.
#[test]
fn a_push_of_children_meets_a_nap_whose_seat_is_taken() {
    for membarrier in [true, false] {
        explore_both_ways(2, &["kept", "taken"], move |seen, order| {
            let pool = PoolModel::with_membarrier(3, membarrier);
            pool.lie_down(2);
            let tasks = [Task::new(1).child(), Task::new(2).child()];
            let (worker, spare) = (pool.worker(0), pool.spare());
            let push: Actor = Box::new({
                let tasks = tasks.clone();
                move || {
                    spare.within(|| assert!(spare.finds_seat()));
                    worker.within(|| assert!(tasks.iter().all(|task| pool.push(task))));
                }
            });
            let kept = Arc::new(Mutex::new(false));
            let nap: Actor = Box::new({
                let kept = kept.clone();
                move || *kept.lock().expect("no thread panicked") = pool.nap_on_seat(1)
            });
            Threads::default().run(order, [nap, push]);
            let kept = *kept.lock().expect("no thread panicked");
            assert!(kept || pool.asleep() == 0, "the children are missed");
            seen.note(if kept { "kept" } else { "taken" });
        });
    }
}

/// Returns a thread that raises the task.
fn raise(pool: PoolModel, task: &Arc<Task>) -> Actor {
    let task = task.clone();
    Box::new(move || pool.raise(&task, UserInteractive))
}

/// Runs what is left in a pool whose threads have ended. Asserts that each task ran once. Returns whether the raised task was left in
/// the injector.
fn finish(pool: PoolModel, raised: &Arc<Task>, others: &[&Arc<Task>]) -> bool {
    let left = pool.pop(UserInteractive).is_some();
    assert_eq!(raised.runs(), 1, "the raised task was lost");
    let rest = pool.worker(0);
    while rest.run_next(false) {}
    assert!(others.iter().all(|task| task.runs() == 1));
    assert!(!pool.has_work());
    pool.free();
    left
}

/// A child is raised by another thread while its worker takes it: it runs once, from its queue or from the injector.
#[test]
fn a_raise_meets_the_run_of_a_child() {
    for membarrier in [true, false] {
        explore_both_ways(3, &["child", "injector"], move |seen, order| {
            let pool = PoolModel::with_membarrier(1, membarrier);
            let task = Task::new(1).child();
            let worker = pool.worker(0);
            worker.within(|| assert!(pool.push(&task)));
            let run: Actor = Box::new(move || {
                worker.within(|| {
                    worker.run_next(false);
                });
            });
            Threads::default().run(order, [run, raise(pool, &task)]);
            let left = finish(pool, &task, &[]);
            seen.note(if left { "injector" } else { "child" });
        });
    }
}

/// A parent that is queued beneath its child is raised while their worker takes both: it precedes the child, or is found beneath it
/// or in the injector.
#[test]
fn a_raise_meets_the_run_of_a_parent() {
    for membarrier in [true, false] {
        explore_both_ways(3, &["before", "after", "injector"], move |seen, order| {
            let pool = PoolModel::with_membarrier(1, membarrier);
            let child = Task::new(1).child();
            let was_first = Arc::new(Mutex::new(false));
            let parent = Task::with(2, {
                let (was_first, child) = (was_first.clone(), child.clone());
                move || *was_first.lock().expect("no thread panicked") = child.runs() == 0
            });
            let parent = parent.parent_on(0).parent_of(2);
            let worker = pool.worker(0);
            worker.within(|| assert!(pool.push(&child) && pool.push(&parent)));
            let run: Actor = Box::new(move || {
                worker.within(|| {
                    worker.run_next(false);
                    worker.run_next(false);
                });
            });
            Threads::default().run(order, [run, raise(pool, &parent)]);
            let left = finish(pool, &parent, &[&child]);
            seen.note(match (left, *was_first.lock().expect("no thread panicked")) {
                (true, _) => "injector",
                (false, true) => "before",
                (false, false) => "after",
            });
        });
    }
}

/// A parent in the slot is raised while another job displaces it: it moves among the children.
#[test]
fn a_raise_meets_the_displacement_of_a_parent() {
    for membarrier in [true, false] {
        explore_both_ways(4, &["taken", "injector"], move |seen, order| {
            let pool = PoolModel::with_membarrier(1, membarrier);
            let (parent, other) = (Task::new(1).parent_on(0), Task::new(2));
            let worker = pool.worker(0);
            worker.within(|| assert!(pool.push(&parent)));
            let displace: Actor = Box::new({
                let other = other.clone();
                move || {
                    worker.within(|| {
                        assert!(pool.push(&other));
                        assert!(worker.run_next(false));
                    });
                }
            });
            Threads::default().run(order, [displace, raise(pool, &parent)]);
            let left = finish(pool, &parent, &[&other]);
            seen.note(if left { "injector" } else { "taken" });
        });
    }
}

/// A parent among the older children is raised while a thief takes it and queues it on its own seat.
#[test]
fn a_raise_meets_the_theft_of_a_parent() {
    for membarrier in [true, false] {
        explore_both_ways(3, &["before", "after", "injector"], move |seen, order| {
            let pool = PoolModel::with_membarrier(2, membarrier);
            let (child, newer) = (Task::new(1).child(), Task::new(2).child());
            let was_first = Arc::new(Mutex::new(false));
            let parent = Task::with(3, {
                let (was_first, child) = (was_first.clone(), child.clone());
                move || *was_first.lock().expect("no thread panicked") = child.runs() == 0
            });
            let parent = parent.parent_on(0).parent_of(2);
            let (home, away) = (pool.worker(0), pool.worker(1));
            home.within(|| {
                assert!(pool.push(&child) && pool.push(&parent));
                // There is room for two, so the parent moves to the list.
                assert!(pool.push(&newer) && home.run_next(false));
            });
            assert_eq!(newer.runs(), 1);
            let steal: Actor = Box::new(move || {
                away.within(|| {
                    assert!(away.search());
                    away.run_next(false);
                });
            });
            Threads::default().run(order, [steal, raise(pool, &parent)]);
            let left = finish(pool, &parent, &[&child]);
            seen.note(match (left, *was_first.lock().expect("no thread panicked")) {
                (true, _) => "injector",
                (false, true) => "before",
                (false, false) => "after",
            });
        });
    }
}

/// A parent that is resumed elsewhere is raised: on its way to the seat of its children, while it is queued there, and while it is
/// taken. A thief has ended the bias of their queue before.
#[test]
fn a_raise_meets_the_return_of_a_parent() {
    for membarrier in [true, false] {
        explore_both_ways(2, &["home", "away", "injector"], move |seen, order| {
            let pool = PoolModel::with_membarrier(2, membarrier);
            let children = [Task::new(1).child(), Task::new(2).child()];
            let by = Arc::new(Mutex::new(None));
            let parent = Task::with(3, {
                let by = by.clone();
                move || *by.lock().expect("no thread panicked") = Some(loom::thread::current().id())
            });
            let parent = parent.parent_on(0).coming();
            let (home, away) = (pool.worker(0), pool.worker(1));
            home.within(|| assert!(children.iter().all(|child| pool.push(child))));
            away.within(|| assert!(away.search()));
            assert_eq!(children[0].runs(), 1);
            let at_home = Arc::new(Mutex::new(None));
            let runs: Actor = Box::new({
                let at_home = at_home.clone();
                move || {
                    *at_home.lock().expect("no thread panicked") = Some(loom::thread::current().id());
                    home.within(|| while home.run_next(false) {});
                }
            });
            let resumes: Actor = Box::new({
                let parent = parent.clone();
                move || {
                    away.within(|| {
                        assert!(pool.push(&parent));
                        away.run_next(false);
                    });
                }
            });
            Threads::default().run(order, [runs, resumes, raise(pool, &parent)]);
            let left = finish(pool, &parent, &[&children[0], &children[1]]);
            let (by, at_home) = (
                *by.lock().expect("no thread panicked"),
                *at_home.lock().expect("no thread panicked"),
            );
            seen.note(match left {
                true => "injector",
                false if by == at_home => "home",
                false => "away",
            });
        });
    }
}
