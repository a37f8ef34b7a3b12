use core::alloc::Layout;
use core::any::TypeId;
use core::convert::Infallible;
use core::fmt;
use core::future::Future;
use core::marker::{PhantomData, PhantomPinned};
use core::mem::{self, ManuallyDrop, MaybeUninit};
use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::task::{Context as Cx, Poll};
use std::boxed::Box;
use std::format;

use allocator_api2::alloc::{Allocator, Global};

use crate::memory::Cached;
use crate::scheduler::OutOfMemory;
use crate::sender::demand::demand;
use crate::sender::env::look_in;
use crate::sender::unwind::AbortOnUnwind;
use crate::stop::ErasedStopToken;
use crate::task::awaiting::foreign::{self, Foreign};
use crate::task::coroutine::builder::{TaskBuilder, or_panic};
use crate::task::coroutine::context::{ContextScheduler, DefaultContext, InAllocator, TaskContext};
use crate::task::coroutine::own_context::OwnContext;
use crate::task::frame::{self, FrameVtable, Header, Home, Placement, Polled, Polling, Stopping, Successor};
use crate::task::strand::context::{Awaiter, Context};
use crate::task::strand::unit::Unit;
use crate::{Completes, Completion, Env, Operation, Panic, Priority, Receiver, Scheduler, Sender, Transfer};

/// A coroutine: an `async` block that is a sender.
///
/// Inside, every sender can be awaited. Outside, the task is a sender as any other: lazy, moved and not copied, to be
/// adapted, combined and started wherever there is a scheduler.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::ThreadPool;
/// use bowline::task::Task;
/// use std::num::ParseIntError;
///
/// fn number(text: &'static str) -> Task<i32, ParseIntError> {
///     Task::try_new(async move { Ok(text.parse::<i32>()?) })
/// }
///
/// let pool = ThreadPool::new(1);
/// let scheduler = pool.scheduler();
/// let sum = Task::try_new(async move {
///     // A task that awaits a task hands it the thread, and gets it back.
///     let two = number("2").await?;
///     // What is awaited may run anywhere. The task goes on where it was.
///     let forty = starts_on(scheduler, number("40")).await?;
///     Ok::<_, ParseIntError>(two + forty)
/// });
/// assert_eq!(sync_wait(sum).unwrap(), 42);
/// ```
///
/// [`new`](Task::new) takes any output for the value, and such a task cannot fail; [`try_new`](Task::try_new) takes a
/// `Result` apart. It runs on the scheduler of the environment that it is started in: that of
/// [`sync_wait`](crate::sync_wait) is its run loop, [`starts_on`](crate::starts_on) chooses another, and without one it does
/// not compile. Awaited in another task, it runs as part of that.
///
/// `Cx` is its [context](TaskContext): what it is allocated with, where it runs, and what it adds to the environment of
/// what it awaits. The default changes nothing. A future that is not `Send` makes a [`LocalTask`](crate::task::LocalTask); a
/// `main` that awaits is made by [`#[bowline::main]`](crate::main), and a call that blocks by
/// [`block_on`](crate::task::block_on).
///
/// # Completions
///
/// Those of the future: its output; with [`try_new`](Task::try_new) its value or error. Stopped, when something that it
/// awaits has stopped: the future is not polled again. In every case its locals are dropped before the completion, which
/// comes on its scheduler.
///
/// # Panics
///
/// The future's panic is the task's, and unwinds from the `.await` of whoever awaits it.
///
/// # Cancellation
///
/// What it awaits sees the stop token, and if that stops, so does the task. A future that is not a sender knows nothing
/// of stops, and a task that waits for one alone goes on waiting: [`from_future`](crate::from_future)`(future).await`
/// has it dropped by the stop. The token does not stop a task between two awaits. Dropping a task that is awaited ends
/// it: see [`TaskFuture`].
///
/// # Allocation
///
/// One, when it is made: header, future and result. One more, of memory that threads keep, when it first suspends on a sender;
/// none per await after that, nor when it is resumed.
///
/// # Stack
///
/// Constant, however deep tasks await tasks, and however many senders they await; also when they are stopped or dropped.
#[must_use = "tasks do nothing until they are awaited, or connected and started"]
pub struct Task<T, E = Infallible, Cx = DefaultContext> {
    frame: NonNull<Header>,
    _result: Produces<T, E, Cx>,
}

/// The types of a task, none of which is in it.
/// Covariant in the results, which are only given. Invariant in the context: its `TaskContext` implementation is that of
/// exactly this type.
type Produces<T, E, Cx> = PhantomData<(fn() -> (T, E), fn(Cx) -> Cx)>;

// SAFETY: the future is `Send`, and so are the result, the allocator and the context.
unsafe impl<T: Send, E: Send, Cx> Send for Task<T, E, Cx> {}

impl Task<()> {
    /// Tasks with another context or allocator, and with memory that may run out.
    pub const fn builder() -> TaskBuilder {
        TaskBuilder::new()
    }
}

