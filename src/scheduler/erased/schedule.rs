use core::convert::Infallible;
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
/// The completions of the inner scheduler, except errors. It sees the stop token and the user's values of the
/// receiver's environment. It completes stopped only if that token was stopped.
///
/// # Panics
///
/// Panics of the inner scheduler are passed on. A panic in its `schedule` or `connect` is a completion. Connecting
/// panics if its operation is larger than [`TaskScheduler::INLINE_OPERATION`] and there is no memory for it.
///
/// # Cancellation
///
/// Defined by the inner scheduler.
///
/// # Allocation
///
/// None if the inner operation is no larger than [`TaskScheduler::INLINE_OPERATION`]. Otherwise one, when it is
/// connected, with the scheduler's allocator. Starting an inline operation calls the inner scheduler's `schedule` and
/// `connect`, which may allocate.
///
/// # Stack
///
/// Constant. A custom scheduler that contains an erased one can be erased again, to any depth. Such an operation also
/// starts and completes in constant stack. Connecting and dropping it use stack for each level.
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

// SAFETY: after the inner operation was started, only its completion accesses this operation. Nothing accesses it after
// the receiver's completion. It is `!Unpin`.
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
    /// The inner operation has the borrows of the scheduler, also when it is dropped.
    _scheduler: PhantomData<TaskScheduler<'a>>,
    _pinned: PhantomPinned,
}

/// The two forms of the operation, by the size of the inner one.
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
            // SAFETY: the form is pinned with this operation, and started once. It stays valid until the completion has
            // begun.
            Form::Inline(inline) => unsafe { InlineForm::start(NonNull::from(inline)) },
            // SAFETY: the form is started once, and stays valid until the completion has begun.
            #[cfg(feature = "alloc")]
            Form::Heap(heap) => unsafe { heap.start() },
        }
    }
}

crate::opaque!([R: Receiver<(), Infallible>] TaskScheduleOperation<'_, R>);
