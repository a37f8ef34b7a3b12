//! Stop sources, tokens and callbacks.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};

use crate::common::*;
use bowline::prelude::*;
use bowline::stop::{InplaceStopSource, NeverStop, SharedStopToken, StopCallback, StopSource, with_callback};

/// A registered callback on the heap.
type Registration = Pin<Box<dyn Send>>;

fn registered(token: SharedStopToken, closure: impl FnOnce() + Send + 'static) -> Registration {
    let mut callback = Box::pin(StopCallback::new(token, closure));
    callback.as_mut().register();
    callback
}

#[test]
fn the_first_request_counts_and_no_other() {
    let inplace = InplaceStopSource::new();
    assert!(!inplace.stop_requested() && !inplace.token().stop_requested());
    assert!(inplace.request_stop());
    assert!(!inplace.request_stop());
    assert!(inplace.stop_requested() && inplace.token().stop_requested());

    let shared = StopSource::new();
    let token = shared.token();
    assert!(!shared.stop_requested() && !token.stop_requested());
    assert!(shared.clone().request_stop());
    assert!(!shared.request_stop());
    assert!(shared.stop_requested() && token.stop_requested());
}

#[test]
fn of_many_threads_exactly_one_requests_first() {
    const THREADS: usize = 8;
    for _ in 0..50 {
        let inplace = InplaceStopSource::new();
        let shared = StopSource::new();
        let (first_inplace, first_shared) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let together = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                let shared = shared.clone();
                let (inplace, first_inplace, first_shared, together) =
                    (&inplace, &first_inplace, &first_shared, &together);
                scope.spawn(move || {
                    together.wait();
                    first_inplace.fetch_add(usize::from(inplace.request_stop()), SeqCst);
                    first_shared.fetch_add(usize::from(shared.request_stop()), SeqCst);
                });
            }
        });
        assert_eq!((first_inplace.into_inner(), first_shared.into_inner()), (1, 1));
    }
}

#[test]
fn the_token_that_never_stops_knows_and_costs_nothing() {
    assert!(!NeverStop.stop_requested());
    assert!(!NeverStop.stop_possible());
    assert_eq!(size_of::<NeverStop>(), 0);
    let called = Cell::new(false);
    let called_by_stop = AtomicBool::new(false);
    with_callback(NeverStop, || called_by_stop.store(true, SeqCst), || called.set(true));
    assert!(called.get() && !called_by_stop.into_inner());
    let mut callback = pin!(StopCallback::new(NeverStop, || panic!("called")));
    callback.as_mut().register();
}

#[test]
fn tokens_are_equal_when_their_source_is_one() {
    let (a, b) = (InplaceStopSource::new(), InplaceStopSource::new());
    assert_eq!(a.token(), a.token());
    assert_ne!(a.token(), b.token());
    let (a, b) = (StopSource::new(), StopSource::new());
    assert_eq!(a.token(), a.clone().token());
    assert_ne!(a.token(), b.token());
}

#[test]
fn a_stop_is_possible_while_there_is_someone_to_request_it() {
    let source = StopSource::new();
    let token = source.token();
    let other = source.clone();
    drop(source);
    assert!(token.stop_possible());
    drop(other);
    assert!(!token.stop_possible());

    let stopped = StopSource::new();
    let token = stopped.token();
    stopped.request_stop();
    drop(stopped);
    assert!(token.stop_possible(), "it has been requested");

    let parent = StopSource::new();
    let token = StopSource::linked_to(&parent.token()).token();
    assert!(token.stop_possible(), "the parent still can");
    drop(parent);
    assert!(!token.stop_possible());
}

#[test]
fn a_callback_runs_once_when_the_stop_is_requested() {
    let source = StopSource::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let mut callback = pin!(StopCallback::new(source.token(), move || {
        counted.fetch_add(1, SeqCst);
    }));
    callback.as_mut().register();
    callback.as_mut().register();
    assert_eq!(calls.load(SeqCst), 0);
    source.request_stop();
    source.request_stop();
    assert_eq!(calls.load(SeqCst), 1);
}

#[test]
fn a_callback_registered_after_the_stop_runs_at_once() {
    let source = StopSource::new();
    source.request_stop();
    let called = Arc::new(AtomicBool::new(false));
    let flag = called.clone();
    let _callback = registered(source.token(), move || flag.store(true, SeqCst));
    assert!(called.load(SeqCst));
    let order = Mutex::new(Vec::new());
    with_callback(
        source.token(),
        || lock(&order).push("callback"),
        || lock(&order).push("body"),
    );
    assert_eq!(order.into_inner().unwrap(), ["callback", "body"]);
}

#[test]
fn a_callback_that_is_not_registered_or_gone_does_not_run() {
    let census = Census::new();
    let source = StopSource::new();
    let value = census.value();
    let unregistered = StopCallback::new(source.token(), move || panic!("called with {value:?}"));
    let value = census.value();
    drop(registered(source.token(), move || panic!("called with {value:?}")));
    assert_eq!(census.alive(), 1);
    source.request_stop();
    drop(unregistered);
    assert_eq!(census.alive(), 0);
}

