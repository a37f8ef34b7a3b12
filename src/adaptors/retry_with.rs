use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;
use core::time::Duration;

use super::retry_policy::{Delays, RetryPolicy};
use crate::scheduler::{Timer, TimerSchedule};
use crate::sender::child::{ChildReceiver, Parent, Waiting};
use crate::sender::dismantle::dismantle;
use crate::sender::stage::{Stage, container_of};
use crate::stop::StopToken;
use crate::{Completion, Env, Job, Operation, Panic, Receiver, Scheduler, Sender, Transfer};

/// Sender created by [`Sender::retry_with`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct RetryWith<S> {
    sender: S,
    policy: RetryPolicy,
}

impl<S> RetryWith<S> {
    pub(crate) fn new(sender: S, policy: RetryPolicy) -> Self {
        RetryWith { sender, policy }
    }
}

// SAFETY: the operation is `!Unpin`. It accesses nothing of itself after it has started a child, nor after its completion.
unsafe impl<S> Sender for RetryWith<S>
where
    S: Sender + Clone + Send,
{
    type Value = S::Value;
    type Error = S::Error;
    type Operation<R: Receiver<S::Value, S::Error>> = RetryWithOperation<S, EveryError, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        RetryWithOperation::new(self.sender, self.policy, EveryError, receiver)
    }

    dismantle!(sender);
}

/// Sender created by [`Sender::retry_with_if`].
#[derive(Clone, Copy)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct RetryWithIf<S, F> {
    sender: S,
    policy: RetryPolicy,
    predicate: F,
}

impl<S, F> RetryWithIf<S, F> {
    pub(crate) fn new(sender: S, policy: RetryPolicy, predicate: F) -> Self {
        RetryWithIf {
            sender,
            policy,
            predicate,
        }
    }
}

// SAFETY: the operation is `!Unpin`. It accesses nothing of itself after it has started a child, nor after its completion.
unsafe impl<S, F> Sender for RetryWithIf<S, F>
where
    S: Sender + Clone + Send,
    F: FnMut(&S::Error) -> bool + Send,
{
    type Value = S::Value;
    type Error = S::Error;
    type Operation<R: Receiver<S::Value, S::Error>> = RetryWithOperation<S, ErrorsThat<F>, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        RetryWithOperation::new(self.sender, self.policy, ErrorsThat(self.predicate), receiver)
    }

    dismantle!(sender);
}

impl<S: fmt::Debug, F> fmt::Debug for RetryWithIf<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryWithIf")
            .field("sender", &self.sender)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// The decision whether to try again, by the error.
pub trait Decision<E>: Send {
    /// Returns whether work that failed with this error is tried again. Runs user code.
    fn retries(&mut self, error: &E) -> bool;
}

/// The decision to try again after every error.
#[derive(Debug)]
pub struct EveryError;

impl<E> Decision<E> for EveryError {
    fn retries(&mut self, _: &E) -> bool {
        true
    }
}

/// The decision by a predicate.
pub struct ErrorsThat<F>(F);

crate::opaque!([F] ErrorsThat<F>);

impl<E, F: FnMut(&E) -> bool + Send> Decision<E> for ErrorsThat<F> {
    fn retries(&mut self, error: &E) -> bool {
        (self.0)(error)
    }
}

/// The schedule sender of an environment.
type ScheduleOf<E> = <<E as Env>::Scheduler as Scheduler>::Schedule;

/// The timer of an operation.
type TimerOperation<P> = <TimerSchedule as Sender>::Operation<ChildReceiver<P, TIMER>>;

/// The return of an operation to the scheduler of an environment.
type ReturnOperation<E, P> = <ScheduleOf<E> as Sender>::Operation<ChildReceiver<P, RETURN>>;

/// The index of an attempt among the children.
const ATTEMPT: usize = 0;
/// The index of the timer.
const TIMER: usize = 1;
/// The index of the return to the scheduler of the environment.
const RETURN: usize = 2;

