//! Handles of single children, and the stop source that such a child has of its own.
//!
//! A child inherits the stop token of its group. A child that is spawned with a handle has a [`ChildStop`] instead: a relay that
//! passes the stop of the group on, and that the handle stops alone. The child's [`ChildPlace`](crate::task::children::ChildPlace)
//! owns an [`OwnStop`], which links the relay before the child starts, and ends it when the child is done.
//!
//! # Why it is sound
//!
//! A `ChildStop` has a reference of each handle, of the `OwnStop`, and of the link from `link` until `over`. So a handle may stop the
//! relay at any time: after the child is done, the relay has no listener. The outer source is the group's, which `group` keeps alive
//! until the link is over.

use core::cell::Cell;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::mem;
use core::ptr::NonNull;

use super::core::{GroupCore, GroupRef};
use crate::Transfer;
use crate::sender::stage::container_of;
use crate::stop::{ErasedStopToken, Reason, Relay, RelayOwner};
use crate::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use crate::sync::{Arc, Mutex, lock};

/// A handle of one child of a group, with which the child can be cancelled alone.
///
/// [`spawn_with`](super::TaskGroup::spawn_with) and its variants return it for
/// [cancellable](crate::task::SpawnOptions::cancellable) options. It can be cloned, sent and stored. It gives no access to the
/// child's result, which stays with the group, and does not keep the child's memory alive.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Reason, SpawnOptions, Task};
///
/// let task = Task::new(task::group(async |group| {
///     let options = SpawnOptions::new().cancellable();
///     let patient = group.spawn_with(options, async {
///         let Ok(_) = task::sleep(std::time::Duration::MAX).stopped_as_option().await;
///         task::cancellation_reason()
///     });
///     patient.cancel_for(Reason::Custom("the user has left"));
///     assert_eq!(group.next().await, Some(Some(Reason::Custom("the user has left"))));
///     assert!(patient.is_finished() && !group.is_cancelled());
///     patient.cancel(); // Without effect.
/// }));
/// sync_wait(task).unwrap();
/// ```
#[derive(Clone)]
pub struct ChildHandle(Arc<ChildStop>);

impl ChildHandle {
    /// Cancels the child. Neither the group nor the other children are affected.
    ///
    /// A cancelled child that stops has no value: [`next`](super::TaskGroup::next) skips it, and
    /// [`next_ended`](super::TaskGroup::next_ended) returns [`TaskError::Cancelled`](crate::task::TaskError::Cancelled). If it still
    /// returns a value, that is its result. After the child has ended, this has no effect.
    pub fn cancel(&self) {
        self.cancel_for(Reason::Requested);
    }

    /// Cancels the child with a reason, which it [can read](crate::task::cancellation_reason).
    pub fn cancel_for(&self, reason: Reason) {
        if !self.is_finished() {
            self.0.relay.request_stop(reason.into()).unwrap_or_default().run();
        }
    }

    /// Returns whether the child was cancelled while it ran, alone or with its group.
    pub fn is_cancelled(&self) -> bool {
        self.cancellation_reason().is_some()
    }

    /// Returns why the child was cancelled, or `None` if it was not.
    pub fn cancellation_reason(&self) -> Option<Reason> {
        self.0.relay.registry().why().map(Reason::from)
    }

    /// Returns whether the child has ended, or was refused.
    pub fn is_finished(&self) -> bool {
        self.0.has_ended.load(Acquire)
    }
}

impl PartialEq for ChildHandle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ChildHandle {}

impl Hash for ChildHandle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl fmt::Debug for ChildHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildHandle")
            .field("is_finished", &self.is_finished())
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// The stop source of one child, linked to that of its group.
struct ChildStop {
    relay: Relay,
    /// The group whose stop is passed on. Set by `link`, taken by `over`: the outer source of the relay is valid until then.
    group: Mutex<Option<GroupRef>>,
    /// Whether the child has ended, or was refused. Set with release by the party that ends or drops the child's `OwnStop`. Pairs with
    /// the acquire load of a handle, which then sees what the child did.
    has_ended: AtomicBool,
}

