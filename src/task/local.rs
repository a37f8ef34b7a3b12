//! Tasks that stay on one thread.

use core::cell::Cell;
use core::convert::Infallible;
use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context as Cx, Poll};
use std::boxed::Box;

use super::task::{Plain, Produce, Task, TaskFuture, TaskOperation, Try};
use crate::scheduler::{InlineScheduler, TaskScheduler};
use crate::sender::demand::demand;
use crate::sync::{per_thread, thread};
use crate::{Completes, Env, Operation, Panic, Receiver, Scheduler, Sender, Transfer};

/// A [`Task`] of a future that need not be `Send`: it runs on the thread it was made on.
///
/// It is for a run loop: [`sync_wait`](crate::sync_wait), or
/// [`RunLoop::run_until`](crate::scheduler::RunLoop::run_until). Whatever it awaits may complete on any thread; the task
/// comes back to its loop.
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
/// It is not `Send`, so the compiler refuses whatever would start it elsewhere, as
/// [`starts_on`](crate::starts_on) does. Its result need not be `Send` either: a local task may await another one for an
/// `Rc`.
///
/// # Completions
///
/// Those of the future: its output, or, with [`try_new`](LocalTask::try_new), its value or error. Stopped, when
/// something that it awaits has stopped; its locals are dropped by then.
///
/// # Panics
///
/// The future's panic is the task's. It also completes with a panic, before its first poll, when the scheduler in
/// its environment is a pool's or the inline one, which would resume it elsewhere. Should another scheduler resume it on a
/// thread that is not its own (it was made and started on one thread, say, with the scheduler of a loop that another one
/// drives), then the process aborts, and says so: its future may neither be polled there nor dropped.
///
/// # Cancellation
///
/// What it awaits sees the stop token.
///
/// # Allocation
///
/// One, when it is made.
///
/// # Stack
///
/// Constant, however deep tasks await tasks.
#[must_use = "tasks do nothing until they are awaited, or connected and started"]
pub struct LocalTask<T, E = Infallible> {
    task: Task<T, E>,
    _stays: PhantomData<*mut ()>,
}

impl<T: 'static> LocalTask<T> {
    /// A task of a future, whose output is the value.
    #[inline]
    pub fn new<F>(future: F) -> Self
    where
        F: Future<Output = T> + 'static,
    {
        // SAFETY: it borrows nothing.
        unsafe { LocalTask::borrowing(Plain(future)) }
    }
}

impl<T: 'static, E: 'static> LocalTask<T, E> {
    /// A task of a future whose output is a value or an error.
    #[inline]
    pub fn try_new<F>(future: F) -> Self
    where
        F: Future<Output = Result<T, E>> + 'static,
    {
        // SAFETY: it borrows nothing.
        unsafe { LocalTask::borrowing(Try(future)) }
    }
}

impl<T, E> LocalTask<T, E> {
    /// # Safety
    ///
    /// What the future borrows outlives the task: it is not forgotten, and whoever starts it waits for it.
    #[inline]
    pub(super) unsafe fn borrowing<P: Produce<T, E>>(future: P) -> Self {
        let home = this_thread();
        LocalTask {
            // SAFETY: the caller's promise for what it borrows; the task stays here, and looks where it is polled.
            task: unsafe { Task::from_future(Local { home, future }) },
            _stays: PhantomData,
        }
    }
}

/// A future that must be polled, and dropped, where it was made.
struct Local<P> {
    home: thread::ThreadId,
    future: P,
}

impl<T, E, P: Produce<T, E>> Produce<T, E> for Local<P> {
    #[inline]
    fn admit(&self) {
        if self.home != this_thread() {
            stray();
        }
    }

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>> {
        // SAFETY: the future is pinned with this.
        unsafe { self.map_unchecked_mut(|this| &mut this.future) }.poll(cx)
    }
}

