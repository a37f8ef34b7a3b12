//! One await of a sender, but for its result: who is woken, and how it is asked to stop alone.

use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use super::frame::Header;
use crate::sender::stage::container_of;
use crate::stop::{ErasedStopToken, Raw, Registry, StopSlot, StopToken};
use crate::sync::atomic::{
    AtomicBool, AtomicU8, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::{per_thread, spin};
use crate::{Transfer, stop};

/// What the receiver of an awaited sender, and its stop token, point at. It lives in the future.
pub(super) struct AwaitState {
    pub(super) frame: NonNull<Header>,
    /// The sender has completed, the result is there, and no stop is on its way. Set, with release, by whoever is last of
    /// the completion and a stop that is passed on; it touches nothing of this afterwards.
    done: AtomicBool,
    /// `start` is running. Only looked at by the thread that runs it.
    pub(super) starting: Cell<bool>,
    /// The sender completes where it was started, by its own promise, and nobody else has to do with it. Cleared by who
    /// does, before it gives its hold back.
    stays: AtomicBool,
    /// Whether the task's stop is passed on to this await:
    ///
    /// | value | means |
    /// |---|---|
    /// | `UNLINKED` | nobody has listened yet: whoever asks looks at both flags, and no list knows this |
    /// | `LINKING` | one who listens makes the link; another waits, for a few instructions |
    /// | `ALONE` | somebody listened, and there is nothing to link: the task cannot be stopped, or was, and then so is this |
    /// | `LINKED` | the slot is, or was, in the list of the task's source; `holds` counts |
    ///
    /// It is set by whoever listens, with release. All that happens before the completion, which therefore sees it.
    link: AtomicU8,
    /// Where linked: one until the sender has completed, and one while a stop is passed on. Whoever takes it to zero
    /// leaves the slot, and sets `done`.
    ///
    /// - The completion gives its one back, with release, after it left the result; the last one acquires.
    /// - The slot's callback adds one, unless it is zero: then the slot is being left, which waits for the callback.
    ///
    /// So the registry is there until the stop was passed on, though what is stopped completes in the midst of that.
    holds: AtomicUsize,
    /// What is listened to. Its stop is that of the task, passed on, or of this await alone.
    registry: Registry,
    /// Made by whoever links.
    slot: UnsafeCell<MaybeUninit<StopSlot<ErasedStopToken>>>,
    /// The next whose turn it is: see [`PASSING`].
    next: Cell<*const AwaitState>,
}

const UNLINKED: u8 = 0;
const LINKING: u8 = 1;
const ALONE: u8 = 2;
const LINKED: u8 = 3;

per_thread! {
    /// The awaits that the task's stop has to be passed on to next, by the callback at the bottom of this stack, in a
    /// loop: a stop that travels through nested tasks does not recurse. Null where there is no such callback.
    ///
    /// It is not done by jobs, which might be left lying beneath a frame that waits for them.
    static PASSING: Cell<*const Cell<*const AwaitState>> = Cell::new(ptr::null());
}

per_thread! {
    /// What completes now is in the midst of code that is not of this crate, which may hold a lock, say.
    static OUTSIDE: Cell<bool> = Cell::new(false);
}

impl AwaitState {
    pub(super) fn new(frame: NonNull<Header>, stays: bool) -> Self {
        AwaitState {
            frame,
            done: AtomicBool::new(false),
            starting: Cell::new(true),
            stays: AtomicBool::new(stays),
            link: AtomicU8::new(UNLINKED),
            holds: AtomicUsize::new(1),
            registry: Registry::new(),
            slot: UnsafeCell::new(MaybeUninit::uninit()),
            next: Cell::new(ptr::null()),
        }
    }

    /// Whether the result is there, and the memory may go.
    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.done.load(Acquire)
    }

    /// Asks the sender to stop, and nothing else.
    pub(super) fn request_stop(&self) -> Transfer {
        self.registry.request_stop().unwrap_or_default()
    }

    /// The sender has completed, and left its result. `promised` says that it did where it promised to.
    ///
    /// # Safety
    ///
    /// It does so once. This may be gone when it returns.
    #[inline]
    pub(super) unsafe fn completed(this: NonNull<AwaitState>, promised: bool) -> Transfer {
        // SAFETY: the future waits for the completion.
        let state = unsafe { this.as_ref() };
        if !promised {
            // It was let go somewhere, uncompleted.
            state.stays.store(false, Relaxed);
        }
        if state.link.load(Acquire) != LINKED {
            // SAFETY: there is no link, so this is the last.
            return unsafe { Self::deliver(this) };
        }
        // SAFETY: the completion gives its hold back, once.
        unsafe { Self::let_go(this) }
    }

    /// # Safety
    ///
    /// The caller gives back a hold. It was linked.
    unsafe fn let_go(this: NonNull<AwaitState>) -> Transfer {
        // SAFETY: the caller has a hold.
        let state = unsafe { this.as_ref() };
        if state.holds.fetch_sub(1, AcqRel) != 1 {
            return Transfer::none();
        }
        // SAFETY: linked, so the slot was made. A callback that came too late has nothing to do but to release it.
        unsafe { (*state.slot.get()).assume_init_ref() }.leave();
        // SAFETY: that was the last hold.
        unsafe { Self::deliver(this) }
    }

    /// # Safety
    ///
    /// The sender has completed, and nobody else looks at this but the frame.
    unsafe fn deliver(this: NonNull<AwaitState>) -> Transfer {
        // SAFETY: by the caller's promise, the future waits for this.
        let state = unsafe { this.as_ref() };
        let frame = state.frame;
        if Header::is_current(frame) && state.starting.replace(false) {
            // `start` is beneath us, and looks for the result when it returns.
            state.done.store(true, Release);
            return Transfer::none();
        }
        let stays = state.stays.load(Relaxed);
        state.done.store(true, Release);
        // SAFETY: the frame counts this await.
        unsafe { Header::end_wait(frame, |context| stays || context.is_here() && !OUTSIDE.with(Cell::get)) }
    }

    /// Completes something in the midst of code that is not of this crate: a task that comes of it is queued, though this be
    /// a thread where it may run.
    pub(super) fn from_outside(complete: impl FnOnce()) {
        let outside = OUTSIDE.with(|outside| outside.replace(true));
        // It does not unwind: a completion that does ends the process.
        complete();
        OUTSIDE.with(|flag| flag.set(outside));
    }

    /// Has the task's stop passed on from now on, if it was not done before.
    fn linked(this: NonNull<AwaitState>, outer: ErasedStopToken) {
        // SAFETY: the sender has not completed.
        let state = unsafe { this.as_ref() };
        let mut rounds = 0;
        loop {
            match state.link.compare_exchange(UNLINKED, LINKING, Acquire, Acquire) {
                Ok(_) => break,
                Err(LINKING) => spin(&mut rounds),
                Err(_) => return,
            }
        }
        if !outer.stop_possible() {
            state.link.store(ALONE, Release);
            return;
        }
        // SAFETY: nobody else touches the slot now. It is pinned with the future, and left before that goes. The task's
        // source is there until the task is done, which waits for this.
        let listening = unsafe {
            // It leads back to this, so its address is made from this one's.
            let slot = (&raw mut (*this.as_ptr()).slot).cast::<StopSlot<ErasedStopToken>>();
            slot.write(StopSlot::new(AwaitState::stop_requested));
            // The callback does not mind what is set below: it looks at the count alone.
            StopSlot::listen(NonNull::new_unchecked(slot), &outer)
        };
        if listening {
            state.link.store(LINKED, Release);
        } else {
            // Nobody listens yet, so there is nothing to be resumed.
            state.request_stop().run();
            state.link.store(ALONE, Release);
        }
    }

    /// The callback of the task's stop token.
    ///
    /// # Safety
    ///
    /// The slot is that of a linked await.
    unsafe fn stop_requested(slot: NonNull<StopSlot<ErasedStopToken>>) -> Transfer {
        // SAFETY: the slot is a field of such a state, which is there until the slot is released. A cell has the address
        // of its content.
        let this = unsafe { container_of!(slot, AwaitState, slot) };
        // SAFETY: as above.
        let state = unsafe { this.as_ref() };
        let held = state
            .holds
            .fetch_update(Relaxed, Relaxed, |holds| (holds != 0).then_some(holds + 1))
            .is_ok();
        // SAFETY: it was made before it was listed.
        unsafe { slot.as_ref() }.release();
        if !held {
            return Transfer::none();
        }
        // Should this be what is last, then the completion is seen where the stop was requested.
        state.stays.store(false, Relaxed);
        let passing = PASSING.with(Cell::get);
        // SAFETY: it is on the stack beneath us.
        if let Some(passing) = unsafe { passing.as_ref() } {
            state.next.set(passing.replace(this.as_ptr()));
            return Transfer::none();
        }
        state.next.set(ptr::null());
        let list = Cell::new(this.as_ptr().cast_const());
        PASSING.with(|passing| passing.set(&raw const list));
        let mut resumed = Transfer::none();
        while let Some(next) = AwaitState::next(&list) {
            // SAFETY: it is in the list, so it is held.
            resumed.append(unsafe { AwaitState::pass_on(next) });
        }
        PASSING.with(|passing| passing.set(ptr::null()));
        resumed
    }

    fn next(list: &Cell<*const AwaitState>) -> Option<NonNull<AwaitState>> {
        let first = NonNull::new(list.get().cast_mut())?;
        // SAFETY: what is in the list is held.
        list.set(unsafe { first.as_ref() }.next.get());
        Some(first)
    }

    /// # Safety
    ///
    /// The callback holds it.
    unsafe fn pass_on(this: NonNull<AwaitState>) -> Transfer {
        // SAFETY: by the caller's promise.
        let resumed = unsafe { this.as_ref() }.request_stop();
        // SAFETY: as above.
        resumed.and(unsafe { Self::let_go(this) })
    }

    /// Passes a stop on that somebody beneath us on this stack was about to. `false` where there is none.
    pub(super) fn pass_on_beneath() -> bool {
        // SAFETY: it is on the stack beneath us.
        let Some(list) = (unsafe { PASSING.with(Cell::get).as_ref() }) else {
            return false;
        };
        match AwaitState::next(list) {
            None => false,
            Some(next) => {
                // SAFETY: it was in the list, so it is held.
                unsafe { AwaitState::pass_on(next) }.run();
                true
            }
        }
    }
}

/// The stop token of what a task awaits: it sees the stop of the task, and that of this await alone, which is requested
/// when the future is dropped before the sender has completed.
///
/// It is that of a [`TaskEnv`](super::TaskEnv). It costs nothing until somebody listens to it; asking looks at two flags.
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
    pub(super) unsafe fn new(task: ErasedStopToken, state: Option<NonNull<AwaitState>>) -> Self {
        TaskToken { task, state }
    }

    fn state(&self) -> Option<&AwaitState> {
        // SAFETY: by the promise of `new`.
        self.state.map(|state| unsafe { state.as_ref() })
    }
}

impl Raw for TaskToken {
    type Entry = stop::Entry;

    #[inline]
    fn registry(&self) -> Option<&Registry> {
        match self.state {
            None => self.task.registry(),
            Some(state) => {
                AwaitState::linked(state, self.task);
                self.state().map(|state| &state.registry)
            }
        }
    }
}

impl StopToken for TaskToken {
    const STOPPABLE: bool = true;

    #[inline]
    fn stop_requested(&self) -> bool {
        self.task.stop_requested() || self.state().is_some_and(|state| state.registry.stop_requested())
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
