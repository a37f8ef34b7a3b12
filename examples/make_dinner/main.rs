//! Makes dinner in every form of the paper on structured concurrency (SE-0304), one file each.
//!
//! ```text
//! cargo run --example make_dinner
//! ```

use std::time::Duration;

use bowline::task::Task;

mod async_let;
mod cancelling;
mod detached;
mod grouped;
mod kitchen;
mod sequential;
mod throwing;

use kitchen::{Cook, HOUR, KitchenError, Meal, gather_raw_veggies};

#[bowline::main]
async fn main() -> Result<(), KitchenError> {
    for (form, dinner) in [
        ("one step after the other", Task::try_new(sequential::make_dinner())),
        ("steps in a group", Task::try_new(grouped::make_dinner())),
        ("children bound to variables", Task::try_new(async_let::make_dinner())),
    ] {
        let meal = dinner.await?;
        println!("{form}: {meal}");
        assert_eq!(meal, Meal::of_the_day());
        assert_eq!(Cook::count(), 0);
    }

    // A child for each vegetable. The body takes the results, or leaves the children to the group.
    let mut veggies = throwing::chop_vegetables().await?;
    veggies.sort();
    assert_eq!(veggies, gather_raw_veggies());
    throwing::chop_and_leave().await?;
    assert_eq!(Cook::count(), 0);

    // An error is returned after all children have ended.
    let error = cancelling::chop_vegetables().await.expect_err("the carrot slips");
    println!("chopping failed: {error:?}");
    assert_eq!(error, KitchenError::UnfortunateAccidentWithKnife);
    assert_eq!(Cook::count(), 0);

    // The same error, handled inside the group.
    assert_eq!(cancelling::chop_what_can_be_chopped().await, []);
    assert_eq!(Cook::count(), 0);

    // A deadline that is too short, and one that is not.
    let late = cancelling::make_dinner_in(HOUR / 2).await;
    println!("dinner in half an hour: {late:?}");
    assert_eq!(late, None);
    assert_eq!(Cook::count(), 0);
    let in_time = cancelling::make_dinner_in(Duration::from_secs(60)).await;
    assert_eq!(in_time, Some(Meal::of_the_day()));

    // Detached tasks.
    detached::order_and_eat().await;
    detached::order_and_cancel().await;
    detached::order_without_handle().await;

    // Dropped children are awaited at the end of their task.
    let Ok(plan) = Task::new(async_let::change_ones_mind()).await;
    println!("{plan}");
    assert_eq!(Cook::count(), 0);
    Ok(())
}
