//! The context of a strand: what its frames inherit, and where they run.

use core::any::{Any, TypeId};
use core::ops::Deref;
use core::ptr::NonNull;
use std::time::Instant;

use super::{Binding, Unit};
use crate::Env;
use crate::sender::env::{Beneath, Look};
use crate::sender::stage::container_of;
use crate::stop::ErasedStopToken;
use crate::task::frame::{FrameSuccessor, Header, Home, NotedDeadline, Placement, Polling, Stops};

/// The state that a task inherits from its receiver, or from the task that spawned it.
///
/// It lives in the operation, in the frame of the child, or in a scope's block, and frames point at it. It does not change
/// while a frame uses it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::task) struct Context {
    /// First: frames point at it, and so at the whole.
    pub(in crate::task) placement: Placement,
    pub(in crate::task) token: ErasedStopToken,
    /// A query of the receiver's environment by type.
    pub(in crate::task) outside: (NonNull<()>, Look),
    /// The frame that awaits the operation, if it is known.
    pub(in crate::task) around: Option<Awaiter>,
    pub(in crate::task) deadline: Option<Instant>,
    /// The innermost task-local binding. The creator of the context owns a reference to it.
    pub(in crate::task) locals: Option<NonNull<Binding>>,
    /// Whether the task stays on its thread. Children that it spawns do not, and run on the global pool.
    pub(in crate::task) is_local: bool,
}

/// A frame that awaits the operation of an environment and is not done before that operation is; and the context of the await.
#[derive(Clone, Copy, Debug)]
pub(in crate::task) struct Awaiter {
    pub(in crate::task) frame: NonNull<Header>,
    pub(in crate::task) context: NonNull<Context>,
}

// SAFETY: these are addresses. The data behind them does not change once the frame was started.
unsafe impl Send for Awaiter {}
// SAFETY: as for `Send`.
unsafe impl Sync for Awaiter {}

impl Awaiter {
    /// Returns the frame that awaits the operation of an environment.
    ///
    /// # Safety
    ///
    /// The result is used only until the completion of the receiver that provided the environment.
    #[inline]
    pub(in crate::task) unsafe fn of<N: Env>(env: &N) -> Option<Self> {
        // SAFETY: the caller's promise. Behind a door are a frame and a context.
        let awaiting = unsafe { env.door().awaiting() }?;
        Some(Awaiter {
            frame: awaiting.frame.cast::<Header>(),
            context: awaiting.context.cast::<Context>(),
        })
    }
}

// SAFETY: it does not change while it is shared. What it points at is used according to the contracts of those who made it.
unsafe impl Send for Context {}
// SAFETY: as for `Send`.
unsafe impl Sync for Context {}

impl Deref for Context {
    type Target = Placement;

    #[inline]
    fn deref(&self) -> &Placement {
        &self.placement
    }
}

impl Context {
    /// Creates a context with this home, token and outer environment, and nothing else.
    pub(in crate::task) fn new(home: Home, token: ErasedStopToken, outside: (NonNull<()>, Look)) -> Self {
        Context {
            placement: Placement {
                home,
                priority: None,
                scope: None,
                deadline_around: NotedDeadline::NEVER,
            },
            token,
            outside,
            around: None,
            deadline: None,
            locals: None,
            is_local: false,
        }
    }

    /// Creates a context that never stops and has no values.
    pub(in crate::task) fn of_home(home: Home) -> Self {
        /// Finds nothing.
        unsafe fn look(_: NonNull<()>, _: TypeId, _: &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'static>> {
            None
        }

        Context::new(home, ErasedStopToken::NEVER, (NonNull::dangling(), look))
    }

