//! The second sender of `let_value` has the error type of the first.
use bowline::prelude::*;

fn main() {
    let first = just_error::<i32, &str>("no");
    let second = first.let_value(|n| just_error::<i32, String>(n.to_string()));
    let _ = sync_wait(second.then(|n| n + 1));
}
