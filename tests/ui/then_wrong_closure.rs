//! `then` calls its function with the value.
use bowline::prelude::*;

fn main() {
    let length = just("bowline").then(|n: i32| n + 1);
    let _ = sync_wait(length);
}
