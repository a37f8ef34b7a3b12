//! Coroutines: `async` blocks that are senders.

use core::convert::Infallible;
use core::future::Future;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use allocator_api2::alloc::{Allocator, Global};

use super::{
    ContextScheduler, DefaultContext, Frame, InAllocator, Local, Plain, Produce, SchedulerIn, TaskBuilder, TaskContext,
    TaskFuture, TaskOperation, Try, or_panic,
};
use crate::scheduler::OutOfMemoryError;
use crate::sender::demand::demand;
use crate::task::frame::Header;
use crate::{Completes, Completion, Receiver, Scheduler, Sender};

/// A coroutine: an `async` block that is a sender.
///
/// Inside, every sender can be awaited. Outside, the task is a sender as any other: lazy, moved and not copied, to be
/// adapted, combined and started wherever there is a scheduler.
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
///     // A task that awaits a task hands it the thread, and gets it back.
///     let two = number("2").await?;
///     // What is awaited may run anywhere. The task goes on where it was.
///     let forty = starts_on(scheduler, number("40")).await?;
///     Ok::<_, ParseIntError>(two + forty)
/// });
/// assert_eq!(sync_wait(sum).unwrap(), 42);
/// ```
///
/// [`new`](Task::new) takes any output for the value, and such a task cannot fail; [`try_new`](Task::try_new) takes a
/// `Result` apart. It runs on the scheduler of the environment that it is started in: that of
/// [`sync_wait`](crate::sync_wait) is its run loop, [`starts_on`](crate::starts_on) chooses another, and without one it does
/// not compile. Awaited in another task, it runs as part of that.
///
/// `Cx` is its [context](TaskContext): what it is allocated with, where it runs, and what it adds to the environment of
/// what it awaits. The default changes nothing. A future that is not `Send` makes a [`LocalTask`](crate::task::LocalTask); a
/// `main` that awaits is made by [`#[bowline::main]`](crate::main), and a call that blocks by
/// [`block_on`](crate::task::block_on).
///
/// # Completions
///
/// Those of the future: its output; with [`try_new`](Task::try_new) its value or error. Stopped, when something that it
/// awaits has stopped: the future is not polled again. In every case its locals are dropped before the completion, which
/// comes on its scheduler.
///
/// # Panics
///
/// The future's panic is the task's, and unwinds from the `.await` of whoever awaits it.
///
/// # Cancellation
///
/// What it awaits sees the stop token, and if that stops, so does the task. A future that is not a sender knows nothing
/// of stops, and a task that waits for one alone goes on waiting: [`from_future`](crate::from_future)`(future).await`
/// has it dropped by the stop. The token does not stop a task between two awaits. Dropping a task that is awaited ends
/// it: see [`TaskFuture`].
///
/// # Allocation
///
/// One, when it is made: header, future and result. One more, of memory that threads keep, when it first suspends on a sender;
/// none per await after that, nor when it is resumed.
///
/// # Stack
///
/// Constant, however deep tasks await tasks, and however many senders they await; also when they are stopped or dropped.
#[must_use = "tasks do nothing until they are awaited, or connected and started"]
pub struct Task<T, E = Infallible, Cx = DefaultContext> {
    frame: NonNull<Header>,
    _result: Produces<T, E, Cx>,
}

/// The types of a task, none of which is in it.
/// Covariant in the results, which are only given. Invariant in the context: its `TaskContext` implementation is that of
/// exactly this type.
pub(super) type Produces<T, E, Cx> = PhantomData<(fn() -> (T, E), fn(Cx) -> Cx)>;

// SAFETY: the future is `Send`, and so are the result, the allocator and the context.
unsafe impl<T: Send, E: Send, Cx> Send for Task<T, E, Cx> {}

impl Task<()> {
    /// Tasks with another context or allocator, and with memory that may run out.
    pub const fn builder() -> TaskBuilder {
        TaskBuilder::new()
    }
}

impl<T: Send + 'static> Task<T> {
    /// A task of a future, whose output is the value.
    ///
    /// # Panics
    ///
    /// When there is no memory.
    #[track_caller]
    #[inline]
    pub fn new<F>(future: F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        or_panic(Task::of_plain(future, Global))
    }

    /// A task of a future, whose output is the value, in memory from `allocator`.
    ///
    /// The one allocation of the task, header, future and result, is from there, and given back there, by a clone of the
    /// allocator that is kept in it. So is the room that a task on a scheduler of your own needs to come back to it, which
    /// is allocated when it starts: without memory it completes with a panic then. What the task awaits finds the
    /// allocator with [`CurrentAllocator`](crate::task::CurrentAllocator); a task that is made inside uses it if it is told to.
    ///
    /// ```
    /// use std::alloc::Layout;
    /// use std::ptr::NonNull;
    ///
    /// use allocator_api2::alloc::{AllocError, Allocator, Global};
    /// use bowline::prelude::*;
    /// use bowline::task::Task;
    ///
    /// /// Has memory for small things only.
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
    /// When the allocator has no memory. [`TaskBuilder::build`] says so instead.
    #[track_caller]
    #[inline]
    pub fn new_in<F, A>(future: F, allocator: A) -> Task<T, Infallible, InAllocator<A>>
    where
        F: Future<Output = T> + Send + 'static,
        A: Allocator + Clone + Send + Sync + 'static,
    {
        or_panic(Task::of_plain(future, allocator))
    }
}

