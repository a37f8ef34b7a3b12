//! Detached tasks and their handles.

use bowline::prelude::*;
use bowline::task::{Continuation, Handle, TaskError};

use super::kitchen::{KitchenError, Meal};
use super::{grouped, sequential};

/// Awaits the meal and eats it. The outer error is a cancellation or a panic, the inner one an error of the kitchen.
async fn eat(meal_handle: Handle<Result<Meal, KitchenError>>) -> Result<Result<(), KitchenError>, TaskError> {
    let meal = meal_handle.await?;
    Ok(meal.map(Meal::eat))
}

pub(crate) async fn order_and_eat() {
    let dinner_handle = task::detach(grouped::make_dinner());
    eat(dinner_handle)
        .await
        .expect("the task is not cancelled")
        .expect("the recipe does not fail");
}

pub(crate) async fn order_and_cancel() {
    let dinner_handle = task::detach(sequential::make_dinner());
    dinner_handle.cancel();
    assert!(dinner_handle.is_cancelled());
    // The cancellation stops the task at its current or next await.
    let error = eat(dinner_handle).await.expect_err("the task was cancelled");
    println!("no dinner: {error}");
    assert!(error.is_cancelled());
}

/// Drops the handle. The task continues.
pub(crate) async fn order_without_handle() {
    let meal = task::continuation(|served: Continuation<Meal, KitchenError>| {
        drop(task::detach(async move {
            let meal = sequential::make_dinner().await;
            served.resume_with(meal).expect("the meal is waited for");
        }));
    })
    .await;
    assert_eq!(meal, Ok(Meal::of_the_day()));
}
