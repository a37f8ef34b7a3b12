//! The frame of a task: its future, its state, and the memory of what it awaits.
//!
//! A frame is one allocation that begins with a [`Header`]. It is the node of its scheduler's queue.
//!
//! # Who may touch it
//!
//! The *polling thread* is the one that runs a busy frame: it took the frame from its scheduler's queue, or made it busy and
//! runs it right there. It has exclusive access to the future and to every `Cell` of the header, until it suspends or finishes
//! the frame. Every other thread may only wake the frame, stop it, and change its counts: see [`state`]. One field of a child
//! belongs to the thread that polls its parent: its place in the parent's list, see [`awaited`].
//!
//! # Its life
//!
//! ```text
//!  unstarted ──begin──▶ busy ──poll──▶ idle ──wake──▶ busy … ──the future is gone──▶ ending ──no await is left──▶ done
//! ```
//!
//! When the future is gone, whatever it began and did not await to the end is asked to stop: see [`memory`] and [`awaited`]. The
//! frame is done, and its parent or operation learns of that, when the last of those has ended. No thread waits for it.

mod access;
mod awaited;
mod home;
mod memory;
mod placement;
mod polling;
mod scope;
mod state;
mod stopping;
mod tracker;
mod waker;

use core::alloc::Layout;
use core::cell::Cell;
use core::mem;
use core::ptr::{self, NonNull};

pub(super) use self::access::Polling;
use self::awaited::Siblings;
pub(super) use self::home::Home;
pub(super) use self::memory::{Block, BlockContent};
use self::memory::{Memory, Source};
pub(super) use self::placement::Placement;
pub(super) use self::polling::Polled;
use self::polling::{free, publish_children, resume_here};
pub(super) use self::scope::{ContextScope, Stops};
use self::state::{Held, Pending, State, Wake};
pub(super) use self::stopping::Stopping;
pub(super) use self::tracker::{Tracker, by_number};
pub(super) use self::waker::{frame_of, waker};
use crate::scheduler::thread_pool::{Entry, EntryKind};
use crate::sender::current;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::{Job, Panic, Transfer};

/// What all frames have in common. It comes first in each, so that the address of one is that of the other.
#[repr(C)]
pub(crate) struct Header {
    /// Waits in the queue of the task's scheduler. First, so that its address is the frame's.
    entry: Entry,
    vtable: &'static Vtable,
    state: State,
    /// Changes of the counts in `state` that were not applied yet.
    pending: Cell<Pending>,
    /// Something that was awaited has stopped: the future is not polled again, but dropped. Stored with relaxed ordering, by
    /// the polling thread or before a wake, which publishes it.
    stopped: AtomicBool,
    /// How many frames beneath this one, on the same stack, are being polled.
    nested: Cell<u8>,
    /// The frame was polled inside its parent, and waits for a child that is to run. Its next turn does not poll it.
    polled: Cell<bool>,
    /// The future is gone, and what it left in flight was asked to stop.
    is_ending: Cell<bool>,
    /// How many awaits were dropped in flight and not swept yet; and after how many polls to look for those that have ended.
    orphans: Cell<u16>,
    sweep_after: Cell<u16>,
    /// Where the task runs. Null before its start; valid until it is done. While it is polled, that of the innermost scope
    /// that the poll is in.
    placement: Cell<*const Placement>,
    /// The tracker of the frame's strand. Null before the start; valid until the frame is done.
    tracker: Cell<*const Tracker>,
    continuation: Cell<Continuation>,
    /// The last of the children that are to run when the poll is over, or null. They are in no queue, and so are linked by
    /// their jobs, the last to the first. Of a frame that is queued, or that waits to be freed: the next of those.
    child: Cell<*mut Header>,
    /// The first of the children that are awaited and were pending, or null: see [`awaited`].
    awaited: Cell<*mut Header>,
    /// The place among those of the parent. Belongs to the thread that polls the parent.
    siblings: Siblings,
    memory: Memory,
}

