//! The shared part of a group, behind its handles: its children and their waiters.

use core::cell::Cell;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::task::Waker;

use allocator_api2::boxed::Box;

use super::policy::Policy;
use super::results::release_all;
use super::state::{GroupState, Settled};
use crate::Transfer;
use crate::memory::{Cached, Count};
use crate::sender::stage::container_of;
use crate::stop::{ErasedStopToken, Relay, StopToken, Why};
use crate::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{Acquire, Relaxed},
};
use crate::sync::{SpinGuard, SpinLock};
use crate::task::frame::{ContextScope, Header, Home, Polling, Stopping};
use crate::task::strand::{Awaiter, Context, Counted, Link, Locals, Tether, Unit};

/// The object that all handles of a group and its children point at.
///
/// # References
///
/// `count` has one reference for each handle, one for the tether to the frame, and one for the link to the task's token. A closed
/// group has one for all running children together. While the group is open, the handle of the body's future keeps it alive.
pub(super) struct GroupCore {
    pub(super) count: Count,
    /// Stops the children. Linked to the task's token.
    pub(super) relay: Relay,
    /// Ties the group to its frame, while `is_tied`. Accessed by the thread that polls the frame.
    pub(super) tether: Cell<Option<NonNull<Tether<GroupCore>>>>,
    /// Whether the frame is still to end the group. Cleared by a swap with `AcqRel`, of the group's future or of the ending frame.
    /// The two swaps pair with each other, and with the acquire load in `is_here`.
    pub(super) is_tied: AtomicBool,
    pub(super) counted: Counted,
    /// The context of the children.
    pub(super) context: Context,
    /// The task-local values that the children see.
    pub(super) locals: Locals,
    /// The group's frame, which is not done before the children are. `None` outside of a task.
    pub(super) frame: Option<NonNull<Header>>,
    /// The strand of that frame, or null.
    pub(super) unit: *const Unit,
    /// The token that the relay is linked to.
    pub(super) outer: ErasedStopToken,
    /// The scope of the frame that the group is in, to which that token may belong. It ends after the link.
    pub(super) scope: Option<NonNull<ContextScope>>,
    pub(super) policy: Policy,
    /// Raises the children with the task. Listed until no child runs: removed by the last one that ends, or by the party that
    /// finds none.
    pub(super) link: Link,
    /// A lower bound of the children's levels, as a number. Written with `Relaxed` under the lock: lowered by a spawn, increased by a
    /// raise. Read without the lock, only to decide whether a waiter takes it to raise the children.
    pub(super) lowest: AtomicU8,
    /// Whether a child has panicked since the body last began to wait; the panic may have been taken. Set with release under the
    /// lock by the end of the child, which then wakes the body. Pairs with the acquire load of the polling thread, which clears it
    /// under the lock.
    pub(super) has_panic: AtomicBool,
    /// Held for a few instructions, and never while user code runs. After its unlock an ended child uses nothing of the group,
    /// unless it was the last of a closed one.
    pub(super) state: SpinLock<GroupState>,
}

// SAFETY: the state is lock-protected, and its frames and values are `Send`. The rest is immutable or atomic.
unsafe impl Send for GroupCore {}
// SAFETY: as for `Send`.
unsafe impl Sync for GroupCore {}

/// A reference to a group.
pub(super) struct GroupRef(pub(super) NonNull<GroupCore>);

// SAFETY: the core is `Sync`, and dropped by the last reference on any thread.
unsafe impl Send for GroupRef {}
// SAFETY: as for `Send`.
unsafe impl Sync for GroupRef {}

impl Deref for GroupRef {
    type Target = GroupCore;

    #[inline]
    fn deref(&self) -> &GroupCore {
        // SAFETY: this is a reference, so the core is alive.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for GroupRef {
    fn clone(&self) -> Self {
        self.count.add();
        GroupRef(self.0)
    }
}

impl Drop for GroupRef {
    fn drop(&mut self) {
        // SAFETY: this is a reference, and not used afterwards.
        unsafe { GroupCore::release(self.0) };
    }
}

impl PartialEq for GroupRef {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl GroupRef {
    /// Opens a group of the frame that this thread polls, or of none.
    pub(super) fn open(policy: Policy) -> GroupRef {
        Polling::with(|polling| Self::open_in(policy, polling))
    }

