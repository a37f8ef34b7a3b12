//! The future that runs the body of a group, and then waits for its children.

use core::future::Future;
use core::marker::{PhantomData, PhantomPinned};
use core::mem;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};

use super::TaskGroup;
use super::core::GroupRef;
use super::results::Policy;
use super::state::GroupPhase;
use crate::Panic;
use crate::report::{Report, report};
use crate::sender::unwind::OnDrop;
use crate::stop::Why;
use crate::task::frame::{self, Activity, Awaited, Polling, Site};

/// An awaited group: the future of [`group`](super::group) and its variants.
#[must_use = "futures do nothing until they are awaited"]
pub struct GroupFuture<B, F, T, O, K> {
    stage: GroupStage<B, F, O>,
    site: Site,
    /// Invariant, like the group handle that the body gets.
    _child: PhantomData<fn(T) -> T>,
    _kind: PhantomData<fn() -> K>,
}

// For an `async` block, the compiler checks this with lifetimes erased, and may not see how they are related. So the only
// bounds are that the parts are `Send`.
// SAFETY: the body, its output and the group's handles are `Send`.
unsafe impl<B: Send, F: Send, T, O: Send, K> Send for GroupFuture<B, F, T, O, K> {}

impl<B, F, T, O, K> GroupFuture<B, F, T, O, K> {
    #[cfg_attr(feature = "inspect", track_caller)]
    pub(super) fn new(body: B) -> Self {
        GroupFuture {
            stage: GroupStage::Unpolled(Some(body)),
            site: Site::here(),
            _child: PhantomData,
            _kind: PhantomData,
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
        let site = self.site;
        // SAFETY: the stage is structurally pinned.
        let stage = unsafe { self.map_unchecked_mut(|this| &mut this.stage) };
        let how = BodyPolicy {
            policy: K::POLICY,
            fails: K::fails,
            take_panic: TaskGroup::<T>::take_panicked,
        };
        match stage.poll(cx, how, |body, core| body(TaskGroup::new(core))) {
            Poll::Ready((core, result)) => Poll::Ready(K::conclude(&TaskGroup::new(core), result)),
            Poll::Pending => {
                Activity::with(|activity| activity.awaits_around(site));
                Poll::Pending
            }
        }
    }
}

crate::opaque!([B, F, T, O, K] GroupFuture<B, F, T, O, K>);

/// The stages of a group's future: the closure or data that makes the body, then the body.
///
/// Dropping it early stops the children, and the frame waits for them.
pub(super) enum GroupStage<B, F, O> {
    /// `None` if making the body has panicked.
    Unpolled(Option<B>),
    Polled(Body<F, O>),
}

/// The treatment of children and of the body's output.
pub(super) struct BodyPolicy<O> {
    pub(super) policy: Policy,
    /// Returns whether this output cancels the children.
    pub(super) fails: fn(&O) -> bool,
    /// Takes the panic of a child that the body has not seen.
    pub(super) take_panic: fn(&GroupRef) -> Option<Panic>,
}

impl<B, F: Future<Output = O>, O> GroupStage<B, F, O> {
    /// Is ready when the body and all children have ended. The first poll opens a group and creates the body.
    pub(super) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Cx<'_>,
        how: BodyPolicy<O>,
        begin: impl FnOnce(B, GroupRef) -> F,
    ) -> Poll<(GroupRef, Result<O, Panic>)> {
        // SAFETY: only the first stage is moved, and it is not pinned.
        let stage = unsafe { self.get_unchecked_mut() };
        if let GroupStage::Unpolled(make) = stage
            && let Some(make) = make.take()
        {
            let (core, handle) = GroupRef::open(how.policy);
            let abandoned = OnDrop(|| core.give_up());
            let body = begin(make, handle);
            mem::forget(abandoned);
            *stage = GroupStage::Polled(Body {
                core: Some(core),
                stage: BodyStage::Running(body),
                _pinned: PhantomPinned,
            });
        }
        let GroupStage::Polled(body) = stage else {
            return Poll::Pending;
        };
        // SAFETY: the stage is pinned.
        unsafe { body.poll(cx, &how) }
    }
}

