//! The first program of the README: children that run concurrently and are always awaited.

use bowline::prelude::*;

#[bowline::main]
async fn main() -> Result<(), KitchenError> {
    let meal = task::try_group(async |kitchen| {
        // Children run concurrently on the pool. They inherit priority, deadline, task-locals and cancellation.
        kitchen.spawn(chop_vegetables());
        kitchen.spawn(marinate_meat());
        let mut plate = Plate::new();
        // On the first error `?` returns it; the other children are cancelled and awaited.
        while let Some(step) = kitchen.try_next().await? {
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
