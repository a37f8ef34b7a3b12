//! A strand: the context that its frames share, its unit, and what is tethered to its frames.

pub(super) mod context;
pub(super) mod inside;
pub(super) mod tether;
pub(super) mod unit;
