//! The first program of the README: children that run side by side, and are always awaited.

use bowline::prelude::*;

#[bowline::main]
async fn main() -> Result<(), KitchenError> {
    let meal = task::try_group(async |kitchen| {
        kitchen.spawn(chop_vegetables()); // Children run side by side on the pool,
        kitchen.spawn(marinate_meat()); // and inherit priority, deadline, task-locals and cancellation.
        let mut plate = Plate::new();
        // The first error leaves: the others are cancelled, and awaited.
        while let Some(step) = kitchen.next().await.transpose()? {
            plate.push(step);
        }
        Ok(plate)
    })
    .await?;
    serve(meal).await
}

#[derive(Debug)]
struct KitchenError;

type Plate = Vec<&'static str>;

async fn chop_vegetables() -> Result<&'static str, KitchenError> {
    Ok("vegetables")
}

async fn marinate_meat() -> Result<&'static str, KitchenError> {
    Ok("meat")
}

async fn serve(meal: Plate) -> Result<(), KitchenError> {
    assert_eq!(meal.len(), 2);
    println!("dinner is served: {}", meal.join(" and "));
    Ok(())
}
