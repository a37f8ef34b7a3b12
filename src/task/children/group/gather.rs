//! Joining children by a policy, which decides when to cancel the rest.

use core::error::Error;
use core::fmt;
use core::future::{Future, poll_fn};
use core::ops::ControlFlow;
use core::panic::Location;
use core::pin::{Pin, pin};
use core::task::{Context as Cx, Poll, ready};
use std::vec::Vec;

use super::TaskGroup;
use super::body::{BodyPolicy, Flavour, GroupStage, Supervising};
use super::next::Waiting;
use super::spawn::UNCOUNTED;
use crate::memory::Cached;
use crate::task::children::{InCache, TaskError};
use crate::task::frame::{Activity, Site, Stopping};
use crate::{Completion, Panic};

/// Runs children concurrently until a policy has enough results, and cancels the others. Returns the policy's output after all
/// have ended.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, FirstSuccess, Task};
///
/// let mirrors = ["down", "slow", "quick"];
/// let answer = Task::new(async move {
///     let requests = mirrors.map(|mirror| async move {
///         match mirror {
///             "down" => Err("no answer"),
///             "slow" => never().await,
///             _ => Ok(mirror),
///         }
///     });
///     task::gather(FirstSuccess::new(), requests).await
/// });
/// assert_eq!(sync_wait(answer).unwrap().unwrap(), "quick");
/// ```
///
/// [`FirstSuccess`], [`AllResults`] and [`Quorum`] are policies; implement [`JoinPolicy`] for your own. The children run in a
/// [`supervised_group`](super::supervised_group): a panic or a stop of one affects the others only through the policy.
///
/// # Panics
///
/// With a panic of the policy, after the children were cancelled and have ended.
///
/// # Cancellation
///
/// The children are cancelled with the task, and the policy is told of each.
///
/// # Allocation
///
/// One for the group, one for a list of the children, and one for each child.
#[track_caller]
pub fn gather<P, I, T>(policy: P, children: I) -> Gather<P, I, T>
where
    T: Send + 'static,
    I: IntoIterator,
    I::Item: IntoFuture<Output = T>,
    <I::Item as IntoFuture>::IntoFuture: Send + 'static,
    P: JoinPolicy<T>,
{
    Gather {
        stage: GroupStage::Unpolled(Some((policy, children))),
        location: Location::caller(),
    }
}

/// A future of joined children, created by [`gather`].
#[must_use = "futures do nothing until they are awaited"]
pub struct Gather<P, I, T> {
    stage: GroupStage<(P, I), Telling<P, T>, P>,
    location: &'static Location<'static>,
}

// SAFETY: the policy, the children and the group's handles are `Send`. The bounds are few for the reason given at `GroupFuture`.
unsafe impl<P: Send, I: Send, T> Send for Gather<P, I, T> {}

impl<P, I, T> Future for Gather<P, I, T>
where
    T: Send + 'static,
    I: IntoIterator,
    I::Item: IntoFuture<Output = T>,
    <I::Item as IntoFuture>::IntoFuture: Send + 'static,
    P: JoinPolicy<T>,
{
    type Output = P::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<P::Output> {
        let location = self.location;
        // SAFETY: the stage is structurally pinned.
        let stage = unsafe { self.map_unchecked_mut(|this| &mut this.stage) };
        let how = BodyPolicy {
            policy: <Supervising as Flavour<(), ()>>::POLICY,
            fails: |_| false,
            take_panic: |_| None,
        };
        let polled = stage.poll(cx, how, |(policy, children), core| {
            Telling::new(policy, TaskGroup::new(core), children, location)
        });
        match polled {
            Poll::Ready((_, Ok(policy))) => Poll::Ready(policy.finish()),
            Poll::Ready((_, Err(payload))) => payload.resume(),
            Poll::Pending => {
                Activity::with(|activity| activity.awaits_around(Site::at(location)));
                Poll::Pending
            }
        }
    }
}

crate::opaque!([P, I, T] Gather<P, I, T>);

/// The body of a [`gather`]: tells the policy of each ended child.
struct Telling<P, T> {
    policy: Option<P>,
    group: TaskGroup<Told<T>>,
    waiting: Waiting,
    /// Whether the policy was told, for each child.
    told: Vec<bool>,
    /// Whether the policy has enough results.
    enough: bool,
}

/// The number of a child, and its result.
type Told<T> = (usize, Result<T, TaskError>);

