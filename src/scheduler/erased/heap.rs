use core::alloc::Layout;
use core::convert::Infallible;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use super::inner::InnerOperation;
use super::scheduler::TaskScheduler;
use super::vtable::{OperationVtable, extend};
use crate::memory::{AnyAllocator, OutOfMemory, OwnedMemory};
use crate::sender::port::{Outside, Port};
use crate::sender::stage::container_of;
use crate::{Completion, Job, Receiver, Transfer};

/// An operation that is not inline: in memory that it owns.
pub(super) struct HeapForm<'a, R: Receiver<(), Infallible>> {
    heap: NonNull<HeapBlock<'a, R>>,
}

/// What is in that memory, with the inside behind it. It has its address from the beginning, and so connects what is
/// inside when it is connected itself, with all the memory that may take.
///
/// What does not fit inline may have another of these inside, and that another, without end. So what is inside is
/// started, completes and is then destroyed by the driver.
struct HeapBlock<'a, R: Receiver<(), Infallible>> {
    inner: InnerOperation<R>,
    /// Taken when the memory is freed.
    allocator: ManuallyDrop<AnyAllocator<'a>>,
    /// What the inside has completed with, or could not be connected for.
    completion: Option<Completion<(), Infallible>>,
    /// Starts the inside.
    begin: Job,
    /// Destroys the inside and completes.
    end: Job,
}

impl<'a, R: Receiver<(), Infallible>> HeapForm<'a, R> {
    pub(super) fn new(scheduler: &TaskScheduler<'a>, receiver: R) -> Result<Self, OutOfMemory> {
        let outside = Outside::new(receiver, HeapBlock::<'a, R>::complete);
        let vtable = &scheduler.vtable.operation;
        let memory = OwnedMemory::new(scheduler.allocator.clone(), HeapBlock::<'a, R>::layout(vtable).0)?;
        let heap = memory.as_ptr().cast::<HeapBlock<'a, R>>();
        // SAFETY: the memory is new, and has room; from here on it belongs to what is returned.
        unsafe {
            heap.write(HeapBlock {
                inner: InnerOperation::new(outside, vtable),
                allocator: ManuallyDrop::new(memory.into_allocator()),
                completion: None,
                begin: Job::new(HeapBlock::<'a, R>::begin),
                end: Job::new(HeapBlock::<'a, R>::end),
            });
        }
        let form = HeapForm { heap };
        // SAFETY: it is a scheduler of this type, and there is room for its operation, which stays where it is.
        unsafe {
            let inner = NonNull::new_unchecked(&raw mut (*heap.as_ptr()).inner);
            if let Err(completion) = InnerOperation::connect(inner, scheduler.scheduler(), HeapBlock::room_of(heap)) {
                // It is for the receiver to learn, when this is started.
                (*heap.as_ptr()).completion = Some(completion);
            }
        }
        Ok(form)
    }

    /// Returns the transfer that starts the inner operation, or completes if connecting it failed.
    ///
    /// # Safety
    ///
    /// Called once. The caller keeps `self` alive until the operation has completed.
    pub(super) unsafe fn start(&mut self) -> Transfer {
        // SAFETY: `self` owns the block. The caller starts it once and keeps it alive until the completion.
        unsafe { HeapBlock::start(self.heap) }
    }
}

impl<R: Receiver<(), Infallible>> Drop for HeapForm<'_, R> {
    fn drop(&mut self) {
        /// Drops what is in the memory, also when a destructor before it panics.
        struct DropContents<'a, R: Receiver<(), Infallible>>(NonNull<HeapBlock<'a, R>>);
        impl<R: Receiver<(), Infallible>> Drop for DropContents<'_, R> {
            fn drop(&mut self) {
                // SAFETY: it is made once, below, by the owner.
                unsafe { self.0.drop_in_place() };
            }
        }

        let heap = self.heap.as_ptr();
        // SAFETY: what is inside was not started or has completed, so this has exclusive access to all of it.
        unsafe {
            let vtable = (*heap).inner.vtable;
            // These go in the reverse order.
            let layout = HeapBlock::<R>::layout(vtable).0;
            let _memory = OwnedMemory::from_parts(self.heap.cast(), layout, ManuallyDrop::take(&mut (*heap).allocator));
            let _whole = DropContents(self.heap);
            let _receiver = (*heap).inner.outside.receiver.take();
            (*heap).inner.drop_inner(HeapBlock::room_of(self.heap));
        }
    }
}

impl<R: Receiver<(), Infallible>> HeapBlock<'_, R> {
    /// The layout with the inside, and where that is.
    fn layout(vtable: &OperationVtable) -> (Layout, usize) {
        extend(Layout::new::<Self>(), vtable.layout)
    }

    /// # Safety
    ///
    /// `this` is valid, and was allocated for its vtable.
    unsafe fn room_of(this: NonNull<Self>) -> NonNull<()> {
        // SAFETY: by the caller's promise.
        unsafe { this.cast::<()>().byte_add(Self::layout(this.as_ref().inner.vtable).1) }
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
            let inner = NonNull::new_unchecked(&raw mut (*this.as_ptr()).inner);
            InnerOperation::start(inner, Self::room_of(this))
        }
    }

    /// # Safety
    ///
    /// The port is that of an operation whose inside completes, or loses its receiver.
    unsafe fn complete(port: NonNull<Port<(), Infallible>>, completion: Completion<(), Infallible>) -> Transfer {
        // SAFETY: the port is in a field of an operation, which stays until `end` has run, once, or until its inside
        // was dropped.
        unsafe {
            let inner = InnerOperation::<R>::of_port(port);
            if !inner.as_ref().progress.completes() {
                return Transfer::none();
            }
            let this = container_of!(inner, Self, inner).as_ptr();
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
            this.as_ref().inner.drop_inner(Self::room_of(this));
            (
                (*this.as_ptr()).completion.take(),
                (*this.as_ptr()).inner.outside.receiver.take(),
            )
        };
        match completion {
            Some(completion) => completion.deliver_to(receiver),
            None => Transfer::none(),
        }
    }
}
