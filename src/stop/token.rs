use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::registry::{Registry, StopEntry};
use crate::Transfer;

/// A handle that tells whether work should stop.
///
/// Three tokens implement it: [`NeverStop`], and the tokens of [`InplaceStopSource`](super::InplaceStopSource) and
/// [`StopSource`](super::StopSource). To bridge another kind of cancellation, request the stop of a source.
pub trait StopToken: Clone + Send + Sync + private::Raw {
    /// Whether the type allows a stop at all. If `false`, every check compiles away.
    const STOPPABLE: bool;

    /// Returns whether the stop has been requested. It never becomes `false` again.
    fn stop_requested(&self) -> bool;

    /// Returns whether a stop has been, or still can be, requested.
    fn stop_possible(&self) -> bool;
}

pub(crate) mod private {
    use super::{NonNull, Registry, StopEntry, Transfer};

    /// The representation of a token: a registry or none. Seals [`StopToken`](super::StopToken).
    ///
    /// # Safety
    ///
    /// The registry that [`registry`](Raw::registry) returns stays valid, at its address, until the value that
    /// [`keep`](Raw::keep) makes of the same token is dropped. If `Keep` has no size, the validity rests on a lifetime
    /// in the token's type. Or it rests on the contract of the `unsafe` function that made the token.
    pub unsafe trait Raw: Sized {
        /// The entry of a slot: a [`StopEntry`], or [`NoEntry`] if no stop can come.
        type Entry: RawEntry;

        /// The owner of one reference to the registry. The default value owns none.
        type Keep: Default;

        /// Returns the registry, if the token has one.
        fn registry(&self) -> Option<&Registry>;

        /// Converts the token into a value that keeps its registry valid.
        fn keep(self) -> Self::Keep;

        /// Adds an entry to the list of the registry, if there is one. Before that, writes the value that keeps the
        /// registry valid. Returns `false` if the stop has been requested already.
        ///
        /// # Safety
        ///
        /// The contract of [`StopEntry::enter`], for an entry of type `Self::Entry`. `kept` is valid for a write, and its
        /// value is dropped after the last use of the entry.
        #[inline]
        unsafe fn listen(self, entry: NonNull<StopEntry>, kept: *mut Self::Keep) -> bool {
            let Some(registry) = self.registry().map(NonNull::from) else {
                return true;
            };
            // SAFETY: the contract of this function. `kept` keeps the registry valid.
            unsafe {
                *kept = self.keep();
                StopEntry::enter(entry, registry)
            }
        }
    }

    pub trait RawEntry {
        fn new(fire: unsafe fn(NonNull<StopEntry>) -> Transfer) -> Self;
        fn get(&self) -> Option<&StopEntry>;
    }

    impl RawEntry for StopEntry {
        fn new(fire: unsafe fn(NonNull<StopEntry>) -> Transfer) -> Self {
            StopEntry::new(fire)
        }

        #[inline]
        fn get(&self) -> Option<&StopEntry> {
            Some(self)
        }
    }

    /// The entry of a token without a registry.
    #[derive(Debug)]
    pub struct NoEntry;

    impl RawEntry for NoEntry {
        #[inline]
        fn new(_: unsafe fn(NonNull<StopEntry>) -> Transfer) -> Self {
            NoEntry
        }

        #[inline]
        fn get(&self) -> Option<&StopEntry> {
            None
        }
    }
}

/// A token without a source. Zero-sized; every check compiles away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NeverStop;

impl NeverStop {
    /// Returns `false`.
    #[inline]
    pub const fn stop_requested(&self) -> bool {
        false
    }

    /// Returns `false`.
    #[inline]
    pub const fn stop_possible(&self) -> bool {
        false
    }
}

// SAFETY: the token has no registry.
unsafe impl private::Raw for NeverStop {
    type Entry = private::NoEntry;
    type Keep = ();

    #[inline]
    fn registry(&self) -> Option<&Registry> {
        None
    }

    #[inline]
    fn keep(self) {}
}

impl StopToken for NeverStop {
    const STOPPABLE: bool = false;

    #[inline]
    fn stop_requested(&self) -> bool {
        false
    }

    #[inline]
    fn stop_possible(&self) -> bool {
        false
    }
}

/// The token of an [`InplaceStopSource`](super::InplaceStopSource), which it borrows.
#[derive(Clone, Copy)]
pub struct InplaceStopToken<'a> {
    registry: NonNull<Registry>,
    _source: PhantomData<&'a Registry>,
}

// SAFETY: the token is a shared reference to a registry, which is `Sync`.
unsafe impl Send for InplaceStopToken<'_> {}
// SAFETY: see `Send`.
unsafe impl Sync for InplaceStopToken<'_> {}

impl<'a> InplaceStopToken<'a> {
    #[inline]
    pub(crate) fn new(registry: &'a Registry) -> Self {
        InplaceStopToken {
            registry: NonNull::from(registry),
            _source: PhantomData,
        }
    }

