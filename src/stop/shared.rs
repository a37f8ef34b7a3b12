//! Shared stop sources: a registry with a reference count, and an optional link to a parent.
//!
//! [`StopSource`] and [`SharedStopToken`] are counted references to one `SharedSource`. A linked source listens to its
//! parent with a slot, and passes the parent's stop on with a job.
//!
//! | field of `SharedSource` | accessed by |
//! |---|---|
//! | the counts, the registry | every thread |
//! | `slot`, `job` | the parent's callback, once; then the driver that runs the job |
//! | `parent` | every thread, read-only; the last reference takes it |
//!
//! The parent's callback adds a reference before it releases the slot. So the job is valid until it has run. The last
//! reference leaves the slot before it frees the memory, and so waits for a callback that still reads the count.

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

/// A stop source with a reference count. It can be cloned, sent and stored. Its memory is freed with the last source or
/// token.
///
/// A source allocates once. [`linked_to`](StopSource::linked_to) creates a source that stops when another one does.
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
    /// Creates a source whose stop has not been requested.
    pub fn new() -> Self {
        StopSource {
            shared: SourceRef::new(None),
        }
    }

    /// Creates a source that stops when the source of `token` does. Its own stop does not affect the other source.
    pub fn linked_to(token: &SharedStopToken) -> Self {
        let source = StopSource {
            shared: SourceRef::new(Some(token.clone())),
        };
        // SAFETY: the slot is on the heap and does not move. `SourceRef::release` leaves the slot before the parent's
        // token is dropped.
        let listening = unsafe {
            let slot = &raw mut (*source.shared.0.as_ptr()).slot;
            StopSlot::listen(NonNull::new_unchecked(slot), ErasedStopToken::new(token))
        };
        if !listening {
            source.request_stop();
        }
        source
    }

    /// Returns a token of this source.
    pub fn token(&self) -> SharedStopToken {
        SharedStopToken {
            shared: self.shared.clone(),
        }
    }

    /// Requests the stop. Returns `true` for the first request and `false` for every other.
    ///
    /// Calls every registered callback on this thread, outside any lock, and then runs the work that they resumed.
    pub fn request_stop(&self) -> bool {
        // A callback may release every other reference, also one that a slot owns. This one keeps the registry valid
        // until all callbacks have run.
        let shared = self.shared.clone();
        match shared.registry.request_stop() {
            Some(resumed) => {
                resumed.run();
                true
            }
            None => false,
        }
    }

    /// Returns whether the stop has been requested.
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

/// The token of a [`StopSource`]. It keeps the memory of the source alive. After the last `StopSource` is dropped, no
/// stop can be requested.
#[derive(Clone)]
pub struct SharedStopToken {
    shared: SourceRef,
}

impl SharedStopToken {
    /// Returns whether the stop has been requested. It never becomes `false` again.
    #[inline]
    pub fn stop_requested(&self) -> bool {
        self.shared.registry.stop_requested()
    }

    /// Returns whether a stop has been requested, or can still be requested on this source or one that it is linked to.
    pub fn stop_possible(&self) -> bool {
        // A loop, because a chain of links may be long.
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

// SAFETY: the token owns a counted reference to the registry's memory, and `keep` returns the token itself.
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

/// The state of a [`StopSource`] on the heap, shared by its sources, its tokens and the slots that listen.
///
/// Its memory is freed by the last [`SourceRef`]. That one first leaves the parent's list, and so waits for a callback
/// of the parent that is still running.
struct SharedSource {
    /// The reference count: sources, tokens (also those in slots), and a stop on its way from the parent. The last
    /// release frees. The parent's callback adds a reference unless the count is zero, so this is not an `Arc`.
    references: Count,
    /// The number of `StopSource`s. Only compared to zero, as a hint.
    sources: Count,
    registry: Registry,
    /// Listed with the parent, if there is one. It owns no token, since `parent` is one. So a long chain of links is
    /// freed by the loop in `SourceRef::drop`, without recursion.
    slot: StopSlot<ErasedStopToken>,
    /// Requests the stop of this source after the parent's callbacks have run. A stop that passes through a long chain
    /// of links does not recurse.
    job: Job,
    parent: Option<SharedStopToken>,
}

impl SharedSource {
    /// Handles the parent's stop. This is the slot's callback.
    ///
    /// # Safety
    ///
    /// `slot` is the field of a `SharedSource` that listens to its parent.
    unsafe fn parent_stopped(slot: NonNull<StopSlot<ErasedStopToken>>) -> Transfer {
        // SAFETY: the slot is a field of a `SharedSource`. The last `SourceRef` leaves the slot, which waits for its
        // release, before it frees the memory.
        let (this, shared) = unsafe {
            let this = container_of!(slot, SharedSource, slot);
            (this, this.as_ref())
        };
        let held = shared.references.add_unless_zero();
        shared.slot.release();
        if held {
            // SAFETY: the reference just added keeps the job valid until it runs, once.
            unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*this.as_ptr()).job)) }
        } else {
            Transfer::none()
        }
    }

    /// # Safety
    ///
    /// `job` is the field of a `SharedSource`, and `parent_stopped` added a reference for this call.
    unsafe fn pass_on(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a `SharedSource`. The `SourceRef` takes over the reference that
        // `parent_stopped` added.
        let shared = SourceRef(unsafe { container_of!(job, SharedSource, job) });
        shared.registry.request_stop().unwrap_or_default()
    }
}

/// A counted reference to a [`SharedSource`].
struct SourceRef(NonNull<SharedSource>);

// SAFETY: `SharedSource` consists of atomics, a registry and a parent. Only the parent's one callback accesses the slot
// and the job.
unsafe impl Send for SourceRef {}
// SAFETY: see `Send`.
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
        // SAFETY: this reference is counted, so the memory is valid.
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
    /// Releases the reference. Returns the memory if it was the last. The memory may contain the last reference to a
    /// parent.
    fn release(&self) -> Option<Box<SharedSource>> {
        if !self.references.release() {
            return None;
        }
        self.slot.leave();
        // SAFETY: this was the last reference. The slot was left, so the parent's callback has released it or will
        // never run.
        Some(unsafe { Box::from_raw(self.0.as_ptr()) })
    }
}

impl Drop for SourceRef {
    fn drop(&mut self) {
        let mut shared = self.release();
        // A loop, so that a long chain of links is freed in constant stack. Each link may own the last reference to the
        // next.
        while let Some(mut last) = shared {
            shared = last.parent.take().and_then(|SharedStopToken { shared: parent }| {
                let parent = mem::ManuallyDrop::new(parent);
                parent.release()
            });
        }
    }
}
