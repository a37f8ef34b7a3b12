//! A sender that waits: it is completed later, from another thread, and can be stopped meanwhile.

use std::convert::Infallible;
use std::marker::PhantomPinned;
use std::mem::offset_of;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline::stop::StopSlot;
use bowline::{Env, Job, Operation, Receiver, Sender, Transfer};

/// Closed until somebody opens it. Any number of senders wait in front of it.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: bool,
    /// The operations that wait. Whoever takes one out, under the lock, is the one who completes it.
    waiting: Vec<Waiting>,
}

/// The address of a waiting operation's job.
#[derive(Debug, PartialEq)]
struct Waiting(NonNull<Job>);

// SAFETY: a job is run by one thread, and all it reaches is a receiver, which is `Send`.
unsafe impl Send for Waiting {}

impl Gate {
    pub fn new() -> Self {
        Gate::default()
    }

    /// A sender that completes once the gate is open.
    pub fn passed(&self) -> Passed<'_> {
        Passed { gate: self }
    }

    /// Opens the gate, and lets everyone through who waits.
    pub fn open(&self) {
        let waiting = {
            let mut state = self.lock();
            state.open = true;
            std::mem::take(&mut state.waiting)
        };
        // Linked through the jobs themselves, in order, and run in one loop, outside the lock.
        let mut resumed = Transfer::none();
        for Waiting(job) in waiting {
            // SAFETY: the operation stays until it completes; we took it out, so nobody else runs its job.
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

// SAFETY: the operation touches nothing of itself once it is in the list and the lock is given back, for from then on
// it may be completed elsewhere; nor after a completion. It is `!Unpin`. Where it completes it does not say.
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
    /// Its place in whatever list holds it: first the gate's, then a `Transfer`.
    job: Job,
    /// Its place in the list of the stop source. No size, and no code, where the token cannot stop.
    slot: StopSlot<<R::Env as Env>::StopToken>,
    gate: &'a Gate,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<R: Receiver<(), Infallible>> Operation for PassedOperation<'_, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // From here on there are raw pointers only: the operation may be gone before `start` returns.
        // SAFETY: nothing is moved but the receiver, which is not pinned.
        let this = unsafe { self.get_unchecked_mut() } as *mut Self;
        // SAFETY: nobody else knows the operation yet.
        let (gate, receiver) = unsafe { ((*this).gate, &(*this).receiver) };
        let token = match receiver {
            Some(receiver) => receiver.env().stop_token(),
            None => return Transfer::none(),
        };
        let mut state = gate.lock();
        if state.open {
            drop(state);
            // SAFETY: it is in no list, so nobody else knows it.
            return match unsafe { (*this).receiver.take() } {
                Some(receiver) => receiver.set_value(()),
                None => Transfer::none(),
            };
        }
        // Under the lock, which the callback takes too: it finds the operation in the list, or not yet listening.
        // SAFETY: the slot is pinned with the operation. It leaves in `opened`, or its callback releases it.
        let listening = unsafe { StopSlot::listen(NonNull::new_unchecked(&raw mut (*this).slot), token) };
        if !listening {
            drop(state);
            // SAFETY: it is in no list, so nobody else knows it.
            return match unsafe { (*this).receiver.take() } {
                Some(receiver) => receiver.set_stopped(),
                None => Transfer::none(),
            };
        }
        // SAFETY: the operation is alive, and the pointer not null.
        state
            .waiting
            .push(Waiting(unsafe { NonNull::new_unchecked(&raw mut (*this).job) }));
        drop(state);
        Transfer::none()
    }
}

impl<R: Receiver<(), Infallible>> PassedOperation<'_, R> {
    /// The gate was opened: the job runs.
    ///
    /// # Safety
    ///
    /// The job is that of a waiting operation, taken out of the gate's list.
    unsafe fn opened(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation.
        let this = unsafe { job.byte_sub(offset_of!(Self, job)).cast::<Self>() };
        // No callback from here on. One that is running on another thread finds that it came too late, and is waited for.
        // SAFETY: the operation is alive until it completes, which is up to us.
        unsafe { this.as_ref() }.slot.leave();
        // SAFETY: as above; the slot was left, so nobody else touches the operation.
        match unsafe { (*this.as_ptr()).receiver.take() } {
            Some(receiver) => receiver.set_value(()),
            None => Transfer::none(),
        }
    }

    /// The stop was requested: the callback runs, on the thread that requested it.
    ///
    /// # Safety
    ///
    /// The slot is that of a started operation, which waits for the slot to be released before it goes.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of an operation.
        let this = unsafe { slot.byte_sub(offset_of!(Self, slot)).cast::<Self>() };
        // SAFETY: the operation is not gone before the slot is released.
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
                // SAFETY: we took it out, so it is ours to complete.
                unsafe { (*this.as_ptr()).receiver.take() }
            }
            // The gate was opened before, and its job completes the operation.
            None => None,
        };
        drop(state);
        // SAFETY: the slot is there; from the release on nothing of the operation is touched.
        unsafe { slot.as_ref() }.release();
        match receiver {
            // What this resumes is handed back to `request_stop`, which runs it after the other callbacks.
            Some(receiver) => receiver.set_stopped(),
            None => Transfer::none(),
        }
    }
}
