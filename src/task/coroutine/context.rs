//! The configuration of tasks: allocator, scheduler, and values of their own.

use core::any::{Any, TypeId};
use core::fmt;
use core::marker::PhantomData;

use allocator_api2::alloc::{Allocator, Global};

use crate::scheduler::{InlineScheduler, TaskScheduler};
use crate::{Env, Scheduler};

/// The configuration of a task, and its additions to the environment of awaited senders: the third parameter of
/// [`Task`](crate::task::Task).
///
/// The default is [`DefaultContext`]. To change one thing, name one type:
///
/// | to change | write |
/// |---|---|
/// | the allocator of the frame | [`Task::new_in`](crate::task::Task::new_in), or the context [`InAllocator<A>`] |
/// | the scheduler: none, to run wherever an await completes | the context [`Inline`] |
/// | the environment: a value derived from the receiver's | the context [`Providing<V>`], with `V:` [`FromEnv`] |
///
/// They can be nested: `Providing<V, InAllocator<A>>`, `Inline<Providing<V>>`. A context of your own configures everything at
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
/// A context is created when the task starts, from the environment of the start: the receiver's if it is connected, otherwise
/// that of the awaiting task. One constructor replaces the three of C++. A context that needs nothing ignores `env`, one that
/// needs something reads it, and state is a field of the context.
///
/// A panic of the constructor is the completion of the task. The context is dropped when the task is done, after its locals and
/// before its completion.
///
/// # What it answers
///
/// [`visit`](TaskContext::visit) answers queries by type; unanswered queries go to the environment of the start. The stop token
/// is always that of the environment.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a context of tasks",
    label = "a `TaskContext` is needed here",
    note = "to change one thing, write `InAllocator<A>`, `Inline` or `Providing<V>`; `DefaultContext` changes nothing"
)]
pub trait TaskContext: Sized + Send + Sync + 'static {
    /// The allocator of the frame; [`Global`] by default.
    type Allocator: Allocator + Clone + Send + Sync + 'static;

    /// `TaskScheduler<'static>`, to run only on the environment's scheduler; or [`InlineScheduler`], to run wherever an await
    /// completes.
    type Scheduler: ContextScheduler;

    /// Whether an awaited task uses the context of the awaiting task, and a connected one adds nothing to the receiver's
    /// environment. If so, no context is created, and the other items are not used.
    const INHERITS: bool = false;

    /// Creates the context from the environment in which the task is started.
    fn new<N: Env>(env: &N) -> Self;

    /// Passes a value of the type `id` to `found`, if there is one.
    #[inline]
    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        let _ = (id, found);
    }
}

/// A scheduler that a [`TaskContext`] can name: [`TaskScheduler`], for any infallible scheduler; or [`InlineScheduler`].
#[diagnostic::on_unimplemented(
    message = "the scheduler of a task cannot be `{Self}`",
    label = "not a scheduler that a context can name",
    note = "write `TaskScheduler<'static>`, which stands for all that do not fail, or `InlineScheduler`"
)]
pub trait ContextScheduler: Scheduler + private::SealedScheduler {
    /// Whether the task may run wherever an await completes.
    #[doc(hidden)]
    const ANYWHERE: bool;

    /// The scheduler of a task that is started in an environment.
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

/// Sealed: frames support only these two.
mod private {
    pub trait SealedScheduler {}
    impl SealedScheduler for super::TaskScheduler<'static> {}
    impl SealedScheduler for super::InlineScheduler {}
}

/// The default context of a task: the global allocator, the scheduler of the environment, and no additions.
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

/// A context with another allocator: it allocates the frame, and awaited senders [find it](crate::task::TaskAllocator).
///
/// [`Task::new_in`](crate::task::Task::new_in) creates a task with it.
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

/// A context without a scheduler: the task resumes wherever its await completes, and is never queued.
///
/// It needs no scheduler to start, and offers [`InlineScheduler`] to awaited senders. A completion before the task suspends
/// leaves it on its thread, so an `.await` does not determine where it resumes. To run work on a scheduler, write
/// `starts_on(scheduler, task)`. A task that awaits an inline one resumes on its own scheduler.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{Inline, Task};
///
/// // No scheduler is involved.
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

/// A value that can be created from an environment, and [provided](Providing) by a context.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made of an environment",
    label = "a context does not know how to make it",
    note = "implement `FromEnv` for it; or write what is there already with `.write_env(With(value))`"
)]
pub trait FromEnv: Clone + Send + Sync + 'static {
    /// Creates the value.
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
