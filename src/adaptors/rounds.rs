//! The shape of every adaptor that runs a sender again and again: `repeat_until`, `repeat_n`, `retry`, …

use core::fmt;
use core::marker::PhantomPinned;
use core::ops::ControlFlow;
use core::pin::Pin;
use core::ptr::{self, NonNull};

use crate::sender::child::{ChildReceiver, Parent, Waiting};
use crate::sender::stage::{Stage, container_of};
use crate::stop::StopToken;
use crate::{Completion, Env, Job, Operation, Panic, Receiver, Sender, Transfer};

/// The decision of an adaptor after a round.
pub trait Rounds<T, E>: Send {
    /// The value type of the result.
    type Value;
    /// The error type of the result.
    type Error;

    /// Decides on a first round, or the completion where there is none.
    #[inline]
    fn begin(&mut self) -> ControlFlow<Completion<Self::Value, Self::Error>> {
        ControlFlow::Continue(())
    }

    /// Decides on another round, or the completion. It runs user code through [`Panic::catch`].
    fn next(&mut self, completion: Completion<T, E>) -> ControlFlow<Completion<Self::Value, Self::Error>>;
}

/// The operation that clones a sender, runs the clone, destroys its operation, and repeats.
///
/// A sender that completes inside `start` is run in a loop there. The completion of any other returns a job, and the
/// driver that runs the job starts the next round. The stack is constant either way.
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
    /// For a sender that completes inline: a flag on the stack of `start`, set for another round.
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
            round: Stage::empty(),
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
        // SAFETY: the job is a field of an operation. No round is running, so this thread has exclusive access.
        unsafe { container_of!(job, Self, job).as_mut() }.run_round()
    }

    /// Runs a round. The operation is started, and no round is running.
    #[inline]
    fn run_round(&mut self) -> Transfer {
        let sender = match Panic::catch(|| self.sender.clone()) {
            Ok(sender) => sender,
            Err(payload) => return self.hand_on(Completion::Panicked(payload)),
        };
        let this = NonNull::from(self);
        // SAFETY: the stage is pinned with this operation, which is alive until the receiver is completed, after the
        // round. The round's completion destroys its operation.
        unsafe {
            let round = sender.connect(ChildReceiver::new(this));
            Stage::start(NonNull::new_unchecked(&raw mut (*this.as_ptr()).round), round)
        }
    }

    /// Completes the receiver. Not inlined, so that a round that is followed by another stays short.
    #[inline(never)]
    fn hand_on(&mut self, completion: Completion<P::Value, P::Error>) -> Transfer {
        completion.deliver_to(self.receiver.take())
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
        // SAFETY: nothing is moved out of the pinned operation.
        let this = unsafe { self.get_unchecked_mut() };
        if let ControlFlow::Break(completion) = this.policy.begin() {
            return this.hand_on(completion);
        }
        if !S::COMPLETES.is_inline() {
            return this.run_round();
        }
        let this = ptr::from_mut(this);
        let mut resumed = Transfer::none();
        let mut again = true;
        while again {
            again = false;
            // SAFETY: no round is running, and the operation is alive: the last round asked for another.
            resumed.append(unsafe {
                (*this).again = &raw mut again;
                (*this).run_round()
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
    fn env(this: &Waiting<Self>) -> R::Env {
        match &this.parent().receiver {
            Some(receiver) => receiver.env(),
            None => unreachable!("the receiver is taken after the last round"),
        }
    }

    #[inline]
    fn child_completed(this: Waiting<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        // SAFETY: a round is the only child, and has completed.
        let this = unsafe { this.alone() };
        this.round.clear();
        if let ControlFlow::Break(completion) = this.policy.next(completion) {
            return this.hand_on(completion);
        }
        match &this.receiver {
            Some(receiver) if !receiver.env().stop_token().stop_requested() => {}
            _ => return this.hand_on(Completion::Stopped),
        }
        if S::COMPLETES.is_inline() {
            // SAFETY: `start` is beneath this call on this stack, and so is the flag.
            unsafe { *this.again = true };
            return Transfer::none();
        }
        let this = NonNull::from(this);
        // SAFETY: the operation is alive until the receiver is completed, and the next round begins with this job.
        unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*this.as_ptr()).job)) }
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
