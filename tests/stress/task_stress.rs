//! Random trees of tasks and senders, which stop, fail and panic at random, on a pool. Every run checks that everything was
//! dropped, that a tree completed once, and that a task ran only on its scheduler.
//!
//! `BOWLINE_SEED` chooses another sequence, and `BOWLINE_ROUNDS` the number of trees.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use crate::common::tasks::hops;
use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{PoolScheduler, ThreadPool};
use bowline::stop::StopSource;
use bowline::task::Task;

/// The state that all tasks of a tree share.
#[derive(Clone)]
struct Tree {
    /// The scheduler of the tasks, and the name of its threads.
    home: PoolScheduler,
    name: &'static str,
    /// The scheduler on which other work completes.
    away: PoolScheduler,
    census: Census,
    source: StopSource,
}

impl Tree {
    /// Returns the tree with both schedulers swapped.
    fn turned(&self) -> Self {
        Tree {
            home: self.away,
            away: self.home,
            name: if self.name == "first" { "second" } else { "first" },
            ..self.clone()
        }
    }

    fn is_home(&self) {
        let thread = thread::current();
        assert_eq!(thread.name(), Some(self.name), "a task runs elsewhere");
    }
}

type Error = u64;

/// Does one random thing after the other.
fn grow(tree: Tree, seed: u64, depth: u64) -> Task<u64, Error> {
    let held = tree.census.value();
    Task::try_new(async move {
        let _held = held;
        let mut random = XorShift::new(seed);
        let mut sum = 0;
        for _ in 0..random.below(4) {
            tree.is_home();
            sum += step(&tree, random.next(), depth).await?;
            tree.is_home();
        }
        Ok(sum)
    })
}

async fn step(tree: &Tree, seed: u64, depth: u64) -> Result<u64, Error> {
    let mut random = XorShift::new(seed);
    let deeper = depth < 6;
    Ok(match random.below(if deeper { 17 } else { 10 }) {
        0 => just(1).infallible_into::<Error>().await?,
        1 => starts_on(tree.away, just(1)).infallible_into::<Error>().await?,
        2 => {
            tree.home.schedule().infallible_into::<Error>().await?;
            1
        }
        3 => {
            hops(1).await;
            1
        }
        4 => starts_on(tree.away, just_stopped::<u64, Error>())
            .stopped_as_option()
            .await?
            .unwrap_or(1),
        5 => match random.below(8) {
            0 => just_stopped::<u64, Error>().await?,
            1 => starts_on(tree.away, just_stopped::<u64, Error>()).await?,
            _ => 1,
        },
        6 => match random.below(8) {
            0 => just_error::<u64, _>(seed).await?,
            1 => starts_on(tree.away, just_error::<u64, _>(seed)).await?,
            _ => 1,
        },
        7 => match random.below(8) {
            0 => quiet_panic(),
            1 => {
                starts_on(tree.away, just_from(|| -> u64 { quiet_panic() }))
                    .infallible_into::<Error>()
                    .await?
            }
            _ => 1,
        },
        8 => {
            if random.below(8) == 0 {
                let source = tree.source.clone();
                starts_on(tree.away, just_from(move || _ = source.request_stop()))
                    .infallible_into::<Error>()
                    .await?;
            }
            1
        }
        9 => {
            // Dropped unstarted.
            drop(grow(tree.clone(), random.next(), depth + 1));
            1
        }
        10 | 11 => grow(tree.clone(), random.next(), depth + 1).await?,
        12 => {
            let there = tree.turned();
            starts_on(there.home, grow(there, random.next(), depth + 1)).await?
        }
        13 => {
            let (a, b) = when_all((
                grow(tree.clone(), random.next(), depth + 1),
                grow(tree.clone(), random.next(), depth + 1),
            ))
            .await?;
            a + b
        }
        14 => grow(tree.clone(), random.next(), depth + 1)
            .stopped_as_option()
            .await?
            .unwrap_or(1),
        15 => {
            starts_on(tree.home, grow(tree.clone(), random.next(), depth + 1))
                .boxed()
                .await?
        }
        _ => {
            let (a, b) = join(
                grow(tree.clone(), random.next(), depth + 1).into_future(),
                grow(tree.clone(), random.next(), depth + 1).into_future(),
            )
            .await;
            let _ = (a, b);
            1
        }
    })
}

/// Polls both until both are ready.
async fn join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    let (mut first, mut second) = (None, None);
    poll_fn(move |cx| {
        poll_once(&mut a, &mut first, cx);
        poll_once(&mut b, &mut second, cx);
        match (first.take(), second.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            (a, b) => {
                (first, second) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

fn poll_once<F: Future>(future: &mut Pin<Box<F>>, output: &mut Option<F::Output>, cx: &mut std::task::Context<'_>) {
    if output.is_none()
        && let Poll::Ready(value) = future.as_mut().poll(cx)
    {
        *output = Some(value);
    }
}

#[test]
fn random_trees_of_tasks_end_once_and_leave_nothing_behind() {
    let seed = number("BOWLINE_SEED").unwrap_or(1);
    let rounds = number("BOWLINE_ROUNDS").unwrap_or(if cfg!(sanitized) { 1000 } else { 20_000 });
    let pool = |name: &'static str| {
        ThreadPool::builder()
            .threads(2)
            .stack_size(DEEP_STACK)
            .names(move |_| name.to_owned())
            .build()
            .expect("a pool")
    };
    let (first, second) = (pool("first"), pool("second"));
    let mut seen = [0; 4];
    for round in 0..rounds {
        let census = Census::new();
        let source = StopSource::new();
        let tree = Tree {
            home: first.scheduler(),
            away: second.scheduler(),
            name: "first",
            census: census.clone(),
            source: source.clone(),
        };
        let token = source.token();
        let work = starts_on(first.scheduler(), grow(tree, seed.wrapping_mul(rounds) + round, 0))
            .write_env(WithStopToken(token));
        let (record, recorded) = Record::new();
        submit(work, record);
        if round % 5 == 0 {
            source.request_stop();
        }
        let kind = match recorded.recv().expect("it completes") {
            Recorded::Value(_) => 0,
            Recorded::Error(_) => 1,
            Recorded::Stopped => 2,
            Recorded::Panicked(message) => {
                assert_eq!(message, PANIC, "round {round}");
                3
            }
            Recorded::Dropped => panic!("round {round}: dropped"),
        };
        seen[kind] += 1;
        // The operation, which is freed after the completion was sent, owns no counted value.
        assert_eq!(census.alive(), 0, "round {round}");
        assert!(recorded.recv().is_err(), "round {round}: completed twice");
    }
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
}
