//! The context of a child that does not inherit everything.

use core::ptr::NonNull;
use std::borrow::Cow;
use std::boxed::Box;

use crate::memory::{Cached, OutOfMemoryError};
use crate::scheduler::TaskScheduler;
use crate::task::coroutine::TaskContext;
use crate::task::frame::{Header, Home};
use crate::task::strand::{Context, Locals};
use crate::{Env, Panic, Priority};

/// The context of a child that was spawned without an allocator: that of the group, in memory from the threads' caches.
pub(in crate::task) struct InCache;

impl TaskContext for InCache {
    type Allocator = Cached;
    type Scheduler = TaskScheduler<'static>;
    const INHERITS: bool = true;

    fn new<N: Env>(_: &N) -> Self {
        InCache
    }
}

/// The requests that replace inherited parts.
#[derive(Clone)]
pub(super) struct ChildRequests {
    pub(super) scheduler: Option<TaskScheduler<'static>>,
    pub(super) priority: Option<Priority>,
    pub(super) name: Option<Cow<'static, str>>,
    pub(super) locals: Option<Locals>,
}

/// The context of a child that does not inherit all of its parent's, and its scheduler. Pinned once it is settled.
pub(in crate::task) struct ChildPlace {
    requests: ChildRequests,
    context: Option<Context>,
}

// SAFETY: the child and its awaits use the context, all ordered before its end.
unsafe impl Send for ChildPlace {}

impl ChildPlace {
    /// Creates a place, unless the child inherits everything.
    pub(super) fn new(requests: ChildRequests) -> Option<Box<Self>> {
        let ChildRequests {
            scheduler: None,
            priority: None,
            name: None,
            locals: None,
        } = requests
        else {
            return Some(Box::new(ChildPlace {
                requests,
                context: None,
            }));
        };
        None
    }

    pub(in crate::task) fn take_name(&mut self) -> Option<Cow<'static, str>> {
        self.requests.name.take()
    }

    /// Creates the context from the outer one.
    ///
    /// # Errors
    ///
    /// The allocation of a hop failed.
    ///
    /// # Safety
    ///
    /// This is pinned until the child is done. `frame` is the child, which is about to be started.
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
            // SAFETY: this is pinned, and with it the scheduler, until the child is done.
            let home = Panic::catch(|| unsafe { Home::of(scheduler, frame, frame.cast()) });
            context.placement.home = match home {
                Ok(home) => home?,
                Err(payload) => {
                    // SAFETY: the frame is not started yet.
                    unsafe { Header::fail(frame, payload) };
                    Home::anywhere()
                }
            };
        }
        Ok(NonNull::from(self.context.insert(context)))
    }

    /// Frees the child's own hop, if any.
    ///
    /// # Safety
    ///
    /// The child is done, or was not started, and its frame is alive.
    pub(in crate::task) unsafe fn take_back(&self, frame: NonNull<Header>) {
        if let (Some(_), Some(context)) = (&self.requests.scheduler, &self.context) {
            // SAFETY: the child does not run, and only the child used the home.
            unsafe { context.placement.home.take_back(frame.cast(), frame) };
        }
    }
}
