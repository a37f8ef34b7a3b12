//! The first panic of what was spawned in a scope, on its way to whoever joins.

#[cfg(feature = "std")]
mod with_std {
    use core::cell::UnsafeCell;

    use crate::Panic;
    use crate::sync::SpinLock;

    pub(crate) struct Panics {
        first: SpinLock<First>,
        /// What everybody who joins after the first gets a copy of. Written by the first panic, in work that is still
        /// counted; only read once the scope is joined, when nothing panics there any more.
        echo: UnsafeCell<Option<Panic>>,
    }

    enum First {
        None,
        /// The first to join gets it.
        Kept(Panic),
        Taken,
    }

    impl Panics {
        pub(crate) fn new() -> Self {
            Panics {
                first: SpinLock::new(First::None),
                echo: UnsafeCell::new(None),
            }
        }

        /// Keeps it, unless there was one before.
        ///
        /// # Safety
        ///
        /// The scope is not joined before this returns.
        pub(crate) unsafe fn keep(&self, payload: Panic) {
            let echo = payload.echo();
            let mut first = self.first.lock();
            if let First::None = *first {
                *first = First::Kept(payload);
                drop(first);
                // SAFETY: only the first gets here, and nobody reads it before the scope is joined.
                unsafe { *self.echo.get() = Some(echo) };
            } else {
                // A payload may do anything when it is dropped, so not under the lock.
                drop(first);
                drop(payload);
            }
        }

        /// The panic that a join completes with.
        ///
        /// # Safety
        ///
        /// The scope is joined.
        pub(crate) unsafe fn take(&self) -> Option<Panic> {
            let mut first = self.first.lock();
            match core::mem::replace(&mut *first, First::Taken) {
                First::Kept(payload) => Some(payload),
                _ => {
                    drop(first);
                    // SAFETY: it is joined, so this is only read any more.
                    unsafe { &*self.echo.get() }.as_ref().map(Panic::echo)
                }
            }
        }
    }
}

#[cfg(feature = "std")]
pub(super) use with_std::Panics;

#[cfg(not(feature = "std"))]
mod without_std {
    use crate::Panic;

    /// Without `std` there is no panic to keep.
    pub(crate) struct Panics;

    impl Panics {
        pub(crate) fn new() -> Self {
            Panics
        }

        pub(crate) unsafe fn keep(&self, payload: Panic) {
            match payload {}
        }

        pub(crate) unsafe fn take(&self) -> Option<Panic> {
            None
        }
    }
}

#[cfg(not(feature = "std"))]
pub(super) use without_std::Panics;
