//! Waiting for the result of a single child: the joins, and the word that names the owner of the result.
//!
//! | value | meaning |
//! |---|---|
//! | null | the child runs, and no party waits |
//! | a [`Joiner`], with `STARTING` | the child runs, and the joiner begins to wait. Its start notices a removal |
//! | a joiner | the child runs, and the joiner waits. The removing party completes it |
//! | `DONE` | the child has ended; the result is in the frame, and belongs to the [`ChildClaim`](super::ChildClaim) |
//! | `TAKEN` | the child has ended; the result belongs to the joiner that waited |
//! | `GONE` | the result was disclaimed: the end of the child discards it |
//! | `ORPHAN` | like `GONE`; the end also ends the await that the parent has counted |
//! | `OVER` | the child has ended, and its result was discarded |
//!
//! | from | to | writer |
//! |---|---|---|
//! | null | a joiner, with `STARTING` | the joiner's start |
//! | a joiner, with `STARTING` | the joiner | the joiner's start, when it listens to its stop token |
//! | a joiner, with or without `STARTING` | null | the joiner's stop callback |
//! | null, a joiner with `STARTING` | `DONE` | the end of the child |
//! | a joiner | `TAKEN` | the end of the child, which completes the joiner |
//! | null, a joiner | `GONE`, `ORPHAN` | the claim, when it is dropped |
//! | null, a joiner, `GONE` | `ORPHAN` | the parent, when its future is dropped |
//! | `GONE`, `ORPHAN` | `OVER` | the end of the child, after the result was discarded |
//!
//! Every change is `AcqRel`, and every load acquires. So a party that finds `DONE` sees the result. A party that completes a joiner
//! sees the writes of the joiner's start.

use core::convert::Infallible;
use core::marker::{PhantomData, PhantomPinned};
use core::pin::Pin;
use core::ptr::{self, NonNull};

use super::SoloRef;
use crate::sender::stage::container_of;
use crate::stop::{ErasedStopToken, StopSlot, StopToken};
use crate::sync::atomic::Ordering::{AcqRel, Acquire};
use crate::task::children::TaskError;
use crate::task::frame::Header;
use crate::task::strand::{Awaiter, Link, ToRaise};
use crate::{Completion, Env, Operation, Receiver, Sender, Transfer};

pub(super) const DONE: *mut Joiner = ptr::without_provenance_mut(1);
pub(super) const GONE: *mut Joiner = ptr::without_provenance_mut(2);
pub(super) const ORPHAN: *mut Joiner = ptr::without_provenance_mut(3);
pub(super) const OVER: *mut Joiner = ptr::without_provenance_mut(5);
pub(super) const TAKEN: *mut Joiner = ptr::without_provenance_mut(7);
/// A bit that is zero in the address of a joiner: its start has not returned.
pub(super) const STARTING: usize = 1;

/// Returns the joiner that the word names, if it waits.
pub(super) fn waiting(word: *mut Joiner) -> Option<NonNull<Joiner>> {
    NonNull::new(word).filter(|joiner| joiner.addr().get() & STARTING == 0 && word != GONE)
}

/// The way in which the result of a child is delivered.
pub(in crate::task) trait Deliver<T>: 'static {
    type Value: Send;
    /// The name of the claim, for messages.
    const CLAIM: &'static str;

    fn deliver<R: Receiver<Self::Value, Infallible>>(completion: Completion<T, Infallible>, receiver: R) -> Transfer;
}

/// Delivers every completion as a value: a `Result`.
pub(in crate::task) struct AsResult;

impl<T: Send + 'static> Deliver<T> for AsResult {
    type Value = Result<T, TaskError>;
    const CLAIM: &'static str = "a `Handle`";

    fn deliver<R: Receiver<Self::Value, Infallible>>(completion: Completion<T, Infallible>, receiver: R) -> Transfer {
        receiver.set_value(TaskError::result(completion))
    }
}

/// Delivers the completion unchanged: a child that stopped stops the awaiting task, and a panic unwinds there.
pub(in crate::task) struct AsItIs;

