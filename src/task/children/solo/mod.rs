//! Single children: tasks that are detached, or bound to a variable.
//!
//! [`Solo`] is the tail of the child's frame. [`ChildClaim`] is the right to the result, and [`ChildJoin`] the sender that waits for
//! it. [`join`] says which party the result belongs to, with every transition.
//!
//! The frame has one reference for the run and one for the claim. With a parent it has two more: for the link that raises it, and for
//! the tether. A child with a parent ends twice: when its frame is done, and when its link to the parent's stop token is over. The
//! later of the two tells the party that waits.

mod join;
mod start;

use core::cell::Cell;
use core::future::Future;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll, ready};
use std::boxed::Box;

pub(in crate::task) use self::join::{AsItIs, AsResult};
use self::join::{ChildJoin, DONE, Deliver, GONE, Joiner, ORPHAN, OVER, TAKEN, waiting};
pub(in crate::task) use self::start::start;
use crate::memory::{Shareable, Shared};
use crate::report::{Report, report};
use crate::sender::stage::container_of;
use crate::stop::{ErasedStopToken, Relay, Why};
use crate::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::task::awaiting::SenderFuture;
use crate::task::children::ChildPlace;
use crate::task::children::branch::Branch;
use crate::task::frame::{Header, Placement, Polling};
use crate::task::strand::{TaskRef, Tether, Tethered, Unit, raising};
use crate::{Panic, Priority, Transfer};

/// The tail of the frame of a single child. The unit is the first field, so the frame's pointer to it is one to the tail.
#[repr(C)]
pub(in crate::task) struct Solo {
    unit: Unit,
    /// The link to the parent's token, if any, lasts until the child has ended or was disclaimed. The values that the child inherits
    /// are dropped when it has ended.
    branch: Branch,
    /// Whether the link is to be ended. Cleared by a `Relaxed` swap, which publishes nothing: the thread that clears it ends the
    /// link.
    is_linked: AtomicBool,
    /// One for the run, and one for the link until it is over. Decremented with `AcqRel`, so the later end sees the writes of the
    /// earlier one, and settles the result.
    ends: AtomicU8,
    place: Option<Box<ChildPlace>>,
    /// The frame of this tail.
    frame: NonNull<Header>,
    /// Ties the child to its parent. `None` for a detached child. Written before the child is started.
    tether: Option<NonNull<Tether<Solo>>>,
    /// Whether the tether owns its reference. Accessed by the thread that polls or frees the parent.
    has_tether: Cell<bool>,
    /// Whether the tether is to be untied. Cleared by `AcqRel` swaps that pair with each other: the child's end loosens the tether,
    /// the claim's drop unties it. An abandoning parent clears the flag with `Relaxed`, and keeps the tether.
    is_tied: AtomicBool,
    /// The outermost token whose stop reaches the child: the parent's, unless there is a shield between.
    reaching: ErasedStopToken,
    /// Discards the result. Returns its panic, or that of its destructor.
    discard: unsafe fn(NonNull<Header>) -> Option<Panic>,
    /// The party that owns the result: see [`join`], with writers and orderings.
    joiner: AtomicPtr<Joiner>,
}

/// A reference to a single child: to its frame, and so to this tail of the frame.
pub(in crate::task) type SoloRef = Shared<Solo>;

// SAFETY: the frame counts the references, and the tail is a part of it. Everything that is reached through this is `Sync`.
unsafe impl Shareable for Solo {
    unsafe fn add(this: NonNull<Self>) {
        // SAFETY: there is a reference, so the frame is alive.
        unsafe { Header::count(this.as_ref().frame) };
    }

    unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the caller owns a reference, and does not use it afterwards.
        unsafe { Header::release(this.as_ref().frame) };
    }
}

impl Solo {
    pub(in crate::task) fn cancel(&self, why: Why) {
        self.branch.relay.request_stop(why).unwrap_or_default().run();
    }

    pub(in crate::task) fn why(&self) -> Option<Why> {
        self.branch.relay.registry().why()
    }

    pub(in crate::task) fn is_finished(&self) -> bool {
        matches!(self.joiner.load(Acquire), DONE | TAKEN)
    }

    /// Raises the child permanently to at least this level.
    pub(in crate::task) fn raise(&self, level: Priority) {
        // SAFETY: the frame is alive as long as its tail, and the first of a strand.
        unsafe { raising::raise(self.frame, level) };
    }

    /// Returns a reference to a detached task.
    pub(in crate::task) fn task(&self) -> TaskRef {
        // SAFETY: the child has no parent; its context is in the tail, which is alive.
        unsafe { self.unit.task_of_handle() }
    }

