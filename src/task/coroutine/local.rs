//! Tasks that stay on one thread.
//!
//! A local task is a task whose future and result are wrapped, so that they may be sent: the wrappers check the thread at each
//! use. Its operation checks before the start that the scheduler resumes the task on this thread: see `operation.rs`.

use core::convert::Infallible;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context as Cx, Poll};

use allocator_api2::alloc::Global;

use super::{Homed, HomedFuture, Task, TaskFuture, TaskOperation, or_panic};
use crate::adaptors::map::{Map, MapReceiver};
use crate::sender::demand::demand;
use crate::{Completes, Completion, Env, Operation, Receiver, Scheduler, Sender, Transfer};

/// A [`Task`] of a future that need not be `Send`: it stays on the thread that created it.
///
/// Run it on a run loop, by [`sync_wait`](crate::sync_wait) or [`RunLoop::run_until`](crate::scheduler::RunLoop::run_until).
/// Its awaits may complete on any thread; the task resumes on its loop.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::ThreadPool;
/// use bowline::task::LocalTask;
/// use std::rc::Rc;
///
/// let pool = ThreadPool::new(1);
/// let elsewhere = starts_on(pool.scheduler(), just_from(|| 2));
/// let task = LocalTask::new(async move {
///     let kept = Rc::new(40);
///     let Ok(two) = elsewhere.await;
///     *kept + two
/// });
/// assert_eq!(sync_wait(task).unwrap(), 42);
/// ```
///
/// It is not `Send`, so the compiler rejects code that would start it elsewhere, such as [`starts_on`](crate::starts_on). Its
/// result need not be `Send` either: a local task may await another one for an `Rc`. Executors of other crates that stay on the
/// thread can [await it](LocalTaskFuture) too.
///
/// # Completions
///
/// The future's output; with [`try_new`](LocalTask::try_new) its value or error. Stopped, if something that it awaits has
/// stopped; the future's locals are dropped by then.
///
/// # Panics
///
/// The future's panic is the task's. The task also completes with a panic, before its first poll, if its scheduler would resume
/// it on another thread: that of a pool, the inline one, or an executor of another crate that polls elsewhere. If a scheduler
/// still resumes it on another thread, the process aborts with a message, since the future may neither be polled nor dropped
/// there. An example is the scheduler of a loop that another thread drives.
///
/// # Cancellation
///
/// Awaited senders see the stop token. A task that waits for other futures alone is stopped there: see [`Task`].
///
/// # Allocation
///
/// One, for the task.
#[must_use = "tasks do nothing until they are awaited, or connected and started"]
pub struct LocalTask<T, E = Infallible> {
    /// The result is still wrapped.
    task: Task<Homed<T>, Homed<E>>,
    _stays: PhantomData<*mut ()>,
}

impl<T: 'static> LocalTask<T> {
    /// Creates a task from a future, whose output is the task's value.
    #[cfg_attr(feature = "inspect", track_caller)]
    #[inline]
    pub fn new<F>(future: F) -> Self
    where
        F: Future<Output = T> + 'static,
    {
        LocalTask::try_new(async move { Ok(future.await) })
    }
}

impl<T: 'static, E: 'static> LocalTask<T, E> {
    /// Creates a task from a future that returns a `Result`.
    #[cfg_attr(feature = "inspect", track_caller)]
    #[inline]
    pub fn try_new<F>(future: F) -> Self
    where
        F: Future<Output = Result<T, E>> + 'static,
    {
        // SAFETY: the future is `'static`.
        unsafe { LocalTask::of_borrowing(future) }
    }

    /// Creates a task from a future that may borrow.
    ///
    /// # Safety
    ///
    /// Borrows of the future outlive the task's completion, or the drop of a task that is never started.
    #[cfg_attr(feature = "inspect", track_caller)]
    #[inline]
    pub(in crate::task) unsafe fn of_borrowing<F: Future<Output = Result<T, E>>>(future: F) -> Self {
        LocalTask {
            task: or_panic(Task::from_future(HomedFuture::new(future), Global)),
            _stays: PhantomData,
        }
    }
}

crate::opaque!([T, E] LocalTask<T, E>);

