//! The cost of a sender: the loop whose instructions `scripts/instructions` counts.
//!
//! `cargo run --release --example instructions -- sender` runs a million rounds of
//! `sync_wait(just(x).then(f).then(g))`, `-- plain` a million rounds of `g(f(x))`, and `-- empty` neither. All three start
//! the same process and print a checksum. So the differences between their counts are the loops alone.

use std::hint::black_box;

use bowline::prelude::*;

const ROUNDS: u64 = 1_000_000;

fn f(x: u64) -> u64 {
    x.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn g(x: u64) -> u64 {
    x ^ (x >> 29)
}

/// The argument and the result are opaque in both loops, so that neither is optimised further than the other.
#[inline(never)]
fn plain(rounds: u64) -> u64 {
    let mut sum = 0u64;
    for round in 0..rounds {
        let x = black_box(round);
        sum = sum.wrapping_add(black_box(g(f(x))));
    }
    sum
}

#[inline(never)]
fn sender(rounds: u64) -> u64 {
    let mut sum = 0u64;
    for round in 0..rounds {
        let x = black_box(round);
        sum = sum.wrapping_add(black_box(sync_wait(just(x).then(f).then(g)).unwrap()));
    }
    sum
}

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let sum = match mode.as_str() {
        "plain" => plain(ROUNDS),
        "sender" => sender(ROUNDS),
        "empty" => 0,
        _ => {
            // Without an argument: checks that both loops compute the same.
            assert_eq!(plain(ROUNDS), sender(ROUNDS));
            println!("both loops agree; `scripts/instructions` counts their instructions");
            return;
        }
    };
    println!("{mode}: checksum {sum:#018x}");
}
