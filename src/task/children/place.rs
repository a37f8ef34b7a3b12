//! What a child is started with, where it does not inherit all of that.

use core::ptr::NonNull;
use std::borrow::Cow;

use crate::memory::{Cached, OutOfMemoryError};
use crate::scheduler::TaskScheduler;
use crate::task::coroutine::TaskContext;
use crate::task::frame::{Header, Home};
use crate::task::strand::{Context, Locals};
use crate::{Env, Panic, Priority};

/// The context of a child that was spawned without an allocator: that of the group, in memory that threads keep.
pub(in crate::task) struct InCache;

impl TaskContext for InCache {
    type Allocator = Cached;
    type Scheduler = TaskScheduler<'static>;
    const INHERITS: bool = true;

    fn new<N: Env>(_: &N) -> Self {
        InCache
    }
}

/// What a child is asked to have in the place of what it would inherit.
#[derive(Clone)]
pub(super) struct ChildRequests {
    pub(super) scheduler: Option<TaskScheduler<'static>>,
    pub(super) priority: Option<Priority>,
    pub(super) name: Option<Cow<'static, str>>,
    pub(super) locals: Option<Locals>,
}

impl ChildRequests {
    /// Whether the child inherits everything.
    pub(super) fn is_empty(&self) -> bool {
        self.priority.is_none() && self.scheduler.is_none() && self.name.is_none() && self.locals.is_none()
    }
}

/// The context of a child that does not inherit all of its parent's, with the scheduler in it. It does not move once it is settled.
pub(in crate::task) struct ChildPlace {
    requests: ChildRequests,
    context: Option<Context>,
}

// SAFETY: the context is used by the child, and by what is awaited there, all of which is ordered with its end.
unsafe impl Send for ChildPlace {}

impl ChildPlace {
    pub(super) fn new(requests: ChildRequests) -> Self {
        ChildPlace {
            requests,
            context: None,
        }
    }

    pub(in crate::task) fn take_name(&mut self) -> Option<Cow<'static, str>> {
        self.requests.name.take()
    }

    /// Makes the context, of that outside.
    ///
    /// # Errors
    ///
    /// There was no memory for what a scheduler of the user's own needs.
    ///
    /// # Safety
    ///
    /// This stays where it is until the child is done. The frame is the child, which is about to be started.
    pub(in crate::task) unsafe fn settle(
        &mut self,
        outside: &Context,
        frame: NonNull<Header>,
    ) -> Result<NonNull<Context>, OutOfMemoryError> {
        let mut context = *outside;
        if self.requests.priority.is_some() {
            context.placement.priority = self.requests.priority;
        }
        if let Some(locals) = &self.requests.locals {
            context.locals = locals.as_raw();
        }
        if let Some(scheduler) = &self.requests.scheduler {
            // SAFETY: the caller's promise: the scheduler stays where it is.
            let home = Panic::catch(|| unsafe { Home::of(scheduler, frame, frame.cast()) });
            context.placement.home = match home {
                Ok(home) => home?,
                Err(payload) => {
                    // SAFETY: the caller's promise: the frame was not started, and is next.
                    unsafe { Header::fail(frame, payload) };
                    Home::anywhere()
                }
            };
        }
        Ok(NonNull::from(self.context.insert(context)))
    }

    /// Takes back what a scheduler of the user's own needed.
    ///
    /// # Safety
    ///
    /// The child is done, or was not started, and its frame is alive.
    pub(in crate::task) unsafe fn take_back(&self, frame: NonNull<Header>) {
        if let (Some(_), Some(context)) = (&self.requests.scheduler, &self.context) {
            // SAFETY: the caller's promise. Only the child used the home.
            unsafe { context.placement.home.take_back(frame.cast(), frame) };
        }
    }
}
