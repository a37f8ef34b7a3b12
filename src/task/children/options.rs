//! The options that a child is started with.

use core::fmt;
use std::borrow::Cow;
use std::boxed::Box;

use allocator_api2::alloc::{Allocator, Global};

use super::place::{ChildPlace, ChildRequests};
use crate::scheduler::TaskScheduler;
use crate::task::strand::Locals;
use crate::{Priority, Scheduler};

/// What a child is started with, where that is not what it would inherit: see
/// [`TaskGroup::spawn_with`](crate::task::TaskGroup::spawn_with) and [`detach_with`](crate::task::detach_with).
#[derive(Clone)]
#[must_use = "options do nothing until something is spawned with them"]
pub struct SpawnOptions<A = Global> {
    requests: ChildRequests,
    allocator: A,
}

impl SpawnOptions {
    /// Everything as it is inherited.
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
    /// How urgent it is.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.requests.priority = Some(priority);
        self
    }

    /// Where it runs: on any scheduler that cannot fail.
    pub fn scheduler<S: Scheduler + 'static>(mut self, scheduler: S) -> Self {
        self.requests.scheduler = Some(TaskScheduler::new(scheduler));
        self
    }

    /// What it is called, in a [dump](crate::task::dump) and by those who [ask](crate::task::TaskRef::name).
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

    /// The [task-local](crate::task::TaskLocal) values that are bound where this is called: a copy of none of them, but
    /// each is there as long as the child needs it.
    ///
    /// For [detached](crate::task::detach_with) tasks, which see none otherwise.
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

    /// What its memory is from. What it awaits finds the allocator with
    /// [`CurrentAllocator`](crate::task::CurrentAllocator).
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
        let place = (!self.requests.is_empty()).then(|| Box::new(ChildPlace::new(self.requests)));
        (place, self.allocator)
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
