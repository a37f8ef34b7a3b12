//! Tasks with their types: `Task`, `LocalTask`, and the frames behind them.

pub(super) mod allocator;
pub(super) mod builder;
pub(super) mod context;
pub(super) mod future;
mod homed;
pub(super) mod local;
pub(super) mod operation;
pub(super) mod own_context;
pub(super) mod task;
pub(super) mod typed_frame;
