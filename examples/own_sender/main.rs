//! A factory, an adaptor, a receiver and a sender that waits, all written outside the library.
//!
//! The chapter `docs/writing-your-own.md` walks through the four files beside this one.
#![allow(unreachable_pub, reason = "the files beside this one are written as in a library")]

use std::pin::pin;
use std::thread;

use bowline::prelude::*;
use bowline::stop::StopSource;
use bowline::{Completion, Operation};

mod gate;
mod inspect;
mod report;
mod tickets;

use gate::Gate;
use inspect::InspectExt;
use report::Report;
use tickets::Tickets;

fn main() {
    // A factory, under the library's own adaptors and ours.
    let tickets = Tickets::new(2);
    for visitor in ["Ada", "Grace", "Edsger"] {
        let entry = tickets
            .take()
            .inspect(|number| println!("{visitor} drew ticket {number}"))
            .then(|number| number % 2 == 0);
        match sync_wait(entry) {
            Outcome::Value(even) => println!("{visitor} enters by the {} door", if even { "left" } else { "right" }),
            Outcome::Error(why) => println!("{visitor} goes home: {why:?}"),
            Outcome::Stopped => println!("{visitor} left"),
        }
    }

    // A sender that another thread completes.
    let gate = Gate::new();
    thread::scope(|scope| {
        scope.spawn(|| gate.open());
        let waited = when_all((gate.passed(), gate.passed())).then(|_| "both went through");
        println!("{}", sync_wait(waited).unwrap());
    });

    // Connect and start by hand, with a receiver of our own; then ask the work to stop.
    let closed = Gate::new();
    let source = StopSource::new();
    let (receiver, reports) = Report::new(source.token());
    let mut operation = pin!(closed.passed().connect(receiver));
    // SAFETY: it is pinned here, started once, and dropped at the end of `main`, after it has completed.
    unsafe { operation.as_mut().start() }.run();
    source.request_stop();
    match reports.recv() {
        Ok(Completion::Stopped) => println!("nobody opened the other gate, and the wait was called off"),
        other => println!("a surprise: {other:?}"),
    }
}
