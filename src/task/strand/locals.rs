//! Bindings of task-local values: a chain from the innermost outwards, with a reference count for each.

use core::any::TypeId;
use core::cell::UnsafeCell;
use core::mem;
use core::ptr::{self, NonNull};
use std::boxed::Box;

use super::Context;
use crate::Panic;
use crate::memory::Count;
use crate::sender::current;
use crate::task::frame::{Header, Polling};

/// One value, and what was bound before it.
#[repr(C)]
pub(in crate::task) struct Binding {
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
pub(in crate::task) struct Locals(Option<NonNull<Binding>>);

// SAFETY: the values are `Send` and `Sync`, and the rest does not change but for the count.
unsafe impl Send for Locals {}
// SAFETY: as above.
unsafe impl Sync for Locals {}

impl Locals {
    /// Makes a binding that is not [linked](Locals::link) yet.
    pub(in crate::task) fn bind<T: Send + Sync + 'static>(key: *const (), value: T) -> Self {
        let bound = Box::new(Bound {
            binding: Binding {
                count: Count::one(),
                next: UnsafeCell::new(None),
                key,
                vtable: Bound::<T>::VTABLE,
            },
            value,
        });
        Locals(Some(NonNull::from(Box::leak(bound)).cast()))
    }

    /// The innermost value that the calling code sees for a key. Valid until that code returns.
    pub(in crate::task) fn find<T: 'static>(key: *const ()) -> Option<NonNull<T>> {
        let mut at = here();
        while let Some(place) = at {
            // SAFETY: a scope beneath this call owns a reference of the innermost binding, and each binding one of the next.
            let binding = unsafe { place.as_ref() };
            // The type at the address of a `static` is that of its key. A key on the heap may share an address with an older one.
            if ptr::eq(binding.key, key) && binding.vtable.value == TypeId::of::<T>() {
                // SAFETY: the value has this type.
                return Some(unsafe { NonNull::new_unchecked(&raw mut (*place.cast::<Bound<T>>().as_ptr()).value) });
            }
            // SAFETY: `next` is not written once other code knows the binding.
            at = unsafe { *binding.next.get() };
        }
        None
    }

    /// Those that the calling code sees.
    pub(in crate::task) fn current() -> Self {
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
    pub(in crate::task) fn as_raw(&self) -> Option<NonNull<Binding>> {
        self.0
    }

    /// Puts what the calling code sees beneath a binding.
    ///
    /// # Safety
    ///
    /// This is the only count of a binding that was not linked.
    pub(in crate::task) unsafe fn link(&self) {
        if let Some(binding) = self.0 {
            let mut outer = Locals::current();
            // SAFETY: by the caller's promise. It takes the count over.
            unsafe { *binding.as_ref().next.get() = outer.0.take() };
        }
    }

    /// Runs `body` where these are seen by what the calling thread runs, be that part of a task or not.
    pub(in crate::task) fn enter<R>(&self, body: impl FnOnce() -> R) -> R {
        /// Also when it unwinds.
        struct Unbind(*const ());
        impl Drop for Unbind {
            fn drop(&mut self) {
                current::replace_bound(self.0);
            }
        }

        let (frame, context) = polled();
        let here = BoundHere {
            frame,
            context,
            locals: self.0,
        };
        let _unbind = Unbind(current::replace_bound((&raw const here).cast()));
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

/// What is bound on this stack, beside what the context of a frame says.
struct BoundHere {
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
    match unsafe { current::bound().cast::<BoundHere>().as_ref() } {
        Some(here) if ptr::eq(here.frame, frame) && ptr::eq(here.context, context) => here.locals,
        // SAFETY: the frame is being polled, so its context is there.
        _ => unsafe { context.as_ref() }.and_then(|context| context.locals),
    }
}
