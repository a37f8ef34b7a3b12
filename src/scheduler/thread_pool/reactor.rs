//! Waiting for events: what one sleeping worker of a pool does instead of parking.
//!
//! A [`Reactor`] is the user's. A worker that goes to sleep *attends* it, unless another worker does. [`Attendance`] is the
//! proof of that, and the thread's record has the reactor meanwhile, so that an unpark of the thread interrupts it.
//!
//! # Invariants
//!
//! - At most one worker of a pool attends: the one that has cleared [`Vacancy`].
//! - The reactor is in the record before the worker checks whether it was woken. An unparking thread makes the worker woken
//!   before it reads the record, under the record's lock. So one of the two sees the other, and no wake-up is missed.
//! - A worker that attends is asleep: another thread may take its seat. So the thread counts as foreign to the pool while user
//!   code runs: [`Worker::current`] returns `None`, and what it pushes goes to the injector.
//!
//! - An [interrupt] is user code. It runs on the stack of a push, a raise, or the end of the pool: as no thread of a pool and in no
//!   task, and after the last lock was released, by [`without_interrupts`].
//!
//! # Callers
//!
//! `search.rs` attends in [`Seated::sleep`](super::worker::Seated), and a busy worker in its main loop. `idle/mod.rs` prefers the attending worker if events of its
//! own reactor make a job ready. `pool.rs` lets a pool that is dropped by an event end on its own.

use core::cell::{Cell, RefCell};
use core::ptr;
use core::time::Duration;
use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

use super::worker::Worker;
use crate::Panic;
use crate::sender::current;
use crate::sender::unwind::OnDrop;
use crate::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use crate::sync::{park, per_thread};

/// A source of events, which an idle worker of a pool waits for.
///
/// A pool with a reactor needs no other thread that waits for its sockets and timers, and no wake-up from that thread to a
/// worker. Set with [`ThreadPoolBuilder::reactor`](super::ThreadPoolBuilder::reactor).
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::{Reactor, ThreadPool};
/// use std::sync::{Arc, Condvar, Mutex};
/// use std::task::{Poll, Waker};
/// use std::time::Duration;
///
/// /// A reactor with one kind of event: the bell rings.
/// #[derive(Default)]
/// struct Bell {
///     state: Mutex<State>,
///     changed: Condvar,
/// }
///
/// #[derive(Default)]
/// struct State {
///     interrupted: bool,
///     rung: bool,
///     waker: Option<Waker>,
/// }
///
/// impl Reactor for Bell {
///     fn wait(&self, limit: Option<Duration>) {
///         let quiet = |state: &mut State| !state.interrupted && !(state.rung && state.waker.is_some());
///         let limit = limit.unwrap_or(Duration::MAX);
///         let (mut state, _) = self.changed.wait_timeout_while(self.state.lock().unwrap(), limit, quiet).unwrap();
///         state.interrupted = false;
///         let waker = if state.rung { state.waker.take() } else { None };
///         drop(state);
///         // Queues a job. This thread runs it when this function has returned.
///         waker.map(Waker::wake);
///     }
///
///     fn interrupt(&self) {
///         self.state.lock().unwrap().interrupted = true;
///         self.changed.notify_all();
///     }
/// }
///
/// let bell = Arc::new(Bell::default());
/// let pool = ThreadPool::builder().threads(1).reactor(bell.clone()).build()?;
/// let door = bell.clone();
/// let visit = Task::new(std::future::poll_fn(move |context| {
///     let mut state = door.state.lock().unwrap();
///     state.waker = Some(context.waker().clone());
///     if state.rung { Poll::Ready("open") } else { Poll::Pending }
/// }));
/// std::thread::spawn(move || {
///     bell.state.lock().unwrap().rung = true;
///     bell.changed.notify_all();
/// });
/// assert_eq!(sync_wait(starts_on(pool.scheduler(), visit)).unwrap(), "open");
/// # Ok::<(), bowline::scheduler::BuildError>(())
/// ```
///
/// # When no worker waits
///
/// At most one worker at a time is in [`wait`](Reactor::wait), and one is while all of them sleep. When it leaves for a job, others go
/// on sleeping. It calls `wait` again after the job, and with a limit of zero between every 64 of its jobs. While it is in the
/// middle of a long job, or blocks in one, no worker may be there. A reactor whose events must not be delayed by that has a thread
/// of its own, which takes over after a moment.
///
/// # Panics
///
/// A panic of either method is reported by the panic hook. After a panic of `wait` the workers sleep without the reactor.
pub trait Reactor: Send + Sync + 'static {
    /// Waits for events and calls their wakers. Returns when [`interrupt`](Reactor::interrupt) was called or `limit` is over, or
    /// earlier.
    ///
    /// With a limit of zero it calls the wakers of events that have occurred already.
    ///
    /// The thread counts as none of the pool's meanwhile: a waker that it calls queues a job and does not run it. The thread will
    /// run that job itself, so an event must not block until a job of the pool has run.
    fn wait(&self, limit: Option<Duration>);

    /// Makes the thread in [`wait`](Reactor::wait) return. If no thread is there, makes the next call return at once.
    ///
    /// It is called by any thread, also by the one in `wait`. The thread counts as none of the pool's meanwhile. It may be about to
    /// look for a job, so this must not block until one has run.
    fn interrupt(&self);
}

