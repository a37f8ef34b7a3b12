//! A future inside of which a task sees another context: the one primitive of shields, deadlines and task-local values.
//!
//! What is awaited inside uses that context, and may be in flight when the future is gone: it was dropped, moved out or
//! forgotten. So the context does not live in the future but in a block of its frame's memory, and its [`ContextScope`] counts the
//! users. Leaving a scope waits for nothing: the last user frees the block.

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
    /// It is polled outside of a task.
    Outside,
    /// It was polled in a frame, in whose memory the block is. The future holds a reference of that frame, and is a user of the
    /// scope.
    Inside(NonNull<ScopeBlock<C>>),
    /// The future is gone.
    Over,
}

/// What a scope changes. It lives in the frame's memory until nothing uses the scope any more.
pub(in crate::task) trait Change: Send {
    /// Changes the context of the scope, which is a copy of the one outside.
    ///
    /// # Safety
    ///
    /// This is what the frame's poll is running. `this` stays where it is, and alive as long as the scope has users.
    unsafe fn begin(this: NonNull<Self>, scope: NonNull<ContextScope>, context: &mut Context);

    /// The future has ended, or was dropped. Called once, if `begin` was.
    ///
    /// # Safety
    ///
    /// `this` has begun, and the caller is a user of the scope.
    unsafe fn leave(this: NonNull<Self>) -> Transfer {
        let _ = this;
        Transfer::none()
    }

    /// The future of the frame is gone, and the scope has users: it was forgotten or sent away, or something in it was.
    ///
    /// # Safety
    ///
    /// `this` has begun, and the scope has users.
    unsafe fn abandon(this: NonNull<Self>) -> Transfer {
        let _ = this;
        Transfer::none()
    }

    /// The scope has no user any more.
    ///
    /// # Safety
    ///
    /// `this` has begun. Called once. It may be gone when this returns, where something is in flight.
    unsafe fn close(this: NonNull<Self>) -> Leftover {
        let _ = this;
        Leftover::Over
    }

    /// Whether it was this that stopped what is inside.
    fn has_stopped(&self) -> bool {
        false
    }
}

/// What is left of a change when its scope has no user any more.
#[derive(Debug)]
pub(in crate::task) enum Leftover {
    /// Nothing.
    Over,
    /// Nothing, and the await that the frame counted for it is to be ended.
    Ended,
    /// Something is in flight, and calls [`end`] when it is over.
    InFlight,
}

/// The scope comes first, so that its address is that of the whole.
#[repr(C)]
struct ScopeBlock<C> {
    scope: ContextScope,
    context: Context,
    change: C,
}

/// How such a future ended.
#[derive(Debug)]
pub(in crate::task) enum Ended<T> {
    Value(T),
    /// Something that it awaited has stopped. It was dropped. The flag says that [the scope's own change](Change::has_stopped)
    /// has stopped it.
    Stopped(bool),
}

