//! The operations that wait for one and the same thing: a shared run, or the end of a scope.

use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use crate::memory::{Links, List, links};
use crate::sender::stage::container_of;
use crate::stop::StopSlot;
use crate::sync::SpinLock;
use crate::{Completion, Env, Job, Operation, Receiver, Transfer};

/// A handle to what operations wait for.
///
/// # Safety
///
/// [`waiters`](Awaited::waiters) is the same for as long as one of its waiters has its handle. Once it was
/// [taken](Waiters::take), [`result`](Awaited::result) may be called, and so it may where [`begin`](Awaited::begin) has
/// said that it is over. A handle may be used and dropped on any thread.
pub unsafe trait Awaited: Sized {
    /// The value that comes out in the end.
    type Value;
    /// The error that comes out in the end.
    type Error;
    /// What is to be run by the first who waits.
    type Run;

    /// The list of those who wait, in the lock that protects it and their states.
    fn waiters(&self) -> &SpinLock<Waiters>;

    /// An operation starts, and has the lock. Where it has to wait, it gets what it has to run when it does.
    fn begin(&self, waiters: &mut Waiters) -> Begin<Self::Run>;

    /// Runs that, without the lock, when the handle may be gone.
    fn run(run: Self::Run) -> Transfer;

    /// An operation has left the list, and has the lock.
    fn left(&self, _: &mut Waiters) {}

    /// What came of it, and what giving the handle back resumes.
    ///
    /// # Safety
    ///
    /// It is over.
    unsafe fn result(self) -> (Completion<Self::Value, Self::Error>, Transfer);

    /// Gives the handle back, and returns what that resumes.
    fn give_back(self) -> Transfer;
}

/// What an operation finds when it starts.
#[derive(Debug)]
pub enum Begin<U> {
    /// It is over: there is a result.
    Over,
    /// It has to wait, and perhaps to run something.
    Wait(Option<U>),
}

/// The list. Its owner keeps it in a lock, which also protects the states of the waiters.
pub struct Waiters {
    /// Oldest first.
    list: List<Waiter>,
    /// Whether the waiters were taken out.
    over: bool,
}

/// One that waits, as far as the list knows: a field of a pinned operation.
struct Waiter {
    links: Links<Waiter>,
    state: WaiterState,
    /// Delivers what was waited for.
    deliver: Job,
}

links!(Waiter, links);

/// All of it under the lock. *Over* is what the owner says when it takes everybody out.
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

    /// Whether all waiters were taken out.
    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    /// # Safety
    ///
    /// The waiter is pinned and in no list. It stays valid until it is taken out.
    unsafe fn link(&mut self, waiter: NonNull<Waiter>) {
        // SAFETY: the caller's promise is that of `push_back`. The state is protected by the owner's lock.
        unsafe {
            (*waiter.as_ptr()).state = WaiterState::Waiting;
            self.list.push_back(waiter);
        }
    }

    /// Takes a waiter out that a stop has come for. Returns `true` where it was in the list: the stop completes it.
    ///
    /// # Safety
    ///
    /// The waiter is valid, and of this list.
    unsafe fn leave(&mut self, waiter: NonNull<Waiter>) -> bool {
        // SAFETY: the waiter is valid, and its state is protected by the owner's lock, as this list is.
        let state = unsafe { &mut (*waiter.as_ptr()).state };
        match *state {
            WaiterState::Waiting if !self.over => {
                *state = WaiterState::Left;
                // SAFETY: it waits, and was not taken out, so it is in the list.
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

    /// Takes all waiters out: it is over.
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
            // SAFETY: the waiter is completed by its job alone, which has not run, so it is valid, and the job is in no list.
            resumed.append(unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*waiter.as_ptr()).deliver)) });
        }
        resumed
    }
}

/// The operation of one who waits.
pub struct WaitOperation<A: Awaited, R: Receiver<A::Value, A::Error>> {
    waiter: Waiter,
    slot: StopSlot<<R::Env as Env>::StopToken>,
    /// Taken, with the receiver, by what completes: after the slot was released or left.
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
    /// The job is that of a waiter that was taken out because it is over.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a waiter, which is a field of an operation. From now on only this completes it.
        unsafe { Self::deliver(container_of!(container_of!(job, Waiter, deliver), Self, waiter)) }
    }

    /// # Safety
    ///
    /// It is over, and the caller completes the operation, but for a stop that looks and goes.
    unsafe fn deliver(this: NonNull<Self>) -> Transfer {
        // SAFETY: the slot outlives a stop that is looking. After that this has exclusive access.
        let (awaited, receiver) = unsafe {
            this.as_ref().slot.leave();
            ((*this.as_ptr()).awaited.take(), (*this.as_ptr()).receiver.take())
        };
        let (Some(awaited), Some(receiver)) = (awaited, receiver) else {
            return Transfer::none();
        };
        // SAFETY: it is over, by the caller's promise.
        let (completion, resumed) = unsafe { awaited.result() };
        resumed.and(completion.deliver(receiver))
    }

    /// Completes with a stop. The waiter is in no list, and the slot was left, or is released by this.
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
        // SAFETY: the slot is a field of an operation, which waits for the slot to be released before it goes. The handle is
        // taken only after that. Where the waiter has left the list, this completes the operation.
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
        // SAFETY: nothing is moved.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        // SAFETY: nothing else has access to the operation yet.
        let token = match unsafe { (&(*this.as_ptr()).receiver, &(*this.as_ptr()).awaited) } {
            (Some(receiver), Some(_)) => receiver.env().stop_token(),
            _ => return Transfer::none(),
        };
        // SAFETY: the slot is pinned with the operation, and left or released before it completes.
        if !unsafe { StopSlot::listen(NonNull::new_unchecked(&raw mut (*this.as_ptr()).slot), token) } {
            // SAFETY: it does not listen, and is in no list.
            return unsafe { (*this.as_ptr()).leave() };
        }
        // SAFETY: the operation, with its handle, is alive until it is linked and the lock is given back. It is pinned until
        // it is out of the list. The state is protected by the lock.
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
            // SAFETY: it is over, and the waiter in no list.
            Some(Begin::Over) => unsafe { Self::deliver(this) },
            // SAFETY: the slot outlives the stop that set `Left`. After that this has exclusive access, and is in no list.
            None => unsafe {
                this.as_ref().slot.leave();
                (*this.as_ptr()).leave()
            },
        }
    }
}

crate::opaque!([A: Awaited, R: Receiver<A::Value, A::Error>] WaitOperation<A, R>);
