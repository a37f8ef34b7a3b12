//! The environment of awaited senders.

use core::any::{Any, TypeId};
use core::ptr::NonNull;

use super::{AwaitState, TaskToken};
use crate::scheduler::TaskScheduler;
use crate::sender::env::{Awaiting, Beneath, EnvDoor};
use crate::sync::OnceLock;
use crate::task::frame::{Header, Home};
use crate::task::strand::{Awaiter, Context};
use crate::{Env, Priority};

/// The environment of an awaited sender, in a task and in other executors.
///
/// Its scheduler and its stop token are those of the task. Other queries go to the task's [context](crate::task::TaskContext),
/// then to the environment in which the task was started.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::Task;
///
/// #[derive(Clone, Debug, PartialEq)]
/// struct User(&'static str);
///
/// let task = Task::new(async {
///     let Ok(stopped) = read_env(StopRequested).await;
///     let Ok(user) = read_env(Get::<User>::new()).await;
///     (stopped, user)
/// });
/// let outcome = sync_wait(task.write_env(With(User("Ada"))));
/// assert_eq!(outcome.unwrap(), (false, Some(User("Ada"))));
/// ```
#[derive(Clone)]
pub struct TaskEnv {
    context: NonNull<Context>,
    /// The await, if it can be stopped alone.
    state: Option<NonNull<AwaitState>>,
    /// Whether the await has the waker of another executor; the context then knows its task.
    pub(super) is_foreign: bool,
}

// SAFETY: the context is `Sync`: a scheduler, a token, and an environment.
unsafe impl Send for TaskEnv {}
// SAFETY: as for `Send`.
unsafe impl Sync for TaskEnv {}

impl TaskEnv {
    /// # Safety
    ///
    /// The context and the state are valid as long as this is used.
    #[inline]
    pub(in crate::task) unsafe fn new(context: NonNull<Context>, state: Option<NonNull<AwaitState>>) -> Self {
        TaskEnv {
            context,
            state,
            is_foreign: false,
        }
    }

    fn context(&self) -> &Context {
        // SAFETY: `new`'s contract.
        unsafe { self.context.as_ref() }
    }
}

impl Env for TaskEnv {
    type StopToken = TaskToken;
    type Scheduler = TaskScheduler<'static>;

    #[inline]
    fn stop_token(&self) -> TaskToken {
        // SAFETY: the token is used no longer than this environment.
        unsafe { TaskToken::new(self.context().token, self.state) }
    }

    #[inline]
    fn scheduler(&self) -> TaskScheduler<'static> {
        // SAFETY: the scheduler and its borrows are valid until the task is done, as long as an answer is used.
        unsafe { self.context().placement.home.scheduler() }
    }

    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        self.beneath().visit(id, found);
    }

    #[inline]
    fn priority(&self) -> Option<Priority> {
        // SAFETY: `new`'s contract: the state is valid. An environment without one is queried during the frame's poll.
        unsafe {
            let frame = match self.state {
                Some(state) => Some(state.as_ref().frame),
                None => Header::current().filter(|frame| Header::context(*frame) == self.context),
            };
            match frame {
                Some(frame) => Header::unit(frame).as_ref().level_in(self.context()),
                None => self.context().priority,
            }
        }
    }

    #[inline]
    fn door(&self) -> EnvDoor<'_> {
        // SAFETY: `new`'s contract: state and context are valid until the receiver completes. The frame and the context that
        // the state names wait for that.
        unsafe {
            let around = match self.state {
                Some(state) => Some(Awaiter {
                    frame: state.as_ref().frame,
                    context: state.as_ref().context(),
                }),
                None if self.is_foreign => self.context().around,
                None => None,
            };
            let awaiting = around.map(|around| Awaiting {
                frame: around.frame.cast(),
                context: around.context.cast(),
            });
            EnvDoor::new(self.beneath())
                .awaited_by(awaiting)
                .at_home(NonNull::from(&self.context().placement.home).cast())
        }
    }
}

impl TaskEnv {
    #[inline]
    fn beneath(&self) -> Beneath<'_> {
        // SAFETY: the result borrows this.
        unsafe { Beneath::new(NonNull::from(self).cast(), Self::look) }
    }

    /// # Safety
    ///
    /// `place` is a `TaskEnv` that is alive.
    unsafe fn look(place: NonNull<()>, id: TypeId, found: &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'static>> {
        // SAFETY: the caller's promise.
        let this = unsafe { place.cast::<Self>().as_ref() };
        if id == TypeId::of::<Priority>()
            && let Some(priority) = this.priority()
        {
            // The current level, including raises.
            found(&priority);
            return None;
        }
        let (place, look) = this.context().outside;
        // SAFETY: the outer environment is valid as long as the context.
        Some(unsafe { Beneath::new(place, look) })
    }
}

crate::opaque!([] TaskEnv);

/// Returns the environment of the inline scheduler, which never stops.
pub(in crate::task) fn anywhere() -> TaskEnv {
    static ANYWHERE: OnceLock<Context> = OnceLock::new();
    let context = ANYWHERE.get_or_init(|| Context::of_home(Home::anywhere()));
    // SAFETY: a static is always valid.
    unsafe { TaskEnv::new(NonNull::from(context), None) }
}