impl<T: Send + 'static> Deliver<T> for AsItIs {
    type Value = T;
    const CLAIM: &'static str = "an `AsyncLet`";

    fn deliver<R: Receiver<Self::Value, Infallible>>(completion: Completion<T, Infallible>, receiver: R) -> Transfer {
        completion.deliver(receiver)
    }
}

/// A sender of the result of a child.
pub(in crate::task) struct ChildJoin<T, D> {
    pub(super) task: SoloRef,
    pub(super) _value: PhantomData<fn() -> (T, D)>,
}

// SAFETY: the operation touches nothing once another party may complete it, nor after its completion; it is `!Unpin`.
unsafe impl<T: Send + 'static, D: Deliver<T>> Sender for ChildJoin<T, D> {
    type Value = D::Value;
    type Error = Infallible;
    type Operation<R: Receiver<D::Value, Infallible>> = JoinOperation<T, D, R>;

    fn connect<R: Receiver<D::Value, Infallible>>(self, receiver: R) -> JoinOperation<T, D, R> {
        JoinOperation {
            joiner: Joiner {
                complete: JoinOperation::<T, D, R>::complete,
            },
            link: Link::new(|link| {
                // SAFETY: the link is that of such an operation. `finish` removes it before it takes the reference to the child.
                unsafe {
                    let parts = &container_of!(link, JoinOperation<T, D, R>, link).as_ref().parts;
                    parts.as_ref().map(|(task, _)| ToRaise::strand(task.frame))
                }
            }),
            parts: Some((self.task, receiver)),
            reached: None,
            slot: StopSlot::new(JoinOperation::<T, D, R>::stop_requested),
            _pinned: PhantomPinned,
            _value: PhantomData,
        }
    }
}

/// The part of a join that the child points at.
#[repr(align(8))]
pub(super) struct Joiner {
    /// Completes the join: `true` when the child has ended and the result is available, `false` when the claim was dropped.
    complete: unsafe fn(NonNull<Joiner>, bool) -> Transfer,
}

impl Joiner {
    /// # Safety
    ///
    /// The caller removed the joiner from the child's word.
    pub(super) unsafe fn complete(this: NonNull<Joiner>, done: bool) -> Transfer {
        // SAFETY: a joiner is alive until it is completed, which the caller may do.
        unsafe { (this.as_ref().complete)(this, done) }
    }
}

type JoinToken<D, T, R> = <<R as Receiver<<D as Deliver<T>>::Value, Infallible>>::Env as Env>::StopToken;

/// The operation of [`ChildJoin`]. The joiner is first, so both have the same address.
#[repr(C)]
pub(in crate::task) struct JoinOperation<T, D: Deliver<T>, R: Receiver<D::Value, Infallible>> {
    joiner: Joiner,
    /// Raises the child with the awaiting task.
    link: Link,
    /// Taken by the completion.
    parts: Option<(SoloRef, R)>,
    /// A token whose stop reaches both the awaiting task and the child: then the child's end is waited for.
    reached: Option<ErasedStopToken>,
    slot: StopSlot<JoinToken<D, T, R>>,
    _pinned: PhantomPinned,
    _value: PhantomData<fn() -> (T, D)>,
}