/// Runs the body of a group, and waits for the children.
pub(super) struct Body<F, O> {
    /// `None` once all is over.
    core: Option<GroupRef>,
    stage: BodyStage<F, O>,
    _pinned: PhantomPinned,
}

enum BodyStage<F, O> {
    Running(F),
    /// `None` while the body is dropped, and once the result was returned.
    Ended(Option<Result<O, Panic>>),
}

impl<F: Future<Output = O>, O> Body<F, O> {
    /// Is ready when the body and all children have ended.
    ///
    /// # Safety
    ///
    /// This is pinned.
    unsafe fn poll(&mut self, cx: &mut Cx<'_>, how: &BodyPolicy<O>) -> Poll<(GroupRef, Result<O, Panic>)> {
        let Some(core) = &self.core else {
            return Poll::Pending;
        };
        assert!(
            core.frame.is_none() || core.is_here(),
            "a group was sent to another task: await it in the task where it began",
        );
        // SAFETY: the stage is structurally pinned.
        if !unsafe { self.stage.poll(core, cx, how) } {
            return Poll::Pending;
        }
        // The children are waited for at the level of this task.
        if !Polling::with(|polling| core.close(polling)) {
            core.wanted_here();
            // The last child wakes the frame itself, and any other waker through the group's list.
            let waker = Some(cx.waker()).filter(|waker| !core.is_frame(frame::frame_of(waker)));
            if !core.watch(waker, |lock| lock.phase == GroupPhase::Over) {
                Activity::with(|activity| activity.awaits_what(Awaited::ALL_CHILDREN, Site::default()));
                return Poll::Pending;
            }
        }
        let (Some(core), BodyStage::Ended(result)) = (self.core.take(), &mut self.stage) else {
            return Poll::Pending;
        };
        core.end(true);
        result
            .take()
            .map_or(Poll::Pending, |result| Poll::Ready((core, result)))
    }
}

impl<F: Future<Output = O>, O> BodyStage<F, O> {
    /// Polls the body, unless it has ended. Returns `false` while it runs.
    ///
    /// # Safety
    ///
    /// This is pinned.
    unsafe fn poll(&mut self, core: &GroupRef, cx: &mut Cx<'_>, how: &BodyPolicy<O>) -> bool {
        let BodyStage::Running(body) = self else { return true };
        // SAFETY: the body is structurally pinned.
        let body = unsafe { Pin::new_unchecked(body) };
        let result = match Panic::catch(|| body.poll(cx)) {
            // The body waits for something. The panic of a child that it does not wait for ends it.
            Ok(Poll::Pending) => loop {
                if !Polling::with(|polling| core.has_panic(polling, cx.waker())) {
                    return false;
                }
                // A child may have taken the panic meanwhile.
                if let Some(payload) = (how.take_panic)(core) {
                    break Err(payload);
                }
            },
            Ok(Poll::Ready(value)) => Ok(value),
            Err(payload) => Err(payload),
        };
        // The body's locals are dropped before the children are waited for. A panic of a destructor replaces the result.
        let result = match Panic::catch(|| *self = BodyStage::Ended(None)) {
            Ok(()) => result,
            Err(payload) => result.and(Err(payload)),
        };
        if result.as_ref().map_or(true, how.fails) {
            core.cancel(Why::SCOPE_LEFT).run();
        }
        *self = BodyStage::Ended(Some(result));
        true
    }
}

impl<F, O> Drop for Body<F, O> {
    fn drop(&mut self) {
        if let Some(core) = self.core.take() {
            // The body's locals are dropped first, as in any other future. The group is abandoned also when that panics.
            let dropped = Panic::catch(|| self.stage = BodyStage::Ended(None));
            core.give_up();
            if let Err(payload) = dropped {
                payload.resume();
            }
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

pub(super) const COLLECTING: Policy = Policy {
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
