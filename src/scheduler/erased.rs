use core::alloc::Layout;
use core::any::{TypeId, type_name};
use core::convert::Infallible;
use core::fmt;
use core::marker::{PhantomData, PhantomPinned};
use core::mem::{self, ManuallyDrop};
use core::pin::Pin;
use core::ptr::NonNull;

#[cfg(feature = "alloc")]
use allocator_api2::alloc::Allocator;

#[cfg(feature = "alloc")]
use crate::Job;
use crate::memory::Words;
#[cfg(feature = "alloc")]
use crate::memory::{AnyAllocator, Count, OutOfMemory};
use crate::sender::demand::demand;
use crate::sender::native::{Native, RawNative};
use crate::sender::port::{Outside, Port, PortEnv, PortReceiver};
use crate::sender::progress::{Holds, Progress};
use crate::sender::stage::container_of;
#[cfg(feature = "std")]
use crate::task::{HopTo, HopVtable};
use crate::{Completion, Identity, Operation, Panic, Receiver, Scheduler, Sender, Transfer};

/// Any scheduler that cannot fail, with its type erased: for structs, functions and branches that are not to be generic
/// over where work runs.
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
/// - It equals what it was made of, and every other `TaskScheduler` made of the same scheduler: one of the same type,
///   but for lifetimes, that has the same [`identity`](Scheduler::identity). The erased one stands on the left. A
///   scheduler of your own that does not tell its identity equals nothing once it is erased.
/// - A `TaskScheduler` made of another is that one, not one around it.
/// - A scheduler that can fail is refused at compile time: [`or_inline`](Scheduler::or_inline) and
///   [`or_abort`](Scheduler::or_abort) make one that cannot.
/// - `'a` is what the scheduler borrows: `TaskScheduler<'static>` for a pool, `TaskScheduler<'a>` for a run loop
///   on somebody's stack.
///
/// # Allocation
///
/// None for a scheduler of up to three words whose operation is no larger than
/// [`INLINE_OPERATION`](TaskScheduler::INLINE_OPERATION), which is every scheduler of this crate. A larger scheduler is
/// kept in one allocation, which clones share; a larger operation is allocated when its sender is connected, so that
/// starting cannot fail. Both use the allocator that was given, or else the global one. An allocator larger than a word
/// keeps itself in one more allocation, from itself.
///
/// Without the `alloc` feature a scheduler or an operation that is too large is refused at compile time, and with them
/// another `TaskScheduler`, of which a clone does.
pub struct TaskScheduler<'a> {
    vtable: &'static Vtable,
    /// The scheduler, where it fits; else a pointer to a count, with the scheduler behind it.
    words: Words<3>,
    #[cfg(feature = "alloc")]
    allocator: AnyAllocator<'a>,
    _scheduler: PhantomData<&'a ()>,
}

// SAFETY: every scheduler is `Send` and `Sync`.
unsafe impl Send for TaskScheduler<'_> {}
// SAFETY: as above.
unsafe impl Sync for TaskScheduler<'_> {}

impl<'a> TaskScheduler<'a> {
    /// The size, in bytes, up to which the operation of the scheduler inside is kept in that of its user: sixteen words.
    ///
    /// It is a queue's link, a few words of a scheduler's own, and a receiver of one word; with room for a place in a
    /// stop source's list.
    pub const INLINE_OPERATION: usize = size_of::<InlineOperation>();

