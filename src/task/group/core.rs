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
use std::vec::Vec;

use allocator_api2::alloc::Allocator;

use super::super::context::{Around, Context, Scope, TaskContext};
use super::super::foreign::Stopping;
use super::super::frame::{self, Continuation, Header};
use super::super::priority::{self, BATCH, Batch, Held, Link, Raising};
use super::super::relay::Relay;
use super::super::spawned::Place;
use super::super::task::{Frame, Plain};
use super::super::task_local::Locals;
use super::super::tether::{Tether, Tethered};
use super::super::unit::{Counted, Unit};
use super::Refused;
use super::wait::{Given, Kind, Waiter};
use crate::memory::{Cached, Count, List};
use crate::sender::stage::container_of;
use crate::stop::{ErasedStopToken, StopToken, Why};
use crate::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::{SpinGuard, SpinLock};
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
    scope: Option<NonNull<Scope>>,
    policy: Policy,
    /// Has the children raised with the task. In the list of that until no child runs any more: the last one that ends takes
    /// it out, or who finds that there is none.
    link: Link,
    /// The lowest level that a child may have, as a number. Whoever waits at a higher one raises them. Lowered under the lock,
    /// by who spawns, and raised by who raises; it only decides who asks for the lock.
    lowest: AtomicU8,
    /// A child has panicked since the body last began to wait for that; its panic may have been taken. Stored under the lock, and
    /// loaded without it by the thread that polls the body, which whoever sets it wakes.
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

struct State {
    phase: Phase,
    /// See [`Core::frame`].
    frame: Option<NonNull<Header>>,
    /// Children that have not ended, and places that are kept for some.
    running: usize,
    /// Those that have ended, and whose results were not taken; and how many of these are failures.
    finished: usize,
    failures: usize,
    /// No more than this many run at a time, as far as those go that wait for room.
    limit: usize,
    /// Nobody takes results any more.
    abandoned: bool,
    /// The children that run, by the links of their tails.
    children: *mut Header,
    /// What they were raised to, and those are that come later.
    floor: Option<Priority>,
    /// Where those are who raise them, one after the other.
    cursors: *mut Cursor,
    /// Those that have ended, in that order, by the same links.
    first: *mut Header,
    last: *mut Header,
    waiters: Queues,
    /// The frame that the group is in waits for the next that ends, and has counted an await for that. Whoever takes this away
    /// gives it back.
    frame_waits: bool,
    /// The same for the body, which waits for something and is to be ended by the panic of a child.
    body_waits: bool,
    /// How many of those that have ended have panicked.
    panics: usize,
    /// Who polls: for results, or for the end where that is not the frame.
    wakers: Vec<Waker>,
    /// The first panic that was not kept as a result.
    panic: Option<Panic>,
}

/// A way through the children that run, which do not wait for it. It is on the stack of whoever goes it, and under the lock.
struct Cursor {
    /// The child that is next, or null at the end.
    child: *mut Header,
    /// Those who are on their way as well.
    next: *mut Cursor,
}

/// ```text
/// Open ──the body has ended──▶ Closed ──no child runs──▶ Over
/// ```
///
/// A closed group still takes children, of those that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Closed,
    Over,
}

/// Operations that wait for something of the group, first come first served.
type Waiters = List<Waiter>;

/// Those that wait, for each [`Kind`] by itself: nobody is looked for among those that wait for something else.
struct Queues([Waiters; 3]);

impl Queues {
    /// # Safety
    ///
    /// As for [`List::push_back`].
    unsafe fn push(&mut self, waiter: NonNull<Waiter>) {
        // SAFETY: the caller's promise.
        unsafe { self.0[waiter.as_ref().kind as usize].push_back(waiter) };
    }

    /// # Safety
    ///
    /// The waiter is in one of these.
    unsafe fn remove(&mut self, waiter: NonNull<Waiter>) {
        // SAFETY: the caller's promise; it is in that of its kind.
        unsafe { self.0[waiter.as_ref().kind as usize].remove(waiter) };
    }

