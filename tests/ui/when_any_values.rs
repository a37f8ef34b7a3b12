//! The senders of one `when_any` have one value type.
use bowline::prelude::*;

fn main() {
    let _ = sync_wait(when_any((just(1), just("one"))));
}
