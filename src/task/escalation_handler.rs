//! What is called when the task is raised, while it does something.

use core::fmt;
use core::future::{Future, IntoFuture};
use core::marker::PhantomPinned;
use core::mem;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};

use super::frame::{Header, Polling, by_number};
use super::strand::raising::{Link, Raising, ToRaise};
use super::strand::tether::{Tether, Tethered};
use crate::sender::stage::container_of;
use crate::sync::Arc;
use crate::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{AcqRel, Acquire, Release},
};
use crate::{Panic, Priority, Transfer};

/// Runs a future, or awaits a sender, and calls `handler` whenever the task is raised meanwhile, with the level that holds
/// then.
///
/// It is how work is made more urgent that this crate does not know of: a request that was sent elsewhere, a thread.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task;
/// use std::sync::mpsc;
///
/// let (sender, raised) = mpsc::channel();
/// let (begun, began) = mpsc::channel();
/// let gate = async_channel::bounded::<()>(1);
/// let handle = task::detach(task::with_escalation_handler(
///     move |old, new| drop(sender.send((old, new))),
///     async move {
///         begun.send(()).unwrap();
///         gate.1.recv().await.unwrap();
///     },
/// ));
/// began.recv().unwrap();
/// handle.raise(Priority::UserInteractive);
/// assert_eq!(raised.recv(), Ok((Priority::Default, Priority::UserInteractive)));
/// gate.0.send_blocking(()).unwrap();
/// task::block_on(handle).unwrap();
/// ```
///
/// What the task was raised to before does not count: [`priority`](super::priority()) tells that. A task that
/// nobody can raise, since nobody has a handle or is its parent, calls nothing; and neither does what is not in a task.
///
/// The handler is called by whoever raises the task, on that very thread, and outside of any lock of this crate. It may be
/// called several times, by several threads at once; and a call that began before the operation has ended may end after
/// that.
///
/// # Completions
///
/// The output of the operation.
///
/// # Panics
///
/// The operation's panic unwinds. A handler that panics has been reported by the panic hook, and that is all.
///
/// # Cancellation
///
/// That of the operation.
///
/// # Allocation
///
/// One, when it is first polled in a task that can be raised.
pub fn with_escalation_handler<H, F>(handler: H, operation: F) -> WithEscalationHandler<H, F::IntoFuture>
where
    H: Fn(Priority, Priority) + Send + Sync + 'static,
    F: IntoFuture,
{
    WithEscalationHandler {
        operation: operation.into_future(),
        handler: EscalationHandler::Given(handler),
        _pinned: PhantomPinned,
    }
}

/// The future of [`with_escalation_handler`].
#[must_use = "futures do nothing until they are awaited"]
pub struct WithEscalationHandler<H, F> {
    operation: F,
    handler: EscalationHandler<H>,
    _pinned: PhantomPinned,
}

enum EscalationHandler<H> {
    Given(H),
    /// In this frame, of which this holds a reference.
    Installed(
        Arc<EscalationNode<H>>,
        NonNull<Tether<EscalationNode<H>>>,
        NonNull<Header>,
    ),
    /// There is nobody to be raised, or the operation has ended.
    Gone,
}

/// What the strand knows. Its tether has a reference, until the handler is taken back, or the frame ends.
struct EscalationNode<H> {
    link: Link,
    /// The level that the handler knows of, as a number. Raised, with acquire and release, by the thread that tells it of another.
    level: AtomicU8,
    /// The operation has ended, so that no call is to begin. Set with release, by who ended it.
    over: AtomicBool,
    handler: H,
}

// SAFETY: the handler is both, and the rest belongs to the lock of the strand, or to the frame.
unsafe impl<H: Send + Sync> Send for EscalationNode<H> {}
// SAFETY: as above.
unsafe impl<H: Send + Sync> Sync for EscalationNode<H> {}

// SAFETY: what is installed is `Send`, and taken back in its frame alone.
unsafe impl<H: Send + Sync, F: Send> Send for WithEscalationHandler<H, F> {}

