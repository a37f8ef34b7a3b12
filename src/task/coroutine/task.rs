//! Coroutines: `async` blocks that are senders.

use core::convert::Infallible;
use core::future::Future;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use allocator_api2::alloc::{Allocator, Global};

use super::{
    ContextScheduler, DefaultContext, Frame, InAllocator, Plain, Produce, SchedulerIn, TaskBuilder, TaskContext,
    TaskFuture, TaskOperation, Try, or_panic,
};
use crate::scheduler::OutOfMemoryError;
use crate::sender::demand::demand;
use crate::task::frame::{Borrowed, Header, Site};
use crate::{Completes, Receiver, Scheduler, Sender};

/// A coroutine: an `async` block that is a sender.
///
/// Inside, every sender can be awaited. Outside, the task is a lazy, move-only sender, which can be adapted, combined and
/// started on any scheduler.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::ThreadPool;
/// use bowline::task::Task;
/// use std::num::ParseIntError;
///
/// fn number(text: &'static str) -> Task<i32, ParseIntError> {
///     Task::try_new(async move { Ok(text.parse::<i32>()?) })
/// }
///
/// let pool = ThreadPool::new(1);
/// let scheduler = pool.scheduler();
/// let sum = Task::try_new(async move {
///     // A task that awaits a task runs it on the same thread, and then continues.
///     let two = number("2").await?;
///     // The awaited sender may run anywhere. The task resumes on its own scheduler.
///     let forty = starts_on(scheduler, number("40")).await?;
///     Ok::<_, ParseIntError>(two + forty)
/// });
/// assert_eq!(sync_wait(sum).unwrap(), 42);
/// ```
///
/// [`new`](Task::new) makes the output the value, and such a task cannot fail; [`try_new`](Task::try_new) splits a `Result`
/// into value and error. A task runs on the scheduler of the environment in which it is started.
/// [`sync_wait`](crate::sync_wait) provides its run loop, [`starts_on`](crate::starts_on) chooses another, and without one the
/// program does not compile. A task that is awaited in another runs as part of it.
///
/// `Cx` is its [context](TaskContext): its allocator, its scheduler, and its additions to the environment. The default changes
/// nothing. For a future that is not `Send` use [`LocalTask`](crate::task::LocalTask), for a `main` that awaits
/// [`#[bowline::main]`](crate::main), and for a blocking call [`block_on`](crate::task::block_on).
///
/// # Completions
///
/// The future's output; with [`try_new`](Task::try_new) its value or error. Stopped, if something that it awaits has stopped:
/// the future is not polled again. In every case the future's locals are dropped before the completion, which comes on its
/// scheduler.
///
/// # Panics
///
/// The future's panic unwinds from the `.await` of the awaiting task.
///
/// # Cancellation
///
/// Awaited senders see the stop token, and if one stops, so does the task. Futures of other crates do not see it: a task that waits
/// for such futures alone is stopped there. The token does not stop a task between two awaits. Dropping a task that is awaited
/// ends it: see [`TaskFuture`].
///
/// # Allocation
///
/// One for the task: header, future and result. One block, from a cache of the thread, when it first suspends on a sender; one
/// more for each that it awaits at the same time. None for further awaits, nor for resumes.
///
/// # Stack
///
/// Constant, for any depth of tasks that await tasks and any number of awaits; also when they are stopped or dropped.
#[must_use = "tasks do nothing until they are awaited, or connected and started"]
pub struct Task<T, E = Infallible, Cx = DefaultContext> {
    frame: NonNull<Header>,
    _result: Produces<T, E, Cx>,
}

/// The types of a task, none of which is stored in it. Covariant in the results, which are only returned. Invariant in the
/// context, since the task uses exactly this type's `TaskContext` implementation.
pub(super) type Produces<T, E, Cx> = PhantomData<(fn() -> (T, E), fn(Cx) -> Cx)>;

// SAFETY: the future, the result, the allocator and the context are `Send`.
unsafe impl<T: Send, E: Send, Cx> Send for Task<T, E, Cx> {}

impl Task<()> {
    /// Returns a builder for tasks with another context or allocator, and for fallible allocation.
    pub const fn builder() -> TaskBuilder {
        TaskBuilder::new()
    }
}