    /// Handles the end of the child's frame.
    ///
    /// # Safety
    ///
    /// `frame` is the child's frame, which is done.
    unsafe fn complete(frame: NonNull<()>) -> Transfer {
        let frame = frame.cast::<Header>();
        // SAFETY: the caller's promise. The run holds a reference. The unit is the first field of the tail.
        unsafe {
            let solo = Header::unit(frame).cast::<Solo>().as_ref();
            if let Some(place) = &solo.place {
                place.take_back(frame);
            }
            solo.unit.end_with_handle();
            drop(solo.branch.locals.take());
            // Unlinked first: the outer source may be destroyed once the end is visible.
            solo.unlink().and(Solo::one_end(NonNull::from(solo)))
        }
    }

    /// Ends the link to the parent's token, once.
    ///
    /// # Safety
    ///
    /// The parent, if any, is not done before this returns.
    unsafe fn unlink(&self) -> Transfer {
        if self.is_linked.swap(false, Relaxed) {
            // SAFETY: the swap succeeds once. The relay is alive until the end was settled, which waits for the link.
            unsafe { Relay::end(NonNull::from(&self.branch.relay)) }
        } else {
            Transfer::none()
        }
    }

    /// Handles the end of the link: no stop is being passed on.
    ///
    /// # Safety
    ///
    /// `relay` is that of a single child.
    unsafe fn unlinked(relay: NonNull<Relay>) -> Transfer {
        // SAFETY: the caller's promise. The run's reference and the scope last until the end was settled, which waits for this.
        unsafe {
            let solo = container_of!(container_of!(relay, Branch, relay), Solo, branch);
            if solo.as_ref().branch.frame.is_some() {
                solo.as_ref().branch.unscope();
            }
            Solo::one_end(solo)
        }
    }

    /// Counts the end of the link or of the run. The later one settles the result.
    ///
    /// # Safety
    ///
    /// Each of the two calls this once. The child may be freed when this returns.
    unsafe fn one_end(this: NonNull<Solo>) -> Transfer {
        // SAFETY: the run holds a reference until its end was settled.
        let solo = unsafe { this.as_ref() };
        if solo.ends.fetch_sub(1, AcqRel) != 1 {
            return Transfer::none();
        }
        // Everything that the parent lists is removed before `settle`, after which the parent can be done.
        solo.branch.link.leave();
        solo.branch.counted.unlink();
        if let Some(tether) = solo.tether {
            // SAFETY: the parent is not done yet. The run still holds a reference when the link's is released.
            unsafe {
                if solo.is_tied.swap(false, AcqRel) {
                    Tether::loosen(tether);
                }
                Header::release(solo.frame);
            }
        }
        // SAFETY: the run and the link have ended.
        unsafe { Solo::settle(solo) }
    }

    /// Passes the result to its owner, or discards it, and releases the run's reference.
    ///
    /// # Safety
    ///
    /// The run and the link have ended. Called once.
    unsafe fn settle(solo: &Solo) -> Transfer {
        let (frame, parent) = (solo.frame, solo.branch.frame);
        // SAFETY: the run's reference is released last. `join` says which party owns the result.
        unsafe {
            let seen = solo.joiner.load(Acquire);
            if seen == GONE || seen == ORPHAN {
                solo.drop_result();
                // The parent may have changed `GONE` to `ORPHAN` meanwhile.
                let seen = solo.joiner.swap(OVER, AcqRel);
                Header::release(frame);
                return match parent {
                    Some(parent) if seen == ORPHAN => Header::end_wait(parent, Placement::is_here),
                    _ => Transfer::none(),
                };
            }
            let joiner = waiting(seen);
            let next = if joiner.is_some() { TAKEN } else { DONE };
            if solo.joiner.compare_exchange(seen, next, AcqRel, Acquire).is_err() {
                return Solo::settle(solo);
            }
            let resumed = joiner.map_or_else(Transfer::none, |joiner| Joiner::complete(joiner, true));
            Header::release(frame);
            resumed
        }
    }

    /// Discards the result, and reports a panic.
    ///
    /// # Safety
    ///
    /// The frame is done, and the caller owns its result.
    unsafe fn drop_result(&self) {
        // SAFETY: the frame is done and not freed; `discard` was instantiated for its result. A detached child has a handle.
        unsafe {
            if let Some(payload) = (self.discard)(self.frame) {
                let task = self.branch.frame.is_none().then(|| self.unit.task_of_handle());
                report(Report::DetachedPanic {
                    name: task.as_ref().and_then(|task| task.name()),
                    panic: &payload,
                });
                drop(Panic::catch(|| drop(payload)));
            }
        }
    }

