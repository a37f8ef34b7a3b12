//! The options that a child is started with.

use core::fmt;
use std::borrow::Cow;
use std::boxed::Box;

use allocator_api2::alloc::{Allocator, Global};

use super::place::{ChildPlace, ChildRequests};
use crate::scheduler::TaskScheduler;
use crate::task::strand::Locals;
use crate::{Priority, Scheduler};

/// The options of a child that does not inherit everything: see [`TaskGroup::spawn_with`](crate::task::TaskGroup::spawn_with)
/// and [`detach_with`](crate::task::detach_with).
#[derive(Clone)]
#[must_use = "options do nothing until something is spawned with them"]
pub struct SpawnOptions<A = Global> {
    requests: ChildRequests,
    allocator: A,
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
