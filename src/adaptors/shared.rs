//! One run of a sender on the heap, and those who wait for its result: the state of `split` and `ensure_started`.

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::{PhantomData, PhantomPinned};
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::ptr::NonNull;

use super::waiters::{Waiter, WaiterState, Waiters};
use crate::memory::Count;
use crate::sender::child::{ChildReceiver, Parent, Waiting};
use crate::sender::dismantle::{DropList, DropNode};
use crate::sender::in_place::InPlace;
use crate::sender::stage::container_of;
use crate::stop::{InplaceStopSource, InplaceStopToken, StopSlot};
use crate::sync::SpinLock;
use crate::{Completion, EmptyEnv, Env, Job, Operation, Patched, Receiver, Sender, Transfer, WithStopToken};

/// The state on the heap.
///
/// Two counts keep it. `interested` counts the handles, and the operations that wait with one: when it falls to zero
/// while the sender runs, the sender is asked to stop. `references` counts one for all of those together, one for the
/// running sender, and one for a stop on its way: when it falls to zero, the memory goes.
#[repr(C)]
pub(super) struct Shared<S: Sender> {
    /// First, so that a handle finds it without knowing the sender.
    lose_interest: LoseInterest,
    /// Destroys the state.
    node: DropNode,
    /// Accessed by the thread that starts the sender, then by the completion of the operation; others use the rest of the
    /// state meanwhile.
    operation: InPlace<S, S::Operation<ChildReceiver<Self, 0>>>,
    /// What the sender sees. It comes after the operation, so that it is dropped after it.
    source: InplaceStopSource,
    /// Written by the completion, before the phase is `Done`; then only read, or taken by the one handle there is.
    completion: UnsafeCell<Option<Completion<S::Value, S::Error>>>,
    list: SpinLock<List>,
    interested: Count,
    references: Count,
    /// Requests the stop of the sender, from the loop of whoever lost the last interest.
    stop: Job,
}

/// # Safety
///
/// The pointer is to a [`Shared`] that has this function. One interest is given back.
type LoseInterest = unsafe fn(NonNull<()>) -> Transfer;

struct List {
    phase: Phase,
    waiters: Waiters,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The first who starts waiting starts the sender.
    Idle,
    Running,
    /// The completion is there; nobody waits any more.
    Done,
}

// SAFETY: the completion is `Send` by the bounds of `Handle::new`, and handed over through the lock; the operation is only
// destroyed, by its own completion.
unsafe impl<S: Sender> Parent<0> for Shared<S> {
    type Value = S::Value;
    type Error = S::Error;
    type Env = Patched<WithStopToken<InplaceStopToken<'static>>, EmptyEnv>;

    fn env(this: &Waiting<Self>) -> Self::Env {
        // SAFETY: the running sender keeps the memory, and so the source, until it has completed.
        let token = unsafe { this.parent().source.token().extend() };
        Patched::new(WithStopToken(token), EmptyEnv)
    }

    fn child_completed(this: Waiting<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        if !this.parent().operation.prefix.progress.completes() {
            return Transfer::none();
        }
        // SAFETY: the sender has completed.
        unsafe { Self::complete(this.as_ptr(), completion) }
    }
}

impl<S: Sender> Shared<S> {
    /// # Safety
    ///
    /// The phase was just set to `Running` by the caller, who added the running sender's reference.
    unsafe fn start(this: NonNull<Self>) -> Transfer {
        // SAFETY: the running sender's reference keeps the memory until it has completed, or was not connected. It is
        // pinned on the heap.
        unsafe {
            let operation = NonNull::new_unchecked(&raw mut (*this.as_ptr()).operation);
            match InPlace::connect(operation, |sender| sender.connect(ChildReceiver::<Self, 0>::new(this))) {
                Ok(()) => InPlace::start(operation),
                Err(completion) => Self::complete(this, completion),
            }
        }
    }