    /// The first that waits for this.
    #[inline]
    fn find(&self, kind: Kind) -> Option<NonNull<Waiter>> {
        self.0[kind as usize].first()
    }

    /// The first of any.
    #[inline]
    fn any(&self) -> Option<NonNull<Waiter>> {
        self.0.iter().find_map(List::first)
    }
}

/// The tail of a child's frame. The unit comes first: a frame points at that, and so at the rest.
#[repr(C)]
pub(super) struct Member {
    unit: Unit,
    core: NonNull<Core>,
    /// Links in one of the lists of the group, under its lock.
    next: Cell<*mut Header>,
    previous: Cell<*mut Header>,
    /// It has ended with what the group calls a failure. As for the links.
    failed: Cell<bool>,
    /// It has ended with a panic. As for the links.
    panicked: Cell<bool>,
    /// Where it runs, if that is not where the group does.
    place: Option<Box<Place>>,
}

impl Member {
    /// # Safety
    ///
    /// The frame is that of a child, which was started and not freed.
    unsafe fn of<'a>(frame: NonNull<Header>) -> &'a Member {
        // SAFETY: by the caller's promise, its unit is the first field of such a tail.
        unsafe { Header::unit(frame).cast::<Member>().as_ref() }
    }
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

/// A child that has ended, whose result was not taken. Dropped, it goes back to the group.
pub(super) struct Finished {
    core: CoreRef,
    frame: NonNull<Header>,
}

// SAFETY: the frame is done, and ours; its result is `Send`.
unsafe impl Send for Finished {}

impl Finished {
    /// # Safety
    ///
    /// The frame is a child of the group, has ended, and is in none of its lists.
    pub(super) unsafe fn new(core: CoreRef, frame: NonNull<Header>) -> Self {
        Finished { core, frame }
    }

    /// Takes the result.
    ///
    /// # Safety
    ///
    /// `T` is what the children of the group give.
    pub(super) unsafe fn take<T>(self) -> Completion<T, Infallible> {
        let this = ManuallyDrop::new(self);
        // SAFETY: it is taken this once, and not dropped.
        drop(unsafe { ptr::read(&raw const this.core) });
        // SAFETY: it is done, and ours.
        unsafe { Header::take(this.frame) }
    }
}

impl Drop for Finished {
    fn drop(&mut self) {
        let mut lock = self.core.lock();
        if lock.abandoned {
            drop(lock);
            // SAFETY: it is ours.
            unsafe { Header::release(self.frame) };
        } else {
            let mut settled = Settled::new();
            // SAFETY: it has ended, and is in no list.
            unsafe { lock.put_back(self.frame, &mut settled) };
            self.core.note_panic(&mut lock, &mut settled);
            drop(lock);
            settled.complete().run();
        }
    }
}

/// A place that is kept for a child. Dropped, it is for others.
pub(super) struct Room(CoreRef);

impl Room {
    /// # Safety
    ///
    /// The place was counted.
    pub(super) unsafe fn new(core: CoreRef) -> Self {
        Room(core)
    }

    /// It is taken.
    fn fill(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: it is taken this once, and not dropped.
        drop(unsafe { ptr::read(&raw const this.0) });
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut settled = Settled::new();
        let mut lock = self.0.lock();
        let last = lock.one_less(&mut settled);
        drop(lock);
        // SAFETY: the place was counted.
        unsafe { Core::settle(self.0.0, &mut settled, last) }.run();
    }
}

/// What is to be done when the lock was given back.
#[must_use]
struct Settled {
    /// Those that were granted something: in no list of the group, linked as they were there.
    granted: Waiters,
    /// The frame that waits for one that ends, if it does.
    frame: Option<NonNull<Header>>,
    /// The same for the one whose body is to be ended.
    body: Option<NonNull<Header>>,
    /// Who polls.
    woken: Vec<Waker>,
}

impl Settled {
    fn new() -> Self {
        Settled {
            granted: List::new(),
            frame: None,
            body: None,
            woken: Vec::new(),
        }
    }

