//! What a group is behind its handles: its children, and who waits for them.

use core::alloc::Layout;
use core::cell::Cell;
use core::convert::Infallible;
use core::future::Future;
use core::mem::{self, ManuallyDrop};
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::task::Waker;
use std::boxed::Box;

use allocator_api2::alloc::Allocator;

use super::child::{EndedChild, EndedChildren, Finished, Member, Room};
use super::spawn_error::{SpawnError, SpawnErrorKind};
use super::state::{Phase, Settled, State};
use super::wait::{Given, Kind, Waiter};
use crate::memory::{Cached, Count};
use crate::sender::stage::container_of;
use crate::stop::{ErasedStopToken, Relay, StopToken, Why};
use crate::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::{SpinGuard, SpinLock};
use crate::task::children::spawned::Place;
use crate::task::coroutine::context::TaskContext;
use crate::task::coroutine::task::{Frame, Plain};
use crate::task::frame::{self, ContextScope, Header, Home, Placement, Polling, Stopping, Successor, Tracker};
use crate::task::strand::context::{Awaiter, Context};
use crate::task::strand::locals::Locals;
use crate::task::strand::raising::{BATCH, Batch, Link, Raising, ToRaise};
use crate::task::strand::tether::{Tether, Tethered};
use crate::task::strand::unit::{Counted, Unit};
use crate::{Completion, Panic, Priority, Transfer};

/// What all handles of a group, and its children, point at.
///
/// # Who keeps it
///
/// `count` counts the handles; the tether to the frame; the link to the token of the task, until that is over; and one for all
/// children together, from the time when the group was closed with some of them running until the last has ended. While it is
/// open, the handle of what runs the body keeps it.
pub(super) struct Core {
    count: Count,
    /// What stops the children. It is linked to the task's token.
    relay: Relay,
    /// Ties the group to its frame, while `is_tied`. Belongs to the thread that polls the frame.
    tether: Cell<Option<NonNull<Tether<Core>>>>,
    /// The frame has not begun to end, and the group is to be ended with it. Cleared, with a swap that acquires and releases, by
    /// the future of the group when that has come to its end, or by the frame in its end.
    is_tied: AtomicBool,
    counted: Counted,
    /// That of the children.
    context: Context,
    /// The task-local values that they see.
    locals: Locals,
    /// The frame that the group is in, which is not done before the children are. None outside of a task.
    frame: Option<NonNull<Header>>,
    /// The strand of that frame, or null.
    unit: *const Unit,
    /// The token that the relay is linked to.
    outer: ErasedStopToken,
    /// The scope in the frame that the group is in, which that token may be of. It is not over before the link is.
    scope: Option<NonNull<ContextScope>>,
    policy: Policy,
    /// Has the children raised with the task. In the list of that until no child runs any more: the last one that ends takes
    /// it out, or who finds that there is none.
    link: Link,
    /// The lowest level that a child may have, as a number. Whoever waits at a higher one raises them. Lowered under the lock,
    /// by who spawns, and raised by who raises; it only decides who asks for the lock.
    lowest: AtomicU8,
    /// A child has panicked since the body last began to wait for that; its panic may have been taken. Stored under the lock, and
    /// loaded without it by the thread that polls the body, which the thread that sets it wakes.
    has_panic: AtomicBool,
    /// Locked for a few instructions, and never while anything of the user's runs. A child that has ended uses nothing of the
    /// group after it unlocked this, unless it was the last of one that is closed.
    state: SpinLock<State>,
}

// SAFETY: the state is touched under the lock alone; in there are frames and values that are `Send`. The rest does not
// change, or is made of atomics.
unsafe impl Send for Core {}
// SAFETY: as above.
unsafe impl Sync for Core {}