    /// Erases the type of a scheduler that cannot fail.
    ///
    /// # Panics
    ///
    /// When there is no memory for a scheduler of more than three words.
    #[cfg(feature = "alloc")]
    #[track_caller]
    pub fn new<S: Scheduler + 'a>(scheduler: S) -> Self {
        const { refuse_fallible::<S>() }
        TaskScheduler::new_unchecked(scheduler)
    }

    /// The same, where somebody else has looked at the scheduler, and said what is wrong with it.
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

    /// Erases the type of a scheduler that cannot fail.
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
            // SAFETY: it fits.
            unsafe { words.place().cast().write(scheduler) };
            TaskScheduler {
                vtable: Of::<S>::VTABLE,
                words,
                _scheduler: PhantomData,
            }
        })
    }

    /// Erases the type of a scheduler that cannot fail. What does not fit is kept in memory from `allocator`.
    ///
    /// Made of a `TaskScheduler`, it is a copy that uses this allocator from here on.
    ///
    /// # Panics
    ///
    /// When the allocator has no memory. [`try_new_in`](TaskScheduler::try_new_in) says so instead.
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

    /// The same as [`new_in`](TaskScheduler::new_in), for an allocator that may have no memory.
    ///
    /// # Errors
    ///
    /// The allocator had none.
    #[cfg(feature = "alloc")]
    pub fn try_new_in<S, A>(scheduler: S, allocator: A) -> Result<Self, OutOfMemory>
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
    fn erase<S: Scheduler + 'a>(scheduler: S, allocator: AnyAllocator<'a>) -> Result<Self, OutOfMemory> {
        let vtable = Of::<S>::VTABLE;
        let words = if Words::<3>::fit(Layout::new::<S>()) {
            let words = Words::empty();
            // SAFETY: it fits.
            unsafe { words.place().cast().write(scheduler) };
            words
        } else {
            let shared = allocator.allocate(vtable.shared_layout().0)?.cast();
            // SAFETY: the memory is new, and has room for a count and the scheduler behind it.
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

    /// The same scheduler, with another allocator.
    #[cfg(feature = "alloc")]
    fn move_to(self, allocator: AnyAllocator<'a>) -> Result<Self, OutOfMemory> {
        let (words, allocator) = if self.is_inline() {
            // SAFETY: the scheduler inside is of the vtable's type, and fits.
            (unsafe { self.vtable.copy(self.scheduler()) }, allocator)
        } else {
            // The user's `clone` may panic: the memory is freed then.
            let memory = Memory::new(allocator, self.vtable.shared_layout().0)?;
            let shared = memory.memory.cast();
            // SAFETY: the scheduler inside is of the vtable's type. The memory has room for a count and another scheduler.
            unsafe {
                (self.vtable.clone)(self.scheduler(), self.vtable.behind_count(shared));
                shared.write(Count::one());
            }
            (Words::of(shared), memory.keep())
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

    /// Where the scheduler is. It is one of the vtable's type.
    #[inline]
    fn scheduler(&self) -> NonNull<()> {
        #[cfg(feature = "alloc")]
        if !self.is_inline() {
            // SAFETY: a scheduler that does not fit is shared.
            return unsafe { self.vtable.behind_count(self.shared()) };
        }
        self.words.place()
    }

    /// # Safety
    ///
    /// The scheduler does not fit into the words.
    #[cfg(feature = "alloc")]
    unsafe fn shared(&self) -> NonNull<Count> {
        // SAFETY: then they hold a pointer.
        unsafe { self.words.place().cast().read() }
    }
}

impl Clone for TaskScheduler<'_> {
    #[inline]
    fn clone(&self) -> Self {
        // Both clones may run a user's code, which may panic: the first is dropped then, and nothing is counted.
        #[cfg(feature = "alloc")]
        let allocator = self.allocator.clone();
        let words = if self.is_inline() {
            // SAFETY: the scheduler inside is of the vtable's type, and fits.
            unsafe { self.vtable.copy(self.scheduler()) }
        } else {
            #[cfg(feature = "alloc")]
            {
                // SAFETY: the scheduler does not fit, so the words hold a pointer to its count.
                let shared = unsafe { self.shared() };
                // SAFETY: this handle is counted, so the count is valid.
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
            /// Frees the memory, also when the user's destructor panics.
            struct Free<'a, 'b>(&'a AnyAllocator<'b>, NonNull<Count>, Layout);
            impl Drop for Free<'_, '_> {
                fn drop(&mut self) {
                    // SAFETY: this was the last handle, so nothing uses the memory. Every handle has a clone of the
                    // allocator that the memory is from.
                    unsafe { self.0.deallocate(self.1.cast(), self.2) };
                }
            }

            // SAFETY: the scheduler does not fit, so the words hold a pointer to its count, in which this handle is
            // counted. The last handle has exclusive access to what is behind the count.
            unsafe {
                let shared = self.shared();
                if shared.as_ref().give_back() {
                    let _free = Free(&self.allocator, shared, self.vtable.shared_layout().0);
                    self.vtable.drop(self.scheduler());
                }
            }
            return;
        }
        // SAFETY: the scheduler is owned by this handle, and not used any more.
        unsafe { self.vtable.drop(self.scheduler()) };
    }
}

/// Compares the types, without their lifetimes, and the [identities](Scheduler::identity).
///
/// The two may borrow for different lifetimes, so no code of theirs ever sees both.
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
        TaskSchedule {
            scheduler: self.clone(),
        }
    }

    fn identity(&self) -> Identity {
        // SAFETY: the scheduler inside is of the vtable's type, and valid while this is borrowed.
        unsafe { (self.vtable.identity)(self.scheduler()) }
    }

    #[inline]
    fn native(&self) -> Option<Native<'_>> {
        // SAFETY: the scheduler inside is of the vtable's type. It is valid, and stays where it is, while this is borrowed.
        unsafe { (self.vtable.native)(self.scheduler()).map(|native| Native::from_raw(native)) }
    }
}

