//! A sender that cannot fail beside one that can.
use bowline::prelude::*;

fn main() {
    let _ = sync_wait(when_all((just(1), just_error::<i32, &str>("no"))));
}
