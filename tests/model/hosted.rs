//! The hosted queue: pushing against parking, against a driver that is dropped, and against the end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};

use bowline::prelude::*;
use bowline::scheduler::{Host, HostedDriver, HostedScheduler};
use bowline::task::{SpawnOptions, detach_with};
use loom::sync::Notify;
use loom::thread::{self, ThreadId};

use crate::support::{Census, Seen, Threads, explore, explore_both_ways};

/// A host of one driver, which sleeps until it is woken.
struct HostThread {
    driver: Pin<Box<HostedDriver>>,
    woken: Arc<WakeThread>,
}

struct WakeThread(Notify);

impl Wake for WakeThread {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

impl HostThread {
    /// Creates a scheduler, and the thread of its only driver.
    fn single() -> (HostedScheduler, Self) {
        let (scheduler, mut drivers) = HostedScheduler::new(1);
        (scheduler, HostThread::new(drivers.pop().expect("one driver")))
    }

    fn new(driver: HostedDriver) -> Self {
        HostThread {
            driver: Box::pin(driver),
            woken: Arc::new(WakeThread(Notify::new())),
        }
    }

    /// Returns whether the driver has left.
    fn poll(&mut self) -> bool {
        let waker = Waker::from(self.woken.clone());
        self.driver.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
    }

    fn sleep(&self) {
        self.woken.0.wait();
    }

    /// Polls the driver until it has left.
    fn poll_to_the_end(&mut self) {
        while !self.poll() {
            self.sleep();
        }
    }
}

/// The runs of the jobs of a model.
#[derive(Clone, Default)]
struct Runs {
    /// Not a `loom` atomic, so it orders nothing.
    count: Arc<AtomicUsize>,
    /// The thread of the last run.
    place: Arc<std::sync::Mutex<Option<ThreadId>>>,
    census: Census,
}

impl Runs {
    /// Queues a job, which reads a value that this thread has written.
    fn push(&self, scheduler: HostedScheduler, number: u32) {
        let (count, place, value) = (self.count.clone(), self.place.clone(), self.census.value(number));
        value.touch();
        execute(scheduler, move || {
            assert_eq!(value.read(), number);
            count.fetch_add(1, SeqCst);
            *place.lock().expect("no thread panicked") = Some(thread::current().id());
        });
    }

    /// Returns a function that calls `body`, and notes the outcome if the calling thread has run a job by then.
    fn noting<F: FnOnce(&Runs)>(&self, outcome: &'static str, seen: &Seen, body: F) -> impl FnOnce() + use<F> {
        let (runs, seen) = (self.clone(), seen.clone());
        move || {
            body(&runs);
            if *runs.place.lock().expect("no thread panicked") == Some(thread::current().id()) {
                seen.note(outcome);
            }
        }
    }

    fn count(&self) -> usize {
        self.count.load(SeqCst)
    }

    fn end(&self, expected: usize) {
        assert_eq!(self.count(), expected);
        assert_eq!(self.census.alive(), 0);
    }
}

/// Covers a push before the driver parks, and one that wakes it. No run of this model hangs.
#[test]
fn pushes_meet_a_driver_that_parks() {
    explore(3, &["slept", "did not sleep"], |seen| {
        let (scheduler, mut host) = HostThread::single();
        let (runs, threads) = (Runs::default(), Threads::default());
        for number in [1, 2] {
            let runs = runs.clone();
            threads.spawn(move || runs.push(scheduler, number));
        }
        let mut slept = "did not sleep";
        host.poll();
        while runs.count() < 2 {
            slept = "slept";
            host.sleep();
            host.poll();
        }
        threads.join();
        drop(host);
        runs.end(2);
        seen.note(slept);
    });
}

/// A host whose driver returns to it after each job.
struct Yields(std::sync::Mutex<Option<HostedDriver>>);

impl Host for &'static Yields {
    fn spawn(&self, driver: HostedDriver) {
        *self.0.lock().expect("no thread panicked") = Some(driver);
    }

