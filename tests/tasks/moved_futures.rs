//! Futures that began under the task's own waker, and are polled under another one in the same task.
//!
//! Their awaits wake the other waker when they end. Until then they are not polled again.

use std::future::{Future, IntoFuture, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::task::{self, Continuation, Task};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;

use crate::common::everywhere::everywhere;
use crate::common::tasks::hops;
use crate::common::{Census, Watchdog, lock, quiet_panic, thread};

type Work = Pin<Box<dyn Future<Output = u32> + Send>>;
type Resume = mpsc::Sender<Continuation<u32>>;
type Resumed = mpsc::Receiver<Continuation<u32>>;

/// Waits for a callback, and passes its continuation on.
fn callback(resume: Resume) -> impl Sender<Value = u32, Error = std::convert::Infallible> + Send + 'static {
    task::continuation(move |continuation: Continuation<u32>| resume.send(continuation).expect("received"))
}

async fn value(resume: Resume) -> u32 {
    let Ok(value) = bowline::task::SenderFuture::new(callback(resume)).await;
    value
}

/// Awaits a task inside a task, this deep.
fn nested(depth: usize, resume: Resume) -> Task<u32> {
    Task::new(async move {
        match depth {
            0 => value(resume).await,
            _ => match nested(depth - 1, resume).await {
                Ok(value) => value,
            },
        }
    })
}

/// The kinds of work that begin under the waker of the task. Each ends with the value of the continuation.
fn kinds(resume: &Resume) -> [(&'static str, Work); 4] {
    let child = |depth| {
        let child = nested(depth, resume.clone()).into_future();
        async { child.await.unwrap_or(0) }
    };
    [
        ("a sender", Box::pin(value(resume.clone()))),
        ("a task", Box::pin(child(0))),
        ("a task that sets its children aside", Box::pin(child(9))),
        ("a scope", Box::pin(task::shield(value(resume.clone())))),
    ]
}

/// Counts the polls of a future.
struct Counting<F>(F, Arc<AtomicUsize>);

impl<F: Future + Unpin> Future for Counting<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, SeqCst);
        Pin::new(&mut self.0).poll(cx)
    }
}

/// Polls a future once.
async fn begin<F: Future + Unpin>(work: &mut F) {
    let pending = poll_fn(|cx| Poll::Ready(Pin::new(&mut *work).poll(cx).is_pending())).await;
    assert!(pending);
}

/// Runs a test for each kind, on each scheduler.
fn of_each(test: impl Fn(&crate::common::everywhere::Place, Work, Resumed)) {
    let dog = Watchdog::new(Duration::from_secs(60));
    everywhere(|place| {
        for at in 0..4 {
            let (resume, resumed) = mpsc::channel();
            let Some((name, work)) = kinds(&resume).into_iter().nth(at) else {
                return;
            };
            drop(resume);
            dog.step(name);
            test(place, work, resumed);
        }
    });
}

#[test]
fn a_future_that_moves_is_polled_only_when_its_await_has_ended() {
    of_each(|place, mut work, resumed| {
        let outcome = place.run(Task::new(async move {
            begin(&mut work).await;
            // Its children run.
            hops(20).await;
            let continuation = resumed.recv().expect("it has begun");
            let polls = Arc::new(AtomicUsize::new(0));
            let mut all: FuturesUnordered<_> = [Counting(work, polls.clone())].into_iter().collect();
            let ended = match select(all.next(), pin!(hops(100))).await {
                Either::Left((ended, _)) => ended,
                Either::Right(_) => None,
            };
            assert_eq!((ended, polls.load(SeqCst)), (None, 1));
            thread::spawn(move || continuation.resume(7));
            let ended = all.next().await;
            (ended, polls.load(SeqCst))
        }));
        assert_eq!(outcome.unwrap(), (Some(7), 2));
    });
}

/// Many move, and each is polled for its own end only.
#[test]
fn the_end_of_one_does_not_poll_the_others() {
    const MANY: usize = 50;
    everywhere(|place| {
        let (resume, resumed) = mpsc::channel();
        let outcome = place.run(Task::new(async move {
            let polls = Arc::new(AtomicUsize::new(0));
            let mut works = Vec::new();
            for _ in 0..MANY {
                let mut work: Work = Box::pin(value(resume.clone()));
                begin(&mut work).await;
                works.push(Counting(work, polls.clone()));
            }
            let mut all: FuturesUnordered<_> = works.into_iter().collect();
            let mut sum = 0;
            for _ in 0..MANY {
                let continuation = resumed.recv().expect("all have begun");
                thread::spawn(move || continuation.resume(1));
                sum += all.next().await.unwrap_or(0);
            }
            (sum as usize, polls.load(SeqCst))
        }));
        let (sum, polls) = outcome.unwrap();
        assert_eq!(sum, MANY);
        // One under the new waker, and one at the end.
        assert!(polls <= 2 * MANY, "{polls}");
    });
}

