//! Local tasks that run in an executor of another crate: the block records their frames.

use core::any::{Any, TypeId};
use core::ptr::NonNull;

use super::core::{ForeignCore, ForeignRef};
use crate::sender::env::Beneath;
use crate::sync::{lock, thread_id};
use crate::task::frame::Header;
use crate::{Identity, Scheduler};

/// A handle by which a local task records its frame in the block whose scheduler it runs on. Found in the environment.
#[derive(Clone)]
pub(in crate::task) struct LocalHome(ForeignRef);

impl LocalHome {
    /// # Safety
    ///
    /// `place` is the core of a block.
    pub(super) unsafe fn look(
        place: NonNull<()>,
        id: TypeId,
        found: &mut dyn FnMut(&dyn Any),
    ) -> Option<Beneath<'static>> {
        if id == TypeId::of::<LocalHome>() {
            // SAFETY: the caller's promise; the caller owns a reference.
            found(&LocalHome(unsafe { ForeignRef::of(place.cast()) }));
            return None;
        }
        // SAFETY: the block is alive, as above. The context of its task is valid until the operation has completed.
        let (place, look) = unsafe { place.cast::<ForeignCore>().as_ref().around?.context.as_ref() }.outside;
        // SAFETY: the outer environment is valid as long as that context.
        Some(unsafe { Beneath::new(place, look) })
    }

    /// Returns whether this is the scheduler of the block.
    ///
    /// A wrapper that forwards its queue counts too: frames reach the same block.
    pub(in crate::task) fn is_scheduler<S: Scheduler>(&self, scheduler: &S) -> bool {
        let own = Identity::of_queue([self.0.as_ptr().addr().get(), 0]);
        scheduler.native().is_some_and(|queue| queue.identity() == own)
    }

    /// Returns whether the calling thread is the polling one.
    pub(in crate::task) fn is_here(&self) -> bool {
        lock(&self.0.queue).driver == thread_id()
    }

    /// Records a frame.
    ///
    /// # Safety
    ///
    /// Until [`forget`](LocalHome::forget) the frame is not done, or is being completed on the polling thread.
    pub(in crate::task) unsafe fn note(&self, frame: NonNull<Header>) {
        let mut queue = lock(&self.0.queue);
        queue.homed.push(frame);
        if queue.stopping {
            // The future was dropped already: the first poll drops this task.
            // SAFETY: the caller's promise: the frame is alive.
            unsafe { Header::stop(frame) };
        }
    }

    /// Removes the record of a frame.
    pub(in crate::task) fn forget(self, frame: NonNull<Header>) {
        let mut queue = lock(&self.0.queue);
        if let Some(at) = queue.homed.iter().position(|homed| *homed == frame) {
            queue.homed.swap_remove(at);
        }
    }
}
