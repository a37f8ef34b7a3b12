//! A future inside which a task sees another context: the common primitive of shields, deadlines and task-local values.
//!
//! Operations awaited inside use that context, and may be in flight after the future was dropped, moved out or forgotten. So
//! the context does not live in the future but in a block of its frame's memory, and its [`ContextScope`] counts the users.
//! Leaving a scope does not block: the last user frees the block.

use core::future::Future;
use core::marker::PhantomPinned;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};

use super::Context;
use crate::sender::current;
use crate::task::frame::{BlockContent, ContextScope, Header, Polling, Stopping};
use crate::{Panic, Transfer};

/// A future that is polled with a context of its own, and may borrow. Outside of a task it is simply polled.
pub(in crate::task) struct ScopedFuture<F, C: Change> {
    phase: ScopedPhase<C>,
    future: ManuallyDrop<F>,
    _pinned: PhantomPinned,
}

enum ScopedPhase<C> {
    Unpolled,
    /// Polled outside of a task.
    Outside,
    /// Polled in a frame, whose memory has the block. The future holds a reference to the frame, and is a user of the scope.
    Inside(NonNull<ScopeBlock<C>>),
    /// The future was dropped.
    Over,
}

/// The change that a scope makes. It lives in the frame's memory until the scope has no user.
pub(in crate::task) trait Change: Send {
    /// Changes the context of the scope, which is a copy of the one outside.
    ///
    /// # Safety
    ///
    /// The caller is inside the frame's poll. `this` is pinned, and alive as long as the scope has users.
    unsafe fn begin(this: NonNull<Self>, scope: NonNull<ContextScope>, context: &mut Context);

    /// Handles the end or the drop of the future. Called once, if `begin` was.
    ///
    /// # Safety
    ///
    /// `this` has begun, and the caller is a user of the scope.
    unsafe fn leave(this: NonNull<Self>) -> Transfer {
        let _ = this;
        Transfer::none()
    }

    /// Handles the drop of the frame's future while the scope has users, because it or something inside was forgotten or sent
    /// away.
    ///
    /// # Safety
    ///
    /// `this` has begun, and the scope has users.
    unsafe fn abandon(this: NonNull<Self>) -> Transfer {
        let _ = this;
        Transfer::none()
    }

    /// Handles the exit of the last user.
    ///
    /// # Safety
    ///
    /// `this` has begun. Called once. If something is in flight, `this` may be freed when this returns.
    unsafe fn close(this: NonNull<Self>) -> Leftover {
        let _ = this;
        Leftover::Over
    }

    /// Returns whether this change has stopped the inside.
    fn has_stopped(&self) -> bool {
        false
    }
}

/// The remains of a change when its scope has no user.
#[derive(Debug)]
pub(in crate::task) enum Leftover {
    /// Nothing.
    Over,
    /// Nothing, except the await that the frame counted for it, which is to be ended.
    Ended,
    /// Something is in flight, and calls [`end`] when it has ended.
    InFlight,
}

/// `scope` is first, so both have the same address.
#[repr(C)]
struct ScopeBlock<C> {
    scope: ContextScope,
    context: Context,
    change: C,
}

/// The end of a scoped future.
#[derive(Debug)]
pub(in crate::task) enum Ended<T> {
    Value(T),
    /// An await inside has stopped, and the future was dropped. The flag says whether [the scope's own
    /// change](Change::has_stopped) has stopped it.
    Stopped(bool),
}

// SAFETY: only the polling thread accesses the block, except for atomics. Its contents are `Send`.
unsafe impl<F: Send, C: Change> Send for ScopedFuture<F, C> {}

impl<F: Future, C: Change> ScopedFuture<F, C> {
    pub(in crate::task) fn new(future: F) -> Self {
        ScopedFuture {
            phase: ScopedPhase::Unpolled,
            future: ManuallyDrop::new(future),
            _pinned: PhantomPinned,
        }
    }