/// Who learns that the task is done.
#[derive(Clone, Copy)]
pub(super) struct Continuation {
    /// The frame that awaits it; or the operation that it was connected to.
    whom: *mut (),
    /// What the operation does then. None for a frame.
    complete: Option<unsafe fn(NonNull<()>) -> Transfer>,
}

impl Continuation {
    /// Of a task that was not started.
    const NONE: Continuation = Continuation {
        whom: ptr::null_mut(),
        complete: None,
    };

    /// `complete` is called with `operation` when the task is done.
    pub(super) fn operation(operation: NonNull<()>, complete: unsafe fn(NonNull<()>) -> Transfer) -> Self {
        Continuation {
            whom: operation.as_ptr(),
            complete: Some(complete),
        }
    }

    fn parent(parent: NonNull<Header>) -> Self {
        Continuation {
            whom: parent.as_ptr().cast(),
            complete: None,
        }
    }
}

/// Makes a frame's own context inside another, and returns it.
pub(super) type Adopt = unsafe fn(NonNull<Header>, NonNull<Placement>) -> NonNull<Placement>;

/// What is known of the type of a frame.
pub(super) struct Vtable {
    /// Polls the future, or drops it if it is to stop. `true` when it is gone, and the result is in the frame.
    pub(super) poll: unsafe fn(NonNull<Header>) -> bool,
    /// The first poll of a child, on the stack of its parent. Where it is done by that, and no other thread knows it, the
    /// result is moved to where the pointer points, and the frame is gone.
    pub(super) poll_here: unsafe fn(NonNull<Header>, NonNull<()>) -> Polled,
    /// Moves the result to where the pointer points, and frees the memory if it is told to.
    pub(super) take: unsafe fn(NonNull<Header>, NonNull<()>, bool),
    /// Drops the future or the result, and frees the memory.
    pub(super) free: unsafe fn(NonNull<Header>),
    /// Makes the frame's own context, inside another. None where it uses that other.
    pub(super) adopt: Option<Adopt>,
    /// Drops the frame's own context. None where it has none.
    pub(super) leave: Option<unsafe fn(NonNull<Header>)>,
    /// Allocates from the allocator that the frame is from.
    pub(super) allocate: unsafe fn(NonNull<Header>, Layout) -> Option<NonNull<u8>>,
    /// Gives that back.
    pub(super) deallocate: unsafe fn(NonNull<Header>, NonNull<u8>, Layout),
    /// Drops the future. The result is this panic.
    pub(super) fail: unsafe fn(NonNull<Header>, Panic),
    /// By its own context it runs anywhere, and so ends where the frame that awaits it need not be at home.
    pub(super) wanders: bool,
    /// It stays on its thread.
    pub(super) is_local: bool,
}

/// The allocator of a frame.
struct FrameSource(NonNull<Header>);

impl Source for FrameSource {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: whoever makes a source has the frame.
        unsafe { Header::allocate(self.0, layout) }
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { Header::deallocate(self.0, memory, layout) };
    }
}

impl Header {
    #[inline(always)]
    pub(super) fn new(vtable: &'static Vtable) -> Self {
        Header {
            entry: Entry::new(Header::resume),
            vtable,
            state: State::new(),
            pending: Cell::new(Pending::default()),
            stopped: AtomicBool::new(false),
            nested: Cell::new(0),
            polled: Cell::new(false),
            is_ending: Cell::new(false),
            orphans: Cell::new(0),
            sweep_after: Cell::new(0),
            placement: Cell::new(ptr::null()),
            tracker: Cell::new(ptr::null()),
            continuation: Cell::new(Continuation::NONE),
            child: Cell::new(ptr::null_mut()),
            awaited: Cell::new(ptr::null_mut()),
            siblings: Siblings::new(),
            memory: Memory::new(),
        }
    }

    /// The frame that this thread polls, and works for.
    #[inline]
    pub(super) fn current() -> Option<NonNull<Header>> {
        NonNull::new(current::frame().cast_mut().cast())
    }

    /// Whether this thread polls the frame, and works for it.
    #[inline]
    pub(super) fn is_current(this: NonNull<Header>) -> bool {
        ptr::eq(current::frame(), this.as_ptr().cast())
    }

