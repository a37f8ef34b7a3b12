//! Senders and tasks that are awaited outside of a task: in an executor of another crate, or by something in a task that
//! polls with wakers of its own.
//!
//! There is no frame then to wait in, nor to wake. So the operation lives in one block on the heap, with a queue: that
//! is the scheduler which the sender sees. What is queued wakes the executor, and runs when it polls.

use core::any::{Any, TypeId};
use core::cell::{Cell, UnsafeCell};
use core::convert::Infallible;
use core::fmt;
use core::marker::{PhantomData, PhantomPinned};
use core::mem::{self, ManuallyDrop};
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll, Waker};
use std::boxed::Box;
use std::vec::Vec;

use crate::memory::Count;
use crate::scheduler::elsewhere;
use crate::scheduler::thread_pool::Entry;
use crate::sender::current;
use crate::sender::env::{Beneath, Look};
use crate::sender::native::{self, Native};
use crate::sender::stage::container_of;
use crate::sender::start;
use crate::stop::{Relay, StopToken, Why};
use crate::sync::{Mutex, lock, thread_id};
use crate::task::awaiting::await_sender::sent_elsewhere;
use crate::task::awaiting::environment::{self, TaskEnv};
use crate::task::frame::{self, Header, Home, Placement, Polling, Stopping};
use crate::task::strand::context::{Awaiter, Context};
use crate::task::strand::tether::{Tether, Tethered};
use crate::{Completion, Env, Identity, Job, Operation, Panic, Receiver, Scheduler, Sender, Transfer};

/// How often one poll looks for more in the queue before it lets the executor poll something else.
const ROUNDS: usize = 32;

/// What a block is, whatever is awaited in it.
struct Core {
    /// One for the future, one for the operation until it has completed, one for each scheduler handed out. The last
    /// frees the memory.
    count: Count,
    queue: Mutex<Queue>,
    /// Stopped when the future is dropped, and with the task that it began in, if it did in one.
    relay: Relay,
    /// The task that it began in, which counts it as an await, and the context there, of which it is a user; both until the
    /// operation has completed.
    around: Option<Awaiter>,
    /// Ties it to that task, which ends it when its own future is gone: the future that polls it may have been forgotten. Written
    /// before the operation is started.
    tether: Option<NonNull<Tether<Core>>>,
    /// The tether has its count. Belongs to the thread that polls that task, or that frees it.
    has_tether: Cell<bool>,
    /// Where the operation runs. Both point at this block, and are valid as long as it is.
    scheduler: Option<ForeignScheduler>,
    context: Option<Context>,
    vtable: &'static Vtable,
}

/// Who waits for what.
///
/// | field | set by | means |
/// |---|---|---|
/// | `waker` | the future, when it is pending; taken by the first to wake it | who is to be woken |
/// | `jobs` | whoever schedules | what the next poll runs |
/// | `frames` | whoever wakes a task | the same; told apart, since they are not polled but stopped when the future is dropped |
/// | `later` | whoever makes way while the future polls | what the next poll runs, and this one does not |
/// | `driver` | the future, while it polls or is dropped: its thread; zero after a look at the rest | no need to wake; what waits on that thread runs what is queued |
/// | `homed` | a local task that starts here, until it is done | dropped, the future ends these first, on this very thread |
/// | `done` | the completion, once the result is there | the future takes the result, or drops it |
/// | `stopping` | the future, when it is dropped before that | frames that are queued stop |
/// | `closed` | the future, when it has the result, or has run what was queued when it was dropped | no poll comes any more: what is scheduled runs on the global pool, the completion drops the result |
///
/// The lock is held for a look or a change, never while a job, a waker or anything of the user's runs. Of `done` and
/// `closed` one comes second: whoever sets that destroys the operation.
struct Queue {
    waker: Option<Waker>,
    jobs: Transfer,
    frames: Transfer,
    later: Transfer,
    driver: usize,
    homed: Vec<NonNull<Header>>,
    done: bool,
    stopping: bool,
    closed: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.jobs.is_none() && self.frames.is_none()
    }

    fn take(&mut self) -> Transfer {
        mem::take(&mut self.jobs).and(mem::take(&mut self.frames))
    }

    /// What was to run later is next.
    fn turn(&mut self) {
        self.jobs.append(mem::take(&mut self.later));
    }

    /// Has frames stop instead of going on, those that are queued and those that will be.
    fn stop_frames(&mut self) {
        self.stopping = true;
        let mut stopped = Transfer::none();
        while let Some(frame) = self.frames.pop() {
            // SAFETY: it is the first field of a frame, which is queued and so not done. It is in no list now.
            stopped.append(unsafe {
                Header::stop(frame.cast());
                Transfer::to(frame)
            });
        }
        self.frames = stopped;
    }
}