impl<P: JoinPolicy<T>, T: Send + 'static> Telling<P, T> {
    fn new<I>(mut policy: P, group: TaskGroup<Told<T>>, children: I, location: &'static Location<'static>) -> Self
    where
        I: IntoIterator,
        I::Item: IntoFuture<Output = T>,
        <I::Item as IntoFuture>::IntoFuture: Send + 'static,
    {
        let mut told = Vec::new();
        for (number, child) in children.into_iter().enumerate() {
            told.push(false);
            let future = child.into_future();
            let child = async move {
                let mut future = pin!(future);
                poll_fn(|cx| match Panic::catch(|| future.as_mut().poll(cx)) {
                    Ok(polled) => polled.map(|value| (number, Ok(value))),
                    // A stopped await, which unwinds to the child's frame.
                    Err(payload) if Stopping::is(&payload) => payload.resume(),
                    Err(payload) => Poll::Ready((number, Err(TaskError::Panicked(payload)))),
                })
                .await
            };
            let spawned = group
                .core
                .spawn::<Told<T>, _, InCache>(child, (Cached, None), UNCOUNTED, Site::at(location));
            if let Err(refused) = spawned {
                refused.report(location);
            }
        }
        let enough = policy.begin(told.len()).is_break();
        if enough {
            group.cancel_all();
        }
        Telling {
            policy: Some(policy),
            group,
            waiting: Waiting(None, Site::at(location)),
            told,
            enough,
        }
    }

    fn tell(&mut self, number: usize, result: Result<T, TaskError>) {
        self.told[number] = true;
        if let Some(policy) = &mut self.policy
            && !self.enough
            && policy.ended(number, result).is_break()
        {
            self.enough = true;
            self.group.cancel_all();
        }
    }
}

// The policy is not pinned.
impl<P, T> Unpin for Telling<P, T> {}

impl<P: JoinPolicy<T>, T: Send + 'static> Future for Telling<P, T> {
    type Output = P;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<P> {
        let this = self.get_mut();
        loop {
            // SAFETY: the group is one of children with this output.
            match ready!(unsafe { this.waiting.poll_next::<Told<T>>(&this.group.core, cx) }) {
                None => break,
                Some(Completion::Value((number, result))) => this.tell(number, result),
                // A stopped child has no number. The loop below finds it.
                Some(_) => {}
            }
        }
        for number in 0..this.told.len() {
            if !this.told[number] {
                this.tell(number, Err(TaskError::Cancelled));
            }
        }
        this.policy.take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// A policy that reduces the results of a [`gather`].
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, JoinPolicy, Task, TaskError};
/// use std::ops::ControlFlow;
///
/// /// Adds up until the sum is large enough.
/// struct Budget(u32);
///
/// impl JoinPolicy<u32> for Budget {
///     type Output = u32;
///
///     fn ended(&mut self, _child: usize, result: Result<u32, TaskError>) -> ControlFlow<()> {
///         self.0 += result.unwrap_or(0);
///         if self.0 >= 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
///     }
///
///     fn finish(self) -> u32 {
///         self.0
///     }
/// }
///
/// let spent = Task::new(task::gather(Budget(0), (1..=9).map(|cost| async move { cost })));
/// assert!(sync_wait(spent).unwrap() >= 10);
/// ```
pub trait JoinPolicy<T> {
    /// The output of [`gather`].
    type Output;

    /// Receives the number of children, which have been spawned. Called once, before any other method.
    ///
    /// `Break` cancels all children, and [`ended`](JoinPolicy::ended) is not called.
    fn begin(&mut self, children: usize) -> ControlFlow<()> {
        let _ = children;
        ControlFlow::Continue(())
    }

    /// Receives the result of a child, with the child's number. Called in the order in which children end; stopped children come
    /// last.
    ///
    /// `Break` cancels the remaining children, and ends these calls.
    fn ended(&mut self, child: usize, result: Result<T, TaskError>) -> ControlFlow<()>;

    /// Returns the output. Called after all children have ended.
    fn finish(self) -> Self::Output;
}

/// A policy for children that return `Result`: the first success, which cancels the rest.
///
/// Without a success the output is all errors, in the order of the children.
#[derive(Debug)]
pub struct FirstSuccess<T, E> {
    success: Option<T>,
    failures: Vec<(usize, ChildError<E>)>,
}

impl<T, E> FirstSuccess<T, E> {
    /// Creates the policy.
    pub const fn new() -> Self {
        FirstSuccess {
            success: None,
            failures: Vec::new(),
        }
    }
}

impl<T, E> Default for FirstSuccess<T, E> {
    fn default() -> Self {
        FirstSuccess::new()
    }
}

impl<T, E> JoinPolicy<Result<T, E>> for FirstSuccess<T, E> {
    type Output = Result<T, Vec<ChildError<E>>>;

    fn ended(&mut self, child: usize, result: Result<Result<T, E>, TaskError>) -> ControlFlow<()> {
        match ChildError::flatten(result) {
            Ok(value) => {
                self.success = Some(value);
                ControlFlow::Break(())
            }
            Err(error) => {
                self.failures.push((child, error));
                ControlFlow::Continue(())
            }
        }
    }

