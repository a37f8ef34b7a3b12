//! The options that a child is started with, and the context that follows from them.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::borrow::Cow;
use std::boxed::Box;

use allocator_api2::alloc::{Allocator, Global};

use super::group::{ChildHandle, OwnStop, SpawnHandle};
use crate::memory::{Cached, OutOfMemoryError};
use crate::scheduler::TaskScheduler;
use crate::sender::stage::container_of;
use crate::stop::ErasedStopToken;
use crate::task::coroutine::TaskContext;
use crate::task::frame::{Header, Home};
use crate::task::strand::{Context, Locals};
use crate::{Env, Panic, Priority, Scheduler};

/// The options of a child that does not inherit everything: see [`TaskGroup::spawn_with`](crate::task::TaskGroup::spawn_with)
/// and [`detach_with`](crate::task::detach_with).
///
/// `A` is the allocator of the child. `H` is what a spawn returns: nothing, or the [`ChildHandle`] of a
/// [cancellable](SpawnOptions::cancellable) child.
#[must_use = "options do nothing until something is spawned with them"]
pub struct SpawnOptions<A = Global, H = ()> {
    requests: ChildRequests,
    allocator: A,
    _handle: PhantomData<fn() -> H>,
}

impl<A: Clone, H> Clone for SpawnOptions<A, H> {
    fn clone(&self) -> Self {
        SpawnOptions {
            requests: self.requests.clone(),
            allocator: self.allocator.clone(),
            _handle: PhantomData,
        }
    }
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
            _handle: PhantomData,
        }
    }
}

impl Default for SpawnOptions {
    fn default() -> Self {
        SpawnOptions::new()
    }
}

impl<A, H> SpawnOptions<A, H> {
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
    pub fn allocator<B>(self, allocator: B) -> SpawnOptions<B, H>
    where
        B: Allocator + Clone + Send + Sync + 'static,
    {
        SpawnOptions {
            requests: self.requests,
            allocator,
            _handle: PhantomData,
        }
    }

    /// Lets the child of a group be cancelled alone: the methods that spawn with these options return a [`ChildHandle`].
    ///
    /// For groups only. A detached task has a [`Handle`](crate::task::Handle), which cancels it.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::task::{self, SpawnOptions, Task};
    /// use std::convert::Infallible;
    ///
    /// let task = Task::new(task::group(async |group| {
    ///     let connection = SpawnOptions::new().name("connection").cancellable();
    ///     let idle = group.spawn_with(connection, async {
    ///         let Ok(()) = never::<(), Infallible>().await;
    ///         "the idle one"
    ///     });
    ///     group.spawn(async { "the busy one" });
    ///     idle.cancel();
    ///     assert_eq!(group.next().await, Some("the busy one"));
    ///     assert_eq!(group.next().await, None);
    /// }));
    /// sync_wait(task).unwrap();
    /// ```
    ///
    /// # Allocation
    ///
    /// Two for each child, beside that of the child. Children without a handle cost nothing more.
    pub fn cancellable(self) -> SpawnOptions<A, ChildHandle> {
        SpawnOptions {
            requests: self.requests,
            allocator: self.allocator,
            _handle: PhantomData,
        }
    }

    /// Returns the place, the allocator and the handle of one child.
    pub(in crate::task) fn into_parts(self) -> (Option<Box<ChildPlace>>, A, H)
    where
        H: SpawnHandle,
    {
        let (stop, handle) = H::begin();
        (ChildPlace::new(self.requests, stop), self.allocator, handle)
    }
}

impl<A, H> fmt::Debug for SpawnOptions<A, H> {
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

/// The context of a child that does not inherit all of its parent's, its scheduler, and its stop source. Pinned once it is settled.
pub(in crate::task) struct ChildPlace {
    requests: ChildRequests,
    /// The stop source of a child that has a handle. The context has its token.
    stop: Option<OwnStop>,
    /// The context of the child, once it is settled. The unit of the child points at it.
    context: Context,
}

impl ChildPlace {
    /// Creates a place, unless the child inherits everything.
    fn new(requests: ChildRequests, stop: Option<OwnStop>) -> Option<Box<Self>> {
        let ChildRequests {
            scheduler: None,
            priority: None,
            name: None,
            locals: None,
        } = requests
        else {
            return Some(ChildPlace::boxed(requests, stop));
        };
        stop.is_some().then(|| ChildPlace::boxed(requests, stop))
    }

    fn boxed(requests: ChildRequests, stop: Option<OwnStop>) -> Box<Self> {
        Box::new(ChildPlace {
            requests,
            stop,
            context: Context::of_home(Home::anywhere()),
        })
    }

    /// Returns the context of a place.
    ///
    /// # Safety
    ///
    /// The place is alive.
    pub(in crate::task) unsafe fn context_in(this: NonNull<ChildPlace>) -> NonNull<Context> {
        // SAFETY: the caller's promise. The address of a field is not null.
        unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).context) }
    }

    /// Returns the place of a context.
    ///
    /// # Safety
    ///
    /// The context is from [`context_in`](ChildPlace::context_in).
    pub(in crate::task) unsafe fn of_context(context: NonNull<Context>) -> NonNull<ChildPlace> {
        // SAFETY: the caller's promise.
        unsafe { container_of!(context, ChildPlace, context) }
    }

    pub(in crate::task) fn take_name(&mut self) -> Option<Cow<'static, str>> {
        self.requests.name.take()
    }

    /// Creates the context from the outer one. `link` links the child's own stop source, if any, and returns its token.
    ///
    /// # Errors
    ///
    /// The allocation of a hop failed. Then nothing was linked.
    ///
    /// # Safety
    ///
    /// This is pinned until the child is done. `frame` is the child, which is about to be started. Unless this fails,
    /// [`take_back`](ChildPlace::take_back) is called once the child is done, or was not started.
    pub(in crate::task) unsafe fn settle(
        &mut self,
        outside: &Context,
        frame: NonNull<Header>,
        link: impl FnOnce(&OwnStop) -> ErasedStopToken,
    ) -> Result<(), OutOfMemoryError> {
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
        // The last step, since the steps before it can fail.
        if let Some(stop) = &self.stop {
            context.token = link(stop);
        }
        self.context = context;
        Ok(())
    }

    /// Frees the child's own hop, and ends its own stop source, if any.
    ///
    /// # Safety
    ///
    /// The child is done, or was not started, and its frame is alive.
    pub(in crate::task) unsafe fn take_back(&self, frame: NonNull<Header>) {
        if self.requests.scheduler.is_some() {
            // SAFETY: the child does not run, and only the child used the home. That of a place that was not settled has no hop.
            unsafe { self.context.placement.home.take_back(frame.cast(), frame) };
        }
        if let Some(stop) = &self.stop {
            stop.end();
        }
    }
}