impl<T: Send + 'static> Task<T> {
    /// A task of a future, whose output is the value.
    ///
    /// # Panics
    ///
    /// When there is no memory.
    #[track_caller]
    #[inline]
    pub fn new<F>(future: F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        or_panic(Task::of_plain(future, Global))
    }

    /// A task of a future, whose output is the value, in memory from `allocator`.
    ///
    /// The one allocation of the task, header, future and result, is from there, and given back there, by a clone of the
    /// allocator that is kept in it. So is the room that a task on a scheduler of your own needs to come back to it, which
    /// is allocated when it starts: without memory it completes with a panic then. What the task awaits finds the
    /// allocator with [`CurrentAllocator`](crate::task::CurrentAllocator); a task that is made inside uses it if it is told to.
    ///
    /// ```
    /// use std::alloc::Layout;
    /// use std::ptr::NonNull;
    ///
    /// use allocator_api2::alloc::{AllocError, Allocator, Global};
    /// use bowline::prelude::*;
    /// use bowline::task::Task;
    ///
    /// /// Has memory for small things only.
    /// #[derive(Clone)]
    /// struct Small;
    ///
    /// unsafe impl Allocator for Small {
    ///     fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
    ///         if layout.size() <= 1024 { Global.allocate(layout) } else { Err(AllocError) }
    ///     }
    ///     unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
    ///         unsafe { Global.deallocate(memory, layout) }
    ///     }
    /// }
    ///
    /// assert_eq!(sync_wait(Task::new_in(async { 1 }, Small)).unwrap(), 1);
    ///
    /// let large = [0_u8; 4096];
    /// let refused = Task::builder().allocator(Small).build(async move { large.len() });
    /// assert!(refused.unwrap_err().layout().size() > 4096);
    /// ```
    ///
    /// # Panics
    ///
    /// When the allocator has no memory. [`TaskBuilder::build`] says so instead.
    #[track_caller]
    #[inline]
    pub fn new_in<F, A>(future: F, allocator: A) -> Task<T, Infallible, InAllocator<A>>
    where
        F: Future<Output = T> + Send + 'static,
        A: Allocator + Clone + Send + Sync + 'static,
    {
        or_panic(Task::of_plain(future, allocator))
    }
}

impl<T: Send + 'static> Task<T> {
    /// A task of a future that borrows.
    ///
    /// # Safety
    ///
    /// What the future borrows outlives the task's completion, or the task's drop where it is not started.
    #[track_caller]
    pub(in crate::task) unsafe fn of_borrowing<F>(future: F) -> Self
    where
        F: Future<Output = T> + Send,
    {
        or_panic(Task::from_future(Plain(future), Global))
    }
}

impl<T: Send + 'static, E: Send + 'static> Task<T, E> {
    /// A task of a future whose output is a value or an error.
    ///
    /// # Panics
    ///
    /// When there is no memory.
    #[track_caller]
    #[inline]
    pub fn try_new<F>(future: F) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        or_panic(Task::of_result(future, Global))
    }

    /// A task of a future whose output is a value or an error, in memory from `allocator`: [`try_new`](Task::try_new) as
    /// [`new_in`](Task::new_in) is [`new`](Task::new).
    ///
    /// # Panics
    ///
    /// When the allocator has no memory. [`TaskBuilder::try_build`] says so instead.
    #[track_caller]
    #[inline]
    pub fn try_new_in<F, A>(future: F, allocator: A) -> Task<T, E, InAllocator<A>>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        A: Allocator + Clone + Send + Sync + 'static,
    {
        or_panic(Task::of_result(future, allocator))
    }
}

impl<T: Send + 'static, Cx: TaskContext> Task<T, Infallible, Cx> {
    #[inline]
    pub(in crate::task) fn of_plain<F>(future: F, allocator: Cx::Allocator) -> Result<Self, OutOfMemory>
    where
        F: Future<Output = T> + Send + 'static,
    {
        Task::from_future(Plain(future), allocator)
    }
}

impl<T: Send + 'static, E: Send + 'static, Cx: TaskContext> Task<T, E, Cx> {
    #[inline]
    pub(in crate::task) fn of_result<F>(future: F, allocator: Cx::Allocator) -> Result<Self, OutOfMemory>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        Task::from_future(Try(future), allocator)
    }

    /// That of a local task: what it spawns does not stay on its thread.
    #[inline]
    pub(in crate::task) fn of_local<F>(future: F) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        Cx: TaskContext<Allocator = Global>,
    {
        or_panic(Task::from_future(Local(future), Global))
    }

    #[inline]
    fn from_future<P: Produce<T, E>>(future: P, allocator: Cx::Allocator) -> Result<Self, OutOfMemory> {
        Ok(Task {
            frame: Frame::<P, T, E, Cx, ()>::make(future, allocator, ())?,
            _result: PhantomData,
        })
    }
}

/// A future, and how its output is a completion.
pub(in crate::task) trait Produce<T, E> {
    /// It stays on its thread.
    const IS_LOCAL: bool = false;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>>;
}

pub(in crate::task) struct Plain<F>(pub(in crate::task) F);
struct Try<F>(F);
struct Local<F>(F);

impl<T, E, F: Future<Output = T>> Produce<T, E> for Plain<F> {
    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>> {
        // SAFETY: the future is pinned with this.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(cx).map(Ok)
    }
}

impl<T, E, F: Future<Output = Result<T, E>>> Produce<T, E> for Try<F> {
    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>> {
        // SAFETY: the future is pinned with this.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(cx)
    }
}

impl<T, E, F: Future<Output = Result<T, E>>> Produce<T, E> for Local<F> {
    const IS_LOCAL: bool = true;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>> {
        // SAFETY: the future is pinned with this.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(cx)
    }
}

/// A frame, and what it is of: a future, its result, a context, and a tail for whoever owns it.
#[repr(C)]
pub(in crate::task) struct Frame<P, T, E, Cx: TaskContext, X> {
    header: Header,
    stage: FrameStage<P, T, E>,
    /// What the memory is from.
    allocator: Cx::Allocator,
    _tail: PhantomData<X>,
}

