//! The future that runs the body of a group, and then waits for its children.

use core::future::Future;
use core::marker::{PhantomData, PhantomPinned};
use core::mem;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll, ready};

use super::TaskGroup;
use super::core::GroupRef;
use super::policy::Policy;
use crate::Panic;
use crate::report::{Report, report};
use crate::stop::Why;
use crate::task::frame::{self, Polling};
use crate::task::strand::current_level;

/// An awaited group: the future of [`group`](super::group) and its variants.
#[must_use = "futures do nothing until they are awaited"]
pub struct GroupFuture<B, F, T, O, K> {
    stage: GroupStage<B, F, O>,
    /// Invariant, like the group handle that the body gets.
    _child: PhantomData<fn(T) -> T>,
    _kind: PhantomData<fn() -> K>,
    _pinned: PhantomPinned,
}

enum GroupStage<B, F, O> {
    Unpolled(B),
    Polled(Body<F, O>),
    Over,
}

// For an `async` block, the compiler checks this with lifetimes erased, and may not see how they are related. So the only
// bounds are that the parts are `Send`.
// SAFETY: the body, its output and the group's handles are `Send`.
unsafe impl<B: Send, F: Send, T, O: Send, K> Send for GroupFuture<B, F, T, O, K> {}

impl<B, F, T, O, K> GroupFuture<B, F, T, O, K> {
    pub(super) fn new(body: B) -> Self {
        GroupFuture {
            stage: GroupStage::Unpolled(body),
            _child: PhantomData,
            _kind: PhantomData,
            _pinned: PhantomPinned,
        }
    }
}

impl<B, F, T, O, K> Future for GroupFuture<B, F, T, O, K>
where
    B: FnOnce(TaskGroup<T>) -> F,
    F: Future<Output = O>,
    K: Flavour<T, O>,
{
    type Output = K::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<K::Output> {
        // SAFETY: only the closure is moved, and it is not pinned.
        let stage = unsafe { &mut self.get_unchecked_mut().stage };
        if matches!(stage, GroupStage::Unpolled(_))
            && let GroupStage::Unpolled(body) = mem::replace(stage, GroupStage::Over)
        {
            *stage = GroupStage::Polled(Body::new(K::POLICY, |core| body(TaskGroup::new(core))));
        }
        let GroupStage::Polled(body) = stage else {
            return Poll::Pending;
        };
        // SAFETY: the body is structurally pinned.
        let result =
            ready!(unsafe { Pin::new_unchecked(&mut *body) }.poll(cx, K::fails, TaskGroup::<T>::take_panicked));
        let group = TaskGroup::new(body.core.clone());
        *stage = GroupStage::Over;
        Poll::Ready(K::conclude(&group, result))
    }
}

crate::opaque!([B, F, T, O, K] GroupFuture<B, F, T, O, K>);

/// Runs the body of a group, and waits for the children.
///
/// Dropping it early stops the children, and its frame waits for them.
pub(super) struct Body<F, O> {
    pub(super) core: GroupRef,
    /// `None` once it has ended.
    body: Option<F>,
    result: Option<Result<O, Panic>>,
    /// Whether the group wakes the frame when a child panics.
    is_watched: bool,
    is_over: bool,
}

/// Takes the panic of a child that the body has not seen.
type TakePanic = fn(&GroupRef) -> Option<Panic>;

impl<F: Future<Output = O>, O> Body<F, O> {
    /// Opens a group of the polled task, and creates the body. If that panics, the group is over.
    pub(super) fn new(policy: Policy, body: impl FnOnce(GroupRef) -> F) -> Self {
        let mut this = Body {
            core: GroupRef::open(policy),
            body: None,
            result: None,
            is_watched: false,
            is_over: false,
        };
        this.body = Some(body(this.core.clone()));
        this
    }

    /// Is ready when the body and all children have ended. Cancels the children if the body's output `fails`.
    pub(super) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Cx<'_>,
        fails: fn(&O) -> bool,
        take_panic: TakePanic,
    ) -> Poll<Result<O, Panic>> {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        if this.is_over {
            return Poll::Pending;
        }
        assert!(
            !this.core.has_frame() || this.core.is_here(),
            "a group was sent to another task: await it in the task where it began",
        );
        if !this.poll_body(cx, fails, take_panic) {
            return Poll::Pending;
        }
        // The children are waited for at the level of this task.
        if !Polling::with(|polling| this.core.close(polling)) {
            this.core.wanted_at(current_level());
            // The last child wakes the frame itself, and any other waker through the group's list.
            let waker = Some(cx.waker()).filter(|waker| !this.core.is_frame(frame::frame_of(waker)));
            if !this.core.is_over(waker) {
                return Poll::Pending;
            }
        }
        this.is_over = true;
        this.core.end();
        this.result.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// Polls the body. Returns `false` while it runs.
    fn poll_body(&mut self, cx: &mut Cx<'_>, fails: fn(&O) -> bool, take_panic: TakePanic) -> bool {
        let Some(body) = &mut self.body else { return true };
        // SAFETY: the body is structurally pinned.
        let body = unsafe { Pin::new_unchecked(body) };
        let result = match Panic::catch(|| body.poll(cx)) {
            // The body waits for something. The panic of a child that it does not wait for ends it.
            Ok(Poll::Pending) => {
                let is_watched = &mut self.is_watched;
                while Polling::with(|polling| self.core.has_panic(polling, is_watched, cx.waker())) {
                    if let Some(payload) = take_panic(&self.core) {
                        return self.end_body(Err(payload), fails);
                    }
                    // The body has seen the panic, and watches for the next.
                    *is_watched = false;
                }
                return false;
            }
            Ok(Poll::Ready(value)) => Ok(value),
            Err(payload) => Err(payload),
        };
        self.end_body(result, fails)
    }

    /// Drops the body, and keeps its result.
    fn end_body(&mut self, result: Result<O, Panic>, fails: fn(&O) -> bool) -> bool {
        // Its locals are dropped before the children are waited for. A panic of a destructor replaces the result.
        let result = match Panic::catch(|| self.body = None) {
            Ok(()) => result,
            Err(payload) => result.and(Err(payload)),
        };
        if result.as_ref().map_or(true, fails) {
            self.core.cancel(Why::SCOPE_LEFT).run();
        }
        self.result = Some(result);
        true
    }
}

