//! A future inside of which a task sees another context: the one primitive of shields, deadlines and task-local values.

use core::future::Future;
use core::marker::PhantomPinned;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};

use super::context::{Context, Scope};
use super::frame::Header;
use super::wait::wait_until;

/// A future that is polled with a context of its own. It lives in the frame that polls it, and borrows whatever it likes.
///
/// Outside of a task there is no context, and it is simply polled.
pub(super) struct Inside<F> {
    phase: Phase,
    future: ManuallyDrop<F>,
    /// Both are there while it is polled in a frame.
    context: MaybeUninit<Context>,
    scope: MaybeUninit<Scope>,
    /// That frame.
    frame: Option<NonNull<Header>>,
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
            (Phase::Polled, frame) => assert_eq!(
                frame, this.frame,
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
        let scope = self.scope.write(Scope::new(frame, context.scope));
        context.scope = Some(NonNull::from(scope));
        self.context.write(context);
        self.frame = Some(frame);
        self.phase = Phase::Polled;
    }
}

impl<F> Inside<F> {
    /// The future that was given, before it was polled.
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
            Some(frame) if Header::is_current(frame) => {
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
    /// there is anything.
    pub(super) fn end(&mut self) {
        /// Also when the future's destructor unwinds.
        struct Wait<'a>(Option<&'a Scope>);
        impl Drop for Wait<'_> {
            fn drop(&mut self) {
                if let Some(scope) = self.0 {
                    wait_until(|| scope.is_empty());
                }
            }
        }

        if self.phase == Phase::Over {
            return;
        }
        self.phase = Phase::Over;
        self.entered(|this| {
            // SAFETY: it is there once it was polled in a frame.
            let _wait = Wait(this.frame.map(|_| unsafe { this.scope.assume_init_ref() }));
            // SAFETY: it is dropped this once, in place.
            unsafe { ManuallyDrop::drop(&mut this.future) };
        });
    }
}

impl<F> Drop for Inside<F> {
    fn drop(&mut self) {
        self.end();
    }
}
