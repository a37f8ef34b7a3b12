//! The shared part of a group, behind its handles: its children and their waiters.

use core::cell::Cell;
use core::iter;
use core::mem;
use core::ptr::{self, NonNull};
use core::task::Waker;

use allocator_api2::boxed::Box;

use super::inbox::Inbox;
use super::results::Policy;
use super::state::{GroupState, Settled};
use crate::memory::{self, Cached, Count, OutOfMemoryError, Shared};
use crate::scheduler::thread_pool::{Biased, BiasedGuard, without_interrupts};
use crate::sender::stage::container_of;
use crate::sender::unwind::AbortOnUnwind;
use crate::stop::{ErasedStopToken, Relay, RelayOwner, StopToken, Why};
use crate::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{Acquire, Relaxed},
};
use crate::task::frame::{ContextScope, Header, Home, Polling, Stopping, WokenFrame};
use crate::task::strand::{
    Awaiter, BATCH, Batch, Context, Counted, Link, Locals, Raising, Tether, ToRaise, current_level,
};
use crate::{Priority, Transfer};

/// The object that all handles of a group and its children point at.
///
/// # References
///
/// `count` has one reference for each handle, one for the tether to the frame, and one for the link to the task's token. A closed
/// group has one for all running children together. While the group is open, the handle of the body's future keeps it alive, or the
/// claim of a single child.
pub(super) struct GroupCore {
    pub(super) count: Count,
    /// The frame that the group is in, if it is that of a [single child](super::solo). Written before the group is shared.
    pub(super) single: Option<NonNull<Header>>,
    /// Stops the children. Linked to `outer`, if there is a frame.
    pub(super) relay: Relay,
    /// Raises the children with the frame. Listed until they have ended.
    pub(super) link: Link,
    /// Counts the children with the strand of the frame.
    pub(super) counted: Counted,
    /// The context of the children. Its token, locals and place are pointers into the group.
    pub(super) context: Context,
    /// The task-local values that the children inherit.
    pub(super) locals: Cell<Locals>,
    /// The frame, which is not done before the children are. `None` outside of a task.
    pub(super) frame: Option<NonNull<Header>>,
    /// The scope of the frame that the group is in. `outer` may belong to it, so it ends after the relay's link.
    pub(super) scope: Option<NonNull<ContextScope>>,
    /// The token that the relay is linked to. Only compared once the link is over.
    pub(super) outer: ErasedStopToken,
    /// The outermost token whose stop reaches a single child: the parent's, unless there is a shield between. Only compared.
    pub(super) reaching: ErasedStopToken,
    /// Ties the group to its frame, while `is_tied`. Accessed by the thread that polls the frame, or under the lock by the claim of a
    /// single child.
    pub(super) tether: Cell<Option<NonNull<Tether<GroupCore>>>>,
    /// Whether the frame is still to end the group. Cleared with release by the thread that polls the frame: for the group's future, for
    /// a claim that has loosened the tether, or at the end of the frame. It then locks the group, before it frees the tether. Pairs
    /// with the acquire loads in `is_here` and `loosen`.
    pub(super) is_tied: AtomicBool,
    pub(super) policy: Policy,
    /// A lower bound of the children's levels, as a number. Written with `Relaxed` under the lock: lowered by a spawn, increased by a
    /// raise. Read without the lock, only to decide whether a waiter takes it to raise the children.
    pub(super) lowest: AtomicU8,
    /// How many children the frame spawned before it began to wait for one. Written with relaxed ordering by the polling thread. A hint
    /// for the child that wakes the frame.
    pub(super) spawned: AtomicU8,
    /// Whether the body waits for something else than its children, and is to be ended by a child's panic. The frame counts an await
    /// for this, which the clearing thread ends. Written under the lock: set with `Relaxed` by the polling thread, cleared with
    /// release. The polling thread's load without the lock acquires.
    pub(super) body_waits: AtomicBool,
    /// The ended children that no thread has seen.
    pub(super) inbox: Inbox,
    /// Held for a few instructions, and never while user code runs. After its unlock an ended child uses nothing of the group,
    /// unless it was the last of a closed one. The owner is the thread that polls the frame.
    state: Biased<GroupState>,
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
        // SAFETY: the caller's promise; `open_in` created the box. A group inside a frame has one reference to that.
        unsafe {
            match this.as_ref().single {
                Some(frame) => Header::release(frame),
                None => drop(Box::from_raw_in(this.as_ptr(), Cached)),
            }
        }
    }
}