impl<F, O> Drop for Body<F, O> {
    fn drop(&mut self) {
        /// Abandons the group, also when dropping the body panics.
        struct GiveUp<'a>(&'a GroupRef);
        impl Drop for GiveUp<'_> {
            fn drop(&mut self) {
                self.0.give_up();
            }
        }

        if !self.is_over {
            let _give_up = GiveUp(&self.core);
            // The body's locals are dropped first, as in any other future.
            self.body = None;
        }
    }
}

/// The kind of a group with children of output `T` and a body of output `O`.
pub trait Flavour<T, O>: private::SealedFlavour {
    /// The output of the group.
    type Output;

    #[doc(hidden)]
    const POLICY: Policy;

    /// Returns whether this output of the body cancels the children.
    #[doc(hidden)]
    fn fails(_: &O) -> bool {
        false
    }

    /// Returns the output of the group.
    #[doc(hidden)]
    fn conclude(group: &TaskGroup<T>, result: Result<O, Panic>) -> Self::Output;
}

/// Sealed: the kinds of groups are fixed.
mod private {
    pub trait SealedFlavour {}
    impl SealedFlavour for super::Collecting {}
    impl SealedFlavour for super::Trying {}
    impl SealedFlavour for super::Discarding {}
    impl SealedFlavour for super::Supervising {}
}

/// The kind of [`group`](super::group).
#[derive(Clone, Copy, Debug)]
pub struct Collecting;

/// The kind of [`try_group`](super::try_group).
#[derive(Clone, Copy, Debug)]
pub struct Trying;

/// The kind of [`discarding_group`](super::discarding_group).
#[derive(Clone, Copy, Debug)]
pub struct Discarding;

/// The kind of [`supervised_group`](super::supervised_group).
#[derive(Clone, Copy, Debug)]
pub struct Supervising;

const COLLECTING: Policy = Policy {
    discards: false,
    supervises: false,
    fails: None,
};

impl<T, O> Flavour<T, O> for Collecting {
    type Output = O;
    const POLICY: Policy = COLLECTING;

    fn conclude(group: &TaskGroup<T>, result: Result<O, Panic>) -> O {
        unless_panicked(result, group.drain(drop))
    }
}

impl<O> Flavour<(), O> for Discarding {
    type Output = O;
    const POLICY: Policy = Policy {
        discards: true,
        ..COLLECTING
    };

    fn conclude(group: &TaskGroup<()>, result: Result<O, Panic>) -> O {
        unless_panicked(result, group.drain(drop))
    }
}

impl<T, O> Flavour<T, O> for Supervising {
    type Output = O;
    const POLICY: Policy = Policy {
        supervises: true,
        ..COLLECTING
    };

    fn conclude(group: &TaskGroup<T>, result: Result<O, Panic>) -> O {
        group.drain_all(drop, |panic| report(Report::ChildPanic { panic: &panic }));
        unless_panicked(result, None)
    }
}

impl<T, E, R> Flavour<Result<T, E>, Result<R, E>> for Trying {
    type Output = Result<R, E>;
    const POLICY: Policy = Policy {
        fails: Some(is_error::<T, E>),
        ..COLLECTING
    };

    fn fails(result: &Result<R, E>) -> bool {
        result.is_err()
    }

    fn conclude(group: &TaskGroup<Result<T, E>>, result: Result<Result<R, E>, Panic>) -> Result<R, E> {
        let mut failure = None;
        let panic = group.drain(|result| {
            if failure.is_none() {
                failure = result.err();
            }
        });
        let value = unless_panicked(result, panic)?;
        failure.map_or(Ok(value), Err)
    }
}

/// # Safety
///
/// `value` is a `Result<T, E>`.
unsafe fn is_error<T, E>(value: NonNull<()>) -> bool {
    // SAFETY: the caller's promise.
    unsafe { value.cast::<Result<T, E>>().as_ref() }.is_err()
}

/// Returns the body's output, unless the body or a child has panicked.
fn unless_panicked<O>(result: Result<O, Panic>, panic: Option<Panic>) -> O {
    match (result, panic) {
        (Ok(value), None) => value,
        (Err(payload), _) | (_, Some(payload)) => payload.resume(),
    }
}
