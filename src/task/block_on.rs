//! Running a future on the current thread.

use core::future::Future;
use core::marker::PhantomData;
use core::pin::{Pin, pin};
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};

use super::coroutine::local::LocalTask;
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
    let outcome = {
        let filling = pin!(Some(async {
            output = Some(future.await);
        }));
        // SAFETY: `sync_wait` drops the task, and with it the `Borrowed`, before it returns; `filling` outlives the call.
        sync_wait(LocalTask::new(unsafe { Borrowed::new(filling) }))
    };
    match (outcome, output) {
        (Outcome::Value(()), Some(output)) => output,
        _ => panic!(
            "the future has no output, since something that it awaited has stopped: write \
             `sender.stopped_as_option().await` to go on after a stop"
        ),
    }
}

/// A pinned future elsewhere, with type and lifetime erased. Dropping this drops the future.
struct Borrowed {
    /// A pinned `Option<F>`.
    future: NonNull<()>,
    poll: unsafe fn(NonNull<()>, &mut Cx<'_>) -> Poll<()>,
    clear: unsafe fn(NonNull<()>),
    _stays: PhantomData<*mut ()>,
}

impl Borrowed {
    /// # Safety
    ///
    /// The future outlives the returned value, and is not accessed otherwise until that is dropped.
    unsafe fn new<F: Future<Output = ()>>(future: Pin<&mut Option<F>>) -> Self {
        Borrowed {
            // SAFETY: nothing is moved.
            future: NonNull::from(unsafe { future.get_unchecked_mut() }).cast(),
            // SAFETY: called with the pointer above, whose target is alive, pinned and exclusive by the contract of `new`.
            poll: |future, cx| match unsafe { pinned::<F>(future) }.as_pin_mut() {
                Some(future) => future.poll(cx),
                None => Poll::Pending,
            },
            // SAFETY: as for `poll`.
            clear: |future| unsafe { pinned::<F>(future) }.set(None),
            _stays: PhantomData,
        }
    }
}

/// # Safety
///
/// `future` points to a pinned `Option<F>`, and the caller has exclusive access to it.
unsafe fn pinned<'a, F>(future: NonNull<()>) -> Pin<&'a mut Option<F>> {
    // SAFETY: the caller's promise.
    unsafe { Pin::new_unchecked(future.cast::<Option<F>>().as_mut()) }
}

impl Future for Borrowed {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<()> {
        // SAFETY: `new`'s contract: the future is alive and accessed only through this.
        unsafe { (self.poll)(self.future, cx) }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // SAFETY: `new`'s contract, as in `poll`.
        unsafe { (self.clear)(self.future) };
    }
}
