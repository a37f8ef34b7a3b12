//! Where a task runs: what all frames of one chain of awaits share.

use core::any::{Any, TypeId};
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::time::Instant;

use allocator_api2::alloc::{Allocator, Global};

use crate::scheduler::thread_pool::Entry;
use crate::scheduler::{InlineScheduler, TaskScheduler};
use crate::sender::env::{Awaiting, Beneath, EnvDoor, Look};
use crate::stop::ErasedStopToken;
use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};
use crate::task::awaiting::await_state::{AwaitState, TaskToken};
use crate::task::coroutine::allocator::TaskAllocator;
use crate::task::frame::Header;
use crate::task::priority;
use crate::task::running::home::Home;
use crate::task::task_local::Binding;
use crate::{Env, Panic, Priority, Scheduler, Transfer};

/// What a task has from the receiver it was connected to. It lives in the operation, and the frames point at it.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    pub(in crate::task) home: Home,
    pub(in crate::task) token: ErasedStopToken,
    /// Asks the receiver's environment for a value of the user's own.
    pub(in crate::task) outside: (NonNull<()>, Look),
    /// How urgent the work is, where the environment says so.
    pub(in crate::task) priority: Option<Priority>,
    /// The task that awaits the operation, if it is known.
    pub(in crate::task) around: Option<Around>,
    /// When the work is to be over.
    pub(in crate::task) deadline: Option<Instant>,
    /// The innermost of the task-local values. Whoever made this keeps it.
    pub(in crate::task) locals: Option<NonNull<Binding>>,
    /// The innermost scope inside a frame that this is of, or is used in. It is there as long as this is.
    pub(in crate::task) scope: Option<NonNull<Scope>>,
    /// It is that of a local task, which stays on its thread. What it spawns need not, and runs on the global pool.
    pub(in crate::task) is_local: bool,
}

/// How a stop outside of a scope reaches what is inside.
#[derive(Clone, Copy)]
pub(in crate::task) enum Stops {
    /// The token is the same.
    Same,
    /// The scope has a source of its own, which passes on the stop of this token.
    PassedOn(ErasedStopToken),
    /// Not at all.
    Never,
}

/// A part of a task that sees another context: a shield, a deadline, or a task-local value. It lives in the memory of its frame,
/// beside the context, for as long as anything uses that.
pub(in crate::task) struct Scope {
    /// One for the future that is polled in here, and one for each frame, await, group and scope that began in here and is not
    /// over. Added with relaxed ordering by a user; subtracted with release, and the last acquires, and ends the scope.
    users: AtomicUsize,
    /// The frame that this is in.
    frame: NonNull<Header>,
    /// The scope around it, of which this is a user. It may be that of another frame: then this has a reference of that frame,
    /// which may be done before a future that was sent away leaves this scope.
    outer: Option<NonNull<Scope>>,
    /// Something that was awaited inside has stopped. Belongs to the thread that polls the frame.
    stopped: Cell<bool>,
    /// How a stop outside reaches the inside. Written before the scope has other users.
    stops: Cell<Stops>,
    /// Destroys what is beside it, and frees the memory. Returns the scope around it, whose use the caller ends. None where there
    /// is none, and where something is in flight that does all of that when it is over.
    end: unsafe fn(NonNull<Scope>) -> Option<NonNull<Scope>>,
}

impl Scope {
    /// # Safety
    ///
    /// It stays where it is until `end` is called with its address. It is a user of the scope around it, which the caller enters.
    pub(in crate::task) unsafe fn new(
        frame: NonNull<Header>,
        outer: Option<NonNull<Scope>>,
        end: unsafe fn(NonNull<Scope>) -> Option<NonNull<Scope>>,
    ) -> Self {
        Scope {
            users: AtomicUsize::new(1),
            frame,
            outer,
            stopped: Cell::new(false),
            stops: Cell::new(Stops::Same),
            end,
        }
    }

    /// Says that the token inside is another than that outside. The caller makes the scope.
    pub(in crate::task) fn set_stops(&self, stops: Stops) {
        self.stops.set(stops);
    }

    pub(in crate::task) fn stop(&self) {
        self.stopped.set(true);
    }

    pub(in crate::task) fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// The scope around this one, if it is one inside of this frame.
    pub(in crate::task) fn outer_in(&self, frame: NonNull<Header>) -> Option<&Scope> {
        // SAFETY: this one is a user of it.
        self.outer
            .map(|outer| unsafe { outer.as_ref() })
            .filter(|outer| outer.frame == frame)
    }

