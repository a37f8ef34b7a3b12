//! Starting a child of a group, and the error of a child that is refused.

use core::convert::Infallible;
use core::error::Error;
use core::fmt;
use core::future::Future;
use core::mem;
use core::panic::Location;
use core::ptr::NonNull;
use std::boxed::Box;

use super::child::Member;
use super::core::{GroupCore, GroupRef};
use super::inbox::Pushed;
use super::results::Failure;
use crate::Transfer;
use crate::memory::OutOfMemoryError;
use crate::report::{Report, report};
use crate::scheduler::thread_pool::EntryKind;
use crate::sync::atomic::Ordering::Relaxed;
use crate::task::children::ChildPlace;
use crate::task::coroutine::{Frame, FrameTail, Plain, TaskContext};
use crate::task::frame::{Complete, FrameSuccessor, Header, Site, Tracker};
use crate::task::strand::{Context, Unit};

/// The argument of [`spawn`](GroupRef::spawn) for a child that the group does not count yet.
pub(super) const UNCOUNTED: Option<fn()> = None;

/// The frame of a child.
type MemberFrame<F, T, Cx> = Frame<Plain<F>, T, Infallible, Cx, Member>;

impl GroupRef {
    /// Starts a child that is spawned at `site`, or returns it if the group refuses it. `counted` is called if the group counts the child as
    /// running already, once it has started.
    #[inline]
    pub(super) fn spawn<T, F, Cx>(
        &self,
        child: F,
        (allocator, place): (Cx::Allocator, Option<Box<ChildPlace>>),
        counted: Option<impl FnOnce()>,
        site: Site,
    ) -> Result<(), SpawnError<F>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
        Cx: TaskContext,
    {
        if self.is_cancelled() {
            return Err(SpawnError::new(SpawnErrorKind::Cancelled, child));
        }
        let Ok(memory) = MemberFrame::<F, T, Cx>::allocate_frame(&allocator) else {
            return Err(SpawnError::new(SpawnErrorKind::OutOfMemory, child));
        };
        // SAFETY: the memory is for such a frame, which is new and not shared, and takes the child. The group is alive until the child has
        // ended.
        unsafe {
            // Moved from the argument itself, as it may be large. `write_from` does not unwind.
            let future = (&raw const child).cast();
            let member = || Member::new(Unit::new(site));
            let frame = MemberFrame::<F, T, Cx>::write_from(memory, future, allocator, member);
            mem::forget(child);
            let member = MemberFrame::<F, T, Cx>::tail(frame);
            member.as_ref().unit.spawned.set(true);
            let place = place.map(|place| member.as_ref().set_place(place));
            let kind = match GroupCore::settle_child(self.as_ptr(), place, frame) {
                Ok(context) if GroupCore::launch(self.as_ptr(), frame, member, (context, place), counted.is_some()) => {
                    if let Some(counted) = counted {
                        counted();
                    }
                    Header::enqueue_first(frame, EntryKind::Child).run();
                    return Ok(());
                }
                Ok(_) => {
                    Header::unbegin(frame);
                    // No frame used the hop, so it is idle.
                    member.as_ref().take_back(frame);
                    SpawnErrorKind::Ended
                }
                Err(_) => SpawnErrorKind::OutOfMemory,
            };
            Err(SpawnError::new(kind, Self::refuse::<T, F, Cx>(frame)))
        }
    }

    /// Moves the child out of a frame that was never polled, and frees the frame. Resumes the panic of the child's scheduler, if that has
    /// replaced the child.
    ///
    /// # Safety
    ///
    /// The caller has exclusive access to the frame of such a child, and does not use it afterwards.
    #[cold]
    unsafe fn refuse<T, F, Cx>(frame: NonNull<Header>) -> F
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
        Cx: TaskContext,
    {
        // SAFETY: the caller has exclusive access to a frame with a future, and owns its one reference.
        unsafe {
            let child = MemberFrame::<F, T, Cx>::take_future(frame);
            Header::free_unstarted(frame);
            match child {
                Ok(Plain(child)) => child,
                Err(payload) => payload.resume(),
            }
        }
    }

    /// Handles the end of a child.
    ///
    /// # Safety
    ///
    /// `frame` is that of such a child, and done.
    unsafe fn complete<T, F, Cx>(frame: NonNull<()>) -> Transfer
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
        Cx: TaskContext,
    {
        let frame = frame.cast::<Header>();
        // SAFETY: the caller's promise. The group owns the frame.
        let (member, result) = unsafe {
            (
                MemberFrame::<F, T, Cx>::tail(frame).as_ref(),
                MemberFrame::<F, T, Cx>::result(frame),
            )
        };
        // SAFETY: the group, and with it its strand, is alive until it has handled this end. `spawn` listed and counted the child.
        unsafe {
            // The child's own home and record end first: the group may free the frame below.
            member.take_back(frame);
            member.unit.end();
            let core = NonNull::new_unchecked(frame.as_ref().owner().cast::<GroupCore>());
            // Decided here, where `T` is known.
            let failure = core.as_ref().policy.failure(result);
            member.set_failure(failure);
            GroupCore::child_done::<T>(core, frame, failure)
        }
    }
}

