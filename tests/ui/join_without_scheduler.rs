//! A join completes on a scheduler; a detached sender has none.
use bowline::prelude::*;

fn main() {
    start_detached(CountingScope::new().join());
}
