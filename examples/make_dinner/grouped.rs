//! Concurrent steps in a group.

use bowline::prelude::*;

use super::kitchen::{Dish, HOUR, KitchenError, Meal, Meat, Oven, Vegetable, marinate_meat, preheat_oven};
use super::sequential::chop_vegetables;

/// The common result type of the children.
enum CookingStep {
    Vegetables(Vec<Vegetable>),
    Meat(Meat),
    Oven(Oven),
}

pub(crate) async fn make_dinner() -> Result<Meal, KitchenError> {
    let (mut veggies, mut meat, mut oven) = (None, None, None);
    // Only the body may write to these variables: children are `'static`.
    task::try_group(async |group| {
        group.spawn(async { Ok(CookingStep::Vegetables(chop_vegetables().await?)) });
        group.spawn(async { Ok(CookingStep::Meat(marinate_meat().await)) });
        group.spawn(async { Ok(CookingStep::Oven(preheat_oven(350).await?)) });

        while let Some(finished_step) = group.try_next().await? {
            match finished_step {
                CookingStep::Vegetables(chopped) => veggies = Some(chopped),
                CookingStep::Meat(marinated) => meat = Some(marinated),
                CookingStep::Oven(hot) => oven = Some(hot),
            }
        }
        Ok::<_, KitchenError>(())
    })
    .await?;

    // The group has returned, so no child has failed. No child was stopped either: `next` would not have returned then.
    let (Some(veggies), Some(meat), Some(oven)) = (veggies, meat, oven) else {
        unreachable!("all three steps have finished");
    };
    oven.cook(Dish::new(veggies, meat), 3 * HOUR).await
}