/// The whole of a frame that uses the context of another.
#[repr(C)]
struct Whole<P, T, E, Cx: TaskContext, X> {
    frame: Frame<P, T, E, Cx, X>,
    tail: X,
}

/// The whole of a frame that has a context of its own.
#[repr(C)]
struct OwnWhole<P, T, E, Cx: TaskContext, X> {
    whole: Whole<P, T, E, Cx, X>,
    /// There from the start of the task until it is done.
    own: Option<OwnContext<Cx>>,
}

enum FrameStage<P, T, E> {
    Future(P),
    Result(Completion<T, E>),
    Empty,
}

impl<P: Produce<T, E>, T, E, Cx: TaskContext, X> Frame<P, T, E, Cx, X> {
    /// Makes a frame that was not started. Its owner is the caller.
    #[inline]
    pub(in crate::task) fn make(future: P, allocator: Cx::Allocator, tail: X) -> Result<NonNull<Header>, OutOfMemory> {
        let memory = Self::allocate_frame(&allocator)?;
        // SAFETY: the memory was just allocated.
        Ok(unsafe { Self::write(memory, future, allocator, tail) })
    }

    /// Allocates the memory of a frame.
    #[inline]
    pub(in crate::task) fn allocate_frame(allocator: &Cx::Allocator) -> Result<NonNull<[u8]>, OutOfMemory> {
        allocator
            .allocate(Self::LAYOUT)
            .map_err(|_| OutOfMemory::new(Self::LAYOUT))
    }

    /// Writes a frame that was not started. Its owner is the caller.
    ///
    /// # Safety
    ///
    /// The memory is from [`allocate_frame`](Frame::allocate_frame) of this allocator, and is used for nothing else.
    #[inline]
    pub(in crate::task) unsafe fn write(
        memory: NonNull<[u8]>,
        future: P,
        allocator: Cx::Allocator,
        tail: X,
    ) -> NonNull<Header> {
        let frame = memory.cast::<Self>();
        let place = frame.as_ptr();
        // SAFETY: the caller's promise: the memory has the layout of the whole frame. All fields are written.
        unsafe {
            (&raw mut (*place).header).write(Header::new(Self::VTABLE));
            (&raw mut (*place).stage).write(FrameStage::Future(future));
            (&raw mut (*place).allocator).write(allocator);
            Self::tail(frame.cast()).write(tail);
            if let Some(own) = Self::own(frame) {
                own.write(None);
            }
        }
        frame.cast()
    }

    /// Takes the future out of a frame that was not polled, or the panic that took its place.
    ///
    /// # Safety
    ///
    /// The header is that of such a frame, to which the caller has exclusive access. It is not polled any more.
    pub(in crate::task) unsafe fn take_future(header: NonNull<Header>) -> Result<P, Panic> {
        // SAFETY: the caller's promise. The future was not polled, and so not pinned.
        match mem::replace(
            unsafe { &mut (*header.cast::<Self>().as_ptr()).stage },
            FrameStage::Empty,
        ) {
            FrameStage::Future(future) => Ok(future),
            FrameStage::Result(Completion::Panicked(payload)) => Err(payload),
            _ => unreachable!("a frame that was not polled has its future, or the panic of its context"),
        }
    }

    /// Where the tail of a frame is.
    ///
    /// # Safety
    ///
    /// The header is that of such a frame.
    #[inline]
    pub(in crate::task) unsafe fn tail(header: NonNull<Header>) -> NonNull<X> {
        // SAFETY: by the caller's promise.
        unsafe { NonNull::new_unchecked(&raw mut (*header.cast::<Whole<P, T, E, Cx, X>>().as_ptr()).tail) }
    }

    /// The result of a frame that is done.
    ///
    /// # Safety
    ///
    /// The header is that of such a frame, which is done, and which the caller owns.
    pub(in crate::task) unsafe fn result<'a>(header: NonNull<Header>) -> Option<&'a Completion<T, E>> {
        // SAFETY: by the caller's promise.
        match unsafe { &(*header.cast::<Self>().as_ptr()).stage } {
            FrameStage::Result(completion) => Some(completion),
            _ => None,
        }
    }