/// What becomes of a child that has ended.
#[derive(Clone, Copy, Debug)]
#[allow(unreachable_pub, reason = "it is in the sealed trait of what a group is like")]
pub struct Policy {
    /// Its result is dropped at once.
    pub(super) discards: bool,
    /// A panic in it does not cancel the others.
    pub(super) supervises: bool,
    /// Whether a value is a failure, which cancels the others once the body has ended. It is called with its address.
    pub(super) fails: Option<unsafe fn(NonNull<()>) -> bool>,
}

/// A counted pointer to a group.
pub(super) struct CoreRef(NonNull<Core>);

// SAFETY: the core is `Sync`, and dropped by whoever is last.
unsafe impl Send for CoreRef {}
// SAFETY: as above.
unsafe impl Sync for CoreRef {}

impl Deref for CoreRef {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        // SAFETY: it is counted.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for CoreRef {
    fn clone(&self) -> Self {
        self.count.add();
        CoreRef(self.0)
    }
}

impl Drop for CoreRef {
    fn drop(&mut self) {
        // SAFETY: it is counted, and not used any more.
        unsafe { Core::release(self.0) };
    }
}

impl PartialEq for CoreRef {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// Drops children that have ended, and were taken out of the group, with what they gave.
fn release_all(mut children: EndedChildren) {
    while let Some(child) = children.pop_front() {
        // The panic hook has reported what panics in there, and no code is left that could be told.
        drop(Panic::catch(|| drop(child)));
    }
}

/// Puts a group into memory that threads keep.
fn cached(core: Core) -> NonNull<Core> {
    let layout = Layout::new::<Core>();
    let Ok(memory) = Cached.allocate(layout) else {
        // As everywhere where there is nobody to be told.
        std::alloc::handle_alloc_error(layout);
    };
    let place = memory.cast::<Core>();
    // SAFETY: there is room for it.
    unsafe { place.write(core) };
    place
}

/// The frame of a child.
type Child<F, T, Cx> = Frame<Plain<F>, T, Infallible, Cx, Member>;

impl CoreRef {
    pub(super) fn as_ptr(&self) -> NonNull<Core> {
        self.0
    }

    /// A group of the frame that this thread polls, or of none.
    pub(super) fn open(policy: Policy) -> CoreRef {
        Polling::with(|polling| Self::open_in(policy, polling))
    }