    fn finish(mut self) -> Self::Output {
        self.failures.sort_by_key(|(child, _)| *child);
        let failures = self.failures;
        self.success
            .ok_or_else(|| failures.into_iter().map(|(_, error)| error).collect())
    }
}

/// A policy that collects every result, in the order of the children. It cancels none.
#[derive(Debug)]
pub struct AllResults<T> {
    results: Vec<Option<Result<T, TaskError>>>,
}

impl<T> AllResults<T> {
    /// Creates the policy.
    pub const fn new() -> Self {
        AllResults { results: Vec::new() }
    }
}

impl<T> Default for AllResults<T> {
    fn default() -> Self {
        AllResults::new()
    }
}

impl<T> JoinPolicy<T> for AllResults<T> {
    type Output = Vec<Result<T, TaskError>>;

    fn begin(&mut self, children: usize) -> ControlFlow<()> {
        self.results.resize_with(children, || None);
        ControlFlow::Continue(())
    }

    fn ended(&mut self, child: usize, result: Result<T, TaskError>) -> ControlFlow<()> {
        self.results[child] = Some(result);
        ControlFlow::Continue(())
    }

    fn finish(self) -> Self::Output {
        // Every child has a result, since `ended` never breaks.
        self.results
            .into_iter()
            .map(|result| result.unwrap_or(Err(TaskError::Cancelled)))
            .collect()
    }
}

/// A policy for children that return `Result`: a number of successes, in the order in which the children end. The rest is
/// cancelled once the number is reached, or out of reach.
#[derive(Debug)]
pub struct Quorum<T, E> {
    needed: usize,
    left: usize,
    successes: Vec<T>,
    failures: Vec<ChildError<E>>,
}

impl<T, E> Quorum<T, E> {
    /// Creates a policy that needs this many successes.
    pub const fn of(needed: usize) -> Self {
        Quorum {
            needed,
            left: 0,
            successes: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Breaks if the number is reached, or out of reach.
    fn flow(&self) -> ControlFlow<()> {
        let is_decided = self.successes.len() >= self.needed || self.successes.len() + self.left < self.needed;
        match is_decided {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

impl<T, E> JoinPolicy<Result<T, E>> for Quorum<T, E> {
    type Output = Result<Vec<T>, QuorumError<T, E>>;

    fn begin(&mut self, children: usize) -> ControlFlow<()> {
        self.left = children;
        self.flow()
    }

    fn ended(&mut self, _: usize, result: Result<Result<T, E>, TaskError>) -> ControlFlow<()> {
        self.left = self.left.saturating_sub(1);
        match ChildError::flatten(result) {
            Ok(value) if self.successes.len() < self.needed => self.successes.push(value),
            Ok(_) => {}
            Err(error) => self.failures.push(error),
        }
        self.flow()
    }

    fn finish(self) -> Self::Output {
        if self.successes.len() >= self.needed {
            Ok(self.successes)
        } else {
            Err(QuorumError {
                needed: self.needed,
                successes: self.successes,
                failures: self.failures,
            })
        }
    }
}

/// The error of a [`Quorum`] with too few successes.
#[derive(Debug)]
#[non_exhaustive]
pub struct QuorumError<T, E> {
    /// The number of successes that were needed.
    pub needed: usize,
    /// The values of the successful children, in the order in which they ended.
    pub successes: Vec<T>,
    /// The errors of the other children.
    pub failures: Vec<ChildError<E>>,
}

impl<T, E> fmt::Display for QuorumError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no quorum: {} of {} succeeded", self.successes.len(), self.needed)
    }
}

impl<T: fmt::Debug, E: fmt::Debug> Error for QuorumError<T, E> {}

/// The reason why a child that returns `Result` has not succeeded.
#[derive(Debug)]
#[non_exhaustive]
pub enum ChildError<E> {
    /// The child returned this error.
    Failed(E),
    /// The child returned nothing.
    Ended(TaskError),
}

impl<E> ChildError<E> {
    fn flatten<T>(result: Result<Result<T, E>, TaskError>) -> Result<T, Self> {
        match result {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(ChildError::Failed(error)),
            Err(ended) => Err(ChildError::Ended(ended)),
        }
    }
}

impl<E: fmt::Display> fmt::Display for ChildError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChildError::Failed(error) => error.fmt(f),
            ChildError::Ended(error) => error.fmt(f),
        }
    }
}

impl<E: Error> Error for ChildError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ChildError::Failed(error) => error.source(),
            ChildError::Ended(error) => error.source(),
        }
    }
}
