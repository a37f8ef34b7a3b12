//! A strand: the context that its frames share, its unit, and what is tethered to its frames.

pub(super) mod context;
pub(super) mod locals;
pub(super) mod raising;
pub(super) mod reason;
pub(super) mod record;
pub(super) mod scoped_future;
pub(super) mod task_ref;
pub(super) mod tether;
pub(super) mod unit;