// SAFETY: a `Member` begins with the unit.
unsafe impl<F, T, Cx> FrameTail<Plain<F>, T, Infallible, Cx> for Member
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
    Cx: TaskContext,
{
    const COMPLETE: Option<Complete> = Some(GroupRef::complete::<T, F, Cx>);

    #[inline]
    fn is_bare(&mut self) -> bool {
        self.place().is_none() && self.unit.is_bare()
    }
}

impl GroupCore {
    /// Returns the context of a new child: the group's, if the child inherits everything.
    ///
    /// # Safety
    ///
    /// The child is about to be started, and pinned until it is done. `place` is that of `frame`, if it has one.
    #[inline(always)]
    pub(super) unsafe fn settle_child(
        this: NonNull<GroupCore>,
        place: Option<NonNull<ChildPlace>>,
        frame: NonNull<Header>,
    ) -> Result<NonNull<Context>, OutOfMemoryError> {
        // SAFETY: the caller's promise. A child that was not started is not shared. Its group, which is this one, has a reference, and
        // ends the child's place.
        unsafe {
            let context = &this.as_ref().context;
            let Some(mut place) = place else {
                return Ok(NonNull::from(context));
            };
            place.as_mut().settle(context, frame, |stop| stop.link(this))?;
            Ok(ChildPlace::context_in(place))
        }
    }

    /// Adds a child to the running ones; the caller queues it. Returns `false` if the group is over.
    ///
    /// # Safety
    ///
    /// As for [`settle_child`](GroupCore::settle_child), which returned the context for this place. `member` is the tail of `frame`. The
    /// group is alive until the child has ended. With `has_room` the group counts the child as running. If this returns `true`, the caller
    /// calls [`Header::enqueue_first`].
    #[inline(always)]
    pub(super) unsafe fn launch(
        this: NonNull<GroupCore>,
        frame: NonNull<Header>,
        member: NonNull<Member>,
        (context, place): (NonNull<Context>, Option<NonNull<ChildPlace>>),
        has_room: bool,
    ) -> bool {
        // SAFETY: the caller's promise. No other party knows the child before it is listed, and it does not run before it is queued.
        unsafe {
            let unit = NonNull::new_unchecked(&raw mut (*member.as_ptr()).unit);
            unit.as_ref().track();
            unit.as_ref().set_context(context);
            if context.as_ref().token.is_same(&this.as_ref().context.token) {
                unit.as_ref().set_reached();
            }
            let successor = FrameSuccessor::owner(this.cast());
            Header::begin(frame, context, unit, successor);
            let observed = Header::is_observed();
            // A child with a name or a record is marked as coming only after these are made. That locks the record of the parent, whose
            // holder may wait for the group's lock, and the holder of that lock for each child that is coming.
            let is_plain = !cfg!(feature = "inspect") && !observed && place.is_none();
            if is_plain {
                Tracker::queue_first(frame);
            }
            let level = context.as_ref().priority.unwrap_or_default();
            // A closed group has a closed inbox, so the count of running children is exact. A reserved place is one of them.
            let group = this.as_ref();
            let mut lock = group.lock_state();
            if !has_room && lock.is_over() {
                return false;
            }
            lock.running += usize::from(!has_room);
            lock.spawned = lock.spawned.saturating_add(1);
            lock.children.push_front(frame.cast());
            // The child joins an earlier raise, or lowers the bound that lets a waiter skip the next one.
            match lock.floor {
                Some(floor) => Tracker::begin_at(frame, floor),
                None if group.lowest.load(Relaxed) > level as u8 => group.lowest.store(level as u8, Relaxed),
                None => {}
            }
            drop(lock);
            // `set_name` needs a parent that ends after the child: the group counts the child by now.
            if let Some(mut place) = place
                && let Some(name) = place.as_mut().take_name()
            {
                unit.as_ref().set_name(name);
            }
            unit.as_ref().begin_inspection(observed);
            if observed {
                // The instrument may raise the child.
                Header::tell_resumed(frame);
            }
            if !is_plain {
                let _lock = group.lock_state();
                Tracker::queue_by_owner(frame);
            }
            true
        }
    }

    /// Passes a child that is done to the group.
    ///
    /// # Safety
    ///
    /// The child is listed and counted. `T` is its output. The group and the child may be freed when this returns.
    #[inline(always)]
    pub(super) unsafe fn child_done<T>(this: NonNull<GroupCore>, frame: NonNull<Header>, failure: Failure) -> Transfer {
        // SAFETY: the group counts the child, and so is alive until one of these has handled the end.
        unsafe {
            if failure == Failure::None {
                let (parent, spawned) = (this.as_ref().frame, this.as_ref().spawned.load(Relaxed));
                match (this.as_ref().inbox.push(frame.cast()), parent) {
                    (Pushed::Awaited, Some(parent)) => return Header::end_wait_for_child(parent, spawned),
                    (Pushed::Refused, _) => {}
                    _ => return Transfer::none(),
                }
            }
            GroupCore::end_child::<T>(this, frame, failure)
        }
    }
}

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