    const VTABLE: &'static FrameVtable = &FrameVtable {
        poll: Self::poll,
        poll_here: Self::poll_here,
        take: Self::take,
        free: Self::free,
        adopt: if Cx::INHERITS { None } else { Some(Self::adopt) },
        leave: if Cx::INHERITS { None } else { Some(Self::leave) },
        allocate: Self::allocate,
        deallocate: Self::deallocate,
        fail: Self::fail,
        wanders: !Cx::INHERITS && Cx::Scheduler::ANYWHERE,
        is_local: P::IS_LOCAL,
    };

    /// Of the whole allocation.
    const LAYOUT: Layout = if Cx::INHERITS {
        Layout::new::<Whole<P, T, E, Cx, X>>()
    } else {
        Layout::new::<OwnWhole<P, T, E, Cx, X>>()
    };

    /// Where the frame has its own context, if it has one.
    ///
    /// # Safety
    ///
    /// The frame was allocated as such.
    #[inline]
    unsafe fn own(this: NonNull<Self>) -> Option<*mut Option<OwnContext<Cx>>> {
        if Cx::INHERITS {
            return None;
        }
        // SAFETY: by the caller's promise, there is room for that too.
        Some(unsafe { &raw mut (*this.cast::<OwnWhole<P, T, E, Cx, X>>().as_ptr()).own })
    }

    /// Makes the frame's own context, for all of its life. Where that panics there is a result already.
    ///
    /// # Safety
    ///
    /// The header is that of such a frame, which has a context of its own and was not started.
    unsafe fn adopt(header: NonNull<Header>, outer: NonNull<Placement>) -> NonNull<Placement> {
        let this = header.cast::<Self>();
        // SAFETY: by the caller's promise.
        let (own, stage, allocator) = unsafe {
            let allocator = NonNull::new_unchecked(&raw mut (*this.as_ptr()).allocator);
            (Self::own(this), &raw mut (*this.as_ptr()).stage, allocator)
        };
        let Some(own) = own else { return outer };
        // SAFETY: nothing in the frame moves, and the context outside stays until the task is done.
        match unsafe { OwnContext::adopt(own, outer.cast(), allocator) } {
            Ok(context) => context.cast(),
            Err(payload) => {
                // SAFETY: nobody else knows the frame.
                unsafe { Self::end(stage, Completion::Panicked(payload)) };
                outer
            }
        }
    }

    /// # Safety
    ///
    /// The header is that of such a frame.
    unsafe fn allocate(header: NonNull<Header>, layout: Layout) -> Option<NonNull<u8>> {
        if Self::is_global() {
            return Some(Cached.allocate(layout).ok()?.cast());
        }
        // SAFETY: by the caller's promise.
        let allocator = unsafe { &(*header.cast::<Self>().as_ptr()).allocator };
        Some(allocator.allocate(layout).ok()?.cast())
    }

    /// # Safety
    ///
    /// The header is that of such a frame, which the memory was asked of; it is not used any more.
    unsafe fn deallocate(header: NonNull<Header>, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: by the caller's promise.
        unsafe {
            if Self::is_global() {
                Cached.deallocate(memory, layout);
            } else {
                (*header.cast::<Self>().as_ptr()).allocator.deallocate(memory, layout);
            }
        }
    }

    /// Whether more memory comes from the global allocator: then it is from what threads keep.
    #[inline]
    fn is_global() -> bool {
        TypeId::of::<Cx::Allocator>() == TypeId::of::<Global>()
    }

    /// # Safety
    ///
    /// The header is that of such a frame, which was not started.
    unsafe fn fail(header: NonNull<Header>, payload: Panic) {
        // SAFETY: by the caller's promise, nobody else knows the frame.
        unsafe {
            let stage = &raw mut (*header.cast::<Self>().as_ptr()).stage;
            Self::end(stage, Completion::Panicked(payload));
        }
    }

    /// Drops the future, and leaves a result. A panic in there is the result.
    ///
    /// # Safety
    ///
    /// The stage is the caller's.
    unsafe fn end(stage: *mut FrameStage<P, T, E>, completion: Completion<T, E>) {
        // SAFETY: by the caller's promise.
        let completion = match Panic::catch(|| unsafe { *stage = FrameStage::Empty }) {
            Ok(()) => completion,
            Err(second) => Completion::Panicked(second),
        };
        // SAFETY: as above. There is nothing there to be dropped.
        unsafe { stage.write(FrameStage::Result(completion)) };
    }

    /// Drops the frame's own context. A panic in there is the result.
    ///
    /// # Safety
    ///
    /// The frame is polled by the caller, its result is there, and what it awaited is gone.
    unsafe fn leave(header: NonNull<Header>) {
        let this = header.cast::<Self>();
        // SAFETY: by the caller's promise.
        let (own, stage) = unsafe { (Self::own(this), &raw mut (*this.as_ptr()).stage) };
        let Some(own) = own else { return };
        // SAFETY: as above.
        if let Err(payload) = Panic::catch(|| unsafe { *own = None }) {
            // SAFETY: as above.
            unsafe { Self::end(stage, Completion::Panicked(payload)) };
        }
    }

    /// # Safety
    ///
    /// The header is that of such a frame, which the caller may poll.
    unsafe fn poll(header: NonNull<Header>) -> bool {
        // SAFETY: by the caller's promise.
        let stage = unsafe { &raw mut (*header.cast::<Self>().as_ptr()).stage };
        // SAFETY: as above.
        if let FrameStage::Result(_) = unsafe { &*stage } {
            // It waited for an await that the future had let go of; or it ended before it began.
            return true;
        }
        let mut result = MaybeUninit::uninit();
        // SAFETY: as above.
        let done = unsafe { Self::advance(header, result.as_mut_ptr()) };
        if done {
            // SAFETY: as above. There is nothing there to be dropped, and there is a result.
            unsafe { stage.write(FrameStage::Result(result.assume_init())) };
        }
        done
    }

    /// # Safety
    ///
    /// The header is that of such a frame, which the caller may poll, for the first time. It has no context of its own. There
    /// is room for the result.
    unsafe fn poll_here(header: NonNull<Header>, room: NonNull<()>) -> Polled {
        let (this, room) = (header.cast::<Self>(), room.cast::<Completion<T, E>>());
        // SAFETY: by the caller's promise. Nothing is left in the stage to be dropped.
        unsafe {
            if !Self::advance(header, room.as_ptr()) {
                return Polled::Pending;
            }
            if !Header::is_alone(header) {
                (&raw mut (*this.as_ptr()).stage).write(FrameStage::Result(room.read()));
                return Polled::Done;
            }
            let guard = AbortOnUnwind::new();
            Self::tail(header).drop_in_place();
            drop(Self::memory(this));
            guard.defuse();
        }
        Polled::Gone
    }

    /// Polls the future, or drops it if it is to stop. `true` where it is gone, the stage is empty, and the result is
    /// in the room.
    ///
    /// # Safety
    ///
    /// The header is that of such a frame, which has its future, and which the caller may poll. There is room.
    #[inline]
    unsafe fn advance(header: NonNull<Header>, room: *mut Completion<T, E>) -> bool {
        // SAFETY: by the caller's promise. The header is shared, the stage is ours.
        let (shared, stage) = unsafe { (header.as_ref(), &raw mut (*header.cast::<Self>().as_ptr()).stage) };
        // SAFETY: as above.
        let waker = unsafe { frame::waker(header) };
        let polled = Panic::catch(|| {
            let mut completion = Completion::Stopped;
            if !shared.is_stopped() {
                // SAFETY: as above.
                let future = match unsafe { &mut *stage } {
                    // SAFETY: a frame does not move.
                    FrameStage::Future(future) => unsafe { Pin::new_unchecked(future) },
                    _ => return false,
                };
                match future.poll(&mut core::task::Context::from_waker(&waker)) {
                    Poll::Ready(Ok(value)) => completion = Completion::Value(value),
                    Poll::Ready(Err(error)) => completion = Completion::Error(error),
                    Poll::Pending if shared.is_stopped() => {}
                    Poll::Pending => return false,
                }
            }
            // Its locals go before the result is seen. Should one of them panic, the result goes with it.
            // SAFETY: as above.
            unsafe { *stage = FrameStage::Empty };
            // SAFETY: there is room.
            unsafe { room.write(completion) };
            true
        });
        match polled {
            Ok(done) => done,
            Err(payload) => {
                // What panicked may have been the future, which is still there then.
                // SAFETY: as above.
                let completion = match Panic::catch(|| unsafe { *stage = FrameStage::Empty }) {
                    Ok(()) if Stopping::is(&payload) => Completion::Stopped,
                    Ok(()) => Completion::Panicked(payload),
                    Err(second) => Completion::Panicked(second),
                };
                // SAFETY: there is room.
                unsafe { room.write(completion) };
                true
            }
        }
    }

    /// # Safety
    ///
    /// The frame is done, and the caller owns it; there is room for the result. With `free`, nobody else knows it.
    unsafe fn take(header: NonNull<Header>, room: NonNull<()>, free: bool) {
        let this = header.cast::<Self>();
        // SAFETY: by the caller's promise. What is moved out is not dropped.
        unsafe {
            let stage = &raw mut (*this.as_ptr()).stage;
            room.cast::<Completion<T, E>>().write(match &*stage {
                // Only this much is moved: the stage has room for the future too.
                FrameStage::Result(completion) => ptr::read(completion),
                _ => Completion::Stopped,
            });
            stage.write(FrameStage::Empty);
            if free {
                let guard = AbortOnUnwind::new();
                Self::tail(header).drop_in_place();
                drop(Self::memory(this));
                guard.defuse();
            }
        }
    }

    /// The memory of a frame, which goes with what is returned.
    ///
    /// # Safety
    ///
    /// Nobody uses the frame any more, but who is to drop what is in it.
    #[inline]
    unsafe fn memory(this: NonNull<Self>) -> Memory<Cx::Allocator> {
        // SAFETY: by the caller's promise.
        unsafe { Header::release_memory(this.cast()) };
        Memory {
            memory: this.cast(),
            layout: Self::LAYOUT,
            // SAFETY: by the caller's promise, it is not used where it is.
            allocator: unsafe { (&raw const (*this.as_ptr()).allocator).read() },
        }
    }

    /// # Safety
    ///
    /// Nobody uses the frame any more.
    unsafe fn free(header: NonNull<Header>) {
        let this = header.cast::<Self>();
        // SAFETY: by the caller's promise. The memory goes last, and the allocator after that, also where a drop panics.
        unsafe {
            let _memory = Self::memory(this);
            if let Some(own) = Self::own(this) {
                own.drop_in_place();
            }
            (&raw mut (*this.as_ptr()).header).drop_in_place();
            let _tail = DropTail(Self::tail(header));
            (&raw mut (*this.as_ptr()).stage).drop_in_place();
        }
    }
}

