//! Values that belong to a task, and are seen by all that runs in it.

use core::fmt;
use core::future::{Future, IntoFuture};
use core::mem;
use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::task::{Context as Cx, Poll};

use super::frame::ContextScope;
use super::strand::context::Context;
use super::strand::locals::Locals;
use super::strand::scoped_future::{self, Change, Ended, ScopedFuture};
use crate::sync::OnceLock;

/// Declares task-local values, each a `static` of the type [`TaskLocal`](crate::task::TaskLocal).
///
/// ```
/// use bowline::task::Task;
/// use bowline::{sync_wait, task_local};
///
/// task_local! {
///     /// Whom the work is for.
///     pub static USER: String;
///     static RETRIES: u32 = 3;
/// }
///
/// /// Plain code, which was given nothing.
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
/// The type is `Send + Sync + 'static`, since what reads a value may run anywhere. A default is made when it is first read,
/// once for the whole program.
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

/// A value that is bound for a stretch of a task, and seen by all that runs in there: the key to it.
///
/// [`task_local!`](crate::task_local) declares one, [`scope`](TaskLocal::scope) binds a value to it, and
/// [`get`](TaskLocal::get) and [`with`](TaskLocal::with) read it, in `async` code and in plain functions.
///
/// # Who sees it
///
/// | what runs inside of the scope | sees the value |
/// |---|---|
/// | the future itself, and the functions it calls | yes |
/// | a task that is awaited in there, directly or in a sender, wherever that runs | yes |
/// | a child that was spawned in there, for as long as it runs | yes; in a group, what is bound where the group begins |
/// | a detached task | no, unless it is [told to](super::SpawnOptions::inherit_locals) |
/// | the closures of senders | where they are called while the task is polled; not on another thread |
///
/// A binding of the same key further in hides the one further out until its own scope is over. Nothing is ever written: who
/// wants a value that changes binds one that can be changed.
///
/// Outside of a task it works just as well, for a future in any executor and for plain code: then the value is seen on the
/// thread that polls the future, while it does. A task that starts there is a task of its own and sees nothing of it.
///
/// # Cost
///
/// A binding is one allocation. Reading allocates nothing, and looks at the bindings one after the other, from the
/// innermost, until it finds the key. Nothing is copied for a child: it is given the innermost binding, however many there
/// are.
pub struct TaskLocal<T: Send + Sync + 'static> {
    name: &'static str,
    make: Option<fn() -> T>,
    /// Made when it is first asked for.
    default: OnceLock<T>,
}

impl<T: Send + Sync + 'static> TaskLocal<T> {
    /// For [`task_local!`](crate::task_local).
    #[doc(hidden)]
    pub const fn new(name: &'static str, make: Option<fn() -> T>) -> Self {
        TaskLocal {
            name,
            make,
            default: OnceLock::new(),
        }
    }

    /// Binds a value for as long as the future runs, which may borrow what it likes.
    ///
    /// It is bound when the future is first polled. It is dropped with the last that could read it: the future, or a child
    /// that was spawned in there and still runs.
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
    /// Those of the future. A value whose destructor panics is gone all the same, and that panic with it: others may
    /// still have been using the value when the future ended.
    ///
    /// # Cancellation
    ///
    /// It is that of the future. Where something that it awaits stops, so does the task.
    pub fn scope<F: IntoFuture>(&'static self, value: T, future: F) -> TaskLocalFuture<F::IntoFuture> {
        TaskLocalFuture {
            inside: ScopedFuture::new(future.into_future()),
            locals: Locals::bind(self.key(), value),
            is_linked: false,
        }
    }

    /// Binds a value while the closure runs.
    ///
    /// It is seen by the functions that are called in there, by children that are spawned in there, and by scopes that
    /// begin there. A task that is polled in there sees what it has seen before.
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
    ///
    /// # Panics
    ///
    /// When the closure does; the value is not bound any more then.
    pub fn sync_scope<R>(&'static self, value: T, body: impl FnOnce() -> R) -> R {
        let locals = Locals::bind(self.key(), value);
        // SAFETY: it is new, and nobody else knows it.
        unsafe { locals.link() };
        locals.enter(body)
    }

    /// The value that is bound here, or else the default. None where there is neither.
    pub fn get(&'static self) -> Option<T>
    where
        T: Clone,
    {
        self.with(T::clone)
    }

    /// Shows the value that is bound here to `look`, or else the default. None where there is neither.
    pub fn with<R>(&'static self, look: impl FnOnce(&T) -> R) -> Option<R> {
        let value = match Locals::find::<T>(self.key()) {
            // SAFETY: it is bound by something that this thread is in the midst of, and so until this returns.
            Some(value) => unsafe { value.as_ref() },
            None => self.default.get_or_init(self.make?),
        };
        Some(look(value))
    }

    fn key(&'static self) -> *const () {
        ptr::from_ref(self).cast()
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for TaskLocal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskLocal")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A future in which a [task-local](TaskLocal) value is bound. Made by [`TaskLocal::scope`].
#[must_use = "futures do nothing until they are awaited"]
pub struct TaskLocalFuture<F> {
    inside: ScopedFuture<F, Binds>,
    /// The binding, until the future is gone.
    locals: Locals,
    /// It knows what is beneath it: it was polled.
    is_linked: bool,
}

/// Other values are seen inside. The scope keeps them for what began in there.
struct Binds(Locals);

impl Change for Binds {
    unsafe fn begin(this: NonNull<Self>, _: NonNull<ContextScope>, context: &mut Context) {
        // SAFETY: it is alive as long as the context is used.
        context.locals = unsafe { this.as_ref() }.0.as_raw();
    }
}

impl<F: Future> Future for TaskLocalFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<F::Output> {
        // SAFETY: the inside is not moved, and the rest may be.
        let (inside, locals, is_linked) = unsafe {
            let this = self.get_unchecked_mut();
            (
                Pin::new_unchecked(&mut this.inside),
                &mut this.locals,
                &mut this.is_linked,
            )
        };
        if !mem::replace(is_linked, true) {
            // SAFETY: it was not polled, so nobody else knows the binding.
            unsafe { locals.link() };
        }
        let ended = match locals.enter(|| inside.poll(cx, || Binds(locals.clone()))) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(ended) => ended,
        };
        *locals = Locals::default();
        match ended {
            Ended::Value(value) => Poll::Ready(value),
            Ended::Stopped(_) => scoped_future::stop_outside(cx),
        }
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

impl<F> fmt::Debug for TaskLocalFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskLocalFuture").finish_non_exhaustive()
    }
}
