//! Scopes under random work: seeded, and counted at the end.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{PoolScheduler, ThreadPool};
use bowline::scope::ScopeToken;

/// The counts: work that the scope took, and work that has ended.
#[derive(Clone, Default)]
struct Tally {
    taken: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    panics: Arc<AtomicUsize>,
    census: Census,
}

/// A piece of work: it has ended when this is dropped, on any thread.
struct Piece(Tally, #[allow(dead_code, reason = "it is counted")] Counted);

impl Drop for Piece {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, SeqCst);
    }
}

impl Tally {
    fn piece(&self) -> Piece {
        Piece(self.clone(), self.census.value())
    }
}

/// Does something with the scope, and continues from inside the work it started.
fn act(token: &ScopeToken, pool: PoolScheduler, tally: &Tally, seed: u64, depth: u32) {
    let mut random = XorShift::new(seed);
    let piece = tally.piece();
    // Refused or not, the piece is dropped; a refused one never runs.
    tally.taken.fetch_add(1, SeqCst);
    let inside = {
        let (token, tally) = (token.clone(), tally.clone());
        move || {
            if depth > 0 {
                for branch in 0..2 {
                    act(&token, pool, &tally, seed.wrapping_mul(31) + branch, depth - 1);
                }
            }
        }
    };
    match random.below(8) {
        0 => {
            token.spawn(just(piece).then(drop));
        }
        1 | 2 => {
            token.spawn(starts_on(pool, just(piece).then(drop)).then(move |()| inside()));
        }
        3 => {
            let wait = starts_on(pool, never::<(), Infallible>()).upon_stopped(|| ());
            token.spawn(wait.then(move |()| drop((piece, inside))));
        }
        4 => {
            let panics = tally.panics.clone();
            token.spawn(starts_on(pool, just(piece)).then(move |_piece| -> () {
                panics.fetch_add(1, SeqCst);
                quiet_panic()
            }));
        }
        5 => drop(token.spawn_future(starts_on(pool, just(piece)).then(move |piece| {
            inside();
            piece
        }))),
        6 => drop(sync_wait(token.spawn_future(starts_on(pool, just(piece)))).ok()),
        _ => {
            let work = token.associate(starts_on(pool, just(piece)));
            if random.below(2) == 0 {
                drop(sync_wait(work).ok());
            }
        }
    }
}

#[test]
fn everything_that_was_taken_has_ended_when_the_join_completes() {
    let rounds = number("BOWLINE_STRESS_SCOPES").unwrap_or(if cfg!(sanitized) { 40 } else { 300 });
    for workers in [1, 2, 8] {
        let pool = ThreadPool::new(workers);
        for seed in 0..rounds {
            let scheduler = pool.scheduler();
            let (scope, tally) = (CountingScope::new(), Tally::default());
            thread::scope(|threads| {
                for thread in 0..2 {
                    let (token, tally) = (scope.token(), tally.clone());
                    threads.spawn(move || {
                        for step in 0..4 {
                            act(&token, scheduler, &tally, seed * 64 + thread * 16 + step, 3);
                        }
                    });
                }
                if seed % 3 == 0 {
                    scope.close();
                }
                scope.request_stop();
            });
            let (first, second) = (scope.join(), scope.join());
            if seed % 2 == 0 {
                drop(scope);
            }
            let joined = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sync_wait(first).unwrap()));
            assert_eq!(joined.is_err(), tally.panics.load(SeqCst) > 0, "seed {seed}");
            assert_eq!(tally.taken.load(SeqCst), tally.ended.load(SeqCst), "seed {seed}");
            assert_eq!(tally.census.alive(), 0, "seed {seed}");
            let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sync_wait(second).unwrap()));
            assert_eq!(again.is_err(), joined.is_err(), "seed {seed}");
        }
    }
}