    fn should_yield(&self) -> bool {
        true
    }
}

/// A job is pushed while the driver, which has run its share, finds the queue empty. It runs in a later poll, for which the driver was
/// woken. No run of this model hangs.
#[test]
fn a_push_meets_a_driver_that_yields() {
    explore(3, &["ran"], |seen| {
        let host: &'static Yields = Box::leak(Box::new(Yields(std::sync::Mutex::new(None))));
        let scheduler = HostedScheduler::on(host, 1);
        let (runs, threads) = (Runs::default(), Threads::default());
        runs.push(scheduler, 1);
        threads.spawn({
            let runs = runs.clone();
            move || runs.push(scheduler, 2)
        });
        let driver = host.0.lock().expect("no thread panicked").take();
        let mut host = HostThread::new(driver.expect("one driver"));
        host.poll();
        while runs.count() < 2 {
            host.sleep();
            host.poll();
        }
        threads.join();
        drop(host);
        runs.end(2);
        seen.note("ran");
    });
}

/// Two drivers share two jobs: each is run once, by either.
#[test]
fn two_drivers_share_the_jobs() {
    explore(2, &["both here", "both there", "one each"], |seen| {
        let (scheduler, drivers) = HostedScheduler::new(2);
        let (runs, threads) = (Runs::default(), Threads::default());
        let mut hosts = drivers.into_iter().map(HostThread::new);
        let (mut here, mut there) = (hosts.next().expect("two"), hosts.next().expect("two"));
        let me = thread::current().id();
        let ran_here = Arc::new(AtomicUsize::new(0));
        for number in [1, 2] {
            runs.push(scheduler, number);
            let ran_here = ran_here.clone();
            execute(scheduler, move || {
                ran_here.fetch_add(usize::from(thread::current().id() == me), SeqCst);
            });
        }
        threads.spawn(move || {
            there.poll();
            drop(there);
        });
        here.poll();
        threads.join();
        drop(here);
        runs.end(2);
        seen.note(match ran_here.load(SeqCst) {
            0 => "both there",
            1 => "one each",
            _ => "both here",
        });
    });
}

/// Covers a push before the last driver is dropped, and after it. The job runs once: in the driver, by the forwarding thread,
/// or by the pusher. A model has no global pool, so a forwarded job runs on the thread that forwards it.
#[test]
fn pushes_meet_the_last_drop() {
    explore_both_ways(3, &["driven", "forwarded", "refused"], |seen, order| {
        let (scheduler, mut host) = HostThread::single();
        let (runs, threads) = (Runs::default(), Threads::default());
        let place = Arc::new(AtomicUsize::new(0));
        let push = Box::new({
            let (place, runs) = (place.clone(), runs.clone());
            move || {
                let (pusher, count) = (thread::current().id(), runs.count.clone());
                let value = runs.census.value(1);
                value.touch();
                execute(scheduler, move || {
                    assert_eq!(value.read(), 1);
                    count.fetch_add(1, SeqCst);
                    let here = thread::current().id() == pusher;
                    place.fetch_add(if here { 2 } else { 1 }, SeqCst);
                });
            }
        });
        let polled = Arc::new(AtomicUsize::new(0));
        let host = Box::new({
            let (runs, polled) = (runs.clone(), polled.clone());
            move || {
                host.poll();
                polled.store(runs.count(), SeqCst);
                drop(host);
            }
        });
        threads.run(order, [push, host]);
        assert!(scheduler.has_ended());
        runs.end(1);
        seen.note(match (place.load(SeqCst), polled.load(SeqCst)) {
            (2, _) => "refused",
            (_, 1) => "driven",
            _ => "forwarded",
        });
    });
}

