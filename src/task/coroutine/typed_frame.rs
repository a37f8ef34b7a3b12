//! Frames with their types: a future, its result, a context, and a tail for the owner.

use core::alloc::Layout;
use core::any::TypeId;
use core::future::Future;
use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop, MaybeUninit};
use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::task::{Context as Cx, Poll};

use allocator_api2::alloc::{Allocator, Global};

use super::{ContextScheduler, OwnContext, TaskContext};
use crate::memory::Cached;
use crate::scheduler::OutOfMemoryError;
use crate::sender::unwind::{AbortOnUnwind, OnDrop};
use crate::task::frame::{
    self, Borrowed, Complete, FrameVtable, Header, Placement, Polled, Polling, Stopping, TrackerPlace,
};
use crate::task::strand;
use crate::{Completion, Panic};

/// A future, and the conversion of its output to a completion.
pub(in crate::task) trait Produce<T, E> {
    /// Whether the future stays on its thread.
    const IS_LOCAL: bool = false;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>>;
}

/// A future that cannot fail.
#[repr(transparent)]
pub(in crate::task) struct Plain<F>(pub(in crate::task) F);

/// A future that returns a `Result`.
pub(super) struct Try<F>(pub(super) F);

impl<T, E, F: Future<Output = T>> Produce<T, E> for Plain<F> {
    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>> {
        // SAFETY: the future is structurally pinned.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(cx).map(Ok)
    }
}

impl<T, E, F: Future<Output = Result<T, E>>> Produce<T, E> for Try<F> {
    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>> {
        // SAFETY: the future is structurally pinned.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(cx)
    }
}

/// The tail of a frame, which belongs to its owner.
///
/// # Safety
///
/// With `COMPLETE`, the tail begins with the [`Unit`](strand::Unit) of the strand that the frame begins. Otherwise it is a
/// [`Borrowed`].
pub(in crate::task) unsafe trait FrameTail<P, T, E, Cx: TaskContext>: Sized {
    /// Handles the end of a spawned child. `None` if the frame is owned by an operation or a future.
    const COMPLETE: Option<Complete>;

    /// Returns whether the tail has nothing to drop, which is cheaper to ask than to call its destructor.
    #[inline]
    fn is_bare(&mut self) -> bool {
        false
    }
}

// SAFETY: it is one.
unsafe impl<P, T, E, Cx: TaskContext> FrameTail<P, T, E, Cx> for Borrowed {
    const COMPLETE: Option<Complete> = None;
}

/// A typed frame: a future, its result, a context, and a tail for the owner.
#[repr(C)]
pub(in crate::task) struct Frame<P, T, E, Cx: TaskContext, X> {
    header: Header,
    stage: FrameStage<P, T, E>,
    /// The allocator of the frame's memory.
    allocator: Cx::Allocator,
    _tail: PhantomData<X>,
}

/// The allocation of a frame that uses the context of another.
#[repr(C)]
struct WholeFrame<P, T, E, Cx: TaskContext, X> {
    frame: Frame<P, T, E, Cx, X>,
    tail: X,
}

/// The allocation of a frame with a context of its own.
#[repr(C)]
struct OwnWholeFrame<P, T, E, Cx: TaskContext, X> {
    whole: WholeFrame<P, T, E, Cx, X>,
    /// Set from the start of the task until it is done.
    own: Option<OwnContext<Cx>>,
}

enum FrameStage<P, T, E> {
    Future(InPlace<P>),
    Result(Completion<T, E>),
    Empty,
}

/// A future that is moved to its place in a frame by itself: as a part of the stage it would be copied once more.
#[repr(transparent)]
struct InPlace<P>(MaybeUninit<P>);

impl<P> Drop for InPlace<P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `Frame::write_from` has moved the future in, before any other function sees the stage.
        unsafe { self.0.assume_init_drop() };
    }
}

impl<P: Produce<T, E>, T, E, Cx: TaskContext, X: FrameTail<P, T, E, Cx>> Frame<P, T, E, Cx, X> {
    /// Creates an unstarted frame, owned by the caller.
    #[inline]
    pub(in crate::task) fn make(
        future: P,
        allocator: Cx::Allocator,
        tail: X,
    ) -> Result<NonNull<Header>, OutOfMemoryError> {
        let memory = Self::allocate_frame(&allocator)?;
        // SAFETY: the memory was just allocated. The future is not used afterwards.
        Ok(unsafe { Self::write_from(memory, &raw const *ManuallyDrop::new(future), allocator, || tail) })
    }

    /// Allocates the memory of a frame.
    #[inline]
    pub(in crate::task) fn allocate_frame(allocator: &Cx::Allocator) -> Result<NonNull<u8>, OutOfMemoryError> {
        let memory = if Self::is_global() {
            Cached.allocate(Self::LAYOUT)
        } else {
            allocator.allocate(Self::LAYOUT)
        };
        memory
            .map(NonNull::cast)
            .map_err(|_| OutOfMemoryError::new(Self::LAYOUT))
    }