    /// Stores the completion and resumes the waiters.
    ///
    /// # Safety
    ///
    /// The phase is `Running` and the sender does not run, or no longer. The running sender's reference is given back.
    unsafe fn complete(this: NonNull<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        // SAFETY: the running sender has a reference. Nothing reads the completion before the phase is `Done`, and the
        // operation touches nothing of itself any more.
        unsafe {
            InPlace::clear(NonNull::new_unchecked(&raw mut (*this.as_ptr()).operation));
            *this.as_ref().completion.get() = Some(completion);
        }
        let waiters = {
            // SAFETY: as above.
            let mut list = unsafe { this.as_ref() }.list.lock();
            list.phase = Phase::Done;
            list.waiters.take()
        };
        // SAFETY: they were taken.
        let resumed = unsafe { waiters.deliver() };
        // SAFETY: the reference of the running sender is given back.
        unsafe { Self::release(this) };
        resumed
    }

    /// # Safety
    ///
    /// One reference is given back.
    unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the reference is still ours.
        if unsafe { this.as_ref() }.references.give_back() {
            // SAFETY: that was the last. The sender is `'static`, or has run and is gone.
            unsafe { DropNode::destroy(NonNull::new_unchecked(&raw mut (*this.as_ptr()).node)) };
        }
    }

    /// # Safety
    ///
    /// The node is that of a state that nothing uses any more.
    unsafe fn destroy(node: NonNull<DropNode>, list: &mut DropList<'_>) {
        // SAFETY: the node is a field of a state, which was leaked by `Handle::new`.
        let mut this = unsafe { Box::from_raw(container_of!(node, Self, node).as_ptr()) };
        this.operation.dismantle(list);
    }

    /// # Safety
    ///
    /// As for [`LoseInterest`].
    unsafe fn lose_interest(this: NonNull<()>) -> Transfer {
        let this = this.cast::<Self>();
        // SAFETY: the interest is still ours.
        let shared = unsafe { this.as_ref() };
        if !shared.interested.give_back() {
            return Transfer::none();
        }
        if shared.list.lock().phase == Phase::Running {
            // The reference of those who were interested goes with the job.
            // SAFETY: interest does not come back, so the job is handed out once, and the reference keeps it.
            return unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*this.as_ptr()).stop)) };
        }
        // SAFETY: the reference of those who were interested is given back.
        unsafe { Self::release(this) };
        Transfer::none()
    }

    /// # Safety
    ///
    /// The job is that of a state, with a reference.
    unsafe fn request_stop(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a state.
        let this = unsafe { container_of!(job, Self, stop) };
        // SAFETY: the job's reference keeps it, and is given back.
        unsafe {
            let resumed = this.as_ref().source.request_stop_later();
            Self::release(this);
            resumed
        }
    }
}

/// One interest in a shared run.
///
/// It asks nothing of `S`, so that it is `Send` wherever `S` is: of an `async` block that holds one the compiler wants to
/// know that with the lifetimes in `S` forgotten, and may not see then that it is a sender.
pub(super) struct Handle<S> {
    /// A [`Shared<S>`](Shared).
    shared: NonNull<()>,
    _sender: PhantomData<*mut S>,
}

// SAFETY: the state may be used on any thread: the sender is connected and started by one, value and error are `Send` by
// the bounds of `new`, and `Sync` where several read them.
unsafe impl<S: Send> Send for Handle<S> {}
// SAFETY: through a shared reference a handle is only cloned.
unsafe impl<S: Send> Sync for Handle<S> {}

impl<S: Sender<Value: Send, Error: Send>> Handle<S> {
    pub(super) fn new(sender: S) -> Self {
        let shared = Box::new(Shared {
            lose_interest: Shared::<S>::lose_interest,
            node: DropNode::new(Shared::<S>::destroy),
            operation: InPlace::new((), sender),
            source: InplaceStopSource::new(),
            completion: UnsafeCell::new(None),
            list: SpinLock::new(List {
                phase: Phase::Idle,
                waiters: Waiters::new(),
            }),
            interested: Count::one(),
            references: Count::one(),
            stop: Job::new(Shared::<S>::request_stop),
        });
        Handle {
            shared: NonNull::from(Box::leak(shared)).cast(),
            _sender: PhantomData,
        }
    }
}

impl<S: Sender> Handle<S> {
    fn shared(&self) -> NonNull<Shared<S>> {
        self.shared.cast()
    }

    /// Starts the sender, if nobody has yet.
    pub(super) fn start(&self) -> Transfer {
        // SAFETY: a handle keeps the state.
        let shared = unsafe { self.shared().as_ref() };
        {
            let mut list = shared.list.lock();
            if list.phase != Phase::Idle {
                return Transfer::none();
            }
            list.phase = Phase::Running;
            shared.references.add();
        }
        // SAFETY: the phase was just set.
        unsafe { Shared::start(self.shared()) }
    }

