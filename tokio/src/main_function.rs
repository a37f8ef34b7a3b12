//! Running a future as a task on the threads of a runtime.

use std::future::Future;

use bowline::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::TokioScheduler;

/// Runs a future as a [`Task`](bowline::task::Task) on the threads of a runtime, and blocks until it has finished.
///
/// Unlike the future of [`Runtime::block_on`], it is a task: its groups are awaited, and their children run on tokio's threads.
///
/// ```
/// use bowline::prelude::*;
///
/// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
/// let sum = bowline_tokio::block_on(&runtime, async {
///     task::group(async |group| {
///         group.spawn(async { 40 });
///         group.spawn(async { 2 });
///         let mut sum = 0;
///         while let Some(number) = group.next().await {
///             sum += number;
///         }
///         sum
///     })
///     .await
/// });
/// assert_eq!(sum, 42);
/// ```
///
/// # Panics
///
/// Resumes the future's panic. Panics if something that the future awaits has stopped: the future is dropped, and has no output.
/// Panics inside of a runtime, like [`Runtime::block_on`].
#[track_caller]
pub fn block_on<F>(runtime: &Runtime, future: F) -> F::Output
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let scheduler = TokioScheduler::new(runtime.handle());
    let task = starts_on(scheduler, Task::new(future)).into_outcome();
    let Ok(outcome) = runtime.block_on(task.into_future());
    match outcome {
        Outcome::Value(output) => output,
        _ => panic!(
            "the future has no output, since something that it awaited has stopped: write \
             `sender.stopped_as_option().await` to go on after a stop"
        ),
    }
}

/// The runtime of a program, as [`#[bowline_tokio::main]`](macro@crate::main) makes it.
#[derive(Clone, Debug)]
#[must_use = "it does nothing until `run` is called"]
pub struct Main {
    current_thread: bool,
    threads: Option<usize>,
}

impl Main {
    /// A runtime with one thread for each processor.
    pub fn multi_thread() -> Self {
        Main {
            current_thread: false,
            threads: None,
        }
    }

    /// A runtime on the calling thread.
    pub fn current_thread() -> Self {
        Main {
            current_thread: true,
            threads: None,
        }
    }

    /// Sets the number of threads. It has no effect on a runtime on the calling thread.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Makes the runtime, runs a future there with [`block_on`], and shuts the runtime down.
    ///
    /// # Panics
    ///
    /// Like [`block_on`], and if the number of threads is zero or the system refuses the runtime.
    #[track_caller]
    pub fn run<F>(self, future: F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let mut builder = if self.current_thread {
            Builder::new_current_thread()
        } else {
            Builder::new_multi_thread()
        };
        if let Some(threads) = self.threads {
            builder.worker_threads(threads);
        }
        match builder.enable_all().build() {
            Ok(runtime) => block_on(&runtime, future),
            Err(error) => panic!("failed to build a runtime: {error}"),
        }
    }
}
