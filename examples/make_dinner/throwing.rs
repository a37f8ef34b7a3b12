//! A child for each vegetable, each of which may fail.

use bowline::prelude::*;

use super::kitchen::{KitchenError, Vegetable, gather_raw_veggies};

/// Concurrently chops the vegetables.
pub(crate) async fn chop_vegetables() -> Result<Vec<Vegetable>, KitchenError> {
    task::try_group(async |group| {
        // Spawn a child for each vegetable.
        for vegetable in gather_raw_veggies() {
            group.spawn(vegetable.chopped());
        }
        // Collect the results in order of completion.
        let mut chopped_veggies = Vec::new();
        while let Some(chopped) = group.try_next().await? {
            chopped_veggies.push(chopped);
        }
        Ok(chopped_veggies)
    })
    .await
}

/// Returns without taking results. The group awaits its children and cancels none.
pub(crate) async fn chop_and_leave() -> Result<(), KitchenError> {
    task::try_group(async |group| {
        for vegetable in gather_raw_veggies() {
            group.spawn(vegetable.chopped());
        }
        Ok(())
    })
    .await
}
