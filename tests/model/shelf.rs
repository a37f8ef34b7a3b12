//! The shelf of one seat: its occupant against thieves.

use std::sync::{Arc, Mutex};

use bowline::model::{ModelTask as Task, ShelfModel};

use crate::support::{Threads, explore_both_ways};

/// Covers three tasks being run by the occupant, stolen, and shared. Each is taken once, in order.
#[test]
fn what_is_handed_over_together_is_shared() {
    explore_both_ways(3, &["occupant", "thief", "both"], |seen, order| {
        let shelf = Arc::new(ShelfModel::new());
        let tasks: Vec<_> = (1..=3).map(Task::new).collect();
        let taken: Arc<[Mutex<Vec<usize>>; 2]> = Arc::default();
        let occupant: Box<dyn FnOnce()> = Box::new({
            let (shelf, tasks, taken) = (shelf.clone(), tasks.clone(), taken.clone());
            move || {
                shelf.fill(&tasks);
                while let Some(number) = shelf.take_first() {
                    taken[0].lock().expect("no thread panicked").push(number);
                }
            }
        });
        let thief: Box<dyn FnOnce()> = Box::new({
            let (shelf, taken) = (shelf.clone(), taken.clone());
            move || *taken[1].lock().expect("no thread panicked") = shelf.take_all()
        });
        Threads::default().run(order, [occupant, thief]);
        assert!(shelf.take_first().is_none());
        assert!(tasks.iter().all(|task| task.runs() == 1));
        let [occupant, thief] = &*taken;
        let (occupant, thief) = (
            occupant.lock().expect("no thread panicked").clone(),
            thief.lock().expect("no thread panicked").clone(),
        );
        assert_eq!([&occupant[..], &thief[..]].concat(), [1, 2, 3]);
        seen.note(match (occupant.len(), thief.len()) {
            (_, 0) => "occupant",
            (0, _) => "thief",
            _ => "both",
        });
    });
}

/// Covers two thieves at one shelf: one of them takes all.
#[test]
fn one_of_two_thieves_has_all() {
    explore_both_ways(3, &["one", "other", "none"], |seen, order| {
        let shelf = Arc::new(ShelfModel::new());
        let tasks: Vec<_> = (1..=2).map(Task::new).collect();
        let occupant: Box<dyn FnOnce()> = Box::new({
            let (shelf, tasks) = (shelf.clone(), tasks.clone());
            move || shelf.fill(&tasks)
        });
        let thief = |name: &'static str| -> Box<dyn FnOnce()> {
            let (shelf, seen) = (shelf.clone(), seen.clone());
            Box::new(move || {
                let taken = shelf.take_all();
                assert!(taken.is_empty() || taken == [1, 2]);
                if !taken.is_empty() {
                    seen.note(name);
                }
            })
        };
        Threads::default().run(order, [occupant, thief("one"), thief("other")]);
        if !shelf.take_all().is_empty() {
            seen.note("none");
        }
        assert!(tasks.iter().all(|task| task.runs() == 1));
    });
}