/// What is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Job,
    /// The same, of somebody who makes way.
    Patient,
    Frame,
}

/// What is known of the type of a block.
struct Vtable {
    /// Destroys the operation, and what is left of its result. May be called again.
    clear: unsafe fn(NonNull<Core>),
    /// Frees the memory.
    free: unsafe fn(NonNull<Core>),
}

impl Core {
    /// The operation has completed, left its result, and no stop is being passed on.
    ///
    /// # Safety
    ///
    /// The relay is that of a block of which the caller has a count. This is called once.
    unsafe fn completed(relay: NonNull<Relay>) -> Transfer {
        // SAFETY: the caller's promise.
        let this = unsafe { container_of!(relay, Core, relay) };
        // The count that the completion has left for this.
        let handle = Handle(this);
        let core = handle.core();
        if let Some(tether) = core.tether {
            // SAFETY: the task counts this until the end. What finds it done may have untied it, so that comes later.
            unsafe { Tether::loosen(tether) };
        }
        let (waker, closed) = {
            let mut queue = lock(&core.queue);
            queue.done = true;
            (if queue.driver != 0 { None } else { queue.waker.take() }, queue.closed)
        };
        if closed {
            // SAFETY: it was closed before it was done, so it is for the completion to do. That may destroy its operation.
            unsafe { (core.vtable.clear)(this) };
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        match core.around {
            // SAFETY: the frame counts this until now, and so its context is valid.
            Some(around) => unsafe {
                around.context.as_ref().exit();
                Header::end_wait(around.frame, |_| false)
            },
            None => Transfer::none(),
        }
    }

    /// Has an entry run by the next poll, or on the global pool if there is none to come: not right here, which may be
    /// the middle of a wake by somebody who holds a lock.
    ///
    /// # Safety
    ///
    /// The entry is in no list, and stays where it is until it runs. The caller is counted until then. It is that of a
    /// frame if `kind` says so.
    unsafe fn push(this: NonNull<Core>, entry: NonNull<Entry>, kind: Kind) -> Transfer {
        // It may run before this returns, and whoever is counted may be gone then.
        // SAFETY: the caller is counted.
        let handle = unsafe { Handle::of(this) };
        let waker = {
            let mut queue = lock(&handle.core().queue);
            if kind == Kind::Frame && queue.stopping {
                // SAFETY: it is the first field of a frame, which is about to be queued, and so not done.
                unsafe { Header::stop(entry.cast()) };
            }
            if queue.closed {
                drop(queue);
                // SAFETY: by the caller's promise.
                return unsafe { elsewhere(entry) };
            }
            // SAFETY: as above.
            let job = unsafe { Transfer::to(entry.cast()) };
            match kind {
                Kind::Frame => queue.frames.append(job),
                Kind::Patient if queue.driver != 0 => queue.later.append(job),
                Kind::Patient | Kind::Job => queue.jobs.append(job),
            }
            if queue.driver != 0 { None } else { queue.waker.take() }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Transfer::none()
    }
}

// SAFETY: the reference is one of the block's count.
unsafe impl Tethered for Core {
    unsafe fn abandon(this: NonNull<Self>, _: Polling<'_>) -> Transfer {
        // SAFETY: the tether has a count.
        unsafe { Handle::of(this) }.give_up();
        Transfer::none()
    }

    unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the caller's promise: this is the count of the tether.
        let handle = Handle(this);
        handle.core().has_tether.set(false);
    }
}

/// One count of a block.
struct Handle(NonNull<Core>);

// SAFETY: what is in the core is atomics, a lock, and what does not change. Jobs may run on any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// # Safety
    ///
    /// The caller is counted.
    unsafe fn of(core: NonNull<Core>) -> Self {
        // SAFETY: so it is there.
        unsafe { core.as_ref() }.count.add();
        Handle(core)
    }