    /// Writes an unstarted frame, owned by the caller. Moves the future out of its place, since it may be large, and makes the tail in its
    /// own.
    ///
    /// # Safety
    ///
    /// The memory is from [`allocate_frame`](Frame::allocate_frame) of this allocator, and is exclusive. The caller owns the future, and
    /// does not use it afterwards. `tail` does not unwind.
    #[inline]
    pub(in crate::task) unsafe fn write_from(
        memory: NonNull<u8>,
        future: *const P,
        allocator: Cx::Allocator,
        tail: impl FnOnce() -> X,
    ) -> NonNull<Header> {
        let frame = memory.cast::<Self>();
        let place = frame.as_ptr();
        // SAFETY: the caller's promise: the memory has the layout of the whole frame. All fields are written.
        unsafe {
            (&raw mut (*place).header).write(Header::new(Self::VTABLE));
            let stage = &raw mut (*place).stage;
            stage.write(FrameStage::Future(InPlace(MaybeUninit::uninit())));
            if let FrameStage::Future(InPlace(place)) = &mut *stage {
                ptr::copy_nonoverlapping(future, place.as_mut_ptr(), 1);
            }
            (&raw mut (*place).allocator).write(allocator);
            Self::tail(frame.cast()).write(tail());
            if let Some(own) = Self::own(frame) {
                own.write(None);
            }
        }
        frame.cast()
    }

    /// Takes the future out of an unpolled frame, or the panic that replaced it.
    ///
    /// # Safety
    ///
    /// `header` is that of such a frame. The caller has exclusive access, and does not poll it afterwards.
    pub(in crate::task) unsafe fn take_future(header: NonNull<Header>) -> Result<P, Panic> {
        // SAFETY: the caller has exclusive access. The future was not polled, and so not pinned.
        let stage = unsafe { &mut (*header.cast::<Self>().as_ptr()).stage };
        match mem::replace(stage, FrameStage::Empty) {
            // SAFETY: a frame that was written has its future, which is read once.
            FrameStage::Future(future) => Ok(unsafe { ManuallyDrop::new(future).0.assume_init_read() }),
            FrameStage::Result(Completion::Panicked(payload)) => Err(payload),
            _ => unreachable!("a frame that was not polled has its future, or the panic of its context"),
        }
    }

    /// Returns the tail of a frame.
    ///
    /// # Safety
    ///
    /// `header` is that of such a frame.
    #[inline]
    pub(in crate::task) unsafe fn tail(header: NonNull<Header>) -> NonNull<X> {
        // SAFETY: the caller's promise.
        unsafe { NonNull::new_unchecked(&raw mut (*header.cast::<WholeFrame<P, T, E, Cx, X>>().as_ptr()).tail) }
    }

    /// Returns the result of a frame that is done.
    ///
    /// # Safety
    ///
    /// `header` is that of such a frame, which is done and owned by the caller.
    pub(in crate::task) unsafe fn result<'a>(header: NonNull<Header>) -> Option<&'a Completion<T, E>> {
        // SAFETY: the caller's promise.
        match unsafe { &(*header.cast::<Self>().as_ptr()).stage } {
            FrameStage::Result(completion) => Some(completion),
            _ => None,
        }
    }

