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
#[cfg(feature = "std")]
use crate::scheduler::{HopTo, HopVtable};
use crate::sender::native::RawNative;
use crate::sender::port::{PortEnv, PortReceiver};
use crate::{Identity, Operation, Panic, Receiver, Scheduler, Sender, Transfer};

/// The functions of a scheduler type. Each pointer argument is to a valid scheduler of that type.
pub(super) struct SchedulerVtable {
    pub(super) id: fn() -> TypeId,
    pub(super) name: fn() -> &'static str,
    pub(super) layout: Layout,
    /// Writes a clone of the first to the second. If the user's `clone` panics, nothing is written.
    pub(super) clone: unsafe fn(NonNull<()>, NonNull<()>),
    /// Drops the scheduler in place. `None` if the type needs no drop.
    pub(super) drop: Option<unsafe fn(NonNull<()>)>,
    pub(super) identity: unsafe fn(NonNull<()>) -> Identity,
    /// Returns the queue of the scheduler, which borrows it.
    pub(super) native: unsafe fn(NonNull<()>) -> Option<RawNative>,
    /// The functions by which tasks hop to a scheduler without a queue.
    #[cfg(feature = "std")]
    pub(super) hop: &'static HopVtable,
    pub(super) operation: OperationVtable,
}

/// The functions of a scheduler's operation.
pub(super) struct OperationVtable {
    pub(super) layout: Layout,
    /// Schedules and connects in place. The operation is pinned from then on. If user code panics, the room stays empty
    /// and the receiver is dropped.
    pub(super) connect: Connect,
    /// Starts an operation, once. The operation stays valid until it has completed.
    pub(super) start: unsafe fn(NonNull<()>) -> Transfer,
    /// Drops an operation in place, which is not running.
    pub(super) drop: unsafe fn(NonNull<()>),
}

/// The arguments are a scheduler, room for its operation, and a receiver.
pub(super) type Connect = unsafe fn(NonNull<()>, NonNull<()>, PortReceiver<(), Infallible>) -> Result<(), Panic>;

/// The operation type of a scheduler.
pub(super) type OperationOf<S> = <<S as Scheduler>::Schedule as Sender>::Operation<Reply>;

/// The vtable for the scheduler type `S`.
pub(super) struct VtableOf<S>(PhantomData<S>);

/// The caller of each function meets the contract of its field, for the type `S`.
impl<S: Scheduler> VtableOf<S> {
    pub(super) const VTABLE: &'static SchedulerVtable = &SchedulerVtable {
        id: type_id::<S>,
        name: type_name::<S>,
        layout: Layout::new::<S>(),
        // SAFETY: the caller meets the contract of the field: the scheduler is a valid `S`, and the room has its
        // layout.
        clone: |scheduler, room| unsafe { room.cast().write(scheduler.cast::<S>().as_ref().clone()) },
        drop: if mem::needs_drop::<S>() {
            // SAFETY: the scheduler is a valid `S` that is not used again, by the contract of the field.
            Some(|scheduler| unsafe { scheduler.cast::<S>().drop_in_place() })
        } else {
            None
        },
        // SAFETY: the scheduler is a valid `S`, by the contract of the field.
        identity: |scheduler| unsafe { scheduler.cast::<S>().as_ref() }.identity(),
        native: Self::native,
        #[cfg(feature = "std")]
        hop: HopTo::<S>::VTABLE,
        operation: OperationVtable {
            layout: Layout::new::<OperationOf<S>>(),
            connect: Self::connect,
            // SAFETY: the room holds an operation, by the contract of the field. It is pinned since it was connected,
            // and started once.
            start: |room| unsafe { Pin::new_unchecked(room.cast::<OperationOf<S>>().as_mut()).start() },
            // SAFETY: the room holds an operation that is not running, by the contract of the field.
            drop: |room| unsafe { room.cast::<OperationOf<S>>().drop_in_place() },
        },
    };

    /// # Safety
    ///
    /// `scheduler` points to a valid `S`.
    #[inline]
    unsafe fn native(scheduler: NonNull<()>) -> Option<RawNative> {
        // SAFETY: the contract of this function.
        let native = unsafe { scheduler.cast::<S>().as_ref() }.native();
        native.map(|native| native.raw())
    }

    /// # Safety
    ///
    /// `scheduler` points to a valid `S`. `room` has the layout of its operation, which does not move afterwards.
    #[inline]
    unsafe fn connect(
        scheduler: NonNull<()>,
        room: NonNull<()>,
        receiver: PortReceiver<(), Infallible>,
    ) -> Result<(), Panic> {
        // SAFETY: the contract of this function. No user code runs between the write and the end of the closure.
        Panic::catch(|| unsafe {
            let operation = scheduler.cast::<S>().as_ref().schedule().connect(Reply(receiver));
            room.cast::<OperationOf<S>>().write(operation);
        })
    }
}

impl SchedulerVtable {
    /// # Safety
    ///
    /// The scheduler has this type, and is not used afterwards.
    #[inline]
    pub(super) unsafe fn drop(&self, scheduler: NonNull<()>) {
        if let Some(drop) = self.drop {
            // SAFETY: the contract of this function.
            unsafe { drop(scheduler) };
        }
    }

    /// Returns a clone of the scheduler, in words.
    ///
    /// # Safety
    ///
    /// The scheduler has this type, which fits.
    #[inline]
    pub(super) unsafe fn copy(&self, scheduler: NonNull<()>) -> Words<3> {
        let words = Words::empty();
        // SAFETY: the contract of this function.
        unsafe { (self.clone)(scheduler, words.place()) };
        words
    }
}

#[cfg(feature = "alloc")]
impl SchedulerVtable {
    /// Returns the layout of a count with a scheduler behind it, and the offset of the scheduler.
    pub(super) fn shared_layout(&self) -> (Layout, usize) {
        extend(Layout::new::<Count>(), self.layout)
    }

    /// # Safety
    ///
    /// The count was allocated with the layout of `shared_layout`.
    pub(super) unsafe fn behind_count(&self, shared: NonNull<Count>) -> NonNull<()> {
        // SAFETY: the offset is within the allocation, by the contract of this function.
        unsafe { shared.cast::<()>().byte_add(self.shared_layout().1) }
    }
}

/// Returns the layout of both in a row, and the offset of the second.
#[cfg(feature = "alloc")]
#[track_caller]
pub(super) fn extend(first: Layout, second: Layout) -> (Layout, usize) {
    match first.extend(second) {
        Ok(both) => both,
        Err(_) => panic!("two types that are each half of what can be addressed"),
    }
}

/// Returns the identity of a type, ignoring lifetimes: the one of `T` with every lifetime `'static`.
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
    // SAFETY: only the lifetime bound of the trait object changes. The called function accesses nothing that `T`
    // borrows.
    unsafe { mem::transmute::<&dyn Identify, &(dyn Identify + 'static)>(&phantom) }.id()
}

/// The receiver of the inner operation. An infallible scheduler may still have an error type, so it accepts any.
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

    /// Completes stopped. An infallible scheduler never sends an error. If it does nevertheless, the receiver does not
    /// wait for ever.
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