    /// Returns the token of a context.
    ///
    /// # Safety
    ///
    /// The context is alive.
    #[inline]
    pub(in crate::task) unsafe fn token_in(this: NonNull<Context>) -> NonNull<ErasedStopToken> {
        // SAFETY: the caller's promise. The address of a field is not null.
        unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).token) }
    }

    /// Returns the context of a token.
    ///
    /// # Safety
    ///
    /// The token is from [`token_in`](Context::token_in).
    #[inline]
    pub(in crate::task) unsafe fn of_token(token: NonNull<ErasedStopToken>) -> NonNull<Context> {
        // SAFETY: the caller's promise.
        unsafe { container_of!(token, Context, token) }
    }

    /// Creates the context of a child that is spawned here.
    pub(in crate::task) fn of_child(&self) -> Self {
        let mut context = *self;
        // The child may outlive the scope: the frame waits for the child.
        context.placement.scope = None;
        // Inherited by the child as its own deadline.
        context.placement.deadline_around = NotedDeadline::NEVER;
        if context.is_local {
            context.placement.home = Home::global_pool();
            context.is_local = false;
        }
        context
    }

    /// Returns the outermost token whose stop reaches this context: that of the task, unless a shield is in between.
    pub(in crate::task) fn reaching_token(&self) -> ErasedStopToken {
        let (mut token, mut at) = (self.token, self.scope);
        while let Some(scope) = at {
            // SAFETY: the scope is valid as long as the context, and is a user of the scope around it.
            let scope = unsafe { scope.as_ref() };
            match scope.stops.get() {
                Stops::Same => {}
                Stops::PassedOn(outside) => token = outside,
                Stops::Never => break,
            }
            at = scope.outer;
        }
        token
    }

    /// Returns the token whose stop a handler around the innermost scope answers, if any.
    pub(in crate::task) fn handled(&self) -> Option<ErasedStopToken> {
        // SAFETY: the scope is valid as long as the context.
        self.scope.and_then(|scope| unsafe { scope.as_ref() }.handled.get())
    }
}

impl Header {
    /// Prepares a frame for its first poll, and makes it busy.
    ///
    /// # Safety
    ///
    /// The frame was not started. The context and the unit are valid until it is done.
    #[inline(always)]
    pub(in crate::task) unsafe fn begin(
        this: NonNull<Header>,
        context: NonNull<Context>,
        unit: NonNull<Unit>,
        successor: FrameSuccessor,
    ) {
        // SAFETY: the caller's promise. The placement and the tracker are the first fields.
        unsafe { Header::begin_in(this, context.cast(), unit.cast(), successor) }
    }

    /// Returns the context of a frame: that of the innermost scope while the frame is polled.
    ///
    /// # Safety
    ///
    /// The task has started and is not done.
    #[inline]
    pub(in crate::task) unsafe fn context(this: NonNull<Header>) -> NonNull<Context> {
        // SAFETY: every placement of a frame is the first field of a context: contracts of `begin` and `replace_context`.
        unsafe { Header::placement(this) }.cast()
    }

    /// Replaces the context of the frame, and returns the one before.
    ///
    /// # Safety
    ///
    /// The caller is inside this frame's poll, and restores the context before it returns.
    pub(in crate::task) unsafe fn replace_context(
        this: NonNull<Header>,
        context: NonNull<Context>,
    ) -> NonNull<Context> {
        // SAFETY: the caller's promise.
        unsafe { Header::replace_placement(this, context.cast()) }.cast()
    }

    /// Returns the strand of a frame.
    ///
    /// # Safety
    ///
    /// The task has started and is not done.
    #[inline]
    pub(in crate::task) unsafe fn unit(this: NonNull<Header>) -> NonNull<Unit> {
        // SAFETY: the caller's promise. The tracker of a frame is the first field of a unit, by the contract of `begin`.
        unsafe { Header::tracker(this) }.cast()
    }
}

impl<'p> Polling<'p> {
    /// Returns the context of the innermost scope around the call.
    #[inline]
    pub(in crate::task) fn context(self) -> &'p Context {
        // SAFETY: the poll leaves the scope after the call returns.
        unsafe { Header::context(self.frame()).as_ref() }
    }

    /// Returns the strand of the frame.
    #[inline]
    pub(in crate::task) fn unit(self) -> &'p Unit {
        // SAFETY: the strand outlives the frame.
        unsafe { Header::unit(self.frame()).as_ref() }
    }
}
