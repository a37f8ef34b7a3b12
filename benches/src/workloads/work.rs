//! Work of a known size that no optimiser takes away.

use std::hint::black_box;

/// Computes for a while: a nanosecond or two for each step, none of which can begin before the last has ended.
pub fn compute(seed: u64, steps: u64) -> u64 {
    let mut state = seed | 1;
    for _ in 0..black_box(steps) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    state
}

/// A number that looks random and is always the same for the same index.
pub fn scramble(index: u64) -> u64 {
    let mut state = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}