    const VTABLE: &'static FrameVtable = &FrameVtable {
        poll: Self::poll,
        take: Self::take,
        free: Self::free,
        complete: X::COMPLETE,
        tracker: match X::COMPLETE {
            Some(_) => TrackerPlace::own(Self::TAIL),
            None => TrackerPlace::borrowed(Self::TAIL),
        },
        discard: Self::discard,
        adopt: if Cx::INHERITS { None } else { Some(Self::adopt) },
        leave: if Cx::INHERITS { None } else { Some(Self::leave) },
        allocate: Self::allocate,
        deallocate: Self::deallocate,
        fail: Self::fail,
        wanders: !Cx::INHERITS && Cx::Scheduler::ANYWHERE,
        is_local: P::IS_LOCAL,
    };

    /// The offset of the tail.
    const TAIL: usize = mem::offset_of!(WholeFrame<P, T, E, Cx, X>, tail);

    /// The layout of the allocation.
    const LAYOUT: Layout = if Cx::INHERITS {
        Layout::new::<WholeFrame<P, T, E, Cx, X>>()
    } else {
        Layout::new::<OwnWholeFrame<P, T, E, Cx, X>>()
    };

    /// Returns the place of the frame's own context, if it has one.
    ///
    /// # Safety
    ///
    /// The frame was allocated as this type.
    #[inline]
    unsafe fn own(this: NonNull<Self>) -> Option<*mut Option<OwnContext<Cx>>> {
        if Cx::INHERITS {
            return None;
        }
        // SAFETY: the caller's promise: the allocation includes the context.
        Some(unsafe { &raw mut (*this.cast::<OwnWholeFrame<P, T, E, Cx, X>>().as_ptr()).own })
    }

    /// Creates the frame's own context. If that panics, the panic becomes the result.
    ///
    /// # Safety
    ///
    /// `header` is that of such a frame, which has a context of its own and was not started.
    unsafe fn adopt(header: NonNull<Header>, outer: NonNull<Placement>) -> NonNull<Placement> {
        let this = header.cast::<Self>();
        // SAFETY: the frame is pinned, and was not started, so it is not shared. The outer context is valid until it is done.
        unsafe {
            let Some(own) = Self::own(this) else { return outer };
            let allocator = NonNull::new_unchecked(&raw mut (*this.as_ptr()).allocator);
            match OwnContext::adopt(own, outer.cast(), allocator) {
                Ok(context) => context.cast(),
                Err(payload) => {
                    Self::fail(header, payload);
                    outer
                }
            }
        }
    }

    /// # Safety
    ///
    /// `header` is that of such a frame.
    unsafe fn allocate(header: NonNull<Header>, layout: Layout) -> Option<NonNull<u8>> {
        if Self::is_global() {
            return Some(Cached.allocate(layout).ok()?.cast());
        }
        // SAFETY: the caller's promise.
        let allocator = unsafe { &(*header.cast::<Self>().as_ptr()).allocator };
        Some(allocator.allocate(layout).ok()?.cast())
    }

    /// # Safety
    ///
    /// `header` is that of such a frame, which allocated the memory. The memory is not used afterwards.
    unsafe fn deallocate(header: NonNull<Header>, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe {
            if Self::is_global() {
                Cached.deallocate(memory, layout);
            } else {
                (*header.cast::<Self>().as_ptr()).allocator.deallocate(memory, layout);
            }
        }
    }

    /// Returns whether the frame's memory is from the global allocator, and so from the threads' caches.
    #[inline]
    fn is_global() -> bool {
        TypeId::of::<Cx::Allocator>() == TypeId::of::<Global>()
    }

    /// Drops the future or the result, and stores a panic as the result. A panic of the destructor replaces it.
    ///
    /// # Safety
    ///
    /// `header` is that of such a frame, which was not started, or which the caller polls.
    unsafe fn fail(header: NonNull<Header>, payload: Panic) {
        // SAFETY: the caller's promise: it owns the stage. The overwritten value needs no drop.
        unsafe {
            let stage = &raw mut (*header.cast::<Self>().as_ptr()).stage;
            let payload = Panic::catch(|| *stage = FrameStage::Empty).err().unwrap_or(payload);
            stage.write(FrameStage::Result(Completion::Panicked(payload)));
        }
    }

    /// Drops the result.
    ///
    /// # Safety
    ///
    /// `header` is that of such a frame, whose future was dropped. The caller polls the frame, or owns it and it is done.
    unsafe fn discard(header: NonNull<Header>) {
        // SAFETY: the caller's promise: it owns the stage.
        unsafe { (*header.cast::<Self>().as_ptr()).stage = FrameStage::Empty };
    }

    /// Drops the frame's own context. A panic of the destructor becomes the result.
    ///
    /// # Safety
    ///
    /// The caller polls the frame. Its result is stored, and its awaits are destroyed.
    unsafe fn leave(header: NonNull<Header>) {
        // SAFETY: the caller polls the frame, and so has exclusive access.
        unsafe {
            if let Some(own) = Self::own(header.cast())
                && let Err(payload) = Panic::catch(|| *own = None)
            {
                Self::fail(header, payload);
            }
        }
    }

    /// Polls the future, or drops it if it is to stop.
    ///
    /// # Safety
    ///
    /// `header` is that of such a frame, which the caller may poll. With a room, this is the first poll, the frame has no context of
    /// its own, and the room has the type of the result.
    unsafe fn poll(header: NonNull<Header>, room: Option<NonNull<()>>) -> Polled {
        // SAFETY: the caller's promise. The header is shared; the polling thread owns the stage.
        let (shared, stage) = unsafe { (header.as_ref(), &raw mut (*header.cast::<Self>().as_ptr()).stage) };
        // SAFETY: the polling thread owns the stage.
        let FrameStage::Future(future) = (unsafe { &mut *stage }) else {
            // The frame waited for an orphan, or ended before it began.
            return Polled::Done;
        };
        let future = future.0.as_mut_ptr();
        let mut own_room = MaybeUninit::<Completion<T, E>>::uninit();
        let result = room.map_or(own_room.as_mut_ptr(), |room| room.cast().as_ptr());
        // SAFETY: the result is the caller's room, or the one on this stack. The polling thread owns the future, which does not move.
        let poll = || unsafe {
            if shared.is_stopped() {
                result.write(Completion::Stopped);
                return true;
            }
            let (waker, polling) = (frame::waker(header), Polling::new(header));
            polling.take_waits();
            match Pin::new_unchecked(&mut *future).poll(&mut core::task::Context::from_waker(&waker)) {
                Poll::Ready(Ok(value)) => result.write(Completion::Value(value)),
                Poll::Ready(Err(error)) => result.write(Completion::Error(error)),
                // A future that waits for other crates alone hears no stop: it is dropped here.
                Poll::Pending if shared.is_stopped() || !polling.take_waits() && strand::stops_here(polling) => {
                    result.write(Completion::Stopped);
                }
                Poll::Pending => return false,
            }
            true
        };
        let failed = |payload| match Stopping::is(&payload) {
            true => Completion::Stopped,
            false => Completion::Panicked(payload),
        };
        // SAFETY: as above. The result is written before it is replaced, and the future is dropped once.
        unsafe {
            match Panic::catch(poll) {
                Ok(false) => return Polled::Pending,
                Ok(true) => {}
                Err(payload) => result.write(failed(payload)),
            }
            // The locals are dropped before the result is visible. If one of them panics, the result is dropped, too.
            if let Err(payload) = Panic::catch(|| future.drop_in_place()) {
                _ = Panic::catch(|| *result = failed(payload)).map_err(Panic::discard);
            }
            // This thread still works for the frame, so an allocator of the user must not be called before the parent has taken
            // the result.
            if room.is_some() && Self::is_global() && Header::is_alone(header) {
                Self::free_empty(header);
                return Polled::Gone;
            }
            // Copied to its place, which is not that of `result`: as a part of the stage it would be copied once more.
            stage.write(FrameStage::Result(Completion::Stopped));
            if let FrameStage::Result(place) = &mut *stage {
                ptr::copy_nonoverlapping(result, place, 1);
            }
        }
        Polled::Done
    }

    /// # Safety
    ///
    /// The frame is done and owned by the caller; `room` has the type of the result. With `free`, this is the last reference.
    unsafe fn take(header: NonNull<Header>, room: NonNull<()>, free: bool) {
        let this = header.cast::<Self>();
        // SAFETY: the caller's promise. The moved value is not dropped.
        unsafe {
            let (stage, room) = (&raw mut (*this.as_ptr()).stage, room.cast::<Completion<T, E>>());
            match &*stage {
                // Only the result is moved, since the stage may be larger.
                FrameStage::Result(completion) => room.copy_from_nonoverlapping(NonNull::from(completion), 1),
                _ => room.write(Completion::Stopped),
            }
            if free {
                Self::free_empty(header);
            } else {
                stage.write(FrameStage::Empty);
            }
        }
    }

    /// Frees a frame whose future or result was moved out or dropped.
    ///
    /// # Safety
    ///
    /// The last reference was released. The frame has no context of its own.
    #[inline(always)]
    unsafe fn free_empty(header: NonNull<Header>) {
        let guard = AbortOnUnwind::new();
        // SAFETY: the caller's promise.
        unsafe {
            let mut tail = Self::tail(header);
            if !tail.as_mut().is_bare() {
                tail.drop_in_place();
            }
            drop(Self::memory(header.cast()));
        }
        guard.defuse();
    }

    /// Takes the memory of a frame, which the drop of the result frees.
    ///
    /// # Safety
    ///
    /// The last reference was released; only the contents may still be dropped.
    #[inline]
    unsafe fn memory(this: NonNull<Self>) -> OnDrop<impl FnMut()> {
        // SAFETY: the caller's promise. The allocator is moved out, and not used in place afterwards.
        let allocator = unsafe {
            Header::release_memory(this.cast());
            (&raw const (*this.as_ptr()).allocator).read()
        };
        // SAFETY: the memory is from this allocator or from the caches, with this layout, and not used afterwards.
        OnDrop(move || unsafe {
            if Self::is_global() {
                Cached.deallocate(this.cast(), Self::LAYOUT);
            } else {
                allocator.deallocate(this.cast(), Self::LAYOUT);
            }
        })
    }

    /// # Safety
    ///
    /// The last reference was released.
    unsafe fn free(header: NonNull<Header>) {
        let this = header.cast::<Self>();
        // SAFETY: the caller's promise. The memory is freed last, and the allocator after it, even if a drop panics.
        unsafe {
            let _memory = Self::memory(this);
            if let Some(own) = Self::own(this) {
                own.drop_in_place();
            }
            (&raw mut (*this.as_ptr()).header).drop_in_place();
            let _tail = OnDrop(|| Self::tail(header).drop_in_place());
            (&raw mut (*this.as_ptr()).stage).drop_in_place();
        }
    }
}
