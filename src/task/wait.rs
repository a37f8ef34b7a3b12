//! Waiting inside a task for something that was dropped in flight.

use core::cell::Cell;
use core::time::Duration;

use super::frame::Header;
use super::relay::Relay;
use crate::Transfer;
use crate::scheduler::thread_pool::Worker;
use crate::sync::{park_timeout, spin};

/// How often a wait looks before it sleeps.
const LOOKS: u32 = 256;
/// How long a wait sleeps at a time: nobody wakes it.
const NAP: Duration = Duration::from_micros(200);

/// Waits until `done`, and runs meanwhile what it might be waiting for: what is left to be resumed on this very stack, and
/// the work of the scheduler of the task that this thread polls, or of the pool whose worker it is.
///
/// That task need not be the one whose await is waited for, which may be over, with its context, any moment: what is
/// awaited can be sent away, and dropped elsewhere.
pub(super) fn wait_until(done: impl Fn() -> bool) {
    wait_with(Header::help, done);
}

/// The same, where it is known how to run the work of the scheduler: `help` says whether there was some.
pub(super) fn wait_with(help: impl Fn() -> bool, done: impl Fn() -> bool) {
    if !done() {
        Header::while_waiting(|| wait_for(help, done));
    }
}

fn wait_for(help: impl Fn() -> bool, done: impl Fn() -> bool) {
    let looks = Cell::new(0);
    while !done() {
        if Header::run_resumed() || Relay::pass_on_beneath() || Transfer::run_beneath() || help() {
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
