use core::convert::Infallible;
use core::ptr::NonNull;

use super::inner::InnerOperation;
use super::scheduler::TaskScheduler;
use crate::memory::Words;
use crate::sender::port::{Outside, Port};
use crate::sender::stage::container_of;
use crate::{Completion, Receiver, Transfer};

/// The room of an inline operation.
pub(super) type InlineRoom = Words<16>;

/// An operation with inline room. Its address is fixed only from `start` on, so it connects the inner operation there.
///
/// Another erased operation does not fit into the room, so the nesting depth is one. The inner operation is started and
/// completes directly.
pub(super) struct InlineForm<'a, R: Receiver<(), Infallible>> {
    inner: InnerOperation<R>,
    /// Dropped by `start`, before the inner operation can complete.
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
    /// `this` is pinned, started once, and stays valid until it has completed.
    #[inline]
    pub(super) unsafe fn start(this: NonNull<Self>) -> Transfer {
        // SAFETY: the contract of this function. The room is for an operation of this scheduler. Nothing is accessed
        // after the inner operation was started.
        unsafe {
            let inner = NonNull::new_unchecked(&raw mut (*this.as_ptr()).inner);
            let room = this.as_ref().inside.place();
            let connected = match &this.as_ref().scheduler {
                Some(scheduler) => InnerOperation::connect(inner, scheduler.scheduler(), room),
                None => return Transfer::none(),
            };
            // Dropped now: after the start, the operation may be freed at any time.
            (*this.as_ptr()).scheduler = None;
            match connected {
                Ok(()) => InnerOperation::start(inner, room),
                Err(completion) => completion.deliver_to((*inner.as_ptr()).outside.receiver.take()),
            }
        }
    }

    /// # Safety
    ///
    /// `port` is the field of an operation whose inner operation completes, or drops its receiver.
    unsafe fn complete(port: NonNull<Port<(), Infallible>>, completion: Completion<(), Infallible>) -> Transfer {
        // SAFETY: the port is a field of an operation. The inner operation does not access itself after its completion,
        // so this function has exclusive access.
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
        // SAFETY: the room is the one of `connect`. Only `start` connects, and then starts at once. So an operation in
        // the room means that the start unwound.
        unsafe { self.inner.drop_inner(self.inside.place()) };
    }
}
