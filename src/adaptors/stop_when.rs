use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use super::fan::{Fan, FanEnv};
use super::when_all::all_inline;
use crate::sender::child::{ChildReceiver, Parent};
use crate::sender::stage::{Stage, container_of};
use crate::{Completes, Completion, Operation, Panic, Receiver, Sender, Transfer};

/// Runs a sender and asks it to stop when another completes. Made by [`Sender::stop_when`].
///
/// The other, the trigger, is stopped when the sender completes, and waited for.
///
/// ```
/// use bowline::prelude::*;
///
/// let work = never::<(), std::convert::Infallible>().stop_when(just("enough"));
/// assert!(sync_wait(work).is_stopped());
/// ```
///
/// # Completions
///
/// That of the sender, after both have completed. What the trigger completed with is dropped; its panic is not: it
/// arrives, unless the sender panicked too.
///
/// # Panics
///
/// None of its own.
///
/// # Cancellation
///
/// A stop of the receiver's token reaches both.
///
/// # Allocation
///
/// None.
///
/// # Stack
///
/// Constant.
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct StopWhen<S, G> {
    sender: S,
    trigger: G,
}

impl<S, G> StopWhen<S, G> {
    #[inline]
    pub(crate) fn new(sender: S, trigger: G) -> Self {
        StopWhen { sender, trigger }
    }
}

// SAFETY: the operation touches nothing after its second child was started or the last has completed, and is `!Unpin`.
// Where both children complete inside their `start`, the last one's completion does so inside this `start`.
unsafe impl<S: Sender, G: Sender> Sender for StopWhen<S, G>
where
    S::Value: Send,
    S::Error: Send,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = all_inline(&[S::COMPLETES, G::COMPLETES]);
    type Operation<R: Receiver<S::Value, S::Error>> = StopWhenOperation<S, G, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> StopWhenOperation<S, G, R> {
        StopWhenOperation {
            work: Stage::Sender(self.sender),
            trigger: Stage::Sender(self.trigger),
            // SAFETY: `end` expects the fan of this operation.
            fan: unsafe { Fan::new(2, receiver.env(), StopWhenOperation::<S, G, R>::end) },
            trigger_panic: None,
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

type Completed<S> = Completion<<S as Sender>::Value, <S as Sender>::Error>;

const WORK: usize = 0;
const TRIGGER: usize = 1;

/// The operation of [`StopWhen`].
pub struct StopWhenOperation<S, G, R>
where
    S: Sender,
    G: Sender,
    S::Value: Send,
    S::Error: Send,
    R: Receiver<S::Value, S::Error>,
{
    /// The sender, then its operation, then its completion. Touched by that child alone while it runs.
    work: Stage<S, S::Operation<ChildReceiver<Self, WORK>>, Completed<S>>,
    /// The same for the trigger, which leaves nothing.
    trigger: Stage<G, G::Operation<ChildReceiver<Self, TRIGGER>>>,
    fan: Fan<R::Env>,
    trigger_panic: Option<Panic>,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<S, G, R> StopWhenOperation<S, G, R>
where
    S: Sender,
    G: Sender,
    S::Value: Send,
    S::Error: Send,
    R: Receiver<S::Value, S::Error>,
{
    /// # Safety
    ///
    /// The fan is that of an operation whose children have both completed.
    unsafe fn end(fan: NonNull<Fan<R::Env>>) -> Transfer {
        // SAFETY: the fan is a field of an operation.
        let this = unsafe { container_of!(fan, Self, fan) };
        // SAFETY: both children have completed and no stop is on its way, so nobody else touches the operation.
        let this = unsafe { &mut *this.as_ptr() };
        this.fan.close();
        let Some(receiver) = this.receiver.take() else {
            return Transfer::none();
        };
        // A completion is not pinned.
        let completion = match core::mem::replace(&mut this.work, Stage::Empty) {
            Stage::Next(completion) => completion,
            _ => Completion::Stopped,
        };
        match (completion, this.trigger_panic.take()) {
            (completion @ Completion::Panicked(_), _) | (completion, None) => completion.deliver(receiver),
            (completion, Some(payload)) => {
                // Before the completion, after which nothing that it borrows need be there.
                drop(completion);
                receiver.set_panicked(payload)
            }
        }
    }

    /// # Safety
    ///
    /// A child has completed and left its result; it is counted here for the first time.
    unsafe fn child_done(this: NonNull<Self>) -> Transfer {
        // SAFETY: the operation is alive until this child is counted.
        let fan = unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).fan) };
        // SAFETY: as above.
        let fan_ref = unsafe { fan.as_ref() };
        let resumed = fan_ref.stop();
        if fan_ref.child_done() {
            // SAFETY: that was the last.
            resumed.and(unsafe { Self::end(fan) })
        } else {
            resumed
        }
    }
}

