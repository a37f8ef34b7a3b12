//! The token that proves that the calling thread polls a frame.

use core::alloc::Layout;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::task::Context as Cx;

use super::flags::Flag;
use super::{AwaitNotes, BlockContent, ContextScope, Header, NotedDeadline, Placement, ScopeMark, Site, frame_of};
use crate::Transfer;
use crate::memory::OutOfMemoryError;
use crate::sender::current;

/// A frame that the calling thread polls and works for.
///
/// Proves exclusive access to the cells of the header. The frame, its context and its strand are alive: the poll is below
/// the call on this stack, and outlasts the call. The token stays on its thread, and `'p` ends with the call.
#[derive(Clone, Copy)]
pub(in crate::task) struct Polling<'p> {
    frame: NonNull<Header>,
    _call: PhantomData<(&'p (), *const ())>,
}

/// A turn of a frame, as the address of a byte of its header. Different addresses in a header mean different turns, equal ones
/// may do so too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::task) struct Turn(usize);

/// The number of addresses of a frame's turns, which are taken in turn.
const TURNS: usize = 64;
const _: () = assert!(size_of::<Header>() >= TURNS);

impl Turn {
    /// Returns whether this is a turn of the frame. The frame of the turn was not freed since.
    #[inline]
    pub(in crate::task) fn is_of(self, frame: NonNull<Header>) -> bool {
        self.0.wrapping_sub(frame.addr().get()) < TURNS
    }
}

impl<'p> Polling<'p> {
    /// Calls `body` with the frame that this thread polls and works for, if there is one.
    #[inline]
    pub(in crate::task) fn with<T>(body: impl FnOnce(Option<Polling<'_>>) -> T) -> T {
        // SAFETY: the frame is the current one. The lifetime keeps the token inside `body`.
        body(Header::current().map(|frame| unsafe { Polling::new(frame) }))
    }

    /// Calls `body` with `frame`, or with `None` unless this thread polls `frame` and works for it.
    #[inline]
    pub(in crate::task) fn with_frame<T>(frame: NonNull<Header>, body: impl FnOnce(Option<Polling<'_>>) -> T) -> T {
        Polling::with(|polling| body(polling.filter(|polling| polling.frame == frame)))
    }

    /// Returns the frame that this thread polls and works for, if `cx` has the waker of that frame.
    #[inline]
    pub(in crate::task) fn with_waker_of(cx: &'p Cx<'_>) -> Option<Self> {
        // SAFETY: `frame_of` returns the current frame only. Its poll passed `cx` down, so it outlasts the borrow of `cx`.
        frame_of(cx.waker()).map(|frame| unsafe { Polling::new(frame) })
    }

    /// Creates the token.
    ///
    /// # Safety
    ///
    /// This thread polls the frame, and works for it, until `'p` ends.
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
        // SAFETY: a frame that is polled is alive.
        unsafe { self.frame.as_ref() }
    }

    /// Returns the placement of the innermost scope around the call.
    #[inline]
    pub(in crate::task) fn placement(self) -> &'p Placement {
        // SAFETY: the poll leaves that scope after the call returns.
        unsafe { &*self.header().placement.get() }
    }

    /// Allocates a block in the frame's memory, and constructs its content in place.
    ///
    /// # Errors
    ///
    /// The frame's allocator has no memory.
    ///
    /// # Safety
    ///
    /// `content` neither unwinds nor uses the frame's memory.
    #[inline]
    pub(in crate::task) unsafe fn try_allocate<T: BlockContent>(
        self,
        content: impl FnOnce() -> T,
    ) -> Result<NonNull<T>, OutOfMemoryError> {
        // SAFETY: the polling thread owns the memory. The block has room for a `T`, which is written at once.
        unsafe {
            let block = Header::allocate_block(self.frame).ok_or(OutOfMemoryError::new(Layout::new::<T>()))?;
            block.write(content());
            Ok(block)
        }
    }

    /// Allocates a block, and moves `content` into it. Panics if the allocator has no memory; that panic ends the task.
    #[inline]
    pub(in crate::task) fn allocate<T: BlockContent>(self, content: T) -> NonNull<T> {
        // SAFETY: a closure that moves a value neither unwinds nor uses the frame's memory.
        unsafe { self.try_allocate(|| content) }.unwrap_or_else(Polling::out_of_memory)
    }

    /// Ends the task with a panic.
    #[cold]
    pub(in crate::task) fn out_of_memory<T>(error: OutOfMemoryError) -> T {
        panic!("a task cannot go on: {error}")
    }

    /// Counts an await. The frame is not done before the await has [ended](Header::end_wait).
    #[inline]
    pub(in crate::task) fn count_wait(self) {
        self.header().add_pending(1, 0);
    }

    /// Uncounts an await that will not wake the frame.
    ///
    /// # Safety
    ///
    /// The caller counted that await.
    #[inline]
    pub(in crate::task) unsafe fn uncount_wait(self) {
        self.header().add_pending(-1, 0);
    }

    /// Adds a reference for a future that points into the frame's memory.
    #[inline]
    pub(in crate::task) fn hold(self) {
        self.header().add_pending(0, 1);
    }

    /// Notes an orphan: an await whose future was dropped in flight. The frame destroys it after its completion.
    pub(in crate::task) fn add_orphan(self) {
        self.header().add_orphan();
    }

    /// Queues the frame with its scheduler after the poll. Returns the present turn.
    #[inline]
    pub(in crate::task) fn requeue(self) -> Turn {
        self.header().flags.set(Flag::Requeued, true);
        self.waits();
        self.turn()
    }

    /// Notes that an await of this crate is pending. It hears a stop of the task by itself, so the future that awaits it is not
    /// dropped because of that stop.
    #[inline]
    pub(in crate::task) fn waits(self) {
        self.header().flags.set(Flag::Waits, true);
    }