/// The operation of [`RetryWith`] and [`RetryWithIf`]. It runs one child at a time.
///
/// | child | runs | followed by |
/// |---|---|---|
/// | an attempt | a clone of the sender | the timer after an error, or the next attempt if there is no delay |
/// | the timer | the delay | the return, or the next attempt where the environment has no scheduler |
/// | the return | a schedule operation of the environment's scheduler | the next attempt |
///
/// The timer always completes later or stopped, and an attempt without a delay begins by a job. So the stack is constant.
pub struct RetryWithOperation<S, D, R>
where
    S: Sender + Clone + Send,
    D: Decision<S::Error>,
    R: Receiver<S::Value, S::Error>,
{
    attempt: Stage<Infallible, S::Operation<ChildReceiver<Self, ATTEMPT>>>,
    pause: Stage<Infallible, TimerOperation<Self>, ReturnOperation<R::Env, Self>>,
    sender: S,
    delays: Delays,
    decision: D,
    receiver: Option<R>,
    /// Begins an attempt without a delay.
    job: Job,
    _pinned: PhantomPinned,
}

impl<S, D, R> RetryWithOperation<S, D, R>
where
    S: Sender + Clone + Send,
    D: Decision<S::Error>,
    R: Receiver<S::Value, S::Error>,
{
    fn new(sender: S, policy: RetryPolicy, decision: D, receiver: R) -> Self {
        RetryWithOperation {
            attempt: Stage::empty(),
            pause: Stage::empty(),
            sender,
            delays: policy.delays(),
            decision,
            receiver: Some(receiver),
            job: Job::new(Self::run_job),
            _pinned: PhantomPinned,
        }
    }

    /// Returns the delay before the next attempt, or `None` if the error is the result.
    fn delay_after(&mut self, error: &S::Error) -> Option<Duration> {
        let delay = self.delays.next()?;
        self.decision.retries(error).then_some(delay)
    }

    /// # Safety
    ///
    /// The job is that of a started operation, between two attempts.
    unsafe fn run_job(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation. No child is running, so this thread has exclusive access.
        unsafe { container_of!(job, Self, job).as_mut() }.try_again()
    }

    /// Begins an attempt. The operation is started, and no child is running.
    fn try_again(&mut self) -> Transfer {
        let sender = match Panic::catch(|| self.sender.clone()) {
            Ok(sender) => sender,
            Err(payload) => return self.hand_on(Completion::Panicked(payload)),
        };
        let this = NonNull::from(self);
        // SAFETY: the stage is pinned with this operation, which is alive until the receiver is completed, after the attempt. The
        // completion of the attempt destroys its operation.
        unsafe {
            let attempt = sender.connect(ChildReceiver::new(this));
            Stage::start(NonNull::new_unchecked(&raw mut (*this.as_ptr()).attempt), attempt)
        }
    }

    /// Waits for the next attempt. No child is running.
    fn pause(&mut self, delay: Duration) -> Transfer {
        let Some(receiver) = &self.receiver else {
            return Transfer::none();
        };
        let env = receiver.env();
        if delay.is_zero() {
            if env.stop_token().stop_requested() {
                return self.hand_on(Completion::Stopped);
            }
            let this = NonNull::from(self);
            // SAFETY: the operation is alive until the receiver is completed, and the next attempt begins with this job.
            return unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*this.as_ptr()).job)) };
        }
        // The first use of the global timer starts a thread, which the system may refuse.
        let timer = match Panic::catch(|| env.get::<Timer>().unwrap_or_else(|| Timer::global().clone())) {
            Ok(timer) => timer,
            Err(payload) => return self.hand_on(Completion::Panicked(payload)),
        };
        let this = NonNull::from(self);
        // SAFETY: the stage is pinned with this operation, which is alive until the receiver is completed, after the timer. The
        // completion of the timer destroys its operation.
        unsafe {
            let pause = timer.schedule_after(delay).connect(ChildReceiver::new(this));
            Stage::start(NonNull::new_unchecked(&raw mut (*this.as_ptr()).pause), pause)
        }
    }

    /// Returns to the scheduler of the environment, and begins the next attempt there. No child is running.
    fn resume(&mut self) -> Transfer {
        if !<R::Env as Env>::Scheduler::PRESENT {
            return self.try_again();
        }
        let Some(receiver) = &self.receiver else {
            return Transfer::none();
        };
        let env = receiver.env();
        let schedule = match Panic::catch(|| env.scheduler().schedule()) {
            Ok(schedule) => schedule,
            Err(payload) => return self.hand_on(Completion::Panicked(payload)),
        };
        let this = NonNull::from(self);
        // SAFETY: see `pause`.
        unsafe {
            let hop = schedule.connect(ChildReceiver::new(this));
            Stage::start_next(NonNull::new_unchecked(&raw mut (*this.as_ptr()).pause), hop)
        }
    }

    fn hand_on(&mut self, completion: Completion<S::Value, S::Error>) -> Transfer {
        completion.deliver_to(self.receiver.take())
    }

    fn env_of(this: &Waiting<Self>) -> R::Env {
        match &this.parent().receiver {
            Some(receiver) => receiver.env(),
            None => unreachable!("the receiver is taken after the last child"),
        }
    }
}

