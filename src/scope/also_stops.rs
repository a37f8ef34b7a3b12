//! A sender that stops for two reasons: its receiver's, and a second token's.

use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use crate::adaptors::fan::{Fan, FanEnv};
use crate::sender::child::{ChildReceiver, Parent, Waiting};
use crate::sender::dismantle::dismantle;
use crate::sender::stage::{Stage, container_of};
use crate::stop::{StopSlot, StopToken};
use crate::{Completes, Completion, Job, Operation, Receiver, Sender, Transfer};

/// The sender, which is asked to stop when its receiver is, and when `token` is.
#[derive(Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct AlsoStops<S, K> {
    sender: S,
    token: K,
}

impl<S, K> AlsoStops<S, K> {
    /// # Safety
    ///
    /// The token can be used until the receiver that this is connected to has been completed, or is dropped.
    pub(super) unsafe fn new(sender: S, token: K) -> Self {
        AlsoStops { sender, token }
    }
}

// SAFETY: the operation touches nothing after its child was started or, where that and the stops have ended, its receiver
// was completed, and is `!Unpin`. Where the child completes inside its `start`, no stop is listened to, so that this does
// too; where not, a stop may be what completes.
unsafe impl<S, K> Sender for AlsoStops<S, K>
where
    S: Sender<Value: Send, Error: Send>,
    K: StopToken,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = match S::COMPLETES {
        Completes::Inline => Completes::Inline,
        _ => Completes::Anywhere,
    };
    type Operation<R: Receiver<S::Value, S::Error>> = AlsoStopsOperation<S, K, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> AlsoStopsOperation<S, K, R> {
        AlsoStopsOperation {
            stage: Stage::new(self.sender),
            // SAFETY: `end` expects the fan of this operation.
            fan: unsafe { Fan::new(1, receiver.env(), AlsoStopsOperation::<S, K, R>::end) },
            slot: StopSlot::new(AlsoStopsOperation::<S, K, R>::stop_requested),
            pass_on: Job::new(AlsoStopsOperation::<S, K, R>::pass_on),
            token: self.token,
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }

    dismantle!(sender);
}

/// The operation of [`AlsoStops`].
pub struct AlsoStopsOperation<S, K, R>
where
    S: Sender<Value: Send, Error: Send>,
    K: StopToken,
    R: Receiver<S::Value, S::Error>,
{
    /// The sender, then its operation, then what it completed with.
    #[allow(clippy::type_complexity, reason = "a stage of the three")]
    stage: Stage<S, S::Operation<ChildReceiver<Self, 0>>, Completion<S::Value, S::Error>>,
    /// Listens to the receiver's token, counts the one child, and every stop that is on its way to it.
    fan: Fan<R::Env>,
    /// In the list of the second token.
    slot: StopSlot<K>,
    /// Passes the second token's stop on.
    pass_on: Job,
    token: K,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<S, K, R> AlsoStopsOperation<S, K, R>
where
    S: Sender<Value: Send, Error: Send>,
    K: StopToken,
    R: Receiver<S::Value, S::Error>,
{
    /// The callback of the second token.
    ///
    /// # Safety
    ///
    /// The slot is that of a started operation.
    unsafe fn stop_requested(slot: NonNull<StopSlot<K>>) -> Transfer {
        // SAFETY: the slot is a field of an operation, which waits for the slot to be released before it goes.
        let held = unsafe {
            let this = container_of!(slot, Self, slot);
            let held = this.as_ref().fan.hold().then_some(this);
            slot.as_ref().release();
            held
        };
        match held {
            // SAFETY: what is held keeps the operation until the job has run, which happens once.
            Some(this) => unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*this.as_ptr()).pass_on)) },
            None => Transfer::none(),
        }
    }

    /// # Safety
    ///
    /// The job is that of an operation whose fan `stop_requested` holds.
    unsafe fn pass_on(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation; what is held is given back like a child that asks for a stop.
        unsafe {
            let this = container_of!(job, Self, pass_on);
            Fan::child_completed(NonNull::new_unchecked(&raw mut (*this.as_ptr()).fan), true)
        }
    }

    /// # Safety
    ///
    /// The fan is that of an operation whose child has completed.
    unsafe fn end(fan: NonNull<Fan<R::Env>>) -> Transfer {
        // SAFETY: the fan is a field of an operation. The child has completed. A callback that still looks is waited for
        // first; after that this has exclusive access.
        let this = unsafe {
            let this = container_of!(fan, Self, fan);
            this.as_ref().fan.close();
            this.as_ref().slot.leave();
            &mut *this.as_ptr()
        };
        match (this.stage.take_next(), this.receiver.take()) {
            (Some(completion), Some(receiver)) => completion.deliver(receiver),
            _ => Transfer::none(),
        }
    }
}

impl<S, K, R> Operation for AlsoStopsOperation<S, K, R>
where
    S: Sender<Value: Send, Error: Send>,
    K: StopToken,
    R: Receiver<S::Value, S::Error>,
{
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved but the sender, which is not pinned.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        let listen = !S::COMPLETES.is_inline();
        // SAFETY: the fan is pinned with the operation, and closed in `end`. The child is counted, so the operation is
        // alive until that has completed. The slot is pinned with it, and left in `end`; until the receiver is completed
        // the token can be used.
        let mut resumed = unsafe {
            let fan = NonNull::new_unchecked(&raw mut (*this.as_ptr()).fan);
            let mut resumed = Fan::open(fan, listen);
            let token = (*this.as_ptr()).token.clone();
            let stopped = if listen {
                !StopSlot::listen(NonNull::new_unchecked(&raw mut (*this.as_ptr()).slot), token)
            } else {
                token.stop_requested()
            };
            if stopped {
                resumed.append(fan.as_ref().stop());
            }
            resumed
        };
        // SAFETY: the child has not been started, so this has exclusive access to its stage, which is pinned with the
        // operation.
        resumed.append(unsafe {
            let stage = NonNull::new_unchecked(&raw mut (*this.as_ptr()).stage);
            Stage::start_child::<Self, 0>(stage, this)
        });
        resumed
    }
}

// SAFETY: value, error and receiver are `Send`; the stage is touched by the child alone.
unsafe impl<S, K, R> Parent<0> for AlsoStopsOperation<S, K, R>
where
    S: Sender<Value: Send, Error: Send>,
    K: StopToken,
    R: Receiver<S::Value, S::Error>,
{
    type Value = S::Value;
    type Error = S::Error;
    type Env = FanEnv<R::Env>;

    fn env(this: &Waiting<Self>) -> FanEnv<R::Env> {
        // SAFETY: the child has not completed, so the fan is alive, and the environment not used after.
        unsafe { this.parent().fan.env() }
    }

    fn child_completed(this: Waiting<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        let this = this.as_ptr().as_ptr();
        // SAFETY: the operation is alive until the child is counted, whose operation touches nothing of itself any more;
        // `end` expects this operation's fan.
        unsafe {
            (*this).stage.set_kept(Some(completion));
            Fan::child_completed(NonNull::new_unchecked(&raw mut (*this).fan), false)
        }
    }
}

impl<S, K, R> fmt::Debug for AlsoStopsOperation<S, K, R>
where
    S: Sender<Value: Send, Error: Send>,
    K: StopToken,
    R: Receiver<S::Value, S::Error>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlsoStopsOperation")
            .field("fan", &self.fan)
            .finish_non_exhaustive()
    }
}
