//! What a strand does, for the tree of tasks: whether it runs, and where it waits for what.
//!
//! All of this exists with the feature `inspect` only. Without it the types are empty, and the functions do nothing.
//!
//! The threads that poll frames of the strand store each part on its own, with relaxed ordering, and a thread that prints a
//! tree loads them while the strand runs. So parts that are read together may be from two awaits in a row.

#[cfg(feature = "inspect")]
pub(in crate::task) use self::noted::{Activity, ActivityKind, ActivityLook, Site};
#[cfg(not(feature = "inspect"))]
pub(in crate::task) use self::unnoted::{Activity, Site};

#[cfg(feature = "inspect")]
mod noted {
    use core::any::type_name;
    use core::panic::Location;
    use core::ptr;
    use std::time::Instant;

    use crate::coarse_clock;
    use crate::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering::Relaxed};
    use crate::task::frame::Polling;

    /// A place in the program, if it is known.
    #[derive(Clone, Copy, Default)]
    pub(in crate::task) struct Site(Option<&'static Location<'static>>);

    impl Site {
        /// Returns the place of the caller.
        #[inline(always)]
        #[track_caller]
        pub(in crate::task) fn here() -> Self {
            Site(Some(Location::caller()))
        }

        pub(in crate::task) fn location(self) -> Option<&'static Location<'static>> {
            self.0
        }
    }

    /// What a strand does.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub(in crate::task) enum ActivityKind {
        Queued,
        Running,
        Waiting,
    }

    /// A function that returns the name of the type that is awaited.
    type What = fn() -> &'static str;

    /// What a strand does: see the module.
    pub(in crate::task) struct Activity {
        /// An [`ActivityKind`].
        kind: AtomicU8,
        /// When the strand was queued or suspended, by the coarse clock.
        since: AtomicU64,
        /// Where the strand waits, or null: a [`Location`].
        site: AtomicPtr<Location<'static>>,
        /// What it waits for: a [`What`], or null for a future of another crate.
        what: AtomicPtr<()>,
        /// Where the strand was spawned. Written before the strand is shared.
        begun_at: Site,
    }

    impl Activity {
        #[inline]
        pub(in crate::task) fn new(begun_at: Site) -> Self {
            Activity {
                kind: AtomicU8::new(ActivityKind::Queued as u8),
                since: AtomicU64::new(coarse_clock::now()),
                site: AtomicPtr::new(ptr::null_mut()),
                what: AtomicPtr::new(ptr::null_mut()),
                begun_at,
            }
        }

        /// Notes that a frame of the strand is polled. Until an await is noted, it waits for a future of another crate.
        #[inline]
        pub(in crate::task) fn runs(&self) {
            self.kind.store(ActivityKind::Running as u8, Relaxed);
            self.site.store(ptr::null_mut(), Relaxed);
            self.what.store(ptr::null_mut(), Relaxed);
        }

        /// Notes that the strand is about to be queued.
        #[inline]
        pub(in crate::task) fn is_queued(&self) {
            self.changes_to(ActivityKind::Queued);
        }

        /// Notes that the strand suspends.
        #[inline]
        pub(in crate::task) fn suspends(&self) {
            self.changes_to(ActivityKind::Waiting);
        }

        #[inline]
        fn changes_to(&self, kind: ActivityKind) {
            self.since.store(coarse_clock::now(), Relaxed);
            self.kind.store(kind as u8, Relaxed);
        }

        /// Notes an await of a `T` that is pending.
        #[inline]
        pub(in crate::task) fn awaits<T: ?Sized>(&self, site: Site) {
            let what: What = type_name::<T>;
            let place = site.0.map_or(ptr::null(), ptr::from_ref);
            self.site.store(place.cast_mut(), Relaxed);
            self.what.store(what as *mut (), Relaxed);
        }

        /// Notes the await of something that is pending, unless the place of an await inside of it is noted.
        #[inline]
        pub(in crate::task) fn awaits_around(&self, site: Site) {
            if self.site.load(Relaxed).is_null() {
                let place = site.0.map_or(ptr::null(), ptr::from_ref);
                self.site.store(place.cast_mut(), Relaxed);
            }
        }

        /// Notes that the strand only waits for what it has begun.
        pub(in crate::task) fn ends(&self) {
            let what: What = || "what the task has begun";
            self.site.store(ptr::null_mut(), Relaxed);
            self.what.store(what as *mut (), Relaxed);
        }

        /// Calls `note` with the strand that this thread polls a frame of, if there is one.
        pub(in crate::task) fn with(note: impl FnOnce(&Activity)) {
            Polling::with(|polling| {
                if let Some(polling) = polling {
                    note(polling.activity());
                }
            });
        }

        pub(in crate::task) fn look(&self) -> ActivityLook {
            let kind = match self.kind.load(Relaxed) {
                0 => ActivityKind::Queued,
                1 => ActivityKind::Running,
                _ => ActivityKind::Waiting,
            };
            // SAFETY: the pointer is null, or from a `&'static Location`.
            let site = unsafe { self.site.load(Relaxed).as_ref() };
            let what = self.what.load(Relaxed);
            // SAFETY: the pointer is null, or from a `What`, which has the same size.
            let what = unsafe { core::mem::transmute::<*mut (), Option<What>>(what) };
            ActivityLook {
                kind,
                since: coarse_clock::instant(self.since.load(Relaxed)),
                site: Site(site),
                what: what.map(|name| name()),
                begun_at: self.begun_at,
            }
        }
    }

    /// What a strand did at one time.
    #[derive(Clone, Copy)]
    pub(in crate::task) struct ActivityLook {
        pub(in crate::task) kind: ActivityKind,
        pub(in crate::task) since: Option<Instant>,
        pub(in crate::task) site: Site,
        pub(in crate::task) what: Option<&'static str>,
        pub(in crate::task) begun_at: Site,
    }
}

#[cfg(not(feature = "inspect"))]
mod unnoted {
    /// A place in the program, which is not noted.
    #[derive(Clone, Copy, Default)]
    pub(in crate::task) struct Site(());

    impl Site {
        #[inline(always)]
        pub(in crate::task) fn here() -> Self {
            Site(())
        }
    }

    /// What a strand does, which is not noted.
    pub(in crate::task) struct Activity;

    impl Activity {
        #[inline(always)]
        pub(in crate::task) fn new(_: Site) -> Self {
            Activity
        }

        #[inline(always)]
        pub(in crate::task) fn runs(&self) {}

        #[inline(always)]
        pub(in crate::task) fn is_queued(&self) {}

        #[inline(always)]
        pub(in crate::task) fn suspends(&self) {}

        #[inline(always)]
        pub(in crate::task) fn awaits<T: ?Sized>(&self, _: Site) {}

        #[inline(always)]
        pub(in crate::task) fn awaits_around(&self, _: Site) {}

        #[inline(always)]
        pub(in crate::task) fn ends(&self) {}

        #[inline(always)]
        pub(in crate::task) fn with(_: impl FnOnce(&Activity)) {}
    }
}
