//! The queues that all workers share: pushing, popping and raising.

use std::sync::{Arc, Mutex};

use bowline::Priority::{self, Background, Default, UserInitiated, UserInteractive, Utility};
use bowline::model::{ModelTask as Task, PoolModel};

use crate::support::{Threads, explore_both_ways};

/// Returns the level at which the task is queued, and removes it.
fn level_of(pool: PoolModel, number: usize) -> Option<Priority> {
    let level = Priority::ALL.into_iter().find_map(|level| {
        let found = pool.pop(level)?;
        assert_eq!(found, number);
        Some(level)
    });
    assert!(!pool.has_work());
    level
}

/// Covers a push before a pop and after it. Each of two entries pushed at one level comes out once.
#[test]
fn pushes_meet_a_pop() {
    explore_both_ways(3, &["nothing", "one", "two"], |seen, order| {
        let (pool, threads) = (PoolModel::new(1), Threads::default());
        let (one, two) = (Task::new(1), Task::new(2));
        let push = |task: &Arc<Task>| {
            let task = task.clone();
            Box::new(move || assert!(pool.push(&task)))
        };
        let pop = Box::new({
            let seen = seen.clone();
            move || {
                seen.note(match pool.pop(Default) {
                    None => "nothing",
                    Some(1) => "one",
                    Some(_) => "two",
                });
            }
        });
        threads.run(order, [push(&one), push(&two), pop]);
        while pool.pop(Default).is_some() {}
        assert!(!pool.has_work());
        assert_eq!((one.runs(), two.runs()), (1, 1));
        pool.free();
    });
}

/// Covers an entry being taken before it is raised, and after. Its neighbours keep their places.
#[test]
fn a_raise_meets_a_pop() {
    explore_both_ways(3, &["before", "after", "left"], |seen, order| {
        let (pool, threads) = (PoolModel::new(1), Threads::default());
        let tasks = [1, 2, 3].map(|number| Task::new(number).at(Utility));
        for task in &tasks {
            assert!(pool.push(task));
        }
        let raise = Box::new({
            let task = tasks[1].clone();
            move || pool.raise(&task, UserInitiated)
        });
        let popped = Arc::new(Mutex::new((None, None)));
        let pop = Box::new({
            let popped = popped.clone();
            move || {
                let urgent = pool.pop(UserInitiated);
                assert_eq!(pool.pop(Utility), Some(1));
                *popped.lock().expect("nobody panicked") = (urgent, pool.pop(Utility));
            }
        });
        threads.run(order, [raise, pop]);
        seen.note(match *popped.lock().expect("nobody panicked") {
            (Some(2), Some(3)) => "after",
            (None, Some(2)) => "before",
            (None, Some(3)) => {
                assert_eq!(pool.pop(UserInitiated), Some(2));
                "left"
            }
            other => panic!("{other:?}"),
        });
        while pool.pop(Utility).is_some() {}
        assert!(!pool.has_work());
        assert!(tasks.iter().all(|task| task.runs() == 1));
        pool.free();
    });
}

/// Of two raises of an entry, the higher level counts, in either order.
#[test]
fn two_raises_end_at_the_higher_level() {
    explore_both_ways(4, &["the highest"], |seen, order| {
        let (pool, threads) = (PoolModel::new(1), Threads::default());
        let task = Task::new(1).at(Background);
        assert!(pool.push(&task));
        let raise = |level| {
            let task = task.clone();
            Box::new(move || pool.raise(&task, level))
        };
        threads.run(order, [raise(UserInteractive), raise(UserInitiated)]);
        assert_eq!(level_of(pool, 1), Some(UserInteractive));
        seen.note("the highest");
        pool.free();
    });
}

/// While an entry moves between levels, the queues never look empty: a worker about to park would miss it.
#[test]
fn a_raise_leaves_no_gap() {
    explore_both_ways(4, &["raised"], |seen, order| {
        let (pool, threads) = (PoolModel::new(1), Threads::default());
        let task = Task::new(1).at(Background);
        assert!(pool.push(&task));
        let raise = Box::new({
            let task = task.clone();
            move || pool.raise(&task, UserInteractive)
        });
        threads.run(order, [raise, Box::new(move || assert!(pool.has_work()))]);
        assert_eq!(level_of(pool, 1), Some(UserInteractive));
        seen.note("raised");
        pool.free();
    });
}

/// A raise that finds its entry already raised higher does not change the entry's turn.
#[test]
fn a_late_raise_keeps_the_turn() {
    explore_both_ways(4, &["in turn"], |seen, order| {
        let (pool, threads) = (PoolModel::new(1), Threads::default());
        let tasks = [1, 2].map(|number| Task::new(number).at(Utility));
        for task in &tasks {
            assert!(pool.push(task));
        }
        let late = Box::new({
            let task = tasks[0].clone();
            move || pool.raise(&task, UserInitiated)
        });
        let high = Box::new({
            let tasks = tasks.clone();
            move || {
                for task in &tasks {
                    pool.raise(task, UserInteractive);
                }
            }
        });
        threads.run(order, [late, high]);
        assert_eq!(pool.pop(UserInteractive), Some(1));
        assert_eq!(pool.pop(UserInteractive), Some(2));
        seen.note("in turn");
        pool.free();
    });
}
