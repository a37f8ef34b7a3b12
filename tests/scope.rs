//! `task::scope`.

mod common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bowline::scheduler::ThreadPool;
use bowline::task;
use common::{Census, panic_message};

#[test]
fn every_closure_has_ended_when_the_scope_returns() {
    let ended = AtomicUsize::new(0);
    let value = task::scope(|scope| {
        for _ in 0..1000 {
            scope.spawn(|_| {
                ended.fetch_add(1, SeqCst);
            });
        }
        "value"
    });
    assert_eq!((value, ended.into_inner()), ("value", 1000));
}

#[test]
fn closures_borrow_and_write_what_is_outside() {
    let mut squares = [0; 100];
    task::scope(|scope| {
        for (index, square) in squares.iter_mut().enumerate() {
            scope.spawn(move |_| *square = index * index);
        }
    });
    assert!(
        squares
            .iter()
            .enumerate()
            .all(|(index, &square)| square == index * index)
    );
}

#[test]
fn a_closure_may_spawn_more() {
    fn grow<'scope>(scope: &task::Scope<'scope>, leaves: &'scope AtomicUsize, depth: usize) {
        if depth == 0 {
            leaves.fetch_add(1, SeqCst);
            return;
        }
        for _ in 0..2 {
            scope.spawn(move |scope| grow(scope, leaves, depth - 1));
        }
    }
    for workers in [1, 2, 8] {
        let leaves = AtomicUsize::new(0);
        ThreadPool::new(workers).scope(|scope| grow(scope, &leaves, 10));
        assert_eq!(leaves.into_inner(), 1024);
    }
}

#[test]
fn closures_run_side_by_side() {
    let pool = ThreadPool::new(2);
    let meet = Barrier::new(2);
    pool.scope(|scope| {
        scope.spawn(|_| {
            meet.wait();
        });
        scope.spawn(|_| {
            meet.wait();
        });
    });
}

#[test]
fn a_scope_runs_on_the_pool_it_is_asked_of() {
    let pool = ThreadPool::new(1);
    let other = ThreadPool::new(1);
    let (body, spawned) = other.install(|| {
        let mut spawned = None;
        let body = pool.scope(|scope| {
            scope.spawn(|_| spawned = pool.worker_index());
            pool.worker_index()
        });
        (body, spawned)
    });
    assert_eq!((body, spawned), (Some(0), Some(0)));
}

#[test]
fn a_scope_in_a_scope_waits_for_its_own_alone() {
    let pool = ThreadPool::new(2);
    let (outer, inner) = (AtomicUsize::new(0), AtomicUsize::new(0));
    pool.scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|_| {
                task::scope(|scope| {
                    for _ in 0..10 {
                        scope.spawn(|_| {
                            inner.fetch_add(1, SeqCst);
                        });
                    }
                });
                outer.fetch_add(1, SeqCst);
            });
        }
    });
    assert_eq!((outer.into_inner(), inner.into_inner()), (10, 100));
}

#[test]
fn a_panic_of_a_closure_comes_out_after_all_others_have_ended() {
    let ended = AtomicUsize::new(0);
    let message = panic_message(|| {
        task::scope(|scope| {
            scope.spawn(|_| panic!("the knot slipped"));
            for _ in 0..100 {
                scope.spawn(|_| {
                    ended.fetch_add(1, SeqCst);
                });
            }
        });
    });
    assert_eq!(message, "the knot slipped");
    assert_eq!(ended.into_inner(), 100);
}

#[test]
fn a_panic_of_the_body_goes_before_that_of_a_closure() {
    let ended = AtomicUsize::new(0);
    let message = panic_message(|| {
        task::scope(|scope| {
            scope.spawn(|_| panic!("the closure"));
            scope.spawn(|_| {
                ended.fetch_add(1, SeqCst);
            });
            panic!("the body");
        })
    });
    assert_eq!(message, "the body");
    assert_eq!(ended.into_inner(), 1);
}

#[test]
fn what_a_closure_owns_is_dropped_with_it() {
    let census = Census::new();
    let message = panic_message(|| {
        task::scope(|scope| {
            let (quiet, loud) = (census.value(), census.value());
            scope.spawn(move |_| drop(quiet));
            scope.spawn(move |_| {
                let _loud = loud;
                panic!("with something in hand");
            });
        });
    });
    assert_eq!(message, "with something in hand");
    assert_eq!(census.alive(), 0);
}

#[test]
fn an_empty_scope_returns() {
    assert_eq!(task::scope(|_| 7), 7);
}
