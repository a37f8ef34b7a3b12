//! Downloads of several files at a time over HTTP/1.1.
//!
//! Each download is a child of one group with a limit. A file is written under another name and renamed when it is whole. Every other end
//! of a download removes it: an error, a deadline, a cancellation.

mod attempt;
mod failure;
mod job;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::prelude::*;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::fs;

pub use failure::Failure;
pub use job::Job;

/// How to download.
#[derive(Clone, Debug)]
pub struct Options {
    /// The maximum number of downloads at a time.
    pub width: usize,
    /// How often and how soon to try again.
    pub retry: RetryPolicy,
    /// The maximum number of bytes of a file.
    pub max_size: u64,
    /// How long the server may send nothing.
    pub stall_timeout: Duration,
    /// How long one download may take, with all attempts.
    pub item_timeout: Duration,
    /// How long all downloads together may take.
    pub timeout: Duration,
}

/// The results of downloads, which can be read at any time. Clones share them.
#[derive(Clone, Debug)]
pub struct Report {
    results: Arc<Mutex<Vec<Result<u64, Failure>>>>,
}

impl Report {
    fn new(jobs: usize) -> Self {
        let results = (0..jobs).map(|_| Err(Failure::NotStarted)).collect();
        Report {
            results: Arc::new(Mutex::new(results)),
        }
    }

    /// Returns the number of bytes of each download, or why it has failed, in the order of the jobs.
    pub fn results(&self) -> MutexGuard<'_, Vec<Result<u64, Failure>>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Prepares downloads. Returns a future that runs them, and the report that it fills in.
///
/// The future gives [`DeadlineExceeded`] if the time for all downloads was not enough. It ends after the last file was renamed or
/// removed, and so does a task that awaits it and is cancelled.
pub fn download(
    jobs: Vec<Job>,
    options: Options,
    bars: MultiProgress,
) -> (impl Future<Output = Result<(), DeadlineExceeded>> + Send, Report) {
    let report = Report::new(jobs.len());
    let timeout = options.timeout;
    let shared = Arc::new(Shared {
        options,
        bars,
        report: report.clone(),
    });
    // A task of its own ends after its children. So when the deadline is reported, they have cleaned up.
    let all = Task::new(async move {
        let bar = shared.bars.add(ProgressBar::new(jobs.len() as u64));
        bar.set_style(style("{pos}/{len} files"));
        task::discarding_group(async |downloads| {
            downloads.set_limit(shared.options.width);
            for (index, job) in jobs.into_iter().enumerate() {
                let (shared, bar) = (shared.clone(), bar.clone());
                // The tree of tasks lists the file by its name.
                let options = SpawnOptions::new().name(job.name().to_owned());
                let one = async move {
                    let result = one(Arc::new(job), &shared).await;
                    shared.report.results()[index] = result;
                    bar.inc(1);
                };
                // Waits while `width` of them run. A cancelled group refuses the rest.
                downloads.spawn_when_ready_with(options, one).await;
            }
        })
        .await;
        bar.finish_and_clear();
    });
    (
        async move { task::with_timeout(timeout, all).await.map(|ended| ended.unwrap_or(())) },
        report,
    )
}

/// The state that all downloads share.
struct Shared {
    options: Options,
    bars: MultiProgress,
    report: Report,
}

/// Downloads one file. Leaves the whole file under its name, or nothing.
async fn one(job: Arc<Job>, shared: &Shared) -> Result<u64, Failure> {
    let bar = shared.bars.insert_from_back(1, ProgressBar::no_length());
    bar.set_style(style("{msg:20!} {wide_bar} {bytes}/{total_bytes}"));
    bar.set_message(job.name().to_owned());
    // A cancellation stops a task at its `.await`, and nothing after that runs. Here something must: so the work is a task inside this
    // one, whose stop is a value.
    let work = attempts(job.clone(), shared.options.clone(), bar.clone());
    let limit = shared.options.item_timeout;
    let work = Task::new(async move { task::with_timeout(limit, work).await.unwrap_or(Err(Failure::Deadline)) });
    let result = match work.stopped_as_option().await {
        Ok(Some(result)) => result,
        Ok(None) => Err(Failure::Cancelled(task::cancellation_reason())),
    };
    bar.finish_and_clear();
    // The task may be cancelled by now. The shield lets it await all the same.
    task::shield(settle(&job, result)).await
}

/// Renames a whole file, and removes any other.
async fn settle(job: &Job, result: Result<u64, Failure>) -> Result<u64, Failure> {
    let partial = job.partial();
    match result {
        Ok(bytes) => match fs::rename(&partial, job.target()).await {
            Ok(()) => Ok(bytes),
            Err(error) => remove(partial, Failure::File(error)).await,
        },
        Err(failure) => remove(partial, failure).await,
    }
}

async fn remove(partial: PathBuf, failure: Failure) -> Result<u64, Failure> {
    // There is no file if no server has answered.
    let _ = fs::remove_file(partial).await;
    Err(failure)
}

/// Tries until the file is whole, or it makes no sense to go on.
async fn attempts(job: Arc<Job>, options: Options, bar: ProgressBar) -> Result<u64, Failure> {
    let (job, options, bar) = (&*job, &options, &bar);
    let may_retry = |failure: &Failure| {
        bar.set_message(format!("{}: {failure}", job.name()));
        failure.is_temporary()
    };
    task::retry_with_if(options.retry, may_retry, || {
        bar.set_message(job.name().to_owned());
        bar.reset();
        attempt::attempt(job, options, bar)
    })
    .await
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
