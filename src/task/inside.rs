//! A future inside of which a task sees another context: the one primitive of shields, deadlines and task-local values.

use core::future::Future;
use core::marker::PhantomPinned;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};

use super::context::{Context, Scope};
use super::frame::Header;
use super::unit::{Attached, AttachedVtable};
use super::wait::wait_until;
use crate::Transfer;

/// A future that is polled with a context of its own. It lives in the frame that polls it, and borrows whatever it likes.
///
/// Outside of a task there is no context, and it is simply polled.
pub(super) struct Inside<F> {
    phase: Phase,
    future: ManuallyDrop<F>,
    /// Both are there once it was polled in a frame.
    context: MaybeUninit<Context>,
    scope: MaybeUninit<Scope>,
    /// That frame. It may be gone, and another be in its place, where this is not attached any more.
    frame: Option<NonNull<Header>>,
    /// Attached to the frame while the context may be used: what that points at is there until the frame is done, or the scope
    /// around this one is left.
    attached: Attached,
    _pinned: PhantomPinned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Unpolled,
    /// It is polled outside of a task.
    Outside,
    Polled,
    /// The future is gone.
    Over,
}

/// How such a future ended.
#[derive(Debug)]
pub(super) enum Ended<T> {
    Value(T),
    /// Something that it awaited has stopped. It was dropped.
    Stopped,
}

// SAFETY: the context and the scope are used by the thread that polls, and by what is awaited inside, which is ordered
// with that.
unsafe impl<F: Send> Send for Inside<F> {}

impl<F: Future> Inside<F> {
    pub(super) fn new(future: F) -> Self {
        Inside {
            phase: Phase::Unpolled,
            future: ManuallyDrop::new(future),
            context: MaybeUninit::uninit(),
            scope: MaybeUninit::uninit(),
            frame: None,
            attached: Attached::new(&AttachedVtable { leave, running: None }),
            _pinned: PhantomPinned,
        }
    }

    /// Polls the future. `change` is called at the first poll in a task, with a copy of the context outside.
    ///
    /// What `change` puts there stays until this is [over](Inside::is_over), or dropped.
    pub(super) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Cx<'_>,
        change: impl FnOnce(NonNull<Header>, &mut Context),
    ) -> Poll<Ended<F::Output>> {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        match (this.phase, Header::current()) {
            (Phase::Over, _) => return Poll::Pending,
            (Phase::Unpolled, Some(frame)) => this.begin(frame, change),
            (Phase::Unpolled, None) => this.phase = Phase::Outside,
            (Phase::Outside, _) => {}
            (Phase::Polled, _) => assert!(
                this.is_here(),
                "a future that was polled in a task was sent elsewhere: await it where that began",
            ),
        }
        let polled = this.entered(|this| {
            // SAFETY: it is there, and pinned with this.
            unsafe { Pin::new_unchecked(&mut *this.future) }.poll(cx)
        });
        let ended = match polled {
            Poll::Ready(value) => Ended::Value(value),
            // SAFETY: the scope is there once it was polled in a frame.
            Poll::Pending if this.phase == Phase::Polled && unsafe { this.scope.assume_init_ref() }.is_stopped() => {
                Ended::Stopped
            }
            Poll::Pending => return Poll::Pending,
        };
        this.end();
        Poll::Ready(ended)
    }

    fn begin(&mut self, frame: NonNull<Header>, change: impl FnOnce(NonNull<Header>, &mut Context)) {
        // SAFETY: the frame is polled by this thread, so its context is there.
        let mut context = unsafe { *Header::context(frame).as_ref() };
        change(frame, &mut context);
        // SAFETY: this is what the frame's poll is running; it is pinned, and detached when it ends.
        unsafe { Attached::attach(NonNull::from(&self.attached), frame) };
        let scope = self.scope.write(Scope::new(frame, context.scope));
        context.scope = Some(NonNull::from(scope));
        self.context.write(context);
        self.frame = Some(frame);
        self.phase = Phase::Polled;
    }
}

impl<F> Inside<F> {
    /// Whether this thread polls the frame that it began in, with the scope that it began in.
    fn is_here(&self) -> bool {
        self.frame
            .is_some_and(|frame| Header::is_current(frame) && self.attached.is_attached_to(frame))
    }

    /// Whether the future is gone.
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Runs `body` in the context, if it is one of the frame that this thread polls.
    fn entered<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        /// Also when it unwinds.
        struct Restore {
            frame: NonNull<Header>,
            outer: NonNull<Context>,
        }
        impl Drop for Restore {
            fn drop(&mut self) {
                // SAFETY: the frame is still being polled.
                unsafe { Header::replace_context(self.frame, self.outer) };
            }
        }

        let _restore = match self.frame {
            Some(frame) if self.is_here() => {
                // SAFETY: it was made when it was first polled, and does not move. The frame is polled by this thread.
                let context = unsafe { NonNull::from(self.context.assume_init_ref()) };
                Some(Restore {
                    frame,
                    // SAFETY: as above; it is put back.
                    outer: unsafe { Header::replace_context(frame, context) },
                })
            }
            _ => None,
        };
        body(self)
    }

    /// Drops the future, if that was not done, and waits until nothing is left that began inside. Only of what was forgotten
    /// there, or sent away, is anything.
    pub(super) fn end(&mut self) {
        /// Also when the future's destructor unwinds.
        struct Leave<'a> {
            scope: Option<&'a Scope>,
            here: Option<NonNull<Header>>,
        }
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                let Some(scope) = self.scope else { return };
                if !scope.is_empty()
                    && let Some(frame) = self.here
                {
                    // SAFETY: the frame is polled by this thread.
                    unsafe { Header::unit(frame).as_ref().detach_all(frame, Some(scope)) };
                }
                // Elsewhere it is for the frame to end what it began, when its future is gone.
                wait_until(|| scope.is_empty());
            }
        }

        if self.phase == Phase::Over {
            return;
        }
        /// As above.
        struct Detach(NonNull<Attached>);
        impl Drop for Detach {
            fn drop(&mut self) {
                // SAFETY: it is a field of what ends.
                unsafe { self.0.as_ref() }.detach();
            }
        }

        self.phase = Phase::Over;
        let _detach = Detach(NonNull::from(&self.attached));
        self.entered(|this| {
            let _leave = Leave {
                // SAFETY: it is there once it was polled in a frame.
                scope: this.frame.map(|_| unsafe { this.scope.assume_init_ref() }),
                here: this.frame.filter(|_| this.is_here()),
            };
            // SAFETY: it is dropped this once, in place.
            unsafe { ManuallyDrop::drop(&mut this.future) };
        });
    }
}

/// Passes a stop inside on to what is around it, in the frame that this thread polls.
pub(super) fn stop_outside<T>() -> Poll<T> {
    if let Some(frame) = Header::current() {
        // SAFETY: this is what the frame's poll is running.
        unsafe { Header::stop_here(frame) };
    }
    Poll::Pending
}

/// # Safety
///
/// It is attached.
unsafe fn leave(attached: NonNull<Attached>) -> Transfer {
    // The context is not used any more: it is polled nowhere else, and what was awaited inside has told the scope around.
    // SAFETY: it is there until it has left.
    unsafe { attached.as_ref() }.left();
    Transfer::none()
}

impl<F> Drop for Inside<F> {
    fn drop(&mut self) {
        self.end();
    }
}
