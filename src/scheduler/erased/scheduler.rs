use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop};
use core::ptr::NonNull;

#[cfg(feature = "alloc")]
use allocator_api2::alloc::Allocator;

use super::inline::InlineRoom;
use super::schedule::TaskSchedule;
#[cfg(not(feature = "alloc"))]
use super::vtable::OperationOf;
use super::vtable::{SchedulerVtable, VtableOf, type_id};
use crate::memory::Words;
#[cfg(feature = "alloc")]
use crate::memory::{AnyAllocator, Count, OutOfMemoryError, OwnedMemory};
#[cfg(feature = "std")]
use crate::scheduler::{HopTo, HopVtable};
use crate::sender::demand::demand;
use crate::sender::native::Native;
use crate::{Identity, Scheduler};

/// A type-erased infallible scheduler, for structs, functions and branches that are not generic over the scheduler.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::{InlineScheduler, RunLoop, TaskScheduler};
///
/// let run_loop = RunLoop::new();
/// let choose = |there: bool| {
///     if there {
///         TaskScheduler::new(run_loop.scheduler())
///     } else {
///         TaskScheduler::new(InlineScheduler)
///     }
/// };
/// assert!(choose(true) == run_loop.scheduler());
/// assert!(choose(false) == InlineScheduler);
/// assert!(choose(true) != choose(false));
/// assert_eq!(run_loop.run_until(just(1).continues_on(choose(true))).unwrap(), 1);
/// ```
///
/// - It equals the scheduler it was created from, and every other `TaskScheduler` of the same scheduler. That is one of
///   the same type, ignoring lifetimes, with the same [`identity`](Scheduler::identity). The erased one is on the left.
///   A custom scheduler that does not implement `identity` equals nothing after erasure.
/// - A `TaskScheduler` of a `TaskScheduler` is the same scheduler, without nesting.
/// - A fallible scheduler is rejected at compile time. [`or_inline`](Scheduler::or_inline) and
///   [`or_abort`](Scheduler::or_abort) make it infallible.
/// - `'a` is the lifetime of the scheduler's borrows: `TaskScheduler<'static>` for a pool, `TaskScheduler<'a>` for a
///   run loop on the stack.
///
/// # Allocation
///
/// None for a scheduler of up to three words whose operation is no larger than
/// [`INLINE_OPERATION`](TaskScheduler::INLINE_OPERATION). All schedulers of this crate are. A larger scheduler is
/// stored in one allocation, which clones share. A larger operation is allocated when its sender is connected, so that
/// starting cannot fail. Both use the given allocator, or else the global one. An allocator larger than a word stores
/// itself in one more allocation, from itself.
///
/// Without the `alloc` feature, a scheduler or operation that is too large is rejected at compile time. So is another
/// `TaskScheduler`: clone it instead.
pub struct TaskScheduler<'a> {
    pub(super) vtable: &'static SchedulerVtable,
    /// The scheduler if it fits, or a pointer to a count with the scheduler behind it.
    words: Words<3>,
    #[cfg(feature = "alloc")]
    pub(super) allocator: AnyAllocator<'a>,
    _scheduler: PhantomData<&'a ()>,
}

// SAFETY: every scheduler is `Send` and `Sync`, and so is `AnyAllocator`.
unsafe impl Send for TaskScheduler<'_> {}
// SAFETY: see `Send`.
unsafe impl Sync for TaskScheduler<'_> {}

impl<'a> TaskScheduler<'a> {
    /// The largest size, in bytes, of an inner operation that is stored inline: sixteen words.
    ///
    /// That suffices for a queue's link, a few words of the scheduler, a small receiver and an entry in a stop source's
    /// list.
    pub const INLINE_OPERATION: usize = size_of::<InlineRoom>();