    fn open_in(policy: Policy, polling: Option<Polling<'_>>) -> CoreRef {
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
        let core = cached(Core {
            count: Count::one(),
            relay: Relay::new(Core::relay_over),
            tether: Cell::new(None),
            is_tied: AtomicBool::new(false),
            counted: Counted::new(Core::running),
            context,
            locals,
            frame,
            unit,
            outer,
            scope,
            policy,
            link: Link::new(Core::hold),
            lowest: AtomicU8::new(0),
            has_panic: AtomicBool::new(false),
            state: SpinLock::new(State::new(frame)),
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
                        drop(CoreRef(core));
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
        CoreRef(core)
    }

    /// Starts a child, or returns it where the group refuses it.
    pub(super) fn spawn<T, F, Cx>(
        &self,
        future: F,
        allocator: Cx::Allocator,
        place: Option<Box<Place>>,
        room: Option<Room>,
    ) -> Result<(), SpawnError<F>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
        Cx: TaskContext,
    {
        if self.is_cancelled() {
            return Err(SpawnError::new(SpawnErrorKind::Cancelled, future));
        }
        let Ok(memory) = Child::<F, T, Cx>::allocate_frame(&allocator) else {
            return Err(SpawnError::new(SpawnErrorKind::OutOfMemory, future));
        };
        let member = Member::new(Unit::spawned(self.unit), self.0, place);
        // SAFETY: the memory was allocated for such a frame. The frame was just made, so this has exclusive access to it and to its
        // tail. The group stays alive until the child has ended.
        unsafe {
            let frame = Child::<F, T, Cx>::write(memory, Plain(future), allocator, member);
            let member = Child::<F, T, Cx>::tail(frame).as_ptr();
            let unit = NonNull::new_unchecked(&raw mut (*member).unit);
            unit.as_ref().track();
            let complete = Self::complete::<T, F, Cx>;
            let context = match &mut (*member).place {
                None => NonNull::from(&self.context),
                Some(place) => match Place::settle(place, &self.context, frame) {
                    Ok(context) => context,
                    Err(_) => return Err(Self::refuse::<T, F, Cx>(frame, SpawnErrorKind::OutOfMemory)),
                },
            };
            unit.as_ref().set_context(context);
            let successor = Successor::operation(frame.cast(), complete);
            mem::forget(Header::begin(frame, context, unit, successor));
            Tracker::queue_first(frame);
            let level = context.as_ref().priority().unwrap_or_default();
            let has_room = room.is_some();
            let mut lock = self.lock();
            if !has_room && lock.is_over() {
                drop(lock);
                Header::unbegin(frame);
                if let Some(place) = &(*member).place {
                    // Nothing went there, so nothing is under way.
                    place.take_back(frame);
                }
                return Err(Self::refuse::<T, F, Cx>(frame, SpawnErrorKind::Ended));
            }
            lock.running += usize::from(!has_room);
            lock.begin_child(frame);
            match lock.floor {
                Some(floor) => Tracker::begin_at(frame, floor),
                None if self.lowest.load(Relaxed) > level as u8 => self.lowest.store(level as u8, Relaxed),
                None => {}
            }
            drop(lock);
            if let Some(room) = room {
                room.fill();
            }
            // The group counts it by now, so whoever waits for that is there.
            if let Some(name) = (*member).place.as_mut().and_then(|place| place.take_name()) {
                unit.as_ref().set_name(name);
            }
            Header::enqueue_child(frame).run();
        }
        Ok(())
    }

    /// Takes the child out of a frame that is not started after all, and frees that.
    ///
    /// # Panics
    ///
    /// With the panic of the child's scheduler, which has taken the place of the child.
    ///
    /// # Safety
    ///
    /// The caller has exclusive access to the frame of such a child, which was not polled, and does not use it any more.
    #[cold]
    unsafe fn refuse<T, F, Cx>(frame: NonNull<Header>, kind: SpawnErrorKind) -> SpawnError<F>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
        Cx: TaskContext,
    {
        // SAFETY: the caller's promise.
        unsafe {
            let child = Child::<F, T, Cx>::take_future(frame);
            Header::release(frame);
            match child {
                Ok(Plain(child)) => SpawnError::new(kind, child),
                Err(payload) => payload.resume(),
            }
        }
    }

    /// A child has ended.
    ///
    /// # Safety
    ///
    /// The pointer is to the frame of such a child, which is done.
    unsafe fn complete<T, F, Cx>(frame: NonNull<()>) -> Transfer
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
        Cx: TaskContext,
    {
        let frame = frame.cast::<Header>();
        // SAFETY: by the caller's promise. The group waits for the child.
        let (member, result) = unsafe {
            (
                Child::<F, T, Cx>::tail(frame).as_ref(),
                Child::<F, T, Cx>::result(frame),
            )
        };
        if let Some(place) = &member.place {
            // SAFETY: the task is done, and its frame alive.
            unsafe { place.take_back(frame) };
        }
        // SAFETY: as above. The group is there until it learns of this, and with it the strand that it is in.
        let core = unsafe {
            member.unit.end();
            member.core.as_ref()
        };
        let (failed, cancels) = match result {
            Some(Completion::Panicked(_)) => (true, !core.policy.supervises),
            Some(Completion::Value(value)) => {
                // SAFETY: it is made for values of this type.
                let failed = core
                    .policy
                    .fails
                    .is_some_and(|fails| unsafe { fails(NonNull::from(value).cast()) });
                // Whether it cancels the others is seen when it is kept.
                (failed, false)
            }
            _ => (false, false),
        };
        member.failed.set(failed);
        member.panicked.set(cancels);
        let mut resumed = if cancels {
            core.cancel(Why::SIBLING_FAILED)
        } else {
            Transfer::none()
        };
        // SAFETY: it is done, and was counted; the group is its owner.
        unsafe {
            if !core.policy.discards && Core::keep(member.core, frame, &mut resumed) {
                return resumed;
            }
            resumed.and(Core::discard::<T>(member.core, frame))
        }
    }
}

impl Core {
    /// How many children run.
    ///
    /// # Safety
    ///
    /// The node is that of a group, which is linked.
    unsafe fn running(node: NonNull<Counted>) -> usize {
        // SAFETY: a group that is linked is alive.
        unsafe { container_of!(node, Core, counted).as_ref() }.lock().running
    }

    #[inline]
    pub(super) fn lock(&self) -> SpinGuard<'_, State> {
        self.state.lock()
    }

    /// # Safety
    ///
    /// The caller gives back a count, and does not use the group any more.
    unsafe fn release(this: NonNull<Core>) {
        // SAFETY: the caller has a count.
        if unsafe { this.as_ref() }.count.release() {
            // SAFETY: that was the last, and it was made there.
            unsafe {
                this.drop_in_place();
                Cached.deallocate(this.cast(), Layout::new::<Core>());
            }
        }
    }

    /// Ends the body, if it waits for something else than the panic of a child.
    fn note_panic(&self, lock: &mut State, settled: &mut Settled) {
        if self.policy.supervises || lock.panics == 0 && lock.panic.is_none() {
            return;
        }
        self.has_panic.store(true, Release);
        if mem::take(&mut lock.body_waits) {
            settled.body = lock.frame;
        }
        lock.wake_polling(settled);
    }

    /// Whether a child has panicked, and the body has not seen that. If not, the body is polled when one has.
    ///
    /// `polling` is the frame of the group, if it has one. `watched` belongs to the body, and is `false` at first.
    pub(super) fn has_panic(&self, polling: Option<Polling<'_>>, watched: &mut bool, waker: &Waker) -> bool {
        if self.policy.supervises {
            return false;
        }
        // What polls the body with a waker of its own is woken, inside a task as well.
        let is_woken = self.is_frame(frame::frame_of(waker));
        if is_woken && *watched {
            return self.has_panic.load(Acquire);
        }
        // It is the user's, and so cloned and dropped while the lock is not held.
        let mut waker = (!is_woken).then(|| waker.clone());
        let mut lock = self.lock();
        if lock.panics != 0 || lock.panic.is_some() {
            return true;
        }
        // One that was noted before may have been taken since, by a child.
        self.has_panic.store(false, Relaxed);
        lock.add_waker(&mut waker);
        if let Some(polling) = self.own(polling)
            && !mem::replace(&mut lock.body_waits, true)
        {
            polling.count_wait();
        }
        *watched = true;
        false
    }

    /// Takes the first child that has panicked, of those that have ended; or the panic of one that was discarded.
    pub(super) fn take_panicked(&self) -> Option<Result<EndedChild, Panic>> {
        let mut lock = self.lock();
        match lock.panic.take() {
            Some(panic) => Some(Err(panic)),
            None => lock.pop_panicked().map(Ok),
        }
    }

    /// Takes back a child that was given out, and not taken.
    pub(super) fn put_back(&self, child: EndedChild) {
        let mut lock = self.lock();
        if lock.abandoned {
            drop(lock);
            return drop(child);
        }
        let mut settled = Settled::new();
        lock.push_finished(child, true, &mut settled);
        self.note_panic(&mut lock, &mut settled);
        drop(lock);
        settled.complete().run();
    }

    /// Keeps a child that has ended until its result is taken. `false` where results are not taken any more. Adds what is to be
    /// resumed.
    ///
    /// # Safety
    ///
    /// It is done, in the list of those that run, and was counted. The group may be gone when this returns.
    unsafe fn keep(this: NonNull<Core>, frame: NonNull<Header>, resumed: &mut Transfer) -> bool {
        let mut settled = Settled::new();
        // SAFETY: it waits for the child, which was not freed.
        let (core, failed) = unsafe {
            (
                this.as_ref(),
                Header::unit(frame).cast::<Member>().as_ref().failed.get(),
            )
        };
        let mut lock = core.lock();
        if failed && lock.phase != Phase::Open && core.policy.fails.is_some() {
            // The body, which has ended, did not see this one. While it is counted the group is there.
            drop(lock);
            resumed.append(core.cancel(Why::SIBLING_FAILED));
            lock = core.lock();
        }
        if lock.abandoned {
            // It was cancelled before.
            return false;
        }
        // SAFETY: the caller's promise.
        let child = unsafe { lock.end_child(frame) };
        lock.push_finished(child, false, &mut settled);
        core.note_panic(&mut lock, &mut settled);
        let last = lock.one_less(&mut settled);
        drop(lock);
        // SAFETY: as above.
        let next = unsafe { Core::settle(this, &mut settled, last) };
        if !next.is_none() {
            resumed.append(next);
        }
        true
    }

    /// Drops a child that has ended, with what it gave.
    ///
    /// # Safety
    ///
    /// As above; `T` is what it gives.
    unsafe fn discard<T>(this: NonNull<Core>, frame: NonNull<Header>) -> Transfer {
        // SAFETY: it waits for the child.
        let core = unsafe { this.as_ref() };
        // SAFETY: the caller's promise.
        let panic = match unsafe { Header::take_result::<Completion<T, Infallible>>(frame) } {
            Completion::Panicked(payload) => Some(payload),
            Completion::Value(value) => Panic::catch(|| drop(value)).err(),
            _ => None,
        };
        let mut settled = Settled::new();
        let mut lock = core.lock();
        let second = if lock.panic.is_none() {
            lock.panic = panic;
            None
        } else {
            panic
        };
        core.note_panic(&mut lock, &mut settled);
        // SAFETY: the caller's promise.
        let child = unsafe { lock.end_child(frame) };
        let last = lock.one_less(&mut settled);
        drop(lock);
        drop((child, second));
        // SAFETY: as above.
        unsafe { Core::settle(this, &mut settled, last) }
    }

    /// What follows when a child has ended, and the lock was given back.
    ///
    /// # Safety
    ///
    /// `last` is what [`State::one_less`] said, this once.
    #[inline]
    pub(super) unsafe fn settle(this: NonNull<Core>, settled: &mut Settled, last: bool) -> Transfer {
        if !last && settled.is_empty() {
            return Transfer::none();
        }
        // SAFETY: the caller's promise.
        unsafe { Core::settle_now(this, settled, last) }
    }

    /// # Safety
    ///
    /// As for [`settle`](Core::settle).
    #[inline(never)]
    unsafe fn settle_now(this: NonNull<Core>, settled: &mut Settled, last: bool) -> Transfer {
        let resumed = settled.complete();
        if !last {
            return resumed;
        }
        // SAFETY: the children have a count, until this.
        unsafe {
            this.as_ref().link.leave();
            let frame = this.as_ref().frame;
            Core::release(this);
            match frame {
                // It was counted when the group was closed.
                Some(frame) => resumed.and(Header::end_wait(frame, Placement::is_here)),
                None => resumed,
            }
        }
    }

    /// Keeps a group that is to be raised.
    ///
    /// # Safety
    ///
    /// The link is that of a group, which has not left.
    unsafe fn hold(link: NonNull<Link>) -> Option<ToRaise> {
        /// # Safety
        ///
        /// The group is counted, and this gives that back.
        unsafe fn raise(what: NonNull<()>, level: Priority, raising: &mut Raising) {
            CoreRef(what.cast()).raise(level, raising);
        }

        // SAFETY: by the caller's promise, it is there.
        let core = ManuallyDrop::new(CoreRef(unsafe { container_of!(link, Core, link) }));
        mem::forget(CoreRef::clone(&core));
        Some(ToRaise {
            what: core.0.cast(),
            raise,
        })
    }

    /// Makes all children at least as urgent, and those that come later.
    fn raise(&self, level: Priority, raising: &mut Raising) {
        let mut lock = self.lock();
        if lock.floor >= Some(level) {
            return;
        }
        lock.floor = Some(level);
        self.lowest.fetch_max(level as u8, Relaxed);
        let mut here = lock.cursor();
        let cursor = &raw mut here;
        // SAFETY: it is removed below.
        unsafe { lock.add_cursor(cursor) };
        // One that waits for more than there was room for, and is where the cursor is.
        let mut again = None;
        loop {
            let mut batch = Batch::default();
            // SAFETY: the cursor, and the child that it is at, are under the lock.
            let ends = unsafe {
                for _ in 0..BATCH {
                    let Some(child) = (*cursor).child() else { break };
                    let all = if again == Some(child) {
                        Raising::links(Header::unit(child).as_ref(), level, &mut batch)
                    } else {
                        raising.frames(child, level, &mut batch)
                    };
                    if !all {
                        again = Some(child);
                        break;
                    }
                    (*cursor).advance();
                }
                let ends = (*cursor).child().is_none();
                if ends {
                    lock.remove_cursor(cursor);
                }
                ends
            };
            drop(lock);
            raising.keep(&mut batch, level);
            if ends {
                return;
            }
            lock = self.lock();
        }
    }

    /// Somebody this urgent waits for the children.
    pub(super) fn wanted_at(&self, level: Priority) {
        if self.lowest.load(Relaxed) < level as u8 {
            let mut raising = Raising::default();
            self.raise(level, &mut raising);
            raising.finish();
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

    /// The frame of the group.
    ///
    /// # Panics
    ///
    /// It has one, and that is not polled here.
    fn own<'p>(&self, polling: Option<Polling<'p>>) -> Option<Polling<'p>> {
        let own = polling.filter(|polling| self.is_frame(Some(polling.frame())));
        assert!(
            own.is_some() || self.frame.is_none(),
            "a group is polled in the task where it began"
        );
        own
    }

    /// The body has ended. `true` where all children have. `polling` is the frame of the group, if it has one.
    pub(super) fn close(&self, polling: Option<Polling<'_>>) -> bool {
        let polling = self.own(polling);
        let mut lock = self.lock();
        if mem::take(&mut lock.body_waits)
            && let Some(polling) = polling
        {
            // The body is over, and not to be ended any more.
            // SAFETY: the await was counted for the body.
            unsafe { polling.uncount_wait() };
        }
        match lock.phase {
            Phase::Over => return true,
            Phase::Closed => return false,
            Phase::Open if lock.running == 0 => {
                lock.phase = Phase::Over;
                return true;
            }
            Phase::Open => lock.phase = Phase::Closed,
        }
        // One for the children, and an await of the frame; the last child gives both back.
        self.count.add();
        if let Some(polling) = polling {
            polling.count_wait();
        }
        let failed = lock.failures != 0;
        drop(lock);
        if failed && self.policy.fails.is_some() {
            self.cancel(Why::SIBLING_FAILED).run();
        }
        false
    }

    /// Whether the body and all children have ended. If not, the waker is told when they have.
    pub(super) fn is_over(&self, waker: Option<&Waker>) -> bool {
        // It is the user's, and so cloned and dropped while the lock is not held.
        let mut waker = waker.cloned();
        let mut lock = self.lock();
        if lock.phase != Phase::Over {
            lock.add_waker(&mut waker);
        }
        lock.phase == Phase::Over
    }

    pub(super) fn take_panic(&self) -> Option<Panic> {
        self.lock().panic.take()
    }

    /// Stops the children, and drops what they gave and will give. Nobody is told of them any more.
    pub(super) fn abandon(&self) -> Transfer {
        let resumed = self.cancel(Why::SCOPE_LEFT);
        let mut lock = self.lock();
        lock.abandoned = true;
        let finished = lock.take_finished();
        drop(lock);
        release_all(finished);
        resumed
    }

    /// Ends the link to the token of the task. The frame waits for a stop that is being passed on: that uses the scope.
    ///
    /// # Safety
    ///
    /// It was tied, and is not any more: the caller has cleared that. The frame is the group's. The group may be gone when this
    /// returns.
    unsafe fn unlink(this: NonNull<Core>, polling: Polling<'_>) {
        // SAFETY: the link has a count until it is over. What was tied has a frame.
        unsafe {
            let core = this.as_ref();
            core.counted.unlink(core.unit);
            // Before the stop that is being passed on may be over, which takes it back.
            polling.count_wait();
            if Relay::end_now(NonNull::new_unchecked(&raw mut (*this.as_ptr()).relay)) {
                polling.uncount_wait();
                Core::unlinked(this);
            }
        }
    }

    /// A stop was passed on, while the group was unlinked.
    ///
    /// # Safety
    ///
    /// The relay is that of a group.
    unsafe fn relay_over(relay: NonNull<Relay>) -> Transfer {
        // SAFETY: the link has a count until it is over. The frame has counted an await for this, in `unlink`.
        unsafe {
            let this = container_of!(relay, Core, relay);
            let frame = this.as_ref().frame;
            Core::unlinked(this);
            match frame {
                Some(frame) => Header::end_wait(frame, Placement::is_here),
                None => Transfer::none(),
            }
        }
    }

    /// Gives up what the link has: its use of the scope, and its count.
    ///
    /// # Safety
    ///
    /// The link is over. This is called once.
    unsafe fn unlinked(this: NonNull<Core>) {
        // SAFETY: the caller's promise. The frame that the scope is in is not done.
        unsafe {
            if let Some(scope) = this.as_ref().scope {
                scope.as_ref().exit();
            }
            Core::release(this);
        }
    }
}

// SAFETY: the reference is one of the group's count.
unsafe impl Tethered for Core {
    /// Gives the group up on behalf of its frame, which waits for what still runs.
    unsafe fn abandon(this: NonNull<Self>, polling: Polling<'_>) -> Transfer {
        // SAFETY: the tether has a count. The frame has not ended.
        unsafe {
            let core = this.as_ref();
            if !core.is_tied.swap(false, AcqRel) {
                return Transfer::none();
            }
            let resumed = core.abandon();
            if core.close(Some(polling)) {
                core.link.leave();
            }
            Core::unlink(this, polling);
            resumed
        }
    }

    unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        unsafe { Core::release(this) };
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        release_all(self.lock().take_finished());
    }
}

impl CoreRef {
    /// The next that has ended, or what to do about it.
    ///
    /// `polling` is the frame that this thread polls, if it is that which would be woken by a waker. Where the group is in
    /// that frame, and what stops it reaches the children too, it is woken without any more ado.
    pub(super) fn try_next(&self, polling: Option<Polling<'_>>) -> TryNext {
        let mut lock = self.lock();
        if let Some(child) = lock.pop_finished() {
            return TryNext::Ended(child);
        }
        if lock.running == 0 {
            return TryNext::Nothing;
        }
        let Some(polling) = polling.filter(|polling| self.is_frame(Some(polling.frame()))) else {
            return TryNext::Listen;
        };
        if !self.outer.is_same(&polling.context().token) {
            return TryNext::Listen;
        }
        if !mem::replace(&mut lock.frame_waits, true) {
            polling.count_wait();
        }
        TryNext::Wait
    }

    /// The same for who polls: the waker is told when there is one.
    pub(super) fn poll_next(&self, waker: &Waker) -> Result<Finished, bool> {
        let mut clone = None;
        loop {
            let mut lock = self.lock();
            if let Some(child) = lock.pop_finished() {
                return Ok(Finished::new(self.clone(), child));
            }
            if lock.running == 0 {
                return Err(false);
            }
            if clone.is_some() || lock.has_waker(waker) {
                lock.add_waker(&mut clone);
                return Err(true);
            }
            drop(lock);
            // It is the user's, and so cloned and dropped while the lock is not held.
            clone = Some(waker.clone());
        }
    }

