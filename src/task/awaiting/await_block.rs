//! An await in the memory of its frame: the operation, its result, and the receiver that the operation completes.

use core::cell::UnsafeCell;
use core::mem::{self, ManuallyDrop, MaybeUninit};
use core::pin::Pin;
use core::ptr::NonNull;

use super::{AwaitState, TaskEnv};
use crate::sender::receiver::receive_as_completion;
use crate::sender::start;
use crate::task::frame::{BlockContent, Header, Polling};
use crate::{Completion, Panic, Receiver, Sender, Transfer};

/// The operation of an awaited sender.
type AwaitOperation<S> = <S as Sender>::Operation<AwaitReceiver<<S as Sender>::Value, <S as Sender>::Error>>;

/// An await, in the memory of its frame. The state comes first, so that its address is that of the whole.
#[repr(C)]
pub(super) struct AwaitBlock<S: Sender<Value: Send, Error: Send>> {
    pub(super) shared: Await<S::Value, S::Error>,
    /// Whether there is an operation: it was connected, and not destroyed.
    is_connected: bool,
    operation: MaybeUninit<AwaitOperation<S>>,
}

/// What the receiver points at.
#[repr(C)]
pub(super) struct Await<T, E> {
    pub(super) state: AwaitState,
    /// Written by the completion before it is done; then it belongs to the party that destroys the operation.
    result: UnsafeCell<Option<Completion<T, E>>>,
}

impl<S: Sender<Value: Send, Error: Send>> AwaitBlock<S> {
    /// Starts a sender in the memory of the frame.
    pub(super) fn start(sender: S, polling: Polling<'_>) -> NonNull<Self> {
        /// The sender panics when it is connected.
        struct Unwinding<'p, S: Sender<Value: Send, Error: Send>>(NonNull<AwaitBlock<S>>, Polling<'p>);
        impl<S: Sender<Value: Send, Error: Send>> Drop for Unwinding<'_, S> {
            fn drop(&mut self) {
                // SAFETY: the block is the caller's. A receiver that is not gone yet completes later.
                unsafe {
                    AwaitBlock::started(self.0, self.1);
                    AwaitBlock::leave(self.0);
                }
            }
        }

        // SAFETY: this only stores what it is given.
        let block = unsafe {
            polling.allocate_with(|| AwaitBlock::<S> {
                shared: Await {
                    state: AwaitState::new(polling, S::COMPLETES.stays_on_scheduler()),
                    result: UnsafeCell::new(None),
                },
                is_connected: false,
                operation: MaybeUninit::uninit(),
            })
        };
        polling.context().enter();
        polling.hold();
        let unwinding = Unwinding(block, polling);
        let (place, receiver) = (block.as_ptr(), AwaitReceiver { shared: block.cast() });
        // SAFETY: the block stays until it is destroyed; what is written is pinned there, and started once.
        unsafe {
            connect_in(&mut (*place).operation, sender, receiver);
            (*place).is_connected = true;
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
    /// The operation belongs to the caller.
    #[inline]
    unsafe fn destroy(this: NonNull<Self>) {
        let place = this.as_ptr();
        // SAFETY: the caller's promise. It is destroyed this once, in place.
        unsafe {
            if mem::replace(&mut (*place).is_connected, false) {
                (*place).operation.assume_init_drop();
            }
        }
    }

    /// `start` has returned: what has not completed by then wakes the frame, which waits for it.
    ///
    /// # Safety
    ///
    /// The block has not ended, and is of this frame.
    unsafe fn started(this: NonNull<Self>, polling: Polling<'_>) {
        // SAFETY: the caller's promise.
        if unsafe { this.as_ref() }.shared.state.starting.replace(false) {
            polling.count_wait();
        }
    }

    /// Takes the result if it is there, destroys the operation and gives the block up.
    ///
    /// # Safety
    ///
    /// The caller is the future, and does not use the block any more where this returns something.
    #[inline]
    pub(super) unsafe fn take(this: NonNull<Self>) -> Option<Completion<S::Value, S::Error>> {
        // SAFETY: the future holds a reference of the frame.
        unsafe { this.as_ref().shared.state.is_done().then(|| Self::take_done(this)) }
    }

    /// [`take`](AwaitBlock::take) of a sender that has completed.
    ///
    /// # Safety
    ///
    /// The caller is the future, and does not use the block any more. The sender has completed.
    #[inline]
    pub(super) unsafe fn take_done(this: NonNull<Self>) -> Completion<S::Value, S::Error> {
        /// Also when the operation's destructor unwinds.
        struct FreeOnUnwind(NonNull<Header>, NonNull<()>);
        impl Drop for FreeOnUnwind {
            #[cold]
            fn drop(&mut self) {
                // SAFETY: the block was the future's, and is destroyed; the future gives its reference up.
                unsafe { Header::release_block(self.0, self.1) };
            }
        }

        // SAFETY: the future holds a reference of the frame. What has completed belongs to the future.
        unsafe {
            let place = this.as_ptr();
            let result = (*(*place).shared.result.get()).take();
            let free = FreeOnUnwind((*place).shared.state.frame, this.cast());
            Self::destroy(this);
            let (frame, content) = (free.0, free.1);
            mem::forget(free);
            Header::release_block(frame, content);
            result.unwrap_or(Completion::Stopped)
        }
    }

    /// The future goes before it took the result: asks the sender to stop, and leaves what is in flight to the frame.
    ///
    /// # Safety
    ///
    /// The caller is the future, and does not use the block any more.
    #[cold]
    pub(super) unsafe fn leave(this: NonNull<Self>) {
        // SAFETY: the future holds a reference of the frame.
        unsafe {
            let state = &this.as_ref().shared.state;
            if !state.is_done() {
                state.request_stop().run();
            }
            if let Some(result) = Self::take(this) {
                drop(result);
                return;
            }
            let frame = state.frame;
            Polling::with_frame(frame, |polling| polling.map(Polling::add_orphan));
            state.set_gone();
            Header::unhold(frame);
        }
    }
}

