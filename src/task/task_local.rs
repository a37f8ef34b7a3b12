//! Task-local values: bound for a part of a task, and visible to everything that runs inside it.

use core::fmt;
use core::future::{Future, IntoFuture};
use core::mem;
use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::task::{Context as Cx, Poll, ready};

use super::frame::ContextScope;
use super::strand::{Change, Context, Locals, ScopedFuture};
use crate::sync::OnceLock;

/// Declares task-local values as statics of type [`TaskLocal`](crate::task::TaskLocal).
///
/// ```
/// use bowline::task::Task;
/// use bowline::{sync_wait, task_local};
///
/// task_local! {
///     /// The user on whose behalf the task works.
///     pub static USER: String;
///     static RETRIES: u32 = 3;
/// }
///
/// /// A plain function, which is passed nothing.
/// fn greeting() -> String {
///     USER.with(|user| format!("hello, {user}")).unwrap_or_default()
/// }
///
/// let task = Task::new(async {
///     assert_eq!(greeting(), "");
///     USER.scope("Ada".to_owned(), async {
///         let inner = Task::new(async { greeting() });
///         assert_eq!(inner.await.unwrap(), "hello, Ada");
///     })
///     .await;
///     assert_eq!(RETRIES.get(), Some(3));
/// });
/// sync_wait(task).unwrap();
/// ```
///
/// The type must be `Send + Sync + 'static`, since readers may run on any thread. A default is created lazily, once per
/// program.
#[macro_export]
macro_rules! task_local {
    () => {};
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = $default:expr $(; $($rest:tt)*)?) => {
        $(#[$attribute])*
        $visibility static $name: $crate::task::TaskLocal<$type> =
            $crate::task::TaskLocal::new(::core::stringify!($name), ::core::option::Option::Some(|| $default));
        $($crate::task_local! { $($rest)* })?
    };
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty $(; $($rest:tt)*)?) => {
        $(#[$attribute])*
        $visibility static $name: $crate::task::TaskLocal<$type> =
            $crate::task::TaskLocal::new(::core::stringify!($name), ::core::option::Option::None);
        $($crate::task_local! { $($rest)* })?
    };
    ($($other:tt)*) => {
        ::core::compile_error!("write `static NAME: Type;`, or `static NAME: Type = default;`, as often as you like");
    };
}

/// The key of a task-local value, which is bound for a part of a task.
///
/// [`task_local!`](crate::task_local) declares a key, [`scope`](TaskLocal::scope) binds a value to it, and
/// [`get`](TaskLocal::get) and [`with`](TaskLocal::with) read it, in `async` code and in plain functions.
///
/// # Visibility
///
/// | inside the scope | sees the value |
/// |---|---|
/// | the future itself and the functions it calls | yes |
/// | a task that is awaited, directly or in a sender, on any scheduler | yes |
/// | a spawned child, as long as it runs | yes; in a group, the values bound where the group begins |
/// | a detached task | only with [`inherit_locals`](super::SpawnOptions::inherit_locals) |
/// | a sender's closure | if called while the task is polled; not on another thread |
///
/// An inner binding of the same key shadows the outer one until its scope ends. A binding is never modified; bind a value with
/// interior mutability for that.
///
/// Bindings also work outside of tasks, in any executor and in plain code: the value is visible to the thread that polls the
/// future, during the poll. A task that starts there does not inherit it.
///
/// # Cost
///
/// A binding is one allocation. Reading allocates nothing; it searches the bindings from the innermost outwards. A child shares
/// the innermost binding, so spawning copies none.
pub struct TaskLocal<T: Send + Sync + 'static> {
    name: &'static str,
    make: Option<fn() -> T>,
    /// Created lazily by `make`.
    default: OnceLock<T>,
}

