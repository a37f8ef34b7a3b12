//! The proof that a thread polls a frame.

use core::alloc::Layout;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::task::Context as Cx;

use super::blocks::FrameSource;
use super::flags::Flag;
use super::memory::BlockContent;
use super::{Header, Placement, frame_of};
use crate::Transfer;
use crate::memory::OutOfMemoryError;
use crate::sender::current;

/// A frame that this thread polls and works for, during a call that the poll makes.
///
/// It proves exclusive access to the cells of the header, and that the frame, its context and its strand are alive: the poll
/// is beneath the call on this stack, and is not over before the call returns. It neither leaves the thread nor outlives `'p`,
/// which ends with the call.
#[derive(Clone, Copy)]
pub(in crate::task) struct Polling<'p> {
    frame: NonNull<Header>,
    _call: PhantomData<(&'p (), *const ())>,
}

/// The number of a turn of a frame. It wraps: different numbers are of different turns, equal ones need not be of the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::task) struct Turn(u8);

impl<'p> Polling<'p> {
    /// Calls `body` with the frame that this thread polls and works for, if there is one.
    #[inline]
    pub(in crate::task) fn with<T>(body: impl FnOnce(Option<Polling<'_>>) -> T) -> T {
        // SAFETY: the frame is the current one. `body` cannot keep it beyond this call.
        body(Header::current().map(|frame| unsafe { Polling::new(frame) }))
    }

    /// The same for this frame: none where another thread polls it, or this one does not work for it.
    #[inline]
    pub(in crate::task) fn with_frame<T>(frame: NonNull<Header>, body: impl FnOnce(Option<Polling<'_>>) -> T) -> T {
        Polling::with(|polling| body(polling.filter(|polling| polling.frame == frame)))
    }

    /// The frame that this thread polls and works for, if `cx` has its waker: what polls the caller is that frame.
    #[inline]
    pub(in crate::task) fn with_waker_of(cx: &'p Cx<'_>) -> Option<Self> {
        // SAFETY: the frame is the current one, and the caller has `cx` from a poll that it makes.
        frame_of(cx.waker()).map(|frame| unsafe { Polling::new(frame) })
    }

    /// # Safety
    ///
    /// This thread polls the frame, and works for it, until `'p` is over.
    #[inline]
    pub(in crate::task) unsafe fn new(frame: NonNull<Header>) -> Self {
        Polling {
            frame,
            _call: PhantomData,
        }
    }

    #[inline]
    pub(in crate::task) fn frame(self) -> NonNull<Header> {
        self.frame
    }

    #[inline]
    fn header(self) -> &'p Header {
        // SAFETY: the frame is polled, and so alive.
        unsafe { self.frame.as_ref() }
    }

    /// The placement in the innermost scope that the call is in.
    #[inline]
    pub(in crate::task) fn placement(self) -> &'p Placement {
        // SAFETY: the poll leaves the scope after the call returns.
        unsafe { &*self.header().placement.get() }
    }

    /// Makes a block in the frame's memory.
    ///
    /// # Errors
    ///
    /// The frame's allocator has no memory.
    #[inline]
    pub(in crate::task) fn try_allocate<T: BlockContent>(self, content: T) -> Result<NonNull<T>, OutOfMemoryError> {
        // SAFETY: to move a value does nothing else.
        unsafe { self.try_allocate_with(|| content) }
    }

    /// [`try_allocate`](Polling::try_allocate) of content that is made in its place, and not moved there.
    ///
    /// # Safety
    ///
    /// `content` neither unwinds nor uses the frame's memory.
    #[inline]
    unsafe fn try_allocate_with<T: BlockContent>(
        self,
        content: impl FnOnce() -> T,
    ) -> Result<NonNull<T>, OutOfMemoryError> {
        let (layout, memory) = (Layout::new::<T>(), &self.header().memory);
        // SAFETY: the memory belongs to the polling thread. The block has room for a `T`, which is written at once.
        unsafe {
            match memory.allocate(layout, T::VTABLE, &FrameSource(self.frame)) {
                Some(block) => {
                    block.cast::<T>().write(content());
                    Ok(block.cast())
                }
                None => Err(OutOfMemoryError::new(layout)),
            }
        }
    }

    /// [`try_allocate`](Polling::try_allocate), which panics where there is no memory: the task ends with that.
    #[inline]
    pub(in crate::task) fn allocate<T: BlockContent>(self, content: T) -> NonNull<T> {
        // SAFETY: to move a value does nothing else.
        unsafe { self.allocate_with(|| content) }
    }

    /// [`allocate`](Polling::allocate) of content that is made in its place, and not moved there.
    ///
    /// # Safety
    ///
    /// `content` neither unwinds nor uses the frame's memory.
    #[inline]
    pub(in crate::task) unsafe fn allocate_with<T: BlockContent>(self, content: impl FnOnce() -> T) -> NonNull<T> {
        // SAFETY: the caller's promise.
        match unsafe { self.try_allocate_with(content) } {
            Ok(block) => block,
            Err(error) => panic!("a task cannot go on: {error}"),
        }
    }

    /// Counts an await: the frame is not done before it has [ended](Header::end_wait).
    #[inline]
    pub(in crate::task) fn count_wait(self) {
        self.header().add_pending(1, 0);
    }

    /// Takes back an await that was counted, and will not wake the frame.
    ///
    /// # Safety
    ///
    /// The caller is that await.
    #[inline]
    pub(in crate::task) unsafe fn uncount_wait(self) {
        self.header().add_pending(-1, 0);
    }

    /// Adds a reference for a future that points into the frame's memory.
    #[inline]
    pub(in crate::task) fn hold(self) {
        self.header().add_pending(0, 1);
    }

    /// Notes an await that was dropped in flight: the frame destroys it when it has ended.
    pub(in crate::task) fn add_orphan(self) {
        // SAFETY: the frame is polled.
        unsafe { self.header().memory.add_orphan() };
    }

    /// Queues the frame with its scheduler when the poll is over. Returns the number of the present turn.
    #[inline]
    pub(in crate::task) fn requeue(self) -> Turn {
        self.header().flags.set(Flag::Requeued, true);
        self.turn()
    }

    /// The number of the present turn. Only the end of a poll that [requeues](Polling::requeue) the frame changes it.
    #[inline]
    pub(in crate::task) fn turn(self) -> Turn {
        Turn(self.header().turns.get())
    }

    /// Runs something when the poll is over.
    #[inline]
    pub(in crate::task) fn resume_later(self, transfer: Transfer) {
        if !transfer.is_none() {
            current::run_later(transfer).run();
        }
    }

    /// Whether what the call belongs to is being dropped: a scope that it is in, or the frame, has stopped, or the thread unwinds.
    pub(in crate::task) fn is_unwinding(self) -> bool {
        let mut scope = self.placement().scope_in(self.frame);
        while let Some(at) = scope {
            if at.is_stopped() {
                return true;
            }
            scope = at.outer_in(self.frame);
        }
        self.header().is_stopped() || std::thread::panicking()
    }

    /// What is awaited right now has stopped: nothing of the innermost scope that the call is in, or else of the frame, is
    /// polled again.
    pub(in crate::task) fn stop_here(self) {
        match self.placement().scope_in(self.frame) {
            Some(scope) => scope.stop(),
            // SAFETY: the frame is polled.
            None => unsafe { Header::stop(self.frame) },
        }
    }
}