    /// The frame that the scope is in.
    pub(in crate::task) fn frame(&self) -> NonNull<Header> {
        self.frame
    }

    /// Adds a user. The caller is one, or is polled in here.
    pub(in crate::task) fn enter(&self) {
        self.users.fetch_add(1, Relaxed);
    }

    /// Adds a user, unless the scope has none any more. Its memory is alive.
    pub(in crate::task) fn try_enter(&self) -> bool {
        self.users
            .fetch_update(Relaxed, Relaxed, |users| (users != 0).then_some(users + 1))
            .is_ok()
    }

    /// Enters the scope around it, once, for as long as this one has users.
    pub(in crate::task) fn enter_outer(&self) {
        if let Some(outer) = self.outer {
            // SAFETY: the caller polls the frame in the scope around it, whose frame waits for the one that this is in.
            unsafe {
                outer.as_ref().enter();
                if outer.as_ref().frame != self.frame {
                    Header::count(outer.as_ref().frame);
                }
            }
        }
    }

    /// The scope around it.
    pub(in crate::task) fn outer(&self) -> Option<NonNull<Scope>> {
        self.outer
    }

    /// Ends a use. The scope may be gone when this returns, and those around it.
    pub(in crate::task) fn exit(&self) {
        // SAFETY: the caller was a user, so this is alive.
        unsafe { Scope::exit_from(self.frame, Some(NonNull::from(self))) };
    }

    /// Ends the use of a scope by what was in this frame. Where that is another frame than the scope's, gives up the reference
    /// that the user had.
    ///
    /// # Safety
    ///
    /// There is such a use, and such a reference.
    pub(in crate::task) unsafe fn exit_from(mut inner: NonNull<Header>, mut at: Option<NonNull<Scope>>) {
        while let Some(scope) = at {
            // SAFETY: the use keeps it alive, and the reference its frame. Each is a user of the one around it.
            unsafe {
                let frame = scope.as_ref().frame;
                at = match scope.as_ref().users.fetch_sub(1, AcqRel) {
                    1 => (scope.as_ref().end)(scope),
                    _ => None,
                };
                if frame != inner {
                    Header::unhold(frame);
                }
                inner = frame;
            }
        }
    }
}

/// A frame that awaits what is asked in an environment, and is not done before that is; and the context that it does so in.
#[derive(Clone, Copy, Debug)]
pub(in crate::task) struct Around {
    pub(in crate::task) frame: NonNull<Header>,
    pub(in crate::task) context: NonNull<Context>,
}

// SAFETY: these are addresses. What is looked at there does not change once the frame was started.
unsafe impl Send for Around {}
// SAFETY: as above.
unsafe impl Sync for Around {}

impl Context {
    /// Whether the calling thread is where the task runs.
    #[inline]
    pub(in crate::task) fn is_here(&self) -> bool {
        self.home.is_here()
    }

    /// That of what begins outside of a task: it runs on the global pool, and nothing stops it.
    pub(in crate::task) fn of_global_pool() -> Self {
        /// There is nothing to be found.
        unsafe fn look(_: NonNull<()>, _: TypeId, _: &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'static>> {
            None
        }

        Context {
            home: Home::global_pool(),
            token: ErasedStopToken::NEVER,
            outside: (NonNull::dangling(), look),
            priority: None,
            around: None,
            deadline: None,
            locals: None,
            scope: None,
            is_local: false,
        }
    }

    /// That of what is spawned from here.
    pub(in crate::task) fn of_child(&self) -> Self {
        let mut context = *self;
        // It may outlive the scope that this is in: the frame waits for it.
        context.scope = None;
        if context.is_local {
            context.home = Home::global_pool();
            context.is_local = false;
        }
        context
    }

    /// Something begins that uses this, and tells when it is over.
    #[inline]
    pub(in crate::task) fn enter(&self) {
        if let Some(scope) = self.scope {
            // SAFETY: it is there as long as this is.
            unsafe { scope.as_ref() }.enter();
        }
    }

    /// It is over. This may be gone when it returns.
    #[inline]
    pub(in crate::task) fn exit(&self) {
        if let Some(scope) = self.scope {
            // SAFETY: as above.
            unsafe { scope.as_ref() }.exit();
        }
    }

