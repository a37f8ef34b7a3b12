use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use crate::sender::child::{ChildReceiver, Parent, Waiting};
use crate::sender::demand::demand;
use crate::sender::dismantle::dismantle;
use crate::sender::stage::Stage;
use crate::sync::atomic::{AtomicU8, Ordering::AcqRel};
use crate::{Completes, Completion, EmptyEnv, Env, Operation, Panic, Receiver, Scheduler, Sender, Transfer};

/// Sender created by [`Sender::affine`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Affine<S> {
    sender: S,
}

impl<S> Affine<S> {
    #[inline]
    pub(crate) fn new(sender: S) -> Self {
        Affine { sender }
    }

    /// Connects, for a caller that has checked that the environment has an infallible scheduler.
    #[inline]
    pub(crate) fn operation<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> AffineOperation<S, R>
    where
        S: Sender<Value: Send, Error: Send>,
    {
        AffineOperation {
            stage: Stage::new(self.sender),
            trip: None,
            completion: None,
            receiver: Some(receiver),
            state: AtomicU8::new(STARTING),
            _pinned: PhantomPinned,
        }
    }
}

// SAFETY: `AffineOperation` keeps the promises of `Sender`. It completes inline where the sender does, and otherwise on
// the start scheduler: because the sender stays there, because `start` itself delivers, or because the trip back was
// made.
unsafe impl<S> Sender for Affine<S>
where
    S: Sender,
    S::Value: Send,
    S::Error: Send,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = match S::COMPLETES {
        Completes::Inline => Completes::Inline,
        _ => Completes::OnStartScheduler,
    };
    type Operation<R: Receiver<S::Value, S::Error>> = AffineOperation<S, R>;

    #[inline]
    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> AffineOperation<S, R> {
        const {
            demand(
                <R::Env as Env>::Scheduler::PRESENT,
                "`affine` needs a scheduler in the receiver's environment: write `starts_on(scheduler, sender)`, or give it one with `.with_scheduler(scheduler)`",
            );
            demand(
                <R::Env as Env>::Scheduler::INFALLIBLE,
                "`affine` needs a scheduler that cannot fail: start it on `scheduler.or_inline()` or `scheduler.or_abort()`",
            );
        }
        self.operation(receiver)
    }

    dismantle!(sender);
}

/// The operation of [`Affine`].
pub struct AffineOperation<S, R>
where
    S: Sender,
    R: Receiver<S::Value, S::Error>,
    S::Value: Send,
    S::Error: Send,
{
    /// `Running` points back at this operation. `Next` is connected to the receiver itself, where no trip is needed.
    stage: Stage<S, S::Operation<ChildReceiver<Self, CHILD>>, S::Operation<R>>,
    /// Connected before the child starts, so that nothing can fail once there is a result to deliver.
    trip: Option<Trip<S, R>>,
    completion: Option<Completion<S::Value, S::Error>>,
    receiver: Option<R>,
    /// The side that delivers: `start`, which runs on the scheduler, or the trip.
    ///
    /// | from | by | to | then |
    /// |---|---|---|---|
    /// | `STARTING` | `start`, after the child's `start` returned | `STARTED` | `start` accesses nothing any more |
    /// | `STARTING` | the child's completion, on any thread | `COMPLETED` | the completion accesses nothing any more |
    /// | `COMPLETED` | `start` | | `start` delivers |
    /// | `STARTED` | the child's completion | | it starts the trip, which delivers |
    ///
    /// Writers: `start` and the child's completion, each by one swap that acquires and releases. The second swap pairs
    /// with the first, and returns its mark.
    state: AtomicU8,
    _pinned: PhantomPinned,
}

const STARTING: u8 = 0;
const STARTED: u8 = 1;
const COMPLETED: u8 = 2;

const CHILD: usize = 0;
const TRIP: usize = 1;

type Trip<S, R> = <<<<R as Receiver<<S as Sender>::Value, <S as Sender>::Error>>::Env as Env>::Scheduler as Scheduler>::Schedule as Sender>::Operation<ChildReceiver<AffineOperation<S, R>, TRIP>>;

