use core::future::Future;

use super::local::LocalTask;
use super::task::Plain;
use crate::{Outcome, sync_wait};

/// Runs a future as a [`LocalTask`] on a run loop of its own, and blocks until it is done.
///
/// It is what [`#[bowline::main]`](crate::main) and [`#[bowline::test]`](crate::test) put around a function's body. Neither
/// the future nor its output need be `Send`, and the future may borrow.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::ThreadPool;
/// use bowline::task;
///
/// let pool = ThreadPool::global().scheduler();
/// let words = ["hold", "fast"];
/// let length = task::block_on(async {
///     let Ok(first) = starts_on(pool, just_from(|| 4)).await;
///     first + words[1].len()
/// });
/// assert_eq!(length, 8);
/// ```
///
/// # Panics
///
/// The future's panic goes on unwinding from here. It also panics when something that the future awaits has stopped: the
/// future is dropped then, and there is no output to return. [`stopped_as_option`](crate::Sender::stopped_as_option) and
/// its like let the future see a stop; [`sync_wait`] of a task gives an [`Outcome`].
///
/// # Allocation
///
/// One.
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut output = None;
    let filling = async {
        output = Some(future.await);
    };
    // SAFETY: it is started here, and waited for.
    let task: LocalTask<()> = unsafe { LocalTask::borrowing(Plain(filling)) };
    let outcome = sync_wait(task);
    match (outcome, output) {
        (Outcome::Value(()), Some(output)) => output,
        _ => panic!(
            "the future has no output, since something that it awaited has stopped: write \
             `sender.stopped_as_option().await` to go on after a stop"
        ),
    }
}
