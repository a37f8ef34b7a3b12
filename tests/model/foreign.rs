//! Senders and tasks in an executor of another crate: completions and wake-ups against its polls, and against the drop of the
//! future.

use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use bowline::Completion;
use bowline::prelude::*;
use bowline::task::SenderFuture;
use loom::cell::UnsafeCell;
use loom::thread;

use crate::support::{Watched, World, explore};
use crate::task::{Event, Failure, awaited, task};

/// An executor of one future: waking unparks the thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker for a thread of the model, in `loom`'s own types.
struct HereWaker(Arc<Unpark>);

impl HereWaker {
    fn new() -> Self {
        HereWaker(Arc::new(Unpark(thread::current())))
    }

    fn waker(&self) -> Waker {
        Waker::from(self.0.clone())
    }
}

/// A cell accessed only in polls, so that `loom` checks their ordering.
struct Turns(UnsafeCell<usize>);

impl Turns {
    fn next(&self) -> usize {
        // SAFETY: `loom` reports unordered accesses.
        self.0.with_mut(|turns| unsafe {
            *turns += 1;
            *turns
        })
    }
}

/// Polls the future until it is ready. Also returns the number of polls.
fn block_on<F: Future>(future: F) -> (F::Output, usize) {
    let here = HereWaker::new();
    let mut future = pin!(future);
    let turns = Turns(UnsafeCell::new(0));
    loop {
        let turn = turns.next();
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&here.waker())) {
            return (output, turn);
        }
        thread::park();
    }
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&HereWaker::new().waker()))
}

fn expect(result: Result<Watched, Failure>, expected: u32) {
    assert_eq!(result.expect("a value").read(), expected);
}

/// Covers the sender completing during the poll, and after it.
#[test]
fn a_completion_races_with_the_poll() {
    explore(3, &["one poll", "woken"], |seen| {
        let world = World::default();
        let (result, polls) = block_on(awaited(world.remote(6)));
        expect(result, 6);
        world.end();
        seen.note(if polls == 1 { "one poll" } else { "woken" });
    });
}

/// Covers an error during the poll, and after it.
#[test]
fn an_error_races_with_the_poll() {
    explore(2, &["one poll", "woken"], |seen| {
        let world = World::default();
        let (result, polls) = block_on(awaited(world.remote_of(Completion::Error("failed"))));
        assert_eq!(result.err(), Some("failed"));
        world.end();
        seen.note(if polls == 1 { "one poll" } else { "woken" });
    });
}

/// Covers the result being dropped by the drop of the future, and by the later completion. Nothing leaks either way.
#[test]
fn a_completion_races_with_the_drop() {
    explore(3, &["polled", "dropped"], |seen| {
        let world = World::default();
        let mut future = Box::pin(awaited(world.remote(6)));
        match poll_once(future.as_mut()) {
            Poll::Ready(result) => {
                expect(result, 6);
                seen.note("polled");
            }
            Poll::Pending => seen.note("dropped"),
        }
        drop(future);
        world.end();
    });
}

/// The drop requests a stop; the stop or the completion ends the operation.
#[test]
fn the_stop_of_a_drop_races_with_the_completion() {
    explore(3, &["polled", "dropped"], |seen| {
        let world = World::default();
        let mut future = Box::pin(SenderFuture::new(world.stoppable(6)));
        match poll_once(future.as_mut()) {
            Poll::Ready(result) => {
                expect(result, 6);
                seen.note("polled");
            }
            Poll::Pending => seen.note("dropped"),
        }
        drop(future);
        world.end();
    });
}

/// The completion wakes the waker of the last poll: the first executor no longer exists.
#[test]
fn a_completion_races_with_a_poll_by_another_waker() {
    explore(2, &["done"], |seen| {
        let world = World::default();
        let mut future = Box::pin(awaited(world.remote(6)));
        let result = match poll_once(future.as_mut()) {
            Poll::Ready(result) => result,
            Poll::Pending => block_on(future).0,
        };
        expect(result, 6);
        world.end();
        seen.note("done");
    });
}