    /// Whether the poll of the frame is the innermost one on this stack.
    #[inline]
    pub(super) fn is_beneath(this: NonNull<Header>) -> bool {
        ptr::eq(current::frame_beneath(), this.as_ptr().cast())
    }

    /// # Safety
    ///
    /// The task has started and is not done.
    #[inline]
    pub(super) unsafe fn placement(this: NonNull<Header>) -> NonNull<Placement> {
        // SAFETY: the caller's promise.
        unsafe { NonNull::new_unchecked(this.as_ref().placement.get().cast_mut()) }
    }

    /// The tracker of the frame's strand.
    ///
    /// # Safety
    ///
    /// The task has started and is not done.
    #[inline]
    pub(super) unsafe fn tracker(this: NonNull<Header>) -> NonNull<Tracker> {
        // SAFETY: the caller's promise.
        unsafe { NonNull::new_unchecked(this.as_ref().tracker.get().cast_mut()) }
    }

    /// The node that waits in the queues.
    #[inline]
    pub(super) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// A link for a list of frames that are queued. It is null while the frame is not in that list.
    #[inline]
    pub(super) fn link(&self) -> &Cell<*mut Header> {
        // A frame that is queued has no child that is to run.
        &self.child
    }

    /// Whether it stays on its thread.
    ///
    /// # Safety
    ///
    /// The frame is alive.
    pub(super) unsafe fn is_local(this: NonNull<Header>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.vtable.is_local
    }

    /// Replaces the context of the frame, and returns the one before.
    ///
    /// # Safety
    ///
    /// The caller is what this frame's poll is running, and puts that back before it returns.
    pub(super) unsafe fn replace_placement(this: NonNull<Header>, placement: NonNull<Placement>) -> NonNull<Placement> {
        // SAFETY: the caller's promise.
        unsafe { NonNull::new_unchecked(this.as_ref().placement.replace(placement.as_ptr()).cast_mut()) }
    }

    /// Allocates from the allocator that the frame is from, if that has memory.
    ///
    /// # Safety
    ///
    /// The frame is alive.
    pub(super) unsafe fn allocate(this: NonNull<Header>, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        unsafe { (this.as_ref().vtable.allocate)(this, layout) }
    }

    /// Gives such memory back.
    ///
    /// # Safety
    ///
    /// It is from this frame, of this layout, and not used any more.
    pub(super) unsafe fn deallocate(this: NonNull<Header>, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { (this.as_ref().vtable.deallocate)(this, memory, layout) };
    }

    /// Ends a block that the frame's poll has no use for any more.
    ///
    /// # Safety
    ///
    /// The caller is what this frame's poll is running, or holds a reference and is not. The content was destroyed.
    #[inline]
    pub(super) unsafe fn free_block(this: NonNull<Header>, content: NonNull<()>) {
        // SAFETY: the caller's promise. The memory belongs to the polling thread alone.
        unsafe {
            if Header::is_current(this) {
                header_of(this).memory.free(content, &FrameSource(this));
            } else {
                Block::set_free(content);
            }
        }
    }

    /// Gives the frame's memory back, with what is left in it to be destroyed.
    ///
    /// # Safety
    ///
    /// The caller frees the frame.
    #[inline]
    pub(super) unsafe fn release_memory(this: NonNull<Header>) {
        let header = header_of(this);
        if header.memory.is_used() {
            // SAFETY: the caller's promise.
            unsafe { header.memory.release(&FrameSource(this)) };
        }
    }

    /// Destroys awaits that were dropped in flight and have ended since. The more there are, the less often it looks.
    ///
    /// # Safety
    ///
    /// The caller polls the frame.
    #[inline]
    unsafe fn sweep(&self) {
        if self.orphans.get() == 0 {
            return;
        }
        let after = self.sweep_after.get() - 1;
        self.sweep_after.set(after);
        if after == 0 {
            // SAFETY: the caller's promise.
            unsafe { self.sweep_now() };
        }
    }

