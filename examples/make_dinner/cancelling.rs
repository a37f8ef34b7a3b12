//! Errors, cancellation and deadlines.

use std::time::Duration;

use bowline::prelude::*;
use bowline::task::SpawnErrorKind;

use super::grouped;
use super::kitchen::{Cook, KitchenError, Meal, Vegetable};

/// Chops a vegetable. Cancellation is cooperative: the code checks for it.
async fn chop(vegetable: Vegetable) -> Result<Vegetable, KitchenError> {
    task::check_cancellation()?; // An error, with the reason.
    let _cook = Cook::at_work();
    if vegetable == Vegetable::Carrot {
        return Err(KitchenError::UnfortunateAccidentWithKnife);
    }

    // A cancellation ends this sleep of a minute. A plain `.await` would end the child here; as an option, the stop is a
    // value.
    let minute = Duration::from_secs(60);
    let Ok(_) = task::sleep(minute).stopped_as_option().await;

    if task::is_cancelled() {
        println!("  cancelled while chopping {vegetable:?}");
        task::check_cancellation()?;
    }
    Ok(vegetable)
}

/// The error of the carrot leaves the group, after the onion was cancelled and awaited.
pub(crate) async fn chop_vegetables() -> Result<Vec<Vegetable>, KitchenError> {
    task::try_group(async |group| {
        group.spawn(chop(Vegetable::Carrot)); // (1) Fails.
        group.spawn(chop(Vegetable::Onion)); // (2)

        let mut veggies = Vec::new();
        while let Some(veggie) = group.try_next().await? {
            veggies.push(veggie); // (3)
        }
        Ok(veggies)
    })
    .await
}

/// A child cancels its own group. The body handles the errors.
pub(crate) async fn chop_what_can_be_chopped() -> Vec<Vegetable> {
    task::group(async |group| {
        assert!(!group.is_cancelled());
        group.spawn(chop(Vegetable::Onion));
        let kitchen = group.clone();
        group.spawn(async move {
            kitchen.cancel_all(); // All work in the group.
            Err(KitchenError::UnfortunateAccidentWithKnife)
        });

        let mut veggies = Vec::new();
        let mut errors = Vec::new();
        while let Some(result) = group.next().await {
            match result {
                Ok(veggie) => veggies.push(veggie),
                Err(error) => errors.push(error),
            }
        }
        assert!(group.is_cancelled());
        assert!(errors.contains(&KitchenError::UnfortunateAccidentWithKnife));
        let requested = KitchenError::Cancelled(Reason::Requested.into());
        assert!(errors.contains(&requested), "the error of the onion: {errors:?}");

        // A cancelled group refuses new children. `spawn` drops them, and `try_spawn` returns them.
        let refused = group.try_spawn(chop(Vegetable::SweetPotato)).unwrap_err();
        assert_eq!(refused.kind(), SpawnErrorKind::Cancelled);
        veggies
    })
    .await
}

/// Makes dinner before a deadline, which all work inside inherits.
///
/// The recipe may see the cancellation and return its own error. Otherwise it is stopped at an `.await`.
pub(crate) async fn make_dinner_in(time: Duration) -> Option<Meal> {
    // A task of its own: the deadline is reported after the cooks have left.
    let dinner = Task::try_new(async {
        assert!(task::deadline().is_some());
        grouped::make_dinner().await
    });
    let dinner = task::with_timeout(time, dinner);
    match dinner.await {
        Ok(Ok(meal)) => Some(meal),
        Ok(Err(error)) => {
            assert_eq!(error, KitchenError::Cancelled(Reason::Deadline.into()));
            None
        }
        Err(DeadlineExceeded) => None,
    }
}
