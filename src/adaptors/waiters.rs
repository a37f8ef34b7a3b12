//! The operations that wait for one event: the end of a shared run, or of a scope.

use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use crate::memory::{Links, List, links};
use crate::sender::stage::container_of;
use crate::stop::StopSlot;
use crate::sync::SpinLock;
use crate::{Completion, Env, Job, Operation, Receiver, Transfer};

/// A handle to the event that operations wait for.
///
/// # Safety
///
/// [`waiters`](Awaited::waiters) returns the same list for as long as one of its waiters has its handle.
/// [`result`](Awaited::result) may be called once the list was [taken](Waiters::take), or [`begin`](Awaited::begin) has
/// returned that the event is over. A handle may be used and dropped on any thread.
pub unsafe trait Awaited: Sized {
    /// The value type of the result.
    type Value;
    /// The error type of the result.
    type Error;
    /// The work of the first waiter.
    type Run;

    /// Returns the list of waiters, in the lock that protects it and their states.
    fn waiters(&self) -> &SpinLock<Waiters>;

    /// Decides whether a starting operation waits, and with which work. Called under the lock.
    fn begin(&self, waiters: &mut Waiters) -> Begin<Self::Run>;

    /// Runs that work, without the lock. The handle may be destroyed by then.
    fn run(run: Self::Run) -> Transfer;

    /// Notes that an operation has left the list. Called under the lock.
    fn left(&self, _: &mut Waiters) {}

    /// Returns the result of the event, and the transfer of releasing the handle.
    ///
    /// # Safety
    ///
    /// The event is over.
    unsafe fn result(self) -> (Completion<Self::Value, Self::Error>, Transfer);

    /// Releases the handle, and returns the transfer of that.
    fn give_back(self) -> Transfer;
}

/// The state of the event when an operation starts.
#[derive(Debug)]
pub enum Begin<U> {
    /// The event is over, and has a result.
    Over,
    /// The operation has to wait, and perhaps to run work.
    Wait(Option<U>),
}

/// The list of waiters, protected by its owner's lock, as the states of the waiters are.
pub struct Waiters {
    /// Oldest first.
    list: List<Waiter>,
    /// Whether the waiters were taken out.
    over: bool,
}

/// The node of an operation that waits: a field of that pinned operation.
struct Waiter {
    links: Links<Waiter>,
    state: WaiterState,
    /// Delivers the result.
    deliver: Job,
}

links!(Waiter, links);

/// The state of a waiter, protected by the lock. *Over* means that the owner has taken all waiters out.
///
/// | from | by | to |
/// |---|---|---|
/// | `Starting` | `start`, before it is over | `Waiting`, in the list |
/// | `Starting` | a stop | `Left`: `start` completes stopped |
/// | `Waiting` | a stop, before it is over | `Left`, out of the list: the stop completes |
/// | `Waiting` | the end | over: the job completes, a stop does nothing |
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaiterState {
    Starting,
    Waiting,
    Left,
}

/// All waiters of a list that is over: each is completed by its job alone.
pub(crate) struct Taken(List<Waiter>);

impl Waiters {
    pub(crate) const fn new() -> Self {
        Waiters {
            list: List::new(),
            over: false,
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns whether all waiters were taken out.
    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    /// # Safety
    ///
    /// The waiter is pinned and in no list. It is alive until it is taken out.
    unsafe fn link(&mut self, waiter: NonNull<Waiter>) {
        // SAFETY: the contract is that of `push_back`. The state is protected by the owner's lock, which the caller
        // holds.
        unsafe {
            (*waiter.as_ptr()).state = WaiterState::Waiting;
            self.list.push_back(waiter);
        }
    }

    /// Takes a waiter out because of a stop. Returns `true` if it was in the list: the stop then completes it.
    ///
    /// # Safety
    ///
    /// The waiter is alive, and of this list.
    unsafe fn leave(&mut self, waiter: NonNull<Waiter>) -> bool {
        // SAFETY: the waiter is alive, and its state is protected by the owner's lock, as this list is.
        let state = unsafe { &mut (*waiter.as_ptr()).state };
        match *state {
            WaiterState::Waiting if !self.over => {
                *state = WaiterState::Left;
                // SAFETY: the waiter waits, and was not taken out, so it is in the list.
                unsafe { self.list.remove(waiter) };
                true
            }
            WaiterState::Starting => {
                *state = WaiterState::Left;
                false
            }
            _ => false,
        }
    }

    /// Takes all waiters out: the event is over.
    pub(crate) const fn take(&mut self) -> Taken {
        self.over = true;
        Taken(self.list.take())
    }
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiters")
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

impl Taken {
    /// Returns the jobs that deliver, oldest first. Called without the lock.
    pub(crate) fn deliver(mut self) -> Transfer {
        let mut resumed = Transfer::none();
        while let Some(waiter) = self.0.pop_front() {
            // SAFETY: the waiter is completed by its job alone, which has not run. So the waiter is alive, and the job
            // is in no list.
            resumed.append(unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*waiter.as_ptr()).deliver)) });
        }
        resumed
    }
}