    fn core(&self) -> &Core {
        // SAFETY: a handle is counted.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.core().count.release() {
            // SAFETY: that was the last count.
            unsafe { (self.core().vtable.free)(self.0) };
        }
    }
}

/// A block, without the type of the sender in it.
#[repr(C)]
struct Shared<T, E> {
    core: Core,
    /// Written by the completion before it says that it is done; then it belongs to whoever destroys the operation.
    result: UnsafeCell<Option<Completion<T, E>>>,
}

#[repr(C)]
struct Block<S: Sender<Value: Send, Error: Send>> {
    shared: Shared<S::Value, S::Error>,
    operation: UnsafeCell<Option<ForeignOperationOf<S>>>,
}

type ForeignOperationOf<S> = <S as Sender>::Operation<ForeignReceiver<<S as Sender>::Value, <S as Sender>::Error>>;

impl<S: Sender<Value: Send, Error: Send>> Block<S> {
    const VTABLE: &'static Vtable = &Vtable {
        clear: Self::clear,
        free: Self::free,
    };

    /// # Safety
    ///
    /// The core is that of such a block, whose operation has completed, and nobody else does this.
    unsafe fn clear(core: NonNull<Core>) {
        // SAFETY: by the caller's promise; the core comes first.
        let this = unsafe { core.cast::<Self>().as_ref() };
        // SAFETY: as above. The operation touches nothing of itself any more, and is dropped in place.
        unsafe {
            *this.operation.get() = None;
            drop((*this.shared.result.get()).take());
        }
    }

    /// # Safety
    ///
    /// Nobody uses the block any more.
    unsafe fn free(core: NonNull<Core>) {
        // SAFETY: by the caller's promise; it was leaked from a box.
        drop(unsafe { Box::from_raw(core.cast::<Self>().as_ptr()) });
    }
}

/// A sender that was started outside of a task.
pub(in crate::task) struct Foreign<T, E> {
    block: Handle,
    _result: PhantomData<fn() -> (T, E)>,
}

impl<T: Send, E: Send> Foreign<T, E> {
    /// Starts a sender: it is polled next, right away.
    ///
    /// Where this thread polls a task, it begins as part of that: it sees the task's cancellation, values and deadline, and the
    /// task does not end before it has. Only its scheduler is that of the code that polls it. A destructor of a task that ends by
    /// a stop or a panic may block on something: that is no part of the task, which could not be stopped once more.
    pub(in crate::task) fn start<S>(sender: S) -> Self
    where
        S: Sender<Value = T, Error = E> + 'static,
    {
        Polling::with(|polling| Self::start_in(sender, polling.filter(|polling| !polling.is_unwinding())))
    }

