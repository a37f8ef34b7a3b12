use core::fmt;
use core::marker::PhantomPinned;
use core::mem;
use core::ptr::{self, NonNull};

use super::unwind::AbortOnUnwind;
use crate::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use crate::sync::const_unless_loom;

/// The intrusive header of everything that can be queued or resumed: one link and one function.
///
/// An operation embeds a `Job` and hands out its address: to a scheduler's queue, or inside a [`Transfer`]. Whoever
/// takes the job out runs it exactly once. Nothing is allocated, because the operation *is* the node.
///
/// The function receives the job's address and finds its operation from it, with [`core::mem::offset_of!`] or by
/// making the job the first field of a `#[repr(C)]` struct.
// Aligned to eight bytes on every target: queues keep three bits in a job's address.
#[repr(align(8))]
pub struct Job {
    /// The link of whatever list holds the job: a queue or a `Transfer`, never two at once. Only the list's owner
    /// touches it, so relaxed accesses do; handing a list to another thread is the queue's release and acquire.
    next: AtomicPtr<Job>,
    run: unsafe fn(NonNull<Job>) -> Transfer,
    _pinned: PhantomPinned,
}

impl Job {
    const_unless_loom! {
        /// A job that calls `run` with its own address.
        pub fn new(run: unsafe fn(NonNull<Job>) -> Transfer) -> Self {
            Job {
                next: AtomicPtr::new(ptr::null_mut()),
                run,
                _pinned: PhantomPinned,
            }
        }
    }

    pub(crate) fn next(&self) -> *mut Job {
        self.next.load(Relaxed)
    }

    pub(crate) fn set_next(&self, next: *mut Job) {
        self.next.store(next, Relaxed);
    }

    /// Runs the job and returns what is to be resumed after it. Does not unwind: a job whose function does aborts the
    /// process. Every driver calls jobs through this function.
    ///
    /// # Safety
    ///
    /// The job is alive, in no list, and its owner expects exactly this one run.
    #[inline]
    pub(crate) unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is alive, by the caller's promise.
        let run = unsafe { job.as_ref().run };
        // The one place that calls a job's function: no driver has to expect an unwind.
        let guard = AbortOnUnwind::new();
        // SAFETY: the caller's promise is the one that the job's function asks for.
        let resumed = unsafe { run(job) };
        guard.defuse();
        resumed
    }
}

crate::opaque!([] Job);

/// What is to be resumed next: nothing, one job, or several in order.
///
/// Starting an operation and every completion of a receiver return a `Transfer` instead of resuming anything
/// themselves. A receiver that only adapts hands on what it got from downstream. A *driver* ([`sync_wait`], a run
/// loop, a stop request, a waker) runs it in a loop, so that work which resumes work which resumes work takes the
/// stack of one.
///
/// A `Transfer` is two words: the head and the tail of a list linked through [`Job`]. It runs depth first: what a job
/// hands back goes before what was left.
///
/// **Dropping a `Transfer` runs it.** Forgetting to hand one on costs stack, never a lost completion.
///
/// [`sync_wait`]: crate::sync_wait
#[must_use = "hand a `Transfer` on to the caller; dropping it runs it right here, on this stack"]
pub struct Transfer {
    /// Null when there is nothing to resume; `tail` means something only when it is not.
    head: *mut Job,
    tail: *mut Job,
}

impl Transfer {
    /// Nothing to resume.
    #[inline]
    pub const fn none() -> Self {
        Transfer {
            head: ptr::null_mut(),
            tail: ptr::null_mut(),
        }
    }

    /// One job to resume.
    ///
    /// # Safety
    ///
    /// The job stays where it is, and alive, until it runs; it is in no other list; nobody else runs it.
    #[inline]
    pub unsafe fn to(job: NonNull<Job>) -> Self {
        // SAFETY: the job is alive, by the caller's promise.
        unsafe { job.as_ref() }.set_next(ptr::null_mut());
        Transfer {
            head: job.as_ptr(),
            tail: job.as_ptr(),
        }
    }

    /// Whether there is nothing to resume.
    #[inline]
    pub const fn is_none(&self) -> bool {
        self.head.is_null()
    }

    /// Adds what is to be resumed after this.
    #[inline]
    pub fn append(&mut self, other: Transfer) {
        if other.is_none() {
            mem::forget(other);
        } else if self.is_none() {
            mem::forget(mem::replace(self, other));
        } else {
            // SAFETY: a job in a `Transfer` is alive until it runs.
            unsafe { (*self.tail).set_next(other.head) };
            self.tail = other.tail;
            mem::forget(other);
        }
    }

    /// This, then `other`.
    #[inline]
    pub fn and(mut self, other: Transfer) -> Transfer {
        self.append(other);
        self
    }

    /// Runs everything, and everything that comes of it, in a loop on this stack.
    #[inline]
    pub fn run(self) {
        drop(self);
    }

    /// The first job, to which the others are linked; or null.
    #[cfg(feature = "std")]
    pub(crate) fn into_raw(self) -> *mut Job {
        let head = self.head;
        mem::forget(self);
        head
    }

    /// The list of such a job. It can be [taken apart](Transfer::pop), and nothing is appended to it.
    ///
    /// # Safety
    ///
    /// It was made by [`into_raw`](Transfer::into_raw), and is used this once.
    #[cfg(feature = "std")]
    pub(crate) unsafe fn from_raw(head: *mut Job) -> Self {
        Transfer { head, tail: head }
    }

    pub(crate) fn pop(&mut self) -> Option<NonNull<Job>> {
        let job = NonNull::new(self.head)?;
        // SAFETY: a job in a `Transfer` is alive until it runs.
        self.head = unsafe { job.as_ref() }.next();
        Some(job)
    }

