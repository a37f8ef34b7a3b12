//! Where a strand runs: its home, and the hop to a scheduler without a queue.

pub(super) mod home;
pub(super) mod hop;