    /// # Safety
    ///
    /// As for [`sweep`](Header::sweep).
    #[cold]
    unsafe fn sweep_now(&self) {
        // SAFETY: the caller's promise.
        let left = unsafe { self.memory.sweep() };
        let left = left.min(self.orphans.get().into()) as u16;
        self.orphans.set(left);
        self.sweep_after.set(left.max(1));
    }

    /// Makes a task end with a panic before it has begun.
    ///
    /// # Safety
    ///
    /// It was not started, and is next.
    #[cold]
    pub(super) unsafe fn fail(this: NonNull<Header>, payload: Panic) {
        // SAFETY: the caller's promise.
        unsafe { (this.as_ref().vtable.fail)(this, payload) };
    }

    /// Makes a frame ready for its first poll, and returns the job for it.
    ///
    /// # Safety
    ///
    /// The frame was not started. The placement is the first field of a context, and the tracker that of a unit. Both are valid
    /// until the frame is done. Later layers call `Header::begin`, which asks for those types.
    pub(super) unsafe fn begin_in(
        this: NonNull<Header>,
        placement: NonNull<Placement>,
        tracker: NonNull<Tracker>,
        continuation: Continuation,
    ) -> Transfer {
        // SAFETY: no other thread knows the frame yet.
        let header = unsafe { this.as_ref() };
        header.tracker.set(tracker.as_ptr());
        // SAFETY: the caller's promise.
        unsafe { placement.as_ref() }.enter();
        let placement = match header.vtable.adopt {
            // SAFETY: the caller's promise.
            Some(adopt) => unsafe { Header::adopt(this, placement, adopt) },
            None => placement,
        };
        header.placement.set(placement.as_ptr());
        header.continuation.set(continuation);
        header.state.begin();
        // SAFETY: the frame stays until it is done, which it is not before it was polled.
        unsafe { Transfer::to(this.cast::<Job>()) }
    }

    /// Takes that back: the frame is not started after all.
    ///
    /// # Safety
    ///
    /// It has begun, and was not polled.
    pub(super) unsafe fn unbegin(this: NonNull<Header>) {
        // SAFETY: no other thread knows the frame.
        unsafe {
            Header::placement(this).as_ref().exit();
            this.as_ref().placement.set(ptr::null());
            this.as_ref().tracker.set(ptr::null());
        }
    }

    /// Queues a frame with its scheduler. It may run, and be gone, before this returns.
    ///
    /// # Safety
    ///
    /// It is busy, and in no queue.
    #[inline]
    pub(super) unsafe fn enqueue(this: NonNull<Header>) -> Transfer {
        // SAFETY: it is busy, so its context is valid, and the caller polls it or has it to itself.
        unsafe {
            let aside = match header_of(this).child.get().is_null() {
                true => Transfer::none(),
                // They run by themselves: a frame that is queued has none.
                false => publish_children(this),
            };
            aside.and(Placement::enqueue(Header::placement(this), this))
        }
    }

    /// Queues a frame with the scheduler of its context. Out of the way of those that go on where they are.
    ///
    /// # Safety
    ///
    /// As for [`enqueue`](Header::enqueue). It has set no children aside.
    #[inline(never)]
    unsafe fn enqueue_in(placement: NonNull<Placement>, this: NonNull<Header>) -> Transfer {
        // SAFETY: the caller's promise.
        unsafe { Placement::enqueue(placement, this) }
    }

    /// Out of the way of the frames that have no context of their own.
    ///
    /// # Safety
    ///
    /// As for [`begin_in`](Header::begin_in).
    #[cold]
    unsafe fn adopt(this: NonNull<Header>, placement: NonNull<Placement>, adopt: Adopt) -> NonNull<Placement> {
        // SAFETY: the caller's promise.
        unsafe { adopt(this, placement) }
    }

    #[inline]
    fn add_pending(&self, awaits: i32, references: i32) {
        self.pending.set(self.pending.get().with(awaits, references));
    }

