//! Retries, time limits, stops and clean-up.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use bowline::prelude::*;
use bowline::scheduler::RunLoop;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Busy,
    Gone,
}

/// A server that is busy for some calls, and then answers or fails.
struct Server {
    calls: AtomicU32,
    busy: u32,
    then: Result<&'static str, Failure>,
}

impl Server {
    const fn new(busy: u32, then: Result<&'static str, Failure>) -> Self {
        Server {
            calls: AtomicU32::new(0),
            busy,
            then,
        }
    }

    /// Returns a call. It is `Clone`, so that it can be repeated.
    fn call(&self) -> impl Sender<Value = &'static str, Error = Failure> + Clone + Send {
        just(()).infallible_into().try_then(|()| {
            let call = self.calls.fetch_add(1, Ordering::Relaxed);
            if call < self.busy {
                Err(Failure::Busy)
            } else {
                self.then
            }
        })
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }
}

fn main() {
    // Repeats after every error. The result cannot fail.
    let server = Server::new(3, Ok("hello"));
    let answer = sync_wait(server.call().retry()).unwrap();
    println!("{answer:?} after {} calls", server.calls());

    // Repeats while the server is busy, up to five times.
    let gone = Server::new(2, Err(Failure::Gone));
    let mut tries = 1;
    let failure = sync_wait(gone.call().retry_if(|&failure| {
        tries += 1;
        failure == Failure::Busy && tries <= 5
    }))
    .unwrap_err();
    println!("{failure:?} after {} calls", gone.calls());

    // Gives up when another sender completes first: a hundred turns of a run loop on another thread.
    let run_loop = RunLoop::new();
    thread::scope(|scope| {
        scope.spawn(|| run_loop.run());
        let busy = Server::new(u32::MAX, Ok("never"));
        let patience = run_loop.scheduler().schedule().repeat_n(100);
        let attempt = starts_on(run_loop.scheduler(), busy.call())
            .retry()
            .stop_when(patience)
            .stopped_as_option()
            .finally(just_from(|| println!("the connection is closed in every case")));
        match sync_wait(attempt).unwrap() {
            Some(answer) => println!("{answer:?}"),
            None => println!("gave up on a busy server"),
        }
        run_loop.finish();
    });

    // Stops the retries from outside, through a token in the environment.
    let source = StopSource::new();
    thread::scope(|scope| {
        scope.spawn(|| source.request_stop());
        let endless = Server::new(u32::MAX, Ok("never"));
        let outcome = sync_wait(endless.call().retry().with_stop_token(source.token()));
        println!("stopped from outside: {}", outcome.is_stopped());
    });
}