impl ChildStop {
    /// Handles the end of the relay: releases the group, and the reference of the link.
    ///
    /// # Safety
    ///
    /// `relay` is that of a `ChildStop` which was linked. Called once.
    unsafe fn over(relay: NonNull<Relay>) -> Transfer {
        // SAFETY: the caller's promise: `link` has left a reference for this call, and the pointer is derived from that of the `Arc`.
        let stop = unsafe { Arc::from_raw(container_of!(relay, ChildStop, relay).as_ptr().cast_const()) };
        // The last reference to a group runs user code, so it is released without the lock.
        let group = lock(&stop.group).take();
        drop(group);
        Transfer::none()
    }
}

/// The child's reference to its stop source. It marks the child as ended when it is dropped.
#[allow(unreachable_pub, reason = "it is in the sealed trait `SpawnHandle`")]
pub struct OwnStop {
    stop: Arc<ChildStop>,
    /// Whether the relay is linked and has not ended.
    is_linked: Cell<bool>,
}

impl OwnStop {
    fn relay(&self) -> NonNull<Relay> {
        // SAFETY: the pointer is that of an `Arc`, and so not null. It is derived from the whole allocation.
        unsafe { NonNull::new_unchecked((&raw const (*Arc::as_ptr(&self.stop)).relay).cast_mut()) }
    }

    /// Links the stop source to that of the group. Returns its token.
    ///
    /// # Safety
    ///
    /// Called once, and [`end`](OwnStop::end) is called afterwards. The group has a reference, and the pointer is to the whole group.
    /// The token is not used after this is dropped.
    pub(super) unsafe fn link(&self, group: NonNull<GroupCore>) -> ErasedStopToken {
        // SAFETY: the caller's promise. The relay is pinned in its `Arc`. Its outer source is valid until `over`, which takes the
        // reference to the group, and the reference of the link. The relay is alive as long as this.
        unsafe {
            let group = GroupRef::of(group);
            let outer = group.relay.token();
            *lock(&self.stop.group) = Some(group);
            mem::forget(self.stop.clone());
            self.is_linked.set(true);
            Relay::link(self.relay(), outer);
            self.stop.relay.token()
        }
    }

    /// Ends the stop source, if it was linked: the child is done, or was not started.
    pub(in crate::task::children) fn end(&self) {
        self.stop.has_ended.store(true, Release);
        if self.is_linked.replace(false) {
            // SAFETY: `link` has linked the relay, and the flag lets one call end it. This reference keeps the relay alive.
            unsafe { Relay::end(self.relay()) }.run();
        }
    }
}

crate::opaque!([] OwnStop);

impl Drop for OwnStop {
    fn drop(&mut self) {
        self.end();
    }
}

/// What spawning with [options](crate::task::SpawnOptions) returns: nothing, or the [`ChildHandle`] of a
/// [cancellable](crate::task::SpawnOptions::cancellable) child.
pub trait SpawnHandle: private::SealedHandle {}

impl SpawnHandle for () {}
impl SpawnHandle for ChildHandle {}

/// Sealed: the kinds of handles are fixed.
mod private {
    use super::{Arc, AtomicBool, Cell, ChildHandle, ChildStop, Mutex, OwnStop, Relay, RelayOwner};

    pub trait SealedHandle: Sized {
        /// Creates the handle of a child, and the stop source that the child has for it.
        fn begin() -> (Option<OwnStop>, Self);
    }

    impl SealedHandle for () {
        fn begin() -> (Option<OwnStop>, Self) {
            (None, ())
        }
    }

    impl SealedHandle for ChildHandle {
        fn begin() -> (Option<OwnStop>, Self) {
            let stop = Arc::new(ChildStop {
                relay: Relay::new(&RelayOwner {
                    over: ChildStop::over,
                    reach_unlisted: None,
                }),
                group: Mutex::new(None),
                has_ended: AtomicBool::new(false),
            });
            let own = OwnStop {
                stop: stop.clone(),
                is_linked: Cell::new(false),
            };
            (Some(own), ChildHandle(stop))
        }
    }
}
