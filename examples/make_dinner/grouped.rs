//! The steps side by side, in a group.

use bowline::prelude::*;

use super::kitchen::{Dish, HOUR, KitchenError, Meal, Meat, Oven, Vegetable, marinate_meat, preheat_oven};
use super::sequential::chop_vegetables;

/// All children of a group give the same type.
enum CookingStep {
    Vegetables(Vec<Vegetable>),
    Meat(Meat),
    Oven(Oven),
}

pub(crate) async fn make_dinner() -> Result<Meal, KitchenError> {
    let (mut veggies, mut meat, mut oven) = (None, None, None);
    // Children own what they use: one that wrote to these variables would not compile. The body may write to them.
    task::try_group(async |group| {
        group.spawn(async { Ok(CookingStep::Vegetables(chop_vegetables().await?)) });
        group.spawn(async { Ok(CookingStep::Meat(marinate_meat().await)) });
        group.spawn(async { Ok(CookingStep::Oven(preheat_oven(350).await?)) });

        while let Some(finished_step) = group.next().await.transpose()? {
            match finished_step {
                CookingStep::Vegetables(chopped) => veggies = Some(chopped),
                CookingStep::Meat(marinated) => meat = Some(marinated),
                CookingStep::Oven(hot) => oven = Some(hot),
            }
        }
        Ok::<_, KitchenError>(())
    })
    .await?;

    // The group has returned normally, so no child has failed, and none was stopped: they are when we are cancelled
    // ourselves, and then `next` does not return.
    let (Some(veggies), Some(meat), Some(oven)) = (veggies, meat, oven) else {
        unreachable!("all three steps have finished");
    };
    oven.cook(Dish::new(veggies, meat), 3 * HOUR).await
}
