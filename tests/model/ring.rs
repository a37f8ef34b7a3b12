//! The queue of one seat: its owner against thieves, and against removals from the middle.

use std::sync::{Arc, Mutex};

use bowline::model::{As, ModelTask as Task, RingModel};

use crate::support::{Order, Seen, Threads, explore_both_ways};

/// A ring shared by the threads of a model, and the items that each thread took.
#[derive(Clone)]
struct Scene {
    ring: Arc<RingModel>,
    taken: Arc<Mutex<Vec<(&'static str, usize)>>>,
    pushed: Arc<Mutex<Vec<Arc<Task>>>>,
    /// The forks that the owner has not taken back, with their numbers.
    forks: Arc<Mutex<Vec<(usize, Arc<Task>)>>>,
}

type Actor = Box<dyn FnOnce()>;

impl Scene {
    /// Creates an empty ring. In a light one, a fork is taken back with the light barrier.
    fn new(light: bool) -> Self {
        Scene {
            ring: Arc::new(RingModel::new(light)),
            taken: Arc::default(),
            pushed: Arc::default(),
            forks: Arc::default(),
        }
    }

    fn note(&self, who: &'static str, number: Option<usize>) {
        if let Some(number) = number {
            self.taken.lock().expect("nobody panicked").push((who, number));
        }
    }

    /// Pushes an item. Returns whether there was room.
    fn push(&self, task: &Arc<Task>, how: As) -> bool {
        // Recorded first: the task may be taken before the push returns.
        self.pushed.lock().expect("nobody panicked").push(task.clone());
        let number = self.ring.push(task, how);
        match number {
            Some(number) if how == As::Fork => {
                let mut forks = self.forks.lock().expect("nobody panicked");
                forks.push((number, task.clone()));
            }
            Some(_) => {}
            None => self
                .pushed
                .lock()
                .expect("nobody panicked")
                .retain(|it| !Arc::ptr_eq(it, task)),
        }
        number.is_some()
    }

    /// Takes an item at the newer end, as the owner: the last fork that it pushed, or else the newest entry.
    fn newest(&self) -> Option<usize> {
        let fork = self.forks.lock().expect("nobody panicked").pop();
        match fork {
            Some((number, fork)) => self.ring.take_back(number, &fork),
            None => self.ring.pop_newest(),
        }
    }

    /// Returns the thread that owns the ring.
    fn owner(&self, body: impl FnOnce(&Scene) + 'static) -> Actor {
        let scene = self.clone();
        Box::new(move || body(&scene))
    }

    /// Returns a thread that takes the oldest item so many times.
    fn thief(&self, name: &'static str, times: usize) -> Actor {
        let scene = self.clone();
        Box::new(move || {
            for _ in 0..times {
                scene.note(name, scene.ring.pop_oldest());
            }
        })
    }

    /// Returns a thread that removes the first item pushed from the middle.
    fn remover(&self, task: &Arc<Task>, how: As) -> Actor {
        let (scene, task) = (self.clone(), task.clone());
        Box::new(move || {
            if scene.ring.remove(0, &task, how) {
                scene.note("remover", Some(1));
            }
        })
    }

    /// Returns the items that this thread took, in order.
    fn of(&self, who: &'static str) -> Vec<usize> {
        let taken = self.taken.lock().expect("nobody panicked");
        taken.iter().filter(|it| it.0 == who).map(|it| it.1).collect()
    }