impl GroupRef {
    /// Opens a group of the frame that this thread polls, or of none. Returns a reference for the group's future, and one for its body.
    pub(super) fn open(policy: Policy) -> (GroupRef, GroupRef) {
        Polling::with(|polling| Self::open_in(policy, polling))
    }

    fn open_in(policy: Policy, polling: Option<Polling<'_>>) -> (GroupRef, GroupRef) {
        let mut core = GroupCore::new(policy, polling, Locals::current());
        core.count.add_unshared(1);
        let (core, _) = Box::into_non_null(Box::new_in(core, Cached));
        // SAFETY: the group is new, and has its address. `end`, or the frame, ends it.
        unsafe {
            GroupCore::pin(core);
            let tied = GroupCore::tie(core, polling);
            let references = (GroupRef::from_raw(core), GroupRef::from_raw(core));
            if let Err(error) = tied {
                panic!("cannot open a group: {error}");
            }
            references
        }
    }

    /// Returns a reference to the children, to be raised.
    pub(super) fn raisable(self) -> ToRaise {
        ToRaise {
            what: self.into_raw().cast(),
            // SAFETY: this is the reference that was passed, released after the raise.
            raise: |what, level, raising| unsafe { GroupRef::from_raw(what.cast()) }.raise(level, raising),
        }
    }
}

impl GroupCore {
    /// Creates a group of a frame that this thread polls, or of none.
    #[inline]
    pub(super) fn new(policy: Policy, polling: Option<Polling<'_>>, locals: Locals) -> Self {
        let running = |node: NonNull<Counted>| {
            // SAFETY: the node is that of a group, which is alive while the node is linked.
            unsafe { container_of!(node, GroupCore, counted).as_ref() }
                .lock()
                .running
        };
        let hold = |link: NonNull<Link>| {
            // SAFETY: the link is that of a group, which is alive while the link is listed.
            let core = unsafe { GroupRef::of(container_of!(link, GroupCore, link)) };
            Some(core.raisable())
        };
        let (context, scope) = match polling {
            Some(polling) => {
                let here = polling.context();
                (here.of_child(), here.scope)
            }
            None => (Context::of_home(Home::global_pool()), None),
        };
        // Children that are discarded end under the lock, so it has no bias then.
        let biased = polling.is_some() && !policy.discards && context.home.is_light();
        GroupCore {
            count: Count::one(),
            single: None,
            relay: Relay::new(&RelayOwner {
                over: GroupCore::relay_over,
                reach_unlisted: Some(GroupCore::reach_unlisted),
            }),
            link: Link::new(hold),
            counted: Counted::new(running),
            outer: context.token,
            context: Context {
                locals: locals.as_raw(),
                ..context
            },
            locals: Cell::new(locals),
            frame: polling.map(Polling::frame),
            scope,
            reaching: ErasedStopToken::NEVER,
            tether: Cell::new(None),
            is_tied: AtomicBool::new(false),
            policy,
            lowest: AtomicU8::new(0),
            spawned: AtomicU8::new(0),
            body_waits: AtomicBool::new(false),
            inbox: Inbox::new(policy.discards),
            state: Biased::opened(GroupState::new(polling.map(Polling::frame)), biased),
        }
    }

    /// Writes the pointers into the group itself.
    ///
    /// # Safety
    ///
    /// The group is new and not shared, and pinned from here on.
    #[inline]
    pub(super) unsafe fn pin(this: NonNull<GroupCore>) {
        let core = this.as_ptr();
        // SAFETY: the caller's promise. The context is used as long as the group, and so the relay, is alive.
        unsafe {
            (*core).context.token = (*core).relay.token();
            (*core).context.around = (*core).frame.map(|frame| Awaiter {
                frame,
                context: NonNull::new_unchecked(&raw mut (*core).context),
            });
        }
    }