/// Also when dropping what comes before it panics.
struct DropTail<X>(NonNull<X>);

impl<X> Drop for DropTail<X> {
    fn drop(&mut self) {
        // SAFETY: whoever made this says so.
        unsafe { self.0.drop_in_place() };
    }
}

/// Memory that is given back when this is dropped.
struct Memory<A: Allocator> {
    memory: NonNull<u8>,
    layout: Layout,
    allocator: A,
}

impl<A: Allocator> Drop for Memory<A> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the memory is from this allocator, of this layout, and not used any more.
        unsafe { self.allocator.deallocate(self.memory, self.layout) };
    }
}

impl<T, E, Cx> Drop for Task<T, E, Cx> {
    fn drop(&mut self) {
        // SAFETY: the frame is ours. A result that nobody took goes right here, and not with the last waker.
        unsafe {
            if Header::is_done(self.frame) {
                drop(Header::take::<Completion<T, E>>(self.frame));
            } else {
                Header::release(self.frame);
            }
        }
    }
}

impl<T, E, Cx> Task<T, E, Cx> {
    pub(in crate::task) fn frame(&self) -> NonNull<Header> {
        self.frame
    }
}

impl<T, E, Cx> fmt::Debug for Task<T, E, Cx> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").finish_non_exhaustive()
    }
}