/// The code of another crate blocks the thread inside the poll. The whole runs on another thread: children that were set aside are
/// published.
#[test]
fn a_future_that_moves_into_a_blocking_call_wakes_it() {
    let dog = Watchdog::new(Duration::from_secs(60));
    let pool = ThreadPool::new(2);
    for at in 0..4 {
        let (resume, resumed) = mpsc::channel();
        let Some((name, mut work)) = kinds(&resume).into_iter().nth(at) else {
            return;
        };
        drop(resume);
        dog.step(name);
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = polls.clone();
        let blocks = Task::new(async move {
            poll_fn(move |cx| {
                assert!(work.as_mut().poll(cx).is_pending());
                Poll::Ready(pollster::block_on(Counting(&mut work, counted.clone())))
            })
            .await
        });
        thread::scope(|scope| {
            let polls = &polls;
            scope.spawn(move || {
                let continuation = resumed.recv().expect("it has begun");
                while polls.load(SeqCst) == 0 {
                    thread::yield_now();
                }
                let _ = continuation.resume(7);
            });
            assert_eq!(sync_wait(starts_on(pool.scheduler(), blocks)).unwrap(), 7);
        });
        assert!(polls.load(SeqCst) <= 2, "{name}");
    }
}

/// A waker that does something else as well, or instead.
struct Passing<F>(Waker, F);

impl<F: Fn(&Waker) + Send + Sync> Wake for Passing<F> {
    fn wake(self: Arc<Self>) {
        (self.1)(&self.0);
    }
}

/// Polls a future with a waker made from that of the task.
async fn under<F: Fn(&Waker) + Send + Sync + 'static>(work: &mut Work, then: impl Fn() -> F) -> u32 {
    poll_fn(|cx| {
        let waker = Waker::from(Arc::new(Passing(cx.waker().clone(), then())));
        work.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

#[test]
fn the_waker_of_the_last_poll_is_woken() {
    of_each(|place, mut work, resumed| {
        let census = Census::new();
        let (seen, wakes) = (census.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = wakes.clone();
        let outcome = place.run(Task::new(async move {
            begin(&mut work).await;
            hops(20).await;
            let continuation = resumed.recv().expect("it has begun");
            let new_waker = || {
                let (value, wakes) = (census.value(), counted.clone());
                move |task: &Waker| {
                    let _value = &value;
                    wakes.fetch_add(1, SeqCst);
                    task.wake_by_ref();
                }
            };
            for _ in 0..5 {
                let polled = poll_fn(|cx| Poll::Ready(pin!(under(&mut work, new_waker)).poll(cx).is_ready())).await;
                assert!(!polled);
                assert_eq!(census.alive(), 1, "the others are dropped");
            }
            thread::spawn(move || continuation.resume(7));
            under(&mut work, new_waker).await
        }));
        assert_eq!(outcome.unwrap(), 7);
        assert!(wakes.load(SeqCst) <= 1);
        assert_eq!(seen.alive(), 0);
    });
}

#[test]
fn a_future_that_moved_is_dropped_in_flight() {
    for resumes in [true, false] {
        of_each(|place, mut work, resumed| {
            let census = Census::new();
            let seen = census.clone();
            let outcome = place.run(Task::new(async move {
                begin(&mut work).await;
                hops(20).await;
                let continuation = resumed.recv().expect("it has begun");
                let new_waker = || {
                    let value = census.value();
                    move |_: &Waker| _ = &value
                };
                begin(&mut pin!(under(&mut work, new_waker))).await;
                if resumes {
                    thread::spawn(move || continuation.resume(7));
                }
                drop(work);
                hops(3).await;
                7
            }));
            assert_eq!(outcome.unwrap(), 7);
            assert_eq!(seen.alive(), 0);
        });
    }
}

#[test]
fn a_waker_may_panic() {
    of_each(|place, mut work, resumed| {
        let outcome = place.run(Task::new(async move {
            begin(&mut work).await;
            hops(20).await;
            let continuation = resumed.recv().expect("it has begun");
            thread::spawn(move || continuation.resume(7));
            // The end of the await also wakes the task.
            under(&mut work, || |_: &Waker| quiet_panic()).await
        }));
        assert_eq!(outcome.unwrap(), 7);
    });
}

/// The waker polls the future inside its `wake`, and drops it there.
#[test]
fn a_waker_may_poll_in_place() {
    of_each(|place, mut work, resumed| {
        let (kept, result) = (Arc::new(Mutex::new(None::<Work>)), Arc::new(Mutex::new(None)));
        let taken = result.clone();
        let outcome = place.run(Task::new(async move {
            begin(&mut work).await;
            hops(20).await;
            let continuation = resumed.recv().expect("it has begun");
            let new_waker = || {
                let (kept, result) = (kept.clone(), result.clone());
                move |task: &Waker| {
                    let work = lock(&kept).take();
                    if let Some(mut work) = work {
                        let cx = &mut Context::from_waker(Waker::noop());
                        // A scope panics outside of its task.
                        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx).is_ready()));
                        *lock(&result) = Some(polled.unwrap_or(true));
                    }
                    task.wake_by_ref();
                }
            };
            begin(&mut pin!(under(&mut work, new_waker))).await;
            *lock(&kept) = Some(work);
            let resumed = Arc::new(AtomicBool::new(false));
            thread::spawn({
                let resumed = resumed.clone();
                move || {
                    let _ = continuation.resume(7);
                    resumed.store(true, SeqCst);
                }
            });
            while !resumed.load(SeqCst) || lock(&result).is_none() {
                hops(1).await;
            }
        }));
        assert!(outcome.is_value());
        assert_eq!(*lock(&taken), Some(true));
    });
}
