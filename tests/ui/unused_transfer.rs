//! A transfer belongs to the caller.
#![deny(unused_must_use)]

use bowline::prelude::*;
use bowline::Transfer;

fn complete(receiver: impl Receiver<i32, &'static str>) -> Transfer {
    receiver.set_value(1);
    Transfer::none()
}

fn main() {}