    /// Does what [`waits`](Polling::waits) does, and notes where the `T` is awaited.
    #[inline]
    pub(in crate::task) fn waits_for<T: ?Sized>(self, site: Site) {
        self.waits();
        self.activity().awaits::<T>(site);
    }

    /// Does what [`waits`](Polling::waits) does for an await that began outside of the innermost scope. It hears a stop of the
    /// scopes around that one alone.
    pub(in crate::task) fn waits_outside(self) {
        match self.scope() {
            Some(scope) => scope.waits_outside.set(true),
            None => self.waits(),
        }
    }

    /// Does what [`waits_outside`](Polling::waits_outside) does, and notes where the `T` is awaited.
    pub(in crate::task) fn waits_outside_for<T: ?Sized>(self, site: Site) {
        self.waits_outside();
        self.activity().awaits::<T>(site);
    }

    /// Returns the innermost scope of the frame that is around the call.
    #[inline]
    pub(in crate::task) fn scope(self) -> Option<&'p ContextScope> {
        self.placement().scope_in(self.frame)
    }

    /// Returns the mark of the innermost scope around the call, of whichever frame.
    #[inline]
    pub(in crate::task) fn scope_mark(self) -> ScopeMark {
        ScopeMark::new(self.placement().scope)
    }

    /// Returns the notes of what the strand does, for awaits in the innermost scope around the call.
    #[inline]
    pub(in crate::task) fn activity(self) -> AwaitNotes<'p> {
        self.activity_inside(self.placement().deadline_around)
    }

    /// Returns the notes of what the strand does, for awaits in scopes with this deadline.
    #[inline]
    pub(in crate::task) fn activity_inside(self, around: NotedDeadline) -> AwaitNotes<'p> {
        // SAFETY: a frame that is polled is not done, and its strand ends after it.
        AwaitNotes::new(unsafe { &Header::tracker(self.frame).as_ref().activity }, around)
    }

    /// Polls the frame once more after this poll, because something that it has noted to wait for is gone.
    pub(in crate::task) fn poll_again(self) {
        // SAFETY: a frame that is polled is not done.
        unsafe { Header::poll_again(self.frame) }.run();
    }

    /// Clears the note of [`waits`](Polling::waits), and returns whether there was one.
    #[inline]
    pub(in crate::task) fn take_waits(self) -> bool {
        self.header().flags.replace(Flag::Waits, false)
    }

    /// Says whether a handler answers the stop of the context for the futures of other crates that are polled next. Returns the
    /// answer before.
    #[inline]
    pub(in crate::task) fn set_handled(self, handled: bool) -> bool {
        self.header().flags.replace(Flag::Handled, handled)
    }

    /// Returns whether a handler answers for the code that is polled: see [`set_handled`](Polling::set_handled).
    #[inline]
    pub(in crate::task) fn is_handled(self) -> bool {
        self.header().flags.has(Flag::Handled)
    }

    /// Returns whether no scope of the frame and no handler is around the call, so that a stop here is one of the whole frame.
    #[inline]
    pub(in crate::task) fn is_plain(self) -> bool {
        !self.is_handled() && self.scope().is_none()
    }

    /// Returns whether a stop of the task wakes the frame.
    #[inline]
    pub(in crate::task) fn listens(self) -> bool {
        self.header().flags.has(Flag::Listens)
    }

    /// Notes that a stop of the task wakes the frame.
    pub(in crate::task) fn set_listens(self) {
        self.header().flags.set(Flag::Listens, true);
    }

    /// Does [`Header::listen_unlisted`] for the frame.
    pub(in crate::task) fn listen_unlisted(self) -> bool {
        // SAFETY: this thread polls the frame.
        unsafe { Header::listen_unlisted(self.frame) }
    }

    /// Returns whether something that this poll has not polled forbids to stop the frame: a shield, a handler, or an await that
    /// another executor polls, even if it [has ended](Polling::was_too_early) meanwhile.
    pub(in crate::task) fn is_held(self) -> bool {
        let header = self.header();
        header.state.is_moved() || header.has_holding_block() || self.was_too_early()
    }

    /// Returns whether this poll may have begun before another executor was told that an await has ended which it polls. Then the
    /// frame is polled once more.
    pub(in crate::task) fn was_too_early(self) -> bool {
        let is_announced = self.header().state.is_announced();
        if is_announced {
            self.poll_again();
        }
        is_announced
    }

    /// Returns the present turn. It changes at the end of a poll that [requeues](Polling::requeue) the frame.
    #[inline]
    pub(in crate::task) fn turn(self) -> Turn {
        Turn(self.frame.addr().get() + usize::from(self.header().turns.get()) % TURNS)
    }

    /// Runs `transfer` after the poll.
    #[inline]
    pub(in crate::task) fn resume_later(self, transfer: Transfer) {
        if !transfer.is_none() {
            current::run_later(transfer).run();
        }
    }

    /// Returns whether the caller is being dropped: the frame or a scope of the call has stopped, or the thread unwinds.
    pub(in crate::task) fn is_unwinding(self) -> bool {
        let mut scope = self.scope();
        while let Some(at) = scope {
            if at.stopped.get() {
                return true;
            }
            scope = at.outer_in(self.frame);
        }
        self.header().is_stopped() || std::thread::panicking()
    }

    /// Stops the innermost scope around the call, or the frame if there is none. Its future is not polled again.
    pub(in crate::task) fn stop_here(self) {
        match self.scope() {
            Some(scope) => scope.stopped.set(true),
            // SAFETY: a frame that is polled is not done.
            None => unsafe { Header::stop(self.frame) },
        }
    }
}
