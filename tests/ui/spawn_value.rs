//! The value of spawned work has no receiver.
use bowline::prelude::*;

fn main() {
    let scope = CountingScope::new();
    scope.spawn(just(7));
}
