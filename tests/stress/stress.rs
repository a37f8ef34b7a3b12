//! Random nests of algorithms over several run loops, with errors, panics and stops from other threads at random times.
//!
//! Each nest is made from a seed, which is printed on failure. `BOWLINE_STRESS_SEED` repeats it; `BOWLINE_STRESS_NESTS` sets
//! the number of nests.

use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};

use crate::common::*;
use bowline::adaptors::BoxedSender;
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, RunLoopScheduler};
use bowline::stop::{SharedStopToken, StopSource};
use bowline::{EmptyEnv, Panic, Patched, Transfer};

/// Enough for a few seconds; the script for the sanitizers uses fewer.
const NESTS: u64 = 40_000;

/// The maximum depth of a nest.
const DEPTH: u64 = 5;

/// The number of nests that run at the same time.
const TOGETHER: u64 = 4;

/// More turns of the loops than any test needs: it turns a hang into a failure that names the seed.
const PATIENCE: usize = 1_000_000;

/// Detached work needs loops that live forever.
static LOOPS: [RunLoop; 3] = [const { RunLoop::new() }; 3];

/// The loop from which stops are requested.
static STOPS: RunLoop = RunLoop::new();

type Work = BoxedSender<'static, Leaf, Failure>;

/// A counted value that can be cloned for `split`.
#[derive(Debug)]
struct Leaf {
    census: Census,
    _counted: Counted,
}

impl Leaf {
    fn new(census: &Census) -> Self {
        Leaf {
            census: census.clone(),
            _counted: census.value(),
        }
    }
}

impl Clone for Leaf {
    fn clone(&self) -> Self {
        Leaf::new(&self.census)
    }
}

/// A counted error.
#[derive(Clone, Debug)]
struct Failure(#[allow(dead_code, reason = "counted while it is kept")] Leaf);

/// A generator of nests.
struct Maker {
    random: XorShift,
    census: Census,
}

impl Maker {
    fn scheduler(&mut self) -> RunLoopScheduler<'static> {
        LOOPS[self.random.below(LOOPS.len() as u64) as usize].scheduler()
    }

    /// Returns a sender that completes soon, on some channel.
    fn leaf(&mut self) -> Work {
        let value = Leaf::new(&self.census);
        let scheduler = self.scheduler();
        match self.random.below(9) {
            0 => just(value).infallible_into().boxed(),
            1 => just_error(Failure(value)).boxed(),
            2 => just_stopped().boxed(),
            3 => just_from(move || -> Leaf {
                let _value = value;
                quiet_panic()
            })
            .infallible_into()
            .boxed(),
            4 => just_error(Failure(value)).starts_on(scheduler).boxed(),
            5 => starts_on(scheduler, from_future(YieldOnce::new(value, self.scheduler())))
                .infallible_into()
                .boxed(),
            _ => just(value).infallible_into().continues_on(scheduler).boxed(),
        }
    }

    fn nest(&mut self, depth: u64) -> Work {
        if depth == 0 {
            return self.leaf();
        }
        let depth = depth - 1;
        match self.random.below(14) {
            0 => when_all((self.nest(depth), self.nest(depth)))
                .then(|(one, _)| one)
                .boxed(),
            1 => when_any((self.nest(depth), self.nest(depth))).boxed(),
            2 => self.nest(depth).stop_when(self.nest(depth)).boxed(),
            3 => {
                // A sender that never completes is ended by a stop.
                let other = self.nest(depth);
                never().stop_when(other).boxed()
            }
            4 => {
                let next = self.nest(depth);
                self.nest(depth).let_value(move |_| next).boxed()
            }
            5 => {
                let next = self.nest(depth);
                self.nest(depth).let_error(move |_| next).boxed()
            }
            6 => {
                let next = self.nest(depth);
                self.nest(depth).let_stopped(move || next).boxed()
            }
            7 => {
                let scheduler = self.scheduler();
                self.nest(depth).continues_on(scheduler).boxed()
            }
            8 => {
                // One run with two receivers, one of which may be stopped while the other continues.
                let shared = self.nest(depth).split();
                let other = self.nest(depth);
                when_any((shared.clone().stop_when(other), shared)).boxed()
            }
            9 => self.nest(depth).ensure_started().boxed(),
            10 => {
                // Dropped while it runs.
                drop(self.nest(depth).ensure_started());
                self.nest(depth)
            }
            11 => {
                let children = (0..self.random.below(5)).map(|_| self.nest(depth)).collect::<Vec<_>>();
                let value = Leaf::new(&self.census);
                when_all_iter(children)
                    .then(|mut values| values.pop().unwrap_or(value))
                    .boxed()
            }
            12 => {
                // Returns to its scheduler on every channel.
                let (there, here) = (self.scheduler(), self.scheduler());
                starts_on(here, self.nest(depth).starts_on(there).affine()).boxed()
            }
            _ => {
                let scheduler = self.scheduler();
                let last = self.nest(depth).into_outcome().then(drop);
                starts_on(scheduler, self.nest(depth).finally(last).on(self.scheduler())).boxed()
            }
        }
    }
}

/// A future that is pending once, and woken by a loop, perhaps before the end of the poll.
struct YieldOnce {
    value: Option<Leaf>,
    waking: Option<RunLoopScheduler<'static>>,
}

