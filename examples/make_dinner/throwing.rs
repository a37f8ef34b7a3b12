//! As many children as there are vegetables, each of which may fail.

use bowline::prelude::*;

use super::kitchen::{KitchenError, Vegetable, gather_raw_veggies};

/// Concurrently chops the vegetables.
pub(crate) async fn chop_vegetables() -> Result<Vec<Vegetable>, KitchenError> {
    task::try_group(async |group| {
        // A child for each vegetable that needs to be chopped.
        for vegetable in gather_raw_veggies() {
            group.spawn(vegetable.chopped());
        }
        // Collect them in whatever order they are ready.
        let mut chopped_veggies = Vec::new();
        while let Some(chopped) = group.next().await.transpose()? {
            chopped_veggies.push(chopped);
        }
        Ok(chopped_veggies)
    })
    .await
}

/// Returns without having asked for anything: the group waits for its children all the same, and cancels none.
pub(crate) async fn chop_and_leave() -> Result<(), KitchenError> {
    task::try_group(async |group| {
        for vegetable in gather_raw_veggies() {
            group.spawn(vegetable.chopped());
        }
        Ok(())
    })
    .await
}
