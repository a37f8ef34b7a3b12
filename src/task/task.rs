use core::convert::Infallible;
use core::fmt;
use core::future::Future;
use core::marker::{PhantomData, PhantomPinned};
use core::mem;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};
use std::boxed::Box;

use super::context::Context;
use super::frame::{self, Continuation, Header, Vtable};
use crate::scheduler::{InlineScheduler, TaskScheduler};
use crate::sender::demand::demand;
use crate::sender::env::Beneath;
use crate::stop::ErasedStopToken;
use crate::{Completes, Completion, Env, Operation, Panic, Receiver, Scheduler, Sender, Transfer};

/// A coroutine: an `async` block that is a sender.
#[must_use = "tasks do nothing until they are awaited, or connected and started"]
pub struct Task<T, E = Infallible> {
    frame: NonNull<Header>,
    _result: PhantomData<fn() -> (T, E)>,
}

// SAFETY: the future is `Send`, and so is the result.
unsafe impl<T: Send, E: Send> Send for Task<T, E> {}

impl<T: Send + 'static> Task<T> {
    /// A task of a future, whose output is the value.
    #[inline]
    pub fn new<F>(future: F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        Task::from_future(Plain(future))
    }
}

impl<T: Send + 'static, E: Send + 'static> Task<T, E> {
    /// A task of a future whose output is a value or an error.
    #[inline]
    pub fn try_new<F>(future: F) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        Task::from_future(Try(future))
    }

    #[inline]
    fn from_future<P: Produce<T, E>>(future: P) -> Self {
        let mut frame = Box::<Frame<P, T, E>>::new_uninit();
        let place = frame.as_mut_ptr();
        // SAFETY: both fields are written, where they are to stay.
        let frame = unsafe {
            (&raw mut (*place).header).write(Header::new(Frame::<P, T, E>::VTABLE));
            (&raw mut (*place).stage).write(FrameStage::Future(future));
            frame.assume_init()
        };
        Task {
            frame: NonNull::from(Box::leak(frame)).cast(),
            _result: PhantomData,
        }
    }
}

/// A future, and how its output is a completion.
trait Produce<T, E> {
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>>;
}

struct Plain<F>(F);
struct Try<F>(F);

impl<T, E, F: Future<Output = T>> Produce<T, E> for Plain<F> {
    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>> {
        // SAFETY: the future is pinned with this.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(cx).map(Ok)
    }
}

impl<T, E, F: Future<Output = Result<T, E>>> Produce<T, E> for Try<F> {
    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>> {
        // SAFETY: the future is pinned with this.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(cx)
    }
}

#[repr(C)]
struct Frame<P, T, E> {
    header: Header,
    stage: FrameStage<P, T, E>,
}

enum FrameStage<P, T, E> {
    Future(P),
    Result(Completion<T, E>),
    Empty,
}

impl<P: Produce<T, E>, T, E> Frame<P, T, E> {
    const VTABLE: &'static Vtable = &Vtable {
        poll: Self::poll,
        take: Self::take,
        free: Self::free,
    };

    /// # Safety
    ///
    /// The header is that of such a frame, which the caller may poll.
    unsafe fn poll(header: NonNull<Header>) -> bool {
        // SAFETY: by the caller's promise. The header is shared, the stage is ours.
        let (shared, stage) = unsafe { (header.as_ref(), &raw mut (*header.cast::<Self>().as_ptr()).stage) };
        // SAFETY: as above.
        let waker = unsafe { frame::waker(header) };
        let polled = Panic::catch(|| {
            let mut completion = Completion::Stopped;
            if !shared.is_stopped() {
                // SAFETY: as above. A frame does not move.
                let future = match unsafe { &mut *stage } {
                    FrameStage::Future(future) => unsafe { Pin::new_unchecked(future) },
                    _ => return None,
                };
                match future.poll(&mut Cx::from_waker(&waker)) {
                    Poll::Ready(Ok(value)) => completion = Completion::Value(value),
                    Poll::Ready(Err(error)) => completion = Completion::Error(error),
                    Poll::Pending if shared.is_stopped() => {}
                    Poll::Pending => return None,
                }
            }
            // Its locals go before the result is seen.
            // SAFETY: as above.
            unsafe { *stage = FrameStage::Empty };
            Some(completion)
        });
        let completion = match polled {
            Ok(None) => return false,
            Ok(Some(completion)) => completion,
            Err(payload) => {
                // What panicked may have been the future, which is still there then.
                // SAFETY: as above.
                match Panic::catch(|| unsafe { *stage = FrameStage::Empty }) {
                    Ok(()) => Completion::Panicked(payload),
                    Err(second) => Completion::Panicked(second),
                }
            }
        };
        // SAFETY: as above. There is nothing there to be dropped.
        unsafe { stage.write(FrameStage::Result(completion)) };
        true
    }

    /// # Safety
    ///
    /// The frame is done, and the caller owns it; there is room for the result.
    unsafe fn take(header: NonNull<Header>, room: NonNull<()>) {
        // SAFETY: by the caller's promise.
        let stage = unsafe { &mut (*header.cast::<Self>().as_ptr()).stage };
        let completion = match mem::replace(stage, FrameStage::Empty) {
            FrameStage::Result(completion) => completion,
            _ => Completion::Stopped,
        };
        // SAFETY: as above.
        unsafe { room.cast().write(completion) };
    }

    /// # Safety
    ///
    /// Nobody uses the frame any more.
    unsafe fn free(header: NonNull<Header>) {
        // SAFETY: by the caller's promise; it was leaked from a box.
        drop(unsafe { Box::from_raw(header.cast::<Self>().as_ptr()) });
    }
}

impl<T, E> Drop for Task<T, E> {
    fn drop(&mut self) {
        // SAFETY: the frame is ours, and was not started, or is done.
        unsafe { Header::release(self.frame) };
    }
}