/// Says at compile time what cannot be erased.
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
    Words::<3>::fit(Layout::new::<S>()) && InlineOperation::fit(Layout::new::<Inside<S>>())
}

/// What tells types apart, whatever they borrow: the identity of `T` with every lifetime `'static`.
fn type_id<T>() -> TypeId {
    trait Identify {
        fn id(&self) -> TypeId
        where
            Self: 'static;
    }
    impl<T> Identify for PhantomData<T> {
        fn id(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<T>()
        }
    }
    let phantom = PhantomData::<T>;
    // SAFETY: only the lifetime bound of the trait object changes. The function called through it uses nothing of what
    // `T` borrows, and lifetimes do not exist any more when it runs.
    unsafe { mem::transmute::<&dyn Identify, &(dyn Identify + 'static)>(&phantom) }.id()
}

/// The scheduler, where it is erased already.
fn as_erased<S: Scheduler>(scheduler: &S) -> Option<&TaskScheduler<'_>> {
    if type_id::<S>() == type_id::<TaskScheduler<'static>>() {
        // SAFETY: `S` is a `TaskScheduler`, of a lifetime that outlives the borrow.
        Some(unsafe { &*(&raw const *scheduler).cast() })
    } else {
        None
    }
}

/// Returns what a task needs to get to a scheduler by its schedule sender, and that scheduler: the one inside, where it is
/// erased. It is valid as long as the given one is, and stays where it is.
#[cfg(feature = "std")]
#[inline]
pub(crate) fn hop_to<S: Scheduler>(scheduler: &S) -> (&'static HopVtable, NonNull<()>) {
    match as_erased(scheduler) {
        Some(erased) => (erased.vtable.hop, erased.scheduler()),
        None => (HopTo::<S>::VTABLE, NonNull::from(scheduler).cast()),
    }
}

/// The scheduler by value, where it is erased already.
fn unwrap<'a, S: Scheduler + 'a>(scheduler: S) -> Result<TaskScheduler<'a>, S> {
    if type_id::<S>() == type_id::<TaskScheduler<'static>>() {
        let scheduler = ManuallyDrop::new(scheduler);
        // SAFETY: `S` is a `TaskScheduler` of a lifetime that is at least `'a`, since `S` outlives `'a`; it is moved.
        Ok(unsafe { mem::transmute_copy(&scheduler) })
    } else {
        Err(scheduler)
    }
}

/// What is known of the scheduler inside. Pointers are to a valid scheduler of that type.
struct Vtable {
    id: fn() -> TypeId,
    name: fn() -> &'static str,
    layout: Layout,
    /// Writes a clone of the first where the second points. If the user's `clone` panics, nothing is written.
    clone: unsafe fn(NonNull<()>, NonNull<()>),
    /// The scheduler is not used any more. None where nothing need be done.
    drop: Option<unsafe fn(NonNull<()>)>,
    identity: unsafe fn(NonNull<()>) -> Identity,
    /// What is returned borrows the scheduler.
    native: unsafe fn(NonNull<()>) -> Option<RawNative>,
    /// How tasks get there, where it has no queue for them.
    #[cfg(feature = "std")]
    hop: &'static HopVtable,
    operation: OperationVtable,
}

/// What is known of its operation.
struct OperationVtable {
    layout: Layout,
    /// Schedules and connects, in place. The operation is pinned from here on. Where the user's code panics there is none,
    /// and the receiver was dropped.
    connect: Connect,
    /// Of an operation that was not started, and stays until it has completed.
    start: unsafe fn(NonNull<()>) -> Transfer,
    /// Of an operation that does not run, and is not used any more.
    drop: unsafe fn(NonNull<()>),
}