    #[inline]
    pub(in crate::task) fn scope(&self) -> Option<NonNull<Scope>> {
        self.scope
    }

    /// The outermost token whose stop reaches this context: that of the task, unless there is a shield between.
    pub(in crate::task) fn reaching_token(&self) -> ErasedStopToken {
        let (mut token, mut at) = (self.token, self.scope);
        while let Some(scope) = at {
            // SAFETY: it is alive as long as this is, and a user of the one around it.
            let scope = unsafe { scope.as_ref() };
            match scope.stops.get() {
                Stops::Same => {}
                Stops::PassedOn(outside) => token = outside,
                Stops::Never => break,
            }
            at = scope.outer;
        }
        token
    }

    /// The innermost scope, if it is one inside of this frame.
    pub(in crate::task) fn scope_in(&self, frame: NonNull<Header>) -> Option<&Scope> {
        // SAFETY: it is there as long as this is.
        self.scope
            .map(|scope| unsafe { scope.as_ref() })
            .filter(|scope| scope.frame == frame)
    }

    /// Queues a frame with the scheduler. The frame may run, and the context be gone, before this returns.
    ///
    /// # Safety
    ///
    /// The entry is that of a frame that is busy and in no queue, and whose context this is.
    #[inline]
    pub(in crate::task) unsafe fn enqueue(this: NonNull<Context>, entry: NonNull<Entry>) -> Transfer {
        // SAFETY: the frame is not done, so its context is there.
        let (home, priority) = unsafe { ((*this.as_ptr()).home, (*this.as_ptr()).priority) };
        // SAFETY: by the caller's promise. An entry is the first field of its frame.
        unsafe {
            priority::queue(entry.cast(), priority);
            home.enqueue(entry)
        }
    }

    /// Makes a frame that is queued at least that urgent.
    ///
    /// # Safety
    ///
    /// It is queued with its scheduler, or about to be and says so; it is not resumed before this returns.
    pub(in crate::task) unsafe fn raise(frame: NonNull<Header>, level: Priority) -> Transfer {
        // SAFETY: by the caller's promise, it is not done, so its context is there, and the scheduler.
        unsafe {
            let home = Header::context(frame).as_ref().home;
            home.raise(frame.cast(), level)
        }
    }
}

/// The environment of what is awaited, in a task and in other executors: what the receiver has that a sender is
/// connected to then.
///
/// Its scheduler and its stop token are those of the task; beneath is what the task's [context](TaskContext) adds, and
/// the environment that the task was started in.
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
    /// The context is that of an await with the waker of something else, whose task the context knows.
    is_foreign: bool,
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
    pub(in crate::task) unsafe fn new(context: NonNull<Context>, state: Option<NonNull<AwaitState>>) -> Self {
        TaskEnv {
            context,
            state,
            is_foreign: false,
        }
    }

    /// The environment of a sender that is awaited with the waker of something else, or outside of a task.
    ///
    /// # Safety
    ///
    /// The context is valid for as long as this is used.
    pub(in crate::task) unsafe fn of_foreign(context: NonNull<Context>) -> Self {
        TaskEnv {
            context,
            state: None,
            is_foreign: true,
        }
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
        // SAFETY: the scheduler is valid while the task is not done, and so is what it borrows. What an environment
        // answers is used no longer than that.
        unsafe { self.context().home.scheduler() }
    }

    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        self.beneath().visit(id, found);
    }

    #[inline]
    fn priority(&self) -> Option<Priority> {
        // SAFETY: the state is there for as long as this is used, by the promise of `new`. What has none is asked while the
        // frame is polled.
        unsafe {
            let frame = match self.state {
                Some(state) => Some(state.as_ref().frame),
                None => Header::current().filter(|frame| Header::context(*frame) == self.context),
            };
            match frame {
                Some(frame) => priority::level_in(Header::unit(frame).as_ref(), self.context()),
                None => self.context().priority,
            }
        }
    }

    #[inline]
    fn door(&self) -> EnvDoor<'_> {
        // SAFETY: the state and the context are valid until the receiver has completed, by the promise of `new`. So are the
        // frame and the context that the state names, which wait for that.
        unsafe {
            let around = match self.state {
                Some(state) => Some(Around {
                    frame: state.as_ref().frame,
                    context: state.as_ref().context,
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
                .at_home(NonNull::from(&self.context().home).cast())
        }
    }
}

impl TaskEnv {
    #[inline]
    fn beneath(&self) -> Beneath<'_> {
        // SAFETY: this is borrowed for as long as the result.
        unsafe { Beneath::new(NonNull::from(self).cast(), Self::look) }
    }

    /// # Safety
    ///
    /// The place is such an environment.
    unsafe fn look(place: NonNull<()>, id: TypeId, found: &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'static>> {
        // SAFETY: the caller's promise.
        let this = unsafe { place.cast::<Self>().as_ref() };
        if id == TypeId::of::<Priority>()
            && let Some(priority) = this.priority()
        {
            // It may have been raised since it was given.
            found(&priority);
            return None;
        }
        let (place, look) = this.context().outside;
        // SAFETY: the environment outside is valid as long as the context.
        Some(unsafe { Beneath::new(place, look) })
    }
}