impl<S, R> Operation for AffineOperation<S, R>
where
    S: Sender,
    S::Value: Send,
    S::Error: Send,
    R: Receiver<S::Value, S::Error>,
{
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing pinned is moved: sender and receiver are not.
        let this = unsafe { self.get_unchecked_mut() };
        let (Some(sender), Some(receiver)) = (this.stage.take_sender(), this.receiver.take()) else {
            return Transfer::none();
        };
        if S::COMPLETES.stays_on_scheduler() {
            // SAFETY: the stage is pinned with this operation, and the child is destroyed with it.
            return unsafe { Stage::start_next(NonNull::from(&mut this.stage), sender.connect(receiver)) };
        }
        let parent = NonNull::from(&mut *this);
        // The scheduler may be a user's, and panic. Nothing was started then, and sender and trip are dropped.
        let connected = Panic::catch(|| {
            let schedule = receiver.env().scheduler().schedule();
            // SAFETY: this operation is pinned, and alive until the receiver is completed, after the trip. A trip whose
            // receiver is dropped delivers nothing.
            this.trip = Some(schedule.connect(unsafe { ChildReceiver::<Self, TRIP>::new(parent) }));
        });
        if let Err(payload) = connected {
            let _ = Panic::catch(|| drop(sender)).map_err(Panic::discard);
            return receiver.set_panicked(payload);
        }
        this.receiver = Some(receiver);
        // SAFETY: this operation is pinned, and alive until the receiver is completed, after the child. The child's
        // operation is destroyed in its completion.
        let resumed = unsafe {
            let child = sender.connect(ChildReceiver::<Self, CHILD>::new(parent));
            Stage::start(NonNull::new_unchecked(&raw mut (*parent.as_ptr()).stage), child)
        };
        // SAFETY: nothing is delivered before the swap, so the operation is alive. After `COMPLETED` this thread
        // delivers.
        unsafe {
            match (*parent.as_ptr()).state.swap(STARTED, AcqRel) {
                COMPLETED => resumed.and((*parent.as_ptr()).deliver()),
                _ => resumed,
            }
        }
    }
}

impl<S, R> AffineOperation<S, R>
where
    S: Sender,
    S::Value: Send,
    S::Error: Send,
    R: Receiver<S::Value, S::Error>,
{
    /// Delivers the child's completion, once.
    ///
    /// An unstarted trip is dropped with its receiver, which points at this operation. It delivers nothing then.
    fn deliver(&mut self) -> Transfer {
        match (self.completion.take(), self.receiver.take()) {
            (Some(completion), Some(receiver)) => completion.deliver(receiver),
            _ => Transfer::none(),
        }
    }
}

// SAFETY: value, error and receiver are `Send`. Each operation is destroyed or started by one completion only.
unsafe impl<S, R> Parent<CHILD> for AffineOperation<S, R>
where
    S: Sender,
    S::Value: Send,
    S::Error: Send,
    R: Receiver<S::Value, S::Error>,
{
    type Value = S::Value;
    type Error = S::Error;
    type Env = R::Env;

    #[inline]
    fn env(this: &Waiting<Self>) -> R::Env {
        match &this.parent().receiver {
            Some(receiver) => receiver.env(),
            None => unreachable!("the receiver is taken after the child has completed"),
        }
    }

    #[inline]
    fn child_completed(this: Waiting<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        let this = this.as_ptr().as_ptr();
        // SAFETY: until the swap `start` accesses only the state, and nothing is delivered, so the operation is alive.
        // After `STARTED` `start` accesses nothing. The trip is pinned with the operation, and started once.
        unsafe {
            (*this).stage.clear();
            (*this).completion = Some(completion);
            if (*this).state.swap(COMPLETED, AcqRel) != STARTED {
                // `start` is still running, and delivers. Nothing is accessed here any more.
                return Transfer::none();
            }
            match &mut (*this).trip {
                Some(trip) => Pin::new_unchecked(trip).start(),
                None => Transfer::none(),
            }
        }
    }
}

// SAFETY: see the child; the trip is only destroyed, with the operation.
unsafe impl<S, R> Parent<TRIP> for AffineOperation<S, R>
where
    S: Sender,
    S::Value: Send,
    S::Error: Send,
    R: Receiver<S::Value, S::Error>,
{
    type Value = ();
    type Error = <<<R::Env as Env>::Scheduler as Scheduler>::Schedule as Sender>::Error;
    /// Has no stop token, so the trip is not stopped.
    type Env = EmptyEnv;

    #[inline]
    fn env(_: &Waiting<Self>) -> EmptyEnv {
        EmptyEnv
    }

    /// Delivers the child's completion, also after a trip that failed: an infallible scheduler has only one way. A
    /// panic on the way replaces it, unless the child panicked.
    #[inline]
    fn child_completed(this: Waiting<Self>, trip: Completion<(), Self::Error>) -> Transfer {
        // SAFETY: the trip was started after the child had completed. An unstarted one is dropped by the thread with
        // exclusive access, and delivers nothing.
        let this = unsafe { this.alone() };
        match trip {
            Completion::Panicked(payload) => {
                if !matches!(this.completion, Some(Completion::Panicked(_))) {
                    this.completion = Some(Completion::Panicked(payload));
                }
            }
            // Dropped before the completion, which may invalidate what the error borrows.
            other => drop(other),
        }
        this.deliver()
    }
}

impl<S, R> fmt::Debug for AffineOperation<S, R>
where
    S: Sender,
    S::Value: Send,
    S::Error: Send,
    R: Receiver<S::Value, S::Error>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AffineOperation").finish_non_exhaustive()
    }
}
