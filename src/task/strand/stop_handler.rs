//! Handlers of a stop, in the memory of a frame; and the one that wakes a frame which hears no stop otherwise.

use core::cell::UnsafeCell;
use core::ptr::NonNull;

use super::Context;
use crate::sender::current;
use crate::stop::{ErasedStopToken, StopSlot, StopToken};
use crate::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Acquire, Release},
};
use crate::task::frame::{Block, BlockContent, Header, Polling};
use crate::{Panic, Transfer};

/// Stops the polled frame, although nothing that it awaits has stopped, and returns whether it did. Called after a poll in which no await of
/// this crate was [found waiting](Polling::waits).
///
/// A future of another crate does not know the stop token of the task. So a stop wakes the frame, and the frame drops its future
/// when that waits for such futures alone. The first call lets the stop wake the frame.
#[inline]
pub(in crate::task) fn stops_here(polling: Polling<'_>) -> bool {
    let token = &polling.context().token;
    let may_stop = if polling.listens() {
        token.stop_requested()
    } else {
        token.stop_possible()
    };
    may_stop && listens(polling)
}

#[inline(never)]
fn listens(polling: Polling<'_>) -> bool {
    let stops = !hears_stop(polling) && !is_handled(polling) && !polling.is_held();
    if stops {
        // Destructors ask for it: what they block on is not part of the task.
        polling.stop_here();
    }
    stops
}

/// Makes a stop wake the polled frame. Returns `false` if it was requested. Called when no scope of the frame is around the call.
///
/// The first frame of a group's child listens without an entry: the group wakes it. Any other one has a handler in its memory, from the
/// first call on.
#[inline]
pub(in crate::task) fn hears_stop(polling: Polling<'_>) -> bool {
    let token = &polling.context().token;
    if polling.listens() || !token.stop_possible() {
        return !token.stop_requested();
    }
    begin_to_listen(polling)
}

#[inline(never)]
fn begin_to_listen(polling: Polling<'_>) -> bool {
    let token = polling.context().token;
    if token.stop_requested() {
        return false;
    }
    polling.set_listens();
    // SAFETY: the context of the strand is valid while a frame of it is polled.
    let is_of_strand = unsafe { (*polling.unit().context()).token }.is_same(&token);
    if is_of_strand && polling.listen_unlisted() {
        return token.listen_unlisted();
    }
    StopHandler::install(|| {}, polling, true);
    !token.stop_requested()
}

/// Returns whether a handler answers the stop of the polled frame: one around the await of the frame, or around a scope of it.
fn is_handled(polling: Polling<'_>) -> bool {
    polling.is_handled() || polling.context().handled().is_some_and(|token| token.stop_requested())
}

/// A handler in the memory of its frame. `slot` is first, so both have the same address.
///
/// Until `done`, it counts as an await of the frame and a user of `context`.
#[repr(C)]
pub(in crate::task) struct StopHandler<H> {
    slot: StopSlot<ErasedStopToken>,
    pub(in crate::task) frame: NonNull<Header>,
    /// The context in which it was installed. Valid until `done`.
    context: NonNull<Context>,
    /// Whether `handler` has an owner: the stopping thread, which calls it, or the party that removes it, which is the future or
    /// the ending frame. Set once, by a swap with `AcqRel`; the party that sets it is the owner.
    is_claimed: AtomicBool,
    /// Set when the handler has returned or was removed, so no other thread uses the block. Stored with release by the owner of
    /// the claim; pairs with the acquire loads of the future and of the frame.
    done: AtomicBool,
    /// Set when no future uses the block: it was dropped while the handler ran, or there is none. Stored with release by the
    /// future; pairs with the frame's acquire load.
    gone: AtomicBool,
    handler: UnsafeCell<Option<H>>,
}

