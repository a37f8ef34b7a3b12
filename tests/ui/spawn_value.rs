//! Spawned work has nobody to give its value to.
use bowline::prelude::*;

fn main() {
    let scope = CountingScope::new();
    scope.spawn(just(7));
}
