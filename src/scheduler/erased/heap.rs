use core::alloc::Layout;
use core::convert::Infallible;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use super::inner::InnerOperation;
use super::scheduler::TaskScheduler;
use super::vtable::{OperationVtable, extend};
use crate::memory::{AnyAllocator, OutOfMemoryError, OwnedMemory};
use crate::sender::port::{Outside, Port};
use crate::sender::stage::container_of;
use crate::{Completion, Job, Receiver, Transfer};

/// An operation with room on the heap. Owns the [`HeapBlock`].
pub(super) struct HeapForm<'a, R: Receiver<(), Infallible>> {
    heap: NonNull<HeapBlock<'a, R>>,
}

/// The allocated part of a heap operation, with the room behind it. Its address is fixed from the beginning, so it
/// connects the inner operation when it is connected itself, with all allocation.
///
/// The inner operation may contain another of these, to any depth. So it is started, completed and destroyed by jobs of
/// the driver.
struct HeapBlock<'a, R: Receiver<(), Infallible>> {
    inner: InnerOperation<R>,
    /// Moved out when the memory is freed.
    allocator: ManuallyDrop<AnyAllocator<'a>>,
    /// The completion of the inner operation, or the reason why it could not be connected.
    completion: Option<Completion<(), Infallible>>,
    /// Starts the inner operation.
    begin: Job,
    /// Drops the inner operation and completes.
    end: Job,
}

impl<'a, R: Receiver<(), Infallible>> HeapForm<'a, R> {
    pub(super) fn new(scheduler: &TaskScheduler<'a>, receiver: R) -> Result<Self, OutOfMemoryError> {
        let outside = Outside::new(receiver, HeapBlock::<'a, R>::complete);
        let vtable = &scheduler.vtable.operation;
        let memory = OwnedMemory::new(scheduler.allocator.clone(), HeapBlock::<'a, R>::layout(vtable).0)?;
        let heap = memory.as_ptr().cast::<HeapBlock<'a, R>>();
        // SAFETY: the memory is new, and has this layout. The result owns it from here on.
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
        // SAFETY: the scheduler has the vtable's type, and the room has the layout of its operation and does not move.
        unsafe {
            let inner = NonNull::new_unchecked(&raw mut (*heap.as_ptr()).inner);
            if let Err(completion) = InnerOperation::connect(inner, scheduler.scheduler(), HeapBlock::room_of(heap)) {
                // Delivered to the receiver when this operation is started.
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
        /// Drops the block, even if a destructor before it panics.
        struct DropContents<'a, R: Receiver<(), Infallible>>(NonNull<HeapBlock<'a, R>>);
        impl<R: Receiver<(), Infallible>> Drop for DropContents<'_, R> {
            fn drop(&mut self) {
                // SAFETY: the owner creates this guard once, below.
                unsafe { self.0.drop_in_place() };
            }
        }

        let heap = self.heap.as_ptr();
        // SAFETY: the inner operation was not started or has completed, so the owner has exclusive access. `from_parts`
        // gets the allocator and the layout of the allocation.
        unsafe {
            let vtable = (*heap).inner.vtable;
            // Locals are dropped in reverse order: the inner operation first, the memory last.
            let layout = HeapBlock::<R>::layout(vtable).0;
            let _memory = OwnedMemory::from_parts(self.heap.cast(), layout, ManuallyDrop::take(&mut (*heap).allocator));
            let _whole = DropContents(self.heap);
            let _receiver = (*heap).inner.outside.receiver.take();
            (*heap).inner.drop_inner(HeapBlock::room_of(self.heap));
        }
    }
}

impl<R: Receiver<(), Infallible>> HeapBlock<'_, R> {
    /// Returns the layout of a block with its room, and the offset of the room.
    fn layout(vtable: &OperationVtable) -> (Layout, usize) {
        extend(Layout::new::<Self>(), vtable.layout)
    }

    /// # Safety
    ///
    /// `this` is valid, and was allocated for its vtable.
    unsafe fn room_of(this: NonNull<Self>) -> NonNull<()> {
        // SAFETY: the offset is within the allocation, by the contract of this function.
        unsafe { this.cast::<()>().byte_add(Self::layout(this.as_ref().inner.vtable).1) }
    }

    /// # Safety
    ///
    /// The block is started once, and stays valid until it has completed.
    unsafe fn start(this: NonNull<Self>) -> Transfer {
        // SAFETY: the block is valid, and its jobs are in no list, by the contract of this function.
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
    /// `job` is the field of a started block, and runs once.
    unsafe fn begin(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a block, whose inner operation was connected and not started.
        unsafe {
            let this = container_of!(job, Self, begin);
            let inner = NonNull::new_unchecked(&raw mut (*this.as_ptr()).inner);
            InnerOperation::start(inner, Self::room_of(this))
        }
    }

    /// # Safety
    ///
    /// `port` is the field of a block whose inner operation completes, or drops its receiver.
    unsafe fn complete(port: NonNull<Port<(), Infallible>>, completion: Completion<(), Infallible>) -> Transfer {
        // SAFETY: the port is a field of a block. The block stays valid until its `end` has run, or until the inner
        // operation was dropped.
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
    /// `job` is the field of a block whose inner operation has completed or was never connected. It runs once.
    unsafe fn end(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a block, to which this function has exclusive access.
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