// SAFETY: the operation touches nothing of itself after its completion; it is `!Unpin`. The task runs on its scheduler
// alone, which is that of the receiver's environment, unless its context says that it runs anywhere.
unsafe impl<T: Send + 'static, E: Send + 'static, Cx: TaskContext> Sender for Task<T, E, Cx> {
    type Value = T;
    type Error = E;
    const COMPLETES: Completes = if Cx::Scheduler::ANYWHERE {
        Completes::Anywhere
    } else {
        Completes::OnStartScheduler
    };
    type Operation<R: Receiver<T, E>> = TaskOperation<T, E, R, Cx>;

    #[inline]
    fn connect<R: Receiver<T, E>>(self, receiver: R) -> TaskOperation<T, E, R, Cx> {
        const {
            demand(
                SchedulerIn::<Cx, R::Env>::PRESENT,
                "a task needs a scheduler to run on: write `starts_on(scheduler, task)`",
            );
            demand(
                SchedulerIn::<Cx, R::Env>::INFALLIBLE,
                "a task needs a scheduler that cannot fail: write `starts_on(scheduler.or_inline(), task)`, or `or_abort()`",
            );
        }
        TaskOperation {
            frame: ManuallyDrop::new(self).frame,
            is_unstarted: true,
            receiver: ManuallyDrop::new(receiver),
            outside: None,
            scheduler: None,
            context: MaybeUninit::uninit(),
            unit: MaybeUninit::uninit(),
            _pinned: PhantomPinned,
            _result: PhantomData,
        }
    }
}

/// The scheduler of a task of a context, in an environment.
type SchedulerIn<Cx, N> = <<Cx as TaskContext>::Scheduler as ContextScheduler>::In<N>;

/// The operation of a [`Task`].
pub struct TaskOperation<T, E, R: Receiver<T, E>, Cx: TaskContext = DefaultContext> {
    frame: NonNull<Header>,
    /// The frame and the receiver are there. Once it was started, the completion takes both.
    is_unstarted: bool,
    receiver: ManuallyDrop<R>,
    /// What the context points at, from the start to the completion.
    outside: Option<Outside<R::Env>>,
    /// Where the task runs, from the start to the completion, unless that is kept by the task around it.
    scheduler: Option<SchedulerIn<Cx, R::Env>>,
    /// Written by the start, once all of the user's code has answered; as is the unit.
    context: MaybeUninit<Context>,
    unit: MaybeUninit<Unit>,
    _pinned: PhantomPinned,
    _result: Produces<T, E, Cx>,
}

/// An environment, and its stop token.
type Outside<N> = (N, <N as Env>::StopToken);

// SAFETY: as for the task; the receiver is `Send`, and so is what it offers.
unsafe impl<T: Send, E: Send, R: Receiver<T, E>, Cx: TaskContext> Send for TaskOperation<T, E, R, Cx> {}

impl<T, E, R: Receiver<T, E>, Cx: TaskContext> Drop for TaskOperation<T, E, R, Cx> {
    #[inline]
    fn drop(&mut self) {
        if self.is_unstarted {
            self.is_unstarted = false;
            let receiver = NonNull::from(&mut self.receiver);
            // SAFETY: it was not started, so both are there, and dropped this once.
            unsafe {
                let _receiver = DropReceiver(receiver);
                Header::release(self.frame);
            }
        }
    }
}

/// Also when dropping the task panics.
struct DropReceiver<R>(NonNull<ManuallyDrop<R>>);

impl<R> Drop for DropReceiver<R> {
    fn drop(&mut self) {
        // SAFETY: whoever made this says so.
        unsafe { ManuallyDrop::drop(self.0.as_mut()) };
    }
}

impl<T: Send + 'static, E: Send + 'static, R: Receiver<T, E>, Cx: TaskContext> TaskOperation<T, E, R, Cx> {
    /// # Safety
    ///
    /// The pointer is to a started operation, whose frame is done.
    unsafe fn complete(this: NonNull<()>) -> Transfer {
        // SAFETY: by the caller's promise, nobody else touches the operation.
        let this = unsafe { &mut *this.cast::<Self>().as_ptr() };
        // SAFETY: the task is done, and so are all others that used its home. The frame is there.
        let home = unsafe { this.context.assume_init_ref() }.placement.home;
        // SAFETY: see above. A home of the task around this one was made for another operation.
        unsafe { home.take_back(NonNull::from(&*this).cast(), this.frame) };
        // SAFETY: the frame is done. What was made at the start is dropped this once, before the completion, after which
        // nothing that it borrows need be valid.
        unsafe {
            this.unit.assume_init_ref().end();
            this.unit.assume_init_drop();
            let completion: Completion<T, E> = Header::take(this.frame);
            this.scheduler = None;
            this.outside = None;
            completion.deliver(ManuallyDrop::take(&mut this.receiver))
        }
    }

    /// Completes with a panic in place of a task that was not started, which is dropped before.
    #[cold]
    fn fail(&mut self, payload: Panic) -> Transfer {
        self.is_unstarted = false;
        // SAFETY: it was not started, so the frame is owned by this operation. It is released this once.
        let dropped = Panic::catch(|| unsafe { Header::release(self.frame) });
        let _ = dropped.map_err(Panic::discard);
        self.scheduler = None;
        self.outside = None;
        // SAFETY: it is taken this once: the operation does not count as unstarted any more.
        unsafe { ManuallyDrop::take(&mut self.receiver) }.set_panicked(payload)
    }

