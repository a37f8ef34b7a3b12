//! Downloads files over HTTP, several at a time.
//!
//! The program is three things at once: downloads, a deadline for them, and Ctrl-C. Each cancels what is inside of it, and the program ends
//! when everything inside has cleaned up.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bowline::prelude::*;
use bowline::task::Reason;
use bowline_programs::arguments::{self, ArgumentError, Arguments, Seconds};
use bowline_programs::download::{Job, Options, download};
use bowline_programs::signals::Signals;
use indicatif::{MultiProgress, ProgressDrawTarget};

const HELP: &str = "\
Usage: download [options] URL..

Downloads files over HTTP/1.1, without TLS. A file gets its name when it is whole.
So there are no partial files, also after Ctrl-C.

  --output DIRECTORY     where to put the files [.]
  --width N              download so many at a time [4]
  --retries N            try again so often after a temporary failure [5]
  --pause S              the pause before the first retry, doubled each time [0.2]
  --stall-timeout S      give up an attempt if the server sends nothing for so long [10]
  --item-timeout S       the time for one file, with all attempts [600]
  --timeout S            the time for all files [no limit]
  --quiet                no progress bars
  --help                 print this

The exit code is 0 if all files were downloaded, 1 if not, 2 for a wrong command
line, and 128 plus the number of a signal.
";

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

struct CommandLine {
    jobs: Vec<Job>,
    options: Options,
    quiet: bool,
}

fn read(arguments: &mut Arguments) -> Result<CommandLine, ArgumentError> {
    let seconds = |arguments: &mut Arguments, name, default: f64| {
        let default = Seconds(Duration::from_secs_f64(default));
        arguments.value_or(name, default).map(|Seconds(duration)| duration)
    };
    let options = Options {
        width: arguments.count_or("--width", 4)?,
        retry: RetryPolicy::new()
            .attempts(arguments.value_or("--retries", 5_usize)?.saturating_add(1))
            .initial_delay(seconds(arguments, "--pause", 0.2)?)
            .max_delay(LONGEST_PAUSE),
        stall_timeout: seconds(arguments, "--stall-timeout", 10.0)?,
        item_timeout: seconds(arguments, "--item-timeout", 600.0)?,
        timeout: arguments
            .value("--timeout")?
            .map_or(Duration::MAX, |Seconds(duration)| duration),
    };
    let quiet = arguments.flag("--quiet");
    let directory: PathBuf = arguments.value_or("--output", PathBuf::from("."))?;
    let urls = arguments.words()?;
    if urls.is_empty() {
        return Err(ArgumentError("a URL is missing".to_owned()));
    }
    let jobs: Result<Vec<_>, _> = urls.iter().map(|url| Job::new(url, &directory)).collect();
    let jobs = jobs.map_err(ArgumentError)?;
    let mut names = HashSet::new();
    match jobs.iter().find(|job| !names.insert(job.name())) {
        Some(job) => Err(ArgumentError(format!(
            "two URLs have the same file name: {}",
            job.name()
        ))),
        None => Ok(CommandLine { jobs, options, quiet }),
    }
}

/// How the downloads have ended.
enum End {
    Finished,
    DeadlineExceeded,
    Signal(&'static str),
}

#[bowline_tokio::main]
async fn main() -> ExitCode {
    match arguments::read(HELP, read) {
        Ok(command_line) => run(command_line).await.unwrap_or_else(|error| {
            eprintln!("download: {error}");
            ExitCode::FAILURE
        }),
        Err(exit_code) => exit_code,
    }
}

async fn run(command_line: CommandLine) -> io::Result<ExitCode> {
    // Before anything else: from here on, a signal ends the program in order.
    let mut signals = Signals::install()?;
    let CommandLine { jobs, options, quiet } = command_line;
    let target = if quiet {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let bars = MultiProgress::with_draw_target(target);
    let names: Vec<_> = jobs.iter().map(|job| job.name().to_owned()).collect();
    let (downloads, report) = download(jobs, options, bars);
    let end = task::group(async |program| {
        program.spawn(downloads);
        tokio::select! {
            ended = program.next() => match ended {
                Some(Err(_)) => End::DeadlineExceeded,
                _ => End::Finished,
            },
            signal = signals.stop() => {
                // The group awaits the downloads, which remove their files.
                program.cancel_all_for(Reason::Custom(signal));
                End::Signal(signal)
            }
        }
    })
    .await;

    let mut failed = false;
    for (name, result) in names.iter().zip(report.results().iter()) {
        match result {
            Ok(bytes) => println!("{name}: {bytes} bytes"),
            Err(failure) => {
                println!("{name}: failed: {failure}");
                failed = true;
            }
        }
    }
    Ok(match end {
        End::Signal(signal) => {
            eprintln!("download: stopped by {signal}");
            ExitCode::from(128 + if signal == "SIGINT" { 2 } else { 15 })
        }
        End::DeadlineExceeded => {
            eprintln!("download: deadline exceeded");
            ExitCode::FAILURE
        }
        End::Finished if failed => ExitCode::FAILURE,
        End::Finished => ExitCode::SUCCESS,
    })
}
