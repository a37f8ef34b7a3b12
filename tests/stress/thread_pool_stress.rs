//! Pools under random work at all priorities, while the pool is dropped. Producers push from outside; jobs queue, wait, join,
//! raise, stop and panic.
//!
//! Each round is made from a seed, which is printed on failure. `BOWLINE_STRESS_SEED` repeats it; `BOWLINE_STRESS_POOLS` sets
//! the number of rounds.

use std::convert::Infallible;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{PoolSchedule, PoolScheduler, ThreadPool};
use bowline::stop::{SharedStopToken, StopSource};
use bowline::{EmptyEnv, Operation, Panic, Patched, Transfer};

/// Enough for a few seconds.
const POOLS: u64 = if cfg!(sanitized) { 40 } else { 600 };

/// The maximum number of jobs in a round.
const JOBS: usize = if cfg!(sanitized) { 500 } else { 2_000 };

/// More than any machine takes for a round: it turns a hang into a failure that names the seed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The numbers of workers under test.
const WORKERS: [usize; 6] = [1, 2, 3, 8, 16, 64];

/// The state that a round shares.
struct Round {
    seed: u64,
    scheduler: PoolScheduler,
    /// Another pool, to which jobs hop and which they wait for.
    other: PoolScheduler,
    /// The number of jobs that may still be created.
    left: AtomicUsize,
    made: AtomicUsize,
    /// The numbers of jobs that completed with a value, stopped, panicked.
    ends: [AtomicUsize; 3],
    census: Census,
    /// The operations that were started by hand. Any job may raise them; they are freed at the end.
    queued: Mutex<Vec<Queued>>,
}

impl Round {
    fn ended(&self) -> usize {
        self.ends.iter().map(|count| count.load(SeqCst)).sum()
    }

    /// Reserves one more job, and returns its number.
    fn admit(&self) -> Option<u64> {
        let one_less = |left: usize| left.checked_sub(1);
        self.left.fetch_update(SeqCst, SeqCst, one_less).ok()?;
        Some(self.made.fetch_add(1, SeqCst) as u64)
    }
}

/// A receiver that counts how one job ends.
struct End {
    round: Arc<Round>,
    token: SharedStopToken,
    value: Counted,
}

impl End {
    fn new(round: &Arc<Round>, token: SharedStopToken) -> Self {
        End {
            round: round.clone(),
            token,
            value: round.census.value(),
        }
    }

    fn end(self, how: usize) -> Transfer {
        let End { round, value, .. } = self;
        drop(value);
        round.ends[how].fetch_add(1, SeqCst);
        Transfer::none()
    }
}

impl Receiver<(), Infallible> for End {
    type Env = Patched<WithStopToken<SharedStopToken>, EmptyEnv>;

    fn env(&self) -> Self::Env {
        Patched::new(WithStopToken(self.token.clone()), EmptyEnv)
    }

    fn set_value(self, (): ()) -> Transfer {
        self.end(0)
    }

    fn set_error(self, error: Infallible) -> Transfer {
        match error {}
    }

    fn set_stopped(self) -> Transfer {
        self.end(1)
    }

    fn set_panicked(self, payload: Panic) -> Transfer {
        assert_eq!(payload.message(), Some(PANIC));
        self.end(2)
    }
}

/// An operation that was started by hand. It is freed after the round.
struct Queued(NonNull<<PoolSchedule as Sender>::Operation<End>>);

// SAFETY: an operation may be started, raised and freed on any thread.
unsafe impl Send for Queued {}