    /// Changes the lifetime of the token, for the environments of children that are fields beside the source.
    ///
    /// # Safety
    ///
    /// The result is not used after the source is dropped.
    #[inline]
    pub(crate) unsafe fn extend<'b>(self) -> InplaceStopToken<'b> {
        InplaceStopToken {
            registry: self.registry,
            _source: PhantomData,
        }
    }

    #[inline]
    fn registry(&self) -> &Registry {
        // SAFETY: the source outlives `'a`, or every use of the token, by the contract of `extend`.
        unsafe { self.registry.as_ref() }
    }

    /// Returns whether the stop has been requested. It never becomes `false` again.
    #[inline]
    pub fn stop_requested(&self) -> bool {
        self.registry().stop_requested()
    }

    /// Returns `true`: the token borrows its source, so a stop can still come.
    #[inline]
    pub const fn stop_possible(&self) -> bool {
        true
    }
}

// SAFETY: the source is borrowed for the lifetime in the type, or is valid by the contract of `extend`.
unsafe impl private::Raw for InplaceStopToken<'_> {
    type Entry = StopEntry;
    type Keep = ();

    #[inline]
    fn registry(&self) -> Option<&Registry> {
        Some(self.registry())
    }

    #[inline]
    fn keep(self) {}
}

impl StopToken for InplaceStopToken<'_> {
    const STOPPABLE: bool = true;

    #[inline]
    fn stop_requested(&self) -> bool {
        self.registry().stop_requested()
    }

    #[inline]
    fn stop_possible(&self) -> bool {
        true
    }
}

impl PartialEq for InplaceStopToken<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.registry == other.registry
    }
}

impl Eq for InplaceStopToken<'_> {}

impl fmt::Debug for InplaceStopToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InplaceStopToken")
            .field("stop_requested", &self.stop_requested())
            .finish()
    }
}

/// A type-erased token: a registry, or none.
///
/// Senders behind [`boxed`](crate::Sender::boxed) and [`TaskScheduler`](crate::scheduler::TaskScheduler) see this
/// token. It owns nothing: the `unsafe` functions that create one require the original token to outlive it.
#[derive(Clone, Copy)]
pub struct ErasedStopToken {
    registry: Option<NonNull<Registry>>,
}

// SAFETY: the token is a shared reference to a registry, which is `Sync`.
unsafe impl Send for ErasedStopToken {}
// SAFETY: see `Send`.
unsafe impl Sync for ErasedStopToken {}

impl ErasedStopToken {
    /// Erases the type of `token`.
    ///
    /// # Safety
    ///
    /// The erased token, its copies, and the slots that listen to them are not used after `token` is dropped. `token`
    /// may move: no token contains its registry.
    pub(crate) unsafe fn new<K: StopToken>(token: &K) -> Self {
        ErasedStopToken {
            registry: token.registry().map(NonNull::from),
        }
    }

    /// The token without a source.
    #[cfg(feature = "std")]
    pub(crate) const NEVER: Self = ErasedStopToken { registry: None };

    /// # Safety
    ///
    /// The token is not used after the registry is dropped.
    #[cfg(feature = "std")]
    pub(crate) unsafe fn of(registry: NonNull<Registry>) -> Self {
        ErasedStopToken {
            registry: Some(registry),
        }
    }

    /// Returns the reason of the stop, or `None` if it has not been requested.
    #[cfg(feature = "std")]
    pub(crate) fn why(&self) -> Option<super::Why> {
        private::Raw::registry(self).and_then(Registry::why)
    }

    /// Returns when the stop was requested, if that is known.
    #[cfg(feature = "inspect")]
    pub(crate) fn stopped_at(&self) -> Option<std::time::Instant> {
        private::Raw::registry(self).and_then(Registry::stopped_at)
    }

    /// Listens without an entry: the owner of the source reaches the caller by itself. Returns `false` if the stop was requested.
    #[cfg(feature = "std")]
    pub(crate) fn listen_unlisted(&self) -> bool {
        private::Raw::registry(self).is_none_or(Registry::listen_unlisted)
    }

    /// Returns whether both tokens have the same source, or none.
    #[cfg(feature = "std")]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.registry == other.registry
    }
}

// SAFETY: the registry is valid for as long as the token is used, by the contracts of `new` and `of`.
unsafe impl private::Raw for ErasedStopToken {
    type Entry = StopEntry;
    type Keep = ();

    #[inline]
    fn registry(&self) -> Option<&Registry> {
        // SAFETY: the registry is valid, by the contracts of `new` and `of`.
        self.registry.map(|registry| unsafe { registry.as_ref() })
    }

    #[inline]
    fn keep(self) {}
}

impl StopToken for ErasedStopToken {
    const STOPPABLE: bool = true;

    #[inline]
    fn stop_requested(&self) -> bool {
        private::Raw::registry(self).is_some_and(Registry::stop_requested)
    }

    #[inline]
    fn stop_possible(&self) -> bool {
        self.registry.is_some()
    }
}

impl fmt::Debug for ErasedStopToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErasedStopToken")
            .field("stop_requested", &self.stop_requested())
            .finish()
    }
}
