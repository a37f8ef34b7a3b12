//! The shared part of a group, behind its handles: its children and their waiters.

use core::cell::Cell;
use core::ptr::{self, NonNull};
use core::task::Waker;

use allocator_api2::boxed::Box;

use super::inbox::Inbox;
use super::results::Policy;
use super::state::{GroupState, Settled};
use crate::memory::{self, Cached, Count, Shared};
use crate::sender::stage::container_of;
use crate::stop::{StopToken, Why};
use crate::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{Acquire, Relaxed},
};
use crate::sync::{SpinGuard, SpinLock};
use crate::task::children::branch::Branch;
use crate::task::frame::{Header, Polling, Stopping};
use crate::task::strand::{BATCH, Batch, Context, Counted, Link, Locals, Raising, Tether, ToRaise};
use crate::{Priority, Transfer};

/// The object that all handles of a group and its children point at.
///
/// # References
///
/// `count` has one reference for each handle, one for the tether to the frame, and one for the link to the task's token. A closed
/// group has one for all running children together. While the group is open, the handle of the body's future keeps it alive.
pub(super) struct GroupCore {
    pub(super) count: Count,
    pub(super) branch: Branch,
    /// Ties the group to its frame, while `is_tied`. Accessed by the thread that polls the frame.
    pub(super) tether: Cell<Option<NonNull<Tether<GroupCore>>>>,
    /// Whether the frame is still to end the group. Cleared by a swap with `AcqRel`, of the group's future or of the ending frame.
    /// The two swaps pair with each other, and with the acquire load in `is_here`.
    pub(super) is_tied: AtomicBool,
    pub(super) policy: Policy,
    /// A lower bound of the children's levels, as a number. Written with `Relaxed` under the lock: lowered by a spawn, increased by a
    /// raise. Read without the lock, only to decide whether a waiter takes it to raise the children.
    pub(super) lowest: AtomicU8,
    /// Whether the body waits for something else than its children, and is to be ended by a child's panic. The frame counts an await
    /// for this, which the clearing thread ends. Written under the lock: set with `Relaxed` by the polling thread, cleared with
    /// release. The polling thread's load without the lock acquires.
    pub(super) body_waits: AtomicBool,
    /// The ended children that no thread has seen.
    pub(super) inbox: Inbox,
    /// Held for a few instructions, and never while user code runs. After its unlock an ended child uses nothing of the group,
    /// unless it was the last of a closed one.
    pub(super) state: SpinLock<GroupState>,
}

/// A reference to a group.
pub(super) type GroupRef = Shared<GroupCore>;

// SAFETY: the last reference frees the box. The state is lock-protected, and its frames and values are `Send`. The rest is immutable
// or atomic.
unsafe impl memory::Counted for GroupCore {
    fn count(&self) -> &Count {
        &self.count
    }

    unsafe fn free(this: NonNull<Self>) {
        // SAFETY: the caller's promise; `open_in` created the box.
        drop(unsafe { Box::from_raw_in(this.as_ptr(), Cached) });
    }
}

impl GroupRef {
    /// Opens a group of the frame that this thread polls, or of none.
    pub(super) fn open(policy: Policy) -> GroupRef {
        Polling::with(|polling| Self::open_in(policy, polling))
    }

