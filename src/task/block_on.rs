use core::future::Future;
use core::marker::PhantomData;
use core::pin::{Pin, pin};
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};

use super::coroutine::local::LocalTask;
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
/// # Cancellation
///
/// Nothing stops it from outside: what it awaits sees a token that never stops.
///
/// # Allocation
///
/// One.
///
/// # Stack
///
/// That of the future's poll, and of one loop.
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut output = None;
    let outcome = {
        let filling = pin!(Some(async {
            output = Some(future.await);
        }));
        // SAFETY: the task is started here, and waited for.
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

/// A future that is somewhere else, with its type and what it borrows forgotten. Dropping this drops it.
struct Borrowed {
    /// An `Option` of the future, pinned.
    future: NonNull<()>,
    poll: unsafe fn(NonNull<()>, &mut Cx<'_>) -> Poll<()>,
    clear: unsafe fn(NonNull<()>),
    _stays: PhantomData<*mut ()>,
}

impl Borrowed {
    /// # Safety
    ///
    /// The future is there, and not touched, until this is dropped.
    unsafe fn new<F: Future<Output = ()>>(future: Pin<&mut Option<F>>) -> Self {
        Borrowed {
            // SAFETY: nothing is moved.
            future: NonNull::from(unsafe { future.get_unchecked_mut() }).cast(),
            // SAFETY: the caller of both knows that the future is of this type, there, and pinned.
            poll: |future, cx| match unsafe { pinned::<F>(future) }.as_pin_mut() {
                Some(future) => future.poll(cx),
                None => Poll::Pending,
            },
            // SAFETY: as above.
            clear: |future| unsafe { pinned::<F>(future) }.set(None),
            _stays: PhantomData,
        }
    }
}

/// # Safety
///
/// There is such a future, pinned, and nobody else uses it.
unsafe fn pinned<'a, F>(future: NonNull<()>) -> Pin<&'a mut Option<F>> {
    // SAFETY: the caller's promise.
    unsafe { Pin::new_unchecked(future.cast::<Option<F>>().as_mut()) }
}

impl Future for Borrowed {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<()> {
        // SAFETY: by the promise of `new`.
        unsafe { (self.poll)(self.future, cx) }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // SAFETY: by the promise of `new`.
        unsafe { (self.clear)(self.future) };
    }
}