    #[inline(never)]
    fn drain(&mut self) {
        // Whatever runs here is not part of the task that is being polled beneath it.
        #[cfg(feature = "std")]
        if super::current::is_seen() {
            return self.drain_hidden();
        }
        self.drain_here();
    }

    #[cfg(feature = "std")]
    #[cold]
    fn drain_hidden(&mut self) {
        let _hidden = super::current::Hidden::from_poll();
        self.drain_here();
    }

    #[inline]
    fn drain_here(&mut self) {
        let mut list = mem::take(self);
        while let Some(job) = list.pop() {
            if !list.is_none() {
                return list.drain_several(job);
            }
            // SAFETY: the job was in this list, so it is alive and this is its one run.
            let resumed = unsafe { Job::run(job) };
            mem::forget(mem::replace(&mut list, resumed));
        }
    }

    /// Runs a job that was taken out of the list, then the list.
    #[inline(never)]
    fn drain_several(&mut self, first: NonNull<Job>) {
        let list = ptr::from_mut(self);
        // A job that blocks makes the rest public, through this pointer. So nothing else is used from here on.
        #[cfg(feature = "std")]
        let beneath = beneath::Beneath::new(list);
        #[cfg(feature = "std")]
        // SAFETY: the list is this function's, and not used otherwise while a job runs. It is taken out before the list goes.
        unsafe {
            beneath.enter();
        }
        let mut next = Some(first);
        while let Some(job) = next {
            // SAFETY: the job was in this list, so it is alive and this is its one run.
            let mut resumed = unsafe { Job::run(job) };
            // SAFETY: as above.
            let list = unsafe { &mut *list };
            resumed.append(mem::take(list));
            mem::forget(mem::replace(list, resumed));
            next = list.pop();
        }
    }

    /// Whether lists are being run beneath the caller on this stack that have more than one job.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn is_beneath() -> bool {
        beneath::is_used()
    }

    /// Takes what is left in the lists that are being run beneath the caller on this stack.
    #[cfg(feature = "std")]
    pub(crate) fn take_beneath() -> Transfer {
        beneath::take()
    }

    /// Collects what callbacks hand back, one after the other, where a callback that blocks finds it.
    #[inline]
    pub(crate) fn collect(mut callback: impl FnMut() -> Option<Transfer>) -> Transfer {
        while let Some(resumed) = callback() {
            if !resumed.is_none() {
                return resumed.collect_more(callback);
            }
            mem::forget(resumed);
        }
        Transfer::none()
    }

    /// Adds what more callbacks hand back.
    fn collect_more(mut self, mut callback: impl FnMut() -> Option<Transfer>) -> Transfer {
        let list = ptr::from_mut(&mut self);
        #[cfg(feature = "std")]
        let beneath = beneath::Beneath::new(list);
        #[cfg(feature = "std")]
        // SAFETY: the list does not move, and is not used while a callback runs.
        unsafe {
            beneath.enter();
        }
        while let Some(resumed) = callback() {
            // SAFETY: as above.
            unsafe { (*list).append(resumed) };
        }
        // SAFETY: as above.
        mem::take(unsafe { &mut *list })
    }
}

#[cfg(feature = "std")]
mod beneath {
    use core::cell::Cell;
    use core::ptr;

    use super::Transfer;
    use crate::sync::per_thread;

    per_thread! {
        /// The topmost of the lists on this stack that have more than the job that runs.
        static TOP: Cell<*const Beneath> = Cell::new(ptr::null());
    }

    /// A list that is being run, and the one beneath it. It is known from the time it has more than one job.
    pub(super) struct Beneath {
        list: *mut Transfer,
        entered: Cell<bool>,
        outer: Cell<*const Beneath>,
    }

    impl Beneath {
        pub(super) fn new(list: *mut Transfer) -> Self {
            Beneath {
                list,
                entered: Cell::new(false),
                outer: Cell::new(ptr::null()),
            }
        }

        /// # Safety
        ///
        /// It does not move until it is dropped, nor does the list, which is not used while a job runs.
        pub(super) unsafe fn enter(&self) {
            if !self.entered.replace(true) {
                self.outer.set(TOP.with(|top| top.replace(self)));
            }
        }
    }

    impl Drop for Beneath {
        fn drop(&mut self) {
            if self.entered.get() {
                TOP.with(|top| top.set(self.outer.get()));
            }
        }
    }

    #[inline]
    pub(super) fn is_used() -> bool {
        TOP.with(|top| !top.get().is_null())
    }

    /// Takes what is left in all lists, the topmost first.
    pub(super) fn take() -> Transfer {
        let mut taken = Transfer::none();
        let mut at = TOP.with(Cell::get);
        // SAFETY: the entries are on the stack beneath the caller.
        while let Some(beneath) = unsafe { at.as_ref() } {
            // SAFETY: the caller is what a job of that list runs, so the list is not in use.
            taken.append(core::mem::take(unsafe { &mut *beneath.list }));
            at = beneath.outer.get();
        }
        taken
    }
}

impl Drop for Transfer {
    #[inline]
    fn drop(&mut self) {
        if !self.is_none() {
            self.drain();
        }
    }
}

impl Default for Transfer {
    #[inline]
    fn default() -> Self {
        Transfer::none()
    }
}

/// So that a callback may return nothing, or what is to be resumed.
impl From<()> for Transfer {
    #[inline]
    fn from((): ()) -> Self {
        Transfer::none()
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut jobs = 0usize;
        let mut at = self.head;
        while let Some(job) = NonNull::new(at) {
            jobs += 1;
            // SAFETY: a job in a `Transfer` is alive until it runs.
            at = unsafe { job.as_ref() }.next();
        }
        f.debug_struct("Transfer").field("jobs", &jobs).finish()
    }
}