    /// Moves the state to `list`, where this is the last handle to a run that has not begun. Else the handle is dropped.
    pub(super) fn give_to<'a>(self, list: &mut DropList<'a>)
    where
        S: 'a,
    {
        // SAFETY: a handle keeps the state.
        let shared = unsafe { self.shared().as_ref() };
        // The last handle is this one, so no other can come. Pairs with the release of every other handle that was lost.
        if shared.interested.is_one() && shared.list.lock().phase == Phase::Idle {
            let this = ManuallyDrop::new(self);
            // SAFETY: nothing else uses the state: the reference of this handle is the only one before the run begins.
            // What the state borrows is what `S` borrows.
            unsafe { list.push(NonNull::new_unchecked(&raw mut (*this.shared().as_ptr()).node)) };
        }
    }

    pub(super) fn clone(&self) -> Self {
        // SAFETY: a handle keeps the state.
        unsafe { self.shared().as_ref() }.interested.add();
        Handle {
            shared: self.shared,
            _sender: PhantomData,
        }
    }
}

impl<S> Handle<S> {
    /// Gives the interest back, and returns what that resumes.
    fn give_back(self) -> Transfer {
        let this = ManuallyDrop::new(self);
        // SAFETY: it is given back this once.
        unsafe { this.lose() }
    }

    /// # Safety
    ///
    /// The handle is not used afterwards.
    unsafe fn lose(&self) -> Transfer {
        // SAFETY: the function comes first in what is there; the handle's interest is given back.
        unsafe { self.shared.cast::<LoseInterest>().read()(self.shared) }
    }
}

impl<S> Drop for Handle<S> {
    fn drop(&mut self) {
        // SAFETY: this is the end of it.
        unsafe { self.lose() }.run();
    }
}

impl<S> fmt::Debug for Handle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// How a waiter gets the completion.
pub trait Fetch<T, E> {
    /// The completion, of which this waiter gets its own.
    ///
    /// # Safety
    ///
    /// The completion is there. Where it is taken, the caller is the only one.
    unsafe fn fetch(completion: *mut Option<Completion<T, E>>) -> Completion<T, E>;
}

/// The operation of one who waits for a shared run.
pub struct WaitOperation<S, D, R>
where
    S: Sender,
    R: Receiver<S::Value, S::Error>,
{
    waiter: Waiter,
    slot: StopSlot<<R::Env as Env>::StopToken>,
    handle: Option<Handle<S>>,
    receiver: Option<R>,
    _fetch: PhantomData<fn() -> D>,
    _pinned: PhantomPinned,
}

