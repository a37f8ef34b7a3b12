//! Prints the size of the operations of typical chains, which is all the memory that they need to run.
//!
//! `cargo run --example sizes`

use std::convert::Infallible;

use bowline::prelude::*;
use bowline::scheduler::{RunLoop, TaskScheduler};
use bowline::stop::{InplaceStopSource, InplaceStopToken};
use bowline::{EmptyEnv, Panic, Patched, Transfer};

/// A chain and its sizes.
#[derive(Debug)]
pub(crate) struct Row {
    /// The source of the chain.
    pub(crate) chain: &'static str,
    /// The size of the sender.
    pub(crate) sender: usize,
    /// The size of its operation, connected to a stoppable receiver of one word.
    pub(crate) operation: usize,
    /// The limit for the operation: the operations of its parts, the captures of its functions, and a small constant.
    pub(crate) limit: usize,
}

/// A stoppable receiver of one word.
struct Word<'a>(&'a InplaceStopSource);

impl<T, E> Receiver<T, E> for Word<'_> {
    type Env = Patched<WithStopToken<InplaceStopToken<'static>>, EmptyEnv>;

    fn env(&self) -> Self::Env {
        unreachable!("the operation is not started, with {:?}", self.0)
    }

    fn set_value(self, _: T) -> Transfer {
        Transfer::none()
    }

    fn set_error(self, _: E) -> Transfer {
        Transfer::none()
    }

    fn set_stopped(self) -> Transfer {
        Transfer::none()
    }

    fn set_panicked(self, _: Panic) -> Transfer {
        Transfer::none()
    }
}

/// Returns the size of a sender's operation.
fn operation<S: Sender>(_: &S) -> usize {
    size_of::<S::Operation<Word<'static>>>()
}

fn row<S: Sender>(chain: &'static str, sender: S, limit: usize) -> Row {
    Row {
        chain,
        sender: size_of::<S>(),
        operation: operation(&sender),
        limit,
    }
}

const WORD: usize = size_of::<usize>();
/// The limit of an adaptor's own state between two children.
const LINK: usize = 8 * WORD;
/// The limit of the state of an adaptor with several children: a countdown, a stop source and its callback, the first
/// failure.
const FAN: usize = 32 * WORD;

/// Returns the chains.
pub(crate) fn table() -> Vec<Row> {
    let run_loop = RunLoop::new();
    let scheduler = run_loop.scheduler();
    let hop = scheduler.schedule();
    let large = || just([0u8; 256]).then(|bytes| bytes.len());
    let (hop_size, large_size) = (operation(&hop), operation(&large()));
    let eight_size = operation(&when_all([hop; 8]));
    vec![
        row("just(1u64)", just(1u64), 6 * WORD),
        row("just(1u64).then(f)", just(1u64).then(|x| x + 1), 6 * WORD),
        row(
            "just(1u64).then(f).then(f).then(f).then(f)",
            just(1u64)
                .then(|x| x + 1)
                .then(|x| x + 1)
                .then(|x| x + 1)
                .then(|x| x + 1),
            6 * WORD,
        ),
        row("never()", never::<u64, Infallible>(), LINK),
        row("run_loop.schedule()", hop, LINK),
        row(
            "TaskScheduler::new(run_loop).schedule()",
            TaskScheduler::new(scheduler).schedule(),
            // The inner operation, the scheduler, and the receiver of the inner operation with its way to the environment.
            TaskScheduler::INLINE_OPERATION + size_of::<TaskScheduler<'_>>() + LINK + 3 * WORD,
        ),
        row("just(1u64).let_value(f)", just(1u64).let_value(just), 6 * WORD + LINK),
        row(
            "large.sequence(large)",
            large().sequence(large()),
            2 * large_size + LINK,
        ),
        row(
            "when_all([hop; 8]).sequence(when_all([hop; 8]))",
            when_all([hop; 8]).sequence(when_all([hop; 8])),
            // One operation and the second sender, not two operations.
            eight_size + 8 * size_of_val(&hop) + LINK,
        ),
        row("just(1u64).finally(hop)", just(1u64).finally(hop), hop_size + LINK),
        row(
            "starts_on(run_loop, large)",
            starts_on(scheduler, large()),
            hop_size + 2 * large_size + LINK,
        ),
        row(
            "large.continues_on(run_loop)",
            large().continues_on(scheduler),
            large_size + LINK,
        ),
        row(
            "large.on(run_loop)",
            large().on(scheduler).write_env(WithScheduler(scheduler)),
            hop_size + 2 * large_size + 2 * LINK,
        ),
        row(
            "hop.affine()",
            hop.affine().write_env(WithScheduler(scheduler)),
            2 * hop_size + 2 * LINK,
        ),
        row("large.repeat_n(9)", large().repeat_n(9), 2 * large_size + LINK),
        row("large.retry()", large().retry(), 2 * large_size + LINK),
        row(
            "large.stop_when(hop)",
            large().stop_when(hop),
            large_size + hop_size + FAN,
        ),
        row(
            "when_all((large, large))",
            when_all((large(), large())),
            2 * large_size + FAN,
        ),
        row("when_all([hop; 8])", when_all([hop; 8]), 8 * (hop_size + LINK) + FAN),
        row(
            "when_any((large, large))",
            when_any((large(), large())),
            2 * large_size + FAN,
        ),
        row("when_any([hop; 8])", when_any([hop; 8]), 8 * (hop_size + LINK) + FAN),
        row("when_all_iter(many)", when_all_iter((0..1_000).map(just)), FAN),
        row("large.boxed()", large().boxed(), 2 * LINK + 8 * WORD),
        row("large.split()", large().split(), 2 * LINK),
        row("large.ensure_started()", large().ensure_started(), 2 * LINK),
        row(
            "just(large).on(run_loop).then(f).let_value(g).stop_when(hop)",
            large()
                .on(scheduler)
                .then(|x| x + 1)
                .let_value(just)
                .stop_when(hop)
                .write_env(WithScheduler(scheduler)),
            2 * large_size + 2 * hop_size + 4 * LINK + FAN,
        ),
    ]
}

#[allow(dead_code, reason = "the test that checks the table does not print it")]
fn main() {
    println!("{:<62} {:>7} {:>10} {:>8}", "chain", "sender", "operation", "at most");
    for row in table() {
        println!(
            "{:<62} {:>7} {:>10} {:>8}",
            row.chain, row.sender, row.operation, row.limit
        );
    }
}