    /// Whether there is nothing to be done, as for most children of many.
    #[inline]
    fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.frame.is_none() && self.body.is_none() && self.woken.is_empty()
    }

    fn complete(&mut self) -> Transfer {
        let mut resumed = Transfer::none();
        while let Some(waiter) = self.granted.pop_front() {
            // SAFETY: whoever takes it out of the group's list, under the lock, completes it.
            resumed.append(unsafe { Waiter::complete(waiter) });
        }
        if let Some(frame) = self.frame {
            // SAFETY: it has counted an await for this.
            resumed.append(unsafe { Header::end_wait_for_child(frame) });
        }
        if let Some(frame) = self.body {
            // SAFETY: as above.
            resumed.append(unsafe { Header::end_wait(frame, |_| false) });
        }
        for waker in mem::take(&mut self.woken) {
            waker.wake();
        }
        resumed
    }
}

impl State {
    /// # Safety
    ///
    /// The frame is that of a child, and in no list.
    unsafe fn link_child(&mut self, frame: NonNull<Header>) {
        // SAFETY: the caller's promise; what is in the list is there.
        unsafe {
            let member = Member::of(frame);
            member.next.set(self.children);
            member.previous.set(ptr::null_mut());
            if let Some(first) = NonNull::new(self.children) {
                Member::of(first).previous.set(frame.as_ptr());
            }
        }
        self.children = frame.as_ptr();
    }

    /// # Safety
    ///
    /// The frame is in the list of those that run.
    unsafe fn unlink_child(&mut self, frame: NonNull<Header>) {
        // SAFETY: the caller's promise; what is in the list is there.
        unsafe {
            let member = Member::of(frame);
            let (next, previous) = (member.next.get(), member.previous.get());
            let mut cursor = self.cursors;
            while let Some(at) = cursor.as_mut() {
                if at.child == frame.as_ptr() {
                    at.child = next;
                }
                cursor = at.next;
            }
            match NonNull::new(previous) {
                Some(previous) => Member::of(previous).next.set(next),
                None => self.children = next,
            }
            if let Some(next) = NonNull::new(next) {
                Member::of(next).previous.set(previous);
            }
        }
    }

    /// # Safety
    ///
    /// The cursor is in the list.
    unsafe fn remove_cursor(&mut self, cursor: *mut Cursor) {
        let mut link = &raw mut self.cursors;
        // SAFETY: by the caller's promise, and what is in the list is there.
        unsafe {
            while *link != cursor {
                link = &raw mut (**link).next;
            }
            *link = (*cursor).next;
        }
    }

    /// Takes the first that has ended.
    fn pop_finished(&mut self) -> Option<NonNull<Header>> {
        let first = NonNull::new(self.first)?;
        // SAFETY: what is in the list is there.
        let member = unsafe { Member::of(first) };
        self.first = member.next.get();
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        self.finished -= 1;
        self.failures -= usize::from(member.failed.get());
        self.panics -= usize::from(member.panicked.get());
        Some(first)
    }

    /// Puts a child that has ended behind the others, or gives it to who waits for one.
    ///
    /// # Safety
    ///
    /// It has ended, and is in no list.
    unsafe fn push_finished(&mut self, frame: NonNull<Header>, settled: &mut Settled) {
        if self.grant_next(frame, settled) {
            return;
        }
        // SAFETY: the caller's promise; what is in the list is there.
        unsafe {
            Member::of(frame).next.set(ptr::null_mut());
            match NonNull::new(self.last) {
                Some(last) => Member::of(last).next.set(frame.as_ptr()),
                None => self.first = frame.as_ptr(),
            }
            self.failures += usize::from(Member::of(frame).failed.get());
            self.panics += usize::from(Member::of(frame).panicked.get());
        }
        self.last = frame.as_ptr();
        self.finished += 1;
        self.wake(settled);
    }

