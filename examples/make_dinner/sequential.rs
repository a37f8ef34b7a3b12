//! One step after the other, without concurrency.

use super::kitchen::{Dish, HOUR, KitchenError, Meal, Vegetable, gather_raw_veggies, marinate_meat, preheat_oven};

/// Sequentially chops the vegetables.
pub(crate) async fn chop_vegetables() -> Result<Vec<Vegetable>, KitchenError> {
    let mut chopped_veggies = Vec::new();
    for vegetable in gather_raw_veggies() {
        chopped_veggies.push(vegetable.chopped().await?);
    }
    Ok(chopped_veggies)
}

pub(crate) async fn make_dinner() -> Result<Meal, KitchenError> {
    let veggies = chop_vegetables().await?;
    let meat = marinate_meat().await;
    let oven = preheat_oven(350).await?;

    let dish = Dish::new(veggies, meat);
    oven.cook(dish, 3 * HOUR).await
}
