use core::convert::Infallible;
use core::ptr::NonNull;

use super::vtable::OperationVtable;
use crate::sender::port::{Outside, Port};
use crate::sender::progress::{Holds, Progress};
use crate::sender::stage::container_of;
use crate::{Completion, Receiver, Transfer};

/// The part of both forms beside the room of the inner operation.
pub(super) struct InnerOperation<R: Receiver<(), Infallible>> {
    pub(super) outside: Outside<(), Infallible, R>,
    pub(super) vtable: &'static OperationVtable,
    /// Says whether the room holds an operation. `Progress` also knows a state with a sender, which does not occur
    /// here.
    pub(super) progress: Progress,
}

impl<R: Receiver<(), Infallible>> InnerOperation<R> {
    #[inline]
    pub(super) fn new(outside: Outside<(), Infallible, R>, vtable: &'static OperationVtable) -> Self {
        InnerOperation {
            outside,
            vtable,
            progress: Progress::new(),
        }
    }

    /// Returns the operation that contains a port.
    ///
    /// # Safety
    ///
    /// `port` is in the `outside` field of an `InnerOperation<R>`.
    pub(super) unsafe fn of_port(port: NonNull<Port<(), Infallible>>) -> NonNull<Self> {
        // SAFETY: the contract of this function.
        unsafe { container_of!(Outside::<(), Infallible, R>::of_port(port), Self, outside) }
    }

    /// Connects the inner operation. If that fails, the room is empty, and the error is the completion.
    ///
    /// # Safety
    ///
    /// - `this` is pinned, and nothing was connected before.
    /// - The scheduler has the vtable's type. The room has the vtable's layout, and does not move afterwards.
    #[inline]
    pub(super) unsafe fn connect(
        this: NonNull<Self>,
        scheduler: NonNull<()>,
        room: NonNull<()>,
    ) -> Result<(), Completion<(), Infallible>> {
        // SAFETY: the contract of this function. User code in `connect` accesses `this` only through the receiver,
        // which changes `progress` only, and that is a cell.
        unsafe {
            let InnerOperation { vtable, progress, .. } = this.as_ref();
            if !progress.begins_to_connect() {
                return Err(Completion::Stopped);
            }
            let receiver = Outside::port_receiver(&raw mut (*this.as_ptr()).outside);
            match (vtable.connect)(scheduler, room, receiver) {
                Ok(()) if progress.has_connected() => Ok(()),
                Ok(()) => {
                    (vtable.drop)(room);
                    Err(Completion::Stopped)
                }
                Err(payload) => {
                    progress.has_unwound();
                    Err(Completion::Panicked(payload))
                }
            }
        }
    }

    /// Starts the inner operation, if it was connected.
    ///
    /// # Safety
    ///
    /// The room is the one of `connect`. It stays valid until the inner operation has completed.
    #[inline]
    pub(super) unsafe fn start(this: NonNull<Self>, room: NonNull<()>) -> Transfer {
        // SAFETY: `progress` says that the room holds an operation that was not started. All references end before the
        // start, in which `this` may be freed.
        unsafe {
            let start = this.as_ref().vtable.start;
            if this.as_ref().progress.starts() {
                start(room)
            } else {
                Transfer::none()
            }
        }
    }

    /// Drops the inner operation, if there is one that is not running.
    ///
    /// # Safety
    ///
    /// The room is the one of `connect`.
    #[inline]
    pub(super) unsafe fn drop_inner(&self, room: NonNull<()>) {
        if let Holds::Operation = self.progress.clears() {
            // SAFETY: `progress` said that the room holds an operation that is not running, and now says that it is
            // empty.
            unsafe { (self.vtable.drop)(room) };
        }
    }
}