/// Takes a scheduler, room for its operation, and a receiver.
type Connect = unsafe fn(NonNull<()>, NonNull<()>, PortReceiver<(), Infallible>) -> Result<(), Panic>;

/// The operation of a scheduler.
type Inside<S> = <<S as Scheduler>::Schedule as Sender>::Operation<Reply>;

struct Of<S>(PhantomData<S>);

/// The caller of each function passes pointers that meet the contract of the field. All are of the type `S`.
impl<S: Scheduler> Of<S> {
    const VTABLE: &'static Vtable = &Vtable {
        id: type_id::<S>,
        name: type_name::<S>,
        layout: Layout::new::<S>(),
        // SAFETY: in each, the pointers are what the field asks for.
        clone: |scheduler, room| unsafe { room.cast().write(scheduler.cast::<S>().as_ref().clone()) },
        drop: if mem::needs_drop::<S>() {
            // SAFETY: see `clone`.
            Some(|scheduler| unsafe { scheduler.cast::<S>().drop_in_place() })
        } else {
            None
        },
        // SAFETY: see `clone`.
        identity: |scheduler| unsafe { scheduler.cast::<S>().as_ref() }.identity(),
        native: Self::native,
        #[cfg(feature = "std")]
        hop: HopTo::<S>::VTABLE,
        operation: OperationVtable {
            layout: Layout::new::<Inside<S>>(),
            connect: Self::connect,
            // SAFETY: see `clone`. The operation is pinned since it was connected, and started once.
            start: |room| unsafe { Pin::new_unchecked(room.cast::<Inside<S>>().as_mut()).start() },
            // SAFETY: see `clone`.
            drop: |room| unsafe { room.cast::<Inside<S>>().drop_in_place() },
        },
    };

    /// # Safety
    ///
    /// It is a scheduler.
    #[inline]
    unsafe fn native(scheduler: NonNull<()>) -> Option<RawNative> {
        // SAFETY: by the caller's promise.
        let native = unsafe { scheduler.cast::<S>().as_ref() }.native();
        native.map(|native| native.raw())
    }

    /// # Safety
    ///
    /// The first is a scheduler, the second room for its operation, which does not move any more.
    #[inline]
    unsafe fn connect(
        scheduler: NonNull<()>,
        room: NonNull<()>,
        receiver: PortReceiver<(), Infallible>,
    ) -> Result<(), Panic> {
        // SAFETY: by the caller's promise. Nothing of the user's runs between the write and the end of the closure.
        Panic::catch(|| unsafe {
            let operation = scheduler.cast::<S>().as_ref().schedule().connect(Reply(receiver));
            room.cast::<Inside<S>>().write(operation);
        })
    }
}

impl Vtable {
    /// # Safety
    ///
    /// It is a scheduler of this type, and not used any more.
    #[inline]
    unsafe fn drop(&self, scheduler: NonNull<()>) {
        if let Some(drop) = self.drop {
            // SAFETY: by the caller's promise.
            unsafe { drop(scheduler) };
        }
    }

    /// A clone of the scheduler, in words.
    ///
    /// # Safety
    ///
    /// It is one of this type, which fits.
    #[inline]
    unsafe fn copy(&self, scheduler: NonNull<()>) -> Words<3> {
        let words = Words::empty();
        // SAFETY: by the caller's promise.
        unsafe { (self.clone)(scheduler, words.place()) };
        words
    }
}

#[cfg(feature = "alloc")]
impl Vtable {
    /// The layout of a count with a scheduler behind it, and where that is.
    fn shared_layout(&self) -> (Layout, usize) {
        extend(Layout::new::<Count>(), self.layout)
    }

    /// # Safety
    ///
    /// It is a count that was allocated for this type.
    unsafe fn behind_count(&self, shared: NonNull<Count>) -> NonNull<()> {
        // SAFETY: by the caller's promise.
        unsafe { shared.cast::<()>().byte_add(self.shared_layout().1) }
    }
}

/// The first, then the second, and where that is.
#[cfg(feature = "alloc")]
#[track_caller]
fn extend(first: Layout, second: Layout) -> (Layout, usize) {
    match first.extend(second) {
        Ok(both) => both,
        Err(_) => panic!("two types that are each half of what can be addressed"),
    }
}

/// The receiver of what is inside. A scheduler that cannot fail may still have an error type.
struct Reply(PortReceiver<(), Infallible>);

