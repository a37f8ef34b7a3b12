//! What stands in for an error has the value type of what failed.
use bowline::prelude::*;

fn main() {
    let _ = sync_wait(just_error::<i32, &str>("no").let_error(|why| just(why)));
}
