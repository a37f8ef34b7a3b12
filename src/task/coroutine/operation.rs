//! The operation of a task that is connected to a receiver: it starts the frame, and completes the receiver when the frame is
//! done.

use core::marker::PhantomPinned;
use core::mem::MaybeUninit;
use core::pin::Pin;
use core::ptr::NonNull;
use std::boxed::Box;
use std::format;

use super::{ContextScheduler, DefaultContext, Task, TaskContext};
use crate::sender::env::look_in;
use crate::stop::ErasedStopToken;
use crate::task::awaiting::LocalHome;
use crate::task::frame::{FrameSuccessor, Header, Home, NotedDeadline, Placement};
use crate::task::strand::{Awaiter, Context, Unit};
use crate::{Completion, Env, Operation, Panic, Receiver, Scheduler, Transfer};

/// The scheduler of a task with a context, in an environment.
pub(super) type SchedulerIn<Cx, N> = <<Cx as TaskContext>::Scheduler as ContextScheduler>::In<N>;

/// The operation of a [`Task`](crate::task::Task).
pub struct TaskOperation<T, E, R: Receiver<T, E>, Cx: TaskContext = DefaultContext> {
    /// Taken by the completion, as is the receiver.
    task: Option<Task<T, E, Cx>>,
    receiver: Option<R>,
    /// The environment that the context points at, from the start to the completion.
    outside: Option<OutsideEnv<R::Env>>,
    /// The task's scheduler, from the start to the completion, unless the enclosing task owns it.
    scheduler: Option<SchedulerIn<Cx, R::Env>>,
    /// The record of a local task that runs in an executor of another crate, from the start to the completion.
    local: Option<LocalHome>,
    /// Written by the start, after all user code has returned; so is the unit.
    context: MaybeUninit<Context>,
    unit: MaybeUninit<Unit>,
    _pinned: PhantomPinned,
}

/// An environment, and its stop token.
type OutsideEnv<N> = (N, <N as Env>::StopToken);

// SAFETY: as for the task; the receiver and its environment are `Send`.
unsafe impl<T: Send, E: Send, R: Receiver<T, E>, Cx: TaskContext> Send for TaskOperation<T, E, R, Cx> {}

impl<T: Send + 'static, E: Send + 'static, R: Receiver<T, E>, Cx: TaskContext> TaskOperation<T, E, R, Cx> {
    #[inline]
    pub(super) fn new(task: Task<T, E, Cx>, receiver: R) -> Self {
        TaskOperation {
            task: Some(task),
            receiver: Some(receiver),
            outside: None,
            scheduler: None,
            local: None,
            context: MaybeUninit::uninit(),
            unit: MaybeUninit::uninit(),
            _pinned: PhantomPinned,
        }
    }

    /// # Safety
    ///
    /// `this` is a started operation, whose frame is done.
    unsafe fn complete(this: NonNull<()>) -> Transfer {
        // SAFETY: the caller's promise: the frame is done, so this call has exclusive access, and all users of the home are done.
        // The start wrote its fields. They are dropped once, before the completion, after which their borrows may be invalid.
        unsafe {
            let this = &mut *this.cast::<Self>().as_ptr();
            let Some(frame) = this.task.take().map(Task::into_frame) else {
                return Transfer::none();
            };
            if let Some(local) = this.local.take() {
                local.forget(frame);
            }
            let home = this.context.assume_init_ref().placement.home;
            // A home of the enclosing task belongs to another operation.
            home.take_back(NonNull::from(&*this).cast(), frame);
            this.unit.assume_init_ref().end();
            this.unit.assume_init_drop();
            let completion: Completion<T, E> = Header::take(frame);
            this.scheduler = None;
            this.outside = None;
            completion.deliver_to(this.receiver.take())
        }
    }

    /// Completes with a panic instead of starting the task, which is dropped first.
    #[cold]
    fn fail(&mut self, payload: Panic) -> Transfer {
        let _ = Panic::catch(|| self.task = None).map_err(Panic::discard);
        self.scheduler = None;
        self.local = None;
        self.outside = None;
        Completion::Panicked(payload).deliver_to(self.receiver.take())
    }

