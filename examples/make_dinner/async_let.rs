//! Children bound to variables: `async let`.

use std::time::Duration;

use bowline::prelude::*;

use super::kitchen::{Cook, Dish, HOUR, KitchenError, Meal, marinate_meat, preheat_oven};
use super::throwing::chop_vegetables;

pub(crate) async fn make_dinner() -> Result<Meal, KitchenError> {
    let veggies = task::let_async(chop_vegetables());
    let meat = task::let_async(marinate_meat());
    let oven = task::let_async(preheat_oven(350));

    let dish = Dish::new(veggies.await?, meat.await);
    oven.await?.cook(dish, 3 * HOUR).await
}

/// Drops its children, which are cancelled together. The task awaits them at its end.
pub(crate) async fn change_ones_mind() -> &'static str {
    let _meat = task::let_async(marinate_meat());
    let _oven = task::let_async(async {
        let _cook = Cook::at_work();
        // Ends only by the cancellation.
        task::sleep(Duration::MAX).await;
    });
    "dinner is cancelled"
}