impl<T: Send + 'static> Task<T> {
    /// A task of a future that borrows.
    ///
    /// # Safety
    ///
    /// What the future borrows outlives the task's completion, or the task's drop where it is not started.
    #[track_caller]
    pub(in crate::task) unsafe fn of_borrowing<F>(future: F) -> Self
    where
        F: Future<Output = T> + Send,
    {
        or_panic(Task::from_future(Plain(future), Global))
    }
}

impl<T: Send + 'static, E: Send + 'static> Task<T, E> {
    /// A task of a future whose output is a value or an error.
    ///
    /// # Panics
    ///
    /// When there is no memory.
    #[track_caller]
    #[inline]
    pub fn try_new<F>(future: F) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        or_panic(Task::of_result(future, Global))
    }

    /// A task of a future whose output is a value or an error, in memory from `allocator`: [`try_new`](Task::try_new) as
    /// [`new_in`](Task::new_in) is [`new`](Task::new).
    ///
    /// # Panics
    ///
    /// When the allocator has no memory. [`TaskBuilder::try_build`] says so instead.
    #[track_caller]
    #[inline]
    pub fn try_new_in<F, A>(future: F, allocator: A) -> Task<T, E, InAllocator<A>>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        A: Allocator + Clone + Send + Sync + 'static,
    {
        or_panic(Task::of_result(future, allocator))
    }
}

impl<T: Send + 'static, Cx: TaskContext> Task<T, Infallible, Cx> {
    #[inline]
    pub(in crate::task) fn of_plain<F>(future: F, allocator: Cx::Allocator) -> Result<Self, OutOfMemoryError>
    where
        F: Future<Output = T> + Send + 'static,
    {
        Task::from_future(Plain(future), allocator)
    }
}

impl<T: Send + 'static, E: Send + 'static, Cx: TaskContext> Task<T, E, Cx> {
    #[inline]
    pub(in crate::task) fn of_result<F>(future: F, allocator: Cx::Allocator) -> Result<Self, OutOfMemoryError>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        Task::from_future(Try(future), allocator)
    }

    /// Creates the task of a local task. Its children do not stay on its thread.
    ///
    /// # Safety
    ///
    /// Borrows of the future outlive the task's completion, or the drop of a task that is never started.
    #[inline]
    pub(in crate::task) unsafe fn of_local<F>(future: F) -> Self
    where
        F: Future<Output = Result<T, E>> + Send,
        Cx: TaskContext<Allocator = Global>,
    {
        or_panic(Task::from_future(Local(future), Global))
    }

    #[inline]
    fn from_future<P: Produce<T, E>>(future: P, allocator: Cx::Allocator) -> Result<Self, OutOfMemoryError> {
        Frame::<P, T, E, Cx, ()>::make(future, allocator, ()).map(Task::of_frame)
    }
}

impl<T, E, Cx> Drop for Task<T, E, Cx> {
    fn drop(&mut self) {
        // SAFETY: the frame is ours. A result that nobody took goes right here, and not with the last waker.
        unsafe {
            if Header::is_done(self.frame) {
                drop(Header::take::<Completion<T, E>>(self.frame));
            } else {
                Header::release(self.frame);
            }
        }
    }
}

impl<T, E, Cx> Task<T, E, Cx> {
    /// The owner of this frame, whose future gives `T` or `E`.
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

// SAFETY: the operation touches nothing of itself after its completion; it is `!Unpin`. The task runs on its scheduler
// alone, which is that of the receiver's environment, unless its context says that it runs anywhere.
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
        TaskOperation::new(self.into_frame(), receiver)
    }
}

impl<T: Send + 'static, E: Send + 'static, Cx: TaskContext> IntoFuture for Task<T, E, Cx> {
    type Output = Result<T, E>;
    type IntoFuture = TaskFuture<T, E>;

    #[inline]
    fn into_future(self) -> TaskFuture<T, E> {
        // The frame knows the type of its context. The future need not.
        TaskFuture::new(Task::of_frame(self.into_frame()))
    }
}
