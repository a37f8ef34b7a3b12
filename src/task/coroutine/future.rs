//! Awaiting a task.

use core::future::Future;
use core::mem::{self, ManuallyDrop, MaybeUninit};
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};

use super::Task;
use crate::Completion;
use crate::task::awaiting::{Foreign, conclude, foreign};
use crate::task::frame::{Header, Polled, Polling};

/// A task that is awaited. Made by `.await`, or by [`IntoFuture::into_future`].
///
/// In another task it runs as part of that, on the same scheduler. In an executor of another crate it runs as a sender
/// does there, see [`SenderFuture`](crate::task::SenderFuture): the executor is its scheduler.
///
/// Dropped before it is done, it ends the task: its future is dropped where it runs, which asks what it awaits to stop. The drop
/// returns at once, and the task that awaited it does not end before that. In an executor of another crate the task goes no
/// further than the `.await` it is at.
///
/// # Panics
///
/// The task's panic unwinds. A task that stops stops the task that awaits it; where there is none, this panics:
/// [`stopped_as_option`](crate::Sender::stopped_as_option) and its like make a value of the stop. It also panics when it is
/// sent to another task after its first poll, and polled there before it is done.
#[must_use = "futures do nothing until they are awaited"]
pub struct TaskFuture<T, E> {
    stage: ManuallyDrop<TaskStage<T, E>>,
}

enum TaskStage<T, E> {
    Unstarted(Task<T, E>),
    /// A frame awaits it.
    Started(Task<T, E>),
    /// It was started outside of a task.
    Foreign(Foreign<T, E>),
    Over,
}

crate::opaque!([T, E] TaskFuture<T, E>);

impl<T, E> Drop for TaskFuture<T, E> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(*self.stage, TaskStage::Over) {
            self.end();
        }
    }
}

impl<T, E> TaskFuture<T, E> {
    #[inline]
    pub(super) fn new(task: Task<T, E>) -> Self {
        TaskFuture {
            stage: ManuallyDrop::new(TaskStage::Unstarted(task)),
        }
    }

    /// Takes the task back, if it was not started.
    pub(in crate::task) fn take_unstarted(&mut self) -> Option<Task<T, E>> {
        match mem::replace(&mut *self.stage, TaskStage::Over) {
            TaskStage::Unstarted(task) => Some(task),
            other => {
                *self.stage = other;
                None
            }
        }
    }

    /// Drops what is there.
    #[inline(never)]
    fn end(&mut self) {
        if let TaskStage::Started(task) = &*self.stage {
            // SAFETY: we own the frame; it was started, and we let go of it next.
            unsafe { Header::abandon(task.frame()) };
        }
        // SAFETY: it is dropped this once: this is the drop of the whole.
        unsafe { ManuallyDrop::drop(&mut self.stage) };
    }
}

impl<T: Send + 'static, E: Send + 'static> Future for TaskFuture<T, E> {
    type Output = Result<T, E>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>> {
        let Some(polling) = Polling::with_waker_of(cx) else {
            return self.poll_foreign(cx);
        };
        let frame = match mem::replace(&mut *self.stage, TaskStage::Over) {
            TaskStage::Unstarted(task) => {
                let frame = task.into_frame();
                let mut room = MaybeUninit::<Completion<T, E>>::uninit();
                // SAFETY: the frame is ours, and was not started; there is room.
                let polled =
                    unsafe { Header::await_child(polling, frame, NonNull::new_unchecked(room.as_mut_ptr()).cast()) };
                if polled == Polled::Gone {
                    // SAFETY: the result was put there.
                    return conclude(polling, unsafe { room.assume_init() });
                }
                *self.stage = TaskStage::Started(Task::of_frame(frame));
                if polled == Polled::Pending {
                    return Poll::Pending;
                }
                frame
            }
            TaskStage::Started(task) => {
                let frame = task.frame();
                *self.stage = TaskStage::Started(task);
                frame
            }
            other => {
                *self.stage = other;
                return self.poll_foreign(cx);
            }
        };
        // SAFETY: we own the frame, and it was started.
        if !unsafe { Header::is_done(frame) } {
            // SAFETY: as above.
            let began_here = unsafe { Header::is_parent(polling.frame(), frame) };
            assert!(
                began_here,
                "a task that is awaited was sent to another task: await it in the one where that began",
            );
            return Poll::Pending;
        }
        // The frame goes with the result.
        mem::forget(mem::replace(&mut *self.stage, TaskStage::Over));
        // SAFETY: it is done, and was ours.
        conclude(polling, unsafe { Header::take_awaited(polling.frame(), frame) })
    }
}

impl<T: Send + 'static, E: Send + 'static> TaskFuture<T, E> {
    /// Polls outside of a task, or what was started there.
    #[cold]
    #[inline(never)]
    fn poll_foreign(&mut self, cx: &Cx<'_>) -> Poll<Result<T, E>> {
        let mut foreign = match mem::replace(&mut *self.stage, TaskStage::Over) {
            TaskStage::Unstarted(task) => Foreign::start(task),
            TaskStage::Foreign(foreign) => foreign,
            TaskStage::Over => return Poll::Pending,
            TaskStage::Started(task) => {
                let frame = task.frame();
                *self.stage = TaskStage::Started(task);
                // SAFETY: this owns the frame, which was started.
                if !unsafe { Header::is_done(frame) } {
                    // SAFETY: as above.
                    let began_here =
                        Header::current().is_some_and(|parent| unsafe { Header::is_parent(parent, frame) });
                    assert!(
                        began_here,
                        "a task that is awaited in a task was sent elsewhere: await it in the task where that began",
                    );
                    // Its end wakes the task that awaits it. What polls it now, in there, looks again.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                mem::forget(mem::replace(&mut *self.stage, TaskStage::Over));
                // SAFETY: it is done, and was ours.
                let completion = unsafe {
                    match Header::current() {
                        Some(parent) => Header::take_awaited(parent, frame),
                        None => Header::take(frame),
                    }
                };
                return Poll::Ready(foreign::conclude(completion));
            }
        };
        match foreign.poll(cx) {
            Poll::Ready(completion) => Poll::Ready(foreign::conclude(completion)),
            Poll::Pending => {
                *self.stage = TaskStage::Foreign(foreign);
                Poll::Pending
            }
        }
    }
}