/// The operation that waits for an event.
pub struct WaitOperation<A: Awaited, R: Receiver<A::Value, A::Error>> {
    waiter: Waiter,
    slot: StopSlot<<R::Env as Env>::StopToken>,
    /// Taken, with the receiver, by the side that completes, after the slot was released or left.
    awaited: Option<A>,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<A: Awaited, R: Receiver<A::Value, A::Error>> WaitOperation<A, R> {
    pub(crate) fn new(awaited: Option<A>, receiver: R) -> Self {
        WaitOperation {
            waiter: Waiter {
                links: Links::new(),
                state: WaiterState::Starting,
                deliver: Job::new(Self::run),
            },
            slot: StopSlot::new(Self::stop_requested),
            awaited,
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }

    /// # Safety
    ///
    /// The job is that of a waiter that was taken out because the event is over.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a waiter, which is a field of an operation. From here on only this job
        // completes it.
        unsafe { Self::deliver(container_of!(container_of!(job, Waiter, deliver), Self, waiter)) }
    }

    /// # Safety
    ///
    /// The event is over, and the caller completes the operation. A stop callback that is running finds that, and does
    /// nothing.
    unsafe fn deliver(this: NonNull<Self>) -> Transfer {
        // SAFETY: `leave` waits for a stop callback that is running. After that this thread has exclusive access.
        let (awaited, receiver) = unsafe {
            this.as_ref().slot.leave();
            ((*this.as_ptr()).awaited.take(), (*this.as_ptr()).receiver.take())
        };
        let (Some(awaited), Some(receiver)) = (awaited, receiver) else {
            return Transfer::none();
        };
        // SAFETY: the event is over, by the contract.
        let (completion, resumed) = unsafe { awaited.result() };
        resumed.and(completion.deliver(receiver))
    }

    /// Completes stopped. The waiter is in no list, and the slot was left or released.
    fn leave(&mut self) -> Transfer {
        let (awaited, receiver) = (self.awaited.take(), self.receiver.take());
        self.slot.release();
        let resumed = awaited.map_or_else(Transfer::none, A::give_back);
        resumed.and(Completion::Stopped.deliver_to(receiver))
    }

    /// # Safety
    ///
    /// The slot is that of an operation that is starting or waits.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of an operation, which is alive until the slot is released or left. The handle is
        // taken only after that. Where the waiter has left the list, this callback completes the operation.
        unsafe {
            let this = container_of!(slot, Self, slot);
            let left = this.as_ref().awaited.as_ref().is_some_and(|awaited| {
                let mut waiters = awaited.waiters().lock();
                let left = waiters.leave(NonNull::new_unchecked(&raw mut (*this.as_ptr()).waiter));
                if left {
                    awaited.left(&mut waiters);
                }
                left
            });
            if left {
                return (*this.as_ptr()).leave();
            }
            slot.as_ref().release();
        }
        Transfer::none()
    }
}

impl<A: Awaited, R: Receiver<A::Value, A::Error>> Operation for WaitOperation<A, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved out of the pinned operation.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        // SAFETY: no other thread knows the operation yet.
        let token = match unsafe { (&(*this.as_ptr()).receiver, &(*this.as_ptr()).awaited) } {
            (Some(receiver), Some(_)) => receiver.env().stop_token(),
            _ => return Transfer::none(),
        };
        // SAFETY: the slot is pinned with the operation, and left or released before it completes.
        if !unsafe { StopSlot::listen(NonNull::new_unchecked(&raw mut (*this.as_ptr()).slot), token) } {
            // SAFETY: the operation does not listen, and its waiter is in no list.
            return unsafe { (*this.as_ptr()).leave() };
        }
        // SAFETY: the operation, with its handle, is alive until it is linked and the lock is released. It is pinned
        // until it has left the list. The state is protected by the lock.
        let begin = unsafe {
            let waiter = NonNull::new_unchecked(&raw mut (*this.as_ptr()).waiter);
            (*this.as_ptr()).awaited.as_ref().and_then(|awaited| {
                let mut waiters = awaited.waiters().lock();
                if (*waiter.as_ptr()).state == WaiterState::Left {
                    return None;
                }
                let begin = awaited.begin(&mut waiters);
                if let Begin::Wait(_) = begin {
                    waiters.link(waiter);
                }
                Some(begin)
            })
        };
        match begin {
            Some(Begin::Wait(None)) => Transfer::none(),
            Some(Begin::Wait(Some(run))) => A::run(run),
            // SAFETY: the event is over, and the waiter is in no list.
            Some(Begin::Over) => unsafe { Self::deliver(this) },
            // SAFETY: `leave` waits for the stop callback that has set `Left`. After that this thread has exclusive
            // access, and the waiter is in no list.
            None => unsafe {
                this.as_ref().slot.leave();
                (*this.as_ptr()).leave()
            },
        }
    }
}

crate::opaque!([A: Awaited, R: Receiver<A::Value, A::Error>] WaitOperation<A, R>);
