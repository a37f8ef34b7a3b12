//! Values that belong to a task, and are seen by all that runs in it.

use core::any::TypeId;
use core::cell::UnsafeCell;
use core::fmt;
use core::future::{Future, IntoFuture};
use core::mem;
use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::task::{Context as Cx, Poll};
use std::boxed::Box;

use super::frame::{Header, Polling};
use super::strand::context::{Context, Scope};
use super::strand::inside::{self, Change, Ended, Inside};
use crate::Panic;
use crate::memory::Count;
use crate::sender::current;
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
            inside: Inside::new(future.into_future()),
            locals: self.bind(value),
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
        let locals = self.bind(value);
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
        let value = match self.find() {
            // SAFETY: it is bound by something that this thread is in the midst of, and so until this returns.
            Some(value) => unsafe { value.as_ref() },
            None => self.default.get_or_init(self.make?),
        };
        Some(look(value))
    }

    fn key(&'static self) -> *const () {
        ptr::from_ref(self).cast()
    }

    fn bind(&'static self, value: T) -> Locals {
        let bound = Box::new(Bound {
            binding: Binding {
                count: Count::one(),
                next: UnsafeCell::new(None),
                key: self.key(),
                vtable: Bound::<T>::VTABLE,
            },
            value,
        });
        Locals(Some(NonNull::from(Box::leak(bound)).cast()))
    }

    fn find(&'static self) -> Option<NonNull<T>> {
        let mut at = here();
        while let Some(place) = at {
            // SAFETY: the innermost is kept by something that this thread is in the midst of, and each keeps the next.
            let binding = unsafe { place.as_ref() };
            // What is at the address of a `static` has its type. A key that is none could be anywhere.
            if ptr::eq(binding.key, self.key()) && binding.vtable.value == TypeId::of::<T>() {
                // SAFETY: the value is of this type.
                return Some(unsafe { NonNull::new_unchecked(&raw mut (*place.cast::<Bound<T>>().as_ptr()).value) });
            }
            // SAFETY: it is not written once it is known.
            at = unsafe { *binding.next.get() };
        }
        None
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for TaskLocal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskLocal")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// One value, and what was bound before it.
#[repr(C)]
pub(super) struct Binding {
    /// One for each that has it innermost: the scope, and the groups and tasks that began in there; and for each binding
    /// further in.
    count: Count,
    /// Of which this has a count. Written before anybody but the scope knows this.
    next: UnsafeCell<Option<NonNull<Binding>>>,
    key: *const (),
    vtable: &'static BindingVtable,
}

/// What is known of the value.
struct BindingVtable {
    value: TypeId,
    /// Frees the binding, and does not unwind.
    free: unsafe fn(NonNull<Binding>),
}

#[repr(C)]
struct Bound<T> {
    binding: Binding,
    value: T,
}

impl<T: Send + Sync + 'static> Bound<T> {
    const VTABLE: &'static BindingVtable = &BindingVtable {
        value: TypeId::of::<T>(),
        free: Self::free,
    };

    /// # Safety
    ///
    /// The binding is such a one, and nobody uses it any more.
    unsafe fn free(binding: NonNull<Binding>) {
        // SAFETY: by the caller's promise; it was leaked from a box.
        let bound = unsafe { Box::from_raw(binding.cast::<Self>().as_ptr()) };
        // Whoever happens to be last has nothing to do with the value.
        if let Err(payload) = Panic::catch(|| drop(bound)) {
            // What the payload does is its own doing, once.
            mem::forget(Panic::catch(|| drop(payload)));
        }
    }
}

/// The bindings that are seen somewhere: a count of the innermost, or nothing.
///
/// It is kept by whatever was begun in a scope and may be there when the scope is over.
pub(super) struct Locals(Option<NonNull<Binding>>);

// SAFETY: the values are `Send` and `Sync`, and the rest does not change but for the count.
unsafe impl Send for Locals {}
// SAFETY: as above.
unsafe impl Sync for Locals {}

impl Locals {
    /// Those that the calling code sees.
    pub(super) fn current() -> Self {
        // SAFETY: they are kept by something that this thread is in the midst of.
        unsafe { Locals::counted(here()) }
    }

