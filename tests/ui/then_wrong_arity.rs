//! Several values arrive as one tuple.
use bowline::prelude::*;

fn main() {
    let sum = when_all((just(1), just(2))).then(|a, b| a + b);
    let _ = sync_wait(sum);
}
