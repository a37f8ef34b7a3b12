use core::convert::Infallible;
use core::ptr::NonNull;

use super::inner::InnerOperation;
use super::scheduler::TaskScheduler;
use crate::memory::Words;
use crate::sender::port::{Outside, Port};
use crate::sender::stage::container_of;
use crate::{Completion, Receiver, Transfer};

pub(super) type InlineRoom = Words<16>;

/// An operation that is inline. It has its address in `start`, and connects what is inside there.
///
/// An erased operation does not fit into another, so there is nothing of unknown depth in here, and what is inside is
/// started and completes directly.
pub(super) struct InlineForm<'a, R: Receiver<(), Infallible>> {
    inner: InnerOperation<R>,
    /// Dropped by `start`, before the inside can complete.
    scheduler: Option<TaskScheduler<'a>>,
    inside: InlineRoom,
}

impl<'a, R: Receiver<(), Infallible>> InlineForm<'a, R> {
    #[inline]
    pub(super) fn new(scheduler: TaskScheduler<'a>, receiver: R) -> Self {
        InlineForm {
            inner: InnerOperation::new(Outside::new(receiver, Self::complete), &scheduler.vtable.operation),
            scheduler: Some(scheduler),
            inside: Words::empty(),
        }
    }

    /// # Safety
    ///
    /// `this` is pinned, started once, and stays until it has completed.
    #[inline]
    pub(super) unsafe fn start(this: NonNull<Self>) -> Transfer {
        // SAFETY: by the caller's promise. Nothing is touched once the inside was started. The scheduler is of the type that
        // the room is for.
        unsafe {
            let inner = NonNull::new_unchecked(&raw mut (*this.as_ptr()).inner);
            let room = this.as_ref().inside.place();
            let connected = match &this.as_ref().scheduler {
                Some(scheduler) => InnerOperation::connect(inner, scheduler.scheduler(), room),
                None => return Transfer::none(),
            };
            // Once it was started, or has completed, it would be too late.
            (*this.as_ptr()).scheduler = None;
            match connected {
                Ok(()) => InnerOperation::start(inner, room),
                Err(completion) => completion.deliver_to((*inner.as_ptr()).outside.receiver.take()),
            }
        }
    }

    /// # Safety
    ///
    /// The port is that of an operation whose inside completes, or loses its receiver.
    unsafe fn complete(port: NonNull<Port<(), Infallible>>, completion: Completion<(), Infallible>) -> Transfer {
        // SAFETY: the port is in a field of an operation. What is inside touches nothing of itself once it has completed,
        // so this has exclusive access to the operation then.
        let receiver = unsafe {
            let inner = InnerOperation::<R>::of_port(port);
            if !inner.as_ref().progress.completes() {
                return Transfer::none();
            }
            let this = container_of!(inner, Self, inner).as_mut();
            this.inner.drop_inner(this.inside.place());
            this.inner.outside.receiver.take()
        };
        completion.deliver_to(receiver)
    }
}

impl<R: Receiver<(), Infallible>> Drop for InlineForm<'_, R> {
    #[inline]
    fn drop(&mut self) {
        // Only `start` connects, and starts then. So where there is an inside, that has unwound.
        // SAFETY: the room is the one that the inside was connected in.
        unsafe { self.inner.drop_inner(self.inside.place()) };
    }
}