    /// Ties a group to its frame, if any.
    ///
    /// # Errors
    ///
    /// The frame's allocator has no memory.
    ///
    /// # Safety
    ///
    /// The group is new and pinned, and not shared. If it is tied, [`end`](GroupRef::end) or the frame ends it.
    #[inline]
    pub(super) unsafe fn tie(this: NonNull<GroupCore>, polling: Option<Polling<'_>>) -> Result<(), OutOfMemoryError> {
        let place = this.as_ptr();
        // SAFETY: the caller's promise. `unlink`, and `end` or the last child, remove the links before the frame is done. The outer
        // source is alive as long as the frame, or the scope in it that is entered here, and that `unlinked` exits.
        unsafe {
            if let Some(polling) = polling {
                (*place).tether.set(Some(Tether::tie(this, polling)?));
                (*place).is_tied.store(true, Relaxed);
                // References for the tether and the link to the token, beside the caller's. No other thread knows the group yet.
                (*place).count.add_unshared(2);
                if let Some(scope) = (*place).scope {
                    scope.as_ref().enter_passively();
                }
                Link::enter(NonNull::new_unchecked(&raw mut (*place).link), polling.frame());
                Relay::link(NonNull::new_unchecked(&raw mut (*place).relay), (*place).outer);
                Counted::link(NonNull::new_unchecked(&raw mut (*place).counted), polling.unit());
                // Read after the link is listed, which tells later raises.
                (*place).context.placement.priority = polling.level();
            }
            let level = (*place).context.placement.priority.unwrap_or_default();
            (*place).lowest.store(level as u8, Relaxed);
        }
        Ok(())
    }
}

