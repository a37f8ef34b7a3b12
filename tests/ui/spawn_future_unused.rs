//! Dropping the future asks the work to stop, which is rarely intended.
#![deny(unused_must_use)]
use bowline::prelude::*;

fn main() {
    CountingScope::new().spawn_future(just(7));
}