impl<T, E> fmt::Debug for Task<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").finish_non_exhaustive()
    }
}

// SAFETY: the operation touches nothing of itself after its completion; it is `!Unpin`. The task runs on its scheduler
// alone, which is that of the receiver's environment.
unsafe impl<T: Send + 'static, E: Send + 'static> Sender for Task<T, E> {
    type Value = T;
    type Error = E;
    const COMPLETES: Completes = Completes::OnStartScheduler;
    type Operation<R: Receiver<T, E>> = TaskOperation<T, E, R>;

    #[inline]
    fn connect<R: Receiver<T, E>>(self, receiver: R) -> TaskOperation<T, E, R> {
        const {
            demand(
                <R::Env as Env>::Scheduler::PRESENT,
                "a task needs a scheduler to run on: write `starts_on(scheduler, task)`",
            );
            demand(
                <R::Env as Env>::Scheduler::INFALLIBLE,
                "a task needs a scheduler that cannot fail: write `starts_on(scheduler.or_inline(), task)`, or `or_abort()`",
            );
        }
        TaskOperation {
            task: self,
            receiver: Some(receiver),
            outside: None,
            context: None,
            _pinned: PhantomPinned,
        }
    }
}

/// The operation of a [`Task`].
pub struct TaskOperation<T, E, R: Receiver<T, E>> {
    task: Task<T, E>,
    receiver: Option<R>,
    /// What the context points at.
    outside: Option<(R::Env, <R::Env as Env>::StopToken)>,
    context: Option<Context>,
    _pinned: PhantomPinned,
}

impl<T: Send + 'static, E: Send + 'static, R: Receiver<T, E>> TaskOperation<T, E, R> {
    /// # Safety
    ///
    /// The pointer is to a started operation, whose frame is done.
    unsafe fn complete(this: NonNull<()>) -> Transfer {
        // SAFETY: by the caller's promise, nobody else touches the operation.
        let this = unsafe { &mut *this.cast::<Self>().as_ptr() };
        // SAFETY: the frame is done.
        let completion: Completion<T, E> = unsafe { Header::take(this.task.frame) };
        this.context = None;
        this.outside = None;
        match this.receiver.take() {
            Some(receiver) => completion.deliver(receiver),
            None => Transfer::none(),
        }
    }

    /// # Safety
    ///
    /// The place is an environment of this type.
    unsafe fn look(
        place: NonNull<()>,
        id: core::any::TypeId,
        found: &mut dyn FnMut(&dyn core::any::Any),
    ) -> Option<Beneath<'static>> {
        // SAFETY: by the caller's promise. What is returned is used only while the place is there.
        unsafe {
            place
                .cast::<R::Env>()
                .as_ref()
                .look(id, found)
                .map(|beneath| beneath.extend())
        }
    }
}

impl<T: Send + 'static, E: Send + 'static, R: Receiver<T, E>> Operation for TaskOperation<T, E, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        let Some(receiver) = &this.receiver else {
            return Transfer::none();
        };
        let env = receiver.env();
        let token = env.stop_token();
        let scheduler = env.scheduler();
        let anywhere = TaskScheduler::new(scheduler.clone()) == InlineScheduler;
        let place = scheduler.place();
        let scheduler = TaskScheduler::new(scheduler);
        // SAFETY: what the scheduler borrows is there until the receiver completes, and the task is done before.
        let scheduler = unsafe { mem::transmute::<TaskScheduler<'_>, TaskScheduler<'static>>(scheduler) };
        let (env, token) = this.outside.insert((env, token));
        let context = this.context.insert(Context {
            scheduler,
            // SAFETY: the token is kept beside it.
            token: unsafe { ErasedStopToken::new(token) },
            outside: (NonNull::from(env).cast(), Self::look),
            anywhere,
            place,
        });
        let (frame, context) = (this.task.frame, NonNull::from(context));
        let this = NonNull::from(this).cast();
        // SAFETY: the operation is pinned, and with it the context, until the task is done.
        unsafe { Header::begin(frame, context, Continuation::operation(this, Self::complete)) }
    }
}

impl<T, E, R: Receiver<T, E>> fmt::Debug for TaskOperation<T, E, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskOperation").finish_non_exhaustive()
    }
}

impl<T: Send + 'static, E: Send + 'static> IntoFuture for Task<T, E> {
    type Output = Result<T, E>;
    type IntoFuture = TaskFuture<T, E>;

    #[inline]
    fn into_future(self) -> TaskFuture<T, E> {
        TaskFuture {
            task: self,
            started: false,
        }
    }
}

/// A task that is awaited.
#[must_use = "futures do nothing until they are awaited"]
#[derive(Debug)]
pub struct TaskFuture<T, E> {
    task: Task<T, E>,
    started: bool,
}

impl<T: Send + 'static, E: Send + 'static> Future for TaskFuture<T, E> {
    type Output = Result<T, E>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>> {
        let Some(parent) = frame::frame_of(cx.waker()) else {
            todo!("foreign executors")
        };
        let frame = self.task.frame;
        if !self.started {
            self.started = true;
            // SAFETY: this is what the parent's poll is running.
            unsafe { Header::await_child(parent, frame) };
            return Poll::Pending;
        }
        // SAFETY: we own the frame.
        if !unsafe { Header::is_done(frame) } {
            return Poll::Pending;
        }
        // SAFETY: it is done.
        match unsafe { Header::take::<Completion<T, E>>(frame) } {
            Completion::Value(value) => Poll::Ready(Ok(value)),
            Completion::Error(error) => Poll::Ready(Err(error)),
            Completion::Panicked(payload) => payload.resume(),
            Completion::Stopped => Poll::Pending,
        }
    }
}
