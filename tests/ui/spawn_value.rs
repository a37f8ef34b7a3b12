//! Spawned work has no receiver for a value.
use bowline::prelude::*;

fn main() {
    let scope = CountingScope::new();
    scope.spawn(just(7));
}