    /// Lets an operation wait, unless there is nothing to wait for: then it is granted what there is. `false` where it was
    /// stopped meanwhile.
    ///
    /// # Safety
    ///
    /// The waiter is pinned, and in no list; from here on whoever grants it something completes it.
    pub(super) unsafe fn wait(&self, waiter: NonNull<Waiter>) -> Waits {
        let mut lock = self.lock();
        // SAFETY: the caller's promise.
        let this = unsafe { waiter.as_ref() };
        if this.is_stopped() {
            return Waits::Stopped;
        }
        let given = match this.kind {
            Kind::Next => match lock.pop_finished() {
                Some(child) => Some(Given::Child(child)),
                None => (lock.running == 0).then_some(Given::Nothing),
            },
            Kind::All => (lock.running == 0).then_some(Given::Nothing),
            Kind::Room if self.is_cancelled() || lock.is_over() || lock.limit == 0 => Some(Given::Nothing),
            Kind::Room if lock.running < lock.limit => {
                lock.running += 1;
                Some(Given::Room)
            }
            Kind::Room => None,
        };
        match given {
            Some(given) => {
                this.give(given);
                Waits::Granted
            }
            None => {
                // SAFETY: the caller's promise.
                unsafe { lock.waiters.push(waiter) };
                this.begin();
                Waits::Waiting
            }
        }
    }