impl<E> Receiver<(), E> for Reply {
    type Env = PortEnv<(), Infallible>;

    #[inline]
    fn env(&self) -> Self::Env {
        self.0.env()
    }

    #[inline]
    fn set_value(self, (): ()) -> Transfer {
        self.0.set_value(())
    }

    /// The scheduler was asked not to fail, at compile time. Where it does all the same, nobody waits for ever.
    #[inline]
    fn set_error(self, error: E) -> Transfer {
        drop(error);
        self.0.set_stopped()
    }

    #[inline]
    fn set_stopped(self) -> Transfer {
        self.0.set_stopped()
    }

    #[inline]
    fn set_panicked(self, payload: Panic) -> Transfer {
        self.0.set_panicked(payload)
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reply").finish_non_exhaustive()
    }
}

/// The schedule sender of a [`TaskScheduler`].
///
/// # Completions
///
/// Those of the scheduler inside, which sees the stop token and the user's own values of the receiver's environment. It
/// cannot fail, and stops only when that token was stopped.
///
/// # Panics
///
/// Those of the scheduler inside pass. A panic in its `schedule` or `connect` is the completion. Connecting panics when its
/// operation is larger than [`TaskScheduler::INLINE_OPERATION`] and there is no memory for it.
///
/// # Cancellation
///
/// That of the scheduler inside.
///
/// # Allocation
///
/// None where the operation of the scheduler inside is no larger than [`TaskScheduler::INLINE_OPERATION`]; else one,
/// when it is connected, with the scheduler's allocator. Starting does not allocate, unless the scheduler inside does in
/// its own `schedule` and `connect`: those run here when an inline operation starts.
///
/// # Stack
///
/// Constant. A scheduler of your own that has an erased one inside can be erased again, and so on; that is started and
/// completes in constant stack too, however deep, but connecting and dropping it take some for each level.
#[derive(Clone, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct TaskSchedule<'a> {
    scheduler: TaskScheduler<'a>,
}

// SAFETY: the operation touches nothing of itself once the one inside was started, but in its completion, nor after it
// has completed its receiver; it is `!Unpin`.
unsafe impl<'a> Sender for TaskSchedule<'a> {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = TaskScheduleOperation<'a, R>;

    #[track_caller]
    #[inline]
    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> TaskScheduleOperation<'a, R> {
        let place = if InlineOperation::fit(self.scheduler.vtable.operation.layout) {
            Place::Here(Here::new(self.scheduler, receiver))
        } else {
            #[cfg(feature = "alloc")]
            match There::new(&self.scheduler, receiver) {
                Ok(there) => Place::There(there),
                Err(error) => panic!("cannot connect the operation of an erased scheduler: {error}"),
            }
            #[cfg(not(feature = "alloc"))]
            unreachable!("`TaskScheduler::new` refuses what does not fit")
        };
        TaskScheduleOperation {
            place,
            _scheduler: PhantomData,
            _pinned: PhantomPinned,
        }
    }
}

/// The operation of [`TaskSchedule`].
pub struct TaskScheduleOperation<'a, R: Receiver<(), Infallible>> {
    place: Place<'a, R>,
    /// What is inside borrows what the scheduler does, also when it is dropped.
    _scheduler: PhantomData<TaskScheduler<'a>>,
    _pinned: PhantomPinned,
}

/// Where the operation inside is.
#[allow(
    clippy::large_enum_variant,
    reason = "the large one is the rule, and is not to be allocated"
)]
enum Place<'a, R: Receiver<(), Infallible>> {
    Here(Here<'a, R>),
    #[cfg(feature = "alloc")]
    There(There<'a, R>),
}

impl<R: Receiver<(), Infallible>> Operation for TaskScheduleOperation<'_, R> {
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        match unsafe { &mut self.get_unchecked_mut().place } {
            // SAFETY: it is pinned with this operation, which stays until the completion has begun.
            Place::Here(here) => unsafe { Here::start(NonNull::from(here)) },
            // SAFETY: as above.
            #[cfg(feature = "alloc")]
            Place::There(there) => unsafe { Heap::start(there.heap) },
        }
    }
}

impl<R: Receiver<(), Infallible>> fmt::Debug for TaskScheduleOperation<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskScheduleOperation").finish_non_exhaustive()
    }
}

type InlineOperation = Words<16>;