    /// Erases the type of an infallible scheduler.
    ///
    /// # Panics
    ///
    /// If there is no memory for a scheduler of more than three words.
    #[cfg(feature = "alloc")]
    #[track_caller]
    pub fn new<S: Scheduler + 'a>(scheduler: S) -> Self {
        const { refuse_fallible::<S>() }
        TaskScheduler::new_unchecked(scheduler)
    }

    /// Erases the type of a scheduler that the caller has checked to be infallible.
    #[cfg(feature = "alloc")]
    #[track_caller]
    pub(crate) fn new_unchecked<S: Scheduler + 'a>(scheduler: S) -> Self {
        match unwrap(scheduler) {
            Ok(erased) => erased,
            Err(scheduler) => match Self::erase(scheduler, AnyAllocator::global()) {
                Ok(erased) => erased,
                Err(error) => panic!("cannot erase a scheduler: {error}"),
            },
        }
    }

    /// Erases the type of an infallible scheduler.
    #[cfg(not(feature = "alloc"))]
    pub fn new<S: Scheduler + 'a>(scheduler: S) -> Self {
        const {
            refuse_fallible::<S>();
            demand(
                type_fits::<S>(),
                "without the `alloc` feature a `TaskScheduler` holds schedulers of up to three words, whose operation is no larger than `TaskScheduler::INLINE_OPERATION`",
            );
        }
        unwrap(scheduler).unwrap_or_else(|scheduler| {
            let words = Words::empty();
            // SAFETY: the scheduler fits into the words, as checked above.
            unsafe { words.place().cast().write(scheduler) };
            TaskScheduler {
                vtable: VtableOf::<S>::VTABLE,
                words,
                _scheduler: PhantomData,
            }
        })
    }

    /// Erases the type of an infallible scheduler. One that does not fit is stored in memory from `allocator`.
    ///
    /// From a `TaskScheduler`, creates a copy that uses this allocator.
    ///
    /// # Panics
    ///
    /// If the allocator has no memory. [`try_new_in`](TaskScheduler::try_new_in) returns an error instead.
    #[cfg(feature = "alloc")]
    #[track_caller]
    pub fn new_in<S, A>(scheduler: S, allocator: A) -> Self
    where
        S: Scheduler + 'a,
        A: Allocator + Clone + Send + Sync + 'a,
    {
        match Self::try_new_in(scheduler, allocator) {
            Ok(erased) => erased,
            Err(error) => panic!("cannot erase a scheduler: {error}"),
        }
    }

    /// Erases the type of an infallible scheduler like [`new_in`](TaskScheduler::new_in), and returns an error if there
    /// is no memory.
    ///
    /// # Errors
    ///
    /// The allocator has no memory.
    #[cfg(feature = "alloc")]
    pub fn try_new_in<S, A>(scheduler: S, allocator: A) -> Result<Self, OutOfMemoryError>
    where
        S: Scheduler + 'a,
        A: Allocator + Clone + Send + Sync + 'a,
    {
        const { refuse_fallible::<S>() }
        let allocator = AnyAllocator::new(allocator)?;
        match unwrap(scheduler) {
            Ok(erased) => erased.move_to(allocator),
            Err(scheduler) => Self::erase(scheduler, allocator),
        }
    }

    #[cfg(feature = "alloc")]
    fn erase<S: Scheduler + 'a>(scheduler: S, allocator: AnyAllocator<'a>) -> Result<Self, OutOfMemoryError> {
        let vtable = VtableOf::<S>::VTABLE;
        let words = if Words::<3>::fit(Layout::new::<S>()) {
            let words = Words::empty();
            // SAFETY: the scheduler fits into the words, as checked above.
            unsafe { words.place().cast().write(scheduler) };
            words
        } else {
            let shared = allocator.allocate(vtable.shared_layout().0)?.cast();
            // SAFETY: the memory is new, and its layout is a count with a scheduler behind it.
            unsafe {
                shared.write(Count::one());
                vtable.behind_count(shared).cast().write(scheduler);
            }
            Words::of(shared)
        };
        Ok(TaskScheduler {
            vtable,
            words,
            allocator,
            _scheduler: PhantomData,
        })
    }

    /// Copies the scheduler, with another allocator.
    #[cfg(feature = "alloc")]
    fn move_to(self, allocator: AnyAllocator<'a>) -> Result<Self, OutOfMemoryError> {
        let (words, allocator) = if self.is_inline() {
            // SAFETY: the scheduler has the vtable's type, and fits.
            (unsafe { self.vtable.copy(self.scheduler()) }, allocator)
        } else {
            // The user's `clone` may panic. `OwnedMemory` then frees the memory.
            let memory = OwnedMemory::new(allocator, self.vtable.shared_layout().0)?;
            let shared = memory.as_ptr().cast();
            // SAFETY: the scheduler has the vtable's type. The memory's layout is a count with a scheduler behind it.
            unsafe {
                (self.vtable.clone)(self.scheduler(), self.vtable.behind_count(shared));
                shared.write(Count::one());
            }
            (Words::of(shared), memory.into_allocator())
        };
        Ok(TaskScheduler {
            vtable: self.vtable,
            words,
            allocator,
            _scheduler: PhantomData,
        })
    }

    #[inline]
    fn is_inline(&self) -> bool {
        Words::<3>::fit(self.vtable.layout)
    }

    /// Returns the address of the scheduler, which has the vtable's type.
    #[inline]
    pub(super) fn scheduler(&self) -> NonNull<()> {
        #[cfg(feature = "alloc")]
        if !self.is_inline() {
            // SAFETY: the scheduler does not fit, so the words hold a pointer to its count.
            return unsafe { self.vtable.behind_count(self.shared()) };
        }
        self.words.place()
    }

    /// # Safety
    ///
    /// The scheduler does not fit into the words.
    #[cfg(feature = "alloc")]
    unsafe fn shared(&self) -> NonNull<Count> {
        // SAFETY: for such a scheduler the words hold a pointer, by the invariant of the type.
        unsafe { self.words.place().cast().read() }
    }
}

