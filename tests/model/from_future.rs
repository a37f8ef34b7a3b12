//! `from_future`: a wake-up against the poll, against a stop and against the completion.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

use bowline::prelude::*;
use bowline::scheduler::InlineScheduler;
use bowline::stop::StopSource;
use loom::sync::Mutex;

use crate::support::{Ended, Watched, World, race};

/// An event that happens once, and its waiters.
#[derive(Clone, Default)]
struct Event(Arc<Mutex<(bool, Option<Waker>)>>);

impl Event {
    /// Makes the event happen, and wakes the waiters.
    fn happen(&self) {
        let waker = {
            let mut state = self.0.lock().expect("nobody panicked");
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A future that waits for an event and returns a value.
struct Wait {
    event: Event,
    value: Option<Watched>,
    polls: Arc<AtomicUsize>,
    /// Wakes itself during its first poll.
    restless: bool,
}

impl Wait {
    fn new(world: &World, event: &Event) -> (Self, Arc<AtomicUsize>) {
        let polls = Arc::new(AtomicUsize::new(0));
        let wait = Wait {
            event: event.clone(),
            value: Some(world.census.value(5)),
            polls: polls.clone(),
            restless: false,
        };
        (wait, polls)
    }
}

impl Future for Wait {
    type Output = Watched;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Watched> {
        self.polls.fetch_add(1, SeqCst);
        let happened = {
            let mut state = self.event.0.lock().expect("nobody panicked");
            if !state.0 {
                state.1 = Some(context.waker().clone());
            }
            state.0
        };
        // Each poll must be ordered after the previous one, on any thread.
        let number = self.value.as_ref().expect("not polled after its end").read();
        assert_eq!(number, 5);
        if happened {
            return Poll::Ready(self.value.take().expect("not polled after its end"));
        }
        if std::mem::take(&mut self.restless) {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// Covers the event before the first poll; during it, when the polling thread polls again; and after it, when the waking thread
/// polls. The scheduler is inline, so a future is polled where it is woken.
#[test]
fn a_wake_up_races_with_the_poll() {
    race(3, &["before", "while", "after"], |world, root, report| {
        let event = Event::default();
        let (wait, polls) = Wait::new(&world, &event);
        world.threads.spawn(move || event.happen());
        submit(from_future(wait).write_env(WithScheduler(InlineScheduler)), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(5));
        match (polls.load(SeqCst), report.here()) {
            (1, true) => "before",
            (2, true) => "while",
            (2, false) => "after",
            other => panic!("{other:?}"),
        }
    });
}

/// Covers a future that wakes itself being woken from outside too: before, at the same time, when the two wake-ups are one, and
/// after.
#[test]
fn a_wake_up_meets_one_from_inside() {
    race(2, &["one poll", "two polls", "three polls"], |world, root, report| {
        let event = Event::default();
        let (mut wait, polls) = Wait::new(&world, &event);
        wait.restless = true;
        world.threads.spawn(move || event.happen());
        submit(from_future(wait).write_env(WithScheduler(InlineScheduler)), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(5));
        match polls.load(SeqCst) {
            1 => "one poll",
            2 => "two polls",
            3 => "three polls",
            other => panic!("{other} polls"),
        }
    });
}

/// Covers the stop before the start, while the future waits, and after it has completed, each against the wake-up.
#[test]
fn a_stop_races_with_a_wake_up() {
    race(2, &["never polled", "stopped", "completed"], |world, root, report| {
        let source = StopSource::new();
        let event = Event::default();
        let (wait, polls) = Wait::new(&world, &event);
        let work = from_future(wait)
            .write_env(WithScheduler(InlineScheduler))
            .write_env(WithStopToken(source.token()));
        world.threads.spawn(move || assert!(source.request_stop()));
        world.threads.spawn(move || event.happen());
        submit(work, root);
        world.end();
        match (report.get(), polls.load(SeqCst)) {
            (Ended::Stopped, 0) => "never polled",
            (Ended::Stopped, _) => "stopped",
            (Ended::Value(5), _) => "completed",
            other => panic!("{other:?}"),
        }
    });
}

/// Covers a clone of the waker being used before the completion and after it, by another thread than the completing one.
#[test]
fn a_waker_outlives_the_operation() {
    race(2, &["polled for it", "too late"], |world, root, report| {
        let event = Event::default();
        let (wait, polls) = Wait::new(&world, &event);
        submit(from_future(wait).write_env(WithScheduler(InlineScheduler)), root);
        let kept = event.0.lock().expect("nobody panicked").1.clone().expect("it waits");
        world.threads.spawn(move || {
            kept.wake_by_ref();
            drop(kept);
        });
        event.happen();
        world.end();
        assert_eq!(report.get(), Ended::Value(5));
        match polls.load(SeqCst) {
            2 => "too late",
            3 => "polled for it",
            other => panic!("{other} polls"),
        }
    });
}
