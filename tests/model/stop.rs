//! Stop sources: concurrent registration, deregistration and stop.

use std::any::{Any, TypeId};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bowline::prelude::*;
use bowline::stop::{InplaceStopSource, SharedStopToken, StopCallback, StopSource, with_callback};
use bowline::{NoScheduler, Panic, Transfer};
use loom::cell::UnsafeCell;

use crate::support::{Ended, Root, Watched, World, costly, explore};

/// A count that `loom` watches: each access must be ordered after the previous one.
struct Tally(UnsafeCell<u32>);

// SAFETY: `loom` reports unordered accesses.
unsafe impl Send for Tally {}
// SAFETY: as for `Send`.
unsafe impl Sync for Tally {}

impl Tally {
    fn new() -> Self {
        Tally(UnsafeCell::new(0))
    }

    fn add(&self) -> u32 {
        // SAFETY: `loom` reports unordered accesses.
        self.0.with_mut(|count| unsafe {
            *count += 1;
            *count
        })
    }
}

/// Covers the callback running at registration, during the body, and not at all. After `with_callback` has returned the
/// callback is over: what it touched may be touched again.
#[test]
fn a_callback_is_over_when_its_registration_is_gone() {
    explore(3, &["at once", "beside", "never"], |seen| {
        let world = World::default();
        let source = Arc::new(InplaceStopSource::new());
        world.threads.spawn({
            let source = source.clone();
            move || assert!(source.request_stop())
        });
        let tally = Tally::new();
        let runs = AtomicUsize::new(0);
        let captured = world.census.value(7);
        let at_once = with_callback(
            source.token(),
            || {
                assert_eq!(captured.read(), 7);
                tally.add();
                runs.fetch_add(1, SeqCst);
                drop(captured);
            },
            || runs.load(SeqCst) == 1,
        );
        let runs = runs.into_inner();
        assert_eq!(tally.add() as usize, runs + 1);
        seen.note(match (at_once, runs) {
            (true, 1) => "at once",
            (false, 1) => "beside",
            (false, 0) => "never",
            other => panic!("{other:?}"),
        });
        world.end();
        assert!(source.stop_requested());
    });
}

/// Covers each of two registrations, neighbours in the list, running its callback and leaving before.
#[test]
fn neighbours_leave_a_list_that_is_being_fired() {
    explore(costly(2), &["both", "mine", "the other's", "neither"], |seen| {
        let world = World::default();
        let source = Arc::new(InplaceStopSource::new());
        let other = Arc::new(AtomicUsize::new(0));
        let stopped = Arc::new(Tally::new());
        world.threads.spawn({
            let (source, stopped) = (source.clone(), stopped.clone());
            move || {
                stopped.add();
                assert!(source.request_stop());
            }
        });
        world.threads.spawn({
            let (source, other) = (source.clone(), other.clone());
            move || {
                let count = || {
                    other.fetch_add(1, SeqCst);
                };
                with_callback(source.token(), count, || ());
            }
        });
        let mut mine = 0;
        with_callback(source.token(), || mine += 1, || ());
        if source.stop_requested() {
            // A thread that sees the stop also sees the requester's earlier writes.
            stopped.add();
        }
        world.end();
        seen.note(match (mine, other.load(SeqCst)) {
            (1, 1) => "both",
            (1, 0) => "mine",
            (0, 1) => "the other's",
            (0, 0) => "neither",
            other => panic!("{other:?}"),
        });
    });
}

/// Covers either of two requesters being the first. The other gets `false`, and the callback runs once.
#[test]
fn one_of_two_requests_counts() {
    explore(3, &["this thread", "the other thread"], |seen| {
        let world = World::default();
        let source = Arc::new(InplaceStopSource::new());
        let first = Arc::new(AtomicUsize::new(0));
        let mut runs = 0;
        with_callback(
            source.token(),
            || runs += 1,
            || {
                world.threads.spawn({
                    let (source, first) = (source.clone(), first.clone());
                    move || {
                        first.fetch_add(usize::from(source.request_stop()), SeqCst);
                    }
                });
                let here = source.request_stop();
                world.end();
                assert_eq!(first.load(SeqCst) + usize::from(here), 1);
                seen.note(if here { "this thread" } else { "the other thread" });
            },
        );
        assert_eq!(runs, 1);
    });
}

