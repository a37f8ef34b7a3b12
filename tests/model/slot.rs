//! The slot of one seat: its owner against a searcher, and against a thread that raises the entry.

use std::sync::{Arc, Mutex};

use bowline::model::{ModelTask as Task, SeatSlotModel};

use crate::support::{Order, Threads, explore_both_ways};

type Actor = Box<dyn FnOnce()>;

/// Runs the owner against another thread, which returns whether it took a task. Asserts that each task was taken once, and
/// returns the thread that took one: the owner takes what the other one leaves.
fn play(
    slot: &Arc<SeatSlotModel>,
    tasks: &[Arc<Task>],
    order: Order,
    owner: impl FnOnce(&SeatSlotModel) + 'static,
    other: impl FnOnce(&SeatSlotModel) -> bool + 'static,
) -> &'static str {
    let taken = Arc::new(Mutex::new(false));
    let owner: Actor = Box::new({
        let slot = slot.clone();
        move || owner(&slot)
    });
    let other: Actor = Box::new({
        let (slot, taken) = (slot.clone(), taken.clone());
        move || *taken.lock().expect("no thread panicked") = other(&slot)
    });
    Threads::default().run(order, [owner, other]);
    assert!(slot.empty().is_none(), "the owner emptied it last");
    assert!(tasks.iter().all(|task| task.runs() == 1));
    let taken = *taken.lock().expect("no thread panicked");
    if taken { "other" } else { "owner" }
}

/// Covers the only item going to the owner and to a searcher, with the bias ended before, and during, the owner's access.
#[test]
fn the_item_goes_to_one_of_two() {
    for biased in [true, false] {
        explore_both_ways(4, &["owner", "other"], move |seen, order| {
            let (slot, task) = (Arc::new(SeatSlotModel::new(biased)), Task::new(1));
            let owner = {
                let task = task.clone();
                move |slot: &SeatSlotModel| {
                    assert!(slot.put(&task).is_none());
                    slot.empty();
                }
            };
            seen.note(play(&slot, &[task], order, owner, |slot| slot.steal().is_some()));
        });
    }
}

/// Covers an item that is raised while the owner replaces it by another one.
#[test]
fn an_item_is_raised_while_it_is_displaced() {
    for biased in [true, false] {
        explore_both_ways(3, &["owner", "other"], move |seen, order| {
            let (slot, tasks) = (Arc::new(SeatSlotModel::new(biased)), [Task::new(1), Task::new(2)]);
            assert!(slot.put(&tasks[0]).is_none());
            let owner = {
                let second = tasks[1].clone();
                move |slot: &SeatSlotModel| {
                    assert!(slot.put(&second).is_none_or(|displaced| displaced == 1));
                    assert_eq!(slot.empty(), Some(2));
                }
            };
            let raised = tasks[0].clone();
            seen.note(play(&slot, &tasks, order, owner, move |slot| slot.remove(&raised)));
        });
    }
}

/// Covers the owner that fills the slot again and again while a searcher ends the bias, and the bias returns.
#[test]
fn the_bias_ends_and_returns() {
    explore_both_ways(3, &["owner", "other"], |seen, order| {
        let (slot, tasks) = (Arc::new(SeatSlotModel::new(true)), [Task::new(1), Task::new(2)]);
        let owner = {
            let tasks = tasks.clone();
            move |slot: &SeatSlotModel| {
                for task in &tasks {
                    assert!(slot.put(task).is_none());
                    slot.empty();
                }
            }
        };
        seen.note(play(&slot, &tasks, order, owner, |slot| {
            slot.steal().is_some() | slot.steal().is_some()
        }));
    });
}
