//! Where a strand runs: its home, and the hop to a scheduler without a queue.

mod home;
pub(super) mod hop;

pub(crate) use self::hop::{HopTo, HopVtable};