/// Covers the closure dropping its own registration, and another thread deregistering it: before the stop, while it runs, and
/// after.
#[test]
fn a_registration_is_dropped_by_its_closure_or_beside_it() {
    type Place = Arc<loom::sync::Mutex<Option<Pin<Box<StopCallback<SharedStopToken, Box<dyn FnOnce() + Send>>>>>>>;

    explore(3, &["by itself", "before the stop", "beside it"], |seen| {
        let world = World::default();
        let source = StopSource::new();
        let place = Place::default();
        let ran = Arc::new(Mutex::new(None));
        let closure: Box<dyn FnOnce() + Send> = Box::new({
            let (place, ran, captured) = (place.clone(), ran.clone(), world.census.value(3));
            move || {
                let own = place.lock().expect("nobody panicked").take();
                *ran.lock().expect("nobody panicked") = Some(own.is_some());
                drop(own);
                assert_eq!(captured.read(), 3);
            }
        });
        let mut callback = Box::pin(StopCallback::new(source.token(), closure));
        callback.as_mut().register();
        *place.lock().expect("nobody panicked") = Some(callback);
        world.threads.spawn(move || assert!(source.request_stop()));
        let taken = place.lock().expect("nobody panicked").take();
        drop(taken);
        world.end();
        let ran = *ran.lock().expect("nobody panicked");
        seen.note(match ran {
            Some(true) => "by itself",
            Some(false) => "beside it",
            None => "before the stop",
        });
    });
}

/// Covers the operation stopped before it was started, stopped while it ran, and completed before the stop. Its own completion
/// destroys it, on whichever thread.
#[test]
fn a_stop_races_with_the_start_and_the_end_of_an_operation() {
    explore(3, &["before", "while", "too late"], |seen| {
        let world = World::default();
        let source = StopSource::new();
        let (root, report) = world.root();
        let work = world.stoppable(5).write_env(WithStopToken(source.token()));
        world.threads.spawn(move || assert!(source.request_stop()));
        submit(work, root);
        let at_once = report.is_there() && report.here();
        world.end();
        seen.note(match report.get() {
            Ended::Value(5) => "too late",
            Ended::Stopped if at_once => "before",
            Ended::Stopped => "while",
            other => panic!("{other:?}"),
        });
    });
}

/// An environment that creates a source for each token, linked to the parent, and keeps none.
#[derive(Clone)]
struct Fresh(SharedStopToken);

impl Env for Fresh {
    type StopToken = SharedStopToken;
    type Scheduler = NoScheduler;

    fn stop_token(&self) -> SharedStopToken {
        StopSource::linked_to(&self.0).token()
    }

    fn scheduler(&self) -> NoScheduler {
        NoScheduler
    }

    fn visit(&self, _: TypeId, _: &mut dyn FnMut(&dyn Any)) {}
}

/// A receiver in such an environment.
struct InFresh(Root, Fresh);

impl Receiver<Watched, &'static str> for InFresh {
    type Env = Fresh;

    fn env(&self) -> Fresh {
        self.1.clone()
    }

    fn set_value(self, value: Watched) -> Transfer {
        Receiver::<_, &'static str>::set_value(self.0, value)
    }

    fn set_error(self, error: &'static str) -> Transfer {
        Receiver::<Watched, _>::set_error(self.0, error)
    }

    fn set_stopped(self) -> Transfer {
        Receiver::<Watched, &'static str>::set_stopped(self.0)
    }

    fn set_panicked(self, payload: Panic) -> Transfer {
        Receiver::<Watched, &'static str>::set_panicked(self.0, payload)
    }
}

/// Covers the same three cases where only the slot owns the source it listens to. The source is destroyed with the operation,
/// even while the stop is being passed on or its callbacks run.
#[test]
fn a_slot_keeps_its_source_while_a_stop_races_with_the_end() {
    explore(2, &["before", "while", "too late"], |seen| {
        let world = World::default();
        let parent = StopSource::new();
        let (root, report) = world.root();
        let receiver = InFresh(root, Fresh(parent.token()));
        world.threads.spawn(move || assert!(parent.request_stop()));
        submit(world.stoppable(5), receiver);
        let at_once = report.is_there() && report.here();
        world.end();
        seen.note(match report.get() {
            Ended::Value(5) => "too late",
            Ended::Stopped if at_once => "before",
            Ended::Stopped => "while",
            other => panic!("{other:?}"),
        });
    });
}

/// Covers linking before the stop and after it. A linked source always stops.
#[test]
fn a_link_that_races_with_the_stop_is_not_lost() {
    explore(3, &["linked, then stopped", "stopped, then linked"], |seen| {
        let world = World::default();
        let parent = StopSource::new();
        let token = parent.token();
        world.threads.spawn(move || assert!(parent.request_stop()));
        let child = StopSource::linked_to(&token);
        let at_once = child.stop_requested();
        world.end();
        assert!(child.stop_requested());
        seen.note(if at_once {
            "stopped, then linked"
        } else {
            "linked, then stopped"
        });
    });
}

/// Covers the parent's stop reaching a linked source, and the source being dropped before. After the drop, what its callback
/// touched may be touched again.
#[test]
fn a_linked_source_goes_while_its_parent_stops() {
    explore(2, &["reached", "gone before"], |seen| {
        let world = World::default();
        let parent = StopSource::new();
        let child = StopSource::linked_to(&parent.token());
        world.threads.spawn(move || assert!(parent.request_stop()));
        let captured = world.census.value(1);
        let mut reached = false;
        with_callback(
            child.token(),
            || {
                reached = true;
                drop(captured);
            },
            move || drop(child),
        );
        seen.note(if reached { "reached" } else { "gone before" });
        world.end();
    });
}
