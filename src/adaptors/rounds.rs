//! The shape of every adaptor that runs a sender again and again: `repeat_until`, `repeat_n`, `retry`, …

use core::fmt;
use core::marker::PhantomPinned;
use core::ops::ControlFlow;
use core::pin::Pin;
use core::ptr::{self, NonNull};

use crate::sender::child::{ChildReceiver, Parent};
use crate::sender::stage::{Stage, container_of};
use crate::stop::StopToken;
use crate::{Completion, Env, Job, Operation, Panic, Receiver, Sender, Transfer};

/// What such an adaptor does when a round is over.
pub trait Rounds<T, E>: Send {
    /// The value that comes out in the end.
    type Value;
    /// The error that comes out in the end.
    type Error;

    /// Whether there is a first round at all, and what is handed on where there is none.
    #[inline]
    fn begin(&mut self) -> ControlFlow<Completion<Self::Value, Self::Error>> {
        ControlFlow::Continue(())
    }

    /// Another round, or what is handed on. It runs user code through [`Panic::catch`].
    fn next(&mut self, completion: Completion<T, E>) -> ControlFlow<Completion<Self::Value, Self::Error>>;
}

/// Clones a sender, runs it, destroys its operation, and again.
///
/// A sender that completes inside `start` is run in a loop right there. Any other hands back a job from its completion,
/// and the driver that runs it starts the next round: constant stack either way.
pub struct RoundsOperation<S, P, R>
where
    S: Sender + Clone + Send,
    P: Rounds<S::Value, S::Error>,
    R: Receiver<P::Value, P::Error>,
{
    round: Stage<S, S::Operation<ChildReceiver<Self, 0>>>,
    sender: S,
    policy: P,
    receiver: Option<R>,
    job: Job,
    /// Only for a sender that completes inline: where, on the stack of `start`, to note that there is another round.
    again: *mut bool,
    _pinned: PhantomPinned,
}

impl<S, P, R> RoundsOperation<S, P, R>
where
    S: Sender + Clone + Send,
    P: Rounds<S::Value, S::Error>,
    R: Receiver<P::Value, P::Error>,
{
    pub(crate) fn new(sender: S, policy: P, receiver: R) -> Self {
        RoundsOperation {
            round: Stage::Empty,
            sender,
            policy,
            receiver: Some(receiver),
            job: Job::new(Self::run_job),
            again: ptr::null_mut(),
            _pinned: PhantomPinned,
        }
    }

    /// # Safety
    ///
    /// The job is that of a started operation, between two rounds.
    unsafe fn run_job(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation.
        unsafe { Self::run_round(container_of!(job, Self, job)) }
    }

    /// # Safety
    ///
    /// The operation is started and no round is running.
    #[inline]
    unsafe fn run_round(this: NonNull<Self>) -> Transfer {
        // SAFETY: no round is running, so nobody else touches the operation.
        let sender = match Panic::catch(|| unsafe { (*this.as_ptr()).sender.clone() }) {
            Ok(sender) => sender,
            // SAFETY: as above.
            Err(payload) => return unsafe { Self::hand_on(this, Completion::Panicked(payload)) },
        };
        // SAFETY: this operation is pinned, and is not destroyed before the receiver completes, which is after the round.
        let child = unsafe { ChildReceiver::<Self, 0>::new(this) };
        // SAFETY: the stage is empty, and pinned with this operation.
        let round = unsafe { Stage::set_running(&raw mut (*this.as_ptr()).round, sender.connect(child)) };
        // SAFETY: it is pinned in the stage, started once, and destroyed in its completion.
        unsafe { round.start() }
    }

    /// # Safety
    ///
    /// The operation is started and no round is running.
    unsafe fn hand_on(this: NonNull<Self>, completion: Completion<P::Value, P::Error>) -> Transfer {
        // SAFETY: no round is running, so nobody else touches the operation.
        match unsafe { (*this.as_ptr()).receiver.take() } {
            Some(receiver) => completion.deliver(receiver),
            None => Transfer::none(),
        }
    }
}

impl<S, P, R> Operation for RoundsOperation<S, P, R>
where
    S: Sender + Clone + Send,
    P: Rounds<S::Value, S::Error>,
    R: Receiver<P::Value, P::Error>,
{
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        // SAFETY: no round is running yet.
        if let ControlFlow::Break(completion) = unsafe { (*this.as_ptr()).policy.begin() } {
            // SAFETY: as above.
            return unsafe { Self::hand_on(this, completion) };
        }
        if !S::COMPLETES.is_inline() {
            // SAFETY: as above.
            return unsafe { Self::run_round(this) };
        }
        let mut resumed = Transfer::none();
        let mut again = true;
        while again {
            again = false;
            // SAFETY: no round is running, and the operation is alive: the last one asked for another.
            resumed.append(unsafe {
                (*this.as_ptr()).again = &raw mut again;
                Self::run_round(this)
            });
        }
        resumed
    }
}

// SAFETY: sender, policy and receiver are `Send`; the round's operation is only destroyed, by its own completion.
unsafe impl<S, P, R> Parent<0> for RoundsOperation<S, P, R>
where
    S: Sender + Clone + Send,
    P: Rounds<S::Value, S::Error>,
    R: Receiver<P::Value, P::Error>,
{
    type Value = S::Value;
    type Error = S::Error;
    type Env = R::Env;

    #[inline]
    unsafe fn env(this: NonNull<Self>) -> R::Env {
        // SAFETY: a round runs, so the receiver is there, and only that round's operation asks.
        match unsafe { &(*this.as_ptr()).receiver } {
            Some(receiver) => receiver.env(),
            // SAFETY: the receiver is taken after the last round.
            None => unsafe { core::hint::unreachable_unchecked() },
        }
    }

    #[inline]
    unsafe fn child_completed(this: NonNull<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        // SAFETY: the round has completed, so nobody but this call touches the operation.
        let flow = unsafe {
            Stage::clear(&raw mut (*this.as_ptr()).round);
            (*this.as_ptr()).policy.next(completion)
        };
        if let ControlFlow::Break(completion) = flow {
            // SAFETY: no round is running any more.
            return unsafe { Self::hand_on(this, completion) };
        }
        // SAFETY: as for `env`.
        if unsafe { <Self as Parent<0>>::env(this) }.stop_token().stop_requested() {
            // SAFETY: as above.
            return unsafe { Self::hand_on(this, Completion::Stopped) };
        }
        if S::COMPLETES.is_inline() {
            // SAFETY: `start` is beneath us on this stack.
            unsafe { *(*this.as_ptr()).again = true };
            Transfer::none()
        } else {
            // SAFETY: the operation stays until a round completes the receiver, and the next begins with this job.
            unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*this.as_ptr()).job)) }
        }
    }
}

impl<S, P, R> fmt::Debug for RoundsOperation<S, P, R>
where
    S: Sender + Clone + Send,
    P: Rounds<S::Value, S::Error>,
    R: Receiver<P::Value, P::Error>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoundsOperation").finish_non_exhaustive()
    }
}
