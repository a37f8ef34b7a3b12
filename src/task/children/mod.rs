//! Children: groups, single children, and handles.

mod error;
pub(super) mod group;
pub(super) mod solo;
mod spawned;

pub use self::error::TaskError;
pub(super) use self::solo::{AsItIs, AsResult, ChildClaim, ChildJoin, ChildStart};
pub(super) use self::spawned::{ChildPlace, InCache};