impl fmt::Debug for TaskEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskEnv").finish_non_exhaustive()
    }
}

/// What a task is made with, and what it adds to the environment of all that it awaits: the third parameter of
/// [`Task`](crate::task::Task).
///
/// [`DefaultContext`] is the default, and needs no code. To change one thing, name one type:
///
/// | to change | write |
/// |---|---|
/// | the allocator of the frame | [`Task::new_in`](crate::task::Task::new_in), or the context [`InAllocator<A>`] |
/// | the scheduler: none, to run wherever something completes | the context [`Inline`] |
/// | the environment: a value that is made of the receiver's | the context [`Providing<V>`], with `V:` [`FromEnv`] |
///
/// They can be nested: `Providing<V, InAllocator<A>>`, `Inline<Providing<V>>`. A context of your own says everything at
/// once:
///
/// ```
/// use std::any::{Any, TypeId};
///
/// use allocator_api2::alloc::Global;
/// use bowline::prelude::*;
/// use bowline::scheduler::TaskScheduler;
/// use bowline::task::{Task, TaskContext};
///
/// #[derive(Clone, Debug, PartialEq)]
/// struct Depth(u32);
///
/// /// Counts how deeply tasks are nested.
/// struct Nested(Depth);
///
/// impl TaskContext for Nested {
///     type Allocator = Global;
///     type Scheduler = TaskScheduler<'static>;
///
///     fn new<N: Env>(env: &N) -> Self {
///         Nested(Depth(env.get().map_or(1, |Depth(depth)| depth + 1)))
///     }
///
///     fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
///         if id == TypeId::of::<Depth>() {
///             found(&self.0);
///         }
///     }
/// }
///
/// let tasks = Task::builder().context::<Nested>();
/// let inner = tasks.clone().try_task(async { read_env(Get::<Depth>::new()).await });
/// let outer = tasks.try_task(async { inner.await });
/// assert_eq!(sync_wait(outer).unwrap(), Some(Depth(2)));
/// ```
///
/// # How it is made
///
/// When the task starts, of the environment that it is started in: the receiver's, where it is connected, and that of the
/// task that awaits it otherwise. One constructor serves the three ways that C++ has: a context that needs nothing ignores
/// `env`, one that needs something takes it, and what has to be kept beside it is a field of it.
///
/// A panic in there is the completion of the task. The context is dropped when the task is done, after its locals and
/// before its completion.
///
/// # What it answers
///
/// [`visit`](TaskContext::visit) answers what is asked by type; what it does not answer is asked of the environment that
/// it was made of. The stop token is always that one's.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a context of tasks",
    label = "a `TaskContext` is needed here",
    note = "to change one thing, write `InAllocator<A>`, `Inline` or `Providing<V>`; `DefaultContext` changes nothing"
)]
pub trait TaskContext: Sized + Send + Sync + 'static {
    /// What the frame is allocated with; [`Global`] where nothing is asked.
    type Allocator: Allocator + Clone + Send + Sync + 'static;

    /// `TaskScheduler<'static>`, to run where the environment says, and there only; or [`InlineScheduler`], to run
    /// wherever something completes.
    type Scheduler: ContextScheduler;

    /// Whether a task that is awaited uses the context of the task that awaits it, and one that is connected adds nothing
    /// to the receiver's environment. Then there is no context to make, and none of the rest is asked.
    const INHERITS: bool = false;

    /// Makes the context of the environment that the task is started in.
    fn new<N: Env>(env: &N) -> Self;

    /// Shows a value of the type `id` to `found`, if there is one.
    #[inline]
    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        let _ = (id, found);
    }
}