    /// Takes a waiter back, if it waits. Who gets `true` completes it.
    ///
    /// # Safety
    ///
    /// It is there, and of this group.
    pub(super) unsafe fn stop_waiting(&self, waiter: NonNull<Waiter>, given: Option<Given>) -> bool {
        let mut lock = self.lock();
        // SAFETY: the caller's promise.
        unsafe {
            let waits = waiter.as_ref().stop(given);
            if waits {
                lock.waiters.remove(waiter);
            }
            waits
        }
    }

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

    /// Unties the group from its frame, and calls `body` with that. Not where the frame has ended the group, or where another thread
    /// polls it.
    fn untie(&self, body: impl FnOnce(Polling<'_>)) {
        Polling::with(|polling| {
            // The order matters: the frame may be gone, and another at its address, once it has ended the group.
            if let Some(polling) = polling
                && self.is_here()
                && self.is_tied.swap(false, AcqRel)
            {
                if let Some(tether) = self.tether.take() {
                    // SAFETY: this is what the frame's poll is running.
                    unsafe { Tether::untie(tether) };
                }
                body(polling);
                // SAFETY: it was tied, to this frame, and this has a count.
                unsafe { Core::unlink(self.0, polling) };
            }
        });
    }

    /// The group has come to its end.
    pub(super) fn end(&self) {
        self.untie(|_| self.link.leave());
    }

    /// The future that runs the body is dropped before its end.
    pub(super) fn give_up(&self) {
        let resumed = self.abandon();
        if !self.has_frame() {
            self.close(None);
        }
        // Elsewhere it stays tied, and the frame ends it.
        self.untie(|polling| {
            if self.close(Some(polling)) {
                self.link.leave();
            }
        });
        resumed.run();
    }
}

/// What is to be done about the next that ends.
pub(super) enum TryNext {
    /// It is there, and the caller's.
    Ended(EndedChild),
    /// There is none.
    Nothing,
    /// The frame is woken when it is there.
    Wait,
    /// It is to be waited for by an operation.
    Listen,
}

/// What became of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// It has what it waited for, and the caller completes it.
    Granted,
    /// Somebody completes it later, or has done so.
    Waiting,
    /// It was stopped before it began.
    Stopped,
}