/// A driver that was woken for a job is dropped at the same time. The job runs once, and the other driver is woken and leaves: no run of
/// this model hangs. A model has no global pool: see above.
#[test]
fn a_drop_meets_a_push_and_the_other_driver() {
    explore(3, &["driven", "forwarded", "refused"], |seen| {
        let (scheduler, drivers) = HostedScheduler::new(2);
        let (runs, threads) = (Runs::default(), Threads::default());
        let mut hosts = drivers.into_iter().map(HostThread::new);
        let (mut dropped, mut kept) = (hosts.next().expect("two"), hosts.next().expect("two"));
        // Parked first, so that it is woken first.
        dropped.poll();
        threads.spawn(runs.noting("refused", seen, move |runs| runs.push(scheduler, 1)));
        threads.spawn(runs.noting("forwarded", seen, move |_| drop(dropped)));
        runs.noting("driven", seen, |_| kept.poll_to_the_end())();
        assert!(scheduler.has_ended());
        threads.join();
        drop(kept);
        runs.end(1);
    });
}

/// The host ends the scheduler while a job is pushed, and while its driver is polled. The job runs once, and the driver is woken and leaves:
/// no run of this model hangs.
#[test]
fn an_end_meets_a_push_and_a_driver() {
    explore(3, &["driven", "forwarded", "refused"], |seen| {
        let (scheduler, mut host) = HostThread::single();
        let (runs, threads) = (Runs::default(), Threads::default());
        threads.spawn(runs.noting("refused", seen, move |runs| runs.push(scheduler, 1)));
        threads.spawn(runs.noting("forwarded", seen, move |_| scheduler.end()));
        runs.noting("driven", seen, |_| host.poll_to_the_end())();
        assert!(scheduler.has_ended());
        threads.join();
        drop(host);
        runs.end(1);
    });
}

/// The host ends the scheduler by a call and by the drop of its driver at once, with a job in the queue: one of them forwards it.
#[test]
fn an_end_meets_a_drop() {
    explore_both_ways(3, &["ended", "dropped"], |seen, order| {
        let (scheduler, drivers) = HostedScheduler::new(1);
        let (runs, threads) = (Runs::default(), Threads::default());
        runs.push(scheduler, 1);
        let end = runs.noting("ended", seen, move |_| scheduler.end());
        let drops = runs.noting("dropped", seen, move |_| drop(drivers));
        threads.run(order, [Box::new(end), Box::new(drops)]);
        assert!(scheduler.has_ended());
        runs.end(1);
    });
}

/// Both drivers are dropped at once, with a job in the queue: one of them forwards it.
#[test]
fn two_drops_forward_a_job_once() {
    explore_both_ways(3, &["forwarded"], |seen, order| {
        let (scheduler, drivers) = HostedScheduler::new(2);
        let (runs, threads) = (Runs::default(), Threads::default());
        runs.push(scheduler, 1);
        let mut drops = drivers
            .into_iter()
            .map(|driver| Box::new(move || drop(driver)) as Box<dyn FnOnce()>);
        let both = [drops.next().expect("two"), drops.next().expect("two")];
        threads.run(order, both);
        assert!(scheduler.has_ended());
        runs.end(1);
        seen.note("forwarded");
    });
}

/// A raise of a queued task meets the end of the queue. The task runs once, and the raise neither hangs nor changes a list that
/// the task has left.
#[test]
fn a_raise_meets_the_last_drop() {
    explore_both_ways(2, &["ran"], |seen, order| {
        let (scheduler, drivers) = HostedScheduler::new(1);
        let (runs, threads) = (Runs::default(), Threads::default());
        let detach = |number| {
            let (count, value) = (runs.count.clone(), runs.census.value(number));
            let options = SpawnOptions::new().scheduler(scheduler).priority(Priority::Utility);
            detach_with(options, async move {
                value.touch();
                count.fetch_add(1, SeqCst);
            })
        };
        let (first, second) = (detach(1), detach(2));
        let raise = Box::new(move || {
            second.raise(Priority::UserInitiated);
            drop(second);
        });
        threads.run(order, [raise, Box::new(move || drop(drivers))]);
        drop(first);
        runs.end(2);
        seen.note("ran");
    });
}
