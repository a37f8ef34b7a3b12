//! Local tasks that run in an executor of another crate: the block notes their frames.

use core::any::{Any, TypeId};
use core::ptr::NonNull;

use super::core::{ForeignCore, ForeignRef};
use crate::sender::env::Beneath;
use crate::sync::{lock, thread_id};
use crate::task::frame::Header;
use crate::{Identity, Scheduler};

/// Where a local task notes its frame: in the block whose scheduler it runs on. It finds it in the environment there.
pub(in crate::task) struct LocalHome(ForeignRef);

impl Clone for LocalHome {
    fn clone(&self) -> Self {
        // SAFETY: a handle is counted.
        LocalHome(unsafe { ForeignRef::of(self.0.0) })
    }
}

impl LocalHome {
    /// # Safety
    ///
    /// The place is the core of a block.
    pub(super) unsafe fn look(
        place: NonNull<()>,
        id: TypeId,
        found: &mut dyn FnMut(&dyn Any),
    ) -> Option<Beneath<'static>> {
        if id == TypeId::of::<LocalHome>() {
            // SAFETY: by the caller's promise, and the caller is counted.
            found(&LocalHome(unsafe { ForeignRef::of(place.cast()) }));
            return None;
        }
        // SAFETY: as above. The context of the task that it began in is valid until the operation has completed.
        let (place, look) = unsafe { place.cast::<ForeignCore>().as_ref().around?.context.as_ref() }.outside;
        // SAFETY: as above.
        Some(unsafe { Beneath::new(place, look) })
    }

    /// Whether this is the scheduler of the block.
    ///
    /// A wrapper that forwards its queue counts too: frames come to the same place.
    pub(in crate::task) fn is_scheduler<S: Scheduler>(&self, scheduler: &S) -> bool {
        let own = Identity::of_queue([self.0.0.as_ptr().addr(), 0]);
        scheduler.native().is_some_and(|queue| queue.identity() == own)
    }

    /// Whether the calling thread is the one that polls.
    pub(in crate::task) fn is_here(&self) -> bool {
        lock(&self.0.core().queue).driver == thread_id()
    }

    /// Notes a frame, until what is returned is dropped.
    ///
    /// # Safety
    ///
    /// Until then the frame is not done, or is just being completed on the thread that polls.
    pub(in crate::task) unsafe fn note(self, frame: NonNull<Header>) -> Noted {
        {
            let mut queue = lock(&self.0.core().queue);
            queue.homed.push(frame);
            if queue.stopping {
                // It came too late, and is dropped by its first poll.
                // SAFETY: by the caller's promise.
                unsafe { Header::stop(frame) };
            }
        }
        Noted { home: self, frame }
    }
}

/// A frame that is noted.
pub(in crate::task) struct Noted {
    home: LocalHome,
    frame: NonNull<Header>,
}

// SAFETY: the frame is only compared with.
unsafe impl Send for Noted {}

impl Drop for Noted {
    fn drop(&mut self) {
        let mut queue = lock(&self.home.0.core().queue);
        if let Some(at) = queue.homed.iter().position(|frame| *frame == self.frame) {
            queue.homed.swap_remove(at);
        }
    }
}
