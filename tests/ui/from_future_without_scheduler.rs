//! A future is polled on a scheduler; a detached sender has none.
use bowline::prelude::*;

fn main() {
    start_detached(from_future(async { 1 }));
}
