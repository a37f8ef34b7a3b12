//! A sender that was connected and not started does nothing either.
#![deny(unused_must_use)]

use bowline::prelude::*;

fn main() {
    prepare(just(1), &mut WaitSlot::new());
}
