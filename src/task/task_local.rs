//! Values that belong to a task, and are seen by all that runs in it.

/// One value, and what was bound before it.
pub(super) struct Binding;