impl<H: Fn(Priority, Priority) + Send + Sync + 'static> EscalationNode<H> {
    /// # Safety
    ///
    /// The link is that of such a node, which has not left.
    unsafe fn hold(link: NonNull<Link>) -> Option<ToRaise> {
        /// # Safety
        ///
        /// It is counted, and this gives that back.
        unsafe fn call<H: Fn(Priority, Priority)>(what: NonNull<()>, level: Priority, _: &mut Raising) {
            // What panics in there was reported by the hook, and nobody is left to be told.
            let _ = Panic::catch(|| {
                // SAFETY: the caller's promise.
                let node = unsafe { Arc::from_raw(what.cast::<EscalationNode<H>>().as_ptr()) };
                let old = by_number(node.level.fetch_max(level as u8, AcqRel));
                if !node.over.load(Acquire) && old < level {
                    (node.handler)(old, level);
                }
            });
        }

        // SAFETY: by the caller's promise, the strand has a count.
        unsafe {
            let node = container_of!(link, Self, link);
            Arc::increment_strong_count(node.as_ptr());
            Some(ToRaise {
                what: node.cast(),
                raise: call::<H>,
            })
        }
    }

    /// Installs a handler in the frame that this thread polls.
    fn install(handler: H, polling: Polling<'_>) -> (Arc<Self>, NonNull<Tether<Self>>) {
        let node = Arc::new(EscalationNode {
            link: Link::new(Self::hold),
            level: AtomicU8::new(polling.level().unwrap_or_default() as u8),
            over: AtomicBool::new(false),
            handler,
        });
        // SAFETY: one reference is the tether's. All is derived from the pointer to the whole.
        unsafe {
            let place = NonNull::new_unchecked(Arc::into_raw(node.clone()).cast_mut());
            let tether = match Tether::tie(place, polling) {
                Ok(tether) => tether,
                Err(error) => {
                    Tethered::release(place);
                    panic!("cannot install a handler: {error}");
                }
            };
            Link::enter(NonNull::new_unchecked(&raw mut (*place.as_ptr()).link), polling.frame());
            // It is told of what comes after that.
            let level = polling.level().unwrap_or_default();
            node.level.fetch_max(level as u8, AcqRel);
            (node, tether)
        }
    }
}

// SAFETY: the reference is one of the `Arc`.
unsafe impl<H> Tethered for EscalationNode<H> {
    unsafe fn abandon(this: NonNull<Self>, _: Polling<'_>) -> Transfer {
        // SAFETY: the tether has a reference. The strand is not over.
        let node = unsafe { this.as_ref() };
        node.over.store(true, Release);
        node.link.leave();
        Transfer::none()
    }

    unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        let node = unsafe { Arc::from_raw(this.as_ptr().cast_const()) };
        drop(Panic::catch(|| drop(node)));
    }
}

impl<H, F> WithEscalationHandler<H, F> {
    /// Takes the handler back.
    fn remove(&mut self) {
        let EscalationHandler::Installed(node, tether, frame) =
            mem::replace(&mut self.handler, EscalationHandler::Gone)
        else {
            return;
        };
        node.over.store(true, Release);
        // SAFETY: the frame is polled by this thread, so it has not begun to end. On another thread it is for the frame to end
        // what was installed. The reference is given up.
        unsafe {
            if Header::is_current(frame) {
                node.link.leave();
                Tether::untie(tether);
            }
            Header::unhold(frame);
        }
    }
}

impl<H: Fn(Priority, Priority) + Send + Sync + 'static, F: Future> Future for WithEscalationHandler<H, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<F::Output> {
        // SAFETY: nothing is moved but the handler, before it is installed.
        let this = unsafe { self.get_unchecked_mut() };
        if let EscalationHandler::Given(_) = &this.handler
            && let EscalationHandler::Given(handler) = mem::replace(&mut this.handler, EscalationHandler::Gone)
        {
            this.handler = Polling::with(|polling| match polling {
                Some(polling) if polling.can_be_raised() => {
                    let (node, tether) = EscalationNode::install(handler, polling);
                    polling.hold();
                    EscalationHandler::Installed(node, tether, polling.frame())
                }
                _ => EscalationHandler::Gone,
            });
        }
        // SAFETY: it is pinned with this.
        let polled = unsafe { Pin::new_unchecked(&mut this.operation) }.poll(cx);
        if polled.is_ready() {
            this.remove();
        }
        polled
    }
}

impl<H, F> Drop for WithEscalationHandler<H, F> {
    fn drop(&mut self) {
        self.remove();
    }
}

impl<H, F> fmt::Debug for WithEscalationHandler<H, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithEscalationHandler").finish_non_exhaustive()
    }
}