    /// # Safety
    ///
    /// The binding is there.
    unsafe fn counted(binding: Option<NonNull<Binding>>) -> Self {
        if let Some(binding) = binding {
            // SAFETY: by the caller's promise.
            unsafe { binding.as_ref() }.count.add();
        }
        Locals(binding)
    }

    /// What goes into a context that is there no longer than this.
    #[inline]
    pub(super) fn as_raw(&self) -> Option<NonNull<Binding>> {
        self.0
    }

    /// Puts what the calling code sees beneath a binding.
    ///
    /// # Safety
    ///
    /// This is the only count of a binding that was not linked.
    unsafe fn link(&self) {
        if let Some(binding) = self.0 {
            let mut outer = Locals::current();
            // SAFETY: by the caller's promise. It takes the count over.
            unsafe { *binding.as_ref().next.get() = outer.0.take() };
        }
    }

    /// Runs `body` where these are seen by what the calling thread runs, be that part of a task or not.
    fn enter<R>(&self, body: impl FnOnce() -> R) -> R {
        /// Also when it unwinds.
        struct Leave(*const ());
        impl Drop for Leave {
            fn drop(&mut self) {
                current::replace_bound(self.0);
            }
        }

        let (frame, context) = polled();
        let here = Here {
            frame,
            context,
            locals: self.0,
        };
        let _leave = Leave(current::replace_bound((&raw const here).cast()));
        body()
    }
}

impl Default for Locals {
    /// None.
    fn default() -> Self {
        Locals(None)
    }
}

impl Clone for Locals {
    fn clone(&self) -> Self {
        // SAFETY: it is counted.
        unsafe { Locals::counted(self.0) }
    }
}

impl Drop for Locals {
    fn drop(&mut self) {
        let mut last = self.0;
        while let Some(binding) = last {
            // SAFETY: it is counted, and this gives a count back. The last frees it, and has its count of the next.
            unsafe {
                if !binding.as_ref().count.release() {
                    return;
                }
                last = *binding.as_ref().next.get();
                (binding.as_ref().vtable.free)(binding);
            }
        }
    }
}

impl fmt::Debug for Locals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locals").finish_non_exhaustive()
    }
}

/// What is bound on this stack, beside what the context of a frame says.
struct Here {
    /// The frame that was polled when it was bound, or null, and the context that the frame was polled in. Where either is
    /// another one, this is not what is seen: a scope that began in there, or another task, has its own.
    frame: *const Header,
    context: *const Context,
    locals: Option<NonNull<Binding>>,
}

/// The frame that this thread polls, and its context; or twice null.
#[inline]
fn polled() -> (*const Header, *const Context) {
    Polling::with(|polling| match polling {
        Some(polling) => (polling.frame().as_ptr().cast_const(), ptr::from_ref(polling.context())),
        None => (ptr::null(), ptr::null()),
    })
}

/// The innermost binding that the calling code sees.
#[inline]
fn here() -> Option<NonNull<Binding>> {
    let (frame, context) = polled();
    // SAFETY: it is on the stack beneath us.
    match unsafe { current::bound().cast::<Here>().as_ref() } {
        Some(here) if ptr::eq(here.frame, frame) && ptr::eq(here.context, context) => here.locals,
        // SAFETY: the frame is being polled, so its context is there.
        _ => unsafe { context.as_ref() }.and_then(|context| context.locals),
    }
}

/// A future in which a [task-local](TaskLocal) value is bound. Made by [`TaskLocal::scope`].
#[must_use = "futures do nothing until they are awaited"]
pub struct TaskLocalFuture<F> {
    inside: Inside<F, Binds>,
    /// The binding, until the future is gone.
    locals: Locals,
    /// It knows what is beneath it: it was polled.
    is_linked: bool,
}

/// Other values are seen inside. The scope keeps them for what began in there.
struct Binds(Locals);

impl Change for Binds {
    unsafe fn begin(this: NonNull<Self>, _: NonNull<Scope>, context: &mut Context) {
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
        *locals = Locals(None);
        match ended {
            Ended::Value(value) => Poll::Ready(value),
            Ended::Stopped(_) => inside::stop_outside(cx),
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
