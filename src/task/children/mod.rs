//! Children: groups, single children, and handles.

pub(super) mod group;
pub(super) mod handle;
pub(super) mod solo;
pub(super) mod spawned;