impl GroupCore {
    /// Locks the state alone.
    #[inline]
    pub(super) fn lock_state(&self) -> BiasedGuard<'_, GroupState> {
        if self.is_frame(Header::current()) {
            // SAFETY: this thread polls the frame, as one thread does at a time, and the frame's state orders these threads. A lock
            // of the group is held for no call that locks it.
            unsafe { self.state.as_owner() }
        } else {
            self.state.as_other()
        }
    }

    /// Locks the state alone, if this thread polls the frame and the lock is biased.
    #[inline]
    pub(super) fn lock_if_biased(&self) -> Option<BiasedGuard<'_, GroupState>> {
        match self.is_frame(Header::current()) {
            // SAFETY: as for `lock_state`.
            true => unsafe { self.state.as_owner_if_biased() },
            false => None,
        }
    }

    /// Locks the group, and takes the children from the inbox.
    #[inline]
    pub(super) fn lock(&self) -> BiasedGuard<'_, GroupState> {
        let mut lock = self.lock_state();
        self.inbox.drain(&mut lock);
        lock
    }

    /// Locks the group, and makes children end under the lock until the frame waits again.
    pub(super) fn lock_closed(&self) -> BiasedGuard<'_, GroupState> {
        self.lock_closed_by(self.is_frame(Header::current()))
    }

    /// Does what [`lock_closed`](GroupCore::lock_closed) does, for a caller that knows whether this thread polls the frame.
    pub(super) fn lock_closed_in(&self, polling: Option<Polling<'_>>) -> BiasedGuard<'_, GroupState> {
        self.lock_closed_by(self.is_frame(polling.map(Polling::frame)))
    }

    fn lock_closed_by(&self, owner: bool) -> BiasedGuard<'_, GroupState> {
        let mut lock = if owner {
            // SAFETY: as for `lock_state`. `Polling` proves that this thread polls the frame, also after the poll has left it.
            unsafe { self.state.as_owner_of_shared() }
        } else {
            self.state.as_other()
        };
        self.inbox.close(&mut lock);
        lock
    }

    /// Stops the children, and refuses others.
    pub(super) fn cancel(&self, why: Why) -> Transfer {
        let mut stopped = self.relay.request_stop(why);
        let mut unlisted = stopped.is_some() && self.relay.registry().has_unlisted();
        Transfer::collect(|| {
            let next = stopped.take();
            next.or_else(|| mem::take(&mut unlisted).then(|| self.stop_unlisted()))
        })
    }

    /// Passes the stop of the task on to the children that listen without an entry.
    ///
    /// # Safety
    ///
    /// `relay` is that of a group, and has not ended.
    unsafe fn reach_unlisted(relay: NonNull<Relay>) -> Transfer {
        // SAFETY: the caller's promise. The thread that passes the stop on keeps the group alive.
        unsafe { container_of!(relay, GroupCore, relay).as_ref() }.stop_unlisted()
    }

    /// Wakes the children that [listen without an entry](Header::listens_unlisted), after a stop of the group.
    ///
    /// A child sets its mark before it asks the source whether the stop was requested. So this finds the mark, or the child finds the
    /// request. Children that were spawned since do the latter.
    fn stop_unlisted(&self) -> Transfer {
        // Each frame that was made busy is to be queued.
        let guard = AbortOnUnwind::new();
        let mut lock = self.lock_state();
        lock.to_stop = lock.children.first().map_or(ptr::null_mut(), NonNull::as_ptr);
        drop(lock);
        let observed = Header::is_observed();
        let (mut waiting, mut left) = ([None; BATCH], 0);
        let resumed = Transfer::collect(|| {
            if left == 0 {
                let here = self.wake_unlisted(&mut waiting, &mut left, observed);
                // First those that only this stack can run: what is woken below may block on them.
                if !here.is_none() {
                    return Some(here);
                }
                mem::forget(here);
                if left == 0 {
                    return None;
                }
            }
            let mut next = || {
                left = left.checked_sub(1)?;
                // SAFETY: `wake_unlisted` left the frame to this call. Between the two, only an instrument runs code of a user.
                waiting[left]
                    .take()
                    .map(|frame| unsafe { Header::queue_woken(frame, observed) })
            };
            if observed {
                return next();
            }
            // Another thread may wait for the end of the batch, to raise one of its frames: reactors are interrupted after that.
            Some(without_interrupts(|| {
                iter::from_fn(next).fold(Transfer::none(), Transfer::and)
            }))
        });
        guard.defuse();
        resumed
    }

    /// Wakes the next children that listen without an entry. Returns those that run here, and stores the others, which the caller
    /// queues. Both are empty if there are none.
    fn wake_unlisted(
        &self,
        waiting: &mut [Option<NonNull<Header>>; BATCH],
        number: &mut usize,
        observed: bool,
    ) -> Transfer {
        let mut here = Transfer::none();
        while *number == 0 && here.is_none() {
            let mut lock = self.lock_state();
            for _ in 0..BATCH {
                let Some(child) = NonNull::new(lock.to_stop) else {
                    return here;
                };
                lock.stop_next();
                // SAFETY: the child is listed, and so alive under the lock.
                unsafe {
                    let child = child.cast::<Header>();
                    if !Header::listens_unlisted(child) {
                        continue;
                    }
                    match Header::wake_for_owner(child, observed) {
                        WokenFrame::Not => {}
                        WokenFrame::RunsHere(frame) => here.append(frame),
                        WokenFrame::Waits => {
                            waiting[*number] = Some(child);
                            *number += 1;
                        }
                    }
                }
            }
        }
        here
    }

    #[inline]
    pub(super) fn is_cancelled(&self) -> bool {
        self.relay.stop_requested()
    }

    /// Returns a token of that context whose stop reaches the children as well.
    pub(super) fn reached_from(&self, context: &Context) -> Option<ErasedStopToken> {
        let is = |one: ErasedStopToken, other: ErasedStopToken| one.stop_possible() && one.is_same(&other);
        if is(self.outer, context.token) {
            return Some(context.token);
        }
        // A single child may have been started in another scope of the task. A stop of the task reaches both.
        self.single?;
        let token = context.reaching_token();
        is(self.reaching, token).then_some(token)
    }

    #[inline]
    pub(super) fn is_frame(&self, frame: Option<NonNull<Header>>) -> bool {
        frame.is_some() && self.frame == frame
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
                && self.reached_from(polling.context()).is_none()
            {
                Stopping::stop(polling, waker);
            }
        });
    }
}

impl GroupCore {
    /// Returns whether this thread polls the group's frame.
    pub(super) fn is_here(&self) -> bool {
        // An ending frame unties its groups, so a later frame at its address is not mistaken for it.
        self.is_tied.load(Acquire) && self.frame == Header::current()
    }

    /// Raises all children to at least `level`, later ones included.
    fn raise(&self, level: Priority, raising: &mut Raising) {
        // A raised frame may wake a worker, under the locks of the group and of the frame's strand.
        without_interrupts(|| self.raise_each(level, raising));
    }

    fn raise_each(&self, level: Priority, raising: &mut Raising) {
        let mut lock = self.lock_state();
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
            lock = self.lock_state();
        }
    }

    /// Notes that the current task waits for the children, and raises them to its level.
    pub(super) fn wanted_here(&self) {
        Polling::with(|polling| _ = polling.map(Polling::waits));
        self.wanted_at(current_level());
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