/// A scheduler that a [`TaskContext`] can name: [`TaskScheduler`], any scheduler that cannot fail; or
/// [`InlineScheduler`].
#[diagnostic::on_unimplemented(
    message = "the scheduler of a task cannot be `{Self}`",
    label = "not a scheduler that a context can name",
    note = "write `TaskScheduler<'static>`, which stands for all that do not fail, or `InlineScheduler`"
)]
pub trait ContextScheduler: Scheduler + private::Sealed {
    /// Wherever something completes is right.
    #[doc(hidden)]
    const ANYWHERE: bool;

    /// That of a task that is started in an environment.
    #[doc(hidden)]
    type In<N: Env>: Scheduler;

    #[doc(hidden)]
    fn of<N: Env>(env: &N) -> Self::In<N>;
}

impl ContextScheduler for TaskScheduler<'static> {
    const ANYWHERE: bool = false;
    type In<N: Env> = N::Scheduler;

    #[inline]
    fn of<N: Env>(env: &N) -> N::Scheduler {
        env.scheduler()
    }
}

impl ContextScheduler for InlineScheduler {
    const ANYWHERE: bool = true;
    type In<N: Env> = InlineScheduler;

    #[inline]
    fn of<N: Env>(_: &N) -> InlineScheduler {
        InlineScheduler
    }
}

/// Sealed: frames know these two.
mod private {
    pub trait Sealed {}
    impl Sealed for super::TaskScheduler<'static> {}
    impl Sealed for super::InlineScheduler {}
}

/// The context of a task where nothing else is said: the global allocator, the scheduler of the environment, and nothing
/// added to that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefaultContext;

impl TaskContext for DefaultContext {
    type Allocator = Global;
    type Scheduler = TaskScheduler<'static>;
    const INHERITS: bool = true;

    #[inline]
    fn new<N: Env>(_: &N) -> Self {
        DefaultContext
    }
}

/// A context with another allocator: the frame is from it, and what the task awaits [finds it](TaskAllocator).
///
/// [`Task::new_in`](crate::task::Task::new_in) makes a task with it.
pub struct InAllocator<A, C = DefaultContext> {
    context: C,
    _allocator: PhantomData<fn() -> A>,
}

impl<A, C> TaskContext for InAllocator<A, C>
where
    A: Allocator + Clone + Send + Sync + 'static,
    C: TaskContext,
{
    type Allocator = A;
    type Scheduler = C::Scheduler;

    #[inline]
    fn new<N: Env>(env: &N) -> Self {
        InAllocator {
            context: C::new(env),
            _allocator: PhantomData,
        }
    }

    #[inline]
    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        self.context.visit(id, found);
    }
}

impl<A, C: fmt::Debug> fmt::Debug for InAllocator<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InAllocator").field("context", &self.context).finish()
    }
}

/// A context without a scheduler: the task goes on wherever what it awaits completes, and is never queued.
///
/// It needs no scheduler to be started, and offers [`InlineScheduler`] to what it awaits. What has completed before the task
/// had begun to wait keeps it where it is, so an `.await` does not say where it goes on: to run something on a scheduler,
/// write `starts_on(scheduler, task)`. A task that awaits an inline one comes back to its own scheduler.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{Inline, Task};
///
/// // Nothing here has a scheduler.
/// start_detached(Task::builder().context::<Inline>().task(async {
///     let Ok(x) = just(1).await;
///     assert_eq!(x, 1);
/// }));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline<C = DefaultContext>(C);

impl<C: TaskContext> TaskContext for Inline<C> {
    type Allocator = C::Allocator;
    type Scheduler = InlineScheduler;

    #[inline]
    fn new<N: Env>(env: &N) -> Self {
        Inline(C::new(env))
    }

    #[inline]
    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        self.0.visit(id, found);
    }
}

/// A value that is made of an environment: what a context [provides](Providing).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made of an environment",
    label = "a context does not know how to make it",
    note = "implement `FromEnv` for it; or write what is there already with `.write_env(With(value))`"
)]
pub trait FromEnv: Clone + Send + Sync + 'static {
    /// Makes it.
    fn from_env<N: Env>(env: &N) -> Self;
}

