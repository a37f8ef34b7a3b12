use core::cell::Cell;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::ptr;
use core::task::{Context, Poll};
use std::sync::Arc;

use super::host::Host;
use super::schedule::HostedScheduler;
use super::shared::PollEnd;
use crate::Panic;
use crate::scheduler::Innermost;
use crate::scheduler::thread_pool::Worker;
use crate::sender::current;
use crate::sync::per_thread;

/// The number of jobs that a driver runs in one poll. The host's other tasks have their turn after them.
const BUDGET: usize = 64;

/// A future that runs the work of a [`HostedScheduler`] when it is polled.
///
/// It may be spawned on any executor, and polled on any thread. It is ready only after the scheduler has ended, or when
/// a driver is left over that [replaced](Host::replaces_blocked) another.
///
/// In one poll it runs a limited number of jobs, then lets the host's other tasks run. Without jobs it waits to be woken.
///
/// # Dropping
///
/// Dropping a driver ends the scheduler: see [there](HostedScheduler#the-end). It runs no job and does not block.
///
/// # Panics
///
/// With the panic of the host's waker. A panic in a job does not unwind into the host.
#[must_use = "a driver runs work only when an executor polls it"]
pub struct HostedDriver {
    scheduler: HostedScheduler,
    slot: usize,
    host: Option<Arc<dyn Host>>,
    /// Whether the slot was released, so that the driver does nothing more.
    gone: bool,
}

impl HostedDriver {
    pub(super) fn new(scheduler: HostedScheduler, slot: usize, host: Option<Arc<dyn Host>>) -> Self {
        HostedDriver {
            scheduler,
            slot,
            host,
            gone: false,
        }
    }

    fn should_yield(&self) -> bool {
        let Some(host) = &self.host else { return false };
        caught(|| host.should_yield()).unwrap_or(true)
    }
}

impl Future for HostedDriver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.gone {
            return Poll::Ready(());
        }
        let shared = this.scheduler.shared;
        // Cloned first, outside of the lock: it is user code.
        let mut waker = match Panic::catch(|| cx.waker().clone()) {
            Ok(waker) => Some(waker),
            Err(payload) => {
                // This driver may have been woken for a job, so another one takes over.
                shared.pass_on(this.slot);
                payload.resume();
            }
        };
        let end = {
            // The jobs belong neither to a task that is polled beneath on this stack, nor to a pool or a run loop there.
            current::publish();
            let _hidden = current::Hidden::driver();
            let _away = Worker::step_away();
            let running = Running {
                scheduler: this.scheduler,
                host: &raw const this.host,
                outer: Cell::new(ptr::null()),
            };
            let _entered = running.enter();
            let mut jobs = 0;
            loop {
                match shared.next(this.slot, jobs == 0, &mut waker) {
                    Ok(entry) => entry.run(),
                    Err(end) => break end,
                }
                jobs += 1;
                if jobs == BUDGET || this.should_yield() {
                    break shared.yields(this.slot, &mut waker);
                }
            }
        };
        match end {
            PollEnd::Over => {
                this.gone = true;
                Poll::Ready(())
            }
            PollEnd::Panicked(payload) => payload.resume(),
            PollEnd::Rest => Poll::Pending,
        }
    }
}

impl Drop for HostedDriver {
    fn drop(&mut self) {
        if !self.gone {
            self.scheduler.shared.leave(self.slot);
        }
    }
}

impl fmt::Debug for HostedDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostedDriver")
            .field("scheduler", &self.scheduler)
            .field("gone", &self.gone)
            .finish_non_exhaustive()
    }
}

per_thread! {
    /// The innermost poll of a driver on this thread, or null.
    static RUNNING: Cell<*const Running> = Cell::new(ptr::null());
}

/// A poll of a driver that is under way, on the stack of its thread.
pub(super) struct Running {
    scheduler: HostedScheduler,
    /// The field of the driver, which is borrowed for the poll.
    host: *const Option<Arc<dyn Host>>,
    /// The poll of another driver beneath on this stack, or null. Set by `enter`.
    outer: Cell<*const Running>,
}

impl Running {
    /// Makes this the innermost poll of the calling thread, until the result is dropped.
    fn enter(&self) -> Entered<'_> {
        self.outer.set(RUNNING.with(|running| running.replace(self)));
        Entered {
            running: self,
            _loop: Innermost::become_none(),
        }
    }

    /// Returns the poll of a driver that the calling thread is in.
    ///
    /// The result must not leave the thread, nor outlive the job that asks: the poll is on the thread's stack.
    #[inline]
    fn current<'a>() -> Option<&'a Running> {
        // SAFETY: the entry is on the stack beneath its user, until `Entered` is dropped.
        unsafe { RUNNING.with(Cell::get).as_ref() }
    }

    /// Returns the poll of a driver of this scheduler, if it is the innermost driver of the calling thread. The contract
    /// of the result is that of [`current`](Running::current).
    ///
    /// A run loop on top of the driver waits for something, and runs no job of the scheduler meanwhile.
    #[inline]
    pub(super) fn here<'a>(scheduler: HostedScheduler) -> Option<&'a Running> {
        Running::current().filter(|running| running.scheduler == scheduler && !Innermost::is_loop())
    }

    /// Waits in the middle of a job, as the host wishes. Another driver takes this one's place meanwhile, if possible.
    #[cold]
    fn block(&self, wait: &mut dyn FnMut()) {
        // SAFETY: the driver is borrowed for the poll, which is beneath on this stack.
        let host = unsafe { &*self.host }.as_ref();
        let shared = self.scheduler.shared;
        let replaces = host.is_some_and(|host| caught(|| host.replaces_blocked()).unwrap_or(false));
        if let Some(slot) = shared.begin_block(replaces) {
            let replacement = HostedDriver::new(self.scheduler, slot, host.cloned());
            caught(|| host.map(|host| host.spawn(replacement)));
        }
        // The drivers beneath are blocked, too.
        // SAFETY: an outer poll is on the stack beneath this one.
        let outer = unsafe { self.outer.get().as_ref() };
        let mut wait = || match outer {
            Some(outer) => outer.block(wait),
            None => wait(),
        };
        if let Some(host) = host {
            caught(|| host.block(self.scheduler, &mut wait));
        }
        // Returns at once if the host has waited.
        wait();
        shared.end_block();
    }
}

/// Calls a function of the host. A panic was reported by the panic hook, and its payload is dropped.
fn caught<T>(function: impl FnOnce() -> T) -> Option<T> {
    Panic::catch(function).map_err(Panic::discard).ok()
}

/// Restores the previous innermost poll when it is dropped.
struct Entered<'a> {
    running: &'a Running,
    _loop: Innermost,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        RUNNING.with(|running| running.set(self.running.outer.get()));
    }
}

/// Runs a function that puts the calling thread to sleep, and runs no user code. Inside a job of a driver, the queue and
/// the host learn of the wait.
pub(crate) fn while_blocked<T>(function: impl FnOnce() -> T) -> T {
    let Some(running) = Running::current() else {
        return function();
    };
    let (mut function, mut result) = (Some(function), None);
    running.block(&mut || {
        if let Some(function) = function.take() {
            result = Some(function());
        }
    });
    match result {
        Some(result) => result,
        None => unreachable!("`block` has called the function"),
    }
}