impl<S, D, R> WaitOperation<S, D, R>
where
    S: Sender,
    D: Fetch<S::Value, S::Error>,
    R: Receiver<S::Value, S::Error>,
{
    pub(super) fn new(handle: Option<Handle<S>>, receiver: R) -> Self {
        WaitOperation {
            waiter: Waiter::new(Self::run),
            slot: StopSlot::new(Self::stop_requested),
            handle,
            receiver: Some(receiver),
            _fetch: PhantomData,
            _pinned: PhantomPinned,
        }
    }

    /// # Safety
    ///
    /// The job is that of a waiter whose run is `Done`.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a waiter, which is a field of an operation.
        let this = unsafe { container_of!(container_of!(job, Waiter, deliver), Self, waiter) };
        // SAFETY: from `Done` on only this touches the operation, but for a stop that looks and goes.
        unsafe { Self::deliver(this) }
    }

    /// # Safety
    ///
    /// The run is `Done`, and the caller completes the operation.
    unsafe fn deliver(this: NonNull<Self>) -> Transfer {
        // SAFETY: the slot outlives a stop that is looking; after this none does.
        unsafe { &(*this.as_ptr()).slot }.leave();
        // SAFETY: nobody else touches the operation.
        let (handle, receiver) = unsafe { ((*this.as_ptr()).handle.take(), (*this.as_ptr()).receiver.take()) };
        let (Some(handle), Some(receiver)) = (handle, receiver) else {
            return Transfer::none();
        };
        // SAFETY: the run is done, so the completion is there; the handle keeps it.
        let completion = unsafe { D::fetch(handle.shared().as_ref().completion.get()) };
        let resumed = handle.give_back();
        resumed.and(completion.deliver(receiver))
    }

    /// # Safety
    ///
    /// The caller completes the operation, which is in no list, with a stop.
    unsafe fn leave(this: NonNull<Self>) -> Transfer {
        // SAFETY: nobody else touches the operation.
        let (handle, receiver) = unsafe { ((*this.as_ptr()).handle.take(), (*this.as_ptr()).receiver.take()) };
        // SAFETY: as above. Whoever waits for the slot may go on from here.
        unsafe { &(*this.as_ptr()).slot }.release();
        let resumed = handle.map_or_else(Transfer::none, Handle::give_back);
        match receiver {
            Some(receiver) => resumed.and(receiver.set_stopped()),
            None => resumed,
        }
    }

    /// # Safety
    ///
    /// The slot is that of an operation that is starting or waits.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of an operation, which waits for the slot to be released before it goes.
        let this = unsafe { container_of!(slot, Self, slot) };
        // SAFETY: as above. The handle is taken only by who completes, which is after the slot is released.
        let left = unsafe {
            let Some(handle) = &(*this.as_ptr()).handle else {
                slot.as_ref().release();
                return Transfer::none();
            };
            let waiter = NonNull::new_unchecked(&raw mut (*this.as_ptr()).waiter);
            let mut list = handle.shared().as_ref().list.lock();
            let over = list.phase == Phase::Done;
            list.waiters.leave(waiter, over)
        };
        if left {
            // SAFETY: it is out of the list, so we complete it.
            unsafe { Self::leave(this) }
        } else {
            // SAFETY: whoever completes waits for this release.
            unsafe { slot.as_ref() }.release();
            Transfer::none()
        }
    }
}

impl<S, D, R> Operation for WaitOperation<S, D, R>
where
    S: Sender,
    D: Fetch<S::Value, S::Error>,
    R: Receiver<S::Value, S::Error>,
{
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        // SAFETY: nobody else knows the operation yet.
        let (token, shared) = match unsafe { (&(*this.as_ptr()).receiver, &(*this.as_ptr()).handle) } {
            (Some(receiver), Some(handle)) => (receiver.env().stop_token(), handle.shared()),
            _ => return Transfer::none(),
        };
        // SAFETY: the slot is pinned with the operation, and left or released before it completes.
        let slot = unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).slot) };
        // SAFETY: as above.
        if !unsafe { StopSlot::listen(slot, token) } {
            // SAFETY: it is in no list.
            return unsafe { Self::leave(this) };
        }
        enum Next {
            Wait,
            Start,
            Deliver,
            Leave,
        }
        let next = {
            // SAFETY: the handle keeps the state; once the waiter is linked and the lock is given back, the operation,
            // and its handle, may be gone.
            let shared = unsafe { shared.as_ref() };
            let mut list = shared.list.lock();
            // SAFETY: under the lock the waiter's state is ours.
            let waiter = unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).waiter) };
            // SAFETY: as above.
            match (unsafe { (*waiter.as_ptr()).state }, list.phase) {
                (WaiterState::Left, _) => Next::Leave,
                (_, Phase::Done) => Next::Deliver,
                (_, phase) => {
                    // SAFETY: the operation is pinned, and stays until it is out of the list.
                    unsafe { list.waiters.link(waiter) };
                    if phase == Phase::Idle {
                        list.phase = Phase::Running;
                        // For the running sender, which this thread starts.
                        shared.references.add();
                        Next::Start
                    } else {
                        Next::Wait
                    }
                }
            }
        };
        match next {
            Next::Wait => Transfer::none(),
            // SAFETY: the phase was just set; the running sender's reference keeps the state.
            Next::Start => unsafe { Shared::start(shared) },
            // SAFETY: the run is done, and the waiter in no list.
            Next::Deliver => unsafe { Self::deliver(this) },
            Next::Leave => {
                // SAFETY: the slot outlives the stop that set `Left`; after this it is over.
                unsafe { slot.as_ref() }.leave();
                // SAFETY: it is in no list.
                unsafe { Self::leave(this) }
            }
        }
    }
}

impl<S, D, R> fmt::Debug for WaitOperation<S, D, R>
where
    S: Sender,
    R: Receiver<S::Value, S::Error>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitOperation").finish_non_exhaustive()
    }
}