impl<R: Reactor + ?Sized> Reactor for Arc<R> {
    fn wait(&self, limit: Option<Duration>) {
        (**self).wait(limit);
    }

    fn interrupt(&self) {
        (**self).interrupt();
    }
}

/// Whether no worker attends the pool's reactor.
///
/// | from | to | by | ordering |
/// |---|---|---|---|
/// | any | vacant | [`Vacancy::open`], while the pool has no jobs | relaxed: the injector's lock publishes it |
/// | vacant | taken | [`Worker::attend`], which the worker calls after it lay down | sequentially consistent |
/// | taken | vacant | the drop of [`Attendance`], unless the reactor has panicked | sequentially consistent |
///
/// While all workers sleep, one of them attends: the last to lie down, unless another does. A worker whose seat was taken attends
/// until its wait returns. It then wakes another, unless one searches. That one lies down later, and finds the vacancy.
pub(super) struct Vacancy(AtomicBool);

impl Vacancy {
    pub(super) fn new() -> Self {
        Vacancy(AtomicBool::new(false))
    }

    /// Begins a new generation of the pool.
    pub(super) fn open(&self) {
        self.0.store(true, Relaxed);
    }
}

per_thread! {
    /// The worker of this thread while it is in [`Reactor::wait`], or null.
    static ATTENDING: Cell<*const Worker> = Cell::new(ptr::null());
}

/// The code of users that is called when [`without_interrupts`] returns.
type HeldBack = RefCell<Vec<Interrupt>>;

enum Interrupt {
    Reactor(Arc<dyn Reactor>),
    /// The wake-up of another executor.
    Other(Box<dyn FnOnce()>),
}

per_thread! {
    /// The list of the outermost [`without_interrupts`] on this stack, or null.
    static HELD_BACK: Cell<*const HeldBack> = Cell::new(ptr::null());
}

/// Interrupts a reactor: now, or when the outermost [`without_interrupts`] on this stack returns.
pub(super) fn interrupt(reactor: Arc<dyn Reactor>) {
    // SAFETY: the list is on the stack beneath the caller.
    match unsafe { HELD_BACK.with(Cell::get).as_ref() } {
        Some(held_back) => held_back.borrow_mut().push(Interrupt::Reactor(reactor)),
        None => interrupt_now(reactor),
    }
}

/// Calls `body`, which does not unwind: now, or when the outermost [`without_interrupts`] on this stack returns.
#[inline]
pub(in crate::scheduler) fn interrupt_other(body: impl FnOnce() + 'static) {
    // SAFETY: the list is on the stack beneath the caller.
    match unsafe { HELD_BACK.with(Cell::get).as_ref() } {
        Some(held_back) => held_back.borrow_mut().push(Interrupt::Other(Box::new(body))),
        None => body(),
    }
}

