//! Spawned work outlives the call, so it does not borrow.
use bowline::prelude::*;

fn main() {
    let scope = CountingScope::new();
    let name = String::from("bowline");
    scope.spawn(just_from(|| println!("{name}")));
}