impl Clone for TaskScheduler<'_> {
    #[inline]
    fn clone(&self) -> Self {
        // Both clones may run user code that panics. The first is then dropped, and no reference was added.
        #[cfg(feature = "alloc")]
        let allocator = self.allocator.clone();
        let words = if self.is_inline() {
            // SAFETY: the scheduler has the vtable's type, and fits.
            unsafe { self.vtable.copy(self.scheduler()) }
        } else {
            #[cfg(feature = "alloc")]
            {
                // SAFETY: the scheduler does not fit, so the words hold a pointer to its count.
                let shared = unsafe { self.shared() };
                // SAFETY: this handle owns a reference, so the count is valid.
                unsafe { shared.as_ref() }.add();
                Words::of(shared)
            }
            #[cfg(not(feature = "alloc"))]
            unreachable!("`new` refuses what does not fit")
        };
        TaskScheduler {
            vtable: self.vtable,
            words,
            #[cfg(feature = "alloc")]
            allocator,
            _scheduler: PhantomData,
        }
    }
}

impl Drop for TaskScheduler<'_> {
    #[inline]
    fn drop(&mut self) {
        #[cfg(feature = "alloc")]
        if !self.is_inline() {
            /// Frees the memory, even if the user's destructor panics.
            struct FreeShared<'a, 'b>(&'a AnyAllocator<'b>, NonNull<Count>, Layout);
            impl Drop for FreeShared<'_, '_> {
                fn drop(&mut self) {
                    // SAFETY: this was the last reference. Every handle has a clone of the allocator that the memory is
                    // from.
                    unsafe { self.0.deallocate(self.1.cast(), self.2) };
                }
            }

            // SAFETY: the scheduler does not fit, so the words hold a pointer to its count, and this handle owns a
            // reference. The last reference has exclusive access to the scheduler.
            unsafe {
                let shared = self.shared();
                if shared.as_ref().release() {
                    let _free = FreeShared(&self.allocator, shared, self.vtable.shared_layout().0);
                    self.vtable.drop(self.scheduler());
                }
            }
            return;
        }
        // SAFETY: this handle owns the scheduler, and does not access it again.
        unsafe { self.vtable.drop(self.scheduler()) };
    }
}

