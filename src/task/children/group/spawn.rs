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
use super::wait::Granted;
use crate::Transfer;
use crate::report::{Report, report};
use crate::sync::atomic::Ordering::Relaxed;
use crate::task::children::ChildPlace;
use crate::task::coroutine::{Frame, Plain, TaskContext};
use crate::task::frame::{FrameSuccessor, Header, Tracker};
use crate::task::strand::Unit;

/// The frame of a child.
type MemberFrame<F, T, Cx> = Frame<Plain<F>, T, Infallible, Cx, Member>;

impl GroupRef {
    /// Starts a child, or returns it if the group refuses it.
    pub(super) fn spawn<T, F, Cx>(
        &self,
        future: F,
        allocator: Cx::Allocator,
        place: Option<Box<ChildPlace>>,
        room: Option<Granted>,
    ) -> Result<(), SpawnError<F>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
        Cx: TaskContext,
    {
        if self.is_cancelled() {
            return Err(SpawnError::new(SpawnErrorKind::Cancelled, future));
        }
        let Ok(memory) = MemberFrame::<F, T, Cx>::allocate_frame(&allocator) else {
            return Err(SpawnError::new(SpawnErrorKind::OutOfMemory, future));
        };
        let member = Member::new(Unit::spawned(self.branch.unit), self.as_ptr(), place);
        // SAFETY: the memory is for such a frame, which is new and not shared. The group is alive until the child has ended.
        unsafe {
            let frame = MemberFrame::<F, T, Cx>::write(memory, Plain(future), allocator, member);
            let member = MemberFrame::<F, T, Cx>::tail(frame).as_ptr();
            let unit = NonNull::new_unchecked(&raw mut (*member).unit);
            unit.as_ref().track();
            let complete = Self::complete::<T, F, Cx>;
            // A child that inherits everything shares the group's context.
            let context = match &mut (*member).place {
                None => NonNull::from(&self.branch.context),
                Some(place) => match ChildPlace::settle(place, &self.branch.context, frame) {
                    Ok(context) => context,
                    Err(_) => return Err(Self::refuse::<T, F, Cx>(frame, SpawnErrorKind::OutOfMemory)),
                },
            };
            unit.as_ref().set_context(context);
            let successor = FrameSuccessor::operation(frame.cast(), complete);
            mem::forget(Header::begin(frame, context, unit, successor));
            Tracker::queue_first(frame);
            let level = context.as_ref().priority.unwrap_or_default();
            // A reserved place counts as a running child, so the group is not over.
            let has_room = room.is_some();
            // A closed group has a closed inbox, so the count of running children is exact.
            let mut lock = self.state.lock();
            if !has_room && lock.is_over() {
                drop(lock);
                Header::unbegin(frame);
                if let Some(place) = &(*member).place {
                    // No frame used the hop, so it is idle.
                    place.take_back(frame);
                }
                return Err(Self::refuse::<T, F, Cx>(frame, SpawnErrorKind::Ended));
            }
            lock.running += usize::from(!has_room);
            lock.children.push_front(frame.cast());
            // The child joins an earlier raise, or lowers the bound that lets a waiter skip the next one.
            match lock.floor {
                Some(floor) => Tracker::begin_at(frame, floor),
                None if self.lowest.load(Relaxed) > level as u8 => self.lowest.store(level as u8, Relaxed),
                None => {}
            }
            drop(lock);
            // The child has the place now.
            drop(room.map(Granted::take));
            // `set_name` needs a parent that ends after the child: the group counts the child by now.
            if let Some(name) = (*member).place.as_mut().and_then(|place| place.take_name()) {
                unit.as_ref().set_name(name);
            }
            Header::enqueue_child(frame).run();
        }
        Ok(())
    }

    /// Takes the child out of a frame that was never polled, and frees the frame. Resumes the panic of the child's scheduler, if
    /// that has replaced the child.
    ///
    /// # Safety
    ///
    /// The caller has exclusive access to the frame of such a child, and does not use it afterwards.
    #[cold]
    unsafe fn refuse<T, F, Cx>(frame: NonNull<Header>, kind: SpawnErrorKind) -> SpawnError<F>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
        Cx: TaskContext,
    {
        // SAFETY: the caller has exclusive access to a frame with a future, and owns its one reference.
        unsafe {
            let child = MemberFrame::<F, T, Cx>::take_future(frame);
            Header::release(frame);
            match child {
                Ok(Plain(child)) => SpawnError::new(kind, child),
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
        // The child's own home and record end first: the group may free the frame below.
        if let Some(place) = &member.place {
            // SAFETY: the child is done, and its frame alive.
            unsafe { place.take_back(frame) };
        }
        // SAFETY: the group, and with it its strand, is alive until it has handled this end. `spawn` listed and counted the child.
        unsafe {
            member.unit.end();
            let core = NonNull::new_unchecked(member.owner.get().cast::<GroupCore>());
            // Decided here, where `T` is known.
            let failure = core.as_ref().policy.failure(result);
            member.failure.set(failure);
            if failure == Failure::None {
                let parent = core.as_ref().branch.frame;
                match (core.as_ref().inbox.push(frame.cast()), parent) {
                    (Pushed::Awaited, Some(parent)) => return Header::end_wait_for_child(parent),
                    (Pushed::Refused, _) => {}
                    _ => return Transfer::none(),
                }
            }
            GroupCore::end_child::<T>(core, frame, failure)
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
