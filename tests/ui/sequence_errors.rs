//! What `sequence` runs second has the error type of what runs first.
use bowline::prelude::*;

fn main() {
    let _ = sync_wait(just_error::<i32, &str>("no").sequence(just(1)));
}