#[test]
fn callbacks_taken_back_in_any_order_leave_the_rest_listed() {
    for gone in 0..3 {
        let source = StopSource::new();
        let called = Arc::new(Mutex::new(Vec::new()));
        let mut callbacks: Vec<_> = (0..3)
            .map(|index| {
                let called = called.clone();
                Some(registered(source.token(), move || lock(&called).push(index)))
            })
            .collect();
        callbacks[gone] = None;
        source.request_stop();
        let mut called = lock(&called).clone();
        called.sort_unstable();
        let rest: Vec<_> = (0..3).filter(|index| *index != gone).collect();
        assert_eq!(called, rest);
    }
}

#[test]
fn callbacks_run_on_the_thread_that_requests_outside_any_lock() {
    let source = StopSource::new();
    let seen = Arc::new(Mutex::new(None));
    let (inside, report) = (source.clone(), seen.clone());
    let _callback = registered(source.token(), move || {
        // Everything that takes the source's lock works inside a callback.
        assert!(!inside.request_stop());
        let nested = Arc::new(AtomicBool::new(false));
        let flag = nested.clone();
        drop(registered(inside.token(), move || flag.store(true, SeqCst)));
        *lock(&report) = Some((thread::current().id(), nested.load(SeqCst)));
    });
    source.request_stop();
    assert_eq!(*lock(&seen), Some((thread::current().id(), true)));
}

#[test]
fn a_callback_that_panics_leaves_the_others_and_the_requester_alone() {
    let source = StopSource::new();
    let census = Census::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let callbacks: Vec<_> = (0..3)
        .map(|index| {
            let (calls, value) = (calls.clone(), census.value());
            registered(source.token(), move || {
                let _value = value;
                calls.fetch_add(1, SeqCst);
                assert!(index != 1, "in a callback");
            })
        })
        .collect();
    assert!(source.request_stop());
    assert_eq!((calls.load(SeqCst), census.alive()), (3, 0));
    drop(callbacks);
    let _late = registered(source.token(), || panic!("at once"));
}

#[test]
fn a_panic_of_the_body_takes_the_callback_back() {
    let source = InplaceStopSource::new();
    let called = AtomicBool::new(false);
    let message = panic_message(|| with_callback(source.token(), || called.store(true, SeqCst), || panic!("body")));
    assert_eq!(message, "body");
    source.request_stop();
    assert!(!called.into_inner());
}

#[test]
fn no_callback_is_lost_or_runs_twice_when_registration_races_with_the_stop() {
    for _ in 0..500 {
        let source = StopSource::new();
        let calls = AtomicUsize::new(0);
        let together = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                source.request_stop();
            });
            together.wait();
            let count = || {
                calls.fetch_add(1, SeqCst);
            };
            with_callback(source.token(), count, || {
                while !source.stop_requested() {
                    std::hint::spin_loop();
                }
            });
        });
        assert_eq!(calls.into_inner(), 1);
    }
}

#[test]
fn a_callback_taken_back_while_the_stop_races_runs_before_that_or_never() {
    for round in 0..500 {
        let source = StopSource::new();
        let calls = AtomicUsize::new(0);
        let together = Barrier::new(2);
        thread::scope(|scope| {
            let requester = scope.spawn(|| {
                together.wait();
                source.request_stop();
            });
            let count = || {
                calls.fetch_add(1, SeqCst);
            };
            with_callback(source.token(), count, || {
                together.wait();
                for _ in 0..round % 64 {
                    std::hint::spin_loop();
                }
            });
            let taken_back = calls.load(SeqCst);
            requester.join().unwrap();
            assert_eq!(calls.load(SeqCst), taken_back, "it ran after it was taken back");
        });
    }
}

#[test]
fn taking_a_callback_back_waits_while_it_runs_on_another_thread() {
    let source = StopSource::new();
    let (entered, is_inside) = mpsc::channel();
    let (let_go, released) = mpsc::channel::<()>();
    let finished = Arc::new(AtomicBool::new(false));
    let flag = finished.clone();
    let callback = registered(source.token(), move || {
        entered.send(()).unwrap();
        released.recv().unwrap();
        // The other thread is about to drop it by now, or is dropping it.
        for _ in 0..100 {
            thread::yield_now();
        }
        flag.store(true, SeqCst);
    });
    thread::scope(|scope| {
        scope.spawn(|| source.request_stop());
        is_inside.recv().unwrap();
        let_go.send(()).unwrap();
        drop(callback);
        assert!(finished.load(SeqCst), "the drop did not wait");
    });
}