impl<S, D, R> Operation for RetryWithOperation<S, D, R>
where
    S: Sender + Clone + Send,
    D: Decision<S::Error>,
    R: Receiver<S::Value, S::Error>,
{
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved out of the pinned operation.
        unsafe { self.get_unchecked_mut() }.try_again()
    }
}

// SAFETY: sender, policy and receiver are `Send`. The attempt's operation is only destroyed, by its own completion.
unsafe impl<S, D, R> Parent<ATTEMPT> for RetryWithOperation<S, D, R>
where
    S: Sender + Clone + Send,
    D: Decision<S::Error>,
    R: Receiver<S::Value, S::Error>,
{
    type Value = S::Value;
    type Error = S::Error;
    type Env = R::Env;

    fn env(this: &Waiting<Self>) -> R::Env {
        Self::env_of(this)
    }

    fn child_completed(this: Waiting<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        // SAFETY: an attempt is the only child, and has completed.
        let this = unsafe { this.alone() };
        this.attempt.clear();
        let Completion::Error(error) = completion else {
            return this.hand_on(completion);
        };
        match Panic::catch(|| this.delay_after(&error)) {
            Ok(Some(delay)) => {
                drop(error);
                this.pause(delay)
            }
            Ok(None) => this.hand_on(Completion::Error(error)),
            Err(payload) => {
                drop(error);
                this.hand_on(Completion::Panicked(payload))
            }
        }
    }
}

// SAFETY: sender, policy and receiver are `Send`. The timer's operation is only destroyed, by its own completion.
unsafe impl<S, D, R> Parent<TIMER> for RetryWithOperation<S, D, R>
where
    S: Sender + Clone + Send,
    D: Decision<S::Error>,
    R: Receiver<S::Value, S::Error>,
{
    type Value = ();
    type Error = Infallible;
    type Env = R::Env;

    fn env(this: &Waiting<Self>) -> R::Env {
        Self::env_of(this)
    }

    fn child_completed(this: Waiting<Self>, completion: Completion<(), Infallible>) -> Transfer {
        // SAFETY: the timer is the only child, and has completed.
        let this = unsafe { this.alone() };
        this.pause.clear();
        match completion {
            Completion::Value(()) => this.resume(),
            Completion::Stopped => this.hand_on(Completion::Stopped),
            Completion::Panicked(payload) => this.hand_on(Completion::Panicked(payload)),
        }
    }
}

// SAFETY: sender, policy and receiver are `Send`. The schedule operation is only destroyed, by its own completion.
unsafe impl<S, D, R> Parent<RETURN> for RetryWithOperation<S, D, R>
where
    S: Sender + Clone + Send,
    D: Decision<S::Error>,
    R: Receiver<S::Value, S::Error>,
{
    type Value = ();
    type Error = <ScheduleOf<R::Env> as Sender>::Error;
    type Env = R::Env;

    fn env(this: &Waiting<Self>) -> R::Env {
        Self::env_of(this)
    }

    fn child_completed(this: Waiting<Self>, completion: Completion<(), Self::Error>) -> Transfer {
        // SAFETY: the schedule operation is the only child, and has completed.
        let this = unsafe { this.alone() };
        this.pause.clear();
        match completion {
            // A scheduler that refuses work is not a reason to give up: the attempt begins here.
            Completion::Value(()) | Completion::Error(_) => this.try_again(),
            Completion::Stopped => this.hand_on(Completion::Stopped),
            Completion::Panicked(payload) => this.hand_on(Completion::Panicked(payload)),
        }
    }
}

impl<S, D, R> fmt::Debug for RetryWithOperation<S, D, R>
where
    S: Sender + Clone + Send,
    D: Decision<S::Error>,
    R: Receiver<S::Value, S::Error>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryWithOperation").finish_non_exhaustive()
    }
}
