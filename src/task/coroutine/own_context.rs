//! The context of a frame that does not use the one around it.

use core::any::{Any, TypeId};
use core::ptr::NonNull;

use allocator_api2::alloc::Global;

use crate::sender::env::Beneath;
use crate::task::awaiting::environment::TaskEnv;
use crate::task::coroutine::allocator::TaskAllocator;
use crate::task::coroutine::context::{ContextScheduler, TaskContext};
use crate::task::frame::{Home, Placement};
use crate::task::strand::context::Context;
use crate::{Panic, Priority};

/// The context of one frame, where that does not use another's. It lives in the frame, and does not move.
pub(in crate::task) struct OwnContext<C: TaskContext> {
    /// Dropped before the rest, of which its destructor may make use.
    user: C,
    context: Context,
    /// Where what the user's context does not answer is asked.
    outer: NonNull<Context>,
    allocator: NonNull<C::Allocator>,
}

impl<C: TaskContext> OwnContext<C> {
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
            (user, priority.or(outside.priority()))
        })?;
        let own = OwnContext {
            user,
            context: Context {
                placement: Placement {
                    home: match C::Scheduler::ANYWHERE {
                        true => Home::anywhere(),
                        false => outside.placement.home,
                    },
                    priority,
                    scope: outside.placement.scope,
                },
                outside: (NonNull::dangling(), Self::look),
                ..*outside
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