#[test]
fn a_callback_may_drop_its_own_registration() {
    let census = Census::new();
    let source = StopSource::new();
    let slot: Arc<Mutex<Option<Registration>>> = Arc::default();
    let (own, value) = (slot.clone(), census.value());
    let callback = registered(source.token(), move || {
        let _value = value;
        drop(lock(&own).take().expect("the registration"));
    });
    *lock(&slot) = Some(callback);
    // A second callback behind it, which must still be called.
    let called = Arc::new(AtomicBool::new(false));
    let flag = called.clone();
    let _second = registered(source.token(), move || flag.store(true, SeqCst));
    assert!(source.request_stop());
    assert!(lock(&slot).is_none() && called.load(SeqCst));
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_callback_may_drop_another_registration_and_the_last_source() {
    let source = StopSource::new();
    let token = source.token();
    let others: Arc<Mutex<Vec<Registration>>> = Arc::default();
    let calls = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let (owned, counted) = (others.clone(), calls.clone());
        let callback = registered(token.clone(), move || {
            counted.fetch_add(1, SeqCst);
            // Including its own.
            lock(&owned).clear();
        });
        lock(&others).push(callback);
    }
    let last: Arc<Mutex<Option<StopSource>>> = Arc::new(Mutex::new(None));
    let taken = last.clone();
    let first = registered(token.clone(), move || drop(lock(&taken).take()));
    *lock(&last) = Some(source.clone());
    drop(token);
    source.request_stop();
    drop(source);
    drop(first);
    assert_eq!(calls.load(SeqCst), 1, "the first took the others back");
}

#[test]
fn a_completion_from_inside_the_request_may_destroy_its_operation() {
    // Each operation is freed by its own completion, which the callback causes.
    let source = StopSource::new();
    let census = Census::new();
    for _ in 0..3 {
        let value = census.value();
        start_detached(
            never::<(), std::convert::Infallible>()
                .upon_stopped(move || drop(value))
                .write_env(WithStopToken(source.token())),
        );
    }
    assert_eq!(census.alive(), 3);
    source.request_stop();
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_linked_source_stops_with_its_parent_and_not_the_other_way() {
    let parent = StopSource::new();
    let child = StopSource::linked_to(&parent.token());
    let sibling = StopSource::linked_to(&parent.token());
    child.request_stop();
    assert!(!parent.stop_requested() && !sibling.stop_requested());
    let called = Arc::new(AtomicBool::new(false));
    let flag = called.clone();
    let _callback = registered(sibling.token(), move || flag.store(true, SeqCst));
    assert!(parent.request_stop());
    assert!(sibling.stop_requested() && called.load(SeqCst));
    assert!(!sibling.request_stop());
    assert!(StopSource::linked_to(&parent.token()).stop_requested());
}

#[test]
fn a_linked_source_that_is_gone_is_not_reached() {
    let parent = StopSource::new();
    let child = StopSource::linked_to(&parent.token());
    let token = child.token();
    drop(child);
    drop(StopSource::linked_to(&parent.token()));
    parent.request_stop();
    assert!(token.stop_requested(), "the token still hears of it");
}

#[test]
fn dropping_a_linked_source_races_with_the_parents_stop() {
    for _ in 0..500 {
        let parent = StopSource::new();
        let child = StopSource::linked_to(&parent.token());
        let together = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                parent.request_stop();
            });
            together.wait();
            drop(child);
        });
    }
}

#[test]
fn a_long_line_of_links_is_stopped_and_dropped_in_a_small_stack() {
    with_stack(SMALL_STACK, || {
        let root = StopSource::new();
        let mut line = vec![root.clone()];
        for _ in 0..100_000 {
            let next = StopSource::linked_to(&line[line.len() - 1].token());
            line.push(next);
        }
        assert!(!line[100_000].stop_requested());
        assert!(root.request_stop());
        assert!(line.iter().all(StopSource::stop_requested));
        // The last of the chain owns all the others, one through the other.
        drop(root);
        let last = line.pop();
        drop(line);
        drop(last);
    });
}

#[test]
fn a_long_line_of_links_is_asked_and_dropped_unstopped_in_a_small_stack() {
    with_stack(SMALL_STACK, || {
        let root = StopSource::new();
        let mut token = root.token();
        for _ in 0..100_000 {
            token = StopSource::linked_to(&token).token();
        }
        assert!(token.stop_possible() && !token.stop_requested());
        drop(root);
        assert!(!token.stop_possible());
    });
}

#[test]
fn an_inplace_source_does_not_allocate_and_a_shared_one_does_once() {
    let ((), allocated) = allocations(|| {
        let source = InplaceStopSource::new();
        with_callback(source.token(), || (), || source.request_stop());
        with_callback(source.token(), || (), || ());
    });
    assert_eq!(allocated, 0);
    let (source, allocated) = allocations(|| {
        let source = StopSource::new();
        with_callback(source.clone().token(), || (), || source.request_stop());
        source
    });
    assert_eq!(allocated, 1);
    let ((), allocated) = allocations(|| drop(StopSource::linked_to(&source.token())));
    assert_eq!(allocated, 1);
}
