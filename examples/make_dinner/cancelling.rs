//! What goes wrong in a kitchen, and who hears of it.

use std::time::Duration;

use bowline::prelude::*;
use bowline::task::{DeadlineExceeded, Reason, Refused};

use super::grouped;
use super::kitchen::{Cook, KitchenError, Meal, Vegetable};

/// Chops with care. A cancellation is cooperative: it is seen where somebody looks.
async fn chop(vegetable: Vegetable) -> Result<Vegetable, KitchenError> {
    task::check_cancellation()?; // An error, with the reason.
    let _cook = Cook::at_work();
    if vegetable == Vegetable::Carrot {
        return Err(KitchenError::UnfortunateAccidentWithKnife);
    }

    // Chop chop chop. This would take a minute, but everything that waits listens to the cancellation. A plain `.await`
    // would end the child right here; as an option it lets us have a word.
    let minute = Duration::from_secs(60);
    let Ok(_) = task::sleep(minute).stopped_as_option().await;

    if task::is_cancelled() {
        println!("  cancelled mid-way through chopping of {vegetable:?}!");
        task::check_cancellation()?;
    }
    Ok(vegetable)
}

/// The error leaves the group. The onion is cancelled, and awaited, before anybody hears of the carrot.
pub(crate) async fn chop_vegetables() -> Result<Vec<Vegetable>, KitchenError> {
    task::try_group(async |group| {
        group.spawn(chop(Vegetable::Carrot)); // (1) Fails.
        group.spawn(chop(Vegetable::Onion)); // (2)

        let mut veggies = Vec::new();
        while let Some(veggie) = group.next().await.transpose()? {
            veggies.push(veggie); // (3)
        }
        Ok(veggies)
    })
    .await
}

/// A child cancels the group that it is in. The errors are looked at, and go no further.
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
        while let Some(result) = group.next_result().await {
            match result {
                Ok(veggie) => veggies.push(veggie),
                Err(error) => errors.push(error),
            }
        }
        assert!(group.is_cancelled());
        assert!(errors.contains(&KitchenError::UnfortunateAccidentWithKnife));
        let requested = KitchenError::Cancelled(Reason::Requested.into());
        assert!(errors.contains(&requested), "what the onion said: {errors:?}");

        // No child is added to a cancelled group, which says so.
        let added = group.spawn(chop(Vegetable::SweetPotato));
        assert_eq!(*added, Err(Refused::Cancelled));
        veggies
    })
    .await
}

/// Dinner by a deadline, which reaches whatever happens inside, however deep.
///
/// The recipe may notice, and give up with an error of its own; or what it waits for ends it.
pub(crate) async fn make_dinner_in(time: Duration) -> Option<Meal> {
    let dinner = task::with_timeout(time, async {
        assert!(task::deadline().is_some());
        grouped::make_dinner().await
    });
    match dinner.await {
        Ok(Ok(meal)) => Some(meal),
        Ok(Err(error)) => {
            assert_eq!(error, KitchenError::Cancelled(Reason::Deadline.into()));
            None
        }
        Err(DeadlineExceeded) => None,
    }
}
