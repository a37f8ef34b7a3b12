//! Children: groups, single children, and handles.

pub(super) mod error;
pub(super) mod group;
pub(super) mod solo;
pub(super) mod spawned;
