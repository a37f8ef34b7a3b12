//! Senders and a receiver written outside the library, one per file: a factory, an adaptor, a waiting sender.
//!
//! The chapter `docs/writing-your-own.md` explains the files.
#![allow(unreachable_pub, reason = "the files beside this one are written as in a library")]

use std::pin::pin;
use std::thread;

use bowline::prelude::*;
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
    // The factory, with our own adaptor and one of the library.
    let tickets = Tickets::new(2);
    for visitor in ["Ada", "Grace", "Edsger"] {
        let entry = tickets
            .take()
            .inspect(|number| println!("{visitor} drew ticket {number}"))
            .then(|number| number % 2 == 0);
        match sync_wait(entry) {
            Outcome::Value(even) => println!("{visitor} enters by the {} door", if even { "left" } else { "right" }),
            Outcome::Error(error) => println!("{visitor} goes home: {error:?}"),
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

    // Connects and starts by hand, with our own receiver, and then requests a stop.
    let closed = Gate::new();
    let source = StopSource::new();
    let (receiver, reports) = Report::new(source.token());
    let mut operation = pin!(closed.passed().connect(receiver));
    // SAFETY: the operation is pinned and started once. It is dropped at the end of `main`, after its completion.
    unsafe { operation.as_mut().start() }.run();
    source.request_stop();
    match reports.recv() {
        Ok(Completion::Stopped) => println!("the other gate stayed closed, and the wait was stopped"),
        other => println!("unexpected: {other:?}"),
    }
}
