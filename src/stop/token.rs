use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::registry::{Registry, StopEntry};
use crate::Transfer;

/// How work learns that it should stop.
///
/// Three tokens implement it: [`NeverStop`], the token of an [`InplaceStopSource`](super::InplaceStopSource) and that
/// of a [`StopSource`](super::StopSource). A foreign cancellation is bridged by requesting the stop of a source.
pub trait StopToken: Clone + Send + Sync + private::Raw {
    /// `false` when the type alone says that no stop can come; every check compiles away then.
    const STOPPABLE: bool;

    /// Whether the stop has been requested. It never becomes `false` again.
    fn stop_requested(&self) -> bool;

    /// Whether a stop has been, or still can be, requested.
    fn stop_possible(&self) -> bool;
}

pub(crate) mod private {
    use super::{NonNull, Registry, StopEntry, Transfer};

    /// The representation of a token: a registry, or nothing. It seals [`StopToken`](super::StopToken).
    ///
    /// # Safety
    ///
    /// The registry that [`registry`](Raw::registry) returned stays valid, at its address, until the value that
    /// [`keep`](Raw::keep) makes of the same token is dropped. Where `Keep` has no size, the validity rests on a lifetime
    /// in the token's type, or on the contract of the `unsafe` function that made the token.
    pub unsafe trait Raw: Sized {
        /// An entry, or nothing where no stop can come.
        type Entry: RawEntry;

        /// The owner of one reference to the registry. The default value owns none.
        type Keep: Default;

        fn registry(&self) -> Option<&Registry>;

        /// Makes the token into what keeps its registry alive.
        fn keep(self) -> Self::Keep;
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

    /// The entry that is not needed.
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

/// The token of work that nothing can stop. Zero-sized; every check compiles away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NeverStop;

impl NeverStop {
    /// `false`.
    #[inline]
    pub const fn stop_requested(&self) -> bool {
        false
    }

    /// `false`.
    #[inline]
    pub const fn stop_possible(&self) -> bool {
        false
    }
}

// SAFETY: there is no registry.
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

/// The token of an [`InplaceStopSource`](super::InplaceStopSource): a borrow of it.
#[derive(Clone, Copy)]
pub struct InplaceStopToken<'a> {
    registry: NonNull<Registry>,
    _source: PhantomData<&'a Registry>,
}

// SAFETY: it is a shared reference to a `Sync` type.
unsafe impl Send for InplaceStopToken<'_> {}
// SAFETY: as above.
unsafe impl Sync for InplaceStopToken<'_> {}

impl<'a> InplaceStopToken<'a> {
    #[inline]
    pub(crate) fn new(registry: &'a Registry) -> Self {
        InplaceStopToken {
            registry: NonNull::from(registry),
            _source: PhantomData,
        }
    }

    /// The same token under another lifetime, for the environments of children that live beside the source.
    ///
    /// # Safety
    ///
    /// It is not used once the source is gone.
    #[inline]
    pub(crate) unsafe fn extend<'b>(self) -> InplaceStopToken<'b> {
        InplaceStopToken {
            registry: self.registry,
            _source: PhantomData,
        }
    }

    #[inline]
    fn registry(&self) -> &Registry {
        // SAFETY: the source outlives `'a`, or whoever extended it promised so.
        unsafe { self.registry.as_ref() }
    }

    /// Whether the stop has been requested. It never becomes `false` again.
    #[inline]
    pub fn stop_requested(&self) -> bool {
        self.registry().stop_requested()
    }

    /// `true`: the source is there, so a stop can still come.
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

/// Any token, with its type erased: the registry beneath it, or none.
///
/// The token that a sender behind [`boxed`](crate::Sender::boxed) sees, or one behind a
/// [`TaskScheduler`](crate::scheduler::TaskScheduler). It owns nothing: the `unsafe` functions that make one ask their
/// callers to keep the erased token alive beside it.
#[derive(Clone, Copy)]
pub struct ErasedStopToken {
    registry: Option<NonNull<Registry>>,
}

// SAFETY: it is a shared reference to a `Sync` type.
unsafe impl Send for ErasedStopToken {}
// SAFETY: as above.
unsafe impl Sync for ErasedStopToken {}

impl ErasedStopToken {
    /// Erases the type of `token`.
    ///
    /// # Safety
    ///
    /// The erased token, its copies, and the slots that listen to them are not used once `token` is dropped. `token` may
    /// move: no token contains its registry.
    pub(crate) unsafe fn new<K: StopToken>(token: &K) -> Self {
        ErasedStopToken {
            registry: token.registry().map(NonNull::from),
        }
    }

    /// The token of work that nothing stops.
    #[cfg(feature = "std")]
    pub(crate) const NEVER: Self = ErasedStopToken { registry: None };

    /// # Safety
    ///
    /// It is not used once the registry is gone.
    #[cfg(feature = "std")]
    pub(crate) unsafe fn of(registry: NonNull<Registry>) -> Self {
        ErasedStopToken {
            registry: Some(registry),
        }
    }

    /// Why the stop was requested. None where it was not.
    #[cfg(feature = "std")]
    pub(crate) fn why(&self) -> Option<super::Why> {
        private::Raw::registry(self).and_then(Registry::why)
    }

    /// Whether both are of one source, or of none.
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