impl<T: Send + 'static, D: Deliver<T>, R: Receiver<D::Value, Infallible>> JoinOperation<T, D, R> {
    /// # Safety
    ///
    /// `joiner` is that of such an operation. The caller removed it from the child's word.
    unsafe fn complete(joiner: NonNull<Joiner>, done: bool) -> Transfer {
        let this = joiner.cast::<Self>().as_ptr();
        // SAFETY: the removal makes this the completing party. `leave` waits for a running callback, which finds no joiner.
        unsafe {
            (*this).slot.leave();
            Self::finish(this, done)
        }
    }

    /// # Safety
    ///
    /// The caller is the completing party, and no callback uses the operation.
    unsafe fn finish(this: *mut Self, done: bool) -> Transfer {
        // SAFETY: the caller has exclusive access. The awaiting frame is not done.
        let parts = unsafe {
            (*this).link.leave();
            (*this).parts.take()
        };
        let Some((task, receiver)) = parts else {
            return Transfer::none();
        };
        if !done {
            drop(task);
            return receiver.set_stopped();
        }
        // SAFETY: the child has ended, and its word left the result to this join.
        let completion = unsafe { Header::take_result::<Completion<T, Infallible>>(task.frame) };
        drop(task);
        D::deliver(completion, receiver)
    }

    /// Returns whether a stop is ignored: it reaches the child too, so the child's end is near.
    fn ignores_stop(&self) -> bool {
        self.reached.is_some_and(|token| token.stop_requested())
    }

    /// # Safety
    ///
    /// `slot` is that of such an operation, which is alive until the slot is released.
    unsafe fn stop_requested(slot: NonNull<StopSlot<JoinToken<D, T, R>>>) -> Transfer {
        // SAFETY: the caller's promise. After the release, only a callback that removed the joiner uses the operation.
        unsafe {
            let this = container_of!(slot, Self, slot).as_ptr();
            let word = this.cast::<Joiner>();
            let taken = match &(*this).parts {
                Some((task, _)) if !(*this).ignores_stop() => {
                    let joiner = &task.joiner;
                    let starting = word.map_addr(|address| address | STARTING);
                    if joiner
                        .compare_exchange(starting, ptr::null_mut(), AcqRel, Acquire)
                        .is_ok()
                    {
                        // The joiner's start notices.
                        None
                    } else {
                        joiner.compare_exchange(word, ptr::null_mut(), AcqRel, Acquire).ok()
                    }
                }
                _ => None,
            };
            slot.as_ref().release();
            match taken {
                Some(_) => Self::finish(this, false),
                None => Transfer::none(),
            }
        }
    }
}

impl<T: Send + 'static, D: Deliver<T>, R: Receiver<D::Value, Infallible>> Operation for JoinOperation<T, D, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: only unpinned fields are moved.
        let this = unsafe { self.get_unchecked_mut() } as *mut Self;
        // SAFETY: this call has exclusive access until the joiner is published without `STARTING`. The operation is pinned and
        // started once; the slot is left or released before it completes.
        unsafe {
            let Some((task, receiver)) = &(*this).parts else {
                return Transfer::none();
            };
            // The environment is user code, so it is queried before anything is linked.
            let env = receiver.env();
            let (token, level, around) = (env.stop_token(), env.priority(), Awaiter::of(&env));
            drop(env);
            let task = task.clone();
            let joiner = &task.joiner;
            let word = this.cast::<Joiner>();
            let starting = word.map_addr(|address| address | STARTING);
            if let Err(seen) = joiner.compare_exchange(ptr::null_mut(), starting, AcqRel, Acquire) {
                drop(token);
                // If not done, another join waits, or the claim was dropped: this one stops.
                return Self::finish(this, seen == DONE);
            }
            // A stop that reaches the child as well is ignored, so that its result is not lost.
            if let Some(around) = around {
                let context = around.context.as_ref();
                let is = |one: ErasedStopToken, other: ErasedStopToken| one.stop_possible() && one.is_same(&other);
                (*this).reached = if is(context.token, task.branch.outer) {
                    Some(task.branch.outer)
                } else {
                    // The child was started in another scope of the task. A stop of the task reaches both.
                    let token = context.reaching_token();
                    is(token, task.reaching).then_some(token)
                };
                Link::enter(NonNull::new_unchecked(&raw mut (*this).link), around.frame);
            }
            // The link tells later raises only.
            if let Some(level) = level {
                task.raise(level);
            }
            let listening = StopSlot::listen(NonNull::new_unchecked(&raw mut (*this).slot), token);
            let waits = listening || (*this).ignores_stop();
            let next = if waits { word } else { ptr::null_mut() };
            // Fails if the child has ended, or if the callback or the claim removed the joiner.
            match joiner.compare_exchange(starting, next, AcqRel, Acquire) {
                Ok(_) if waits => Transfer::none(),
                Ok(_) => Self::finish(this, false),
                Err(seen) => Self::complete(NonNull::new_unchecked(word), seen == DONE),
            }
        }
    }
}