// SAFETY: the operation is that of the inner task.
unsafe impl<T: 'static, E: 'static> Sender for LocalTask<T, E> {
    type Value = T;
    type Error = E;
    const COMPLETES: Completes = Completes::OnStartScheduler;
    type Operation<R: Receiver<T, E>> = LocalTaskOperation<T, E, R>;

    #[inline]
    fn connect<R: Receiver<T, E>>(self, receiver: R) -> LocalTaskOperation<T, E, R> {
        const {
            demand(
                <R::Env as Env>::Scheduler::PRESENT && <R::Env as Env>::Scheduler::INFALLIBLE,
                "a local task needs the run loop of its thread: write `sync_wait(task)`, or `run_loop.run_until(task)`",
            );
        }
        LocalTaskOperation {
            operation: TaskOperation::new(self.task, MapReceiver::new(Unwrap, receiver)),
            _stays: PhantomData,
        }
    }
}

/// The operation of a [`LocalTask`].
pub struct LocalTaskOperation<T: 'static, E: 'static, R: Receiver<T, E>> {
    operation: TaskOperation<Homed<T>, Homed<E>, MapReceiver<Unwrap, R>>,
    /// Not `Send`: like the task, it is started, or dropped unstarted, on the thread that created it.
    _stays: PhantomData<*mut ()>,
}

impl<T: 'static, E: 'static, R: Receiver<T, E>> Operation for LocalTaskOperation<T, E, R> {
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: the inner operation is structurally pinned; the rest is the caller's promise.
        unsafe { self.map_unchecked_mut(|this| &mut this.operation).start() }
    }
}

crate::opaque!([T: 'static, E: 'static, R: Receiver<T, E>] LocalTaskOperation<T, E, R>);

/// Unwraps the result.
struct Unwrap;

impl<T, E> Map<Homed<T>, Homed<E>> for Unwrap {
    type Value = T;
    type Error = E;

    #[inline]
    fn map(self, completion: Completion<Homed<T>, Homed<E>>) -> Completion<T, E> {
        match completion {
            Completion::Value(value) => Completion::Value(value.into_inner()),
            Completion::Error(error) => Completion::Error(error.into_inner()),
            Completion::Panicked(payload) => Completion::Panicked(payload),
            Completion::Stopped => Completion::Stopped,
        }
    }
}

impl<T: 'static, E: 'static> IntoFuture for LocalTask<T, E> {
    type Output = Result<T, E>;
    type IntoFuture = LocalTaskFuture<T, E>;

    #[cfg_attr(feature = "inspect", track_caller)]
    #[inline]
    fn into_future(self) -> LocalTaskFuture<T, E> {
        LocalTaskFuture {
            future: self.task.into_future(),
            _stays: PhantomData,
        }
    }
}

/// An awaited local task.
///
/// In another local task it runs as part of that, on the same loop. In an executor of another crate, and under the wakers of
/// `FuturesUnordered` and the like, the polling code is its scheduler, as for [any sender](crate::task::SenderFuture). The
/// executor must poll on this thread; one more allocation is needed.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::ThreadPool;
/// use bowline::task::LocalTask;
/// use std::rc::Rc;
///
/// let kept = Rc::new(40);
/// let task = LocalTask::new(async move {
///     let Ok(two) = starts_on(ThreadPool::global().scheduler(), just_from(|| 2)).await;
///     Rc::new(*kept + two)
/// });
/// assert_eq!(pollster::block_on(task.into_future()), Ok(Rc::new(42)));
/// ```
///
/// Dropping it before the end drops the task's future on this thread. Operations that are still in flight end later.
///
/// # Panics
///
/// The task's panic unwinds. A task that stops also stops the awaiting task; outside of a task, this panics.
#[must_use = "futures do nothing until they are awaited"]
pub struct LocalTaskFuture<T: 'static, E: 'static> {
    future: TaskFuture<Homed<T>, Homed<E>>,
    _stays: PhantomData<*mut ()>,
}

impl<T: 'static, E: 'static> Future for LocalTaskFuture<T, E> {
    type Output = Result<T, E>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>> {
        let polled = Pin::new(&mut self.future).poll(cx);
        polled.map(|result| result.map(Homed::into_inner).map_err(Homed::into_inner))
    }
}

crate::opaque!([T: 'static, E: 'static] LocalTaskFuture<T, E>);