    fn start_in<S>(sender: S, polling: Option<Polling<'_>>) -> Self
    where
        S: Sender<Value = T, Error = E> + 'static,
    {
        let around = polling.map(|polling| Awaiter {
            frame: polling.frame(),
            context: NonNull::from(polling.context()),
        });
        let block = NonNull::from(Box::leak(Box::new(Block::<S> {
            shared: Shared {
                core: Core {
                    count: Count::one(),
                    queue: Mutex::new(Queue {
                        waker: None,
                        jobs: Transfer::none(),
                        frames: Transfer::none(),
                        later: Transfer::none(),
                        driver: thread_id(),
                        homed: Vec::new(),
                        done: false,
                        stopping: false,
                        closed: false,
                    }),
                    relay: Relay::new(Core::completed),
                    around,
                    tether: None,
                    has_tether: Cell::new(false),
                    scheduler: None,
                    context: None,
                    vtable: Block::<S>::VTABLE,
                },
                result: UnsafeCell::new(None),
            },
            operation: UnsafeCell::new(None),
        })));
        let core = block.cast::<Core>();
        let this = Foreign {
            block: Handle(core),
            _result: PhantomData,
        };
        // SAFETY: nobody else knows the block yet. What points back at it is in it.
        unsafe {
            let token = core.as_ref().relay.token();
            let scheduler = (*core.as_ptr())
                .scheduler
                .insert(ForeignScheduler { core, counted: false });
            let outside: (_, Look) = (core.cast(), LocalHome::look);
            let mut inside = Context::new(Home::of_queue(scheduler).unwrap_or_else(Home::anywhere), token, outside);
            if let Some((around, polling)) = around.zip(polling) {
                match Tether::tie(core, polling) {
                    Ok(tether) => (*core.as_ptr()).tether = Some(tether),
                    Err(error) => {
                        // It is not part of the task, and does not wake it.
                        (*core.as_ptr()).around = None;
                        panic!("a task cannot go on: {error}");
                    }
                }
                mem::forget(Handle::of(core));
                core.as_ref().has_tether.set(true);
                let task = polling.context();
                task.enter();
                polling.count_wait();
                Relay::link(NonNull::new_unchecked(&raw mut (*core.as_ptr()).relay), task.token);
                inside = Context {
                    placement: Placement {
                        priority: polling.level(),
                        ..inside.placement
                    },
                    around: Some(around),
                    deadline: task.deadline,
                    locals: task.locals,
                    is_local: task.is_local,
                    ..inside
                };
            }
            (*core.as_ptr()).context = Some(inside);
        }
        let receiver = ForeignReceiver {
            // SAFETY: this is the count of the operation; its receiver gives it back.
            block: unsafe { Handle::of(core) },
            _result: PhantomData,
        };
        // SAFETY: the block does not move, and the operation stays in it until it has completed. It is started once.
        unsafe {
            let place = block.as_ref().operation.get();
            *place = Some(sender.connect(receiver));
            if let Some(operation) = &mut *place {
                start(Pin::new_unchecked(operation)).run();
            }
        }
        this
    }

    /// Runs what is queued, and looks whether the result is there. Not to be called again once it was.
    pub(in crate::task) fn poll(&mut self, cx: &Cx<'_>) -> Poll<Completion<T, E>> {
        let core = self.block.core();
        if let Some(around) = core.around
            && !Header::is_current(around.frame)
            && !lock(&core.queue).done
        {
            sent_elsewhere();
        }
        // Who schedules or completes between this and the next look finds nobody to wake, and need not.
        let registered = lock(&core.queue).waker.take();
        let waker = match registered {
            Some(waker) if waker.will_wake(cx.waker()) => waker,
            _ => cx.waker().clone(),
        };
        let me = thread_id();
        for round in 0.. {
            let mut queue = lock(&core.queue);
            if queue.done {
                drop(queue);
                return Poll::Ready(self.finish());
            }
            let pause = queue.is_empty() || round == ROUNDS;
            queue.driver = if pause { 0 } else { me };
            if !pause {
                let jobs = queue.take();
                drop(queue);
                run_queued(jobs);
            } else if queue.is_empty() && queue.later.is_none() {
                queue.waker = Some(waker);
                break;
            } else {
                queue.turn();
                drop(queue);
                waker.wake();
                break;
            }
        }
        Poll::Pending
    }

    /// Takes the result, which is there.
    fn finish(&mut self) -> Completion<T, E> {
        self.block.untie();
        let (left, first, _) = self.block.close();
        left.run();
        if !first {
            // The task that it began in has ended, and the result was dropped.
            return Completion::Stopped;
        }
        // SAFETY: the operation has completed, so the result is ours. It is moved out before the operation is dropped,
        // which may panic.
        let result = unsafe { (*self.block.0.cast::<Shared<T, E>>().as_ref().result.get()).take() };
        // SAFETY: as above.
        unsafe { (self.block.core().vtable.clear)(self.block.0) };
        result.unwrap_or(Completion::Stopped)
    }
}

impl Handle {
    /// No poll comes any more. What is queued is the caller's to run. The flags say that it was not closed before, and that it was
    /// done before.
    fn close(&self) -> (Transfer, bool, bool) {
        let mut queue = lock(&self.core().queue);
        let first = !mem::replace(&mut queue.closed, true);
        queue.turn();
        (queue.take(), first, queue.done)
    }

