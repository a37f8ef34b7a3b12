//! One await of a sender, but for its result: who is woken, and how it is asked to stop alone.

use core::cell::Cell;
use core::fmt;
use core::ptr::NonNull;

use crate::stop::{ErasedStopToken, Raw, Registry, Relay, StopToken, Why};
use crate::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::task::frame::{Header, Polling};
use crate::task::strand::Context;
use crate::{Transfer, stop};

/// What the receiver of an awaited sender, and its stop token, point at. It lives in a block of the frame's memory.
///
/// # Who destroys the operation
///
/// The future, when it takes the result, or is dropped after that was there. A future that is dropped in flight sets `gone`, and
/// leaves that to the frame: the polling thread, or the thread that frees the frame, destroys what is both gone and done. The
/// completion touches nothing once it has set `done` but the frame, which counts the await until then.
#[repr(C)]
pub(in crate::task) struct AwaitState {
    /// First, so that its address is that of the whole. It is linked to the task's token when something listens.
    relay: Relay,
    pub(in crate::task) frame: NonNull<Header>,
    /// Where the await began. Valid until this is done.
    pub(in crate::task) context: NonNull<Context>,
    /// The sender has completed, the result is there, and no stop is on its way. Stored with release by the last of the
    /// completion and a stop that is passed on; pairs with the acquire loads of the future and of the frame.
    done: AtomicBool,
    /// The future was dropped in flight, and the operation was not destroyed since. Stored with release by the thread that drops the
    /// future; the frame loads it with acquire. Then it belongs to the frame, which clears it.
    gone: AtomicBool,
    /// `start` is running. Belongs to the thread that runs it.
    pub(in crate::task) starting: Cell<bool>,
    /// The sender completes where it was started, by its own promise, and no other party has to do with it. Cleared by such a
    /// party, before it gives its hold up.
    stays: AtomicBool,
}

impl AwaitState {
    /// It is a user of the context where it begins, which the caller enters.
    #[inline]
    pub(in crate::task) fn new(polling: Polling<'_>, stays: bool) -> Self {
        AwaitState {
            relay: Relay::new(AwaitState::deliver),
            frame: polling.frame(),
            context: NonNull::from(polling.context()),
            done: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            starting: Cell::new(true),
            stays: AtomicBool::new(stays),
        }
    }

    /// Whether the result is there, and the operation may be destroyed.
    #[inline]
    pub(in crate::task) fn is_done(&self) -> bool {
        self.done.load(Acquire)
    }

    /// Leaves the operation to the frame: the future goes before the sender has completed.
    pub(in crate::task) fn set_gone(&self) {
        self.gone.store(true, Release);
    }

    /// Whether the operation is the frame's to destroy. `true` once: what is destroyed may make the frame look again.
    pub(in crate::task) fn take_orphan(&self) -> bool {
        let is_orphaned = self.gone.load(Acquire) && self.is_done();
        if is_orphaned {
            // No other thread looks at it any more.
            self.gone.store(false, Relaxed);
        }
        is_orphaned
    }

    /// Asks the sender to stop, and nothing else.
    pub(in crate::task) fn request_stop(&self) -> Transfer {
        self.relay.request_stop(Why::SCOPE_LEFT.here()).unwrap_or_default()
    }

    /// The sender has completed, and left its result. `promised` says that it did where it promised to.
    ///
    /// # Safety
    ///
    /// It does so once. This may be gone when it returns.
    #[inline]
    pub(in crate::task) unsafe fn completed(this: NonNull<AwaitState>, promised: bool) -> Transfer {
        if !promised {
            // It was dropped somewhere, uncompleted.
            // SAFETY: the frame waits for the completion.
            unsafe { this.as_ref() }.stays.store(false, Relaxed);
        }
        // SAFETY: by the caller's promise.
        unsafe { Relay::end(this.cast()) }
    }

    /// # Safety
    ///
    /// The relay is that of a state whose sender has completed, and no other party looks at it but the frame.
    unsafe fn deliver(relay: NonNull<Relay>) -> Transfer {
        // SAFETY: by the caller's promise, the frame waits for this.
        let state = unsafe { relay.cast::<AwaitState>().as_ref() };
        let frame = state.frame;
        // SAFETY: as above. It is not used any more.
        unsafe { state.context.as_ref() }.exit();
        if Header::is_beneath(frame) && state.starting.replace(false) {
            // `start` is beneath this call, and looks for the result when it returns.
            state.done.store(true, Release);
            return Transfer::none();
        }
        // Where a stop was passed on, the completion is seen where that was requested.
        let stays = state.stays.load(Relaxed) && !state.relay.has_passed();
        state.done.store(true, Release);
        // SAFETY: the frame counts this await.
        unsafe { Header::end_wait(frame, |context| stays || context.is_here()) }
    }
}

/// The stop token of what a task awaits: it sees the stop of the task, and that of this await alone, which is requested
/// when the future is dropped before the sender has completed.
///
/// It is that of a [`TaskEnv`](crate::task::TaskEnv). It costs nothing until somebody listens to it; asking looks at two flags.
#[derive(Clone, Copy)]
pub struct TaskToken {
    task: ErasedStopToken,
    /// None where what is awaited completes before it could be dropped.
    state: Option<NonNull<AwaitState>>,
}

// SAFETY: what it points at is made of atomics, and is there as long as this is used.
unsafe impl Send for TaskToken {}
// SAFETY: as above.
unsafe impl Sync for TaskToken {}

impl TaskToken {
    /// # Safety
    ///
    /// It is used only while the sender has not completed.
    #[inline]
    pub(in crate::task) unsafe fn new(task: ErasedStopToken, state: Option<NonNull<AwaitState>>) -> Self {
        TaskToken { task, state }
    }

    fn state(&self) -> Option<&AwaitState> {
        // SAFETY: by the promise of `new`.
        self.state.map(|state| unsafe { state.as_ref() })
    }
}

// SAFETY: the await, and the task's source, are valid for as long as the token is used, by the contract of `new`.
unsafe impl Raw for TaskToken {
    type Entry = stop::StopEntry;
    type Keep = ();

    #[inline]
    fn registry(&self) -> Option<&Registry> {
        match self.state {
            None => self.task.registry(),
            Some(state) => {
                // SAFETY: the sender has not completed. The task's source is there until it has.
                unsafe { Relay::link(state.cast(), self.task) };
                self.state().map(|state| state.relay.registry())
            }
        }
    }

    #[inline]
    fn keep(self) {}
}

impl StopToken for TaskToken {
    const STOPPABLE: bool = true;

    #[inline]
    fn stop_requested(&self) -> bool {
        self.task.stop_requested() || self.state().is_some_and(|state| state.relay.stop_requested())
    }

    #[inline]
    fn stop_possible(&self) -> bool {
        self.state.is_some() || self.task.stop_possible()
    }
}

impl fmt::Debug for TaskToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskToken")
            .field("stop_requested", &self.stop_requested())
            .finish()
    }
}
