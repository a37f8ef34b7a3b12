//! What a strand does, for the tree of tasks: whether it runs, where it waits for what, and within which deadline.
//!
//! All of this exists with the feature `inspect` only. Without it the types are empty, and the functions do nothing.
//!
//! The threads that poll frames of the strand store each part on its own, with relaxed ordering, and a thread that prints a
//! tree loads them while the strand runs. So parts that are read together may be from two awaits in a row.

#[cfg(feature = "inspect")]
pub(in crate::task) use self::noted::{
    Activity, ActivityKind, ActivityLook, AwaitNotes, Awaited, NotedDeadline, Site, TaskNumber,
};
#[cfg(not(feature = "inspect"))]
pub(in crate::task) use self::unnoted::{Activity, AwaitNotes, Awaited, NotedDeadline, Site, TaskNumber};

#[cfg(feature = "inspect")]
mod noted {
    use core::any::type_name;
    use core::panic::Location;
    use core::ptr;
    use std::time::Instant;

    use crate::coarse_clock;
    use crate::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering::Relaxed};
    use crate::task::frame::Polling;

    /// The directory of the code of tasks, as the compiler names it.
    const OWN_FILES: &str = file!().split_at(file!().len() - "frame/activity.rs".len()).0;
    /// The beginning of the names of the standard library's files.
    const STD_FILES: &str = "/rustc/";

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

        /// Returns this place.
        #[inline(always)]
        pub(in crate::task) fn at(place: &'static Location<'static>) -> Self {
            Site(Some(place))
        }

        /// Returns the place of the caller of a `poll`, which is that of the `.await`. Unknown if the caller is code of tasks or of the
        /// standard library that passes a poll on.
        #[track_caller]
        pub(in crate::task) fn of_poll() -> Self {
            let place = Location::caller();
            let passes_on = [OWN_FILES, STD_FILES]
                .iter()
                .any(|files| place.file().starts_with(files));
            Site((!passes_on).then_some(place))
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

    /// What is awaited: a function that describes it.
    #[derive(Clone, Copy)]
    pub(in crate::task) struct Awaited(fn() -> &'static str);

    impl Awaited {
        pub(in crate::task) const NEXT_CHILD: Self = Awaited(|| "the next child of a group");
        pub(in crate::task) const ALL_CHILDREN: Self = Awaited(|| "all children of a group");
        pub(in crate::task) const ROOM: Self = Awaited(|| "room in a group");
        /// A child that is bound to a variable. Noted with its [number](TaskNumber).
        pub(in crate::task) const CHILD: Self = Awaited(|| CHILD);
        /// Noted with the [number](TaskNumber) of the task.
        pub(in crate::task) const DETACHED: Self = Awaited(|| DETACHED);
        pub(in crate::task) const HANDLER: Self = Awaited(|| "a cancellation handler that runs");
        const BEGUN: Self = Awaited(|| "what the task has begun");

        /// Describes a value by its type.
        #[inline(always)]
        fn of<T: ?Sized>() -> Self {
            Awaited(type_name::<T>)
        }
    }

    const CHILD: &str = "a child";
    const DETACHED: &str = "a detached task";

    /// The number of a task whose end can be awaited.
    #[derive(Clone, Copy, Default)]
    pub(in crate::task) struct TaskNumber(u64);

    impl TaskNumber {
        #[inline(always)]
        pub(in crate::task) fn of(number: impl FnOnce() -> u64) -> Self {
            TaskNumber(number())
        }
    }

    /// The earliest deadline of the scopes around a place in a strand, shields or not: nanoseconds since the coarse clock was started.
    ///
    /// Copied from each scope to those inside. So an await notes it with one store, and no thread that prints a tree reads a scope.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(in crate::task) struct NotedDeadline(u64);

    impl NotedDeadline {
        /// No deadline, later than all others.
        pub(in crate::task) const NEVER: Self = NotedDeadline(u64::MAX);

        /// Returns the earlier one of this deadline and another.
        pub(in crate::task) fn or_earlier(self, at: Instant) -> Self {
            NotedDeadline(self.0.min(coarse_clock::nanoseconds(at).unwrap_or(u64::MAX)))
        }

        #[inline]
        pub(in crate::task) fn is_never(self) -> bool {
            self == NotedDeadline::NEVER
        }

        fn instant(self) -> Option<Instant> {
            match self {
                NotedDeadline::NEVER => None,
                NotedDeadline(time) => coarse_clock::at_nanoseconds(time),
            }
        }
    }

    /// What a strand does: see the module.
    pub(in crate::task) struct Activity {
        /// An [`ActivityKind`].
        kind: AtomicU8,
        /// When the strand was queued or suspended, by the coarse clock.
        since: AtomicU64,
        /// Where the strand waits, or null: a [`Location`].
        site: AtomicPtr<Location<'static>>,
        /// What it waits for: the function of an [`Awaited`], or null for a future of another crate.
        what: AtomicPtr<()>,
        /// The [number](TaskNumber) of the task whose end was awaited last. Meaningless unless `what` is one of the two that are noted
        /// with a number.
        task: AtomicU64,
        /// The [`NotedDeadline`] of the scopes around that await. Stored with the await, and at the beginning of a poll.
        deadline: AtomicU64,
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
                task: AtomicU64::new(0),
                deadline: AtomicU64::new(NotedDeadline::NEVER.0),
                begun_at,
            }
        }

        /// Notes that a frame of the strand is polled, inside of scopes with this deadline. Until an await is noted, the frame waits for a
        /// future of another crate.
        #[inline]
        pub(in crate::task) fn runs(&self, around: NotedDeadline) {
            self.kind.store(ActivityKind::Running as u8, Relaxed);
            self.awaits_foreign(around);
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

        #[inline]
        fn awaits_foreign(&self, around: NotedDeadline) {
            self.site.store(ptr::null_mut(), Relaxed);
            self.what.store(ptr::null_mut(), Relaxed);
            self.deadline.store(around.0, Relaxed);
        }

        /// Notes that the strand only waits for what it has begun, inside of scopes with this deadline.
        pub(in crate::task) fn ends(&self, around: NotedDeadline) {
            AwaitNotes::new(self, around).awaits_what(Awaited::BEGUN, Site::default());
        }

        /// Calls `note` with the strand that this thread polls a frame of, if there is one.
        pub(in crate::task) fn with(note: impl FnOnce(AwaitNotes<'_>)) {
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
            // SAFETY: the pointer is null, or from the function of an `Awaited`, which has the same size.
            let what = unsafe { core::mem::transmute::<*mut (), Option<fn() -> &'static str>>(what) };
            let what = what.map(|describe| describe());
            let task = self.task.load(Relaxed);
            ActivityLook {
                kind,
                since: coarse_clock::instant(self.since.load(Relaxed)),
                site: Site(site),
                what,
                task: what
                    .is_some_and(|what| [CHILD, DETACHED].contains(&what))
                    .then_some(task),
                deadline: NotedDeadline(self.deadline.load(Relaxed)).instant(),
                begun_at: self.begun_at,
            }
        }
    }

    /// Notes awaits of a strand inside of scopes with one deadline.
    #[derive(Clone, Copy)]
    pub(in crate::task) struct AwaitNotes<'a> {
        activity: &'a Activity,
        around: NotedDeadline,
    }

    impl<'a> AwaitNotes<'a> {
        #[inline]
        pub(in crate::task) fn new(activity: &'a Activity, around: NotedDeadline) -> Self {
            AwaitNotes { activity, around }
        }

        /// Notes an await of a `T` that is pending.
        #[inline]
        pub(in crate::task) fn awaits<T: ?Sized>(self, site: Site) {
            self.awaits_what(Awaited::of::<T>(), site);
        }

        /// Notes an await of something that has a description.
        #[inline]
        pub(in crate::task) fn awaits_what(self, what: Awaited, site: Site) {
            let place = site.0.map_or(ptr::null(), ptr::from_ref);
            self.activity.site.store(place.cast_mut(), Relaxed);
            self.activity.what.store(what.0 as *mut (), Relaxed);
            self.activity.deadline.store(self.around.0, Relaxed);
        }

        /// Notes an await of the end of a task.
        pub(in crate::task) fn awaits_task(self, what: Awaited, task: TaskNumber, site: Site) {
            self.activity.task.store(task.0, Relaxed);
            self.awaits_what(what, site);
        }

        /// Notes the await of something that is pending, unless the place of an await inside of it is noted.
        #[inline]
        pub(in crate::task) fn awaits_around(self, site: Site) {
            if self.activity.site.load(Relaxed).is_null() {
                let place = site.0.map_or(ptr::null(), ptr::from_ref);
                self.activity.site.store(place.cast_mut(), Relaxed);
                // An await inside, without a place, has noted the deadline there.
                let inside = self.activity.deadline.load(Relaxed);
                self.activity.deadline.store(self.around.0.min(inside), Relaxed);
            }
        }

        /// Removes the note of an await inside of a scope with the deadline `inside`, which was dropped while it was pending.
        pub(in crate::task) fn leaves(self, inside: NotedDeadline) {
            if inside != self.around && self.activity.deadline.load(Relaxed) == inside.0 {
                self.activity.awaits_foreign(self.around);
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
        /// The number of the task whose end it waits for.
        pub(in crate::task) task: Option<u64>,
        /// The earliest deadline of the scopes around that await.
        pub(in crate::task) deadline: Option<Instant>,
        pub(in crate::task) begun_at: Site,
    }
}

#[cfg(not(feature = "inspect"))]
mod unnoted {
    use core::marker::PhantomData;
    use core::panic::Location;
    use std::time::Instant;

    /// A place in the program, which is not noted.
    #[derive(Clone, Copy, Default)]
    pub(in crate::task) struct Site(());

    impl Site {
        #[inline(always)]
        pub(in crate::task) fn here() -> Self {
            Site(())
        }

        #[inline(always)]
        pub(in crate::task) fn at(_: &'static Location<'static>) -> Self {
            Site(())
        }

        #[inline(always)]
        pub(in crate::task) fn of_poll() -> Self {
            Site(())
        }
    }

    /// What is awaited, which is not noted.
    #[derive(Clone, Copy)]
    pub(in crate::task) struct Awaited(());

    impl Awaited {
        pub(in crate::task) const NEXT_CHILD: Self = Awaited(());
        pub(in crate::task) const ALL_CHILDREN: Self = Awaited(());
        pub(in crate::task) const ROOM: Self = Awaited(());
        pub(in crate::task) const CHILD: Self = Awaited(());
        pub(in crate::task) const DETACHED: Self = Awaited(());
        pub(in crate::task) const HANDLER: Self = Awaited(());
    }

    /// The number of a task, which is not noted.
    #[derive(Clone, Copy, Default)]
    pub(in crate::task) struct TaskNumber(());

    impl TaskNumber {
        #[inline(always)]
        pub(in crate::task) fn of(_: impl FnOnce() -> u64) -> Self {
            TaskNumber(())
        }
    }

    /// The deadline of scopes, which is not noted.
    #[derive(Clone, Copy)]
    pub(in crate::task) struct NotedDeadline(());

    impl NotedDeadline {
        pub(in crate::task) const NEVER: Self = NotedDeadline(());

        #[inline(always)]
        pub(in crate::task) fn or_earlier(self, _: Instant) -> Self {
            self
        }

        #[inline(always)]
        pub(in crate::task) fn is_never(self) -> bool {
            true
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
        pub(in crate::task) fn runs(&self, _: NotedDeadline) {}

        #[inline(always)]
        pub(in crate::task) fn is_queued(&self) {}

        #[inline(always)]
        pub(in crate::task) fn suspends(&self) {}

        #[inline(always)]
        pub(in crate::task) fn ends(&self, _: NotedDeadline) {}

        #[inline(always)]
        pub(in crate::task) fn with(_: impl FnOnce(AwaitNotes<'_>)) {}
    }

    /// Awaits of a strand, which are not noted.
    #[derive(Clone, Copy)]
    pub(in crate::task) struct AwaitNotes<'a>(PhantomData<&'a Activity>);

    impl<'a> AwaitNotes<'a> {
        #[inline(always)]
        pub(in crate::task) fn new(_: &'a Activity, _: NotedDeadline) -> Self {
            AwaitNotes(PhantomData)
        }

        #[inline(always)]
        pub(in crate::task) fn awaits<T: ?Sized>(self, _: Site) {}

        #[inline(always)]
        pub(in crate::task) fn awaits_what(self, _: Awaited, _: Site) {}

        #[inline(always)]
        pub(in crate::task) fn awaits_task(self, _: Awaited, _: TaskNumber, _: Site) {}

        #[inline(always)]
        pub(in crate::task) fn awaits_around(self, _: Site) {}

        #[inline(always)]
        pub(in crate::task) fn leaves(self, _: NotedDeadline) {}
    }
}
