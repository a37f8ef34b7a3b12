//! The options that a child is started with, and the context that follows from them.

use core::fmt;
use core::ptr::NonNull;
use std::borrow::Cow;
use std::boxed::Box;

use allocator_api2::alloc::{Allocator, Global};

use crate::memory::{Cached, OutOfMemoryError};
use crate::scheduler::TaskScheduler;
use crate::task::coroutine::TaskContext;
use crate::task::frame::{Header, Home};
use crate::task::strand::{Context, Locals};
use crate::{Env, Panic, Priority, Scheduler};

/// The options of a child that does not inherit everything: see [`TaskGroup::spawn_with`](crate::task::TaskGroup::spawn_with)
/// and [`detach_with`](crate::task::detach_with).
#[derive(Clone)]
#[must_use = "options do nothing until something is spawned with them"]
pub struct SpawnOptions<A = Global> {
    requests: ChildRequests,
    allocator: A,
}

/// The requests that replace inherited parts.
#[derive(Clone)]
struct ChildRequests {
    scheduler: Option<TaskScheduler<'static>>,
    priority: Option<Priority>,
    name: Option<Cow<'static, str>>,
    locals: Option<Locals>,
}

impl SpawnOptions {
    /// Creates options with which everything is inherited.
    pub const fn new() -> Self {
        SpawnOptions {
            requests: ChildRequests {
                scheduler: None,
                priority: None,
                name: None,
                locals: None,
            },
            allocator: Global,
        }
    }
}

impl Default for SpawnOptions {
    fn default() -> Self {
        SpawnOptions::new()
    }
}

impl<A> SpawnOptions<A> {
    /// Sets the priority.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.requests.priority = Some(priority);
        self
    }

    /// Sets the scheduler, which must be infallible.
    pub fn scheduler<S: Scheduler + 'static>(mut self, scheduler: S) -> Self {
        self.requests.scheduler = Some(TaskScheduler::new(scheduler));
        self
    }

    /// Sets the name, shown in a [dump](crate::task::dump) and returned by [`TaskRef::name`](crate::task::TaskRef::name).
    ///
    /// ```
    /// use bowline::task::{self, SpawnOptions};
    ///
    /// let options = SpawnOptions::new().name("chop vegetables");
    /// let handle = task::detach_with(options, async { task::current() });
    /// let chops = task::block_on(handle).unwrap().unwrap();
    /// assert_eq!(chops.name(), Some("chop vegetables"));
    /// ```
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.requests.name = Some(name.into());
        self
    }

    /// Inherits the [task-local](crate::task::TaskLocal) values that are bound at this call. They are shared, not copied, and
    /// kept alive as long as the child needs them.
    ///
    /// For [detached](crate::task::detach_with) tasks, which inherit none otherwise.
    ///
    /// ```
    /// use bowline::task::{self, SpawnOptions};
    ///
    /// bowline::task_local! { static USER: &'static str; }
    ///
    /// let options = USER.sync_scope("Ada", || SpawnOptions::new().inherit_locals());
    /// let handle = task::detach_with(options, async { USER.get() });
    /// assert_eq!(task::block_on(handle).unwrap(), Some("Ada"));
    /// ```
    pub fn inherit_locals(mut self) -> Self {
        self.requests.locals = Some(Locals::current());
        self
    }

    /// Sets the allocator. Awaited senders find it with [`CurrentAllocator`](crate::task::CurrentAllocator).
    pub fn allocator<B>(self, allocator: B) -> SpawnOptions<B>
    where
        B: Allocator + Clone + Send + Sync + 'static,
    {
        SpawnOptions {
            requests: self.requests,
            allocator,
        }
    }

    pub(in crate::task) fn into_parts(self) -> (Option<Box<ChildPlace>>, A) {
        (ChildPlace::new(self.requests), self.allocator)
    }
}

impl<A> fmt::Debug for SpawnOptions<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnOptions")
            .field("priority", &self.requests.priority)
            .field("scheduler", &self.requests.scheduler)
            .field("name", &self.requests.name)
            .finish_non_exhaustive()
    }
}

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

/// The context of a child that does not inherit all of its parent's, and its scheduler. Pinned once it is settled.
pub(in crate::task) struct ChildPlace {
    requests: ChildRequests,
    context: Option<Context>,
}

impl ChildPlace {
    /// Creates a place, unless the child inherits everything.
    fn new(requests: ChildRequests) -> Option<Box<Self>> {
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
