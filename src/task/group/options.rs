use core::fmt;
use std::boxed::Box;

use allocator_api2::alloc::{Allocator, Global};

use super::super::spawned::Place;
use crate::scheduler::TaskScheduler;
use crate::{Priority, Scheduler};

/// What a child is started with, where that is not what it would inherit: see
/// [`TaskGroup::spawn_with`](super::TaskGroup::spawn_with) and [`detach_with`](super::super::detach_with).
#[derive(Clone)]
#[must_use = "options do nothing until something is spawned with them"]
pub struct SpawnOptions<A = Global> {
    pub(in super::super) priority: Option<Priority>,
    pub(in super::super) scheduler: Option<TaskScheduler<'static>>,
    pub(in super::super) allocator: A,
}

impl SpawnOptions {
    /// Everything as it is inherited.
    pub const fn new() -> Self {
        SpawnOptions {
            priority: None,
            scheduler: None,
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
    pub fn priority(self, priority: Priority) -> Self {
        SpawnOptions {
            priority: Some(priority),
            ..self
        }
    }

    /// Where it runs: on any scheduler that cannot fail.
    pub fn scheduler<S: Scheduler + 'static>(self, scheduler: S) -> Self {
        SpawnOptions {
            scheduler: Some(TaskScheduler::new(scheduler)),
            ..self
        }
    }

    /// What its memory is from. What it awaits finds the allocator with
    /// [`CurrentAllocator`](super::super::CurrentAllocator).
    pub fn allocator<B>(self, allocator: B) -> SpawnOptions<B>
    where
        B: Allocator + Clone + Send + Sync + 'static,
    {
        SpawnOptions {
            priority: self.priority,
            scheduler: self.scheduler,
            allocator,
        }
    }

    pub(in super::super) fn into_parts(self) -> (Option<Box<Place>>, A) {
        let place = (self.priority.is_some() || self.scheduler.is_some())
            .then(|| Box::new(Place::new(self.scheduler, self.priority)));
        (place, self.allocator)
    }
}

impl<A> fmt::Debug for SpawnOptions<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnOptions")
            .field("priority", &self.priority)
            .field("scheduler", &self.scheduler)
            .finish_non_exhaustive()
    }
}
