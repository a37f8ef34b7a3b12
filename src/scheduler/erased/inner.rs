use core::convert::Infallible;
use core::ptr::NonNull;

use super::vtable::OperationVtable;
use crate::sender::port::{Outside, Port};
use crate::sender::progress::{Holds, Progress};
use crate::sender::stage::container_of;
use crate::{Completion, Receiver, Transfer};

/// What an operation has beside the room for the inside.
pub(super) struct InnerOperation<R: Receiver<(), Infallible>> {
    pub(super) outside: Outside<(), Infallible, R>,
    pub(super) vtable: &'static OperationVtable,
    /// What the room holds. The sender that it counts before that is the scheduler's, and not there.
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

    /// The operation that a port is in: the inside tells that port something.
    ///
    /// # Safety
    ///
    /// The port is that of an `InnerOperation<R>`.
    pub(super) unsafe fn of_port(port: NonNull<Port<(), Infallible>>) -> NonNull<Self> {
        // SAFETY: by the caller's promise.
        unsafe { container_of!(Outside::<(), Infallible, R>::of_port(port), Self, outside) }
    }

    /// Connects the inside. Where that fails, nothing is in the room, and the result says what to complete with.
    ///
    /// # Safety
    ///
    /// - `this` is pinned, and nothing was connected.
    /// - The scheduler is of the vtable's type. The room has the vtable's layout, and does not move any more.
    #[inline]
    pub(super) unsafe fn connect(
        this: NonNull<Self>,
        scheduler: NonNull<()>,
        room: NonNull<()>,
    ) -> Result<(), Completion<(), Infallible>> {
        // SAFETY: by the caller's promise. The user's code in there reaches this only through the receiver, which changes
        // the progress alone, and that is a cell.
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

    /// Starts the inside, where it was connected.
    ///
    /// # Safety
    ///
    /// The room is the one that it was connected in. It stays until the inside has completed.
    #[inline]
    pub(super) unsafe fn start(this: NonNull<Self>, room: NonNull<()>) -> Transfer {
        // SAFETY: by the caller's promise, and the progress. The references end before the start, in which this may go.
        unsafe {
            let start = this.as_ref().vtable.start;
            if this.as_ref().progress.starts() {
                start(room)
            } else {
                Transfer::none()
            }
        }
    }

    /// Destroys the inside, if there is one that does not run.
    ///
    /// # Safety
    ///
    /// The room is the one that it was connected in.
    #[inline]
    pub(super) unsafe fn drop_inner(&self, room: NonNull<()>) {
        if let Holds::Operation = self.progress.clears() {
            // SAFETY: the room holds an operation that does not run, by the progress, which now says that it is empty.
            unsafe { (self.vtable.drop)(room) };
        }
    }
}