/// What an operation has beside the room for the inside.
struct Around<R: Receiver<(), Infallible>> {
    outside: Outside<(), Infallible, R>,
    vtable: &'static OperationVtable,
    /// What the room holds. The sender that it counts before that is the scheduler's, and not there.
    progress: Progress,
}

impl<R: Receiver<(), Infallible>> Around<R> {
    #[inline]
    fn new(outside: Outside<(), Infallible, R>, vtable: &'static OperationVtable) -> Self {
        Around {
            outside,
            vtable,
            progress: Progress::new(),
        }
    }

    /// The operation that a port is in: the inside tells that port something.
    ///
    /// # Safety
    ///
    /// The port is that of an `Around<R>`.
    unsafe fn of_port(port: NonNull<Port<(), Infallible>>) -> NonNull<Self> {
        // SAFETY: by the caller's promise.
        unsafe { container_of!(Outside::<(), Infallible, R>::of_port(port), Self, outside) }
    }

    /// Connects the inside. Where that fails, nothing is in the room, and the result says what to complete with.
    ///
    /// # Safety
    ///
    /// - `this` is pinned, and nothing was connected.
    /// - The scheduler is of the vtable's type. The room has the vtable's layout, and does not move any more.
    #[inline]
    unsafe fn connect(
        this: NonNull<Self>,
        scheduler: NonNull<()>,
        room: NonNull<()>,
    ) -> Result<(), Completion<(), Infallible>> {
        // SAFETY: by the caller's promise. The user's code in there reaches this only through the receiver, which changes
        // the progress alone, and that is a cell.
        unsafe {
            let Around { vtable, progress, .. } = this.as_ref();
            if !progress.begins_to_connect() {
                return Err(Completion::Stopped);
            }
            let receiver = Outside::port_receiver(&raw mut (*this.as_ptr()).outside);
            match (vtable.connect)(scheduler, room, receiver) {
                Ok(()) if progress.has_connected() => Ok(()),
                Ok(()) => {
                    (vtable.drop)(room);
                    Err(Completion::Stopped)
                }
                Err(payload) => {
                    progress.has_unwound();
                    Err(Completion::Panicked(payload))
                }
            }
        }
    }

    /// Starts the inside, where it was connected.
    ///
    /// # Safety
    ///
    /// The room is the one that it was connected in. It stays until the inside has completed.
    #[inline]
    unsafe fn start(this: NonNull<Self>, room: NonNull<()>) -> Transfer {
        // SAFETY: by the caller's promise, and the progress. The references end before the start, in which this may go.
        unsafe {
            let start = this.as_ref().vtable.start;
            if this.as_ref().progress.starts() {
                start(room)
            } else {
                Transfer::none()
            }
        }
    }

    /// Destroys the inside, if there is one that does not run.
    ///
    /// # Safety
    ///
    /// The room is the one that it was connected in.
    #[inline]
    unsafe fn drop_inside(&self, room: NonNull<()>) {
        if let Holds::Operation = self.progress.clears() {
            // SAFETY: the room holds an operation that does not run, by the progress, which now says that it is empty.
            unsafe { (self.vtable.drop)(room) };
        }
    }
}

/// An operation that is inline. It has its address in `start`, and connects what is inside there.
///
/// An erased operation does not fit into another, so there is nothing of unknown depth in here, and what is inside is
/// started and completes directly.
struct Here<'a, R: Receiver<(), Infallible>> {
    around: Around<R>,
    /// Dropped by `start`, before the inside can complete.
    scheduler: Option<TaskScheduler<'a>>,
    inside: InlineOperation,
}

impl<'a, R: Receiver<(), Infallible>> Here<'a, R> {
    #[inline]
    fn new(scheduler: TaskScheduler<'a>, receiver: R) -> Self {
        Here {
            around: Around::new(Outside::new(receiver, Self::complete), &scheduler.vtable.operation),
            scheduler: Some(scheduler),
            inside: Words::empty(),
        }
    }

