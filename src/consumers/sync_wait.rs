use core::mem;

use super::prepare::{Prepared, WaitSlot, into_outcome};
use crate::{Outcome, Sender};

/// Starts a sender and blocks until it has completed.
///
/// While it waits it drives a [`RunLoop`](crate::scheduler::RunLoop) of its own, whose scheduler is in the environment. Everything lives on this
/// stack frame, so the sender may borrow.
///
/// On a thread of a [`ThreadPool`](crate::scheduler::ThreadPool) it may be used as well: another thread takes the place of
/// the one that waits, as [`ThreadPool`](crate::scheduler::ThreadPool#blocking) says.
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
/// The sender's panic goes on unwinding from here, after everything has ended.
///
/// # Cancellation
///
/// The environment's token never stops. To stop from outside, write one with
/// [`write_env`](Sender::write_env)`(`[`WithStopToken`](crate::WithStopToken)`(token))`.
///
/// # Stack
///
/// Constant: this is a driver.
#[inline]
pub fn sync_wait<S>(sender: S) -> Outcome<S::Value, S::Error>
where
    S: Sender<Value: Send, Error: Send>,
{
    let slot = WaitSlot::new();
    let completion = Prepared::new(sender, &slot).complete();
    if S::COMPLETES.is_inline() {
        // The loop was never driven and the completion is taken, so there is nothing to drop. Said here, it leaves
        // nothing of the slot for the optimiser to keep.
        mem::forget(slot);
    }
    into_outcome(completion)
}
