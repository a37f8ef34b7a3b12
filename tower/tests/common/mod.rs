//! Helpers shared by the tests.
#![allow(dead_code, unreachable_pub, reason = "every test file uses some of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tower::Service;

/// A limit far beyond the duration of a test: it turns a hang into a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn multi_thread(threads: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("tokio-worker")
        .enable_all()
        .build()
        .expect("a runtime")
}

pub fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs a test on a thread of its own, and fails if it does not end.
pub fn in_time<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    let thread = thread::spawn(move || {
        let value = test();
        let _ = done.send(value);
    });
    match result.recv_timeout(PATIENCE) {
        Ok(value) => {
            let _ = thread.join();
            value
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(payload) => std::panic::resume_unwind(payload),
            Ok(()) => unreachable!("the test has sent its result"),
        },
    }
}

/// Waits until the condition holds.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} never happened");
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
}

/// Returns the name of the calling thread.
pub fn here() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

/// A value that counts its drop.
#[derive(Clone, Debug, Default)]
pub struct Drops(Arc<AtomicUsize>);

impl Drops {
    pub fn count(&self) -> usize {
        self.0.load(SeqCst)
    }

    pub fn guard(&self) -> DropGuard {
        DropGuard(self.0.clone())
    }
}

#[derive(Debug)]
pub struct DropGuard(Arc<AtomicUsize>);

impl Drop for DropGuard {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A waker that counts its wake-ups.
#[derive(Debug, Default)]
pub struct Wakes(AtomicUsize);

impl Wakes {
    pub fn new() -> (Arc<Wakes>, Waker) {
        let wakes = Arc::new(Wakes::default());
        (wakes.clone(), Waker::from(wakes))
    }

    pub fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Polls a service, whose error is not expected.
pub fn is_ready<S: Service<(), Error: std::fmt::Debug>>(service: &mut S, waker: &Waker) -> bool {
    match service.poll_ready(&mut Context::from_waker(waker)) {
        Poll::Ready(ready) => {
            ready.unwrap();
            true
        }
        Poll::Pending => false,
    }
}