impl<T: Send + Sync + 'static> TaskLocal<T> {
    /// Creates a key, for [`task_local!`](crate::task_local).
    #[doc(hidden)]
    pub const fn new(name: &'static str, make: Option<fn() -> T>) -> Self {
        TaskLocal {
            name,
            make,
            default: OnceLock::new(),
        }
    }

    /// Binds a value while the future runs. The future may borrow.
    ///
    /// The value is bound at the first poll. It is dropped with its last reader: the future, or a child that still runs. A
    /// group that was opened inside keeps the value until the last [`TaskGroup`](super::TaskGroup) handle is dropped.
    ///
    /// ```
    /// use bowline::task::{Task, block_on};
    /// use bowline::task_local;
    ///
    /// task_local! { static DEPTH: u32 = 0; }
    ///
    /// fn depth() -> u32 {
    ///     DEPTH.get().unwrap_or_default()
    /// }
    ///
    /// block_on(async {
    ///     let mut seen = Vec::new();
    ///     DEPTH
    ///         .scope(1, async {
    ///             seen.push(depth());
    ///             DEPTH.scope(depth() + 1, async { seen.push(depth()) }).await;
    ///             seen.push(depth());
    ///         })
    ///         .await;
    ///     assert_eq!(seen, [1, 2, 1]);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// The future's panic unwinds. A panic of the value's destructor is discarded, since the destructor may run in another
    /// task.
    #[cfg_attr(feature = "inspect", track_caller)]
    pub fn scope<F: IntoFuture>(&'static self, value: T, future: F) -> TaskLocalFuture<F::IntoFuture> {
        TaskLocalFuture {
            inside: ScopedFuture::new(future.into_future()),
            // SAFETY: the key is that of a `T`, borrowed for `'static`.
            locals: unsafe { Locals::bind(self.key(), value) },
            is_linked: false,
        }
    }

    /// Binds a value while the closure runs.
    ///
    /// Functions called inside see it. Children of [`let_async`](super::let_async()), groups and scopes that begin inside inherit
    /// it. Children of a group that was opened outside do not, even if they are spawned inside. A task that is polled inside keeps
    /// its own bindings.
    ///
    /// ```
    /// bowline::task_local! { static INDENT: usize = 0; }
    ///
    /// fn line(text: &str) -> String {
    ///     format!("{:1$}{text}", "", INDENT.get().unwrap_or_default())
    /// }
    ///
    /// assert_eq!(INDENT.sync_scope(2, || line("inside")), "  inside");
    /// assert_eq!(line("outside"), "outside");
    /// ```
    pub fn sync_scope<R>(&'static self, value: T, body: impl FnOnce() -> R) -> R {
        // SAFETY: the key is that of a `T`, borrowed for `'static`. The binding is new, so this is the only reference.
        let locals = unsafe {
            let locals = Locals::bind(self.key(), value);
            locals.link();
            locals
        };
        locals.enter(body)
    }

    /// Returns the bound value, or else the default, or `None` if there is neither.
    pub fn get(&'static self) -> Option<T>
    where
        T: Clone,
    {
        self.with(T::clone)
    }

    /// Calls `look` with the bound value, or else the default; returns `None` if there is neither.
    #[inline]
    pub fn with<R>(&'static self, look: impl FnOnce(&T) -> R) -> Option<R> {
        // SAFETY: the key is that of a `T`, for `'static`. A scope that this thread is inside keeps the binding alive.
        let bound = unsafe { Locals::find::<T>(self.key()).map(|value| value.as_ref()) };
        match bound {
            Some(value) => Some(look(value)),
            None => Some(look(self.default.get_or_init(self.make?))),
        }
    }

    /// Returns the address of the key's name: that of the whole could also be the address of a key in the default value.
    fn key(&'static self) -> *const () {
        ptr::from_ref(&self.name).cast()
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for TaskLocal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskLocal")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A future in which a [task-local](TaskLocal) value is bound, created by [`TaskLocal::scope`].
#[must_use = "futures do nothing until they are awaited"]
pub struct TaskLocalFuture<F> {
    inside: ScopedFuture<F, Binds>,
    /// The binding, until the future is dropped.
    locals: Locals,
    /// Whether the binding is linked to the outer ones. Set by the first poll.
    is_linked: bool,
}

/// The change of a binding. The scope keeps the values alive for children that began inside.
struct Binds(Locals);

impl Change for Binds {
    unsafe fn begin(this: NonNull<Self>, _: NonNull<ContextScope>, context: &mut Context) {
        // SAFETY: `this` is alive as long as the scope has users, by the contract of `begin`.
        context.locals = unsafe { this.as_ref() }.0.as_raw();
    }
}

impl<F: Future> Future for TaskLocalFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<F::Output> {
        // SAFETY: `inside` is not moved; the other fields are not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        let locals = &this.locals;
        if !mem::replace(&mut this.is_linked, true) {
            // SAFETY: before the first poll this is the only reference to the binding.
            unsafe { locals.link() };
        }
        // In a task the scope's context has the binding.
        let in_task = this.inside.is_in_task();
        // SAFETY: `inside` is structurally pinned.
        let inside = unsafe { Pin::new_unchecked(&mut this.inside) };
        let poll = || inside.poll(cx, || Binds(locals.clone()));
        let value = ready!(if in_task { poll() } else { locals.enter(poll) });
        this.locals = Locals::default();
        value.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<F> Drop for TaskLocalFuture<F> {
    fn drop(&mut self) {
        if self.is_linked {
            // The future's destructor sees the value too.
            self.locals.enter(|| self.inside.end());
        }
    }
}

crate::opaque!([F] TaskLocalFuture<F>);
