use alloc::boxed::Box;
use core::fmt;
use core::mem;
use core::ptr::NonNull;

use super::registry::{Entry, Registry};
use super::slot::StopSlot;
use super::token::{StopToken, private};
use crate::sender::stage::container_of;
use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::{Job, Transfer};

/// A stop source that is shared: it is cloned, sent and kept, and lives as long as anyone holds it or a token of it.
///
/// One allocation per source. [`linked_to`](StopSource::linked_to) makes a source that stops when another does.
///
/// ```
/// use bowline::stop::StopSource;
///
/// let service = StopSource::new();
/// let request = StopSource::linked_to(&service.token());
/// request.request_stop();
/// assert!(!service.stop_requested(), "a child's stop leaves its parent alone");
///
/// let other = StopSource::linked_to(&service.token());
/// service.request_stop();
/// assert!(other.stop_requested());
/// ```
pub struct StopSource {
    shared: Handle,
}

impl StopSource {
    /// A source whose stop has not been requested.
    pub fn new() -> Self {
        StopSource {
            shared: Handle::new(None),
        }
    }

    /// A source that stops when `token`'s does. Its own stop leaves the other alone.
    pub fn linked_to(token: &SharedStopToken) -> Self {
        let source = StopSource {
            shared: Handle::new(Some(token.clone())),
        };
        // SAFETY: the shared state does not move, and withdraws the slot before it, and its hold on the parent, goes.
        let listening = unsafe {
            let slot = &raw mut (*source.shared.0.as_ptr()).slot;
            StopSlot::listen(NonNull::new_unchecked(slot), token)
        };
        if !listening {
            source.request_stop();
        }
        source
    }

    /// A token that sees this source's stop.
    pub fn token(&self) -> SharedStopToken {
        SharedStopToken {
            shared: self.shared.clone(),
        }
    }

    /// Requests the stop: `true` for the first request, `false` for every other.
    ///
    /// Calls every registered callback on this thread, outside any lock, then runs what they resumed.
    pub fn request_stop(&self) -> bool {
        // A callback may drop the last `StopSource`: the list must outlive the round all the same.
        let shared = self.shared.clone();
        match shared.registry.request_stop() {
            Some(resumed) => {
                resumed.run();
                true
            }
            None => false,
        }
    }

    /// Whether the stop has been requested.
    pub fn stop_requested(&self) -> bool {
        self.shared.registry.stop_requested()
    }
}

impl Clone for StopSource {
    fn clone(&self) -> Self {
        self.shared.sources.fetch_add(1, Relaxed);
        StopSource {
            shared: self.shared.clone(),
        }
    }
}

impl Drop for StopSource {
    fn drop(&mut self) {
        self.shared.sources.fetch_sub(1, Relaxed);
    }
}

impl Default for StopSource {
    fn default() -> Self {
        StopSource::new()
    }
}

impl fmt::Debug for StopSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopSource")
            .field("stop_requested", &self.stop_requested())
            .finish()
    }
}

/// The token of a [`StopSource`]. It keeps the source's memory, not the source: when every `StopSource` is gone, no
/// stop can come any more.
#[derive(Clone)]
pub struct SharedStopToken {
    shared: Handle,
}

impl SharedStopToken {
    /// Whether the stop has been requested. It never becomes `false` again.
    #[inline]
    pub fn stop_requested(&self) -> bool {
        self.shared.registry.stop_requested()
    }

    /// Whether a stop has been requested, or there is still a source, or a source it is linked to, that could.
    pub fn stop_possible(&self) -> bool {
        let mut line = core::iter::successors(Some(self), |token| token.shared.parent.as_ref());
        line.any(|token| token.stop_requested() || token.shared.sources.load(Relaxed) != 0)
    }
}

impl private::Raw for SharedStopToken {
    type Entry = Entry;

    #[inline]
    fn registry(&self) -> Option<&Registry> {
        Some(&self.shared.registry)
    }
}

impl StopToken for SharedStopToken {
    const STOPPABLE: bool = true;