/// Other operations may be running in the future, and use the task's environment: it can neither be left alone nor be
/// dropped.
#[cold]
fn stray() -> ! {
    std::eprintln!(
        "bowline: a local task was resumed on a thread that is not its own: its scheduler is not that of a run loop which \
         the thread that made it drives; aborting"
    );
    std::process::abort()
}

per_thread! {
    /// The thread's name, once it was asked for.
    static THREAD: Cell<Option<thread::ThreadId>> = Cell::new(None);
}

/// The calling thread, by a name that no other one will ever have.
#[inline]
fn this_thread() -> thread::ThreadId {
    THREAD.with(|known| match known.get() {
        Some(id) => id,
        None => {
            let id = thread::current().id();
            known.set(Some(id));
            id
        }
    })
}

impl<T, E> fmt::Debug for LocalTask<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTask").finish_non_exhaustive()
    }
}

// SAFETY: the operation is that of a task, and so is where it completes.
unsafe impl<T: 'static, E: 'static> Sender for LocalTask<T, E> {
    type Value = T;
    type Error = E;
    const COMPLETES: Completes = Completes::OnStartScheduler;
    type Operation<R: Receiver<T, E>> = LocalTaskOperation<T, E, R>;

    #[inline]
    fn connect<R: Receiver<T, E>>(self, receiver: R) -> LocalTaskOperation<T, E, R> {
        const {
            demand(
                <R::Env as Env>::Scheduler::PRESENT,
                "a local task needs the run loop of its thread: write `sync_wait(task)`, or `run_loop.run_until(task)`",
            );
            demand(
                <R::Env as Env>::Scheduler::INFALLIBLE,
                "a local task needs the run loop of its thread: write `sync_wait(task)`, or `run_loop.run_until(task)`",
            );
        }
        LocalTaskOperation {
            operation: TaskOperation::new(self.task, receiver),
            _stays: PhantomData,
        }
    }
}

/// The operation of a [`LocalTask`].
pub struct LocalTaskOperation<T, E, R: Receiver<T, E>> {
    operation: TaskOperation<T, E, R>,
    _stays: PhantomData<*mut ()>,
}

impl<T, E, R: Receiver<T, E>> Operation for LocalTaskOperation<T, E, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: the operation is pinned with this.
        let operation = unsafe { self.map_unchecked_mut(|this| &mut this.operation) };
        let leaves = operation
            .scheduler()
            .is_some_and(|scheduler| scheduler.place() != 0 || TaskScheduler::new(scheduler) == InlineScheduler);
        if leaves {
            let why = "a local task stays on its thread, and this scheduler does not: write `sync_wait(task)`, or \
                       `run_loop.run_until(task)`";
            // SAFETY: nothing is moved but the receiver.
            return unsafe { operation.get_unchecked_mut() }.refuse(Panic::new(Box::new(why)));
        }
        // SAFETY: the caller's promise.
        unsafe { operation.start() }
    }
}

impl<T, E, R: Receiver<T, E>> fmt::Debug for LocalTaskOperation<T, E, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTaskOperation").finish_non_exhaustive()
    }
}

impl<T: 'static, E: 'static> IntoFuture for LocalTask<T, E> {
    type Output = Result<T, E>;
    type IntoFuture = LocalTaskFuture<T, E>;

    #[inline]
    fn into_future(self) -> LocalTaskFuture<T, E> {
        LocalTaskFuture {
            future: TaskFuture::new(self.task),
            _stays: PhantomData,
        }
    }
}

/// A local task that is awaited.
#[must_use = "futures do nothing until they are awaited"]
#[derive(Debug)]
pub struct LocalTaskFuture<T, E> {
    future: TaskFuture<T, E>,
    _stays: PhantomData<*mut ()>,
}

impl<T: 'static, E: 'static> Future for LocalTaskFuture<T, E> {
    type Output = Result<T, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>> {
        // SAFETY: the future is pinned with this.
        unsafe { self.map_unchecked_mut(|this| &mut this.future) }.poll(cx)
    }
}
