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
    for thief in [true, false] {
        explore_both_ways(2, &["queued", "refused"], move |seen, order| {
            let scene = Scene::new(false, 2);
            scene.children.push(&scene.tasks[0]);
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
                    let refused = scene.children.push_from_outside(&scene.tasks[1]);
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
    for tasks in [1, 3] {
        explore_both_ways(2, &["owner", "thief", "raiser"], move |seen, order| {
            let scene = Scene::new(true, tasks);
            scene.push_all();
            let owner = scene.owner(|_| (), tasks);
            seen.note(scene.play(order, [owner, scene.thief(), scene.raiser(0)]));
        });
    }
}

/// Covers a child that is raised while the owner moves it between the array and the list.
#[test]
fn a_child_is_raised_while_it_moves() {
    explore_both_ways(3, &["owner", "raiser"], |seen, order| {
        let scene = Scene::new(true, 3);
        let owner = scene.owner(Scene::push_all, 3);
        // The task may not be queued yet.
        seen.note(scene.play(order, [owner, scene.raiser(0)]));
    });
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

/// A child is raised by another thread while its worker takes it: it runs once, from its queue or from the injector.
#[test]
fn a_raise_meets_the_run_of_a_child() {
    explore_both_ways(3, &["child", "injector"], |seen, order| {
        let pool = PoolModel::new(1);
        let task = Task::new(1).child();
        let worker = pool.worker(0);
        worker.within(|| assert!(pool.push(&task)));
        let run: Actor = Box::new({
            let (seen, task) = (seen.clone(), task.clone());
            move || {
                worker.within(|| {
                    worker.run_next(false);
                });
                seen.note(if task.runs() == 1 { "child" } else { "injector" });
            }
        });
        let raise: Actor = Box::new({
            let task = task.clone();
            move || pool.raise(&task, UserInteractive)
        });
        Threads::default().run(order, [run, raise]);
        assert_eq!(task.runs() + usize::from(pool.pop(UserInteractive).is_some()), 1);
        assert_eq!(task.runs(), 1);
        pool.free();
    });
}
