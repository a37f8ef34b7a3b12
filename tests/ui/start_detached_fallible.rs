//! The error of a detached sender has no receiver.
use bowline::prelude::*;

fn main() {
    start_detached(just_error::<i32, &str>("disk full"));
}
