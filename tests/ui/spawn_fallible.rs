//! Spawned work has nobody to tell its error to.
use bowline::prelude::*;

fn main() {
    let scope = CountingScope::new();
    scope.spawn(just_error::<(), &str>("disk full"));
}
