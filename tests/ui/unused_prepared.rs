//! A sender that was connected but not started does nothing.
#![deny(unused_must_use)]

use bowline::prelude::*;

fn main() {
    prepare(just(1), &mut WaitSlot::new());
}