impl Drop for Queued {
    fn drop(&mut self) {
        // SAFETY: every job of the round has completed, and no thread raises it any longer.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

fn level(random: &mut XorShift) -> Priority {
    Priority::ALL[random.below(5) as usize]
}

/// Returns one of the schedulers of the pools.
fn somewhere(round: &Round, random: &mut XorShift) -> PoolScheduler {
    match random.below(8) {
        0 => round.other,
        1..4 => round.scheduler.with_priority(level(random)),
        _ => round.scheduler,
    }
}

/// Creates a job, unless the round has enough.
fn make(round: &Arc<Round>) {
    let Some(number) = round.admit() else { return };
    let mut random = XorShift::new(round.seed.wrapping_mul(1_000_003).wrapping_add(number));
    let source = StopSource::new();
    let end = End::new(round, source.token());
    let stops = random.below(8) == 0;
    let scheduler = somewhere(round, &mut random);
    match random.below(12) {
        0..3 => {
            // Raised here and by other threads, while it is queued, runs or has run.
            let operation = Queued(NonNull::from(Box::leak(Box::new(scheduler.schedule().connect(end)))));
            let pointer = operation.0;
            // SAFETY: the operation does not move until the round is over, and is started once.
            unsafe { Pin::new_unchecked(&mut *pointer.as_ptr()).start() }.run();
            // SAFETY: the operation was started.
            unsafe { Operation::raise(pointer, level(&mut random)) };
            lock(&round.queued).push(operation);
        }
        3..5 => {
            let there = somewhere(round, &mut random);
            let hops = scheduler
                .schedule()
                .continues_on(there)
                .repeat_n(random.below(20) as usize);
            submit(hops, end);
        }
        _ => {
            let inner = round.clone();
            submit(scheduler.schedule().then(move |()| act(&inner, random)), end);
        }
    }
    if stops {
        source.request_stop();
    }
}

/// Does the work of a job.
fn act(round: &Arc<Round>, mut random: XorShift) {
    match random.below(12) {
        0 => quiet_panic(),
        1..5 => (0..random.below(4)).for_each(|_| make(round)),
        5 => {
            let there = somewhere(round, &mut random);
            sync_wait(when_all((there.schedule(), round.scheduler.schedule()))).unwrap();
        }
        6 => {
            // Waits for work that creates more, and may panic.
            let there = somewhere(round, &mut random);
            let work = there.schedule().then(|()| make(round));
            sync_wait(work).unwrap();
            make(round);
        }
        7 => {
            fn tree(depth: u64, round: &Arc<Round>) -> u64 {
                if depth == 0 {
                    make(round);
                    return 1;
                }
                let (a, b) = bowline::join(|| tree(depth - 1, round), || tree(depth - 1, round));
                a + b
            }
            let depth = random.below(5);
            assert_eq!(tree(depth, round), 1 << depth);
        }
        8 => {
            let joined = AssertUnwindSafe(|| bowline::join(|| make(round), || quiet_panic()));
            assert!(panic::catch_unwind(joined).is_err());
        }
        9 => {
            // Takes an operation out of those that can be raised, raises it, and puts it back.
            let taken = lock(&round.queued).pop();
            if let Some(queued) = taken {
                // SAFETY: the operation was started, and is freed after the round.
                unsafe { Operation::raise(queued.0, level(&mut random)) };
                lock(&round.queued).push(queued);
            }
        }
        10 if random.below(20) == 0 => {
            let pool = ThreadPool::new(1 + random.below(2) as usize);
            pool.install(|| make(round));
            submit(pool.scheduler().schedule(), {
                round.made.fetch_add(1, SeqCst);
                End::new(round, StopSource::new().token())
            });
        }
        _ => {}
    }
}

fn run(seed: u64) -> [usize; 3] {
    let mut random = XorShift::new(seed);
    let pool = ThreadPool::new(WORKERS[random.below(WORKERS.len() as u64) as usize]);
    let other = ThreadPool::new(1 + random.below(2) as usize);
    let round = Arc::new(Round {
        seed,
        scheduler: pool.scheduler(),
        other: other.scheduler(),
        left: AtomicUsize::new(1 + random.below(JOBS as u64) as usize),
        made: AtomicUsize::new(0),
        ends: [const { AtomicUsize::new(0) }; 3],
        census: Census::new(),
        queued: Mutex::new(Vec::new()),
    });
    let producers = random.below(4);
    thread::scope(|scope| {
        for _ in 0..producers {
            scope.spawn(|| {
                while round.left.load(SeqCst) > 0 {
                    make(&round);
                }
            });
        }
        (0..20).for_each(|_| make(&round));
        // The end may come meanwhile, from any thread.
        match random.below(4) {
            0 => drop(pool),
            1 => other.install(move || drop(pool)),
            2 => execute(pool.scheduler().with_priority(level(&mut random)), move || drop(pool)),
            _ => {
                while round.left.load(SeqCst) > 0 {
                    make(&round);
                }
                drop(pool);
            }
        }
    });
    // Jobs that came too late for the pool run on the global one.
    let begun = Instant::now();
    while round.ended() < round.made.load(SeqCst) {
        assert!(
            begun.elapsed() < PATIENCE,
            "a completion was lost: {:?} of {:?}",
            round.ended(),
            round.made
        );
        thread::yield_now();
    }
    drop(other);
    assert_eq!(round.ended(), round.made.load(SeqCst), "a job completed twice");
    assert_eq!(round.census.alive(), 0);
    round.ends.each_ref().map(|count| count.load(SeqCst))
}

#[test]
fn every_job_completes_exactly_once() {
    let seeds = match number("BOWLINE_STRESS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BOWLINE_STRESS_POOLS").unwrap_or(POOLS),
    };
    let mut sum = [0; 3];
    for seed in seeds.clone() {
        match panic::catch_unwind(|| run(seed)) {
            Ok(ends) => sum.iter_mut().zip(ends).for_each(|(sum, count)| *sum += count),
            Err(payload) => {
                eprintln!("BOWLINE_STRESS_SEED={seed} fails");
                panic::resume_unwind(payload);
            }
        }
    }
    if seeds.end - seeds.start > 20 {
        // Otherwise the jobs do not cover enough.
        assert!(
            sum.iter().all(|&count| count > 100),
            "{sum:?} of value, stopped, panicked"
        );
    }
}
