//! The state of one await of a sender, except for its result: the frame to wake, and a stop for this await alone.

use core::cell::Cell;
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;

use allocator_api2::boxed::Box;

use super::TaskEnv;
use super::receiver::AwaitCore;
use crate::memory::Cached;
use crate::stop::{Branch, BranchOwner, ErasedStopToken, Fork, Raw, Registry, StopToken};
use crate::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::task::frame::{Block, BlockContent, Header, Polling};
use crate::task::strand::Context;
use crate::{Transfer, stop};

/// The state that the receiver of an awaited sender and its stop token point at. It lives in a block of the frame's memory.
///
/// # The party that destroys the operation
///
/// The future, when it takes the result or is dropped after the completion. A future that is dropped in flight sets `gone`, and
/// leaves the block to the frame. The polling thread, or the thread that frees the frame, destroys a block that is both gone
/// and done. After it has set `done`, the completion touches only the frame, which counts the await until then.
#[repr(C)]
pub(in crate::task) struct AwaitState {
    /// The stop of this await: a branch of the source of its context. First, so that both have the same address.
    branch: Branch<Progress>,
    pub(in crate::task) frame: NonNull<Header>,
}

/// How far an await has come.
pub(in crate::task) struct Progress {
    /// Set when the sender has completed, the result is written, and no stop is being passed on. Stored with release by the
    /// last of the completion and a stop; pairs with the acquire loads of the future and of the frame.
    done: AtomicBool,
    /// Set when the future was dropped in flight, until the operation is destroyed. Stored with release by the dropping thread;
    /// pairs with the frame's acquire load. From then on it belongs to the frame, which clears it.
    gone: AtomicBool,
    /// Whether `start` is running. Accessed only by the thread that runs it.
    pub(in crate::task) starting: Cell<bool>,
    /// Whether an operation was connected and not destroyed yet. Accessed by the party that destroys it.
    pub(in crate::task) is_connected: Cell<bool>,
    /// Whether the sender completes where it was started, as it declared, without another thread. Cleared by another party
    /// before that releases its hold.
    stays: AtomicBool,
}

/// Four words: a program may have millions of awaits. Atomics of a model are larger.
const _: () = assert!(size_of::<AwaitState>() <= 4 * size_of::<u64>() || cfg!(loom));

impl Deref for AwaitState {
    type Target = Progress;

    #[inline]
    fn deref(&self) -> &Progress {
        &self.branch.beside
    }
}

impl AwaitState {
    /// Creates the state. It is a user of the current context, which the caller enters.
    #[inline]
    pub(in crate::task) fn new(polling: Polling<'_>, stays: bool) -> Self {
        let progress = Progress {
            done: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            starting: Cell::new(true),
            is_connected: Cell::new(false),
            stays: AtomicBool::new(stays),
        };
        AwaitState {
            // SAFETY: the await is a user of the context until `done`, which keeps the token and its source valid.
            branch: unsafe { Branch::new(Context::token_in(polling.context().into()), progress) },
            frame: polling.frame(),
        }
    }

    /// Returns the context in which the await began, which is valid until `done`.
    #[inline]
    pub(in crate::task) fn context(&self) -> NonNull<Context> {
        // SAFETY: `new` created the branch with the token of a context.
        unsafe { Context::of_token(self.branch.outer()) }
    }

    /// Returns whether the await began in the present context, whose stop it hears.
    pub(in crate::task) fn began_in_context_of(&self, polling: Polling<'_>) -> bool {
        // SAFETY: the context is valid.
        self.branch.outer() == unsafe { Context::token_in(polling.context().into()) }
    }

    /// Returns whether the result is written, and the operation may be destroyed.
    #[inline]
    pub(in crate::task) fn is_done(&self) -> bool {
        self.done.load(Acquire)
    }

    /// Leaves the operation to the frame, because the future is dropped before the completion.
    pub(in crate::task) fn set_gone(&self) {
        self.gone.store(true, Release);
    }

    /// Returns whether the frame is to destroy the operation. `true` only once: the destructor may make the frame sweep again.
    pub(in crate::task) fn take_orphan(&self) -> bool {
        let is_orphaned = self.gone.load(Acquire) && self.is_done();
        if is_orphaned {
            // No other thread reads it any longer.
            self.gone.store(false, Relaxed);
        }
        is_orphaned
    }

    /// Asks only this sender to stop.
    ///
    /// # Safety
    ///
    /// The memory of the state stays until this returns, even if the sender completes meanwhile.
    pub(in crate::task) unsafe fn request_stop(this: NonNull<Self>) -> Transfer {
        // SAFETY: the branch is the first field, and the contract is the same. The future and the frame call this once each.
        unsafe { Branch::request_stop(this.cast(), AwaitState::OWNER) }
    }