    /// Asserts that the ring is empty, and each pushed item was taken once.
    fn play<const N: usize>(&self, order: Order, actors: [Actor; N]) {
        Threads::default().run(order, actors);
        while let Some(number) = self.ring.pop_oldest() {
            self.note("rest", Some(number));
        }
        assert!(!self.ring.has_items());
        assert!(
            self.pushed
                .lock()
                .expect("nobody panicked")
                .iter()
                .all(|it| it.runs() == 1)
        );
    }
}

/// Explores a scene with a light ring, and with one that is not. Both have each of the outcomes.
fn explore_rings(
    interruptions: usize,
    expected: &[&'static str],
    model: impl Fn(&Seen, Order, bool) + Clone + Send + Sync + 'static,
) {
    for light in [true, false] {
        let model = model.clone();
        explore_both_ways(interruptions, expected, move |seen, order| model(seen, order, light));
    }
}

/// Covers the last item going to the owner and to a thief, from either end of the owner. The ring is reusable afterwards.
#[test]
fn the_last_item_goes_to_one_of_two() {
    for how in [As::Fork, As::Entry] {
        for newest in [true, false] {
            explore_rings(4, &["owner", "thief"], move |seen, order, light| {
                let scene = Scene::new(light);
                let owner = scene.owner(move |scene| {
                    assert!(scene.push(&Task::new(1), how));
                    let item = if newest {
                        scene.newest()
                    } else {
                        scene.ring.pop_oldest()
                    };
                    scene.note("owner", item);
                    assert!(scene.push(&Task::new(2), how));
                });
                scene.play(order, [owner, scene.thief("thief", 1)]);
                seen.note(if scene.of("owner") == [1] { "owner" } else { "thief" });
            });
        }
    }
}

/// Covers every distribution of two items. A thief gets them in the order pushed, the owner in reverse.
#[test]
fn two_items_are_shared() {
    for how in [As::Fork, As::Entry] {
        explore_rings(
            4,
            &["owner both", "thief both", "one each"],
            move |seen, order, light| {
                let scene = Scene::new(light);
                let owner = scene.owner(move |scene| {
                    assert!(scene.push(&Task::new(1), how));
                    assert!(scene.push(&Task::new(2), how));
                    scene.note("owner", scene.newest());
                    scene.note("owner", scene.newest());
                });
                scene.play(order, [owner, scene.thief("thief", 2)]);
                assert!(scene.of("rest").is_empty());
                seen.note(match (&scene.of("owner")[..], &scene.of("thief")[..]) {
                    ([2, 1], []) => "owner both",
                    ([], [1, 2]) => "thief both",
                    ([2], [1]) => "one each",
                    other => panic!("{other:?}"),
                });
            },
        );
    }
}

/// Covers two thieves and the owner racing for two items.
#[test]
fn two_thieves_and_the_owner_meet() {
    explore_rings(2, &["owner", "left out"], |seen, order, light| {
        let scene = Scene::new(light);
        let owner = scene.owner(|scene| {
            assert!(scene.push(&Task::new(1), As::Fork));
            assert!(scene.push(&Task::new(2), As::Fork));
            scene.note("owner", scene.newest());
        });
        scene.play(order, [owner, scene.thief("thief", 1), scene.thief("other thief", 1)]);
        seen.note(if scene.of("owner").is_empty() {
            "left out"
        } else {
            "owner"
        });
    });
}

/// Covers the owner finding the ring full, and finding room that a thief made: the third item goes into the slot of the first.
#[test]
fn numbers_go_round() {
    for how in [As::Fork, As::Entry] {
        explore_rings(3, &["full", "room"], move |seen, order, light| {
            let scene = Scene::new(light);
            let owner = scene.owner({
                let seen = seen.clone();
                move |scene| {
                    assert!(scene.push(&Task::new(1), how));
                    assert!(scene.push(&Task::new(2), how));
                    seen.note(if scene.push(&Task::new(3), how) { "room" } else { "full" });
                    scene.note("owner", scene.newest());
                }
            });
            scene.play(order, [owner, scene.thief("thief", 2)]);
            assert!(scene.of("thief").is_sorted());
        });
    }
}

/// Covers an item being removed from the middle before the owner or a thief takes it, and after.
#[test]
fn an_item_is_removed_or_popped() {
    let outcomes = ["remover", "owner", "thief"];
    explore_rings(3, &outcomes, move |seen, order, light| {
        let scene = Scene::new(light);
        let one = Task::new(1);
        let owner = scene.owner({
            let one = one.clone();
            move |scene| {
                assert!(scene.push(&one, As::Entry));
                assert!(scene.push(&Task::new(2), As::Entry));
                scene.note("owner", scene.newest());
                scene.note("owner", scene.newest());
            }
        });
        scene.play(order, [owner, scene.thief("thief", 1), scene.remover(&one, As::Entry)]);
        assert!(scene.of("rest").is_empty());
        for who in outcomes {
            if scene.of(who).contains(&1) {
                seen.note(who);
            }
        }
    });
}

/// A slow thief has claimed the number of an item that is then removed. Whatever the owner does meanwhile, the thief does not
/// touch the next item in the same slot. Covers the thief coming before the removal, and failing.
#[test]
fn a_slow_thief_does_not_take_what_came_later() {
    explore_rings(3, &["the removed one", "another", "none"], |seen, order, light| {
        let scene = Scene::new(light);
        let one = Task::new(1);
        let owner = scene.owner({
            let one = one.clone();
            move |scene| {
                assert!(scene.push(&one, As::Entry));
                assert!(scene.push(&Task::new(2), As::Fork));
                scene.push(&Task::new(3), As::Fork);
                scene.note("owner", scene.newest());
            }
        });
        scene.play(order, [owner, scene.thief("thief", 1), scene.remover(&one, As::Entry)]);
        seen.note(match scene.of("thief")[..] {
            [] => "none",
            [1] => "the removed one",
            _ => "another",
        });
    });
}

/// A fork whose pusher has lost the seat is taken back by its number, from the ring of another owner. Covers that, and the new
/// owner or a thief taking it. The owner's own fork, pushed later, is not confused with it.
#[test]
fn a_fork_is_taken_back_by_one_that_is_not_the_owner_any_more() {
    explore_rings(3, &["remover", "owner", "thief"], |seen, order, light| {
        let scene = Scene::new(light);
        let one = Task::new(1);
        assert!(scene.ring.push(&one, As::Fork) == Some(0));
        scene.pushed.lock().expect("nobody panicked").push(one.clone());
        let owner = scene.owner(|scene| {
            assert!(scene.push(&Task::new(2), As::Fork));
            let own = scene.newest();
            scene.note("owner", own);
            if own == Some(2) {
                scene.note("owner", scene.ring.pop_oldest());
            }
        });
        scene.play(order, [owner, scene.thief("thief", 1), scene.remover(&one, As::Fork)]);
        assert!(scene.of("rest").is_empty());
        for who in ["remover", "owner", "thief"] {
            if scene.of(who).contains(&1) {
                seen.note(who);
            }
        }
    });
}

/// A thread that waits for a fork takes only forks pushed after that one was taken. Covers it taking one that the owner wants
/// back, and leaving it.
#[test]
fn a_part_of_a_fork_is_taken_or_taken_back() {
    explore_rings(4, &["taken", "taken back"], |seen, order, light| {
        let scene = Scene::new(light);
        assert!(scene.push(&Task::new(1), As::Fork));
        let owner = scene.owner(|scene| {
            assert!(scene.push(&Task::new(2), As::Fork));
            scene.note("owner", scene.newest());
        });
        let waiting = Box::new({
            let scene = scene.clone();
            move || {
                assert_eq!(scene.ring.pop_fork_since(1), None, "the older one is before it");
                scene.note("thief", scene.ring.pop_oldest());
                scene.note("waiting", scene.ring.pop_fork_since(1));
            }
        });
        scene.play(order, [owner, waiting]);
        seen.note(match (&scene.of("waiting")[..], &scene.of("owner")[..]) {
            ([2], []) => "taken",
            ([], [2]) if scene.of("thief") == [1] => "taken back",
            other => panic!("{other:?}"),
        });
    });
}

/// An entry among newer forks is taken by the owner, by a thief, or by a raise. Covers all three.
#[test]
fn an_entry_is_taken_from_beneath_a_fork() {
    explore_rings(3, &["remover", "owner", "thief"], |seen, order, light| {
        let scene = Scene::new(light);
        let one = Task::new(1);
        let owner = scene.owner({
            let one = one.clone();
            move |scene| {
                assert!(scene.push(&one, As::Entry));
                assert!(scene.push(&Task::new(2), As::Fork));
                scene.note("owner", scene.ring.take_newest_entry());
                scene.note("owner", scene.newest());
            }
        });
        scene.play(order, [owner, scene.thief("thief", 1), scene.remover(&one, As::Entry)]);
        assert!(scene.of("rest").is_empty());
        for who in ["remover", "owner", "thief"] {
            if scene.of(who).contains(&1) {
                seen.note(who);
            }
        }
    });
}
