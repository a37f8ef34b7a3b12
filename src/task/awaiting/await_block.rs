//! An await in the memory of its frame: the operation and its result.

use core::cell::UnsafeCell;
use core::mem::{self, MaybeUninit};
use core::pin::Pin;
use core::ptr::NonNull;

use super::AwaitState;
use super::receiver::{Await, AwaitReceiver, AwaitResult};
use crate::sender::start;
use crate::sender::unwind::OnDrop;
use crate::task::frame::{Block, BlockContent, Header, Polling};
use crate::{Completion, Panic, Sender, Transfer};

/// The operation of an awaited sender.
type AwaitOperation<S> =
    <S as Sender>::Operation<AwaitReceiver<AwaitState, <S as Sender>::Value, <S as Sender>::Error>>;

/// An await in the memory of its frame. The state is first, so both have the same address.
#[repr(C)]
pub(super) struct AwaitBlock<S: Sender<Value: Send, Error: Send>> {
    pub(super) shared: Await<AwaitState, S::Value, S::Error>,
    /// Initialized while [`is_connected`](super::await_state::Progress::is_connected) is set.
    operation: MaybeUninit<AwaitOperation<S>>,
}

impl<S: Sender<Value: Send, Error: Send>> AwaitBlock<S> {
    /// Starts a sender in the memory of the frame.
    pub(super) fn start(sender: S, polling: Polling<'_>) -> NonNull<Self> {
        // SAFETY: the receiver only stores the pointer.
        let block = unsafe {
            let block = polling.try_allocate(|| AwaitBlock::<S> {
                shared: Await {
                    core: AwaitState::new(polling, S::COMPLETES.stays_on_scheduler()),
                    result: UnsafeCell::new(None),
                },
                operation: MaybeUninit::uninit(),
            });
            block.unwrap_or_else(Polling::out_of_memory)
        };
        polling.context().enter();
        polling.hold();
        // SAFETY: this owns the block. If the sender panics in `connect`, a receiver that was not dropped yet completes later.
        let unwinding = OnDrop(|| unsafe {
            AwaitBlock::started(block, polling);
            AwaitBlock::leave(block);
        });
        let place = block.as_ptr();
        // SAFETY: the block is pinned until it is destroyed, after the completion, and the operation is started once.
        unsafe {
            connect_in(&mut (*place).operation, sender, AwaitReceiver::new(block.cast()));
            block.as_ref().shared.core.is_connected.set(true);
            mem::forget(unwinding);
            polling.resume_later(start(Pin::new_unchecked((*place).operation.assume_init_mut())));
            Self::started(block, polling);
        }
        block
    }

    /// Destroys the operation, if there is one.
    ///
    /// # Safety
    ///
    /// The caller owns the operation.
    #[inline]
    unsafe fn destroy(this: NonNull<Self>) {
        // SAFETY: the caller's promise. The flag ensures that the operation is destroyed once, in place.
        unsafe {
            if this.as_ref().shared.core.is_connected.replace(false) {
                (*this.as_ptr()).operation.assume_init_drop();
            }
        }
    }

    /// Handles the return of `start`: from now on the completion wakes the frame, which counts the await.
    ///
    /// # Safety
    ///
    /// The block has not ended, and belongs to this frame.
    unsafe fn started(this: NonNull<Self>, polling: Polling<'_>) {
        // SAFETY: the caller's promise.
        if unsafe { this.as_ref() }.shared.core.starting.replace(false) {
            polling.count_wait();
        }
    }

    /// Takes the result of a sender that has completed, destroys the operation and releases the block.
    ///
    /// # Safety
    ///
    /// The caller is the future, and does not use the block afterwards. The sender has completed.
    #[inline]
    pub(super) unsafe fn take(this: NonNull<Self>) -> Completion<S::Value, S::Error> {
        // SAFETY: the future owns a completed block. Its reference to the frame is released last, also when a destructor unwinds.
        unsafe {
            let place = this.as_ptr();
            let result = (*(*place).shared.result.get()).take();
            let frame = (*place).shared.core.frame;
            let _free = OnDrop(|| {
                Block::end(this);
                Header::unhold(frame);
            });
            Self::destroy(this);
            result.map_or(Completion::Stopped, AwaitResult::into_completion)
        }
    }

    /// Abandons the await before its result was taken: asks the sender to stop, and leaves an operation in flight to the frame.
    ///
    /// # Safety
    ///
    /// The caller is the future, and does not use the block afterwards.
    #[cold]
    pub(super) unsafe fn leave(this: NonNull<Self>) {
        // SAFETY: the future holds a reference to the frame.
        unsafe {
            let state = &this.as_ref().shared.core;
            if !state.is_done() {
                AwaitState::request_stop(this.cast()).run();
            }
            if state.is_done() {
                return drop(Self::take(this));
            }
            let frame = state.frame;
            Polling::with_frame(frame, |polling| polling.map(Polling::add_orphan));
            state.set_gone();
            Header::unhold(frame);
        }
    }
}

// SAFETY: the future left an orphan to the frame, so no other party uses it.
unsafe impl<S: Sender<Value: Send, Error: Send>> BlockContent for AwaitBlock<S> {
    unsafe fn abandon(this: NonNull<Self>, _: Polling<'_>) -> Transfer {
        // SAFETY: the caller's promise. A future that is dropped meanwhile leaves the state valid; the memory is the frame's.
        unsafe {
            if (*this.as_ptr()).shared.core.is_done() {
                return Transfer::none();
            }
            AwaitState::request_stop(this.cast())
        }
    }

    unsafe fn sweep(this: NonNull<Self>) -> bool {
        let place = this.as_ptr();
        // SAFETY: the caller's promise. An orphan belongs to the frame.
        unsafe {
            if !(*place).shared.core.take_orphan() {
                return false;
            }
            // A panic of the destructor went through the panic hook; no caller can receive it.
            drop(Panic::catch(|| Self::destroy(this)));
            drop(Panic::catch(|| drop((*(*place).shared.result.get()).take())));
        }
        true
    }
}

/// Connects a sender in place. A separate function, so that the compiler knows that the memory is not aliased.
#[inline]
fn connect_in<S: Sender<Value: Send, Error: Send>>(
    place: &mut MaybeUninit<AwaitOperation<S>>,
    sender: S,
    receiver: AwaitReceiver<AwaitState, S::Value, S::Error>,
) {
    place.write(sender.connect(receiver));
}
