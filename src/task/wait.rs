//! Waiting inside a task for something that was dropped in flight.

use core::cell::Cell;
use core::ptr::NonNull;
use core::time::Duration;

use super::await_state::AwaitState;
use super::frame::Header;
use super::hop;
use crate::scheduler::thread_pool::Worker;
use crate::sync::{park_timeout, spin};
use crate::{Scheduler, Transfer};

/// How often a wait looks before it sleeps.
const LOOKS: u32 = 256;
/// How long a wait sleeps at a time: nobody wakes it.
const NAP: Duration = Duration::from_micros(200);

/// Waits until `done`, and runs meanwhile what it might be waiting for: what is left to be resumed on this very stack, and
/// the work of the task's scheduler, or of the pool whose worker this thread is.
///
/// # Safety
///
/// The frame's context is there until `done`.
pub(super) unsafe fn wait_until(frame: NonNull<Header>, done: impl Fn() -> bool) {
    let looks = Cell::new(0);
    while !done() {
        // SAFETY: by the caller's promise.
        let context = unsafe { Header::context(frame).as_ref() };
        if Header::run_resumed()
            || AwaitState::pass_on_beneath()
            || Transfer::run_beneath()
            || context.scheduler.help()
            || hop::help(context)
        {
            looks.set(0);
            continue;
        }
        let napped = Cell::new(false);
        let nap = |looks: &Cell<u32>| {
            napped.set(true);
            let mut rounds = looks.get();
            if rounds < LOOKS {
                spin(&mut rounds);
                looks.set(rounds);
            } else {
                park_timeout(NAP);
            }
        };
        match Worker::current() {
            None => nap(&looks),
            Some(worker) => {
                // Once it has slept, it looks for everything else again.
                if let Some(job) = worker.next_until(|| napped.get() || done(), |_| nap(&looks)) {
                    looks.set(0);
                    job.run();
                }
            }
        }
    }
}