    /// Asks the receiver, its environment and the scheduler all that the task is to know of them.
    ///
    /// What is returned points at the environment and the scheduler, which are fields of the operation from here on.
    ///
    /// # Errors
    ///
    /// Some code of the user's has panicked. What it had answered until then is in the fields, or dropped.
    ///
    /// # Safety
    ///
    /// The operation is pinned, and was not started.
    unsafe fn ask(&mut self) -> Result<Asked, Panic> {
        let owner = NonNull::from(&mut *self).cast();
        Panic::catch(|| {
            let env = self.receiver.env();
            let (token, priority) = (env.stop_token(), env.priority());
            let (env, token) = &*self.outside.insert((env, token));
            // SAFETY: it is used until the task is done, which is before the receiver completes.
            let around = unsafe { Awaiter::of(env) };
            let home = if Cx::Scheduler::ANYWHERE {
                Some(Home::anywhere())
            } else {
                // SAFETY: as for the task around.
                unsafe { Home::behind(&env.door()) }
            };
            let home = match home {
                Some(home) => Ok(home),
                None => {
                    let scheduler = self.scheduler.insert(Cx::Scheduler::of(env));
                    // SAFETY: it is pinned with the operation, and dropped when the task is done. The frame is started
                    // next, and has this operation complete.
                    unsafe { Home::of(scheduler, self.frame, owner) }
                }
            };
            Asked {
                env: NonNull::from(env).cast(),
                // SAFETY: the token is kept in the operation until the task is done.
                token: unsafe { ErasedStopToken::new(token) },
                priority,
                around,
                home,
            }
        })
    }
}

/// What a task has learned from its receiver.
struct Asked {
    env: NonNull<()>,
    token: ErasedStopToken,
    priority: Option<Priority>,
    around: Option<Awaiter>,
    home: Result<Home, OutOfMemory>,
}

impl<T: Send + 'static, E: Send + 'static, R: Receiver<T, E>, Cx: TaskContext> Operation
    for TaskOperation<T, E, R, Cx>
{
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: the operation is pinned and not started, by the contract of `start`.
        let Asked {
            env,
            token,
            priority,
            around,
            home,
        } = match unsafe { this.ask() } {
            Ok(asked) => asked,
            Err(payload) => return this.fail(payload),
        };
        let frame = this.frame;
        let home = home.unwrap_or_else(|error| {
            let why = format!("cannot start a task on a scheduler of your own: {error}");
            // SAFETY: the frame is owned by this operation, and started next.
            unsafe { Header::fail(frame, Panic::new(Box::new(why))) };
            Home::anywhere()
        });
        // SAFETY: the task that awaits this waits for it, and so does the context in which that began.
        let inside = around.map(|around| unsafe { (around.context.as_ref(), Header::unit(around.frame)) });
        let context = this.context.write(Context {
            placement: Placement {
                home,
                priority,
                scope: None,
            },
            token,
            outside: (env, look_in::<R::Env>),
            around,
            deadline: inside.and_then(|(context, _)| context.deadline),
            locals: inside.and_then(|(context, _)| context.locals),
            // SAFETY: the frame is owned by this operation.
            is_local: unsafe { Header::is_local(frame) },
        });
        let context = NonNull::from(context);
        let parent = inside.map_or(ptr::null(), |(_, unit)| unit.as_ptr().cast_const());
        let unit = NonNull::from(this.unit.write(Unit::new(parent)));
        // SAFETY: it is new. The context is valid until the task is done.
        unsafe {
            unit.as_ref().set_context(context);
            if let Some((_, outer)) = inside {
                unit.as_ref().follow(outer);
            }
        }
        this.is_unstarted = false;
        let this = NonNull::from(this).cast();
        // SAFETY: the operation is pinned, and with it the context, until the task is done.
        unsafe { Header::begin(frame, context, unit, Successor::operation(this, Self::complete)) }
    }
}

impl<T, E, R: Receiver<T, E>, Cx: TaskContext> fmt::Debug for TaskOperation<T, E, R, Cx> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskOperation").finish_non_exhaustive()
    }
}

impl<T: Send + 'static, E: Send + 'static, Cx: TaskContext> IntoFuture for Task<T, E, Cx> {
    type Output = Result<T, E>;
    type IntoFuture = TaskFuture<T, E>;

    #[inline]
    fn into_future(self) -> TaskFuture<T, E> {
        let frame = ManuallyDrop::new(self).frame;
        TaskFuture {
            // The frame knows its context, and that is all that needs to.
            stage: ManuallyDrop::new(Stage::Unstarted(Task {
                frame,
                _result: PhantomData,
            })),
        }
    }
}

/// A task that is awaited. Made by `.await`, or by [`IntoFuture::into_future`].
///
/// In another task it runs as part of that, on the same scheduler. In an executor of another crate it runs as a sender
/// does there, see [`SenderFuture`](crate::task::SenderFuture): the executor is its scheduler.
///
/// Dropped before it is done, it ends the task: its future is dropped where it runs, which asks what it awaits to stop. The drop
/// returns at once, and the task that awaited it does not end before that. In an executor of another crate the task goes no
/// further than the `.await` it is at.
///
/// # Panics
///
/// The task's panic unwinds. A task that stops stops the task that awaits it; where there is none, this panics:
/// [`stopped_as_option`](crate::Sender::stopped_as_option) and its like make a value of the stop. It also panics when it is
/// sent to another task after its first poll, and polled there before it is done.
#[must_use = "futures do nothing until they are awaited"]
#[derive(Debug)]
pub struct TaskFuture<T, E> {
    stage: ManuallyDrop<Stage<T, E>>,
}

