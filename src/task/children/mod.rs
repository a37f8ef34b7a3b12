//! Children: tasks that run side by side with their parent, and that it waits for.
//!
//! This layer is above `coroutine`. The public features that start children use it: groups, `let_async` and `detach`.
//!
//! # Key types
//!
//! - [`group`] has the children that share a body, a policy and a stop source.
//! - [`solo`] has the single child, with a claim on its result: a group of one, in the child's frame.
//! - [`ChildPlace`] is the context of a child that does not inherit all of its parent's.
//!
//! # Who may access what, and when
//!
//! | what | accessed by |
//! |---|---|
//! | the lists and counts of a group | the thread that holds the lock of the group |
//! | the result of a child | its group, in one of the lists; then the party that took it out |
//!
//! # States
//!
//! A child *runs*, then has *ended*; its result is *taken* or *discarded*. A group is *open*, *closed* after its body, and *over* after
//! its last child.
//!
//! # Why it is sound
//!
//! - A child's frame has its unit, and with it the group's part, in its own tail. The group owns the frame.
//! - A child may use its group until it has told the group of its end. A closed group counts one reference for all running children.
//! - The parent's frame counts an await for running children once its body has ended, so it is not done before they are.
//! - No user code runs under the lock of a group. A `Settled` collects the consequences of a change until the unlock.

mod error;
pub(super) mod group;
mod options;

pub use self::error::TaskError;
pub(super) use self::group::solo::{self, ChildClaim};
pub use self::options::SpawnOptions;
pub(super) use self::options::{ChildPlace, InCache};
