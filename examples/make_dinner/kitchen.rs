//! The steps of the recipe, which take time and may fail.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::prelude::*;
use bowline::task::Cancelled;

/// An hour of the recipe.
pub(crate) const HOUR: Duration = Duration::from_millis(2);

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KitchenError {
    UnfortunateAccidentWithKnife,
    Cancelled(Cancelled),
}

/// Lets `?` convert the error of `check_cancellation()`.
impl From<Cancelled> for KitchenError {
    fn from(cancelled: Cancelled) -> Self {
        KitchenError::Cancelled(cancelled)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Vegetable {
    Carrot,
    Onion,
    SweetPotato,
}

impl Vegetable {
    /// Chops the vegetable.
    pub(crate) async fn chopped(self) -> Result<Vegetable, KitchenError> {
        let _cook = Cook::at_work();
        task::sleep(HOUR).await;
        Ok(self)
    }
}

pub(crate) fn gather_raw_veggies() -> Vec<Vegetable> {
    vec![Vegetable::Carrot, Vegetable::Onion, Vegetable::SweetPotato]
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Meat {
    pub(crate) is_marinated: bool,
}

pub(crate) async fn marinate_meat() -> Meat {
    let _cook = Cook::at_work();
    task::sleep(2 * HOUR).await;
    Meat { is_marinated: true }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Oven {
    temperature: u32,
}

pub(crate) async fn preheat_oven(temperature: u32) -> Result<Oven, KitchenError> {
    let _cook = Cook::at_work();
    task::sleep(HOUR).await;
    Ok(Oven { temperature })
}

impl Oven {
    pub(crate) async fn cook(self, dish: Dish, duration: Duration) -> Result<Meal, KitchenError> {
        let _cook = Cook::at_work();
        task::sleep(duration).await;
        Ok(Meal {
            dish,
            temperature: self.temperature,
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dish {
    vegetables: Vec<Vegetable>,
    meat: Meat,
}

impl Dish {
    /// Makes a dish. The order in which the vegetables were chopped does not matter.
    pub(crate) fn new(mut vegetables: Vec<Vegetable>, meat: Meat) -> Self {
        vegetables.sort();
        Dish { vegetables, meat }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Meal {
    dish: Dish,
    temperature: u32,
}

impl Meal {
    /// The expected result of every recipe.
    pub(crate) fn of_the_day() -> Meal {
        Meal {
            dish: Dish::new(gather_raw_veggies(), Meat { is_marinated: true }),
            temperature: 350,
        }
    }

    pub(crate) fn eat(self) {
        println!("yum: {self}");
    }
}

impl fmt::Display for Meal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} with meat, from {} degrees",
            self.dish.vegetables, self.temperature
        )
    }
}

/// A guard that counts running steps. It is dropped on every path.
pub(crate) struct Cook;

static AT_WORK: AtomicUsize = AtomicUsize::new(0);

impl Cook {
    pub(crate) fn at_work() -> Self {
        AT_WORK.fetch_add(1, Ordering::SeqCst);
        Cook
    }

    /// Returns the number of running steps: zero after a recipe has ended.
    pub(crate) fn count() -> usize {
        AT_WORK.load(Ordering::SeqCst)
    }
}

impl Drop for Cook {
    fn drop(&mut self) {
        AT_WORK.fetch_sub(1, Ordering::SeqCst);
    }
}
