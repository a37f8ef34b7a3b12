//! Work of a known size that the optimiser cannot remove.

use std::hint::black_box;

/// Computes for a while: a nanosecond or two per step, each of which depends on the one before.
pub fn compute(seed: u64, steps: u64) -> u64 {
    let mut state = seed | 1;
    for _ in 0..black_box(steps) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    state
}

/// Returns a pseudo-random number that depends only on the index.
pub fn scramble(index: u64) -> u64 {
    let mut state = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}
