//! The queue of one worker: its owner against thieves, and against who takes out of the middle.

use std::sync::{Arc, Mutex};

use bowline::model::{As, RingModel, Task};

use crate::support::{Threads, explore};

/// A ring that is shared by the threads of a model, and what each of them got.
#[derive(Clone)]
struct Scene {
    ring: Arc<RingModel>,
    threads: Threads,
    taken: Arc<Mutex<Vec<(&'static str, usize)>>>,
}

impl Scene {
    fn new() -> Self {
        Scene {
            ring: Arc::new(RingModel::new()),
            threads: Threads::default(),
            taken: Arc::default(),
        }
    }

    fn note(&self, who: &'static str, number: Option<usize>) {
        if let Some(number) = number {
            self.taken.lock().expect("nobody panicked").push((who, number));
        }
    }

    /// A thread that takes the oldest so many times.
    fn thief(&self, name: &'static str, times: usize) {
        let scene = self.clone();
        self.threads.spawn(move || {
            for _ in 0..times {
                scene.note(name, scene.ring.pop_oldest());
            }
        });
    }

    /// Who takes `task` out of the middle.
    fn remover(&self, number: usize, task: &Arc<Task>) {
        let (scene, task) = (self.clone(), task.clone());
        self.threads.spawn(move || {
            if scene.ring.remove(number, &task) {
                scene.note("remover", Some(1));
            }
        });
    }

    /// What this one got, in order.
    fn of(&self, who: &'static str) -> Vec<usize> {
        let taken = self.taken.lock().expect("nobody panicked");
        taken.iter().filter(|it| it.0 == who).map(|it| it.1).collect()
    }

    /// Nothing is left, and all were taken, each once.
    fn end(&self, tasks: &[&Arc<Task>]) {
        self.threads.join();
        while let Some(number) = self.ring.pop_newest() {
            self.note("rest", Some(number));
        }
        assert!(!self.ring.has_items());
        for task in tasks {
            assert_eq!(task.runs(), 1);
        }
    }
}

/// Sees the last item go to its owner and to a thief, whichever end the owner takes it from.
#[test]
fn the_last_item_goes_to_one_of_two() {
    for how in [As::Fork, As::Entry] {
        for newest in [true, false] {
            explore(4, &["owner", "thief"], move |seen| {
                let scene = Scene::new();
                scene.thief("thief", 1);
                let one = Task::new(1);
                scene.ring.push(&one, how).expect("there is room");
                let mine = if newest {
                    scene.ring.pop_newest()
                } else {
                    scene.ring.pop_oldest()
                };
                scene.note("owner", mine);
                scene.end(&[&one]);
                assert!(scene.of("rest").is_empty());
                seen.note(if mine.is_some() { "owner" } else { "thief" });
            });
        }
    }
}

/// Sees two items be shared in all ways. A thief has them in the order in which they were pushed, the owner in the other.
#[test]
fn two_items_are_shared() {
    for how in [As::Fork, As::Entry] {
        explore(3, &["owner both", "thief both", "one each"], move |seen| {
            let scene = Scene::new();
            scene.thief("thief", 2);
            let (one, two) = (Task::new(1), Task::new(2));
            scene.ring.push(&one, how).expect("there is room");
            scene.ring.push(&two, how).expect("there is room");
            scene.note("owner", scene.ring.pop_newest());
            scene.note("owner", scene.ring.pop_newest());
            scene.end(&[&one, &two]);
            assert!(scene.of("rest").is_empty());
            seen.note(match (&scene.of("owner")[..], &scene.of("thief")[..]) {
                ([2, 1], []) => "owner both",
                ([], [1, 2]) => "thief both",
                ([2], [1]) => "one each",
                other => panic!("{other:?}"),
            });
        });
    }
}

/// Sees two thieves and the owner meet at two items.
#[test]
fn two_thieves_and_the_owner_meet() {
    explore(2, &["owner", "left out"], |seen| {
        let scene = Scene::new();
        scene.thief("thief", 1);
        scene.thief("other thief", 1);
        let (one, two) = (Task::new(1), Task::new(2));
        scene.ring.push(&one, As::Fork).expect("there is room");
        scene.ring.push(&two, As::Fork).expect("there is room");
        let mine = scene.ring.pop_newest();
        scene.note("owner", mine);
        scene.end(&[&one, &two]);
        seen.note(if mine.is_some() { "owner" } else { "left out" });
    });
}

/// Sees the owner find the ring full, and find room where a thief has made some: the third item goes to the slot of the
/// first.
#[test]
fn numbers_go_round() {
    for how in [As::Fork, As::Entry] {
        explore(3, &["full", "room"], move |seen| {
            let scene = Scene::new();
            let tasks = [1, 2, 3].map(Task::new);
            scene.thief("thief", 2);
            let mut pushed = Vec::new();
            for task in &tasks {
                if scene.ring.push(task, how).is_some() {
                    pushed.push(task);
                }
            }
            scene.note("owner", scene.ring.pop_newest());
            scene.end(&pushed);
            assert!(scene.of("thief").is_sorted());
            seen.note(if pushed.len() == 3 { "room" } else { "full" });
        });
    }
}

/// Sees an item be taken out of the middle before its owner or a thief gets it, and after.
#[test]
fn an_item_is_removed_or_popped() {
    let outcomes = ["remover", "owner", "thief"];
    explore(3, &outcomes, move |seen| {
        let scene = Scene::new();
        let (one, two) = (Task::new(1), Task::new(2));
        scene.thief("thief", 1);
        let number = scene.ring.push(&one, As::Entry).expect("there is room");
        scene.remover(number, &one);
        scene.ring.push(&two, As::Entry).expect("there is room");
        scene.note("owner", scene.ring.pop_newest());
        scene.note("owner", scene.ring.pop_newest());
        scene.end(&[&one, &two]);
        assert!(scene.of("rest").is_empty());
        for who in outcomes {
            if scene.of(who).contains(&1) {
                seen.note(who);
            }
        }
    });
}

/// A thief that has claimed the number of an item which is then removed may be slow. Whatever the owner does meanwhile,
/// it does not touch what came after. Sees the thief come before, and in vain.
#[test]
fn a_slow_thief_does_not_take_what_came_later() {
    explore(3, &["the removed one", "another", "none"], |seen| {
        let scene = Scene::new();
        let tasks = [1, 2, 3].map(Task::new);
        scene.thief("thief", 1);
        let number = scene.ring.push(&tasks[0], As::Entry).expect("there is room");
        scene.remover(number, &tasks[0]);
        let mut pushed = vec![&tasks[0]];
        for task in &tasks[1..] {
            if scene.ring.push(task, As::Fork).is_some() {
                pushed.push(task);
            }
        }
        scene.note("owner", scene.ring.pop_newest());
        scene.end(&pushed);
        seen.note(match scene.of("thief")[..] {
            [] => "none",
            [1] => "the removed one",
            _ => "another",
        });
    });
}
