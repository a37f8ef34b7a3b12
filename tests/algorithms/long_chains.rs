//! Long chains compile without a `recursion_limit`, run, and stay as small as their parts.
//!
//! The time to compile them is measured by `bowline-bench compile`.

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::InlineScheduler;

/// Appends the steps to the sender of this name.
macro_rules! append {
    ($sender:ident: $($step:ident)*) => { $( let $sender = step!($step, $sender); )* };
}

macro_rules! step {
    (t, $sender:expr) => {
        $sender.then(|x: u64| x + 1)
    };
    (l, $sender:expr) => {
        $sender.let_value(|x: u64| just(x + 1))
    };
    (s, $sender:expr) => {
        $sender.sequence(just(1u64))
    };
    (c, $sender:expr) => {
        $sender.continues_on(InlineScheduler)
    };
    (p, $sender:expr) => {
        $sender.continues_on(ThreadPool::global().scheduler())
    };
    (f, $sender:expr) => {
        $sender.finally(just(()))
    };
}

#[test]
fn forty_eight_let_values() {
    let sender = just(0u64);
    append!(sender:
        l l l l l l l l l l l l l l l l
        l l l l l l l l l l l l l l l l
        l l l l l l l l l l l l l l l l);
    assert_eq!(sync_wait(sender).unwrap(), 48);
}

#[test]
fn sixty_four_mixed_steps_that_hop_between_a_pool_and_the_inline_scheduler() {
    let sender = just(0u64);
    append!(sender:
        t l p f t l c f t l p f t l c f
        t l p f t l c f t l p f t l c f
        t l p f t l c f t l p f t l c f
        t l p f t l c f t l p f t l c f);
    assert_eq!(sync_wait(sender).unwrap(), 32);
}

#[test]
fn a_panic_passes_the_rest_of_a_long_chain() {
    let sender = just(0u64).then(|_| -> u64 { panic!("first") });
    append!(sender:
        l c f t s c f t l c f t s c f t l c f t l c f t l c f t l c f t);
    let message = panic_message(|| sync_wait(sender));
    assert_eq!(message, "first");
}
