//! Waiting for room without reserving it.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context as Cx, Poll, ready};

use super::core::{GroupCore, GroupRef};
use super::next::{Waiting, stop_if_cancelled};
use super::state::GroupState;
use super::wait::WaitFor;
use crate::task::frame::Site;

/// The answer of a group that is asked for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Fewer children than the limit are running.
    Free,
    /// The limit is reached, and a child that ends makes room.
    Full,
    /// The group refuses children: it is cancelled, has ended, or has a limit of zero.
    Never,
}

impl GroupCore {
    /// Returns whether there is room for a child that waits for it. The state is that of this group.
    pub(super) fn room_in(&self, state: &GroupState) -> Room {
        if self.is_cancelled() || state.is_over() || state.limit == 0 {
            Room::Never
        } else if state.running < state.limit {
            Room::Free
        } else {
            Room::Full
        }
    }

    /// Returns whether there is room now.
    pub(super) fn room(&self) -> Room {
        self.room_in(&self.lock())
    }
}

/// A future that waits for room in a group, created by [`TaskGroup::ready`](super::TaskGroup::ready).
///
/// Dropping it early has no effect on the group.
#[must_use = "futures do nothing until they are awaited"]
pub struct Ready {
    core: GroupRef,
    waiting: Waiting,
}

impl Ready {
    pub(super) fn new(core: GroupRef, site: Site) -> Self {
        Ready {
            core,
            waiting: Waiting(None, site),
        }
    }
}

impl Future for Ready {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<bool> {
        let this = &mut *self;
        loop {
            if this.waiting.0.is_none() {
                match this.core.room() {
                    Room::Free => return Poll::Ready(true),
                    // The group is cancelled with the task: the task stops here, whichever of the two the wait saw first.
                    Room::Never if stop_if_cancelled(cx.waker()) => return Poll::Pending,
                    Room::Never => return Poll::Ready(false),
                    Room::Full => {}
                }
            }
            // Nothing is reserved, so another party may have taken the room since the wait was over. The loop checks again.
            drop(ready!(this.waiting.poll(&this.core, WaitFor::Ready, cx)));
        }
    }
}

crate::opaque!([] Ready);
