use core::fmt;
use core::marker::PhantomPinned;
use core::mem;
use core::ptr::{self, NonNull};

use super::unwind::AbortOnUnwind;
use crate::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use crate::sync::const_unless_loom;

/// The intrusive header of all that can be queued or resumed: one link and one function.
///
/// An operation embeds a `Job` and passes its address to a scheduler's queue, or in a [`Transfer`]. The thread that
/// takes the job out runs it exactly once. Nothing is allocated, because the operation *is* the node.
///
/// The function receives the job's address and finds its operation from it, with [`core::mem::offset_of!`] or by
/// making the job the first field of a `#[repr(C)]` struct.
// Aligned to eight bytes on every target: queues keep three bits in a job's address.
#[repr(align(8))]
pub struct Job {
    /// The link in the list that has the job: a queue or a `Transfer`, never two at once. Relaxed: only the list's
    /// owner accesses it, and a queue passes a list to another thread by its own release and acquire.
    next: AtomicPtr<Job>,
    run: unsafe fn(NonNull<Job>) -> Transfer,
    _pinned: PhantomPinned,
}

impl Job {
    const_unless_loom! {
        /// Makes a job that calls `run` with its own address.
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

    /// Runs the job, and returns the jobs to resume after it. An unwind of its function aborts the process. Every
    /// driver calls jobs through this function.
    ///
    /// # Safety
    ///
    /// The job is alive, in no list, and its owner expects exactly this one run.
    #[inline]
    pub(crate) unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is alive, by the contract.
        let run = unsafe { job.as_ref().run };
        // The only call of a job's function: no driver has to expect an unwind.
        let guard = AbortOnUnwind::new();
        // SAFETY: the contract is that of the job's function.
        let resumed = unsafe { run(job) };
        guard.defuse();
        resumed
    }
}

crate::opaque!([] Job);

/// The jobs to resume next: none, one, or several in order.
///
/// Starting an operation and every completion of a receiver return a `Transfer` instead of resuming anything
/// themselves. A receiver that only adapts returns the transfer from downstream. A *driver* ([`sync_wait`], a run loop,
/// a stop request, a waker) runs it in a loop, so that work that resumes work takes the stack of one.
///
/// A `Transfer` is two words: the head and the tail of a list linked through [`Job`]. It runs depth first: the jobs
/// that a job returns come before the rest.
///
/// **Dropping a `Transfer` runs it.** A transfer that is not returned costs stack, never a lost completion.
///
/// [`sync_wait`]: crate::sync_wait
#[must_use = "hand a `Transfer` on to the caller; dropping it runs it right here, on this stack"]
pub struct Transfer {
    /// Null when there is nothing to resume. `tail` is valid only when this is not null.
    head: *mut Job,
    tail: *mut Job,
}

impl Transfer {
    /// Makes an empty transfer.
    #[inline]
    pub const fn none() -> Self {
        Transfer {
            head: ptr::null_mut(),
            tail: ptr::null_mut(),
        }
    }

    /// Makes a transfer of one job.
    ///
    /// # Safety
    ///
    /// The job is alive, and does not move, until it runs. It is in no other list, and runs through this transfer only.
    #[inline]
    pub unsafe fn to(job: NonNull<Job>) -> Self {
        // SAFETY: the job is alive, by the contract.
        unsafe { job.as_ref() }.set_next(ptr::null_mut());
        Transfer {
            head: job.as_ptr(),
            tail: job.as_ptr(),
        }
    }

    /// Returns whether there is nothing to resume.
    #[inline]
    pub const fn is_none(&self) -> bool {
        self.head.is_null()
    }

    /// Appends the jobs of another transfer.
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

    /// Returns the jobs of this transfer, then those of `other`.
    #[inline]
    pub fn and(mut self, other: Transfer) -> Transfer {
        self.append(other);
        self
    }

    /// Runs all jobs, and all that they return, in a loop on this stack.
    #[inline]
    pub fn run(self) {
        drop(self);
    }

    pub(crate) fn pop(&mut self) -> Option<NonNull<Job>> {
        let job = NonNull::new(self.head)?;
        // SAFETY: a job in a `Transfer` is alive until it runs.
        self.head = unsafe { job.as_ref() }.next();
        Some(job)
    }

    #[inline(never)]
    fn drain(&mut self) {
        // These jobs do not belong to the task that is being polled beneath on this stack.
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
        mem::take(self).run_here();
    }