#[derive(Debug)]
enum Stage<T, E> {
    Unstarted(Task<T, E>),
    /// A frame awaits it.
    Started(Task<T, E>),
    /// It was started outside of a task.
    Foreign(Foreign<T, E>),
    Over,
}

impl<T, E> Drop for TaskFuture<T, E> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(*self.stage, Stage::Over) {
            self.end();
        }
    }
}

impl<T, E> TaskFuture<T, E> {
    /// Takes the task back, if it was not started.
    pub(in crate::task) fn take_unstarted(&mut self) -> Option<Task<T, E>> {
        match mem::replace(&mut *self.stage, Stage::Over) {
            Stage::Unstarted(task) => Some(task),
            other => {
                *self.stage = other;
                None
            }
        }
    }

    /// Drops what is there.
    #[inline(never)]
    fn end(&mut self) {
        if let Stage::Started(task) = &*self.stage {
            // SAFETY: we own the frame; it was started, and we let go of it next.
            unsafe { Header::abandon(task.frame) };
        }
        // SAFETY: it is dropped this once: this is the drop of the whole.
        unsafe { ManuallyDrop::drop(&mut self.stage) };
    }
}

impl<T: Send + 'static, E: Send + 'static> Future for TaskFuture<T, E> {
    type Output = Result<T, E>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T, E>> {
        let Some(polling) = Polling::with_waker_of(cx) else {
            return self.poll_foreign(cx);
        };
        let frame = match mem::replace(&mut *self.stage, Stage::Over) {
            Stage::Unstarted(task) => {
                let frame = ManuallyDrop::new(task).frame;
                let mut room = MaybeUninit::<Completion<T, E>>::uninit();
                // SAFETY: the frame is ours, and was not started; there is room.
                let polled =
                    unsafe { Header::await_child(polling, frame, NonNull::new_unchecked(room.as_mut_ptr()).cast()) };
                if polled == Polled::Gone {
                    // SAFETY: the result was put there.
                    return conclude(polling, unsafe { room.assume_init() });
                }
                *self.stage = Stage::Started(Task {
                    frame,
                    _result: PhantomData,
                });
                if polled == Polled::Pending {
                    return Poll::Pending;
                }
                frame
            }
            Stage::Started(task) => {
                let frame = task.frame;
                *self.stage = Stage::Started(task);
                frame
            }
            other => {
                *self.stage = other;
                return self.poll_foreign(cx);
            }
        };
        // SAFETY: we own the frame, and it was started.
        if !unsafe { Header::is_done(frame) } {
            // SAFETY: as above.
            let began_here = unsafe { Header::is_parent(polling.frame(), frame) };
            assert!(
                began_here,
                "a task that is awaited was sent to another task: await it in the one where that began",
            );
            return Poll::Pending;
        }
        // The frame goes with the result.
        mem::forget(mem::replace(&mut *self.stage, Stage::Over));
        // SAFETY: it is done, and was ours.
        conclude(polling, unsafe { Header::take_awaited(polling.frame(), frame) })
    }
}

/// What the code that awaits a task gets to see.
#[inline]
fn conclude<T, E>(polling: Polling<'_>, completion: Completion<T, E>) -> Poll<Result<T, E>> {
    match completion {
        Completion::Value(value) => Poll::Ready(Ok(value)),
        Completion::Error(error) => Poll::Ready(Err(error)),
        Completion::Panicked(payload) => payload.resume(),
        Completion::Stopped => {
            polling.stop_here();
            Poll::Pending
        }
    }
}

impl<T: Send + 'static, E: Send + 'static> TaskFuture<T, E> {
    /// Polls outside of a task, or what was started there.
    #[cold]
    #[inline(never)]
    fn poll_foreign(&mut self, cx: &Cx<'_>) -> Poll<Result<T, E>> {
        let mut foreign = match mem::replace(&mut *self.stage, Stage::Over) {
            Stage::Unstarted(task) => Foreign::start(task),
            Stage::Foreign(foreign) => foreign,
            Stage::Over => return Poll::Pending,
            Stage::Started(task) => {
                let frame = task.frame;
                *self.stage = Stage::Started(task);
                // SAFETY: this owns the frame, which was started.
                if !unsafe { Header::is_done(frame) } {
                    // SAFETY: as above.
                    let began_here =
                        Header::current().is_some_and(|parent| unsafe { Header::is_parent(parent, frame) });
                    assert!(
                        began_here,
                        "a task that is awaited in a task was sent elsewhere: await it in the task where that began",
                    );
                    // Its end wakes the task that awaits it. What polls it now, in there, looks again.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                mem::forget(mem::replace(&mut *self.stage, Stage::Over));
                // SAFETY: it is done, and was ours.
                let completion = unsafe {
                    match Header::current() {
                        Some(parent) => Header::take_awaited(parent, frame),
                        None => Header::take(frame),
                    }
                };
                return Poll::Ready(foreign::conclude(completion));
            }
        };
        match foreign.poll(cx) {
            Poll::Ready(completion) => Poll::Ready(foreign::conclude(completion)),
            Poll::Pending => {
                *self.stage = Stage::Foreign(foreign);
                Poll::Pending
            }
        }
    }
}