    /// Unties it from the task that it began in, if this thread polls that. It has completed.
    fn untie(&self) {
        let core = self.core();
        if let (Some(around), Some(tether)) = (core.around, core.tether)
            && Header::is_current(around.frame)
            && core.has_tether.get()
        {
            // SAFETY: this is what the poll of the task is running. It was not untied. The completion does not use it any more.
            unsafe { Tether::untie(tether) };
        }
    }

    /// No poll comes any more, and the result was not taken: stops what has not completed, and leaves the rest to itself.
    fn give_up(&self) {
        let core = self.core();
        let (waker, done) = {
            let mut queue = lock(&core.queue);
            if queue.closed {
                return;
            }
            if !queue.done {
                queue.stop_frames();
            }
            queue.driver = thread_id();
            (queue.waker.take(), queue.done)
        };
        drop(waker);
        if !done {
            self.end_homed();
            self.stop();
        }
        let (mut left, first, done) = self.close();
        while let Some(job) = left.pop() {
            // SAFETY: it is that of an entry, as all that are queued are, and in no list any more.
            unsafe { elsewhere(job.cast()) }.run();
        }
        if first && done {
            // SAFETY: it was done before it was closed, so it is for us to do.
            unsafe { (core.vtable.clear)(self.0) };
        }
    }

    /// Stops what has not completed, and runs what is queued, and what comes of it, since nobody polls any more.
    #[cold]
    fn stop(&self) {
        let core = self.core();
        core.relay
            .request_stop(Why::SCOPE_LEFT.here())
            .unwrap_or_default()
            .run();
        let mut rounds = 0;
        loop {
            let mut queue = lock(&core.queue);
            queue.turn();
            // Local tasks cannot be left to another thread: their futures are dropped here.
            if queue.is_empty() || rounds >= ROUNDS && queue.homed.is_empty() {
                return;
            }
            let jobs = queue.take();
            drop(queue);
            run_queued(jobs);
            rounds += 1;
        }
    }

    /// Makes local tasks drop their futures, on this thread. What those leave in flight ends by itself.
    fn end_homed(&self) {
        let homed = lock(&self.core().queue).homed.clone();
        for frame in homed {
            // SAFETY: it is noted as long as it is not done, and only this thread drops its future. A wake only queues it.
            unsafe {
                Header::stop(frame);
                frame::waker(frame).wake_by_ref();
            }
        }
    }
}

/// Runs what was queued, as the scheduler that it was queued with.
fn run_queued(jobs: Transfer) {
    let _hidden = current::Hidden::driver();
    jobs.run();
}

impl<T, E> Drop for Foreign<T, E> {
    fn drop(&mut self) {
        self.block.give_up();
        let core = self.block.core();
        let done = lock(&core.queue).done;
        match core.around {
            _ if done => self.block.untie(),
            Some(around) => Polling::with_frame(around.frame, |polling| _ = polling.map(Polling::add_orphan)),
            None => {}
        }
    }
}

impl<T, E> fmt::Debug for Foreign<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign").finish_non_exhaustive()
    }
}

/// The receiver of a sender that is awaited outside of a task. It keeps the block.
pub(in crate::task) struct ForeignReceiver<T, E> {
    block: Handle,
    _result: PhantomData<fn() -> (T, E)>,
}

impl<T, E> ForeignReceiver<T, E> {
    fn complete(self, completion: Completion<T, E>) -> Transfer {
        let this = ManuallyDrop::new(self);
        // SAFETY: it is moved out, and this is not dropped.
        let block = unsafe { (&raw const this.block).read() };
        Self::deliver(block, completion)
    }

    /// The one completion.
    fn deliver(block: Handle, completion: Completion<T, E>) -> Transfer {
        // SAFETY: the result is not looked at before it is done. The relay is ended this once; the stop that may still be passed
        // on keeps the block by a count of its own.
        unsafe {
            *block.0.cast::<Shared<T, E>>().as_ref().result.get() = Some(completion);
            // Given up when it is over.
            mem::forget(Handle::of(block.0));
            Relay::end(NonNull::new_unchecked(&raw mut (*block.0.as_ptr()).relay))
        }
    }
}

impl<T: Send, E: Send> Receiver<T, E> for ForeignReceiver<T, E> {
    type Env = TaskEnv;

