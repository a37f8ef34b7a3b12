//! A future inside which a task sees another context: the common primitive of shields, deadlines and task-local values.
//!
//! Operations awaited inside use that context, and may be in flight after the future was dropped, moved out or forgotten. So
//! the context does not live in the future but in a block of its frame's memory, and its [`ContextScope`] counts the users.
//! Leaving a scope does not block: the last user frees the block.

use core::future::Future;
use core::marker::PhantomPinned;
use core::mem::{self, ManuallyDrop};
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};

use super::Context;
use crate::sender::unwind::OnDrop;
use crate::stop::StopToken;
use crate::task::frame::{Block, BlockContent, ContextScope, Header, NotedDeadline, Polling, Site, Stopping};
use crate::{Panic, Transfer};

/// A future that is polled with a context of its own, and may borrow. Outside of a task it is simply polled.
pub(in crate::task) struct ScopedFuture<F, C: Change> {
    phase: ScopedPhase<C>,
    future: ManuallyDrop<F>,
    site: Site,
    _pinned: PhantomPinned,
}

enum ScopedPhase<C: Change> {
    Unpolled,
    /// Polled outside of a task.
    Outside,
    /// Polled in a frame.
    Inside(ScopeUse<C>),
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
    unsafe fn leave(_: NonNull<Self>) -> Transfer {
        Transfer::none()
    }

    /// Handles the drop of the frame's future while the scope has users, because it or something inside was forgotten or sent
    /// away.
    ///
    /// # Safety
    ///
    /// `this` has begun, and the scope has users.
    unsafe fn abandon(_: NonNull<Self>) -> Transfer {
        Transfer::none()
    }

    /// Handles the exit of the last user. Returns `false` if something is in flight, which calls [`end`] when it has ended.
    ///
    /// # Safety
    ///
    /// `this` has begun. Called once. If something is in flight, `this` may be freed when this returns.
    unsafe fn close(_: NonNull<Self>) -> bool {
        true
    }

    /// Returns whether this change has stopped the inside.
    fn has_stopped(&self) -> bool {
        false
    }

    /// Whether a stop from outside does not drop a future of another crate inside, so that the future around the scope waits for
    /// the end of the inside.
    const HOLDS: bool = false;
}

/// `scope` is first, so both have the same address.
#[repr(C)]
struct ScopeBlock<C> {
    scope: ContextScope,
    context: Context,
    change: C,
}

// SAFETY: only the polling thread accesses the block, except for atomics. Its contents are `Send`.
unsafe impl<F: Send, C: Change> Send for ScopedFuture<F, C> {}

impl<F: Future, C: Change> ScopedFuture<F, C> {
    #[cfg_attr(feature = "inspect", track_caller)]
    pub(in crate::task) fn new(future: F) -> Self {
        ScopedFuture::at(Site::here(), future)
    }

    /// Creates the future for an await at `site`.
    pub(in crate::task) fn at(site: Site, future: F) -> Self {
        ScopedFuture {
            phase: ScopedPhase::Unpolled,
            future: ManuallyDrop::new(future),
            site,
            _pinned: PhantomPinned,
        }
    }