    /// Queries the receiver, its environment and the scheduler for everything that the task needs.
    ///
    /// The context points at the environment and the scheduler, which are fields of the operation from here on.
    ///
    /// # Errors
    ///
    /// The panic of user code. Earlier answers are in the fields, or dropped.
    ///
    /// # Safety
    ///
    /// The operation is pinned, and was not started. The frame is that of its task.
    unsafe fn ask(&mut self, frame: NonNull<Header>) -> Result<Context, Panic> {
        let owner = NonNull::from(&mut *self).cast();
        Panic::catch(|| {
            let Some(receiver) = &self.receiver else {
                unreachable!("the completion takes the receiver");
            };
            let env = receiver.env();
            let (token, priority) = (env.stop_token(), env.priority());
            let (env, token) = &*self.outside.insert((env, token));
            // SAFETY: the operation owns the frame.
            if unsafe { Header::is_local(frame) } {
                self.local = ask_for_home(env);
            }
            // SAFETY: everything is used until the task is done, which is before the receiver completes: the answers of the
            // environment, the token and the scheduler, which are pinned with the operation, and the context of an awaiting task.
            // The frame is owned by this operation; it is started next, and completes this operation.
            unsafe {
                let around = Awaiter::of(env);
                let outer = around.map(|around| around.context.as_ref());
                let home = match Cx::Scheduler::ANYWHERE {
                    true => Some(Home::anywhere()),
                    false => Home::behind(&env.door()),
                };
                let home = match home {
                    Some(home) => Ok(home),
                    None => Home::of(self.scheduler.insert(Cx::Scheduler::of(env)), frame, owner),
                };
                let home = home.unwrap_or_else(|error| {
                    let why = format!("cannot start a task on a scheduler of your own: {error}");
                    Header::fail(frame, Panic::new(Box::new(why)));
                    Home::anywhere()
                });
                Context {
                    placement: Placement {
                        home,
                        priority,
                        scope: None,
                        deadline_around: NotedDeadline::NEVER,
                    },
                    token: ErasedStopToken::new(token),
                    outside: (NonNull::from(env).cast(), look_in::<R::Env>),
                    around,
                    deadline: outer.and_then(|outer| outer.deadline),
                    locals: outer.and_then(|outer| outer.locals),
                    is_local: Header::is_local(frame),
                }
            }
        })
    }
}

impl<T: Send + 'static, E: Send + 'static, R: Receiver<T, E>, Cx: TaskContext> Operation
    for TaskOperation<T, E, R, Cx>
{
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        let Some(frame) = this.task.as_ref().map(Task::frame) else {
            return Transfer::none();
        };
        // SAFETY: the operation is pinned and not started, by the contract of `start`.
        let context = match unsafe { this.ask(frame) } {
            Ok(context) => context,
            Err(payload) => return this.fail(payload),
        };
        // SAFETY: the awaiting task waits for this operation.
        let outer = context.around.map(|around| unsafe { Header::unit(around.frame) });
        let context = NonNull::from(this.context.write(context));
        // SAFETY: the operation owns the frame, which was not started.
        let made_at = unsafe { Header::made_at(frame) };
        let unit = NonNull::from(this.unit.write(Unit::new(made_at)));
        // SAFETY: the unit is new and not shared. The context is valid until the task is done.
        unsafe {
            unit.as_ref().set_context(context);
            if let Some(outer) = outer {
                unit.as_ref().follow(outer);
            }
            unit.as_ref().begin_inspection(Header::is_observed());
        }
        if let Some(local) = &this.local {
            // SAFETY: the frame is done only after it has run, on this thread; its completion removes the record.
            unsafe { local.note(frame) };
        }
        let this = NonNull::from(this).cast();
        // SAFETY: the operation is pinned, and with it the context, until the task is done. The frame is alive until then, and polled by this
        // job.
        unsafe {
            Header::begin(frame, context, unit, FrameSuccessor::operation(this, Self::complete));
            Transfer::to(frame.cast())
        }
    }
}

/// Returns where a local task is recorded, if it runs in an executor of another crate. Panics if the scheduler would resume
/// the task on another thread.
#[cold]
fn ask_for_home<N: Env>(env: &N) -> Option<LocalHome> {
    let scheduler = env.scheduler();
    let home = env.get::<LocalHome>().filter(|home| home.is_scheduler(&scheduler));
    let moves = match &home {
        Some(home) => !home.is_here(),
        None => scheduler.native().is_some_and(|queue| queue.moves()),
    };
    if moves {
        let why = "a local task stays on its thread, and this scheduler does not: write `sync_wait(task)`, or \
                   `run_loop.run_until(task)`";
        Panic::new(Box::new(why)).resume();
    }
    home
}

crate::opaque!([T, E, R: Receiver<T, E>, Cx: TaskContext] TaskOperation<T, E, R, Cx>);