    fn open_in(policy: Policy, polling: Option<Polling<'_>>) -> GroupRef {
        let (over, locals) = (GroupCore::relay_over, Locals::current());
        let running = |node: NonNull<Counted>| {
            // SAFETY: the node is that of a group, which is alive while the node is linked.
            let core = unsafe { container_of!(container_of!(node, Branch, counted), GroupCore, branch).as_ref() };
            core.lock().running
        };
        let hold = |link: NonNull<Link>| {
            // SAFETY: the link is that of a group, which is alive while the link is listed.
            let core = unsafe { GroupRef::of(container_of!(container_of!(link, Branch, link), GroupCore, branch)) };
            Some(ToRaise {
                what: core.into_raw().cast(),
                // SAFETY: this is the reference that was added, released after the raise.
                raise: |what, level, raising| unsafe { GroupRef::from_raw(what.cast()) }.raise(level, raising),
            })
        };
        let core = GroupCore {
            count: Count::one(),
            branch: Branch::new(polling, locals, over, running, hold),
            tether: Cell::new(None),
            is_tied: AtomicBool::new(false),
            policy,
            lowest: AtomicU8::new(0),
            body_waits: AtomicBool::new(false),
            inbox: Inbox::new(policy.discards),
            state: SpinLock::new(GroupState::new(polling.map(Polling::frame))),
        };
        let (core, _) = Box::into_non_null(Box::new_in(core, Cached));
        // SAFETY: the group is new, and has its address. `unlink`, and `end` or the last child, remove the links before its end.
        unsafe {
            let place = core.as_ptr();
            let branch = NonNull::new_unchecked(&raw mut (*place).branch);
            Branch::pin(branch);
            if let Some(polling) = polling {
                match Tether::tie(core, polling) {
                    Ok(tether) => (*place).tether.set(Some(tether)),
                    Err(error) => {
                        drop(GroupRef::from_raw(core));
                        panic!("cannot open a group: {error}");
                    }
                }
                (*place).is_tied.store(true, Relaxed);
                // References for the returned handle, the tether, and the link to the token.
                (*place).count.add();
                (*place).count.add();
                Branch::link(branch, polling);
                // Read after the link is listed, which tells later raises.
                (*place).branch.context.placement.priority = polling.level();
            }
            let level = (*place).branch.context.placement.priority.unwrap_or_default();
            (*place).lowest.store(level as u8, Relaxed);
            GroupRef::from_raw(core)
        }
    }
}

impl GroupCore {
    /// Locks the group, and takes the children from the inbox.
    #[inline]
    pub(super) fn lock(&self) -> SpinGuard<'_, GroupState> {
        let mut lock = self.state.lock();
        self.inbox.drain(&mut lock);
        lock
    }

    /// Locks the group, and makes children end under the lock until the frame waits again.
    pub(super) fn lock_closed(&self) -> SpinGuard<'_, GroupState> {
        let mut lock = self.state.lock();
        self.inbox.close(&mut lock);
        lock
    }

    /// Stops the children, and refuses others.
    pub(super) fn cancel(&self, why: Why) -> Transfer {
        self.branch.relay.request_stop(why).unwrap_or_default()
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.branch.relay.stop_requested()
    }

    /// Returns whether a stop of that context's token reaches the children.
    pub(super) fn is_reached_from(&self, context: &Context) -> bool {
        self.branch.outer.stop_possible() && self.branch.outer.is_same(&context.token)
    }

    pub(super) fn is_frame(&self, frame: Option<NonNull<Header>>) -> bool {
        frame.is_some() && self.branch.frame == frame
    }

    /// Returns the number of running children, and of results that were not taken.
    pub(super) fn counts(&self) -> (usize, usize) {
        let lock = self.lock();
        (lock.running, lock.finished)
    }

    pub(super) fn set_limit(&self, limit: usize) {
        let mut settled = Settled::default();
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
        self.is_tied.load(Acquire) && self.branch.frame == Header::current()
    }
}

impl GroupCore {
    /// Raises all children to at least `level`, later ones included.
    fn raise(&self, level: Priority, raising: &mut Raising) {
        let mut lock = self.state.lock();
        if lock.floor >= Some(level) {
            return;
        }
        lock.floor = Some(level);
        self.lowest.fetch_max(level as u8, Relaxed);
        // A raise in progress on another thread shares the position from here on, and the level.
        lock.to_raise = lock.children.first().map_or(ptr::null_mut(), NonNull::as_ptr);
        lock.links_left = false;
        while let Some(level) = lock.floor
            && !lock.to_raise.is_null()
        {
            let mut batch = Batch::default();
            for _ in 0..BATCH {
                let Some(child) = NonNull::new(lock.to_raise).map(NonNull::cast) else {
                    break;
                };
                // SAFETY: the child is listed, and so alive under the lock.
                let all = unsafe {
                    if lock.links_left {
                        Raising::links(Header::unit(child).as_ref(), level, &mut batch)
                    } else {
                        raising.frames(child, level, &mut batch)
                    }
                };
                if !all {
                    lock.links_left = true;
                    break;
                }
                lock.raise_next();
            }
            // `keep` allocates, so it needs the unlock. Children may end meanwhile.
            drop(lock);
            raising.keep(&mut batch, level);
            lock = self.state.lock();
        }
    }

    /// Raises the children to the level of a party that waits for them.
    pub(super) fn wanted_at(&self, level: Priority) {
        if self.lowest.load(Relaxed) < level as u8 {
            let mut raising = Raising::default();
            self.raise(level, &mut raising);
            raising.finish();
        }
    }
}