    /// # Safety
    ///
    /// `this` is pinned, started once, and stays until it has completed.
    #[inline]
    unsafe fn start(this: NonNull<Self>) -> Transfer {
        // SAFETY: by the caller's promise. Nothing is touched once the inside was started. The scheduler is of the type that
        // the room is for.
        unsafe {
            let around = NonNull::new_unchecked(&raw mut (*this.as_ptr()).around);
            let room = this.as_ref().inside.place();
            let connected = match &this.as_ref().scheduler {
                Some(scheduler) => Around::connect(around, scheduler.scheduler(), room),
                None => return Transfer::none(),
            };
            // Once it was started, or has completed, it would be too late.
            (*this.as_ptr()).scheduler = None;
            match connected {
                Ok(()) => Around::start(around, room),
                Err(completion) => completion.deliver_to((*around.as_ptr()).outside.receiver.take()),
            }
        }
    }

    /// # Safety
    ///
    /// The port is that of an operation whose inside completes, or loses its receiver.
    unsafe fn complete(port: NonNull<Port<(), Infallible>>, completion: Completion<(), Infallible>) -> Transfer {
        // SAFETY: the port is in a field of an operation. What is inside touches nothing of itself once it has completed,
        // so this has exclusive access to the operation then.
        let receiver = unsafe {
            let around = Around::<R>::of_port(port);
            if !around.as_ref().progress.completes() {
                return Transfer::none();
            }
            let this = container_of!(around, Self, around).as_mut();
            this.around.drop_inside(this.inside.place());
            this.around.outside.receiver.take()
        };
        completion.deliver_to(receiver)
    }
}

impl<R: Receiver<(), Infallible>> Drop for Here<'_, R> {
    #[inline]
    fn drop(&mut self) {
        // Only `start` connects, and starts then. So where there is an inside, that has unwound.
        // SAFETY: the room is the one that the inside was connected in.
        unsafe { self.around.drop_inside(self.inside.place()) };
    }
}

/// An operation that is not inline: in memory that it owns.
#[cfg(feature = "alloc")]
struct There<'a, R: Receiver<(), Infallible>> {
    heap: NonNull<Heap<'a, R>>,
}

/// What is in that memory, with the inside behind it. It has its address from the beginning, and so connects what is
/// inside when it is connected itself, with all the memory that may take.
///
/// What does not fit inline may have another of these inside, and that another, without end. So what is inside is
/// started, completes and is then destroyed by the driver.
#[cfg(feature = "alloc")]
struct Heap<'a, R: Receiver<(), Infallible>> {
    around: Around<R>,
    /// Taken when the memory is freed.
    allocator: ManuallyDrop<AnyAllocator<'a>>,
    /// What the inside has completed with, or could not be connected for.
    completion: Option<Completion<(), Infallible>>,
    /// Starts the inside.
    begin: Job,
    /// Destroys the inside and completes.
    end: Job,
}

#[cfg(feature = "alloc")]
impl<'a, R: Receiver<(), Infallible>> There<'a, R> {
    fn new(scheduler: &TaskScheduler<'a>, receiver: R) -> Result<Self, OutOfMemory> {
        let outside = Outside::new(receiver, Heap::<'a, R>::complete);
        let vtable = &scheduler.vtable.operation;
        let memory = Memory::new(scheduler.allocator.clone(), Heap::<'a, R>::layout(vtable).0)?;
        let heap = memory.memory.cast::<Heap<'a, R>>();
        // SAFETY: the memory is new, and has room; from here on it belongs to what is returned.
        unsafe {
            heap.write(Heap {
                around: Around::new(outside, vtable),
                allocator: ManuallyDrop::new(memory.keep()),
                completion: None,
                begin: Job::new(Heap::<'a, R>::begin),
                end: Job::new(Heap::<'a, R>::end),
            });
        }
        let there = There { heap };
        // SAFETY: it is a scheduler of this type, and there is room for its operation, which stays where it is.
        unsafe {
            let around = NonNull::new_unchecked(&raw mut (*heap.as_ptr()).around);
            if let Err(completion) = Around::connect(around, scheduler.scheduler(), Heap::inside_of(heap)) {
                // It is for the receiver to learn, when this is started.
                (*heap.as_ptr()).completion = Some(completion);
            }
        }
        Ok(there)
    }
}

#[cfg(feature = "alloc")]
impl<R: Receiver<(), Infallible>> Drop for There<'_, R> {
    fn drop(&mut self) {
        /// Drops what is in the memory, also when a destructor before it panics.
        struct Whole<'a, R: Receiver<(), Infallible>>(NonNull<Heap<'a, R>>);
        impl<R: Receiver<(), Infallible>> Drop for Whole<'_, R> {
            fn drop(&mut self) {
                // SAFETY: it is made once, below, by the owner.
                unsafe { self.0.drop_in_place() };
            }
        }

        let heap = self.heap.as_ptr();
        // SAFETY: what is inside was not started or has completed, so this has exclusive access to all of it.
        unsafe {
            let vtable = (*heap).around.vtable;
            // These go in the reverse order.
            let _memory = Memory {
                layout: Heap::<R>::layout(vtable).0,
                memory: self.heap.cast(),
                allocator: ManuallyDrop::take(&mut (*heap).allocator),
            };
            let _whole = Whole(self.heap);
            let _receiver = (*heap).around.outside.receiver.take();
            (*heap).around.drop_inside(Heap::inside_of(self.heap));
        }
    }
}

#[cfg(feature = "alloc")]
impl<R: Receiver<(), Infallible>> Heap<'_, R> {
    /// The layout with the inside, and where that is.
    fn layout(vtable: &OperationVtable) -> (Layout, usize) {
        extend(Layout::new::<Self>(), vtable.layout)
    }

