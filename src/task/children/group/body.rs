//! What runs the body of a group, and then waits for its children.

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
use crate::task::frame::{self, Polling};
use crate::task::strand::current_level;

/// A group that is awaited: the future of [`group`](super::group) and its like, which say what it does.
#[must_use = "futures do nothing until they are awaited"]
pub struct GroupFuture<B, F, T, O, K> {
    stage: GroupStage<B, F, O>,
    /// Invariant, as the group that the body gets is.
    _child: PhantomData<fn(T) -> T>,
    _kind: PhantomData<fn() -> K>,
    _pinned: PhantomPinned,
}

enum GroupStage<B, F, O> {
    Unpolled(B),
    Polled(Body<F, O>),
    Over,
}

// The compiler asks this of an `async` block with the lifetimes in its types forgotten, and may not see then how they
// belong together. So nothing is asked but that what is in there is `Send`.
// SAFETY: the body and what it gives are, and so are a group's handles.
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
        // SAFETY: nothing is moved but the closure, which is not pinned.
        let stage = unsafe { &mut self.get_unchecked_mut().stage };
        if matches!(stage, GroupStage::Unpolled(_))
            && let GroupStage::Unpolled(body) = mem::replace(stage, GroupStage::Over)
        {
            *stage = GroupStage::Polled(Body::new(K::POLICY, |core| body(TaskGroup::new(core))));
        }
        let GroupStage::Polled(body) = stage else {
            return Poll::Pending;
        };
        // SAFETY: it is pinned with this.
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
/// Dropped before its end, it stops the children, and the frame that it is in waits for them.
pub(super) struct Body<F, O> {
    pub(super) core: GroupRef,
    /// None once it has ended.
    body: Option<F>,
    result: Option<Result<O, Panic>>,
    /// The group wakes the frame when a child panics.
    is_watched: bool,
    is_over: bool,
}

/// Takes the panic of a child that the body has not seen.
type TakePanic = fn(&GroupRef) -> Option<Panic>;

impl<F: Future<Output = O>, O> Body<F, O> {
    /// Opens a group of the task that is polled, and makes the body. Should that panic, the group is over.
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

    /// Ready when the body and all children have ended. The children are cancelled when the body gave what `fails`.
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
        if !Polling::with(|polling| this.core.close(polling)) {
            this.core.wanted_at(current_level());
            // The last child wakes the frame.
            let waker = Some(cx.waker()).filter(|waker| !this.core.is_frame(frame::frame_of(waker)));
            if !this.core.is_over(waker) {
                return Poll::Pending;
            }
        }
        this.is_over = true;
        this.core.end();
        this.result.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// Polls the body. `false` while it runs.
    fn poll_body(&mut self, cx: &mut Cx<'_>, fails: fn(&O) -> bool, take_panic: TakePanic) -> bool {
        let Some(body) = &mut self.body else { return true };
        // SAFETY: it is pinned with this.
        let body = unsafe { Pin::new_unchecked(body) };
        let result = match Panic::catch(|| body.poll(cx)) {
            // It waits for something. The panic of a child that it does not wait for ends it.
            Ok(Poll::Pending) => {
                let is_watched = &mut self.is_watched;
                while Polling::with(|polling| self.core.has_panic(polling, is_watched, cx.waker())) {
                    if let Some(payload) = take_panic(&self.core) {
                        return self.end_body(Err(payload), fails);
                    }
                    // The body has seen it. It is to be polled for the next.
                    *is_watched = false;
                }
                return false;
            }
            Ok(Poll::Ready(value)) => Ok(value),
            Err(payload) => Err(payload),
        };
        self.end_body(result, fails)
    }

    /// Drops the body, and keeps what came of it.
    fn end_body(&mut self, result: Result<O, Panic>, fails: fn(&O) -> bool) -> bool {
        // Its locals go before the children are waited for. One that panics there has panicked.
        let result = match Panic::catch(|| self.body = None) {
            Ok(()) => result,
            Err(payload) => result.and(Err(payload)),
        };
        if result.as_ref().map_or(true, fails) {
            self.core.cancel_left().run();
        }
        self.result = Some(result);
        true
    }
}

impl<F, O> Drop for Body<F, O> {
    fn drop(&mut self) {
        /// Also when dropping the body panics.
        struct GiveUp<'a>(&'a GroupRef);
        impl Drop for GiveUp<'_> {
            fn drop(&mut self) {
                self.0.give_up();
            }
        }

        if !self.is_over {
            let _give_up = GiveUp(&self.core);
            // What the body has on its stack goes first, as in any other future.
            self.body = None;
        }
    }
}

/// How a group of children that give `T`, with a body that gives `O`, comes to its end.
pub trait Flavour<T, O>: private::SealedFlavour {
    /// What it gives.
    type Output;

    #[doc(hidden)]
    const POLICY: Policy;

    /// Whether the children are cancelled when the body ends with this.
    #[doc(hidden)]
    fn fails(_: &O) -> bool {
        false
    }

    /// What comes of it.
    #[doc(hidden)]
    fn conclude(group: &TaskGroup<T>, result: Result<O, Panic>) -> Self::Output;
}

/// SealedFlavour: what a group does is for this crate to say.
mod private {
    pub trait SealedFlavour {}
    impl SealedFlavour for super::Collecting {}
    impl SealedFlavour for super::Trying {}
    impl SealedFlavour for super::Discarding {}
    impl SealedFlavour for super::Supervising {}
}

/// Of [`group`](super::group).
#[derive(Clone, Copy, Debug)]
pub struct Collecting;

/// Of [`try_group`](super::try_group).
#[derive(Clone, Copy, Debug)]
pub struct Trying;

/// Of [`discarding_group`](super::discarding_group).
#[derive(Clone, Copy, Debug)]
pub struct Discarding;

/// Of [`supervised_group`](super::supervised_group).
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
/// The value is such a result.
unsafe fn is_error<T, E>(value: NonNull<()>) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { value.cast::<Result<T, E>>().as_ref() }.is_err()
}

/// What the body gave, unless it, or else a child, has panicked.
fn unless_panicked<O>(result: Result<O, Panic>, panic: Option<Panic>) -> O {
    match (result, panic) {
        (Ok(value), None) => value,
        (Err(payload), _) | (_, Some(payload)) => payload.resume(),
    }
}
