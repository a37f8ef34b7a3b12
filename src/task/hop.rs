//! How a frame gets onto a scheduler that has no queue for it: by an operation of its own.

use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::ptr::NonNull;
use std::boxed::Box;

use crate::scheduler::thread_pool::Entry;
use crate::{EmptyEnv, Operation, Panic, Receiver, Sender, Transfer};

/// Runs the job of an entry where `schedule` completes, however it completes. The operation is on the heap.
///
/// # Safety
///
/// The entry is in no queue, and stays where it is until its job runs.
pub(crate) unsafe fn hop<S: Sender<Value = ()>>(schedule: S, entry: NonNull<Entry>) -> Transfer {
    let hop = NonNull::from(Box::leak(Box::new(Hop::<S> {
        connected: false,
        operation: None,
    })));
    match Panic::catch(|| schedule.connect(HopReceiver { entry, hop })) {
        // SAFETY: the box does not move; the operation is started once, and freed by the completion.
        Ok(operation) => unsafe {
            (*hop.as_ptr()).connected = true;
            Pin::new_unchecked((*hop.as_ptr()).operation.insert(operation)).start()
        },
        Err(_) => {
            // SAFETY: nobody else knows the box: the receiver let go of it when it was dropped.
            drop(unsafe { Box::from_raw(hop.as_ptr()) });
            // SAFETY: by the caller's promise.
            unsafe { Transfer::to(entry.cast()) }
        }
    }
}

struct Hop<S: Sender<Value = ()>> {
    connected: bool,
    operation: Option<S::Operation<HopReceiver<S>>>,
}

/// The receiver of a [`hop`]. Nothing stops it.
pub(super) struct HopReceiver<S: Sender<Value = ()>> {
    entry: NonNull<Entry>,
    hop: NonNull<Hop<S>>,
}

// SAFETY: it is used by the completion alone.
unsafe impl<S: Sender<Value = ()>> Send for HopReceiver<S> {}

impl<S: Sender<Value = ()>> HopReceiver<S> {
    fn arrive(self) -> Transfer {
        let this = ManuallyDrop::new(self);
        this.land()
    }

    fn land(&self) -> Transfer {
        let entry = self.entry;
        // SAFETY: the operation has completed, and touches nothing of itself any more. It was leaked from a box.
        drop(unsafe { Box::from_raw(self.hop.as_ptr()) });
        // SAFETY: the entry is in no queue, and stays until it runs.
        unsafe { Transfer::to(entry.cast()) }
    }
}

impl<S: Sender<Value = ()>, E> Receiver<(), E> for HopReceiver<S> {
    type Env = EmptyEnv;

    fn env(&self) -> EmptyEnv {
        EmptyEnv
    }

    fn set_value(self, (): ()) -> Transfer {
        self.arrive()
    }

    /// The scheduler was asked not to fail, at compile time. Where it does all the same, the task goes on.
    fn set_error(self, error: E) -> Transfer {
        drop(error);
        self.arrive()
    }

    fn set_stopped(self) -> Transfer {
        self.arrive()
    }

    fn set_panicked(self, _: Panic) -> Transfer {
        self.arrive()
    }
}

impl<S: Sender<Value = ()>> Drop for HopReceiver<S> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: the box is freed by the completion, which this is, or by who connects.
        if !unsafe { (*self.hop.as_ptr()).connected } {
            // Connecting panicked: who asked for it goes on.
            return;
        }
        self.land().run();
    }
}

impl<S: Sender<Value = ()>> core::fmt::Debug for HopReceiver<S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HopReceiver").finish_non_exhaustive()
    }
}
