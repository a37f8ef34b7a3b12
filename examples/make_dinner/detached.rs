//! Dinner that nobody waits for, unless somebody does.

use bowline::prelude::*;
use bowline::task::{Handle, TaskError};

use super::kitchen::{KitchenError, Meal};
use super::{grouped, sequential};

/// Waits for the meal, and eats it. That dinner was called off, or the cook panicked, is not an error of the kitchen.
async fn eat(meal_handle: Handle<Result<Meal, KitchenError>>) -> Result<Result<(), KitchenError>, TaskError> {
    let meal = meal_handle.await?;
    Ok(meal.map(Meal::eat))
}

pub(crate) async fn order_and_eat() {
    let dinner_handle = task::detach(grouped::make_dinner());
    eat(dinner_handle)
        .await
        .expect("nobody calls it off")
        .expect("nothing burns");
}

pub(crate) async fn order_and_call_off() {
    let dinner_handle = task::detach(sequential::make_dinner());
    dinner_handle.cancel();
    assert!(dinner_handle.is_cancelled());
    // What it waited for, or waits for next, stops it.
    let error = eat(dinner_handle).await.expect_err("it was called off");
    println!("no dinner: {error}");
    assert!(error.is_cancelled());
}

/// A handle that is dropped lets the task run on.
pub(crate) async fn order_for_somebody_else() {
    let (serve, served) = async_channel::bounded(1);
    drop(task::detach(async move {
        let meal = sequential::make_dinner().await;
        serve.send(meal).await.expect("somebody waits")
    }));
    let meal = served.recv().await.expect("it is served");
    assert_eq!(meal, Ok(Meal::of_the_day()));
}
