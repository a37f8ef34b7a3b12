//! Bindings of task-local values: a chain from the innermost outwards, with a reference count for each.

use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use std::boxed::Box;

use super::Context;
use crate::Panic;
use crate::memory::{Count, Shareable, Shared};
use crate::sender::current;
use crate::sender::unwind::OnDrop;
use crate::task::frame::{Header, Polling};

/// One bound value, and the next outer binding.
#[repr(C)]
pub(in crate::task) struct Binding {
    /// One reference for each owner that has it innermost: the scope, and groups and tasks begun inside. One for each inner
    /// binding.
    count: Count,
    /// The next outer binding, of which this owns a reference. Written before the binding is shared.
    next: UnsafeCell<Option<NonNull<Binding>>>,
    /// The address of the key, which is borrowed for `'static`. So no other key has it, and it identifies the type of the value.
    key: *const (),
    /// Frees the binding; does not unwind.
    free: unsafe fn(NonNull<Binding>),
}

#[repr(C)]
struct Bound<T> {
    binding: Binding,
    value: T,
}

/// Frees a binding.
///
/// # Safety
///
/// `binding` is a `Bound<T>`, and this is the last reference.
unsafe fn free<T>(binding: NonNull<Binding>) {
    // SAFETY: the caller's promise; the binding was leaked from a box.
    let bound = unsafe { Box::from_raw(binding.cast::<Bound<T>>().as_ptr()) };
    // The last owner may be another task, which the panic of this destructor does not concern.
    _ = Panic::catch(|| drop(bound)).map_err(Panic::discard);
}

/// The visible bindings: a reference to the innermost, or none.
///
/// Owned by everything begun in a scope that may outlive the scope.
#[derive(Clone, Default)]
pub(in crate::task) struct Locals(Option<Shared<Binding>>);

// SAFETY: the last reference frees the binding. The values are `Send + Sync`; after linking, only the atomic count changes.
unsafe impl Shareable for Binding {
    unsafe fn add(this: NonNull<Self>) {
        // SAFETY: there is a reference.
        unsafe { this.as_ref() }.count.add();
    }

    /// Releases the references to the outer bindings as well, iteratively.
    unsafe fn release(this: NonNull<Self>) {
        let mut last = Some(this);
        while let Some(binding) = last {
            // SAFETY: the caller owns a reference. After the last one, the caller owns that of the binding to the next.
            unsafe {
                if !binding.as_ref().count.release() {
                    return;
                }
                last = *binding.as_ref().next.get();
                (binding.as_ref().free)(binding);
            }
        }
    }
}

impl Locals {
    /// Creates a binding that is not [linked](Locals::link) yet.
    ///
    /// # Safety
    ///
    /// `key` is the address of a key of `T`, which is borrowed for `'static`.
    pub(in crate::task) unsafe fn bind<T: Send + Sync + 'static>(key: *const (), value: T) -> Self {
        let bound = Box::new(Bound {
            binding: Binding {
                count: Count::one(),
                next: UnsafeCell::new(None),
                key,
                free: free::<T>,
            },
            value,
        });
        // SAFETY: this is the first reference.
        Locals(Some(unsafe {
            Shared::from_raw(NonNull::from(Box::leak(bound)).cast())
        }))
    }

    /// Returns the innermost value that the calling code sees for a key. Valid until that code returns.
    ///
    /// # Safety
    ///
    /// As for [`bind`](Locals::bind).
    #[inline]
    pub(in crate::task) unsafe fn find<T: 'static>(key: *const ()) -> Option<NonNull<T>> {
        let innermost = here()?;
        // SAFETY: a scope below this call owns a reference to the innermost binding.
        let found = if ptr::eq(unsafe { innermost.as_ref() }.key, key) {
            innermost
        } else {
            // SAFETY: as above.
            unsafe { find_outside(innermost, key) }?
        };
        // SAFETY: the binding is valid, and its key is that of a `T`, by the contract of `bind`.
        Some(unsafe { NonNull::new_unchecked(&raw mut (*found.cast::<Bound<T>>().as_ptr()).value) })
    }

    /// Returns the bindings that the calling code sees.
    pub(in crate::task) fn current() -> Self {
        // SAFETY: a scope below this call owns a reference.
        Locals(here().map(|binding| unsafe { Shared::of(binding) }))
    }

    /// Returns a pointer for a context that does not outlive this.
    #[inline]
    pub(in crate::task) fn as_raw(&self) -> Option<NonNull<Binding>> {
        self.0.as_ref().map(Shared::as_ptr)
    }

    /// Links a binding to those that the calling code sees.
    ///
    /// # Safety
    ///
    /// This is the only reference to a binding that is not linked.
    pub(in crate::task) unsafe fn link(&self) {
        if let Some(binding) = &self.0 {
            // SAFETY: the caller has the only reference. That of the outer binding moves into `next`.
            unsafe { *binding.next.get() = Locals::current().0.map(Shared::into_raw) };
        }
    }

    /// Runs `body` with these bindings visible on the calling thread, inside a task or not.
    pub(in crate::task) fn enter<R>(&self, body: impl FnOnce() -> R) -> R {
        let (frame, context) = polled();
        let here = BoundHere {
            frame,
            context,
            locals: self.as_raw(),
        };
        let outer = current::replace_bound((&raw const here).cast());
        let _unbind = OnDrop(|| _ = current::replace_bound(outer));
        body()
    }
}

/// A binding on this thread's stack, beside those in the context of a frame.
struct BoundHere {
    /// The frame polled when it was bound, or null, and its context. If either differs now, this is not visible: an inner scope
    /// or another task has bindings of its own.
    frame: *const Header,
    context: *const Context,
    locals: Option<NonNull<Binding>>,
}

/// Returns the frame that this thread polls, and its context; or null twice.
#[inline]
fn polled() -> (*const Header, *const Context) {
    Polling::with(|polling| match polling {
        Some(polling) => (polling.frame().as_ptr().cast_const(), ptr::from_ref(polling.context())),
        None => (ptr::null(), ptr::null()),
    })
}

/// Returns the innermost binding that the calling code sees.
#[inline]
fn here() -> Option<NonNull<Binding>> {
    let bound = current::bound().cast::<BoundHere>();
    if bound.is_null() {
        return Polling::with(|polling| polling?.context().locals);
    }
    // SAFETY: the entry is on the stack below this call.
    here_besides(unsafe { &*bound })
}

/// Does what [`here`] does, below synchronous code that has bound a value.
#[cold]
fn here_besides(here: &BoundHere) -> Option<NonNull<Binding>> {
    let (frame, context) = polled();
    if ptr::eq(here.frame, frame) && ptr::eq(here.context, context) {
        return here.locals;
    }
    // SAFETY: the frame is being polled, so its context is valid.
    unsafe { context.as_ref() }.and_then(|context| context.locals)
}

/// Returns the innermost binding of a key outside of the given one.
///
/// # Safety
///
/// The binding is valid until the result is no longer used.
#[inline(never)]
unsafe fn find_outside(inner: NonNull<Binding>, key: *const ()) -> Option<NonNull<Binding>> {
    let mut inner = inner;
    loop {
        // SAFETY: each binding owns a reference to the next. `next` is not written once other code knows the binding.
        unsafe {
            let outer = (*inner.as_ref().next.get())?;
            if ptr::eq(outer.as_ref().key, key) {
                return Some(outer);
            }
            inner = outer;
        }
    }
}
