//! A builder for tasks with another context, and for allocators that may fail.

use core::convert::Infallible;
use core::future::Future;
use core::marker::PhantomData;

use allocator_api2::alloc::{Allocator, Global};

use super::{DefaultContext, InAllocator, Plain, Task, TaskContext, Try};
use crate::scheduler::OutOfMemoryError;

/// A builder for tasks with another context or allocator, created by [`Task::builder`].
///
/// A builder is [`Clone`]; one configuration can build any number of tasks.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{Inline, Task};
///
/// let tasks = Task::builder().context::<Inline>();
/// let one = tasks.clone().task(async { 1 });
/// let two = tasks.try_task(async { "2".parse::<i32>() });
/// assert_eq!(sync_wait(one).unwrap(), 1);
/// assert_eq!(sync_wait(two).unwrap(), 2);
/// ```
#[must_use = "a builder does nothing until it is given a future"]
pub struct TaskBuilder<C = DefaultContext, A = <C as TaskContext>::Allocator> {
    allocator: A,
    /// Invariant in `C`, because the task uses exactly this type's `TaskContext` implementation.
    _context: PhantomData<fn(C) -> C>,
}

impl TaskBuilder {
    pub(in crate::task) const fn new() -> Self {
        TaskBuilder::of(Global)
    }
}

impl<C: TaskContext> TaskBuilder<C> {
    const fn of(allocator: C::Allocator) -> Self {
        TaskBuilder {
            allocator,
            _context: PhantomData,
        }
    }

    /// Sets the context, with its default allocator.
    pub fn context<D: TaskContext<Allocator: Default>>(self) -> TaskBuilder<D> {
        self.context_in(D::Allocator::default())
    }

    /// Sets the context and its allocator.
    pub fn context_in<D: TaskContext>(self, allocator: D::Allocator) -> TaskBuilder<D> {
        TaskBuilder::of(allocator)
    }

    /// Sets the allocator of the frames.
    pub fn allocator<A>(self, allocator: A) -> TaskBuilder<InAllocator<A, C>>
    where
        A: Allocator + Clone + Send + Sync + 'static,
    {
        TaskBuilder::of(allocator)
    }

    /// Creates a task from a future, whose output is the task's value.
    ///
    /// # Panics
    ///
    /// When the allocation fails; [`build`](TaskBuilder::build) returns an error instead.
    #[track_caller]
    #[inline]
    pub fn task<T, F>(self, future: F) -> Task<T, Infallible, C>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        or_panic(self.build(future))
    }

    /// Creates a task from a future that returns a `Result`.
    ///
    /// # Panics
    ///
    /// When the allocation fails; [`try_build`](TaskBuilder::try_build) returns an error instead.
    #[track_caller]
    #[inline]
    pub fn try_task<T, E, F>(self, future: F) -> Task<T, E, C>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        or_panic(self.try_build(future))
    }

    /// Creates a task from a future, whose output is the task's value.
    ///
    /// # Errors
    ///
    /// The allocation failed. The future was dropped.
    #[inline]
    #[cfg_attr(feature = "inspect", track_caller)]
    pub fn build<T, F>(self, future: F) -> Result<Task<T, Infallible, C>, OutOfMemoryError>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        Task::from_future(Plain(future), self.allocator)
    }

    /// Creates a task from a future that returns a `Result`.
    ///
    /// # Errors
    ///
    /// The allocation failed. The future was dropped.
    #[inline]
    #[cfg_attr(feature = "inspect", track_caller)]
    pub fn try_build<T, E, F>(self, future: F) -> Result<Task<T, E, C>, OutOfMemoryError>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        Task::from_future(Try(future), self.allocator)
    }
}

impl<C: TaskContext> Clone for TaskBuilder<C> {
    fn clone(&self) -> Self {
        TaskBuilder::of(self.allocator.clone())
    }
}

crate::opaque!([C, A] TaskBuilder<C, A>);

/// Returns the task, or panics with the error.
#[track_caller]
#[inline]
pub(in crate::task) fn or_panic<T>(task: Result<T, OutOfMemoryError>) -> T {
    match task {
        Ok(task) => task,
        Err(error) => no_memory(error),
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn no_memory(error: OutOfMemoryError) -> ! {
    panic!("cannot make a task: {error}");
}
