//! Single children: tasks that are detached, or bound to a variable.
//!
//! A single child is a group of one, in the tail of the child's own frame. So it starts, ends, waits and is abandoned like any other
//! child. [`ChildClaim`] is the right to its result, and takes the place of the body: the group is open until the claim is dropped.
//!
//! The frame has one reference for the child, which its group owns, and one for the group. All references to the group share the
//! latter.

use core::convert::Infallible;
use core::future::Future;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};
use std::boxed::Box;

use super::body::COLLECTING;
use super::child::Member;
use super::core::{GroupCore, GroupRef};
use super::next::Waiting;
use super::results::{Failure, Policy};
use crate::memory::OutOfMemoryError;
use crate::scheduler::thread_pool::EntryKind;
use crate::stop::Why;
use crate::sync::atomic::Ordering::Acquire;
use crate::task::awaiting::sent_elsewhere;
use crate::task::children::ChildPlace;
use crate::task::coroutine::{Frame, FrameTail, Plain, TaskContext};
use crate::task::frame::{Activity, Awaited, Complete, Header, Polling, Site, TaskNumber};
use crate::task::strand::{Locals, TaskRef, Tether, Unit};
use crate::{Completion, Priority, Transfer};

/// The tail of the frame of a single child. The member, and with it the unit, is the first field, as in any child's frame.
#[repr(C)]
struct Solo {
    member: Member,
    core: GroupCore,
}

/// The frame of a single child.
type SoloFrame<F, T, Cx> = Frame<Plain<F>, T, Infallible, Cx, Solo>;

// SAFETY: a `Solo` begins with a member, which begins with the unit.
unsafe impl<F, T, Cx> FrameTail<Plain<F>, T, Infallible, Cx> for Solo
where
    T: Send + 'static,
    Cx: TaskContext,
{
    const COMPLETE: Option<Complete> = Some(complete::<T>);
}

/// The claim takes every completion, so none matters to the group.
const POLICY: Policy = Policy {
    supervises: true,
    ..COLLECTING
};

/// Starts a single child at `site`: of the frame `polling`, which waits for it, or detached.
pub(in crate::task) fn start<T, F, Cx>(
    future: F,
    polling: Option<Polling<'_>>,
    (place, allocator): (Option<Box<ChildPlace>>, Cx::Allocator),
    site: Site,
) -> Result<ChildClaim<T>, OutOfMemoryError>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
    Cx: TaskContext,
{
    // A detached child inherits nothing.
    let (unit, locals) = match polling {
        Some(_) => (Unit::spawned(site), Locals::current()),
        None => (Unit::new(site), Locals::default()),
    };
    let solo = Solo {
        member: Member::new(unit),
        core: GroupCore::new(POLICY, polling, locals),
    };
    let frame = SoloFrame::<F, T, Cx>::make(Plain(future), allocator, solo)?;
    // SAFETY: the frame is new and not shared; its tail is pinned. The claim, or the parent's frame, ends the group.
    unsafe {
        let solo = SoloFrame::<F, T, Cx>::tail(frame).as_ptr();
        let core = NonNull::new_unchecked(&raw mut (*solo).core);
        (*solo).core.single = Some(frame);
        if let Some(polling) = polling {
            (*solo).core.reaching = polling.context().reaching_token();
        }
        GroupCore::pin(core);
        // First the steps that can fail, while no other party knows the child.
        let member = NonNull::new_unchecked(&raw mut (*solo).member);
        let place = place.map(|place| member.as_ref().set_place(place));
        let settled = GroupCore::settle_child(core, place, frame);
        let context = match settled.and_then(|context| GroupCore::tie(core, polling).map(|()| context)) {
            Ok(context) => context,
            Err(error) => {
                member.as_ref().take_back(frame);
                Header::free_unstarted(frame);
                return Err(error);
            }
        };
        let mut claim = ChildClaim {
            waiting: Waiting::default(),
            core: GroupRef::from_raw(core),
            is_awaited: false,
            is_taken: false,
            number: TaskNumber::default(),
            _value: PhantomData,
        };
        GroupCore::launch(core, frame, member, (context, place), false);
        // The child does not end before it is queued.
        claim.number = TaskNumber::of(|| member.as_ref().unit.task().id().as_u64());
        // The reference of the group. The child does not run before it is queued, so no reference was released.
        Header::count(frame);
        Header::enqueue_first(frame, EntryKind::Plain).run();
        Ok(claim)
    }
}

/// Handles the end of a single child.
///
/// # Safety
///
/// `frame` is that of such a child, whose output is `T`, and done.
unsafe fn complete<T>(frame: NonNull<()>) -> Transfer {
    let frame = frame.cast::<Header>();
    // SAFETY: the caller's promise. The group owns the frame, and the unit is the first field of the tail.
    unsafe {
        let solo = Header::unit(frame).cast::<Solo>();
        solo.as_ref().member.take_back(frame);
        solo.as_ref().member.unit.end_with_handle();
        drop(solo.as_ref().core.locals.take());
        let core = NonNull::new_unchecked(&raw mut (*solo.as_ptr()).core);
        GroupCore::child_done::<T>(core, frame, Failure::None)
    }
}