    /// # Safety
    ///
    /// `branch` is the first field of a state whose sender has completed. Only the frame accesses it otherwise.
    unsafe fn deliver(branch: NonNull<Branch>, passed: bool) -> Transfer {
        // SAFETY: the caller's promise; the frame waits for this.
        let state = unsafe { branch.cast::<AwaitState>().as_ref() };
        let frame = state.frame;
        // SAFETY: the context is valid until `done`, and not used after this.
        unsafe { state.context().as_ref() }.exit();
        if Header::is_beneath(frame) && state.starting.replace(false) {
            // `start` is below this call, and checks the result when it returns.
            state.done.store(true, Release);
            return Transfer::none();
        }
        // After a stop, this may be called on the stopping thread.
        let stays = state.stays.load(Relaxed) && !passed;
        state.done.store(true, Release);
        // SAFETY: the frame counts this await.
        unsafe { Header::end_await(frame, branch.cast(), |context| stays || context.is_here()) }
    }
}

impl AwaitState {
    const OWNER: &'static BranchOwner = &BranchOwner {
        over: AwaitState::deliver,
        fork: AwaitState::fork,
    };

    /// Creates the fork of an await: in a block if this thread polls the frame, so that the next await has the memory.
    ///
    /// # Safety
    ///
    /// `branch` is the first field of a state whose sender has not completed.
    unsafe fn fork(branch: NonNull<Branch>) -> NonNull<Fork> {
        // SAFETY: the caller's promise.
        let frame = unsafe { branch.cast::<AwaitState>().as_ref() }.frame;
        // SAFETY: the fork is in a block, which it leaves before the await ends. So the frame is alive.
        let in_block = || Fork::new(branch, AwaitState::OWNER, |fork| unsafe { Block::end(fork) });
        // SAFETY: `in_block` only writes the fork.
        let allocate = |polling: Option<Polling<'_>>| unsafe { polling?.try_allocate(in_block).ok() };
        Polling::with_frame(frame, allocate).unwrap_or_else(|| {
            // SAFETY: the fork is in a box.
            let free = |fork: NonNull<Fork>| drop(unsafe { Box::from_raw_in(fork.as_ptr(), Cached) });
            let fork = Fork::new(branch, AwaitState::OWNER, free);
            Box::into_non_null(Box::new_in(fork, Cached)).0
        })
    }
}

// SAFETY: a fork is not left to the frame.
unsafe impl BlockContent for Fork {
    unsafe fn abandon(_: NonNull<Self>, _: Polling<'_>) -> Transfer {
        // The await is asked to stop, and its fork with it.
        Transfer::none()
    }
}

impl AwaitCore for AwaitState {
    #[inline]
    unsafe fn env(this: NonNull<Self>) -> TaskEnv {
        // SAFETY: state and context are valid until the completion, which the frame waits for.
        unsafe { TaskEnv::new(this.as_ref().context(), Some(this)) }
    }

    #[inline]
    unsafe fn completed(this: NonNull<Self>, promised: bool) -> Transfer {
        // SAFETY: the frame waits for the completion, so the state is alive. The branch is ended once.
        unsafe {
            if !promised {
                // The receiver was dropped without a completion, on any thread.
                this.as_ref().stays.store(false, Relaxed);
            }
            Branch::end(this.cast(), AwaitState::OWNER)
        }
    }
}

/// The stop token of an awaited sender. It stops with the task, and when the future is dropped before the sender has completed.
///
/// It is the token of [`TaskEnv`]. It costs nothing until an operation listens; a query reads two flags.
#[derive(Clone, Copy)]
pub struct TaskToken {
    task: ErasedStopToken,
    /// `None` if the sender completes before it could be dropped.
    state: Option<NonNull<AwaitState>>,
}

// SAFETY: the token and the state are accessed by atomics, and alive as long as this is used.
unsafe impl Send for TaskToken {}
// SAFETY: as for `Send`.
unsafe impl Sync for TaskToken {}

impl TaskToken {
    /// # Safety
    ///
    /// The token is used only until the sender completes.
    #[inline]
    pub(in crate::task) unsafe fn new(task: ErasedStopToken, state: Option<NonNull<AwaitState>>) -> Self {
        TaskToken { task, state }
    }

    fn state(&self) -> Option<&AwaitState> {
        // SAFETY: `new`'s contract: the sender has not completed, so the state is alive.
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
                // SAFETY: the sender has not completed, and the fork is valid until it has.
                Some(unsafe { Branch::fork(state.cast(), AwaitState::OWNER) })
            }
        }
    }

    #[inline]
    fn keep(self) {}

    #[inline]
    unsafe fn listen(self, entry: NonNull<stop::StopEntry>, kept: *mut ()) -> bool {
        // SAFETY: the caller's promise. The sender has not completed, and the task's source is alive until it has.
        unsafe {
            match self.state {
                None => self.task.listen(entry, kept),
                Some(state) => Branch::enter(state.cast(), entry, AwaitState::OWNER),
            }
        }
    }
}

impl StopToken for TaskToken {
    const STOPPABLE: bool = true;

    #[inline]
    fn stop_requested(&self) -> bool {
        self.task.stop_requested() || self.state().is_some_and(|state| state.branch.stop_requested())
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
