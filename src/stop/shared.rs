use alloc::boxed::Box;
use core::fmt;
use core::mem;
use core::ptr::NonNull;

use super::registry::{Registry, StopEntry};
use super::slot::StopSlot;
use super::token::{ErasedStopToken, StopToken, private};
use crate::memory::Count;
use crate::sender::stage::container_of;
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
    shared: SourceRef,
}

impl StopSource {
    /// A source whose stop has not been requested.
    pub fn new() -> Self {
        StopSource {
            shared: SourceRef::new(None),
        }
    }

    /// A source that stops when `token`'s does. Its own stop leaves the other alone.
    pub fn linked_to(token: &SharedStopToken) -> Self {
        let source = StopSource {
            shared: SourceRef::new(Some(token.clone())),
        };
        // SAFETY: the shared state does not move, and leaves the slot before it drops its own token of the parent.
        let listening = unsafe {
            let slot = &raw mut (*source.shared.0.as_ptr()).slot;
            StopSlot::listen(NonNull::new_unchecked(slot), ErasedStopToken::new(token))
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
        // A callback may drop the last source and the last token, also those that slots own. The registry must outlive the
        // round all the same.
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
        self.shared.sources.add();
        StopSource {
            shared: self.shared.clone(),
        }
    }
}

impl Drop for StopSource {
    fn drop(&mut self) {
        self.shared.sources.release();
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
    shared: SourceRef,
}

impl SharedStopToken {
    /// Whether the stop has been requested. It never becomes `false` again.
    #[inline]
    pub fn stop_requested(&self) -> bool {
        self.shared.registry.stop_requested()
    }

    /// Whether a stop has been requested, or there is still a source, or a source it is linked to, that could.
    pub fn stop_possible(&self) -> bool {
        // A loop, since a line of links may be long.
        let mut token = Some(self);
        while let Some(SharedStopToken { shared }) = token {
            if shared.registry.stop_requested() || !shared.sources.is_zero() {
                return true;
            }
            token = shared.parent.as_ref();
        }
        false
    }
}

// SAFETY: the token is a reference that counts, and `keep` is the token itself.
unsafe impl private::Raw for SharedStopToken {
    type Entry = StopEntry;
    type Keep = Option<SharedStopToken>;

    #[inline]
    fn registry(&self) -> Option<&Registry> {
        Some(&self.shared.registry)
    }

    #[inline]
    fn keep(self) -> Option<SharedStopToken> {
        Some(self)
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

struct SharedSource {
    /// Sources, tokens (those that slots own too), and a stop on its way from the parent. The last one frees. The parent's
    /// callback adds one unless the count is zero, which is why this is not an `Arc`.
    references: Count,
    /// How many `StopSource`s there are. Only compared to zero, as a hint.
    sources: Count,
    registry: Registry,
    /// In the parent's list, where there is a parent. It owns no token, since `parent` is one. So a long line of links is
    /// dropped by the loop in `SourceRef::drop`, and not by recursion.
    slot: StopSlot<ErasedStopToken>,
    /// Requests the stop of this source after the parent's callbacks have run, so that a stop which runs down a long
    /// line of links does not recurse.
    job: Job,
    parent: Option<SharedStopToken>,
}

impl SharedSource {
    /// The parent's callback.
    ///
    /// # Safety
    ///
    /// The slot is that of a `SharedSource` that listens to its parent.
    unsafe fn parent_stopped(slot: NonNull<StopSlot<ErasedStopToken>>) -> Transfer {
        // SAFETY: the slot is a field of a `SharedSource`, which waits for the slot to be released before it goes.
        let this = unsafe { container_of!(slot, SharedSource, slot) };
        // SAFETY: as above.
        let shared = unsafe { this.as_ref() };
        let held = shared.references.add_unless_zero();
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
    /// The job is that of a `SharedSource` on which `parent_stopped` took a reference.
    unsafe fn pass_on(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a `SharedSource`; the reference that `parent_stopped` took is given back here.
        let shared = SourceRef(unsafe { container_of!(job, SharedSource, job) });
        shared.registry.request_stop().unwrap_or_default()
    }
}

/// One reference to a [`SharedSource`].
struct SourceRef(NonNull<SharedSource>);

// SAFETY: `SharedSource` is atomics, a registry, and a slot and a job that only the one callback touches.
unsafe impl Send for SourceRef {}
// SAFETY: as above.
unsafe impl Sync for SourceRef {}

impl SourceRef {
    fn new(parent: Option<SharedStopToken>) -> Self {
        let shared = Box::new(SharedSource {
            references: Count::one(),
            sources: Count::one(),
            registry: Registry::new(),
            slot: StopSlot::new(SharedSource::parent_stopped),
            job: Job::new(SharedSource::pass_on),
            parent,
        });
        SourceRef(NonNull::from(Box::leak(shared)))
    }
}

impl core::ops::Deref for SourceRef {
    type Target = SharedSource;

    #[inline]
    fn deref(&self) -> &SharedSource {
        // SAFETY: a handle is a reference that counts.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for SourceRef {
    fn clone(&self) -> Self {
        self.references.add();
        SourceRef(self.0)
    }
}

impl SourceRef {
    /// Gives the reference back. Where it was the last, the memory, which may hold the last reference to a parent.
    fn release(&self) -> Option<Box<SharedSource>> {
        if !self.references.release() {
            return None;
        }
        self.slot.leave();
        // SAFETY: that was the last reference, and the parent's callback is over, or will never run.
        Some(unsafe { Box::from_raw(self.0.as_ptr()) })
    }
}

impl Drop for SourceRef {
    fn drop(&mut self) {
        let mut shared = self.release();
        // A loop, so that a long line of links, each of which held the last reference to the next, takes no stack.
        while let Some(mut last) = shared {
            shared = last.parent.take().and_then(|SharedStopToken { shared: parent }| {
                let parent = mem::ManuallyDrop::new(parent);
                parent.release()
            });
        }
    }
}
