//! The second sender of `let_error` has the value type of the first.
use bowline::prelude::*;

fn main() {
    let _ = sync_wait(just_error::<i32, &str>("no").let_error(|why| just(why)));
}