impl YieldOnce {
    fn new(value: Leaf, waking: RunLoopScheduler<'static>) -> Self {
        YieldOnce {
            value: Some(value),
            waking: Some(waking),
        }
    }
}

impl Future for YieldOnce {
    type Output = Leaf;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Leaf> {
        let Some(scheduler) = self.waking.take() else {
            return Poll::Ready(self.value.take().expect("not polled after its end"));
        };
        let waker = context.waker().clone();
        execute(scheduler, move || waker.wake());
        Poll::Pending
    }
}

/// A receiver that counts its completions.
struct Once {
    token: SharedStopToken,
    ends: Arc<Ends>,
}

/// The number of completions of each kind.
#[derive(Debug, Default)]
struct Ends {
    value: AtomicUsize,
    error: AtomicUsize,
    stopped: AtomicUsize,
    panicked: AtomicUsize,
}

impl Ends {
    fn counts(&self) -> [usize; 4] {
        [&self.value, &self.error, &self.stopped, &self.panicked].map(|count| count.load(SeqCst))
    }
}

fn one_more(count: &AtomicUsize) -> Transfer {
    count.fetch_add(1, SeqCst);
    Transfer::none()
}

impl Receiver<Leaf, Failure> for Once {
    type Env = Patched<WithStopToken<SharedStopToken>, EmptyEnv>;

    fn env(&self) -> Self::Env {
        Patched::new(WithStopToken(self.token.clone()), EmptyEnv)
    }

    fn set_value(self, value: Leaf) -> Transfer {
        drop(value);
        one_more(&self.ends.value)
    }

    fn set_error(self, error: Failure) -> Transfer {
        drop(error);
        one_more(&self.ends.error)
    }

    fn set_stopped(self) -> Transfer {
        one_more(&self.ends.stopped)
    }

    fn set_panicked(self, _: Panic) -> Transfer {
        one_more(&self.ends.panicked)
    }
}

/// Drives every loop in turn until `done`.
fn turn_until(done: impl Fn() -> bool, what: &str) {
    for _ in 0..PATIENCE {
        if done() {
            return;
        }
        for run_loop in LOOPS.iter().chain([&STOPS]) {
            sync_wait(run_loop.scheduler().schedule()).unwrap();
        }
    }
    panic!("{what}");
}

/// Runs a few nests together, each stopped at a random time or not at all, and waits until all are destroyed. Returns how they
/// ended.
fn round(seed: u64) -> [usize; 4] {
    let mut maker = Maker {
        random: XorShift::new(seed),
        census: Census::new(),
    };
    let mut all = Vec::new();
    for _ in 0..TOGETHER {
        let depth = maker.random.below(DEPTH + 1);
        let nest = maker.nest(depth);
        let source = StopSource::new();
        let ends = Arc::<Ends>::default();
        let once = Once {
            token: source.token(),
            ends: ends.clone(),
        };
        all.push(ends);
        // Before it starts, while it runs, or never.
        let moment = maker.random.below(6);
        if moment == 0 {
            source.request_stop();
        } else if moment < 4 {
            let moment = maker.random.below(2_000);
            execute(STOPS.scheduler(), move || {
                for _ in 0..moment {
                    std::hint::spin_loop();
                }
                source.request_stop();
            });
        }
        submit(nest, once);
    }
    // One more, with a blocking wait.
    let last = maker.nest(2);
    match panic::catch_unwind(AssertUnwindSafe(|| sync_wait(last))) {
        Ok(outcome) => drop(outcome),
        Err(payload) => assert_eq!(Panic::new(payload).message(), Some(PANIC)),
    }
    let ended = || all.iter().all(|ends| ends.counts() != [0; 4]);
    turn_until(ended, "a completion was lost");
    // Work that was dropped while it ran was asked to stop, and ends later.
    turn_until(|| maker.census.alive() == 0, "something was leaked, or did not stop");
    let mut sum = [0; 4];
    for ends in all {
        let counts = ends.counts();
        assert_eq!(counts.iter().sum::<usize>(), 1, "completed more than once: {ends:?}");
        for (sum, count) in sum.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    sum
}

#[test]
fn random_nests_complete_exactly_once_and_leave_nothing() {
    let seeds = match number("BOWLINE_STRESS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BOWLINE_STRESS_NESTS").unwrap_or(NESTS) / TOGETHER,
    };
    let drivers = LOOPS
        .iter()
        .chain([&STOPS])
        .map(|run_loop| thread::spawn(|| run_loop.run()))
        .collect::<Vec<_>>();
    let mut sum = [0; 4];
    for seed in seeds.clone() {
        match panic::catch_unwind(|| round(seed)) {
            Ok(counts) => sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count),
            Err(payload) => {
                eprintln!("BOWLINE_STRESS_SEED={seed} fails");
                panic::resume_unwind(payload);
            }
        }
    }
    for run_loop in LOOPS.iter().chain([&STOPS]) {
        run_loop.finish();
    }
    for driver in drivers {
        driver.join().expect("a loop does not unwind");
    }
    if seeds.end - seeds.start > 100 {
        // Otherwise the nests do not cover enough.
        assert!(
            sum.iter().all(|&count| count > 0),
            "{sum:?} of value, error, stopped, panicked"
        );
    }
}
