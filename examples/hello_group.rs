//! The first program of the README: children that run side by side, and are always awaited.

use bowline::prelude::*;

#[derive(Debug)]
struct KitchenError;

async fn chop_vegetables() -> Result<&'static str, KitchenError> {
    Ok("vegetables")
}

async fn marinate_meat() -> Result<&'static str, KitchenError> {
    Ok("meat")
}

#[bowline::main]
async fn main() -> Result<(), KitchenError> {
    let meal = task::try_group(async |kitchen| {
        kitchen.spawn(chop_vegetables()); // Children run side by side on the pool,
        kitchen.spawn(marinate_meat()); // and inherit priority, deadline, task-locals and cancellation.
        let mut plate = Vec::new();
        // The first error leaves: the others are cancelled, and awaited.
        while let Some(step) = kitchen.next().await.transpose()? {
            plate.push(step);
        }
        Ok(plate)
    })
    .await?;
    assert_eq!(meal.len(), 2);
    println!("dinner is served: {}", meal.join(" and "));
    Ok(())
}