    fn open_in(policy: Policy, polling: Option<Polling<'_>>) -> GroupRef {
        let frame = polling.map(Polling::frame);
        let (context, scope, unit) = match polling {
            Some(polling) => {
                let here = polling.context();
                here.enter();
                (here.of_child(), here.scope(), ptr::from_ref(polling.unit()))
            }
            None => (Context::of_home(Home::global_pool()), None, ptr::null()),
        };
        let outer = context.token;
        let locals = Locals::current();
        let core = GroupCore {
            count: Count::one(),
            relay: Relay::new(GroupCore::relay_over),
            tether: Cell::new(None),
            is_tied: AtomicBool::new(false),
            counted: Counted::new(GroupCore::running),
            context,
            locals,
            frame,
            unit,
            outer,
            scope,
            policy,
            link: Link::new(GroupCore::hold),
            lowest: AtomicU8::new(0),
            has_panic: AtomicBool::new(false),
            state: SpinLock::new(GroupState::new(frame)),
        };
        let (core, _) = Box::into_non_null(Box::new_in(core, Cached));
        // SAFETY: the group is not shared yet. `unlink`, and `end` or the last child, remove the links before it is destroyed. The
        // outer source is alive until then: the frame, or the scope in it, ends the group first.
        unsafe {
            let place = core.as_ptr();
            // Pointers into the group itself, which has its address now.
            (*place).context.token = (*place).relay.token();
            (*place).context.locals = (*place).locals.as_raw();
            (*place).context.around = frame.map(|frame| Awaiter {
                frame,
                context: NonNull::new_unchecked(&raw mut (*place).context),
            });
            if let Some(polling) = polling {
                match Tether::tie(core, polling) {
                    Ok(tether) => (*place).tether.set(Some(tether)),
                    Err(error) => {
                        if let Some(scope) = scope {
                            scope.as_ref().exit();
                        }
                        drop(GroupRef(core));
                        panic!("cannot open a group: {error}");
                    }
                }
                (*place).is_tied.store(true, Relaxed);
                // References for the returned handle, the tether, and the link to the token.
                (*place).count.add();
                (*place).count.add();
                Relay::link(NonNull::new_unchecked(&raw mut (*place).relay), outer);
                Counted::link(NonNull::new_unchecked(&raw mut (*place).counted), polling.unit());
                Link::enter(NonNull::new_unchecked(&raw mut (*place).link), polling.frame());
                // Read after the link is listed, which tells later raises.
                (*place).context.placement.priority = polling.level();
            }
            let level = (*place).context.priority().unwrap_or_default();
            (*place).lowest.fetch_max(level as u8, Relaxed);
        }
        GroupRef(core)
    }
}

impl GroupCore {
    /// # Safety
    ///
    /// `node` is that of a group, and linked.
    unsafe fn running(node: NonNull<Counted>) -> usize {
        // SAFETY: the caller's promise. `unlink` precedes the release of the link's reference.
        unsafe { container_of!(node, GroupCore, counted).as_ref() }
            .lock()
            .running
    }

    #[inline]
    pub(super) fn lock(&self) -> SpinGuard<'_, GroupState> {
        self.state.lock()
    }

    /// # Safety
    ///
    /// The caller owns a reference, which this releases, and does not use the group afterwards.
    pub(super) unsafe fn release(this: NonNull<GroupCore>) {
        // SAFETY: the caller owns a reference.
        if unsafe { this.as_ref() }.count.release() {
            // SAFETY: that was the last reference, and `open_in` created the box.
            drop(unsafe { Box::from_raw_in(this.as_ptr(), Cached) });
        }
    }

    /// Stops the children, and refuses others.
    pub(super) fn cancel(&self, why: Why) -> Transfer {
        self.relay.request_stop(why).unwrap_or_default()
    }

    pub(super) fn limit(&self) -> usize {
        self.lock().limit
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.relay.stop_requested()
    }

    /// Returns whether a stop of that context's token reaches the children.
    pub(super) fn is_reached_from(&self, context: &Context) -> bool {
        self.outer.stop_possible() && self.outer.is_same(&context.token)
    }

    pub(super) fn is_frame(&self, frame: Option<NonNull<Header>>) -> bool {
        frame.is_some() && self.frame == frame
    }

    /// Returns the number of running children, and of results that were not taken.
    pub(super) fn counts(&self) -> (usize, usize) {
        let lock = self.lock();
        (lock.running, lock.finished)
    }

    pub(super) fn set_limit(&self, limit: usize) {
        let mut settled = Settled::new();
        let mut lock = self.lock();
        lock.limit = limit;
        lock.grant_room(&mut settled);
        if limit == 0 {
            lock.refuse_room(&mut settled);
        }
        drop(lock);
        settled.complete().run();
    }
}

impl Drop for GroupCore {
    fn drop(&mut self) {
        release_all(self.lock().take_finished());
    }
}

impl GroupRef {
    /// Stops a wait for results in a stopped scope of the frame, if that scope's stop does not reach the children.
    pub(super) fn stop_with_scope(&self, waker: &Waker) {
        Polling::with(|polling| {
            if let Some(polling) = polling
                && polling.context().token.stop_requested()
                && !self.is_reached_from(polling.context())
            {
                Stopping::stop(polling, waker);
            }
        });
    }

    /// Returns whether this thread polls the group's frame.
    pub(super) fn is_here(&self) -> bool {
        // An ending frame unties its groups, so a later frame at its address is not mistaken for it.
        self.is_tied.load(Acquire) && self.frame == Header::current()
    }

    /// Returns whether the group is in a task, whose frame is woken when all have ended.
    pub(super) fn has_frame(&self) -> bool {
        self.frame.is_some()
    }
}
