//! The first panic of the work spawned in a scope, kept for its joins.

#[cfg(feature = "std")]
mod with_std {
    use crate::Panic;
    use crate::sync::{Arc, SpinLock};

    /// The first panic, protected by a lock.
    pub(crate) struct Panics {
        first: SpinLock<FirstPanic>,
    }

    enum FirstPanic {
        None,
        /// The payload goes to the first join, and copies of the echo to the later ones.
        Kept(Panic, Arc<Panic>),
        Taken(Arc<Panic>),
    }

    impl Panics {
        pub(crate) fn new() -> Self {
            Panics {
                first: SpinLock::new(FirstPanic::None),
            }
        }

        /// Keeps the panic, unless there was one before.
        pub(crate) fn keep(&self, payload: Panic) {
            let echo = Arc::new(payload.echo());
            let mut first = self.first.lock();
            if let FirstPanic::None = *first {
                *first = FirstPanic::Kept(payload, echo);
            } else {
                // The destructor of a payload is user code, so it runs outside the lock.
                drop(first);
                drop(payload);
            }
        }

        /// Returns the panic that a join completes with, if there is one.
        pub(crate) fn take(&self) -> Option<Panic> {
            let mut first = self.first.lock();
            match core::mem::replace(&mut *first, FirstPanic::None) {
                FirstPanic::Kept(payload, echo) => {
                    *first = FirstPanic::Taken(echo);
                    Some(payload)
                }
                FirstPanic::Taken(echo) => {
                    *first = FirstPanic::Taken(Arc::clone(&echo));
                    drop(first);
                    Some(echo.echo())
                }
                FirstPanic::None => None,
            }
        }
    }
}

#[cfg(feature = "std")]
pub(super) use with_std::Panics;

#[cfg(not(feature = "std"))]
mod without_std {
    use crate::Panic;

    /// An empty type: without `std` panics are not caught.
    pub(crate) struct Panics;

    impl Panics {
        pub(crate) fn new() -> Self {
            Panics
        }

        pub(crate) fn keep(&self, payload: Panic) {
            match payload {}
        }

        pub(crate) fn take(&self) -> Option<Panic> {
            None
        }
    }
}

#[cfg(not(feature = "std"))]
pub(super) use without_std::Panics;