// SAFETY: the block is touched by the thread that polls the frame, and by atomics. What it holds is `Send`.
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
                // SAFETY: it is not over, and pinned with this.
                unsafe { Pin::new_unchecked(&mut *this.future) }.poll(cx)
            })
        });
        let polled = match polled {
            Ok(polled) => polled,
            // It was unwound by a stop inside, as is seen below.
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
    /// Whether the future is gone.
    pub(in crate::task) fn is_over(&self) -> bool {
        matches!(self.phase, ScopedPhase::Over)
    }

    /// Whether something inside has stopped.
    fn is_stopped(&self) -> bool {
        // SAFETY: the future is a user of the scope.
        matches!(self.phase, ScopedPhase::Inside(block) if unsafe { block.as_ref() }.scope.is_stopped())
    }

    /// Runs `body` in the context, if it is one of the frame that this thread polls.
    fn entered<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        /// Also when it unwinds.
        struct Restore(NonNull<Header>, NonNull<Context>);
        impl Drop for Restore {
            fn drop(&mut self) {
                // SAFETY: the frame is still being polled.
                unsafe { Header::replace_context(self.0, self.1) };
            }
        }

        // SAFETY: the future is a user of the scope, and what the frame's poll is running. The context is put back.
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

    /// Drops the future, if that was not done, and leaves the scope.
    pub(in crate::task) fn end(&mut self) {
        /// Also when the future's destructor unwinds.
        struct LeaveScope<C: Change>(Option<NonNull<ScopeBlock<C>>>);
        impl<C: Change> Drop for LeaveScope<C> {
            fn drop(&mut self) {
                if let Some(block) = self.0 {
                    // SAFETY: the future was a user of the scope, and holds a reference of the frame.
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
            // SAFETY: it was not over, and is from now on: it is dropped this once, in place.
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
    /// Makes a scope in the innermost one of the frame.
    fn begin(polling: Polling<'_>, change: C) -> NonNull<Self> {
        let mut context = *polling.context();
        let block = polling.allocate(ScopeBlock {
            // SAFETY: it stays in the block. The scope around it is entered below.
            scope: unsafe { ContextScope::new(polling.frame(), context.scope(), Self::close) },
            context,
            change,
        });
        let place = block.as_ptr();
        context.placement.scope = Some(block.cast());
        polling.hold();
        // SAFETY: the block stays until the last user has left.
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

    /// Whether the calling thread polls the frame that the scope is in.
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

    /// Ends the use of the future that the scope was made for, and its reference of the frame.
    ///
    /// # Safety
    ///
    /// The caller is that future.
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
    /// The scope is that of such a block, and has no user any more.
    unsafe fn close(scope: NonNull<ContextScope>) -> Option<NonNull<ContextScope>> {
        let this = scope.cast::<Self>();
        // SAFETY: the caller's promise. The caller keeps the frame alive.
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

    /// Frees the block, and returns the scope around it.
    ///
    /// # Safety
    ///
    /// The scope has no user any more, and nothing of the change is in flight. The frame is alive: its future holds a reference,
    /// or it is not done.
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

/// Ends a scope whose change was [in flight](Leftover::InFlight) and is over.
///
/// # Safety
///
/// The scope is one with such a change, and was closed. Its frame is not done before this returns.
pub(in crate::task) unsafe fn end<C: Change>(scope: NonNull<ContextScope>) {
    // SAFETY: the caller's promise. The scope was a user of the one around it.
    unsafe {
        let frame = scope.as_ref().frame();
        let outer = ScopeBlock::<C>::destroy(scope.cast());
        ContextScope::exit_from(frame, outer);
    }
}

/// Ends an await that a change has counted. The frame is woken, unless its poll is beneath: what is counted is looked at when
/// that is over.
///
/// # Safety
///
/// The frame counts that await.
pub(in crate::task) unsafe fn end_await(frame: NonNull<Header>) -> Transfer {
    // SAFETY: the caller's promise. The thread whose poll is beneath is the one that polls the frame.
    unsafe {
        if Header::is_beneath(frame) {
            Polling::new(frame).uncount_wait();
            Transfer::none()
        } else {
            Header::end_wait(frame, |_| false)
        }
    }
}

// SAFETY: the last user of the scope ends the block; none is left to the frame.
unsafe impl<C: Change> BlockContent for ScopeBlock<C> {
    unsafe fn abandon(this: NonNull<Self>, _: Polling<'_>) -> Transfer {
        // SAFETY: the caller's promise. The last user may be leaving on another thread; the memory is the frame's.
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

/// Passes a stop inside on to what is around it, in the frame that this thread polls.
pub(in crate::task) fn stop_outside<T>(cx: &Cx<'_>) -> Poll<T> {
    Polling::with(|polling| {
        if let Some(polling) = polling {
            Stopping::stop(polling, cx.waker());
        }
    });
    Poll::Pending
}