impl<T: Send + 'static> Task<T> {
    /// Creates a task from a future, whose output is the task's value.
    ///
    /// # Panics
    ///
    /// When the allocation fails.
    #[track_caller]
    #[inline]
    pub fn new<F>(future: F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        or_panic(Task::from_future(Plain(future), Global))
    }

    /// Creates a task from a future, in memory from `allocator`.
    ///
    /// The task's one allocation is from there, and freed by a clone of the allocator that the task keeps. So is the hop that a
    /// task needs on a scheduler of your own, allocated at the start; if that fails, the task completes with a panic. Awaited
    /// senders find the allocator with [`CurrentAllocator`](crate::task::CurrentAllocator). A task created inside uses it only
    /// if told to.
    ///
    /// ```
    /// use std::alloc::Layout;
    /// use std::ptr::NonNull;
    ///
    /// use allocator_api2::alloc::{AllocError, Allocator, Global};
    /// use bowline::prelude::*;
    /// use bowline::task::Task;
    ///
    /// /// Has memory for small values only.
    /// #[derive(Clone)]
    /// struct Small;
    ///
    /// unsafe impl Allocator for Small {
    ///     fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
    ///         if layout.size() <= 1024 { Global.allocate(layout) } else { Err(AllocError) }
    ///     }
    ///     unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
    ///         unsafe { Global.deallocate(memory, layout) }
    ///     }
    /// }
    ///
    /// assert_eq!(sync_wait(Task::new_in(async { 1 }, Small)).unwrap(), 1);
    ///
    /// let large = [0_u8; 4096];
    /// let refused = Task::builder().allocator(Small).build(async move { large.len() });
    /// assert!(refused.unwrap_err().layout().size() > 4096);
    /// ```
    ///
    /// # Panics
    ///
    /// When the allocation fails; [`TaskBuilder::build`] returns an error instead.
    #[track_caller]
    #[inline]
    pub fn new_in<F, A>(future: F, allocator: A) -> Task<T, Infallible, InAllocator<A>>
    where
        F: Future<Output = T> + Send + 'static,
        A: Allocator + Clone + Send + Sync + 'static,
    {
        or_panic(Task::from_future(Plain(future), allocator))
    }

    /// Creates a task from a future that may borrow.
    ///
    /// # Safety
    ///
    /// Borrows of the future outlive the task's completion, or the drop of a task that is never started.
    #[track_caller]
    pub(in crate::task) unsafe fn of_borrowing<F>(future: F) -> Self
    where
        F: Future<Output = T> + Send,
    {
        or_panic(Task::from_future(Plain(future), Global))
    }
}

impl<T: Send + 'static, E: Send + 'static> Task<T, E> {
    /// Creates a task from a future that returns a `Result`.
    ///
    /// # Panics
    ///
    /// When the allocation fails.
    #[track_caller]
    #[inline]
    pub fn try_new<F>(future: F) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        or_panic(Task::from_future(Try(future), Global))
    }

    /// Creates a task from a future that returns a `Result`, in memory from `allocator`, like [`new_in`](Task::new_in).
    ///
    /// # Panics
    ///
    /// When the allocation fails; [`TaskBuilder::try_build`] returns an error instead.
    #[track_caller]
    #[inline]
    pub fn try_new_in<F, A>(future: F, allocator: A) -> Task<T, E, InAllocator<A>>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        A: Allocator + Clone + Send + Sync + 'static,
    {
        or_panic(Task::from_future(Try(future), allocator))
    }
}

impl<T: Send + 'static, E: Send + 'static, Cx: TaskContext> Task<T, E, Cx> {
    #[cfg_attr(feature = "inspect", track_caller)]
    #[inline]
    pub(super) fn from_future<P: Produce<T, E>>(future: P, allocator: Cx::Allocator) -> Result<Self, OutOfMemoryError> {
        let frame = Frame::<P, T, E, Cx, Borrowed>::make(future, allocator, Borrowed::new())?;
        // SAFETY: the frame is new.
        unsafe { Header::set_made_at(frame, Site::here()) };
        Ok(Task::of_frame(frame))
    }
}

impl<T, E, Cx> Drop for Task<T, E, Cx> {
    fn drop(&mut self) {
        // SAFETY: the task owns the frame and its result, and does not use them afterwards.
        unsafe { Header::disown(self.frame) };
    }
}

impl<T, E, Cx> Task<T, E, Cx> {
    /// Creates the owner of this frame, whose future returns `T` or `E`.
    pub(super) fn of_frame(frame: NonNull<Header>) -> Self {
        Task {
            frame,
            _result: PhantomData,
        }
    }

    pub(super) fn into_frame(self) -> NonNull<Header> {
        ManuallyDrop::new(self).frame
    }

    pub(super) fn frame(&self) -> NonNull<Header> {
        self.frame
    }
}

crate::opaque!([T, E, Cx] Task<T, E, Cx>);

// SAFETY: the operation touches nothing of itself after its completion; it is `!Unpin`. The task runs only on the scheduler of
// the receiver's environment, unless its context says that it runs anywhere.
unsafe impl<T: Send + 'static, E: Send + 'static, Cx: TaskContext> Sender for Task<T, E, Cx> {
    type Value = T;
    type Error = E;
    const COMPLETES: Completes = if Cx::Scheduler::ANYWHERE {
        Completes::Anywhere
    } else {
        Completes::OnStartScheduler
    };
    type Operation<R: Receiver<T, E>> = TaskOperation<T, E, R, Cx>;

    #[inline]
    fn connect<R: Receiver<T, E>>(self, receiver: R) -> TaskOperation<T, E, R, Cx> {
        const {
            demand(
                SchedulerIn::<Cx, R::Env>::PRESENT,
                "a task needs a scheduler to run on: write `starts_on(scheduler, task)`",
            );
            demand(
                SchedulerIn::<Cx, R::Env>::INFALLIBLE,
                "a task needs a scheduler that cannot fail: write `starts_on(scheduler.or_inline(), task)`, or `or_abort()`",
            );
        }
        TaskOperation::new(self, receiver)
    }
}

impl<T: Send + 'static, E: Send + 'static, Cx: TaskContext> IntoFuture for Task<T, E, Cx> {
    type Output = Result<T, E>;
    type IntoFuture = TaskFuture<T, E>;

    #[cfg_attr(feature = "inspect", track_caller)]
    #[inline]
    fn into_future(self) -> TaskFuture<T, E> {
        // The frame knows the type of its context. The future need not.
        TaskFuture::new(Task::of_frame(self.into_frame()))
    }
}
