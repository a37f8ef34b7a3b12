//! What a group is behind its handles: its children, and who waits for them.

use core::alloc::Layout;
use core::cell::Cell;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::task::Waker;

use allocator_api2::alloc::Allocator;

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

/// What all handles of a group, and its children, point at.
///
/// # Who keeps it
///
/// `count` counts the handles; the tether to the frame; the link to the token of the task, until that is over; and one for all
/// children together, from the time when the group was closed with some of them running until the last has ended. While it is
/// open, the handle of what runs the body keeps it.
pub(super) struct GroupCore {
    pub(super) count: Count,
    /// What stops the children. It is linked to the task's token.
    pub(super) relay: Relay,
    /// Ties the group to its frame, while `is_tied`. Belongs to the thread that polls the frame.
    pub(super) tether: Cell<Option<NonNull<Tether<GroupCore>>>>,
    /// The frame has not begun to end, and the group is to be ended with it. Cleared, with a swap that acquires and releases, by
    /// the future of the group when that has come to its end, or by the frame in its end.
    pub(super) is_tied: AtomicBool,
    pub(super) counted: Counted,
    /// That of the children.
    pub(super) context: Context,
    /// The task-local values that they see.
    pub(super) locals: Locals,
    /// The frame that the group is in, which is not done before the children are. None outside of a task.
    pub(super) frame: Option<NonNull<Header>>,
    /// The strand of that frame, or null.
    pub(super) unit: *const Unit,
    /// The token that the relay is linked to.
    pub(super) outer: ErasedStopToken,
    /// The scope in the frame that the group is in, which that token may be of. It is not over before the link is.
    pub(super) scope: Option<NonNull<ContextScope>>,
    pub(super) policy: Policy,
    /// Has the children raised with the task. In the list of that until no child runs any more: the last one that ends takes
    /// it out, or who finds that there is none.
    pub(super) link: Link,
    /// The lowest level that a child may have, as a number. Whoever waits at a higher one raises them. Lowered under the lock,
    /// by who spawns, and raised by who raises; it only decides who asks for the lock.
    pub(super) lowest: AtomicU8,
    /// A child has panicked since the body last began to wait for that; its panic may have been taken. Stored under the lock, and
    /// loaded without it by the thread that polls the body, which the thread that sets it wakes.
    pub(super) has_panic: AtomicBool,
    /// Locked for a few instructions, and never while anything of the user's runs. A child that has ended uses nothing of the
    /// group after it unlocked this, unless it was the last of one that is closed.
    pub(super) state: SpinLock<GroupState>,
}

// SAFETY: the state is touched under the lock alone; in there are frames and values that are `Send`. The rest does not
// change, or is made of atomics.
unsafe impl Send for GroupCore {}
// SAFETY: as above.
unsafe impl Sync for GroupCore {}

/// A counted pointer to a group.
pub(super) struct GroupRef(pub(super) NonNull<GroupCore>);

// SAFETY: the core is `Sync`, and dropped by whoever is last.
unsafe impl Send for GroupRef {}
// SAFETY: as above.
unsafe impl Sync for GroupRef {}

impl Deref for GroupRef {
    type Target = GroupCore;

    #[inline]
    fn deref(&self) -> &GroupCore {
        // SAFETY: it is counted.
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
        // SAFETY: it is counted, and not used any more.
        unsafe { GroupCore::release(self.0) };
    }
}

impl PartialEq for GroupRef {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// Puts a group into memory that threads keep.
fn cached(core: GroupCore) -> NonNull<GroupCore> {
    let layout = Layout::new::<GroupCore>();
    let Ok(memory) = Cached.allocate(layout) else {
        // As everywhere where there is nobody to be told.
        std::alloc::handle_alloc_error(layout);
    };
    let place = memory.cast::<GroupCore>();
    // SAFETY: there is room for it.
    unsafe { place.write(core) };
    place
}

impl GroupRef {
    pub(super) fn as_ptr(&self) -> NonNull<GroupCore> {
        self.0
    }

    /// A group of the frame that this thread polls, or of none.
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
        let core = cached(GroupCore {
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
        });
        // SAFETY: nobody else knows it yet. What is linked is unlinked before it goes; the source outside is there until
        // then: the frame, or the scope in it, has this leave before.
        unsafe {
            let place = core.as_ptr();
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
                // The handle that is returned, the tether, and the link to the token.
                (*place).count.add();
                (*place).count.add();
                Relay::link(NonNull::new_unchecked(&raw mut (*place).relay), outer);
                Counted::link(NonNull::new_unchecked(&raw mut (*place).counted), polling.unit());
                Link::enter(NonNull::new_unchecked(&raw mut (*place).link), polling.frame());
                // What comes after that is told.
                (*place).context.placement.priority = polling.level();
            }
            let level = (*place).context.priority().unwrap_or_default();
            (*place).lowest.fetch_max(level as u8, Relaxed);
        }
        GroupRef(core)
    }
}

impl GroupCore {
    /// How many children run.
    ///
    /// # Safety
    ///
    /// The node is that of a group, which is linked.
    unsafe fn running(node: NonNull<Counted>) -> usize {
        // SAFETY: a group that is linked is alive.
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
    /// The caller gives back a count, and does not use the group any more.
    pub(super) unsafe fn release(this: NonNull<GroupCore>) {
        // SAFETY: the caller has a count.
        if unsafe { this.as_ref() }.count.release() {
            // SAFETY: that was the last, and it was made there.
            unsafe {
                this.drop_in_place();
                Cached.deallocate(this.cast(), Layout::new::<GroupCore>());
            }
        }
    }

    /// Stops the children, and refuses others.
    pub(super) fn cancel(&self, why: Why) -> Transfer {
        self.relay.request_stop(why).unwrap_or_default()
    }

    /// The same, because the body was left with a failure.
    pub(super) fn cancel_left(&self) -> Transfer {
        self.cancel(Why::SCOPE_LEFT)
    }

    pub(super) fn limit(&self) -> usize {
        self.lock().limit
    }

    pub(super) fn why(&self) -> Option<Why> {
        self.relay.registry().why()
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.relay.stop_requested()
    }

    /// Whether a stop of that context's token reaches the children.
    pub(super) fn is_reached_from(&self, context: &Context) -> bool {
        self.outer.stop_possible() && self.outer.is_same(&context.token)
    }

    pub(super) fn is_frame(&self, frame: Option<NonNull<Header>>) -> bool {
        frame.is_some() && self.frame == frame
    }

    /// Whether the stop that reaches the children from outside was requested.
    pub(super) fn is_stopped_from_outside(&self) -> bool {
        self.outer.stop_requested()
    }

    /// How many have not ended, and of how many the result was not taken.
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

    /// The token that stops the children.
    ///
    /// # Safety
    ///
    /// It is not used once the group is gone.
    pub(super) unsafe fn token(&self) -> ErasedStopToken {
        // SAFETY: the caller's promise.
        unsafe { self.relay.token() }
    }
}

impl Drop for GroupCore {
    fn drop(&mut self) {
        release_all(self.lock().take_finished());
    }
}

impl GroupRef {
    /// Stops what waits for results in a scope of the frame that was stopped, where that does not stop the children.
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

    /// Whether this is the group of the frame that this thread polls.
    pub(super) fn is_here(&self) -> bool {
        // A frame that is gone has ended its groups: another at its address is not taken for it.
        self.is_tied.load(Acquire) && self.frame == Header::current()
    }

    /// Whether a frame is woken when all have ended.
    pub(super) fn has_frame(&self) -> bool {
        self.frame.is_some()
    }
}