    /// # Safety
    ///
    /// `this` is valid, and was allocated for its vtable.
    unsafe fn inside_of(this: NonNull<Self>) -> NonNull<()> {
        // SAFETY: by the caller's promise.
        unsafe { this.cast::<()>().byte_add(Self::layout(this.as_ref().around.vtable).1) }
    }

    /// # Safety
    ///
    /// It is started once, and stays until it has completed.
    unsafe fn start(this: NonNull<Self>) -> Transfer {
        // SAFETY: by the caller's promise.
        unsafe {
            let this = this.as_ptr();
            let job = if (*this).completion.is_none() {
                &raw mut (*this).begin
            } else {
                &raw mut (*this).end
            };
            Transfer::to(NonNull::new_unchecked(job))
        }
    }

    /// # Safety
    ///
    /// The job is that of a started operation, and runs once.
    unsafe fn begin(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation, whose inside was connected and not started.
        unsafe {
            let this = container_of!(job, Self, begin);
            let around = NonNull::new_unchecked(&raw mut (*this.as_ptr()).around);
            Around::start(around, Self::inside_of(this))
        }
    }

    /// # Safety
    ///
    /// The port is that of an operation whose inside completes, or loses its receiver.
    unsafe fn complete(port: NonNull<Port<(), Infallible>>, completion: Completion<(), Infallible>) -> Transfer {
        // SAFETY: the port is in a field of an operation, which stays until `end` has run, once, or until its inside
        // was dropped.
        unsafe {
            let around = Around::<R>::of_port(port);
            if !around.as_ref().progress.completes() {
                return Transfer::none();
            }
            let this = container_of!(around, Self, around).as_ptr();
            (*this).completion = Some(completion);
            Transfer::to(NonNull::new_unchecked(&raw mut (*this).end))
        }
    }

    /// # Safety
    ///
    /// The job is that of an operation whose inside has completed, or was never connected; and runs once.
    unsafe fn end(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation, to which this has exclusive access.
        let (completion, receiver) = unsafe {
            let this = container_of!(job, Self, end);
            this.as_ref().around.drop_inside(Self::inside_of(this));
            (
                (*this.as_ptr()).completion.take(),
                (*this.as_ptr()).around.outside.receiver.take(),
            )
        };
        match completion {
            Some(completion) => completion.deliver_to(receiver),
            None => Transfer::none(),
        }
    }
}

/// Memory that is freed when it is dropped.
#[cfg(feature = "alloc")]
struct Memory<'a> {
    memory: NonNull<u8>,
    layout: Layout,
    allocator: AnyAllocator<'a>,
}

#[cfg(feature = "alloc")]
impl<'a> Memory<'a> {
    fn new(allocator: AnyAllocator<'a>, layout: Layout) -> Result<Self, OutOfMemory> {
        Ok(Memory {
            memory: allocator.allocate(layout)?,
            layout,
            allocator,
        })
    }

    /// Keeps the memory, which is the caller's to give back, to what is returned.
    fn keep(self) -> AnyAllocator<'a> {
        let this = ManuallyDrop::new(self);
        // SAFETY: it is moved out, and this is not dropped.
        unsafe { (&raw const this.allocator).read() }
    }
}

#[cfg(feature = "alloc")]
impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: the memory is from this allocator, of this layout, and not used any more.
        unsafe { self.allocator.deallocate(self.memory, self.layout) };
    }
}
