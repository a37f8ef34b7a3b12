use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use super::fan::{Fan, FanEnv};
use super::tuple::all_inline;
use crate::sender::child::{ChildReceiver, Parent, Waiting};
use crate::sender::dismantle::dismantle;
use crate::sender::stage::{Stage, container_of};
use crate::stop::{StopSlot, StopToken};
use crate::{Completes, Completion, Job, Operation, Receiver, Sender, Transfer};

/// Sender created by [`Sender::with_stop_token`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct AlsoStops<S, K> {
    sender: S,
    token: K,
}

impl<S, K> AlsoStops<S, K> {
    #[inline]
    pub(crate) fn new(sender: S, token: K) -> Self {
        AlsoStops { sender, token }
    }
}

// SAFETY: the operation is `!Unpin`, and accesses nothing of itself once its child was started, or once the child and the
// stops have ended and `end` completes the receiver. It listens to no stop where the child completes inside `start`, so it
// completes inside `start` too. Elsewhere the thread that requests a stop may be the one that completes it.
unsafe impl<S, K> Sender for AlsoStops<S, K>
where
    S: Sender<Value: Send, Error: Send>,
    K: StopToken,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = all_inline(&[S::COMPLETES]);
    type Operation<R: Receiver<S::Value, S::Error>> = AlsoStopsOperation<S, K, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> AlsoStopsOperation<S, K, R> {
        AlsoStopsOperation {
            stage: Stage::new(self.sender),
            // SAFETY: `end` expects the fan of this operation.
            fan: unsafe { Fan::new(1, receiver.env(), AlsoStopsOperation::<S, K, R>::end) },
            slot: StopSlot::new(AlsoStopsOperation::<S, K, R>::stop_requested),
            pass_on: Job::new(AlsoStopsOperation::<S, K, R>::pass_on),
            token: Some(self.token),
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
    /// The sender, then its operation, then its completion.
    #[allow(clippy::type_complexity, reason = "a stage of the three")]
    stage: Stage<S, S::Operation<ChildReceiver<Self, 0>>, Completion<S::Value, S::Error>>,
    /// Listens to the receiver's token. Counts the child, and every stop that is on its way to the child.
    fan: Fan<R::Env>,
    /// Registered with the given token from `start` until `end`.
    slot: StopSlot<K>,
    /// Passes the given token's stop on, from the loop of the thread that requested it.
    pass_on: Job,
    /// The given token, until `start` moves it to the slot.
    token: Option<K>,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<S, K, R> AlsoStopsOperation<S, K, R>
where
    S: Sender<Value: Send, Error: Send>,
    K: StopToken,
    R: Receiver<S::Value, S::Error>,
{
    /// Takes the given token's stop, and passes it on by a job.
    ///
    /// # Safety
    ///
    /// The slot is that of a started operation.
    unsafe fn stop_requested(slot: NonNull<StopSlot<K>>) -> Transfer {
        // SAFETY: the slot is a field of an operation, which is alive until the slot is released: `end` waits for that. A
        // hold keeps the operation alive beyond, until its job has run. The job runs once, since a callback does.
        unsafe {
            let this = container_of!(slot, Self, slot).as_ptr();
            let held = (*this).fan.hold();
            slot.as_ref().release();
            match held {
                true => Transfer::to(NonNull::new_unchecked(&raw mut (*this).pass_on)),
                false => Transfer::none(),
            }
        }
    }

    /// Requests the child's stop, and releases the hold of `stop_requested`.
    ///
    /// # Safety
    ///
    /// The job is that of an operation whose fan `stop_requested` holds.
    unsafe fn pass_on(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation that the hold keeps alive. A hold is counted as a child is, and ends
        // like one that asks for a stop.
        unsafe {
            let this = container_of!(job, Self, pass_on).as_ptr();
            Fan::child_completed(NonNull::new_unchecked(&raw mut (*this).fan), true)
        }
    }

    /// Completes the receiver with the child's completion.
    ///
    /// # Safety
    ///
    /// The fan is that of an operation whose child and holds have all been counted.
    unsafe fn end(fan: NonNull<Fan<R::Env>>) -> Transfer {
        // SAFETY: the fan is a field of an operation. `close` and `leave` wait for callbacks that are running; none holds the
        // fan any more. Then this thread has exclusive access.
        let this = unsafe {
            let this = container_of!(fan, Self, fan).as_ptr();
            (*this).fan.close();
            (*this).slot.leave();
            &mut *this
        };
        match this.stage.take_next() {
            Some(completion) => completion.deliver_to(this.receiver.take()),
            None => Transfer::none(),
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
        // SAFETY: nothing pinned is moved: the sender and the token are not.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        let listen = !S::COMPLETES.is_inline();
        // SAFETY: the child is counted, so the operation is alive until the child has completed. Fan and slot are pinned with
        // the operation, and leave their lists in `end`. Callbacks that run meanwhile access neither token nor stage, to
        // which this thread has exclusive access until the child is started.
        unsafe {
            let raw = this.as_ptr();
            let mut resumed = Fan::open(NonNull::new_unchecked(&raw mut (*raw).fan), listen);
            if let Some(token) = (*raw).token.take() {
                let stopped = match listen {
                    true => !StopSlot::listen(NonNull::new_unchecked(&raw mut (*raw).slot), token),
                    false => token.stop_requested(),
                };
                if stopped {
                    resumed.append((*raw).fan.stop());
                }
            }
            let stage = NonNull::new_unchecked(&raw mut (*raw).stage);
            resumed.append(Stage::start_child::<Self, 0>(stage, this));
            resumed
        }
    }
}

// SAFETY: value, error and receiver are `Send`, and so may be used by the thread that completes the child.
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
        // SAFETY: the child has not completed, so the fan is alive, and the environment is not used afterwards.
        unsafe { this.parent().fan.env() }
    }

    fn child_completed(this: Waiting<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        let this = this.as_ptr().as_ptr();
        // SAFETY: the operation is alive until the child is counted, here and once. The child's operation accesses nothing of
        // itself any more, so the stage is this thread's. `end` expects this operation's fan.
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