    /// Those that look for themselves are to look again.
    #[inline]
    fn wake(&mut self, settled: &mut Settled) {
        if self.frame_waits {
            self.frame_waits = false;
            settled.frame = self.frame;
        }
        if !self.wakers.is_empty() {
            settled.woken.append(&mut self.wakers);
        }
    }

    /// The same for one that was taken out, and goes before the others.
    ///
    /// # Safety
    ///
    /// As above.
    unsafe fn put_back(&mut self, frame: NonNull<Header>, settled: &mut Settled) {
        if self.grant_next(frame, settled) {
            return;
        }
        // SAFETY: as above.
        unsafe {
            Member::of(frame).next.set(self.first);
            self.failures += usize::from(Member::of(frame).failed.get());
            self.panics += usize::from(Member::of(frame).panicked.get());
        }
        if self.first.is_null() {
            self.last = frame.as_ptr();
        }
        self.first = frame.as_ptr();
        self.finished += 1;
        self.wake(settled);
    }

    /// Gives a child that has ended to who waits for one, if somebody does.
    fn grant_next(&mut self, frame: NonNull<Header>, settled: &mut Settled) -> bool {
        let Some(waiter) = self.waiters.find(Kind::Next) else {
            return false;
        };
        // SAFETY: it is in the list.
        unsafe { self.grant(waiter, Given::Child(frame), settled) };
        true
    }

    /// Gives a waiter what it waits for. It is completed when the lock was given back.
    ///
    /// # Safety
    ///
    /// It is in the list.
    unsafe fn grant(&mut self, waiter: NonNull<Waiter>, given: Given, settled: &mut Settled) {
        // SAFETY: the caller's promise.
        unsafe {
            self.waiters.remove(waiter);
            waiter.as_ref().give(given);
            settled.granted.push_back(waiter);
        }
    }

    /// A child has ended, or a place is free. `true` where it was the last one of a group that is closed.
    fn one_less(&mut self, settled: &mut Settled) -> bool {
        self.running -= 1;
        self.grant_room(settled);
        if self.running != 0 {
            return false;
        }
        // Nothing is left to wait for.
        while let Some(waiter) = self.waiters.any() {
            // SAFETY: it is in the list.
            unsafe { self.grant(waiter, Given::Nothing, settled) };
        }
        self.wake(settled);
        let last = self.phase == Phase::Closed;
        if last {
            self.phase = Phase::Over;
        }
        last
    }

    /// Takes all that have ended, linked.
    fn take_finished(&mut self) -> *mut Header {
        self.finished = 0;
        self.failures = 0;
        self.panics = 0;
        self.last = ptr::null_mut();
        mem::replace(&mut self.first, ptr::null_mut())
    }

    /// Whether no child is taken any more.
    fn is_over(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Closed => self.running == 0,
            Phase::Over => true,
        }
    }
}

