use core::convert::Infallible;
use core::fmt;
use core::marker::{PhantomData, PhantomPinned};
use core::pin::Pin;
use core::ptr::NonNull;

#[cfg(feature = "alloc")]
use super::heap::HeapForm;
use super::inline::{InlineForm, InlineRoom};
use super::scheduler::TaskScheduler;
use crate::{Operation, Receiver, Sender, Transfer};

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

impl<'a> TaskSchedule<'a> {
    #[inline]
    pub(super) fn new(scheduler: TaskScheduler<'a>) -> Self {
        TaskSchedule { scheduler }
    }
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
        let form = if InlineRoom::fit(self.scheduler.vtable.operation.layout) {
            Form::Inline(InlineForm::new(self.scheduler, receiver))
        } else {
            #[cfg(feature = "alloc")]
            match HeapForm::new(&self.scheduler, receiver) {
                Ok(heap) => Form::Heap(heap),
                Err(error) => panic!("cannot connect the operation of an erased scheduler: {error}"),
            }
            #[cfg(not(feature = "alloc"))]
            unreachable!("`TaskScheduler::new` refuses what does not fit")
        };
        TaskScheduleOperation {
            form,
            _scheduler: PhantomData,
            _pinned: PhantomPinned,
        }
    }
}

/// The operation of [`TaskSchedule`].
pub struct TaskScheduleOperation<'a, R: Receiver<(), Infallible>> {
    form: Form<'a, R>,
    /// What is inside borrows what the scheduler does, also when it is dropped.
    _scheduler: PhantomData<TaskScheduler<'a>>,
    _pinned: PhantomPinned,
}

/// Where the operation inside is.
#[allow(
    clippy::large_enum_variant,
    reason = "the large one is the rule, and is not to be allocated"
)]
enum Form<'a, R: Receiver<(), Infallible>> {
    Inline(InlineForm<'a, R>),
    #[cfg(feature = "alloc")]
    Heap(HeapForm<'a, R>),
}

impl<R: Receiver<(), Infallible>> Operation for TaskScheduleOperation<'_, R> {
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        match unsafe { &mut self.get_unchecked_mut().form } {
            // SAFETY: it is pinned with this operation, which stays until the completion has begun.
            Form::Inline(inline) => unsafe { InlineForm::start(NonNull::from(inline)) },
            // SAFETY: as above.
            #[cfg(feature = "alloc")]
            Form::Heap(heap) => unsafe { heap.start() },
        }
    }
}

impl<R: Receiver<(), Infallible>> fmt::Debug for TaskScheduleOperation<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskScheduleOperation").finish_non_exhaustive()
    }
}
