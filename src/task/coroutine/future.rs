//! Awaiting a task.

use core::future::Future;
use core::mem::{self, ManuallyDrop, MaybeUninit};
use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::task::{Context as Cx, Poll};

use super::Task;
use crate::Completion;
use crate::sender::unwind::AbortOnUnwind;
use crate::task::awaiting::{Foreign, conclude, foreign};
use crate::task::frame::{Header, Polled, Polling, ScopeMark, Site};

/// An awaited task, created by `.await` or by [`IntoFuture::into_future`].
///
/// In another task it runs as part of that, on the same scheduler. In an executor of another crate it runs like a sender there,
/// with the executor as its scheduler: see [`SenderFuture`](crate::task::SenderFuture).
///
/// Dropping it before the end ends the task: the task's future is dropped where it runs, which asks its awaits to stop. The
/// drop returns at once, and the awaiting task ends after that. In an executor of another crate the task does not resume after
/// its current `.await`.
///
/// # Panics
///
/// The task's panic unwinds. A task that stops also stops the awaiting task; outside of a task, this panics.
/// [`stopped_as_option`](crate::Sender::stopped_as_option) and similar adaptors turn the stop into a value. Panics if it is
/// polled in another task than at its first poll, before it is done.
#[must_use = "futures do nothing until they are awaited"]
pub struct TaskFuture<T, E> {
    stage: ManuallyDrop<TaskStage<T, E>>,
    site: Site,
}

enum TaskStage<T, E> {
    Unstarted(Task<T, E>),
    /// Started in that scope; a frame awaits it.
    Started(ScopeMark, Task<T, E>),
    /// Started outside of a task.
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
    #[cfg_attr(feature = "inspect", track_caller)]
    #[inline]
    pub(super) fn new(task: Task<T, E>) -> Self {
        TaskFuture {
            stage: ManuallyDrop::new(TaskStage::Unstarted(task)),
            site: Site::here(),
        }
    }

    /// Drops the current stage.
    #[inline(never)]
    fn end(&mut self) {
        if let TaskStage::Started(_, task) = &*self.stage {
            // SAFETY: the future owns the frame, which was started, and drops it next.
            unsafe { Header::abandon(task.frame()) };
        }
        // SAFETY: called by the drop of the whole, so the stage is dropped once.
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
        let (began_in, frame) = match &*self.stage {
            TaskStage::Unstarted(task) => {
                let frame = task.frame();
                let mut room = MaybeUninit::<Completion<T, E>>::uninit();
                let guard = AbortOnUnwind::new();
                // SAFETY: the future owns the frame, which was not started; `room` has the type of the result.
                let polled =
                    unsafe { Header::await_child(polling, frame, NonNull::new_unchecked(room.as_mut_ptr()).cast()) };
                guard.defuse();
                if polled == Polled::Gone {
                    // SAFETY: the frame was freed, so the overwritten owner is not dropped. The poll wrote the result.
                    unsafe {
                        ptr::write(&raw mut *self.stage, TaskStage::Over);
                        return conclude(polling, room.assume_init());
                    }
                }
                // SAFETY: the frame passes on to the new owner, so the overwritten one is not dropped.
                unsafe {
                    ptr::write(
                        &raw mut *self.stage,
                        TaskStage::Started(polling.scope_mark(), Task::of_frame(frame)),
                    )
                };
                if polled == Polled::Pending {
                    polling.waits();
                    polling.activity().awaits_around(self.site);
                    return Poll::Pending;
                }
                (polling.scope_mark(), frame)
            }
            TaskStage::Started(began_in, task) => (*began_in, task.frame()),
            TaskStage::Foreign(_) | TaskStage::Over => return self.poll_foreign(cx),
        };
        // SAFETY: the future owns the frame, which was started.
        if !unsafe { Header::is_done(frame) || Header::end_held(polling.frame(), frame) } {
            // SAFETY: the future owns the frame, which was started.
            let began_here = unsafe { Header::is_parent(polling.frame(), frame) };
            assert!(
                began_here,
                "a task that is awaited was sent to another task: await it in the one where that began",
            );
            match began_in == polling.scope_mark() {
                true => polling.waits(),
                false => polling.waits_outside(),
            }
            polling.activity().awaits_around(self.site);
            return Poll::Pending;
        }
        // The frame is freed with the result, so the overwritten owner is not dropped.
        // SAFETY: the place is valid for a write.
        unsafe { ptr::write(&raw mut *self.stage, TaskStage::Over) };
        // SAFETY: the frame is done, and the future owned it until here.
        conclude(polling, unsafe { Header::take_awaited(polling.frame(), frame) })
    }
}

impl<T: Send + 'static, E: Send + 'static> TaskFuture<T, E> {
    /// Polls outside of a task, or a task that was started there.
    #[cold]
    #[inline(never)]
    fn poll_foreign(&mut self, cx: &Cx<'_>) -> Poll<Result<T, E>> {
        let mut foreign = match mem::replace(&mut *self.stage, TaskStage::Over) {
            TaskStage::Unstarted(task) => Foreign::start(task),
            TaskStage::Foreign(foreign) => foreign,
            TaskStage::Over => return Poll::Pending,
            TaskStage::Started(began_in, task) => {
                let frame = task.frame();
                *self.stage = TaskStage::Started(began_in, task);
                // SAFETY: the future owns the frame, which was started.
                let is_done = || unsafe { Header::is_done(frame) };
                let is_done = is_done()
                    || Polling::with(|polling| {
                        // SAFETY: the future owns the frame, which was started.
                        match polling.filter(|polling| unsafe { Header::is_parent(polling.frame(), frame) }) {
                            Some(polling) => {
                                let began_here = began_in == polling.scope_mark();
                                polling.wakes_also(frame.cast(), cx.waker(), began_here, is_done)
                            }
                            None => panic!(
                                "a task that is awaited in a task was sent elsewhere: await it in the task where that \
                                 began"
                            ),
                        }
                    });
                if !is_done {
                    return Poll::Pending;
                }
                mem::forget(mem::replace(&mut *self.stage, TaskStage::Over));
                // SAFETY: the frame is done, and the future owned it until here.
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