    /// Ends a block, with the reference of the future that it was for. The frame may be gone when this returns.
    ///
    /// # Safety
    ///
    /// As for [`free_block`](Header::free_block) and [`unhold`](Header::unhold).
    #[inline]
    pub(super) unsafe fn release_block(this: NonNull<Header>, content: NonNull<()>) {
        // SAFETY: the caller's promise.
        unsafe {
            if Header::is_current(this) {
                header_of(this).memory.free(content, &FrameSource(this));
                header_of(this).add_pending(0, -1);
            } else {
                Block::set_free(content);
                Header::release_started(this);
            }
        }
    }

    /// Gives such a reference up. The frame may be gone when this returns.
    ///
    /// # Safety
    ///
    /// The caller has the reference, and does not use the frame any more.
    #[inline]
    pub(super) unsafe fn unhold(this: NonNull<Header>) {
        if Header::is_current(this) {
            header_of(this).add_pending(0, -1);
        } else {
            // SAFETY: the caller's promise.
            unsafe { Header::release_started(this) };
        }
    }

    /// Makes the frame drop its future instead of polling it again. A wake follows, or the end of the poll.
    ///
    /// # Safety
    ///
    /// The frame is not done, or counts the caller.
    pub(super) unsafe fn stop(this: NonNull<Header>) {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.stopped.store(true, Relaxed);
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Whether the result is in the frame, and nothing that it began is in flight.
    ///
    /// # Safety
    ///
    /// The caller owns the frame.
    pub(super) unsafe fn is_done(this: NonNull<Header>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.state.is_done()
    }

    /// Wakes the frame for an await that is over. `here` says whether this is a place where it may run.
    ///
    /// # Safety
    ///
    /// The caller is that await, and counted as one.
    pub(super) unsafe fn end_wait(this: NonNull<Header>, here: impl FnOnce(&Placement) -> bool) -> Transfer {
        // SAFETY: by the caller's promise.
        unsafe { Header::wake(this, Held::Await, here) }
    }

    /// Wakes the frame, as its waker does, for an await that goes on.
    ///
    /// # Safety
    ///
    /// The caller is that await.
    pub(super) unsafe fn poll_again(this: NonNull<Header>) -> Transfer {
        // SAFETY: the frame is not done before that is over.
        unsafe { Header::wake(this, Held::Nothing, |_| false) }
    }

    /// Wakes the frame for a child that has ended: it goes on when the children are through that were spawned after that.
    ///
    /// # Safety
    ///
    /// The caller is an await of the frame, and counted as one.
    pub(super) unsafe fn end_wait_for_child(this: NonNull<Header>) -> Transfer {
        // SAFETY: by the caller's promise. The thread that made it busy has the entry to itself.
        unsafe {
            Header::end_wait(this, |_| {
                this.as_ref().entry.set_kind(EntryKind::Parent);
                false
            })
        }
    }

    /// Queues a child that was spawned. It may run, and be gone, before this returns.
    ///
    /// # Safety
    ///
    /// It has begun, and is in no queue.
    pub(super) unsafe fn enqueue_child(this: NonNull<Header>) -> Transfer {
        // SAFETY: the caller's promise.
        unsafe {
            this.as_ref().entry.set_kind(EntryKind::Child);
            Header::enqueue(this)
        }
    }

    /// Wakes the frame, and gives up what the caller holds. The frame may be gone when this returns.
    ///
    /// # Safety
    ///
    /// The caller holds that, or something else that keeps the frame from being freed.
    #[inline]
    unsafe fn wake(this: NonNull<Header>, held: Held, here: impl FnOnce(&Placement) -> bool) -> Transfer {
        // SAFETY: by the caller's promise the header is alive.
        match unsafe { this.as_ref() }.state.wake(held) {
            Wake::Noted => Transfer::none(),
            Wake::Enqueue => {
                // SAFETY: this call made it busy, so it is not done before it runs, and its context is valid. It is in no
                // queue.
                unsafe {
                    let placement = Header::placement(this);
                    if here(placement.as_ref()) {
                        resume_here(this)
                    } else {
                        Header::enqueue_in(placement, this)
                    }
                }
            }
            Wake::Free => {
                // SAFETY: that was the last reference.
                unsafe { free(this) };
                Transfer::none()
            }
        }
    }

    /// Whether this is the frame that the child's end will wake.
    ///
    /// # Safety
    ///
    /// The caller owns the child, which was started.
    pub(super) unsafe fn is_parent(this: NonNull<Header>, child: NonNull<Header>) -> bool {
        // SAFETY: the caller's promise. It does not change once the child was started.
        unsafe { child.as_ref() }.continuation.get().whom == this.as_ptr().cast()
    }

    /// Adds a reference.
    ///
    /// # Safety
    ///
    /// The caller has a reference, or keeps another party that does.
    pub(super) unsafe fn count(this: NonNull<Header>) {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.state.add_reference();
    }

    /// Gives up the owner's reference. A frame that runs goes on running, and its parent is not done before it is.
    ///
    /// # Safety
    ///
    /// The caller is the owner, and uses the frame no more.
    pub(super) unsafe fn release(this: NonNull<Header>) {
        // The strand does not change once there is one. The context does, and another thread may be polling the frame.
        if header_of(this).tracker.get().is_null() {
            // SAFETY: it was not started, so no other thread knows it.
            unsafe { free(this) };
        } else {
            // SAFETY: the caller's promise.
            unsafe { Header::release_started(this) };
        }
    }

    /// Gives up a reference of a frame that was started.
    ///
    /// # Safety
    ///
    /// The caller has it, and uses the frame no more.
    unsafe fn release_started(this: NonNull<Header>) {
        // SAFETY: the caller's promise.
        if unsafe { this.as_ref() }.state.release_reference() {
            // SAFETY: that was the last reference of a frame that is done.
            unsafe { free(this) };
        }
    }

    /// Takes the result out, and gives up the owner's reference.
    ///
    /// # Safety
    ///
    /// The frame is done, the caller is its owner, and uses it no more; `T` is the type of its result.
    #[inline]
    pub(super) unsafe fn take<T>(this: NonNull<Header>) -> T {
        // SAFETY: the caller's promise.
        unsafe { Header::take_with(this, 1) }
    }

    /// [`take`](Header::take) for a child, in the poll of the frame that awaits it.
    ///
    /// # Safety
    ///
    /// As for `take`. The caller is what the poll of `parent` is running.
    #[inline]
    pub(super) unsafe fn take_awaited<T>(parent: NonNull<Header>, this: NonNull<Header>) -> T {
        // SAFETY: the caller's promise.
        unsafe {
            let tied = Header::is_parent(parent, this) && Header::untie(parent, this);
            Header::take_with(this, 1 + usize::from(tied))
        }
    }

    /// Takes the result out, and gives up so many references.
    ///
    /// # Safety
    ///
    /// As for [`take`](Header::take). The caller has the references.
    #[inline]
    unsafe fn take_with<T>(this: NonNull<Header>, references: usize) -> T {
        let header = header_of(this);
        let mut result = mem::MaybeUninit::<T>::uninit();
        let is_last = header.state.is_owned_by(references);
        // SAFETY: the caller's promise.
        unsafe {
            (header.vtable.take)(this, NonNull::new_unchecked(result.as_mut_ptr()).cast(), is_last);
            if !is_last {
                for _ in 0..references {
                    Header::release_started(this);
                }
            }
            result.assume_init()
        }
    }

    /// Takes the result out, and leaves the frame.
    ///
    /// # Safety
    ///
    /// The frame is done, the caller is its owner, and the result was not taken; `T` is the type of that.
    pub(super) unsafe fn take_result<T>(this: NonNull<Header>) -> T {
        let mut result = mem::MaybeUninit::<T>::uninit();
        // SAFETY: the caller's promise.
        unsafe {
            (header_of(this).vtable.take)(this, NonNull::new_unchecked(result.as_mut_ptr()).cast(), false);
            result.assume_init()
        }
    }
}

/// A frame that is known to be alive: one that is held, is to run, or waits to be freed.
fn header_of<'a>(frame: NonNull<Header>) -> &'a Header {
    // SAFETY: a held frame is busy, and so alive; and the others were not freed.
    unsafe { frame.as_ref() }
}
