//! An outcome may be an error or a stop, which must be handled.
#![deny(unused_must_use)]

use bowline::prelude::*;

fn main() {
    sync_wait(just_error::<i32, _>("disk full"));
}
