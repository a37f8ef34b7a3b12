//! What runs on its own has nobody to tell its error to.
use bowline::prelude::*;

fn main() {
    start_detached(just_error::<i32, &str>("disk full"));
}