/// A context with one more value, which everything inside the task finds by its type.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{FromEnv, Providing, Task};
///
/// #[derive(Clone)]
/// struct Request(u32);
///
/// #[derive(Clone, Debug, PartialEq)]
/// struct LogPrefix(String);
///
/// impl FromEnv for LogPrefix {
///     fn from_env<N: Env>(env: &N) -> Self {
///         LogPrefix(env.get().map_or_else(String::new, |Request(id)| format!("[{id}] ")))
///     }
/// }
///
/// let task = Task::builder().context::<Providing<LogPrefix>>().task(async {
///     let Ok(prefix) = read_env(Get::<LogPrefix>::new()).await;
///     prefix
/// });
/// let prefix = sync_wait(task.write_env(With(Request(7)))).unwrap();
/// assert_eq!(prefix, Some(LogPrefix("[7] ".to_owned())));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Providing<V, C = DefaultContext> {
    value: V,
    context: C,
}

impl<V: FromEnv, C: TaskContext> TaskContext for Providing<V, C> {
    type Allocator = C::Allocator;
    type Scheduler = C::Scheduler;

    fn new<N: Env>(env: &N) -> Self {
        Providing {
            value: V::from_env(env),
            context: C::new(env),
        }
    }

    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        if id == TypeId::of::<V>() {
            found(&self.value);
        } else {
            self.context.visit(id, found);
        }
    }
}

/// The context of one frame, where that does not use another's. It lives in the frame, and does not move.
pub(in crate::task) struct Own<C: TaskContext> {
    /// Dropped before the rest, of which its destructor may make use.
    user: C,
    context: Context,
    /// Where what the user's context does not answer is asked.
    outer: NonNull<Context>,
    allocator: NonNull<C::Allocator>,
}

impl<C: TaskContext> Own<C> {
    /// Makes the context of a frame, in its place.
    ///
    /// # Errors
    ///
    /// The user's code has panicked.
    ///
    /// # Safety
    ///
    /// The place is empty, and does not move; the context outside and the allocator are there until it is empty again.
    pub(in crate::task) unsafe fn adopt(
        place: *mut Option<Self>,
        outer: NonNull<Context>,
        allocator: NonNull<C::Allocator>,
    ) -> Result<NonNull<Context>, Panic> {
        // SAFETY: by the caller's promise.
        let (env, outside) = unsafe { (TaskEnv::new(outer, None), outer.as_ref()) };
        let (user, priority) = Panic::catch(|| {
            let user = C::new(&env);
            let mut priority = None;
            user.visit(TypeId::of::<Priority>(), &mut |found| {
                priority = found.downcast_ref().copied();
            });
            (user, priority.or(outside.priority))
        })?;
        let own = Own {
            user,
            context: Context {
                home: if C::Scheduler::ANYWHERE {
                    Home::anywhere()
                } else {
                    outside.home
                },
                token: outside.token,
                outside: (NonNull::dangling(), Self::look),
                priority,
                around: outside.around,
                deadline: outside.deadline,
                locals: outside.locals,
                scope: outside.scope,
                is_local: outside.is_local,
            },
            outer,
            allocator,
        };
        // SAFETY: by the caller's promise.
        let own = unsafe { &mut *place }.insert(own);
        let this = NonNull::from(own);
        // SAFETY: it was just put there.
        unsafe {
            (*this.as_ptr()).context.outside.0 = this.cast();
            Ok(NonNull::new_unchecked(&raw mut (*this.as_ptr()).context))
        }
    }

    /// # Safety
    ///
    /// The place is such a context.
    unsafe fn look(place: NonNull<()>, id: TypeId, found: &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'static>> {
        // SAFETY: by the caller's promise. What it points at is there as long as it is.
        let (this, outer, allocator) = unsafe {
            let this = place.cast::<Self>().as_ref();
            (this, this.outer.as_ref(), this.allocator.as_ref())
        };
        // The global allocator is what a context has that says nothing about it.
        if TypeId::of::<C::Allocator>() != TypeId::of::<Global>() {
            if id == TypeId::of::<C::Allocator>() {
                found(allocator);
                return None;
            }
            if id == TypeId::of::<TaskAllocator>() {
                // Without memory for the handle it is as if there were none.
                if let Ok(allocator) = TaskAllocator::new(allocator.clone()) {
                    found(&allocator);
                }
                return None;
            }
        }
        let mut answered = false;
        this.user.visit(id, &mut |value| {
            answered = true;
            found(value);
        });
        let (place, look) = outer.outside;
        // SAFETY: the environment outside is there as long as the context outside.
        (!answered).then(|| unsafe { Beneath::new(place, look) })
    }
}
