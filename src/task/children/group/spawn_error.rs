use core::error::Error;
use core::fmt;
use core::panic::Location;

use crate::report::{Report, report};

/// The error of [`try_spawn`](super::TaskGroup::try_spawn): a refused child, and the reason.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, SpawnErrorKind, Task};
///
/// let task = Task::new(task::group(async |group| {
///     group.cancel_all();
///     let refused = group.try_spawn(async { 7 }).unwrap_err();
///     assert_eq!(refused.kind(), SpawnErrorKind::Cancelled);
///     assert_eq!(refused.to_string(), "group is cancelled");
///     refused.into_inner().await
/// }));
/// assert_eq!(sync_wait(task).unwrap(), 7);
/// ```
pub struct SpawnError<F> {
    kind: SpawnErrorKind,
    child: F,
}

impl<F> SpawnError<F> {
    pub(super) fn new(kind: SpawnErrorKind, child: F) -> Self {
        SpawnError { kind, child }
    }

    /// Returns why the child was refused.
    pub fn kind(&self) -> SpawnErrorKind {
        self.kind
    }

    /// Returns the child, which was not polled.
    pub fn into_inner(self) -> F {
        self.child
    }

    /// Drops the child, and tells the report hook unless the group is cancelled.
    #[cold]
    pub(super) fn report(self, location: &'static Location<'static>) {
        if self.kind != SpawnErrorKind::Cancelled {
            report(Report::ChildRefused {
                kind: self.kind,
                location,
            });
        }
    }
}

impl<F> fmt::Debug for SpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnError")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl<F> fmt::Display for SpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<F> Error for SpawnError<F> {}

/// The reason why a group has refused a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpawnErrorKind {
    /// The group is cancelled.
    Cancelled,
    /// The group has ended, with all its children.
    Ended,
    /// The [limit](super::TaskGroup::set_limit) of the group is zero: there will never be room.
    NoRoom,
    /// The allocator had no memory.
    OutOfMemory,
}

impl fmt::Display for SpawnErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SpawnErrorKind::Cancelled => "group is cancelled",
            SpawnErrorKind::Ended => "group has ended",
            SpawnErrorKind::NoRoom => "limit of the group is zero",
            SpawnErrorKind::OutOfMemory => "out of memory",
        })
    }
}
