//! Code of a user that panics in the middle of a completion: wakers of other executors, and destructors of results.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::task::{self, Continuation, SenderFuture, Task};
use futures_util::stream::{FuturesUnordered, StreamExt};

/// A waker that panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("in a waker");
    }
}

/// A value whose destructor panics, once.
#[derive(Debug)]
struct Touchy;

impl Drop for Touchy {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("in a destructor");
        }
    }
}

/// The place of a continuation that a test resumes.
struct Kept<T>(Arc<Mutex<Option<Continuation<T, Infallible>>>>);

impl<T: Send + 'static> Kept<T> {
    /// Creates the place, and a sender that puts its continuation there when it starts, and hears no stop.
    fn new() -> (Self, impl Sender<Value = T, Error = Infallible>) {
        let kept = Arc::new(Mutex::new(None));
        let put = kept.clone();
        let sender = task::continuation(move |continuation| *put.lock().unwrap() = Some(continuation));
        (Kept(kept), sender.unstoppable())
    }

    /// Waits until the sender has started.
    fn wait(&self) {
        while self.0.lock().unwrap().is_none() {
            thread::yield_now();
        }
    }

    /// Resumes the continuation on a thread of its own. Returns whether that did not panic.
    fn resume(self, value: T) -> bool {
        let continuation = self.0.lock().unwrap().take().expect("the sender has started");
        thread::spawn(move || _ = continuation.resume(value)).join().is_ok()
    }
}

async fn polled_once<F: Future>(mut future: Pin<&mut F>) {
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// Polls a future once under a waker that panics.
fn poll_under_panics<F: Future>(future: Pin<&mut F>) {
    let waker = Waker::from(Arc::new(Panics));
    assert!(future.poll(&mut Context::from_waker(&waker)).is_pending());
}

#[test]
fn a_waker_that_panics_when_an_await_ends_does_not_keep_its_task() {
    for begins_here in [true, false] {
        let task = Task::new(async move {
            let (kept, sender) = Kept::new();
            let mut awaited = pin!(SenderFuture::new(sender));
            if begins_here {
                polled_once(awaited.as_mut()).await;
            }
            poll_under_panics(awaited.as_mut());
            assert!(kept.resume(6));
            let Ok(six) = awaited.await;
            six
        });
        assert_eq!(sync_wait(task).unwrap(), 6, "{begins_here}");
    }
}

/// Begins a wait for some time under a waker that panics. It has more time if it is over in its first poll.
fn begun_under_panics<F: Future>(make: impl Fn(Duration) -> F) -> Pin<Box<F>> {
    let waker = Waker::from(Arc::new(Panics));
    let mut time = Duration::from_millis(20);
    loop {
        let mut future = Box::pin(make(time));
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            return future;
        }
        time *= 2;
    }
}

/// A completion in a job of the timer's thread or of a pool.
#[test]
fn a_waker_that_panics_in_a_job_does_not_end_the_process() {
    let pool = ThreadPool::new(1);
    let task = Task::new(async {
        let sleeps = begun_under_panics(|time| task::sleep(time).into_future());
        let awaits = begun_under_panics(|time| Task::<()>::new(async move { task::sleep(time).await }).into_future());
        sleeps.await;
        let Ok(()) = awaits.await;
    });
    sync_wait(starts_on(pool.scheduler(), task)).unwrap();
}

#[test]
fn a_waker_that_panics_when_a_child_ends_does_not_keep_the_others_of_its_group() {
    let pool = ThreadPool::new(1);
    let task = Task::new(task::group(async |group| {
        group.spawn(async {
            task::sleep(Duration::from_millis(50)).await;
            3
        });
        poll_under_panics(pin!(group.next()));
        group.spawn(async { 4 });
        let mut sum = 0;
        while let Some(number) = group.next().await {
            sum += number;
        }
        sum
    }));
    assert_eq!(sync_wait(starts_on(pool.scheduler(), task)).unwrap(), 7);
}

/// The future is dropped in flight, so the completion drops the value.
#[test]
fn a_destructor_that_panics_in_a_completion_does_not_keep_the_task() {
    for begins_here in [true, false] {
        let task = Task::new(async move {
            let (kept, sender) = Kept::new();
            let mut awaited = Box::pin(SenderFuture::new(sender));
            if begins_here {
                polled_once(awaited.as_mut()).await;
                drop(awaited);
            } else {
                let mut all = FuturesUnordered::from_iter([awaited]);
                poll_fn(|context| {
                    assert!(all.poll_next_unpin(context).is_pending());
                    Poll::Ready(())
                })
                .await;
                drop(all);
            }
            assert!(kept.resume(Touchy));
            7
        });
        assert_eq!(sync_wait(task).unwrap(), 7, "{begins_here}");
    }
}

/// The loser of a race is dropped inside of its own completion: no party could complete the race again, so the process ends.
#[test]
fn a_destructor_that_panics_inside_of_a_continuation_s_completion_ends_the_process() {
    let said = aborts(
        "a_destructor_that_panics_inside_of_a_continuation_s_completion_ends_the_process",
        || {
            let ((first, one), (second, other)) = (Kept::new(), Kept::new());
            let race = when_any((one, other)).then(std::mem::forget);
            thread::spawn(move || {
                first.wait();
                second.wait();
                first.resume(Touchy);
                second.resume(Touchy);
            });
            sync_wait(race).unwrap();
        },
    );
    assert!(said.contains("panicked inside a job"), "{said}");
}
