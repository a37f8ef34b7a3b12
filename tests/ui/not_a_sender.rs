//! A plain value is not a sender.
use bowline::prelude::*;

fn main() {
    let _ = sync_wait(42);
    let _ = sync_wait(async { 42 });
}