// SAFETY: what is orphaned was left to the frame by the future, and is used by no other party.
unsafe impl<S: Sender<Value: Send, Error: Send>> BlockContent for AwaitBlock<S> {
    unsafe fn abandon(this: NonNull<Self>, _: Polling<'_>) -> Transfer {
        // SAFETY: the caller's promise. Where the future is dropped meanwhile, on another thread, it destroys the operation and
        // leaves the state as it is; the memory is the frame's.
        let state = unsafe { &(*this.as_ptr()).shared.state };
        if state.is_done() {
            return Transfer::none();
        }
        state.request_stop()
    }

    unsafe fn sweep(this: NonNull<Self>) -> bool {
        let place = this.as_ptr();
        // SAFETY: the caller's promise. What is orphaned is the frame's.
        unsafe {
            if !(*place).shared.state.take_orphan() {
                return false;
            }
            // There is no code left to tell of a panic in there but the panic hook.
            drop(Panic::catch(|| Self::destroy(this)));
            drop(Panic::catch(|| drop((*(*place).shared.result.get()).take())));
        }
        true
    }
}

/// Connects a sender in place. A function of its own, so that the compiler knows that nothing else points there.
#[inline]
fn connect_in<S: Sender<Value: Send, Error: Send>>(
    place: &mut MaybeUninit<AwaitOperation<S>>,
    sender: S,
    receiver: AwaitReceiver<S::Value, S::Error>,
) {
    place.write(sender.connect(receiver));
}

/// The receiver of a sender that is awaited.
pub(in crate::task) struct AwaitReceiver<T, E> {
    shared: NonNull<Await<T, E>>,
}

// SAFETY: it is used by the completion alone, which is ordered with the frame.
unsafe impl<T: Send, E: Send> Send for AwaitReceiver<T, E> {}

impl<T, E> AwaitReceiver<T, E> {
    /// Its address is made from that of the whole.
    #[inline]
    fn state(&self) -> NonNull<AwaitState> {
        // SAFETY: the future waits for the completion, and the state is a field of what is there.
        unsafe { NonNull::new_unchecked(&raw mut (*self.shared.as_ptr()).state) }
    }

    #[inline]
    fn complete(self, completion: Completion<T, E>) -> Transfer {
        let this = ManuallyDrop::new(self);
        // SAFETY: this is the one completion.
        unsafe { this.deliver(completion, true) }
    }

    /// `promised` says that it comes where the sender promised it would.
    ///
    /// # Safety
    ///
    /// This is the one completion.
    #[inline]
    unsafe fn deliver(&self, completion: Completion<T, E>, promised: bool) -> Transfer {
        // SAFETY: the future waits for the completion.
        let shared = unsafe { self.shared.as_ref() };
        // SAFETY: nobody looks at it before it is done, and there is nothing there to be dropped.
        unsafe { shared.result.get().write(Some(completion)) };
        // SAFETY: this is the one completion.
        unsafe { AwaitState::completed(self.state(), promised) }
    }
}

impl<T: Send, E: Send> Receiver<T, E> for AwaitReceiver<T, E> {
    type Env = TaskEnv;

    #[inline]
    fn env(&self) -> TaskEnv {
        // SAFETY: the future waits for the completion, and so does the context in which that began.
        unsafe { TaskEnv::new(self.shared.as_ref().state.context, Some(self.state())) }
    }

    receive_as_completion!(T, E);
}

impl<T, E> Drop for AwaitReceiver<T, E> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: it was not completed, so this is the one completion.
        // The sender's promise is about completions, and not about where its operation lets go of a receiver.
        unsafe { self.deliver(Completion::Stopped, false) }.run();
    }
}