/// Compares the types, ignoring lifetimes, and the [identities](Scheduler::identity).
///
/// The two may have different lifetimes, so no code of theirs ever sees both.
impl<S: Scheduler> PartialEq<S> for TaskScheduler<'_> {
    fn eq(&self, other: &S) -> bool {
        let id = match as_erased(other) {
            Some(other) => (other.vtable.id)(),
            None => type_id::<S>(),
        };
        (self.vtable.id)() == id && self.identity() == other.identity()
    }
}

impl fmt::Debug for TaskScheduler<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskScheduler")
            .field(&format_args!("{}", (self.vtable.name)()))
            .finish()
    }
}

impl<'a> Scheduler for TaskScheduler<'a> {
    type Schedule = TaskSchedule<'a>;
    const INFALLIBLE: bool = true;

    #[inline]
    fn schedule(&self) -> TaskSchedule<'a> {
        TaskSchedule::new(self.clone())
    }

    fn identity(&self) -> Identity {
        // SAFETY: the scheduler has the vtable's type, and is valid while `self` is borrowed.
        unsafe { (self.vtable.identity)(self.scheduler()) }
    }

    #[inline]
    fn native(&self) -> Option<Native<'_>> {
        // SAFETY: the scheduler has the vtable's type. It is valid, and does not move, while `self` is borrowed.
        unsafe { (self.vtable.native)(self.scheduler()).map(|native| Native::from_raw(native)) }
    }
}

/// Rejects fallible schedulers at compile time.
#[track_caller]
const fn refuse_fallible<S: Scheduler>() {
    demand(
        S::PRESENT,
        "`TaskScheduler` needs a scheduler, and `NoScheduler` is none: start the work on one with `starts_on(scheduler, sender)`",
    );
    demand(
        S::INFALLIBLE,
        "`TaskScheduler` needs a scheduler that cannot fail: erase `scheduler.or_inline()` or `scheduler.or_abort()`",
    );
}

#[cfg(not(feature = "alloc"))]
const fn type_fits<S: Scheduler>() -> bool {
    Words::<3>::fit(Layout::new::<S>()) && InlineRoom::fit(Layout::new::<OperationOf<S>>())
}

/// Returns the scheduler as a `TaskScheduler`, if it is one.
fn as_erased<S: Scheduler>(scheduler: &S) -> Option<&TaskScheduler<'_>> {
    if type_id::<S>() == type_id::<TaskScheduler<'static>>() {
        // SAFETY: `S` is a `TaskScheduler`, whose lifetime outlives the borrow.
        Some(unsafe { &*(&raw const *scheduler).cast() })
    } else {
        None
    }
}

/// Returns the functions by which a task hops to a scheduler, and the scheduler's address. For an erased scheduler,
/// both belong to the inner one. The address is valid while the argument is borrowed.
#[cfg(feature = "std")]
#[inline]
pub(crate) fn hop_to<S: Scheduler>(scheduler: &S) -> (&'static HopVtable, NonNull<()>) {
    match as_erased(scheduler) {
        Some(erased) => (erased.vtable.hop, erased.scheduler()),
        None => (HopTo::<S>::VTABLE, NonNull::from(scheduler).cast()),
    }
}

/// Returns the scheduler by value as a `TaskScheduler`, if it is one.
fn unwrap<'a, S: Scheduler + 'a>(scheduler: S) -> Result<TaskScheduler<'a>, S> {
    if type_id::<S>() == type_id::<TaskScheduler<'static>>() {
        let scheduler = ManuallyDrop::new(scheduler);
        // SAFETY: `S` is a `TaskScheduler` whose lifetime is at least `'a`, since `S: 'a`. The original is not dropped.
        Ok(unsafe { mem::transmute_copy(&scheduler) })
    } else {
        Err(scheduler)
    }
}
