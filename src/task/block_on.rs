//! Running a future on the current thread.

use core::convert::Infallible;
use core::future::Future;

use super::coroutine::LocalTask;
#[cfg(not(loom))]
use crate::scheduler::ThreadPool;
use crate::{Outcome, sync_wait};

/// Runs a future as a [`LocalTask`] on a run loop of its own, and blocks the thread until it has finished.
///
/// [`#[bowline::main]`](crate::main) and [`#[bowline::test]`](crate::test) wrap a function's body in this call. The future and
/// its output need not be `Send`, and the future may borrow.
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
/// Resumes the future's panic. Panics if something that the future awaits has stopped: the future is dropped, and has no
/// output. [`stopped_as_option`](crate::Sender::stopped_as_option) and similar adaptors make a stop visible to the future;
/// [`sync_wait`] of a task returns an [`Outcome`].
///
/// # Cancellation
///
/// Not cancellable: what the future awaits has a stop token that never stops.
///
/// # Allocation
///
/// One.
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut output = None;
    let filling = async {
        output = Some(future.await);
        Ok::<(), Infallible>(())
    };
    // SAFETY: `sync_wait` returns after the completion; what the future borrows outlives this call.
    let outcome = sync_wait(unsafe { LocalTask::of_borrowing(filling) });
    match (outcome, output) {
        (Outcome::Value(()), Some(output)) => output,
        _ => panic!(
            "the future has no output, since something that it awaited has stopped: write \
             `sender.stopped_as_option().await` to go on after a stop"
        ),
    }
}

/// Runs a future like [`block_on`], with a global pool of so many threads. `#[bowline::main(threads = ..)]` calls it.
///
/// # Panics
///
/// Like [`block_on`]. If the number of threads is zero, or the system refuses them. If there is a global pool already, with
/// another number of threads.
#[cfg(not(loom))]
#[doc(hidden)]
#[track_caller]
pub fn block_on_with_threads<F: Future>(threads: usize, future: F) -> F::Output {
    if ThreadPool::new(threads).make_global().is_err() {
        let present = ThreadPool::global().threads();
        assert!(
            present == threads,
            "the global pool has {present} threads already, and cannot have {threads}: use it after `main` has begun"
        );
    }
    block_on(future)
}
