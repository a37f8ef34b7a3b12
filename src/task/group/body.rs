//! What runs the body of a group, and then waits for its children.

use core::future::Future;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::task::{Context as Cx, Poll};

use super::super::frame;
use super::super::priority::current_priority;
use super::core::{CoreRef, run_later};
use crate::Panic;

/// Runs the body of a group. It is ready when that and all children have ended.
///
/// Dropped before, it stops the children, and the frame that it is in waits for them.
pub(super) struct Body<F: Future> {
    core: CoreRef,
    body: Option<F>,
    /// Whether the children are stopped when the body ends with this.
    fails: fn(&F::Output) -> bool,
    result: Option<Result<F::Output, Panic>>,
    is_over: bool,
    _pinned: PhantomPinned,
}

impl<F: Future> Body<F> {
    pub(super) fn new(core: CoreRef, body: F, fails: fn(&F::Output) -> bool) -> Self {
        Body {
            core,
            body: Some(body),
            fails,
            result: None,
            is_over: false,
            _pinned: PhantomPinned,
        }
    }

    /// Polls the body. `false` while it runs.
    fn poll_body(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(body) = &mut self.body else { return true };
        // SAFETY: it is pinned with this.
        let body = unsafe { Pin::new_unchecked(body) };
        let result = match Panic::catch(|| body.poll(cx)) {
            Ok(Poll::Pending) => return false,
            Ok(Poll::Ready(value)) => Ok(value),
            Err(payload) => Err(payload),
        };
        // Its locals go before anybody waits for the children. One that panics there has panicked.
        let result = match Panic::catch(|| self.body = None) {
            Ok(()) => result,
            Err(payload) => result.and(Err(payload)),
        };
        if result.as_ref().map_or(true, self.fails) {
            run_later(self.core.cancel_left());
        }
        self.result = Some(result);
        true
    }
}

impl<F: Future> Future for Body<F> {
    type Output = Result<F::Output, Panic>;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        assert!(
            !this.core.has_frame() || this.core.is_here(),
            "a group was sent to another task: await it in the one where it began",
        );
        if this.is_over || !this.poll_body(cx) {
            return Poll::Pending;
        }
        // SAFETY: the frame is polled by this thread.
        if !unsafe { this.core.close() } {
            this.core.wanted_at(current_priority());
            // The last child wakes the frame.
            let waker = Some(cx.waker()).filter(|waker| !this.core.is_frame(frame::frame_of(waker)));
            if !this.core.is_over(waker) {
                return Poll::Pending;
            }
        }
        this.is_over = true;
        this.core.end();
        match this.result.take() {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

impl<F: Future> Drop for Body<F> {
    fn drop(&mut self) {
        if !self.is_over {
            // What the body has on its stack goes first, as in any other future.
            self.body = None;
            self.core.give_up();
        }
    }
}
