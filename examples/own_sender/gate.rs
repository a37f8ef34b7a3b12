//! A sender that waits: another thread completes it later, unless it is stopped first.

use std::convert::Infallible;
use std::marker::PhantomPinned;
use std::mem::offset_of;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline::stop::StopSlot;
use bowline::{Env, Job, Operation, Receiver, Sender, Transfer};

/// A gate that starts closed. Any number of senders wait until it is opened.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: bool,
    /// The waiting operations. The thread that removes one, under the lock, completes it.
    waiting: Vec<Waiting>,
}

/// The address of a waiting operation's job.
#[derive(Debug, PartialEq)]
struct Waiting(NonNull<Job>);

// SAFETY: one thread runs the job, which reaches only a receiver, and receivers are `Send`.
unsafe impl Send for Waiting {}

impl Gate {
    pub fn new() -> Self {
        Gate::default()
    }

    /// Returns a sender that completes once the gate is open.
    pub fn passed(&self) -> Passed<'_> {
        Passed { gate: self }
    }

    /// Opens the gate and completes all waiting senders.
    pub fn open(&self) {
        let waiting = {
            let mut state = self.lock();
            state.open = true;
            std::mem::take(&mut state.waiting)
        };
        // The jobs are linked in order and run in one loop, outside the lock.
        let mut resumed = Transfer::none();
        for Waiting(job) in waiting {
            // SAFETY: the operation is alive until it completes. It was removed from the list here, so no other thread runs
            // its job.
            resumed.append(unsafe { Transfer::to(job) });
        }
        resumed.run();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sender that [`Gate::passed`] makes.
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Passed<'a> {
    gate: &'a Gate,
}

// SAFETY: `start` does not touch the operation once it is in the list and the lock is released, because another thread
// may complete it then. The operation is not touched after a completion. It is `!Unpin`. `COMPLETES` is the default.
unsafe impl<'a> Sender for Passed<'a> {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = PassedOperation<'a, R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> PassedOperation<'a, R> {
        PassedOperation {
            job: Job::new(PassedOperation::<'a, R>::opened),
            slot: StopSlot::new(PassedOperation::<'a, R>::stop_requested),
            gate: self.gate,
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

/// The operation that waits.
#[derive(Debug)]
pub struct PassedOperation<'a, R: Receiver<(), Infallible>> {
    /// The node in the gate's list, and later in a `Transfer`.
    job: Job,
    /// The node in the list of the stop source. Zero-sized if the token cannot stop.
    slot: StopSlot<<R::Env as Env>::StopToken>,
    gate: &'a Gate,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<R: Receiver<(), Infallible>> Operation for PassedOperation<'_, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // Raw pointers only from here on: the operation may be destroyed before `start` returns.
        // SAFETY: only the receiver is moved, which is not pinned.
        let this = unsafe { self.get_unchecked_mut() } as *mut Self;
        // SAFETY: the operation is in no list yet, so this thread has exclusive access.
        let (gate, receiver) = unsafe { ((*this).gate, &(*this).receiver) };
        let token = match receiver {
            Some(receiver) => receiver.env().stop_token(),
            None => return Transfer::none(),
        };
        let mut state = gate.lock();
        if state.open {
            drop(state);
            // SAFETY: the operation is in no list, so this thread has exclusive access.
            return match unsafe { (*this).receiver.take() } {
                Some(receiver) => receiver.set_value(()),
                None => Transfer::none(),
            };
        }
        // The callback takes the same lock. So it runs after the operation was added to the list.
        // SAFETY: the slot is pinned with the operation. `opened` leaves it, or its callback releases it.
        let listening = unsafe { StopSlot::listen(NonNull::new_unchecked(&raw mut (*this).slot), token) };
        if !listening {
            drop(state);
            // SAFETY: the operation is in no list, so this thread has exclusive access.
            return match unsafe { (*this).receiver.take() } {
                Some(receiver) => receiver.set_stopped(),
                None => Transfer::none(),
            };
        }
        // SAFETY: the operation is alive, so the pointer is not null.
        state
            .waiting
            .push(Waiting(unsafe { NonNull::new_unchecked(&raw mut (*this).job) }));
        drop(state);
        Transfer::none()
    }
}

impl<R: Receiver<(), Infallible>> PassedOperation<'_, R> {
    /// Completes the operation after the gate was opened.
    ///
    /// # Safety
    ///
    /// The job belongs to a waiting operation that was removed from the gate's list.
    unsafe fn opened(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation.
        let this = unsafe { job.byte_sub(offset_of!(Self, job)).cast::<Self>() };
        // No callback runs after this. One that runs on another thread is awaited, and finds no operation in the list.
        // SAFETY: the operation is alive until this function completes it.
        unsafe { this.as_ref() }.slot.leave();
        // SAFETY: the operation is alive, and after `leave` this thread has exclusive access.
        match unsafe { (*this.as_ptr()).receiver.take() } {
            Some(receiver) => receiver.set_value(()),
            None => Transfer::none(),
        }
    }

    /// The stop callback, which runs on the thread that requests the stop.
    ///
    /// # Safety
    ///
    /// The slot belongs to a started operation, which is not destroyed before the slot is released.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of an operation.
        let this = unsafe { slot.byte_sub(offset_of!(Self, slot)).cast::<Self>() };
        // SAFETY: the operation is alive until the slot is released.
        let (gate, job) = unsafe {
            (
                (*this.as_ptr()).gate,
                NonNull::new_unchecked(&raw mut (*this.as_ptr()).job),
            )
        };
        let mut state = gate.lock();
        let at = state.waiting.iter().position(|waiting| waiting.0 == job);
        let receiver = match at {
            Some(at) => {
                state.waiting.remove(at);
                // SAFETY: this thread removed the operation, so it has exclusive access to the receiver.
                unsafe { (*this.as_ptr()).receiver.take() }
            }
            // The gate was opened before: the job completes the operation.
            None => None,
        };
        drop(state);
        // SAFETY: the slot is alive. The operation is not touched after the release.
        unsafe { slot.as_ref() }.release();
        match receiver {
            // `request_stop` runs the returned transfer after the other callbacks.
            Some(receiver) => receiver.set_stopped(),
            None => Transfer::none(),
        }
    }
}