    fn env(&self) -> TaskEnv {
        match &self.block.core().context {
            // SAFETY: the block is there until the completion.
            Some(context) => unsafe { TaskEnv::of_foreign(NonNull::from(context)) },
            None => environment::anywhere(),
        }
    }

    fn set_value(self, value: T) -> Transfer {
        self.complete(Completion::Value(value))
    }

    fn set_error(self, error: E) -> Transfer {
        self.complete(Completion::Error(error))
    }

    fn set_stopped(self) -> Transfer {
        self.complete(Completion::Stopped)
    }

    fn set_panicked(self, payload: Panic) -> Transfer {
        self.complete(Completion::Panicked(payload))
    }
}

impl<T, E> Drop for ForeignReceiver<T, E> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: this count is given up after that.
        Self::deliver(unsafe { Handle::of(self.block.0) }, Completion::Stopped).run();
    }
}

impl<T, E> fmt::Debug for ForeignReceiver<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignReceiver").finish_non_exhaustive()
    }
}

/// What whoever awaits outside of a task gets to see.
pub(in crate::task) fn conclude<T, E>(completion: Completion<T, E>) -> Result<T, E> {
    match completion {
        Completion::Value(value) => Ok(value),
        Completion::Error(error) => Err(error),
        Completion::Panicked(payload) => payload.resume(),
        Completion::Stopped => Polling::with(|polling| match polling {
            Some(polling) if !polling.is_unwinding() => Stopping::unwind(polling),
            _ => panic!(
                "what was awaited outside of a task has stopped, and there is no task to stop with it: \
                 await it with `.stopped_as_option()`, `.stopped_as_error(..)` or `.into_outcome()`"
            ),
        }),
    }
}

/// Where a local task notes its frame: in the block whose scheduler it runs on. It finds it in the environment there.
pub(in crate::task) struct LocalHome(Handle);

impl Clone for LocalHome {
    fn clone(&self) -> Self {
        // SAFETY: a handle is counted.
        LocalHome(unsafe { Handle::of(self.0.0) })
    }
}

impl LocalHome {
    /// # Safety
    ///
    /// The place is the core of a block.
    unsafe fn look(place: NonNull<()>, id: TypeId, found: &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'static>> {
        if id == TypeId::of::<LocalHome>() {
            // SAFETY: by the caller's promise, and the caller is counted.
            found(&LocalHome(unsafe { Handle::of(place.cast()) }));
            return None;
        }
        // SAFETY: as above. The context of the task that it began in is valid until the operation has completed.
        let (place, look) = unsafe { place.cast::<Core>().as_ref().around?.context.as_ref() }.outside;
        // SAFETY: as above.
        Some(unsafe { Beneath::new(place, look) })
    }

    /// Whether this is the scheduler of the block.
    ///
    /// A wrapper that forwards its queue counts too: frames come to the same place.
    pub(in crate::task) fn is_scheduler<S: Scheduler>(&self, scheduler: &S) -> bool {
        let own = Identity::of_queue([self.0.0.as_ptr().addr(), 0]);
        scheduler.native().is_some_and(|queue| queue.identity() == own)
    }

    /// Whether the calling thread is the one that polls.
    pub(in crate::task) fn is_here(&self) -> bool {
        lock(&self.0.core().queue).driver == thread_id()
    }

    /// Notes a frame, until what is returned is dropped.
    ///
    /// # Safety
    ///
    /// Until then the frame is not done, or is just being completed on the thread that polls.
    pub(in crate::task) unsafe fn note(self, frame: NonNull<Header>) -> Noted {
        {
            let mut queue = lock(&self.0.core().queue);
            queue.homed.push(frame);
            if queue.stopping {
                // It came too late, and is dropped by its first poll.
                // SAFETY: by the caller's promise.
                unsafe { Header::stop(frame) };
            }
        }
        Noted { home: self, frame }
    }
}

/// A frame that is noted.
pub(in crate::task) struct Noted {
    home: LocalHome,
    frame: NonNull<Header>,
}

// SAFETY: the frame is only compared with.
unsafe impl Send for Noted {}