impl<H: FnOnce() + Send + 'static> StopHandler<H> {
    /// Installs a handler for the stop of the current context, or calls it if that was requested. Returns `None` if the context
    /// cannot be stopped.
    pub(in crate::task) fn new(handler: H, polling: Polling<'_>) -> Option<NonNull<Self>> {
        let is_possible = polling.context().token.stop_possible();
        is_possible.then(|| {
            let this = StopHandler::install(handler, polling, false);
            polling.hold();
            this
        })
    }

    /// Installs a handler without a future, if `gone` is set.
    fn install(handler: H, polling: Polling<'_>, gone: bool) -> NonNull<Self> {
        let context = polling.context();
        let this = polling.allocate(StopHandler {
            slot: StopSlot::new(Self::fire),
            frame: polling.frame(),
            context: NonNull::from(context),
            is_claimed: AtomicBool::new(false),
            done: AtomicBool::new(false),
            gone: AtomicBool::new(gone),
            handler: UnsafeCell::new(Some(handler)),
        });
        context.enter();
        polling.count_wait();
        // SAFETY: the block is alive until the frame is done. Before that the slot is left by `remove`, or released by `fire`.
        unsafe {
            if !StopSlot::listen(this.cast(), context.token) {
                // A stop was requested before: `remove` calls the handler.
                Self::remove(this);
            }
        }
        this
    }

    /// Calls the handler, as the callback of the token.
    ///
    /// # Safety
    ///
    /// `slot` is the first field of such a block.
    unsafe fn fire(slot: NonNull<StopSlot<ErasedStopToken>>) -> Transfer {
        let this = slot.cast::<Self>();
        // SAFETY: if the claim is lost, `remove` waits in `leave` for the release, and the block is alive until then. If it is
        // won, the await count, which is released last, keeps block, context and frame alive.
        unsafe {
            if this.as_ref().is_claimed.swap(true, AcqRel) {
                slot.as_ref().release();
                return Transfer::none();
            }
            slot.as_ref().release();
            call((*this.as_ref().handler.get()).take());
            let (frame, context) = (this.as_ref().frame, this.as_ref().context);
            context.as_ref().exit();
            this.as_ref().done.store(true, Release);
            Header::end_await(frame, this.cast(), |_| false)
        }
    }

    /// Removes the handler, if it was not called. Calls it if a stop was requested that has not reached the slot.
    ///
    /// # Safety
    ///
    /// The block is alive until this returns.
    pub(in crate::task) unsafe fn remove(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        let installed = unsafe { this.as_ref() };
        if installed.is_claimed.swap(true, AcqRel) {
            return;
        }
        // A concurrent callback loses the claim and only releases the slot.
        installed.slot.leave();
        // SAFETY: this owns the handler. Context and frame are valid until the await count is released, here, after `done`.
        unsafe {
            let handler = (*installed.handler.get()).take();
            if installed.context.as_ref().token.stop_requested() {
                call(handler);
            } else {
                drop(Panic::catch(move || drop(handler)));
            }
            installed.context.as_ref().exit();
            let frame = installed.frame;
            installed.done.store(true, Release);
            Polling::with_frame(frame, |polling| match polling {
                Some(polling) => polling.uncount_wait(),
                None => Header::end_wait(frame, |_| false).run(),
            });
        }
    }

    /// Releases the future's use of the block. If the handler still runs, the frame frees the block later.
    ///
    /// # Safety
    ///
    /// The caller is the future, and does not use the block afterwards. The handler was removed, or has fired.
    pub(in crate::task) unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the future's reference to the frame is released last. After `done` no other party uses the block.
        unsafe {
            let frame = this.as_ref().frame;
            if this.as_ref().is_done() {
                Block::end(this);
            } else {
                Polling::with_frame(frame, |polling| polling.map(Polling::add_orphan));
                this.as_ref().gone.store(true, Release);
            }
            Header::unhold(frame);
        }
    }

    /// Returns whether it was installed in the present context.
    pub(in crate::task) fn began_in_context_of(&self, polling: Polling<'_>) -> bool {
        self.context == NonNull::from(polling.context())
    }

    /// Returns whether the handler has returned, or was removed.
    pub(in crate::task) fn is_done(&self) -> bool {
        self.done.load(Acquire)
    }
}

// SAFETY: no other party uses a block that is `done` and `gone`. Its handler was taken out, so it needs no destructor.
unsafe impl<H: FnOnce() + Send + 'static> BlockContent for StopHandler<H> {
    unsafe fn abandon(this: NonNull<Self>, _: Polling<'_>) -> Transfer {
        // SAFETY: the caller's promise: the block is in the memory of the frame that the caller polls.
        unsafe { Self::remove(this) };
        Transfer::none()
    }

    unsafe fn sweep(this: NonNull<Self>) -> bool {
        // SAFETY: the caller's promise.
        let this = unsafe { this.as_ref() };
        this.gone.load(Acquire) && this.done.load(Acquire)
    }

    unsafe fn holds(this: NonNull<Self>) -> bool {
        // SAFETY: the caller's promise.
        !unsafe { this.as_ref() }.gone.load(Acquire)
    }
}

/// Calls a handler outside of the current task. A panic went through the panic hook, and is dropped.
fn call<H: FnOnce()>(handler: Option<H>) {
    if let Some(handler) = handler {
        let _hidden = current::Hidden::from_poll();
        drop(Panic::catch(handler));
    }
}