/// Drops children that have ended, and were taken out of the group, with what they gave.
fn release_all(mut first: *mut Header) {
    while let Some(frame) = NonNull::new(first) {
        // SAFETY: what was in the list is there, and nobody else's.
        unsafe {
            first = Member::of(frame).next.get();
            // What panics in there was reported by the hook, and nobody is left to be told.
            drop(Panic::catch(|| Header::release(frame)));
        }
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
    /// A group of the frame that this thread polls, or of none.
    pub(super) fn open(policy: Policy) -> CoreRef {
        let frame = Header::current();
        let (context, scope, unit) = match frame {
            // SAFETY: the frame is being polled by this thread.
            Some(frame) => unsafe {
                let here = Header::context(frame).as_ref();
                here.enter();
                (here.of_child(), here.scope(), Header::unit(frame).as_ptr().cast_const())
            },
            None => (Context::of_global_pool(), None, ptr::null()),
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
            state: SpinLock::new(State {
                phase: Phase::Open,
                frame,
                running: 0,
                finished: 0,
                failures: 0,
                limit: usize::MAX,
                abandoned: false,
                children: ptr::null_mut(),
                floor: None,
                cursors: ptr::null_mut(),
                first: ptr::null_mut(),
                last: ptr::null_mut(),
                waiters: Queues([const { List::new() }; 3]),
                frame_waits: false,
                body_waits: false,
                panics: 0,
                wakers: Vec::new(),
                panic: None,
            }),
        });
        // SAFETY: nobody else knows it yet. What is linked is unlinked before it goes; the source outside is there until
        // then: the frame, or the scope in it, has this leave before.
        unsafe {
            let place = core.as_ptr();
            (*place).context.token = (*place).relay.token();
            (*place).context.locals = (*place).locals.as_raw();
            (*place).context.around = frame.map(|frame| Around {
                frame,
                context: NonNull::new_unchecked(&raw mut (*place).context),
            });
            if let Some(frame) = frame {
                match Tether::tie(core, frame) {
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
                Counted::link(NonNull::new_unchecked(&raw mut (*place).counted), Header::unit(frame));
                Link::enter(NonNull::new_unchecked(&raw mut (*place).link), frame);
                // What comes after that is told.
                (*place).context.priority = priority::level(frame);
            }
            let level = (*place).context.priority.unwrap_or_default();
            (*place).lowest.fetch_max(level as u8, Relaxed);
        }
        CoreRef(core)
    }

    /// Starts a child, unless the group refuses, and drops it then.
    pub(super) fn spawn<T, F, Cx>(
        &self,
        future: F,
        allocator: Cx::Allocator,
        place: Option<Box<Place>>,
        room: Option<Room>,
    ) -> Result<(), Refused>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
        Cx: TaskContext,
    {
        if self.is_cancelled() {
            return Err(Refused::Cancelled);
        }
        let member = Member {
            unit: Unit::spawned(self.unit),
            core: self.0,
            next: Cell::new(ptr::null_mut()),
            previous: Cell::new(ptr::null_mut()),
            failed: Cell::new(false),
            panicked: Cell::new(false),
            place,
        };
        let Ok(frame) = Child::<F, T, Cx>::make(Plain(future), allocator, member) else {
            return Err(Refused::OutOfMemory);
        };
        // SAFETY: it was just made, so it is ours, and its tail is there. The group is there until the child has ended.
        unsafe {
            let member = Child::<F, T, Cx>::tail(frame).as_ptr();
            let unit = NonNull::new_unchecked(&raw mut (*member).unit);
            unit.as_ref().track();
            let complete = Self::complete::<T, F, Cx>;
            let context = match &mut (*member).place {
                None => NonNull::from(&self.context),
                Some(place) => match Place::settle(place, &self.context, frame) {
                    Ok(context) => context,
                    Err(_) => {
                        Header::release(frame);
                        return Err(Refused::OutOfMemory);
                    }
                },
            };
            unit.as_ref().set_context(context);
            let continuation = Continuation::operation(frame.cast(), complete);
            mem::forget(Header::begin(frame, context, unit, continuation));
            priority::queue_first(frame);
            let level = context.as_ref().priority.unwrap_or_default();
            let has_room = room.is_some();
            let mut lock = self.lock();
            if !has_room && lock.is_over() {
                drop(lock);
                Header::unbegin(frame);
                if let Some(place) = &(*member).place {
                    // Nothing went there, so nothing is under way.
                    place.take_back(frame);
                }
                Header::release(frame);
                return Err(Refused::Over);
            }
            lock.running += usize::from(!has_room);
            lock.link_child(frame);
            match lock.floor {
                Some(floor) => priority::begin_at(frame, floor),
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
        let (member, result) = unsafe { (Member::of(frame), Child::<F, T, Cx>::result(frame)) };
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
    fn lock(&self) -> SpinGuard<'_, State> {
        self.state.lock()
    }

    /// # Safety
    ///
    /// The caller gives back a count, and does not use the group any more.
    unsafe fn release(this: NonNull<Core>) {
        // SAFETY: the caller has a count.
        if unsafe { this.as_ref() }.count.give_back() {
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
        if !lock.wakers.is_empty() {
            settled.woken.append(&mut lock.wakers);
        }
    }

    /// Whether a child has panicked, and the body has not seen that. If not, the body is polled when one has.
    ///
    /// # Safety
    ///
    /// The caller polls the body, in its frame, if it has one. `watched` is its own, and `false` at first.
    pub(super) unsafe fn has_panic(&self, watched: &mut bool, waker: &Waker) -> bool {
        if self.policy.supervises {
            return false;
        }
        // What polls the body with a waker of its own is woken, inside a task as well.
        let is_woken = self.frame.is_some() && self.frame == frame::frame_of(waker);
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
        if let Some(frame) = self.frame
            && !mem::replace(&mut lock.body_waits, true)
        {
            // SAFETY: the caller's promise.
            unsafe { Header::count_wait(frame) };
        }
        *watched = true;
        false
    }

    /// Takes the first child that has panicked, of those that have ended; or the panic of one that was discarded.
    pub(super) fn take_panicked(&self) -> Option<Result<NonNull<Header>, Panic>> {
        let mut lock = self.lock();
        if let Some(panic) = lock.panic.take() {
            return Some(Err(panic));
        }
        let mut before = ptr::null_mut();
        let mut at = lock.first;
        while let Some(frame) = NonNull::new(at) {
            // SAFETY: what is in the list is alive.
            let member = unsafe { Member::of(frame) };
            let next = member.next.get();
            if !member.panicked.get() {
                (before, at) = (at, next);
                continue;
            }
            match NonNull::new(before) {
                // SAFETY: as above.
                Some(before) => unsafe { Member::of(before) }.next.set(next),
                None => lock.first = next,
            }
            if next.is_null() {
                lock.last = before;
            }
            lock.finished -= 1;
            lock.failures -= usize::from(member.failed.get());
            lock.panics -= 1;
            return Some(Ok(frame));
        }
        None
    }

    /// Keeps a child that has ended until its result is taken. `false` where nobody will. Adds what is to be resumed.
    ///
    /// # Safety
    ///
    /// It is done, in the list of those that run, and was counted. The group may be gone when this returns.
    unsafe fn keep(this: NonNull<Core>, frame: NonNull<Header>, resumed: &mut Transfer) -> bool {
        let mut settled = Settled::new();
        // SAFETY: it waits for the child, which was not freed.
        let (core, failed) = unsafe { (this.as_ref(), Member::of(frame).failed.get()) };
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
        unsafe {
            lock.unlink_child(frame);
            lock.push_finished(frame, &mut settled);
        }
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
        unsafe { lock.unlink_child(frame) };
        let last = lock.one_less(&mut settled);
        drop(lock);
        // SAFETY: it is in no list; nobody else knows it but its wakers.
        unsafe { Header::release(frame) };
        drop(second);
        // SAFETY: as above.
        unsafe { Core::settle(this, &mut settled, last) }
    }

    /// What follows when a child has ended, and the lock was given back.
    ///
    /// # Safety
    ///
    /// `last` is what [`State::one_less`] said, this once.
    #[inline]
    unsafe fn settle(this: NonNull<Core>, settled: &mut Settled, last: bool) -> Transfer {
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
                Some(frame) => resumed.and(Header::end_wait(frame, Context::is_here)),
                None => resumed,
            }
        }
    }

    /// Keeps a group that is to be raised.
    ///
    /// # Safety
    ///
    /// The link is that of a group, which has not left.
    unsafe fn hold(link: NonNull<Link>) -> Option<Held> {
        /// # Safety
        ///
        /// The group is counted, and this gives that back.
        unsafe fn raise(what: NonNull<()>, level: Priority, raising: &mut Raising) {
            CoreRef(what.cast()).raise(level, raising);
        }

        // SAFETY: by the caller's promise, it is there.
        let core = ManuallyDrop::new(CoreRef(unsafe { container_of!(link, Core, link) }));
        mem::forget(CoreRef::clone(&core));
        Some(Held {
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
        let mut here = Cursor {
            child: lock.children,
            next: lock.cursors,
        };
        let cursor = &raw mut here;
        lock.cursors = cursor;
        // One that waits for more than there was room for, and is where the cursor is.
        let mut again = ptr::null_mut();
        loop {
            let mut batch = Batch::default();
            for _ in 0..BATCH {
                // SAFETY: what is in the list is there, and is not freed before we give the lock back. The cursor is under
                // the lock.
                unsafe {
                    let Some(child) = NonNull::new((*cursor).child) else {
                        break;
                    };
                    let all = if child.as_ptr() == again {
                        Raising::links(Header::unit(child).as_ref(), level, &mut batch)
                    } else {
                        raising.frames(child, level, &mut batch)
                    };
                    if !all {
                        again = child.as_ptr();
                        break;
                    }
                    (*cursor).child = Member::of(child).next.get();
                }
            }
            // SAFETY: as above.
            let ends = unsafe { (*cursor).child.is_null() };
            if ends {
                // SAFETY: as above.
                unsafe { lock.remove_cursor(cursor) };
            }
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

    /// The body has ended. `true` where all children have.
    ///
    /// # Safety
    ///
    /// This is what the poll of the group's frame is running, if it has one.
    pub(super) unsafe fn close(&self) -> bool {
        let mut lock = self.lock();
        if mem::take(&mut lock.body_waits)
            && let Some(frame) = self.frame
        {
            // The body is over, and not to be ended any more.
            // SAFETY: the caller's promise.
            unsafe { Header::uncount_wait(frame) };
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
        if let Some(frame) = self.frame {
            // SAFETY: the caller's promise.
            unsafe { Header::count_wait(frame) };
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
    /// It was tied, and is not any more: the caller has cleared that, and polls the frame. The strand has not ended. The group may be
    /// gone when this returns.
    unsafe fn unlink(this: NonNull<Core>) {
        // SAFETY: the link has a count until it is over. What was tied has a frame.
        unsafe {
            let core = this.as_ref();
            core.counted.unlink(core.unit);
            let Some(frame) = core.frame else { return };
            // Before the stop that is being passed on may be over, which takes it back.
            Header::count_wait(frame);
            if Relay::end_now(NonNull::new_unchecked(&raw mut (*this.as_ptr()).relay)) {
                Header::uncount_wait(frame);
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
                Some(frame) => Header::end_wait(frame, Context::is_here),
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
    unsafe fn abandon(this: NonNull<Self>) -> Transfer {
        // SAFETY: the tether has a count. The caller polls the frame, which has not ended.
        unsafe {
            let core = this.as_ref();
            if !core.is_tied.swap(false, AcqRel) {
                return Transfer::none();
            }
            let resumed = core.abandon();
            if core.close() {
                core.link.leave();
            }
            Core::unlink(this);
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
    /// `polled` is the frame that this thread polls, if it is that which would be woken by a waker. Where the group is in
    /// that frame, and what stops it reaches the children too, it is woken without any more ado.
    pub(super) fn try_next(&self, polled: Option<NonNull<Header>>) -> TryNext {
        let mut lock = self.lock();
        if let Some(frame) = lock.pop_finished() {
            return TryNext::Ended(frame);
        }
        if lock.running == 0 {
            return TryNext::Nothing;
        }
        let Some(frame) = polled.filter(|_| self.frame == polled) else {
            return TryNext::Listen;
        };
        // SAFETY: the frame is polled by this thread.
        let context = unsafe { Header::context(frame).as_ref() };
        if !self.outer.is_same(&context.token) {
            return TryNext::Listen;
        }
        if !lock.frame_waits {
            lock.frame_waits = true;
            // SAFETY: as above, and this is what that runs.
            unsafe { Header::count_wait(frame) };
        }
        TryNext::Wait
    }

    /// The same for who polls: the waker is told when there is one.
    pub(super) fn poll_next(&self, waker: &Waker) -> Result<Finished, bool> {
        let mut clone = None;
        loop {
            let mut lock = self.lock();
            if let Some(frame) = lock.pop_finished() {
                // SAFETY: it was in the list.
                return Ok(unsafe { Finished::new(self.clone(), frame) });
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
                Some(frame) => Some(Given::Child(frame)),
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
        let Some(frame) = Header::current() else { return };
        // SAFETY: the frame is polled by this thread.
        let context = unsafe { Header::context(frame).as_ref() };
        if context.token.stop_requested() && !self.is_reached_from(context) {
            Stopping::stop(frame, waker);
        }
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

    pub(super) fn is_frame(&self, frame: Option<NonNull<Header>>) -> bool {
        frame.is_some() && self.frame == frame
    }

    /// Unties the group from its frame. `false` where the frame has ended it, or where another thread polls that.
    fn untie(&self) -> bool {
        // The order matters: the frame may be gone, and another at its address, once it has ended the group.
        if !self.is_here() || !self.is_tied.swap(false, AcqRel) {
            return false;
        }
        if let Some(tether) = self.tether.take() {
            // SAFETY: this is what the frame's poll is running.
            unsafe { Tether::untie(tether) };
        }
        true
    }

    /// The group has come to its end.
    pub(super) fn end(&self) {
        if self.untie() {
            self.link.leave();
            // SAFETY: it was tied, and this has a count. The strand of the frame has not ended.
            unsafe { Core::unlink(self.0) };
        }
    }

    /// The future that runs the body is dropped before its end.
    pub(super) fn give_up(&self) {
        let resumed = self.abandon();
        if !self.has_frame() {
            // SAFETY: there is no frame.
            unsafe { self.close() };
        } else if self.untie() {
            // SAFETY: this is what the frame's poll is running; it is not tied any more.
            unsafe {
                if self.close() {
                    self.link.leave();
                }
                Core::unlink(self.0);
            }
        }
        // Elsewhere it stays tied, and the frame ends it.
        resumed.run();
    }
}

/// What is to be done about the next that ends.
pub(super) enum TryNext {
    /// It is there, and the caller's.
    Ended(NonNull<Header>),
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

impl State {
    fn has_waker(&self, waker: &Waker) -> bool {
        self.wakers.iter().any(|other| other.will_wake(waker))
    }

    /// Keeps a waker, if there is one that is not kept already. Else it is the caller's to drop.
    fn add_waker(&mut self, waker: &mut Option<Waker>) {
        if waker.as_ref().is_some_and(|waker| !self.has_waker(waker)) {
            self.wakers.extend(waker.take());
        }
    }

    /// Gives the places that are free to those that wait for one.
    fn grant_room(&mut self, settled: &mut Settled) {
        while self.running < self.limit
            && let Some(waiter) = self.waiters.find(Kind::Room)
        {
            self.running += 1;
            // SAFETY: it is in the list.
            unsafe { self.grant(waiter, Given::Room, settled) };
        }
    }

    /// Gives nothing to those that wait for a place: there will not be one.
    fn refuse_room(&mut self, settled: &mut Settled) {
        while let Some(waiter) = self.waiters.find(Kind::Room) {
            // SAFETY: it is in the list.
            unsafe { self.grant(waiter, Given::Nothing, settled) };
        }
    }
}