impl Drop for Noted {
    fn drop(&mut self) {
        let mut queue = lock(&self.home.0.core().queue);
        if let Some(at) = queue.homed.iter().position(|frame| *frame == self.frame) {
            queue.homed.swap_remove(at);
        }
    }
}

/// The scheduler of what is awaited outside of a task: it runs when the executor polls.
struct ForeignScheduler {
    core: NonNull<Core>,
    /// All are counted but that in the block itself.
    counted: bool,
}

// SAFETY: as for a handle.
unsafe impl Send for ForeignScheduler {}
// SAFETY: as above.
unsafe impl Sync for ForeignScheduler {}

impl ForeignScheduler {
    fn handle(&self) -> Handle {
        // SAFETY: it is counted, or in the block.
        unsafe { Handle::of(self.core) }
    }
}

impl Clone for ForeignScheduler {
    fn clone(&self) -> Self {
        ForeignScheduler {
            core: ManuallyDrop::new(self.handle()).0,
            counted: true,
        }
    }
}

impl Drop for ForeignScheduler {
    fn drop(&mut self) {
        if self.counted {
            drop(Handle(self.core));
        }
    }
}

impl PartialEq for ForeignScheduler {
    fn eq(&self, other: &Self) -> bool {
        self.core == other.core
    }
}

impl fmt::Debug for ForeignScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ForeignScheduler").field(&self.core).finish()
    }
}

impl Scheduler for ForeignScheduler {
    type Schedule = ForeignSchedule;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> ForeignSchedule {
        ForeignSchedule {
            block: self.handle(),
            kind: Kind::Job,
        }
    }

    fn native(&self) -> Option<Native<'_>> {
        Some(Native::of(self))
    }
}

impl native::Queue for ForeignScheduler {
    unsafe fn enqueue(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first of a frame's entry, and in no queue, by the contract of `enqueue`. The handle is valid
        // until then; it is counted, or in the block.
        unsafe { Core::push(this.as_ref().core, job.cast(), Kind::Frame) }
    }

    /// What yields is not run by the poll that it is queued in.
    unsafe fn enqueue_last(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: the same holds but for the frame, which this kind does not ask for.
        unsafe { Core::push(this.as_ref().core, job.cast(), Kind::Patient) }
    }

    fn identity(&self) -> [usize; 2] {
        [self.core.as_ptr().addr(), 0]
    }
}

/// The schedule sender of a [`ForeignScheduler`].
struct ForeignSchedule {
    block: Handle,
    kind: Kind,
}

// SAFETY: the operation touches nothing after the push, nor after its completion; it is `!Unpin`.
unsafe impl Sender for ForeignSchedule {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = ForeignOperation<R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> ForeignOperation<R> {
        ForeignOperation {
            entry: Entry::new(ForeignOperation::<R>::run),
            block: Some(self.block),
            kind: self.kind,
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

/// The operation of [`ForeignSchedule`].
struct ForeignOperation<R> {
    entry: Entry,
    /// Taken by `start`.
    block: Option<Handle>,
    kind: Kind,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<R: Receiver<(), Infallible>> ForeignOperation<R> {
    /// # Safety
    ///
    /// The job is that of a started operation, and runs once.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first of an entry, which is a field of an operation.
        let this = unsafe { container_of!(job, Self, entry) };
        // SAFETY: it is out of the queue, so nobody else touches the operation.
        match unsafe { (*this.as_ptr()).receiver.take() } {
            Some(receiver) if receiver.env().stop_token().stop_requested() => receiver.set_stopped(),
            Some(receiver) => receiver.set_value(()),
            None => Transfer::none(),
        }
    }
}

impl<R: Receiver<(), Infallible>> Operation for ForeignOperation<R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved but the handle, which is not pinned.
        let this = unsafe { self.get_unchecked_mut() } as *mut Self;
        // SAFETY: the operation is there until its job runs.
        let (Some(block), kind) = (unsafe { ((*this).block.take(), (*this).kind) }) else {
            return Transfer::none();
        };
        // SAFETY: the entry is pinned with the operation, which stays until its job has completed it. We are counted.
        unsafe { Core::push(block.0, NonNull::new_unchecked(&raw mut (*this).entry), kind) }
    }
}