    #[inline]
    fn stop_requested(&self) -> bool {
        SharedStopToken::stop_requested(self)
    }

    fn stop_possible(&self) -> bool {
        SharedStopToken::stop_possible(self)
    }
}

impl PartialEq for SharedStopToken {
    fn eq(&self, other: &Self) -> bool {
        self.shared.0 == other.shared.0
    }
}

impl Eq for SharedStopToken {}

impl fmt::Debug for SharedStopToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedStopToken")
            .field("stop_requested", &self.stop_requested())
            .finish()
    }
}

struct Shared {
    /// Sources, tokens, and a stop on its way from the parent. The last one frees. Acquiring one through the parent's
    /// callback must not bring a zero back to life, which is why this is not an `Arc`.
    references: AtomicUsize,
    /// How many `StopSource`s there are. Only compared to zero, as a hint, so relaxed accesses do.
    sources: AtomicUsize,
    registry: Registry,
    /// In the parent's list, where there is a parent.
    slot: StopSlot<SharedStopToken>,
    /// Requests the stop of this source after the parent's callbacks have run, so that a stop which runs down a long
    /// line of links does not recurse.
    job: Job,
    parent: Option<SharedStopToken>,
}

impl Shared {
    /// The parent's callback.
    ///
    /// # Safety
    ///
    /// The slot is that of a `Shared` that listens to its parent.
    unsafe fn parent_stopped(slot: NonNull<StopSlot<SharedStopToken>>) -> Transfer {
        // SAFETY: the slot is a field of a `Shared`, which waits for the slot to be released before it goes.
        let this = unsafe { container_of!(slot, Shared, slot) };
        // SAFETY: as above.
        let shared = unsafe { this.as_ref() };
        let mut references = shared.references.load(Relaxed);
        let held = loop {
            if references == 0 {
                break false;
            }
            match shared
                .references
                .compare_exchange_weak(references, references + 1, Relaxed, Relaxed)
            {
                Ok(_) => break true,
                Err(now) => references = now,
            }
        };
        shared.slot.release();
        if held {
            // SAFETY: the reference just taken keeps the job alive until it runs, which happens once.
            unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*this.as_ptr()).job)) }
        } else {
            Transfer::none()
        }
    }

    /// # Safety
    ///
    /// The job is that of a `Shared` on which `parent_stopped` took a reference.
    unsafe fn pass_on(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a `Shared`; the reference that `parent_stopped` took is given back here.
        let shared = Handle(unsafe { container_of!(job, Shared, job) });
        shared.registry.request_stop().unwrap_or_default()
    }
}

/// One reference to a [`Shared`].
struct Handle(NonNull<Shared>);

// SAFETY: `Shared` is atomics, a registry, and a slot and a job that only the one callback touches.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    fn new(parent: Option<SharedStopToken>) -> Self {
        let shared = Box::new(Shared {
            references: AtomicUsize::new(1),
            sources: AtomicUsize::new(1),
            registry: Registry::new(),
            slot: StopSlot::new(Shared::parent_stopped),
            job: Job::new(Shared::pass_on),
            parent,
        });
        Handle(NonNull::from(Box::leak(shared)))
    }
}

impl core::ops::Deref for Handle {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        // SAFETY: a handle is a reference that counts.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.references.fetch_add(1, Relaxed);
        Handle(self.0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // In a loop: the last hold on a source may be the last on its parent too, and so on up a long line of links.
        let mut last = self.0;
        loop {
            // SAFETY: one reference to it is given back here.
            let shared = unsafe { last.as_ref() };
            if shared.references.fetch_sub(1, Release) != 1 {
                return;
            }
            // Every other handle's use happened before its release.
            shared.references.load(Acquire);
            shared.slot.leave();
            // SAFETY: that was the last reference, and the parent's callback is over, or will never run.
            let mut shared = unsafe { Box::from_raw(last.as_ptr()) };
            let Some(parent) = shared.parent.take() else {
                return;
            };
            last = parent.shared.0;
            // Its reference is the one that the next round gives back.
            mem::forget(parent);
        }
    }
}