    /// Polls the future. `change` is called at the first poll in a task.
    pub(in crate::task) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Cx<'_>,
        change: impl FnOnce() -> C,
    ) -> Poll<Ended<F::Output>> {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        match &this.phase {
            ScopedPhase::Over => return Poll::Pending,
            ScopedPhase::Unpolled => {
                this.phase = Polling::with(|polling| match polling {
                    Some(polling) => ScopedPhase::Inside(ScopeBlock::begin(polling, change())),
                    None => ScopedPhase::Outside,
                });
            }
            ScopedPhase::Outside => {}
            ScopedPhase::Inside(block) => assert!(
                // SAFETY: the future is a user of the scope.
                unsafe { ScopeBlock::is_here(*block) },
                "a future that was polled in a task was sent to another: await it in the task where it began",
            ),
        }
        let polled = Panic::catch(|| {
            this.entered(|this| {
                // SAFETY: the future is not dropped yet, and structurally pinned.
                unsafe { Pin::new_unchecked(&mut *this.future) }.poll(cx)
            })
        });
        let polled = match polled {
            Ok(polled) => polled,
            // A stop inside has unwound the future; handled below.
            Err(payload) if Stopping::is(&payload) && this.is_stopped() => Poll::Pending,
            Err(payload) => payload.resume(),
        };
        let ended = match (polled, &this.phase) {
            (Poll::Ready(value), _) => Ended::Value(value),
            // SAFETY: the future is a user of the scope.
            (Poll::Pending, ScopedPhase::Inside(block)) => unsafe {
                if !block.as_ref().scope.is_stopped() {
                    return Poll::Pending;
                }
                Ended::Stopped(block.as_ref().change.has_stopped())
            },
            (Poll::Pending, _) => return Poll::Pending,
        };
        this.end();
        Poll::Ready(ended)
    }
}

impl<F, C: Change> ScopedFuture<F, C> {
    /// Returns whether the future was dropped.
    pub(in crate::task) fn is_over(&self) -> bool {
        matches!(self.phase, ScopedPhase::Over)
    }

    /// Returns whether an await inside has stopped.
    fn is_stopped(&self) -> bool {
        // SAFETY: the future is a user of the scope.
        matches!(self.phase, ScopedPhase::Inside(block) if unsafe { block.as_ref() }.scope.is_stopped())
    }

    /// Runs `body` in the scope's context, if this thread polls its frame.
    fn entered<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        /// Restores the context, also when `body` unwinds.
        struct Restore(NonNull<Header>, NonNull<Context>);
        impl Drop for Restore {
            fn drop(&mut self) {
                // SAFETY: the frame is still being polled.
                unsafe { Header::replace_context(self.0, self.1) };
            }
        }

        // SAFETY: the future is a user of the scope, inside the frame's poll. The context is restored.
        let _restore = unsafe {
            match self.phase {
                ScopedPhase::Inside(block) if ScopeBlock::is_here(block) => {
                    let frame = block.as_ref().scope.frame();
                    Some(Restore(
                        frame,
                        Header::replace_context(frame, ScopeBlock::context(block)),
                    ))
                }
                _ => None,
            }
        };
        body(self)
    }

    /// Drops the future, unless it was, and leaves the scope.
    pub(in crate::task) fn end(&mut self) {
        /// Leaves the scope, also when the future's destructor unwinds.
        struct LeaveScope<C: Change>(Option<NonNull<ScopeBlock<C>>>);
        impl<C: Change> Drop for LeaveScope<C> {
            fn drop(&mut self) {
                if let Some(block) = self.0 {
                    // SAFETY: the future was a user of the scope, and holds a reference to the frame.
                    unsafe { ScopeBlock::leave(block) };
                }
            }
        }

        if self.is_over() {
            return;
        }
        let _leave = LeaveScope(match self.phase {
            ScopedPhase::Inside(block) => Some(block),
            _ => None,
        });
        self.entered(|this| {
            this.phase = ScopedPhase::Over;
            // SAFETY: the phase was not `Over` and is now, so the future is dropped once, in place.
            unsafe { ManuallyDrop::drop(&mut this.future) };
        });
    }
}

impl<F, C: Change> Drop for ScopedFuture<F, C> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<C: Change> ScopeBlock<C> {
    /// Creates a scope inside the innermost one of the frame.
    fn begin(polling: Polling<'_>, change: C) -> NonNull<Self> {
        let mut context = *polling.context();
        let block = polling.allocate(ScopeBlock {
            // SAFETY: the scope stays in the block. The outer scope is entered below.
            scope: unsafe { ContextScope::new(polling.frame(), context.scope(), Self::close) },
            context,
            change,
        });
        let place = block.as_ptr();
        context.placement.scope = Some(block.cast());
        polling.hold();
        // SAFETY: the block is alive until the last user has left, and not shared yet.
        unsafe {
            (*place).scope.enter_outer();
            C::begin(
                NonNull::new_unchecked(&raw mut (*place).change),
                block.cast(),
                &mut context,
            );
            (*place).context = context;
        }
        block
    }