/// The right to the result of a child, and the wait for it. After its drop a detached child continues; any other child is stopped,
/// and its parent waits for it.
pub(in crate::task) struct ChildClaim<T: Send + 'static> {
    waiting: Waiting,
    core: GroupRef,
    /// Whether the parent's frame waits for the child itself, without an operation: then no other task may.
    is_awaited: bool,
    is_taken: bool,
    number: TaskNumber,
    _value: PhantomData<fn(T) -> T>,
}

impl<T: Send + 'static> ChildClaim<T> {
    /// Waits for the result, at `site`. Panics after it was taken, with the name of the claim.
    pub(in crate::task) fn poll(&mut self, cx: &mut Cx<'_>, name: &str, site: Site) -> Poll<Completion<T, Infallible>> {
        assert!(!self.is_taken, "{name} was polled again after it had given its result");
        if self.is_awaited && !self.core.is_here() && self.core.counts().0 != 0 {
            sent_elsewhere();
        }
        // SAFETY: `start` made the group for a child of this output.
        let polled = unsafe { self.waiting.poll_next(&self.core, cx) };
        self.is_awaited |= polled.is_pending() && self.waiting.0.is_none();
        let Poll::Ready(ended) = polled else {
            let what = match self.core.frame {
                Some(_) => Awaited::CHILD,
                None => Awaited::DETACHED,
            };
            Activity::with(|activity| activity.awaits_task(what, self.number, site));
            return Poll::Pending;
        };
        // There is none if the child's parent has ended.
        let completion = ended.unwrap_or(Completion::Stopped);
        // A stop is a result of a detached child only. Any other stops the awaiting task, at each poll.
        self.is_taken = self.core.frame.is_none() || !matches!(completion, Completion::Stopped);
        Poll::Ready(completion)
    }

    pub(in crate::task) fn cancel(&self, why: Why) {
        self.core.cancel(why).run();
    }

    pub(in crate::task) fn why(&self) -> Option<Why> {
        self.core.relay.registry().why()
    }

    /// Raises the child permanently to at least this level.
    pub(in crate::task) fn raise(&self, level: Priority) {
        self.core.wanted_at(level);
    }

    /// Returns whether the child has ended, and its result was not discarded.
    pub(in crate::task) fn is_finished(&self) -> bool {
        let lock = self.core.lock();
        lock.running == 0 && !lock.abandoned
    }

    /// Returns a reference to the detached task.
    pub(in crate::task) fn task(&self) -> TaskRef {
        // SAFETY: the claim keeps the frame, and with it the unit and the context, alive. The child has no parent.
        unsafe { self.core.single_unit().task_of_handle() }
    }
}

impl<T: Send + 'static> PartialEq for ChildClaim<T> {
    fn eq(&self, other: &Self) -> bool {
        self.core == other.core
    }
}

impl<T: Send + 'static> Hash for ChildClaim<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.core.as_ptr().hash(state);
    }
}

impl<T: Send + 'static> Drop for ChildClaim<T> {
    fn drop(&mut self) {
        // The wait may have the result, and returns it to the group.
        self.waiting = Waiting::default();
        let (core, mut resumed) = (&self.core, Transfer::none());
        let is_child = core.frame.is_some();
        let mut lock = core.lock_closed();
        let (ended, runs) = (lock.pop_finished(), lock.running != 0);
        lock.abandoned = true;
        drop(lock);
        if let Some(child) = ended {
            // SAFETY: the child is done, with this output, and was removed from the group.
            drop(unsafe { core.discard::<T>(child.frame()) });
        }
        if is_child && runs {
            resumed = core.cancel(core.why_left());
        }
        if !is_child {
            core.close(None);
        }
        core.end(false);
        // On another thread than the parent's, the parent's frame does that.
        core.loosen();
        resumed.run();
    }
}

impl GroupCore {
    /// Returns the strand of a single child.
    pub(super) fn single_unit(&self) -> &Unit {
        let frame = self.single.expect("a single child");
        // SAFETY: the frame was started, and its unit is in the same allocation as this group.
        unsafe { Header::unit(frame).as_ref() }
    }

    /// Leaves the end of the group to its frame, if it is still tied to that. The caller is the claim, and ends it no more.
    fn loosen(&self) {
        if !self.is_tied.load(Acquire) {
            return;
        }
        // An ending frame clears the tie, and then waits for this lock before it frees the tether.
        let _lock = self.lock_state();
        if self.is_tied.load(Acquire)
            && let Some(tether) = self.tether.get()
        {
            // SAFETY: the group is tied, so the tether was not untied, and the frame is not done before the unlock.
            unsafe { Tether::loosen(tether) };
        }
    }
}
