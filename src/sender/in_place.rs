//! A sender, then its operation, in one place whose owner does not know their types.
//!
//! Type-erased boundaries have one inside: a box, the state that `split` shares, the heap operation of `submit`.
//! [`InPlace`] is the memory, and [`Progress`] its state.

use core::cell::UnsafeCell;
use core::marker::PhantomPinned;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::ptr::NonNull;

use super::dismantle::DropList;
use super::progress::{Holds, Progress};
use super::{Completion, Operation, Panic, Sender, Transfer, start};

/// The part of an [`InPlace`] that does not depend on its types: its owner's header, and the progress.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Prefix<H> {
    pub(crate) header: H,
    pub(crate) progress: Progress,
}

/// Memory for a sender `S`, then for its operation `O`. `H` is its owner's header.
#[repr(C)]
pub(crate) struct InPlace<S, O, H = ()> {
    /// The first field, so that its address is the place's.
    pub(crate) prefix: Prefix<H>,
    content: UnsafeCell<Content<S, O>>,
    _pinned: PhantomPinned,
}

union Content<S, O> {
    sender: ManuallyDrop<S>,
    operation: ManuallyDrop<O>,
}

impl<S, O, H> InPlace<S, O, H> {
    pub(crate) const fn new(header: H, sender: S) -> Self {
        InPlace {
            prefix: Prefix {
                header,
                progress: Progress::new(),
            },
            content: UnsafeCell::new(Content {
                sender: ManuallyDrop::new(sender),
            }),
            _pinned: PhantomPinned,
        }
    }

    /// Connects the sender in place. Returns the completion where `connect` panics or drops its receiver. A place
    /// without a sender returns a stop.
    ///
    /// # Safety
    ///
    /// The place is pinned, and the caller has exclusive access to it.
    #[inline]
    pub(crate) unsafe fn connect<T, E>(
        this: NonNull<Self>,
        connect: impl FnOnce(S) -> O,
    ) -> Result<(), Completion<T, E>> {
        // SAFETY: the place is alive, and only cells of the prefix are written.
        let (progress, content) = unsafe { (&this.as_ref().prefix.progress, this.as_ref().content.get()) };
        if !progress.begins_to_connect() {
            return Err(Completion::Stopped);
        }
        // SAFETY: the progress says that the place holds a sender, which is moved out. It says `Connecting` from here
        // on.
        let sender = unsafe { ManuallyDrop::take(&mut (*content).sender) };
        match Panic::catch(|| connect(sender)) {
            Ok(operation) if progress.has_connected() => {
                // SAFETY: the caller has exclusive access, and the place is empty.
                unsafe { (*content).operation = ManuallyDrop::new(operation) };
                Ok(())
            }
            Ok(operation) => {
                drop(operation);
                Err(Completion::Stopped)
            }
            Err(payload) => {
                progress.has_unwound();
                Err(Completion::Panicked(payload))
            }
        }
    }

    /// Starts the operation, if the place holds one that was not started.
    ///
    /// # Safety
    ///
    /// The place is pinned. The caller has exclusive access to it until the operation completes, and it is alive until
    /// then.
    #[inline]
    pub(crate) unsafe fn start(this: NonNull<Self>) -> Transfer
    where
        O: Operation,
    {
        // SAFETY: the place is alive. The references end here: the start may complete the operation, and free the
        // place.
        let content = unsafe {
            let this = this.as_ref();
            if !this.prefix.progress.starts() {
                return Transfer::none();
            }
            this.content.get()
        };
        // SAFETY: the place holds an operation, by the progress. It is pinned with the place, and started once. The
        // progress lets it be dropped only after it has completed.
        unsafe { start(Pin::new_unchecked(&mut *(*content).operation)) }
    }

    /// Destroys the content, unless it is a running operation.
    ///
    /// # Safety
    ///
    /// The caller has exclusive access to the place, unless an operation runs there.
    #[inline]
    pub(crate) unsafe fn clear(this: NonNull<Self>) {
        // SAFETY: the place is alive, and the progress names its content. The progress says `Empty` from here on.
        unsafe {
            let content = this.as_ref().content.get();
            match this.as_ref().prefix.progress.clears() {
                Holds::Sender => ManuallyDrop::drop(&mut (*content).sender),
                Holds::Operation => ManuallyDrop::drop(&mut (*content).operation),
                Holds::Nothing => {}
            }
        }
    }

    /// Moves the boxes that the sender owns to `list`, if the place holds a sender.
    pub(crate) fn dismantle(&mut self, list: &mut DropList<'_>)
    where
        S: Sender,
    {
        if self.prefix.progress.is_sender() {
            // SAFETY: the place holds a sender, by the progress.
            let sender = unsafe { &mut *self.content.get_mut().sender };
            list.collect(sender);
        }
    }
}

impl<S, O, H> Drop for InPlace<S, O, H> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a value that is dropped is not shared. `clear` leaves a running operation alone.
        unsafe { InPlace::clear(NonNull::from(self)) };
    }
}
