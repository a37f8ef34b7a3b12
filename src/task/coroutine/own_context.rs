//! The context of a frame with a [`TaskContext`] of its own.

use core::any::{Any, TypeId};
use core::ptr::NonNull;

use allocator_api2::alloc::Global;

use super::{ContextScheduler, TaskAllocator, TaskContext};
use crate::sender::env::Beneath;
use crate::task::awaiting::TaskEnv;
use crate::task::frame::{Home, Placement};
use crate::task::strand::Context;
use crate::{Panic, Priority};

/// The context of one frame, stored in the frame and pinned there.
pub(in crate::task) struct OwnContext<C: TaskContext> {
    /// Dropped first, since its destructor may use the rest.
    user: C,
    context: Context,
    /// Answers the queries that the user's context does not.
    outer: NonNull<Context>,
    allocator: NonNull<C::Allocator>,
}

impl<C: TaskContext> OwnContext<C> {
    /// Creates the context of a frame in place.
    ///
    /// # Errors
    ///
    /// The panic of the user's code.
    ///
    /// # Safety
    ///
    /// `place` is empty and does not move. `outer` and `allocator` are valid until it is empty again.
    pub(in crate::task) unsafe fn adopt(
        place: *mut Option<Self>,
        outer: NonNull<Context>,
        allocator: NonNull<C::Allocator>,
    ) -> Result<NonNull<Context>, Panic> {
        // SAFETY: the caller's promise: `outer` is valid.
        let (env, outside) = unsafe { (TaskEnv::new(outer, None), outer.as_ref()) };
        let (user, priority) = Panic::catch(|| {
            let user = C::new(&env);
            let mut priority = None;
            user.visit(TypeId::of::<Priority>(), &mut |found| {
                priority = found.downcast_ref().copied();
            });
            (user, priority.or(outside.priority))
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
                    ..outside.placement
                },
                outside: (NonNull::dangling(), Self::look),
                ..*outside
            },
            outer,
            allocator,
        };
        // SAFETY: the caller has exclusive access to `place`.
        let own = unsafe { &mut *place }.insert(own);
        let this = NonNull::from(own);
        // SAFETY: the context was just stored there.
        unsafe {
            (*this.as_ptr()).context.outside.0 = this.cast();
            Ok(NonNull::new_unchecked(&raw mut (*this.as_ptr()).context))
        }
    }

    /// # Safety
    ///
    /// `place` is an `OwnContext<C>` that is alive.
    unsafe fn look(place: NonNull<()>, id: TypeId, found: &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'static>> {
        // SAFETY: the caller's promise. `outer` and `allocator` are valid as long as the context, by the contract of `adopt`.
        let (this, outer, allocator) = unsafe {
            let this = place.cast::<Self>().as_ref();
            (this, this.outer.as_ref(), this.allocator.as_ref())
        };
        // `Global` is the default, so such a context leaves the query to the outer one.
        if TypeId::of::<C::Allocator>() != TypeId::of::<Global>() {
            if id == TypeId::of::<C::Allocator>() {
                found(allocator);
                return None;
            }
            if id == TypeId::of::<TaskAllocator>() {
                // If erasing the allocator fails, the query has no answer.
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
        // SAFETY: the outer environment is alive as long as the outer context.
        (!answered).then(|| unsafe { Beneath::new(place, look) })
    }
}