    /// Runs all jobs like [`run`](Transfer::run), on a thread that works for no task.
    #[inline(always)]
    pub(crate) fn run_here(self) {
        // Jobs one by one, as is usual, need no list in memory.
        let mut list = (self.head, self.tail);
        mem::forget(self);
        while let Some(job) = NonNull::new(list.0) {
            let (head, tail) = list;
            // SAFETY: a job in a `Transfer` is alive until it runs.
            if !unsafe { job.as_ref() }.next().is_null() {
                return Transfer { head, tail }.drain_several();
            }
            // SAFETY: the job was in this list, so it is alive, and this is its only run.
            let resumed = unsafe { Job::run(job) };
            list = (resumed.head, resumed.tail);
            mem::forget(resumed);
        }
    }

    /// Runs a list with more than one job.
    #[inline(never)]
    fn drain_several(mut self) {
        let list = ptr::from_mut(&mut self);
        // A job that blocks publishes the rest, through this pointer. So the list is accessed through it alone from
        // here on.
        #[cfg(feature = "std")]
        let beneath = beneath::OuterList::new(list);
        #[cfg(feature = "std")]
        // SAFETY: the list is a local of this function, and not accessed otherwise while a job runs. The entry is
        // removed before the list is dropped.
        unsafe {
            beneath.enter();
        }
        // SAFETY: the list is a local, and accessed through this pointer alone.
        while let Some(job) = unsafe { (*list).pop() } {
            // SAFETY: the job was in this list, so it is alive, and this is its only run.
            let mut resumed = unsafe { Job::run(job) };
            // SAFETY: the list is a local, and accessed through this pointer alone.
            let list = unsafe { &mut *list };
            resumed.append(mem::take(list));
            mem::forget(mem::replace(list, resumed));
        }
    }

    /// Returns whether a list with more than one job is being run beneath the caller on this stack.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn is_beneath() -> bool {
        beneath::is_used()
    }

    /// Takes the jobs that are left in the lists that are being run beneath the caller on this stack.
    #[cfg(feature = "std")]
    pub(crate) fn take_beneath() -> Transfer {
        beneath::take()
    }

    /// Collects the transfers of callbacks, where a callback that blocks finds them.
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

    /// Appends the transfers of more callbacks.
    fn collect_more(mut self, mut callback: impl FnMut() -> Option<Transfer>) -> Transfer {
        let list = ptr::from_mut(&mut self);
        #[cfg(feature = "std")]
        let beneath = beneath::OuterList::new(list);
        #[cfg(feature = "std")]
        // SAFETY: the list does not move, and is not used while a callback runs.
        unsafe {
            beneath.enter();
        }
        while let Some(resumed) = callback() {
            // SAFETY: the list is a local, and accessed through this pointer alone.
            unsafe { (*list).append(resumed) };
        }
        // SAFETY: the list is a local, and accessed through this pointer alone.
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
        /// The topmost list on this stack that has more than the running job.
        static TOP: Cell<*const OuterList> = Cell::new(ptr::null());
    }

    /// A list that is being run, and the one beneath it. It is registered once it has more than one job.
    pub(super) struct OuterList {
        list: *mut Transfer,
        entered: Cell<bool>,
        outer: Cell<*const OuterList>,
    }

    impl OuterList {
        pub(super) fn new(list: *mut Transfer) -> Self {
            OuterList {
                list,
                entered: Cell::new(false),
                outer: Cell::new(ptr::null()),
            }
        }

        /// # Safety
        ///
        /// Entry and list do not move until the entry is dropped. The list is not accessed while a job runs.
        pub(super) unsafe fn enter(&self) {
            if !self.entered.replace(true) {
                self.outer.set(TOP.with(|top| top.replace(self)));
            }
        }
    }

    impl Drop for OuterList {
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

    /// Takes the jobs that are left in all lists, the topmost first.
    pub(super) fn take() -> Transfer {
        let mut taken = Transfer::none();
        let mut at = TOP.with(Cell::get);
        // SAFETY: the entries are on the stack beneath the caller.
        while let Some(beneath) = unsafe { at.as_ref() } {
            // SAFETY: the caller runs inside a job of that list, so the list is not accessed meanwhile.
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

/// The result of a callback: nothing, or a transfer.
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
