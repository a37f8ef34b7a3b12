//! The recipes of the example `make_dinner`, one by one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::scheduler::ThreadPool;
use bowline::task::{Task, block_on};
use bowline::{starts_on, sync_wait};

#[path = "../../examples/make_dinner/async_let.rs"]
mod async_let;
#[path = "../../examples/make_dinner/cancelling.rs"]
mod cancelling;
#[path = "../../examples/make_dinner/detached.rs"]
mod detached;
#[path = "../../examples/make_dinner/grouped.rs"]
mod grouped;
#[path = "../../examples/make_dinner/kitchen.rs"]
mod kitchen;
#[path = "../../examples/make_dinner/sequential.rs"]
mod sequential;
#[path = "../../examples/make_dinner/throwing.rs"]
mod throwing;

use kitchen::{Cook, HOUR, KitchenError, Meal, gather_raw_veggies};

/// A lock for one recipe at a time: the cooks are counted.
struct Kitchen(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Kitchen {
    fn enter() -> Self {
        static KITCHEN: Mutex<()> = Mutex::new(());
        Kitchen(KITCHEN.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Asserts that all cooks have left when a recipe has ended: on a loop of its own with the children on the pool, all on one
/// loop, and on pools of one, two and eight.
fn everywhere<T, F>(recipe: impl Fn() -> F, check: impl Fn(T))
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let _kitchen = Kitchen::enter();
    let check = |result| {
        assert_eq!(Cook::count(), 0);
        check(result);
    };
    check(block_on(recipe()));
    check(sync_wait(Task::new(recipe())).unwrap());
    for workers in [1, 2, 8] {
        let pool = ThreadPool::new(workers);
        check(sync_wait(starts_on(pool.scheduler(), Task::new(recipe()))).unwrap());
    }
}

fn is_of_the_day(meal: Result<Meal, KitchenError>) {
    assert_eq!(meal, Ok(Meal::of_the_day()));
}

#[test]
fn one_step_after_the_other() {
    everywhere(sequential::make_dinner, is_of_the_day);
}

#[test]
fn steps_in_a_group() {
    everywhere(grouped::make_dinner, is_of_the_day);
}

#[test]
fn children_bound_to_variables() {
    everywhere(async_let::make_dinner, is_of_the_day);
}

#[test]
fn children_bound_to_variables_that_nobody_uses() {
    // In a task, which ends after them.
    let change_ones_mind = || async { Task::new(async_let::change_ones_mind()).await };
    everywhere(change_ones_mind, |plan| assert_eq!(plan, Ok("dinner is cancelled")));
}

#[test]
fn a_child_for_each_vegetable() {
    everywhere(throwing::chop_vegetables, |veggies| {
        let mut veggies = veggies.unwrap();
        veggies.sort();
        assert_eq!(veggies, gather_raw_veggies());
    });
    everywhere(throwing::chop_and_leave, |left| assert_eq!(left, Ok(())));
}

#[test]
fn an_accident_with_a_knife() {
    everywhere(cancelling::chop_vegetables, |veggies| {
        assert_eq!(veggies, Err(KitchenError::UnfortunateAccidentWithKnife));
    });
}

#[test]
fn a_child_that_cancels_its_group() {
    everywhere(cancelling::chop_what_can_be_chopped, |veggies| assert_eq!(veggies, []));
}

#[test]
fn dinner_by_a_deadline() {
    everywhere(|| cancelling::make_dinner_in(HOUR / 2), |late| assert_eq!(late, None));
    let minute = Duration::from_secs(60);
    let in_time = |meal| assert_eq!(meal, Some(Meal::of_the_day()));
    everywhere(move || cancelling::make_dinner_in(minute), in_time);
}

#[test]
fn dinner_that_is_ordered_and_eaten() {
    everywhere(detached::order_and_eat, |()| {});
}

#[test]
fn dinner_that_is_called_off() {
    everywhere(detached::order_and_cancel, |()| {});
}

#[test]
fn dinner_for_somebody_else() {
    everywhere(detached::order_without_handle, |()| {});
}