impl<S, G, R> Operation for StopWhenOperation<S, G, R>
where
    S: Sender,
    G: Sender,
    S::Value: Send,
    S::Error: Send,
    R: Receiver<S::Value, S::Error>,
{
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved but the senders, which are not pinned.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        let listen = !<StopWhen<S, G> as Sender>::COMPLETES.is_inline();
        // SAFETY: the fan is pinned with the operation, and closed in `end`. A child's stage is ours until it is
        // started; the countdown keeps the operation until the second was. Each is pinned, started once, and destroyed
        // in its completion. After the second `start` nothing is touched.
        unsafe {
            let resumed = Fan::open(NonNull::new_unchecked(&raw mut (*this.as_ptr()).fan), listen);
            let stage = &raw mut (*this.as_ptr()).work;
            let sender = Stage::take_sender(stage);
            let receiver = ChildReceiver::<Self, WORK>::new(this);
            let resumed = resumed.and(Stage::set_running(stage, sender.connect(receiver)).start());
            let stage = &raw mut (*this.as_ptr()).trigger;
            let sender = Stage::take_sender(stage);
            let receiver = ChildReceiver::<Self, TRIGGER>::new(this);
            resumed.and(Stage::set_running(stage, sender.connect(receiver)).start())
        }
    }
}

// SAFETY: value, error and receiver are `Send`; a stage is touched by its own child alone.
unsafe impl<S, G, R> Parent<WORK> for StopWhenOperation<S, G, R>
where
    S: Sender,
    G: Sender,
    S::Value: Send,
    S::Error: Send,
    R: Receiver<S::Value, S::Error>,
{
    type Value = S::Value;
    type Error = S::Error;
    type Env = FanEnv<R::Env>;

    #[inline]
    unsafe fn env(this: NonNull<Self>) -> Self::Env {
        // SAFETY: the child has not completed, so the fan is alive, and the environment not used after.
        unsafe { (*this.as_ptr()).fan.env() }
    }

    unsafe fn child_completed(this: NonNull<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        // SAFETY: the stage is this child's, and its operation touches nothing of itself any more.
        unsafe { Stage::set_next(&raw mut (*this.as_ptr()).work, completion) };
        // SAFETY: it is counted once.
        unsafe { Self::child_done(this) }
    }
}

// SAFETY: as for the work.
unsafe impl<S, G, R> Parent<TRIGGER> for StopWhenOperation<S, G, R>
where
    S: Sender,
    G: Sender,
    S::Value: Send,
    S::Error: Send,
    R: Receiver<S::Value, S::Error>,
{
    type Value = G::Value;
    type Error = G::Error;
    type Env = FanEnv<R::Env>;

    #[inline]
    unsafe fn env(this: NonNull<Self>) -> Self::Env {
        // SAFETY: the child has not completed, so the fan is alive, and the environment not used after.
        unsafe { (*this.as_ptr()).fan.env() }
    }

    unsafe fn child_completed(this: NonNull<Self>, completion: Completion<G::Value, G::Error>) -> Transfer {
        // SAFETY: the stage and the payload are this child's, and its operation touches nothing of itself any more.
        unsafe {
            Stage::clear(&raw mut (*this.as_ptr()).trigger);
            match completion {
                Completion::Panicked(payload) => (*this.as_ptr()).trigger_panic = Some(payload),
                // Before this child is counted, after which nothing that it borrows need be there.
                ended => drop(ended),
            }
        }
        // SAFETY: it is counted once.
        unsafe { Self::child_done(this) }
    }
}

impl<S, G, R> fmt::Debug for StopWhenOperation<S, G, R>
where
    S: Sender,
    G: Sender,
    S::Value: Send,
    S::Error: Send,
    R: Receiver<S::Value, S::Error>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopWhenOperation")
            .field("fan", &self.fan)
            .finish_non_exhaustive()
    }
}
