//! The first panic of what was spawned in a scope, on its way to whoever joins.

#[cfg(feature = "std")]
mod with_std {
    use crate::Panic;
    use crate::sync::{Arc, SpinLock};

    pub(crate) struct Panics {
        first: SpinLock<FirstPanic>,
    }

    enum FirstPanic {
        None,
        /// The first to join gets it. Those who join later get a copy of the second.
        Kept(Panic, Arc<Panic>),
        Taken(Arc<Panic>),
    }

    impl Panics {
        pub(crate) fn new() -> Self {
            Panics {
                first: SpinLock::new(FirstPanic::None),
            }
        }

        /// Keeps it, unless there was one before.
        pub(crate) fn keep(&self, payload: Panic) {
            let echo = Arc::new(payload.echo());
            let mut first = self.first.lock();
            if let FirstPanic::None = *first {
                *first = FirstPanic::Kept(payload, echo);
            } else {
                // A payload may do anything when it is dropped, so not under the lock.
                drop(first);
                drop(payload);
            }
        }

        /// The panic that a join completes with.
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

    /// Without `std` there is no panic to keep.
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