    /// Polls the future. `change` is called at the first poll in a task.
    ///
    /// Ready with `None` if an await inside has stopped because of [the scope's own change](Change::has_stopped). Any other stop is
    /// passed on to the enclosing scope.
    pub(in crate::task) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Cx<'_>,
        change: impl FnOnce() -> C,
    ) -> Poll<Option<F::Output>> {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        match &this.phase {
            ScopedPhase::Over => return Poll::Pending,
            ScopedPhase::Unpolled => {
                this.phase = Polling::with(|polling| match polling {
                    Some(polling) => ScopedPhase::Inside(ScopeUse::begin(polling, change())),
                    None => ScopedPhase::Outside,
                });
            }
            ScopedPhase::Outside => {}
            ScopedPhase::Inside(scope) => assert!(
                scope.is_here(),
                "a future that was polled in a task was sent to another: await it in the task where it began",
            ),
        }
        // The notes of awaits inside this scope decide about the scope; then they count for the future around it as well. A handler
        // around the scope is known to the scope.
        let (waits_outside, handled) = Polling::with(|polling| match polling {
            Some(polling) => (polling.take_waits(), polling.set_handled(false)),
            None => (false, false),
        });
        let polled = Panic::catch(|| {
            let _restore = this.phase.enter();
            // SAFETY: the future is not dropped yet, and structurally pinned.
            unsafe { Pin::new_unchecked(&mut *this.future) }.poll(cx)
        });
        Polling::with(|polling| {
            let Some(polling) = polling else { return };
            if let (ScopedPhase::Inside(inside), Ok(Poll::Pending)) = (&this.phase, &polled) {
                inside.suspend(polling);
                polling
                    .activity_inside(inside.deadline_around())
                    .awaits_around(this.site);
            }
            polling.set_handled(handled);
            if waits_outside {
                polling.waits();
            }
        });
        let stopped = match &this.phase {
            ScopedPhase::Inside(inside) if inside.scope().stopped.get() => Some(inside.has_stopped()),
            _ => None,
        };
        let value = match polled {
            Ok(Poll::Ready(value)) => Some(value),
            Ok(Poll::Pending) if stopped.is_none() => return Poll::Pending,
            Ok(Poll::Pending) => None,
            // A stop inside has unwound the future.
            Err(payload) if stopped.is_some() && Stopping::is(&payload) => None,
            Err(payload) => payload.resume(),
        };
        this.end();
        if value.is_none() && stopped == Some(false) {
            Polling::with(|polling| _ = polling.map(|polling| Stopping::stop(polling, cx.waker())));
            return Poll::Pending;
        }
        Poll::Ready(value)
    }
}

impl<F, C: Change> ScopedFuture<F, C> {
    /// Returns whether the scope has a context in a task, or gets one if it is polled here.
    pub(in crate::task) fn is_in_task(&self) -> bool {
        match self.phase {
            ScopedPhase::Unpolled => Header::current().is_some(),
            ScopedPhase::Inside(_) => true,
            ScopedPhase::Outside | ScopedPhase::Over => false,
        }
    }

    /// Returns whether the future was dropped.
    pub(in crate::task) fn is_over(&self) -> bool {
        matches!(self.phase, ScopedPhase::Over)
    }

    /// Drops the future, unless it was, and leaves the scope.
    pub(in crate::task) fn end(&mut self) {
        if self.is_over() {
            return;
        }
        // Dropped after the context is restored, also when the future's destructor unwinds.
        let phase = mem::replace(&mut self.phase, ScopedPhase::Over);
        let _restore = phase.enter();
        // SAFETY: the phase was not `Over` and is now, so the future is dropped once, in place.
        unsafe { ManuallyDrop::drop(&mut self.future) };
    }
}

impl<F, C: Change> Drop for ScopedFuture<F, C> {
    fn drop(&mut self) {
        let pending = match &self.phase {
            ScopedPhase::Inside(inside) => Some((inside.scope().frame, inside.deadline_around())),
            _ => None,
        };
        if C::HOLDS && !self.is_over() {
            // The poll may have noted that it waits for this. The next poll finds out what else it waits for.
            Polling::with(|polling| _ = polling.map(Polling::poll_again));
        }
        self.end();
        // The poll may have noted an await inside, and may await something else next. The scopes inside are left before this one.
        if let Some((frame, inside)) = pending
            && !inside.is_never()
        {
            Polling::with_frame(frame, |polling| {
                _ = polling.map(|polling| polling.activity().leaves(inside));
            });
        }
    }
}

impl<C: Change> ScopedPhase<C> {
    /// Enters the context of the scope until the result is dropped, if this thread polls its frame.
    fn enter(&self) -> Option<OnDrop<impl FnMut() + use<C>>> {
        match self {
            ScopedPhase::Inside(inside) if inside.is_here() => {
                let frame = inside.scope().frame;
                // SAFETY: the frame is being polled, and the result is dropped before the poll returns. The future is a user of the
                // scope meanwhile, so the context is valid.
                unsafe {
                    let context = NonNull::new_unchecked(&raw mut (*inside.0.as_ptr()).context);
                    let outer = Header::replace_context(frame, context);
                    Some(OnDrop(move || _ = Header::replace_context(frame, outer)))
                }
            }
            _ => None,
        }
    }
}

/// The future's use of its scope, with a reference to the frame.
struct ScopeUse<C: Change>(NonNull<ScopeBlock<C>>);

