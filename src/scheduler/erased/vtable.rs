use core::alloc::Layout;
use core::any::{TypeId, type_name};
use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomData;
use core::mem;
use core::pin::Pin;
use core::ptr::NonNull;

#[cfg(feature = "alloc")]
use crate::memory::Count;
use crate::memory::Words;
use crate::sender::native::RawNative;
use crate::sender::port::{PortEnv, PortReceiver};
#[cfg(feature = "std")]
use crate::task::{HopTo, HopVtable};
use crate::{Identity, Operation, Panic, Receiver, Scheduler, Sender, Transfer};

/// What is known of the scheduler inside. Pointers are to a valid scheduler of that type.
pub(super) struct SchedulerVtable {
    pub(super) id: fn() -> TypeId,
    pub(super) name: fn() -> &'static str,
    pub(super) layout: Layout,
    /// Writes a clone of the first where the second points. If the user's `clone` panics, nothing is written.
    pub(super) clone: unsafe fn(NonNull<()>, NonNull<()>),
    /// The scheduler is not used any more. None where nothing need be done.
    pub(super) drop: Option<unsafe fn(NonNull<()>)>,
    pub(super) identity: unsafe fn(NonNull<()>) -> Identity,
    /// What is returned borrows the scheduler.
    pub(super) native: unsafe fn(NonNull<()>) -> Option<RawNative>,
    /// How tasks get there, where it has no queue for them.
    #[cfg(feature = "std")]
    pub(super) hop: &'static HopVtable,
    pub(super) operation: OperationVtable,
}

/// What is known of its operation.
pub(super) struct OperationVtable {
    pub(super) layout: Layout,
    /// Schedules and connects, in place. The operation is pinned from here on. Where the user's code panics there is none,
    /// and the receiver was dropped.
    pub(super) connect: Connect,
    /// Of an operation that was not started, and stays until it has completed.
    pub(super) start: unsafe fn(NonNull<()>) -> Transfer,
    /// Of an operation that does not run, and is not used any more.
    pub(super) drop: unsafe fn(NonNull<()>),
}

/// Takes a scheduler, room for its operation, and a receiver.
pub(super) type Connect = unsafe fn(NonNull<()>, NonNull<()>, PortReceiver<(), Infallible>) -> Result<(), Panic>;

/// The operation of a scheduler.
pub(super) type OperationOf<S> = <<S as Scheduler>::Schedule as Sender>::Operation<Reply>;

pub(super) struct VtableOf<S>(PhantomData<S>);

/// The caller of each function passes pointers that meet the contract of the field. All are of the type `S`.
impl<S: Scheduler> VtableOf<S> {
    pub(super) const VTABLE: &'static SchedulerVtable = &SchedulerVtable {
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
            layout: Layout::new::<OperationOf<S>>(),
            connect: Self::connect,
            // SAFETY: see `clone`. The operation is pinned since it was connected, and started once.
            start: |room| unsafe { Pin::new_unchecked(room.cast::<OperationOf<S>>().as_mut()).start() },
            // SAFETY: see `clone`.
            drop: |room| unsafe { room.cast::<OperationOf<S>>().drop_in_place() },
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
            room.cast::<OperationOf<S>>().write(operation);
        })
    }
}

impl SchedulerVtable {
    /// # Safety
    ///
    /// It is a scheduler of this type, and not used any more.
    #[inline]
    pub(super) unsafe fn drop(&self, scheduler: NonNull<()>) {
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
    pub(super) unsafe fn copy(&self, scheduler: NonNull<()>) -> Words<3> {
        let words = Words::empty();
        // SAFETY: by the caller's promise.
        unsafe { (self.clone)(scheduler, words.place()) };
        words
    }
}

#[cfg(feature = "alloc")]
impl SchedulerVtable {
    /// The layout of a count with a scheduler behind it, and where that is.
    pub(super) fn shared_layout(&self) -> (Layout, usize) {
        extend(Layout::new::<Count>(), self.layout)
    }

    /// # Safety
    ///
    /// It is a count that was allocated for this type.
    pub(super) unsafe fn behind_count(&self, shared: NonNull<Count>) -> NonNull<()> {
        // SAFETY: by the caller's promise.
        unsafe { shared.cast::<()>().byte_add(self.shared_layout().1) }
    }
}

/// The first, then the second, and where that is.
#[cfg(feature = "alloc")]
#[track_caller]
pub(super) fn extend(first: Layout, second: Layout) -> (Layout, usize) {
    match first.extend(second) {
        Ok(both) => both,
        Err(_) => panic!("two types that are each half of what can be addressed"),
    }
}

/// What tells types apart, whatever they borrow: the identity of `T` with every lifetime `'static`.
pub(super) fn type_id<T>() -> TypeId {
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

/// The receiver of what is inside. A scheduler that cannot fail may still have an error type.
pub(super) struct Reply(PortReceiver<(), Infallible>);

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