    /// Leaves the result to the end of the child, which discards it. With `counted` that end also ends an await of the parent.
    /// Returns `false` if the child has ended, or the parent has disclaimed the result before.
    fn disclaim(&self, counted: bool) -> bool {
        let gone = if counted { ORPHAN } else { GONE };
        let mut seen = self.joiner.load(Acquire);
        while !matches!(seen, DONE | TAKEN | ORPHAN | OVER) {
            match self.joiner.compare_exchange(seen, gone, AcqRel, Acquire) {
                Err(now) => seen = now,
                Ok(joiner) => {
                    if let Some(joiner) = waiting(joiner) {
                        // SAFETY: the exchange removed the joiner.
                        unsafe { Joiner::complete(joiner, false) }.run();
                    }
                    return true;
                }
            }
        }
        false
    }

    /// Unties the child from its parent. The frame does it later if the child is being abandoned, or is ending on another thread.
    ///
    /// # Safety
    ///
    /// The caller is inside the parent's poll, and holds a reference.
    unsafe fn untie(&self) {
        let was_tied = self.is_tied.swap(false, AcqRel);
        if let Some(tether) = self.tether
            && self.has_tether.get()
            // SAFETY: `has_tether` says that the tether was not untied, so its block is alive.
            && (was_tied || unsafe { Tether::is_loose(tether) })
        {
            // SAFETY: the caller polls the parent, and `has_tether` says that the tether owns its reference.
            unsafe { Tether::untie(tether) };
        }
    }
}

// SAFETY: `release` drops one reference to the child's frame.
unsafe impl Tethered for Solo {
    unsafe fn abandon(this: NonNull<Self>, polling: Polling<'_>) -> Transfer {
        // SAFETY: the tether holds a reference. The caller polls the parent, whose await is counted before the end can release it.
        unsafe {
            let solo = this.as_ref();
            solo.is_tied.store(false, Relaxed);
            let resumed = solo.branch.relay.request_stop(Why::SCOPE_LEFT).unwrap_or_default();
            polling.count_wait();
            if !solo.disclaim(true) {
                polling.uncount_wait();
            }
            resumed.and(solo.unlink())
        }
    }

    unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the tether owns a reference, and does not use the child afterwards.
        unsafe {
            this.as_ref().has_tether.set(false);
            Header::release(this.as_ref().frame);
        }
    }
}

/// The right to the result of a child, and the wait for it. After its drop a detached child continues; any other child is stopped, and its parent waits
/// for it.
pub(in crate::task) struct ChildClaim<T: Send + 'static, D: Deliver<T>> {
    /// `None` once the result was taken.
    join: Option<SenderFuture<ChildJoin<T, D>>>,
    pub(in crate::task) task: SoloRef,
}

impl<T: Send + 'static, D: Deliver<T>> ChildClaim<T, D> {
    /// Waits for the result. Panics after it was taken.
    pub(in crate::task) fn poll(&mut self, cx: &mut Cx<'_>) -> Poll<D::Value> {
        let Some(join) = &mut self.join else {
            panic!("{} was polled again after it had given its result", D::CLAIM);
        };
        let Ok(result) = ready!(Pin::new(join).poll(cx));
        self.join = None;
        Poll::Ready(result)
    }
}

impl<T: Send + 'static, D: Deliver<T>> Drop for ChildClaim<T, D> {
    fn drop(&mut self) {
        // The join waits through the claim, and so ends first.
        self.join = None;
        let solo = &*self.task;
        let is_disclaimed = match solo.branch.frame {
            None => solo.disclaim(false),
            Some(parent) => {
                if !solo.is_finished() {
                    solo.cancel(Why::SCOPE_LEFT);
                }
                Polling::with_frame(parent, |polling| {
                    let Some(polling) = polling else {
                        // Another thread: the child stays tied, and the frame waits for it when the frame's future is dropped.
                        return solo.disclaim(false);
                    };
                    // SAFETY: this thread polls the parent. The await is counted before the end can release it.
                    unsafe {
                        solo.untie();
                        polling.count_wait();
                        let counted = solo.disclaim(true);
                        if counted {
                            // The child was stopped, so no later stop matters. Its scope need not wait for it.
                            solo.unlink().run();
                        } else {
                            polling.uncount_wait();
                        }
                        counted
                    }
                })
            }
        };
        if !is_disclaimed && solo.joiner.load(Acquire) == DONE {
            // SAFETY: `DONE` says that the child has ended, and that the claim owns the result.
            unsafe { solo.drop_result() };
        }
    }
}