fn interrupt_now(reactor: Arc<dyn Reactor>) {
    let _hidden = current::Hidden::from_poll();
    // The caller is in the middle of a change of its seat, which code that blocks would pass on. A panic must not reach the job
    // that was queued.
    Worker::leave(|| {
        _ = Panic::catch(|| reactor.interrupt()).map_err(Panic::discard);
        _ = Panic::catch(|| drop(reactor)).map_err(Panic::discard);
    });
}

/// Calls `body`, which may wake workers and other executors while it holds a lock, or while other threads wait for it. Their reactors are
/// interrupted, and their wakers called, afterwards.
pub(crate) fn without_interrupts<T>(body: impl FnOnce() -> T) -> T {
    if !HELD_BACK.with(Cell::get).is_null() {
        return body();
    }
    let held_back = HeldBack::default();
    HELD_BACK.with(|list| list.set(&held_back));
    let _end = OnDrop(|| {
        HELD_BACK.with(|list| list.set(ptr::null()));
        for interrupt in held_back.take() {
            match interrupt {
                Interrupt::Reactor(reactor) => interrupt_now(reactor),
                Interrupt::Other(body) => body(),
            }
        }
    });
    body()
}

/// The right of one sleeping worker to wait in the reactor.
pub(super) struct Attendance<'a> {
    worker: &'a Worker,
    /// `None` after a panic.
    reactor: Option<&'a Arc<dyn Reactor>>,
}

impl Worker {
    /// Makes the caller, which has no job, the worker that attends the reactor. Returns `None` if another one does, or if the
    /// pool has no reactor.
    ///
    /// A caller that sleeps checks afterwards whether it was woken.
    pub(super) fn attend(&self) -> Option<Attendance<'_>> {
        let reactor = self.reactor.as_ref()?;
        if !self.shared.vacancy.0.swap(false, SeqCst) {
            return None;
        }
        self.record.set_reactor(Some(reactor.clone()));
        Some(Attendance {
            worker: self,
            reactor: Some(reactor),
        })
    }

    /// Calls the wakers of the events that have occurred, unless another worker waits for them. The caller has no job on its stack.
    pub(super) fn poll_events(&self) {
        if let Some(mut attendance) = self.attend() {
            attendance.wait(Some(Duration::ZERO));
        }
    }

    /// Returns the worker of the calling thread if the thread is in [`Reactor::wait`].
    pub(super) fn attending<'a>() -> Option<&'a Worker> {
        // SAFETY: `Attendance::wait` sets the pointer to a worker that outlives the call, and resets it afterwards.
        unsafe { ATTENDING.with(Cell::get).as_ref() }
    }
}

impl Attendance<'_> {
    /// Waits in the reactor until the thread is unparked, an event occurs, or for at most the given time.
    pub(super) fn wait(&mut self, limit: Option<Duration>) {
        let Some(reactor) = self.reactor else {
            return park(limit);
        };
        let waited = Worker::leave(|| {
            ATTENDING.with(|attending| attending.set(self.worker));
            let waited = Panic::catch(|| reactor.wait(limit));
            ATTENDING.with(|attending| attending.set(ptr::null()));
            waited
        });
        if let Err(payload) = waited {
            // The caller checks whether it was woken, before it parks.
            self.worker.record.set_reactor(None);
            self.reactor = None;
            payload.discard();
        }
    }
}

impl Drop for Attendance<'_> {
    fn drop(&mut self) {
        if self.reactor.is_some() {
            self.worker.record.set_reactor(None);
            self.worker.shared.vacancy.0.swap(true, SeqCst);
            if self.worker.record.seat().is_none() {
                // The seat was taken, perhaps by a thread that went to sleep on it while this one attended.
                self.worker.shared.idle.0.wake(&self.worker.shared.seats);
            }
        }
    }
}
