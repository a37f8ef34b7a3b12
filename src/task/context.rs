//! Where a task runs: what all frames of one chain of awaits share.

use core::any::{Any, TypeId};
use core::fmt;
use core::ptr::NonNull;

use super::await_state::{AwaitState, TaskToken};
use crate::scheduler::TaskScheduler;
use crate::scheduler::thread_pool::{Entry, Worker};
use crate::sender::env::{Beneath, Look, visit_all};
use crate::stop::ErasedStopToken;
use crate::{Env, Scheduler, Transfer};

/// What a task has from the receiver it was connected to. It lives in the operation, and the frames point at it.
pub(crate) struct Context {
    /// Not to be used once the task is done: it may borrow what the receiver's environment does.
    pub(super) scheduler: TaskScheduler<'static>,
    pub(super) token: ErasedStopToken,
    /// Asks the receiver's environment for a value of the user's own.
    pub(super) outside: (NonNull<()>, Look),
    /// The scheduler is the inline one: wherever something completes is right.
    pub(super) anywhere: bool,
    pub(super) place: usize,
}

impl Context {
    /// Whether the calling thread is where the task runs.
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        self.anywhere || self.place != 0 && Worker::current().is_some_and(|worker| worker.place() == self.place)
    }

    /// Queues a frame with the scheduler.
    ///
    /// # Safety
    ///
    /// The entry is that of a frame that is busy and in no queue.
    #[inline]
    pub(super) unsafe fn enqueue(&self, entry: NonNull<Entry>) -> Transfer {
        // SAFETY: by the caller's promise.
        unsafe { self.scheduler.enqueue(entry) }
    }
}

/// The environment of what a task awaits.
#[derive(Clone)]
pub struct TaskEnv {
    context: NonNull<Context>,
    /// The await, if it can be stopped alone.
    state: Option<NonNull<AwaitState>>,
}

// SAFETY: the context is `Sync`: a scheduler, a token, and an environment.
unsafe impl Send for TaskEnv {}
// SAFETY: as above.
unsafe impl Sync for TaskEnv {}

impl TaskEnv {
    /// # Safety
    ///
    /// The context, and the state, are there for as long as this is used.
    #[inline]
    pub(super) unsafe fn new(context: NonNull<Context>, state: Option<NonNull<AwaitState>>) -> Self {
        TaskEnv { context, state }
    }

    fn context(&self) -> &Context {
        // SAFETY: by the promise of `new`.
        unsafe { self.context.as_ref() }
    }
}

impl Env for TaskEnv {
    type StopToken = TaskToken;
    type Scheduler = TaskScheduler<'static>;

    #[inline]
    fn stop_token(&self) -> TaskToken {
        // SAFETY: as for this environment.
        unsafe { TaskToken::new(self.context().token, self.state) }
    }

    #[inline]
    fn scheduler(&self) -> TaskScheduler<'static> {
        self.context().scheduler.clone()
    }

    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        visit_all(self, id, found);
    }

    fn look(&self, _: TypeId, _: &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'_>> {
        let (place, look) = self.context().outside;
        // SAFETY: the environment outside is there as long as the context.
        Some(unsafe { Beneath::new(place, look) })
    }
}

impl fmt::Debug for TaskEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskEnv").finish_non_exhaustive()
    }
}
