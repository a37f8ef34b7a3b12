//! Handlers that run when the current task's priority is raised.

use core::future::{Future, IntoFuture};
use core::marker::PhantomPinned;
use core::mem;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};

use super::frame::{Activity, Header, Polling, Site, by_number};
use super::strand::{Link, Raising, Tether, Tethered, ToRaise};
use crate::sender::stage::container_of;
use crate::sync::Arc;
use crate::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{AcqRel, Acquire, Release},
};
use crate::{Panic, Priority, Transfer};

/// Runs a future, or awaits a sender, and calls `handler(old, new)` each time the task's priority is raised meanwhile.
///
/// A handler can raise work outside of this crate with the task: a request to another system, or a thread.
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
/// Earlier raises are not reported; [`priority`](super::priority) includes them. The handler is never called
/// outside of a task, nor in a task without a parent or handle that could raise it.
///
/// The handler runs on the raising thread, outside of any lock of this crate. Several threads may call it at once. A call that
/// began before the operation ended may return after it.
///
/// # Panics
///
/// The operation's panic unwinds. A panic of the handler is passed to the panic hook and otherwise ignored.
///
/// # Allocation
///
/// One, at the first poll in a task that can be raised.
#[cfg_attr(feature = "inspect", track_caller)]
pub fn with_escalation_handler<H, F>(handler: H, operation: F) -> WithEscalationHandler<H, F::IntoFuture>
where
    H: Fn(Priority, Priority) + Send + Sync + 'static,
    F: IntoFuture,
{
    WithEscalationHandler {
        operation: operation.into_future(),
        handler: EscalationHandler::Given(handler),
        site: Site::here(),
        _pinned: PhantomPinned,
    }
}

/// The future of [`with_escalation_handler`].
#[must_use = "futures do nothing until they are awaited"]
pub struct WithEscalationHandler<H, F> {
    operation: F,
    handler: EscalationHandler<H>,
    site: Site,
    _pinned: PhantomPinned,
}

enum EscalationHandler<H> {
    Given(H),
    /// Installed in this frame, to which this holds a reference.
    Installed(
        Arc<EscalationNode<H>>,
        NonNull<Tether<EscalationNode<H>>>,
        NonNull<Header>,
    ),
    /// The task cannot be raised, or the operation has ended.
    Gone,
}

/// An installed handler. Its tether owns one reference, until the handler is removed or the frame ends.
struct EscalationNode<H> {
    link: Link,
    /// The highest level passed to the handler, as a number. Raised with `AcqRel` by each raising thread, before it calls the
    /// handler; the exchange decides which thread reports which step.
    level: AtomicU8,
    /// Set when the operation has ended, so that no further call begins. Stored with release by the future, or by the frame's
    /// end; pairs with the acquire load of a raising thread.
    over: AtomicBool,
    handler: H,
}

// SAFETY: the handler is `Send + Sync`. `link` is protected by the strand's lock; the rest is atomic.
unsafe impl<H: Send + Sync> Send for EscalationNode<H> {}
// SAFETY: as for `Send`.
unsafe impl<H: Send + Sync> Sync for EscalationNode<H> {}

// SAFETY: the node is `Send + Sync`; the tether is used only by the thread that polls its frame (`remove` checks).
unsafe impl<H: Send + Sync, F: Send> Send for WithEscalationHandler<H, F> {}

impl<H: Fn(Priority, Priority) + Send + Sync + 'static> EscalationNode<H> {
    /// # Safety
    ///
    /// `link` is the field of a `EscalationNode<H>` and is in the list of its strand.
    unsafe fn hold(link: NonNull<Link>) -> Option<ToRaise> {
        /// # Safety
        ///
        /// `what` is a `EscalationNode<H>`; the call consumes one reference to it.
        unsafe fn call<H: Fn(Priority, Priority)>(what: NonNull<()>, level: Priority, _: &mut Raising) {
            // A panic of the handler went through the panic hook; no caller can receive it.
            let _ = Panic::catch(|| {
                // SAFETY: the caller's promise.
                let node = unsafe { Arc::from_raw(what.cast::<EscalationNode<H>>().as_ptr()) };
                let old = by_number(node.level.fetch_max(level as u8, AcqRel));
                if !node.over.load(Acquire) && old < level {
                    (node.handler)(old, level);
                }
            });
        }

        // SAFETY: the link is listed, so the tether's reference keeps the node alive; `call` consumes the one added here.
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
        // SAFETY: the clone's reference becomes the tether's. `place` points to the whole node, so `link` may be derived from
        // it. The tether's `abandon` or `remove` unlinks it before the strand ends.
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
            // A raise between the creation and the linking is not reported.
            let level = polling.level().unwrap_or_default();
            node.level.fetch_max(level as u8, AcqRel);
            (node, tether)
        }
    }
}

// SAFETY: `release` drops the reference that `install` gave to the tether.
unsafe impl<H> Tethered for EscalationNode<H> {
    unsafe fn abandon(this: NonNull<Self>, _: Polling<'_>) -> Transfer {
        // SAFETY: the tether owns a reference, and the strand is alive until the frame has ended.
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
    /// Removes the handler, if it is installed.
    fn remove(&mut self) {
        let EscalationHandler::Installed(node, tether, frame) =
            mem::replace(&mut self.handler, EscalationHandler::Gone)
        else {
            return;
        };
        node.over.store(true, Release);
        // SAFETY: the future holds a reference to the frame, released last. On the thread that polls the frame it has not
        // ended, so the node is tethered. Elsewhere the frame's end unlinks and unties the node.
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
        // SAFETY: only the handler is moved, and it is not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        if let EscalationHandler::Given(_) = &this.handler
            && let EscalationHandler::Given(handler) = mem::replace(&mut this.handler, EscalationHandler::Gone)
        {
            this.handler = Polling::with(|polling| match polling {
                Some(polling) if polling.unit().target().is_some() => {
                    let (node, tether) = EscalationNode::install(handler, polling);
                    polling.hold();
                    EscalationHandler::Installed(node, tether, polling.frame())
                }
                _ => EscalationHandler::Gone,
            });
        }
        // SAFETY: `operation` is structurally pinned.
        let polled = unsafe { Pin::new_unchecked(&mut this.operation) }.poll(cx);
        match polled {
            Poll::Ready(_) => this.remove(),
            Poll::Pending => Activity::with(|activity| activity.awaits_around(this.site)),
        }
        polled
    }
}

impl<H, F> Drop for WithEscalationHandler<H, F> {
    fn drop(&mut self) {
        self.remove();
    }
}

crate::opaque!([H, F] WithEscalationHandler<H, F>);