/// A task whose await completes elsewhere resumes in a poll of the executor, on its thread.
#[test]
fn a_task_is_woken_while_it_is_polled_and_after() {
    explore(2, &["one poll", "woken"], |seen| {
        let world = World::default();
        let here = thread::current().id();
        let (remote, local) = (world.remote(6), world.census.value(1));
        let inside = async move {
            let result = awaited(remote).await;
            assert_eq!(thread::current().id(), here);
            assert_eq!(local.read(), 1);
            result
        };
        let (result, polls) = block_on(task(inside).into_future());
        expect(result, 6);
        world.end();
        seen.note(if polls == 1 { "one poll" } else { "woken" });
    });
}

/// A task is dropped with its executor's future while its await completes. It does not resume, and nothing leaks.
#[test]
fn the_drop_of_a_task_races_with_what_it_awaits() {
    explore(2, &["polled", "dropped"], |seen| {
        let world = World::default();
        let (remote, local) = (world.remote(6), world.census.value(1));
        let inside = async move {
            let result = awaited(remote).await;
            assert_eq!(local.read(), 1);
            result
        };
        let mut future = Box::pin(task(inside).into_future());
        match poll_once(future.as_mut()) {
            Poll::Ready(result) => {
                expect(result, 6);
                seen.note("polled");
            }
            Poll::Pending => seen.note("dropped"),
        }
        drop(future);
        world.end();
    });
}

/// A task is dropped while its await, which listens to the stop, completes.
#[test]
fn the_drop_of_a_task_races_with_what_it_stops() {
    explore(2, &["polled", "dropped"], |seen| {
        let world = World::default();
        let mut future = Box::pin(task(SenderFuture::new(world.stoppable(6))).into_future());
        match poll_once(future.as_mut()) {
            Poll::Ready(result) => {
                expect(result, 6);
                seen.note("polled");
            }
            Poll::Pending => seen.note("dropped"),
        }
        drop(future);
        world.end();
    });
}

/// A task awaits an event through the waker of its own frame, and is dropped while the event wakes it.
#[test]
fn the_drop_of_a_task_races_with_a_wake_up() {
    explore(2, &["polled", "dropped"], |seen| {
        let world = World::default();
        let event = Event::default();
        world.threads.spawn({
            let event = event.clone();
            move || event.happen()
        });
        let local = world.census.value(5);
        let inside = async move {
            event.wait().await;
            Ok(local)
        };
        let mut future = Box::pin(task(inside).into_future());
        match poll_once(future.as_mut()) {
            Poll::Ready(result) => {
                expect(result, 5);
                seen.note("polled");
            }
            Poll::Pending => seen.note("dropped"),
        }
        drop(future);
        world.end();
    });
}

/// Work scheduled on the executor from elsewhere runs in its poll.
#[test]
fn what_comes_back_to_the_executor_races_with_its_poll() {
    explore(2, &["done"], |seen| {
        let world = World::default();
        let here = thread::current().id();
        let sender = world.remote(6).affine().then(move |value| {
            assert_eq!(thread::current().id(), here);
            value
        });
        expect(block_on(SenderFuture::new(sender)).0, 6);
        world.end();
        seen.note("done");
    });
}

/// The executor drops the future while a completion is on its way back to it. The completion is dropped, and does not leak.
#[test]
fn what_comes_back_to_the_executor_races_with_the_drop() {
    explore(2, &["polled", "dropped"], |seen| {
        let world = World::default();
        let mut future = Box::pin(SenderFuture::new(world.remote(6).affine()));
        match poll_once(future.as_mut()) {
            Poll::Ready(result) => {
                expect(result, 6);
                seen.note("polled");
            }
            Poll::Pending => seen.note("dropped"),
        }
        drop(future);
        world.end();
    });
}
