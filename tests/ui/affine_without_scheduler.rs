//! `affine` needs a scheduler to return to; a detached sender has none.
use bowline::prelude::*;

fn main() {
    start_detached(just(1).affine());
}
