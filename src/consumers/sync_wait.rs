use core::mem;

use super::prepare::{Prepared, WaitSlot, into_outcome};
use crate::{Outcome, Sender};

/// Starts a sender and blocks until it has completed.
///
/// The waiting thread drives a [`RunLoop`](crate::scheduler::RunLoop) of its own, whose scheduler is in the
/// environment. The operation lives on the caller's stack, so the sender may borrow from the caller.
///
/// A thread of a [`ThreadPool`](crate::scheduler::ThreadPool#blocking) may call it as well: a spare thread takes its
/// place while it waits.
///
/// ```
/// use bowline::prelude::*;
///
/// let words = ["hold", "fast"];
/// let shout = just(&words).then(|words| words.join(" ").to_uppercase());
/// assert_eq!(sync_wait(shout).unwrap(), "HOLD FAST");
/// ```
///
/// # Completions
///
/// The outcome is the sender's value, its error, or that it stopped. A sender that drops its receiver without
/// completing has stopped.
///
/// # Panics
///
/// The sender's panic unwinds from here, after all work has ended.
///
/// # Cancellation
///
/// The environment's token never stops. [`with_stop_token`](Sender::with_stop_token) adds one that does.
///
/// # Stack
///
/// This call is a driver.
#[inline]
pub fn sync_wait<S>(sender: S) -> Outcome<S::Value, S::Error>
where
    S: Sender<Value: Send, Error: Send>,
{
    let slot = WaitSlot::new();
    let completion = Prepared::new(sender, &slot).complete();
    if S::COMPLETES.is_inline() {
        // The loop was never driven and the completion is taken, so there is nothing to drop. The `forget` lets the
        // optimiser remove the slot.
        mem::forget(slot);
    }
    into_outcome(completion)
}
