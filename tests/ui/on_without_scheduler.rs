//! `on` needs a scheduler to return to; a detached sender has none.
use bowline::prelude::*;
use bowline::scheduler::InlineScheduler;

fn main() {
    start_detached(just(1).on(InlineScheduler));
}