    /// Returns whether the calling thread polls the frame of the scope.
    ///
    /// # Safety
    ///
    /// The caller is a user of the scope.
    unsafe fn is_here(this: NonNull<Self>) -> bool {
        // SAFETY: the caller's promise.
        Header::is_current(unsafe { this.as_ref() }.scope.frame())
    }

    /// # Safety
    ///
    /// The caller is a user of the scope.
    unsafe fn context(this: NonNull<Self>) -> NonNull<Context> {
        // SAFETY: the caller's promise.
        unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).context) }
    }

    /// Ends the future's use of its scope, and releases its reference to the frame.
    ///
    /// # Safety
    ///
    /// The caller is the future that the scope was created for.
    unsafe fn leave(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        unsafe {
            let frame = this.as_ref().scope.frame();
            C::leave(NonNull::new_unchecked(&raw mut (*this.as_ptr()).change)).run();
            this.as_ref().scope.exit();
            Header::unhold(frame);
        }
    }

    /// # Safety
    ///
    /// `scope` is the first field of a `ScopeBlock<C>`, and has no user.
    unsafe fn close(scope: NonNull<ContextScope>) -> Option<NonNull<ContextScope>> {
        let this = scope.cast::<Self>();
        // SAFETY: the caller's promise: the block is exclusive, and the frame is alive.
        unsafe {
            let frame = this.as_ref().scope.frame();
            match C::close(NonNull::new_unchecked(&raw mut (*this.as_ptr()).change)) {
                Leftover::Over => Self::destroy(this),
                Leftover::Ended => {
                    let outer = Self::destroy(this);
                    current::run_later(end_await(frame)).run();
                    outer
                }
                Leftover::InFlight => None,
            }
        }
    }

    /// Frees the block, and returns the outer scope.
    ///
    /// # Safety
    ///
    /// The scope has no user, and nothing of the change is in flight. The frame is alive: its future holds a reference, or it
    /// is not done.
    unsafe fn destroy(this: NonNull<Self>) -> Option<NonNull<ContextScope>> {
        // SAFETY: the caller's promise.
        unsafe {
            let (frame, outer) = (this.as_ref().scope.frame(), this.as_ref().scope.outer());
            (&raw mut (*this.as_ptr()).change).drop_in_place();
            Header::free_block(frame, this.cast());
            outer
        }
    }
}

/// Ends a scope whose change was [in flight](Leftover::InFlight) and has ended.
///
/// # Safety
///
/// `scope` has a change `C`, and was closed. Its frame is not done before this returns.
pub(in crate::task) unsafe fn end<C: Change>(scope: NonNull<ContextScope>) {
    // SAFETY: the caller's promise. The scope was a user of the outer one.
    unsafe {
        let frame = scope.as_ref().frame();
        let outer = ScopeBlock::<C>::destroy(scope.cast());
        ContextScope::exit_from(frame, outer);
    }
}

/// Ends an await that a change has counted. Wakes the frame, unless its poll is on this stack and checks the count afterwards.
///
/// # Safety
///
/// The frame counts that await.
pub(in crate::task) unsafe fn end_await(frame: NonNull<Header>) -> Transfer {
    // SAFETY: the caller's promise. If the poll is on this stack, this thread is the polling one.
    unsafe {
        if Header::is_beneath(frame) {
            Polling::new(frame).uncount_wait();
            Transfer::none()
        } else {
            Header::end_wait(frame, |_| false)
        }
    }
}

// SAFETY: the last user of the scope frees the block; none is left to the frame.
unsafe impl<C: Change> BlockContent for ScopeBlock<C> {
    unsafe fn abandon(this: NonNull<Self>, _: Polling<'_>) -> Transfer {
        // SAFETY: the caller's promise: the frame's memory is valid. `try_enter` fails if the last user is leaving on another
        // thread.
        unsafe {
            if !this.as_ref().scope.try_enter() {
                return Transfer::none();
            }
            let resumed = C::abandon(NonNull::new_unchecked(&raw mut (*this.as_ptr()).change));
            this.as_ref().scope.exit();
            resumed
        }
    }
}

/// Passes a stop inside on to the enclosing scope, in the frame that this thread polls.
pub(in crate::task) fn stop_outside<T>(cx: &Cx<'_>) -> Poll<T> {
    Polling::with(|polling| {
        if let Some(polling) = polling {
            Stopping::stop(polling, cx.waker());
        }
    });
    Poll::Pending
}
