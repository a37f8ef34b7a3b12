//! Senders and tasks in an executor of another crate: completions and wake-ups against its polls, and against the drop of
//! the future.

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

/// An executor of one future: who wakes it unparks the thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker of a thread of the model, which `loom` knows by its own name.
struct HereWaker(Arc<Unpark>);

impl HereWaker {
    fn new() -> Self {
        HereWaker(Arc::new(Unpark(thread::current())))
    }

    fn waker(&self) -> Waker {
        Waker::from(self.0.clone())
    }
}

/// What is read and written in polls alone, so that `loom` sees whether they are ordered.
struct Turns(UnsafeCell<usize>);

impl Turns {
    fn next(&self) -> usize {
        // SAFETY: `loom` refuses what is not ordered.
        self.0.with_mut(|turns| unsafe {
            *turns += 1;
            *turns
        })
    }
}

/// Polls until it is ready. The second is how often it was polled.
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

/// Sees the sender complete before the poll is over, and after.
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

/// The same for an error, which is as good an end.
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

/// Sees the result taken by the drop of the future, and by the completion that comes after it. Nothing is left either way.
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

/// The drop asks what listens to stop; one of the two ends it.
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

/// The waker of the last poll is the one that is woken: the first executor is not there any more.
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

/// A task that awaits what completes elsewhere goes on in a poll of the executor, on its thread.
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

/// A task is dropped with its executor's future while what it awaits completes. It does not go on, and nothing of it is
/// left.
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

/// The same with a stop that what is awaited listens to.
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

/// A task awaits an event, by a waker of its own frame, and is dropped while that is woken.
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

/// What is scheduled in the executor from elsewhere runs in its poll.
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

/// What is on its way back to the executor when that drops the future arrives nowhere, and is not lost.
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