impl<C: Change> ScopeUse<C> {
    /// Creates a scope inside the innermost one of the frame.
    fn begin(polling: Polling<'_>, change: C) -> Self {
        let mut context = *polling.context();
        let block = polling.allocate(ScopeBlock {
            // SAFETY: the scope stays in the block. The outer scope is entered below.
            scope: unsafe { ContextScope::new(polling.frame(), context.scope, ScopeBlock::<C>::close) },
            context,
            change,
        });
        context.placement.scope = Some(block.cast());
        polling.hold();
        // SAFETY: the block is alive until the last user has left, and not shared yet.
        unsafe {
            let handled = match polling.is_handled() {
                true => Some(context.token),
                false => polling.context().handled(),
            };
            block.as_ref().scope.handled.set(handled);
            block.as_ref().scope.enter_outer();
            C::begin(ScopeBlock::change(block), block.cast(), &mut context);
            (*block.as_ptr()).context = context;
        }
        ScopeUse(block)
    }

    fn scope(&self) -> &ContextScope {
        // SAFETY: this is a user of the scope, which is alive until its last user leaves.
        unsafe { &(*self.0.as_ptr()).scope }
    }

    /// Returns whether the calling thread polls the frame of the scope.
    fn is_here(&self) -> bool {
        Header::is_current(self.scope().frame)
    }

    /// Handles a pending future inside. Stops the scope, if it was asked to stop, and waits for futures of other crates alone:
    /// these do not hear a stop.
    fn suspend(&self, polling: Polling<'_>) {
        let scope = self.scope();
        // SAFETY: as for `scope`.
        let context = unsafe { &(*self.0.as_ptr()).context };
        let (waits, waits_outside) = (polling.take_waits(), scope.waits_outside.replace(false));
        let is_handled = || context.handled().is_some_and(|token| token.stop_requested());
        let is_stopped = !waits && context.token.stop_requested() && scope.waits_elsewhere() && !is_handled();
        if is_stopped && !polling.was_too_early() {
            scope.stopped.set(true);
        }
        if waits || waits_outside || C::HOLDS {
            polling.waits();
        }
    }

    /// Returns the earliest deadline of this scope and those around it.
    fn deadline_around(&self) -> NotedDeadline {
        // SAFETY: as for `scope`.
        unsafe { (*self.0.as_ptr()).context.placement.deadline_around }
    }

    /// Returns whether the change has stopped the inside.
    fn has_stopped(&self) -> bool {
        // SAFETY: as for `scope`.
        unsafe { self.0.as_ref() }.change.has_stopped()
    }
}

impl<C: Change> Drop for ScopeUse<C> {
    fn drop(&mut self) {
        let frame = self.scope().frame;
        // SAFETY: this is a user of the scope, and holds a reference to the frame. Both end here.
        unsafe {
            C::leave(ScopeBlock::change(self.0)).run();
            self.scope().exit();
            Header::unhold(frame);
        }
    }
}

impl<C: Change> ScopeBlock<C> {
    /// # Safety
    ///
    /// The block is alive.
    unsafe fn change(this: NonNull<Self>) -> NonNull<C> {
        // SAFETY: the caller's promise.
        unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).change) }
    }

    /// # Safety
    ///
    /// `scope` is the first field of a `ScopeBlock<C>`, and has no user.
    unsafe fn close(scope: NonNull<ContextScope>) -> Option<NonNull<ContextScope>> {
        let this = scope.cast::<Self>();
        // SAFETY: the caller's promise: the block is exclusive, and the frame is alive.
        unsafe {
            match C::close(Self::change(this)) {
                true => Self::destroy(this),
                false => None,
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
            let outer = this.as_ref().scope.outer;
            Self::change(this).drop_in_place();
            Block::end(this);
            outer
        }
    }
}

/// Ends a scope whose change was [in flight](Change::close) and has ended.
///
/// # Safety
///
/// `scope` has a change `C`, and was closed. Its frame is not done before this returns.
pub(in crate::task) unsafe fn end<C: Change>(scope: NonNull<ContextScope>) {
    // SAFETY: the caller's promise. The scope was a user of the outer one.
    unsafe {
        let frame = scope.as_ref().frame;
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
        // SAFETY: the memory is valid. `try_enter` fails if the last user is leaving on another thread.
        unsafe {
            if !this.as_ref().scope.try_enter() {
                return Transfer::none();
            }
            let resumed = C::abandon(Self::change(this));
            this.as_ref().scope.exit();
            resumed
        }
    }

    unsafe fn holds(_: NonNull<Self>) -> bool {
        C::HOLDS
    }
}
