//! The second sender of `sequence` has the error type of the first.
use bowline::prelude::*;

fn main() {
    let _ = sync_wait(just_error::<i32, &str>("no").sequence(just(1)));
}
