//! Downloads files over HTTP, several at a time.
//!
//! The program is three things at once: downloads, a deadline for them, and Ctrl-C. Each cancels what is inside of it, and the program ends
//! when everything inside has cleaned up.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bowline::prelude::*;
use bowline_programs::arguments::{self, ArgumentError, Arguments, Seconds};
use bowline_programs::download::{Job, Options, download};
use bowline_programs::signals::Signals;
use indicatif::{MultiProgress, ProgressDrawTarget};

const HELP: &str = "\
Usage: download [options] URL..

Downloads files over HTTP/1.1, without TLS. A file gets its name when it is whole.
So there are no partial files, also after Ctrl-C. A second Ctrl-C ends the program
at once. SIGUSR1 prints the tree of tasks.

  --output DIRECTORY     where to put the files [.]
  --width N              download so many at a time [4]
  --retries N            try again so often after a temporary failure [5]
  --pause S              the pause before the first retry, doubled each time [0.2]
  --max-size BYTES       give up a file that is larger [1073741824]
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
/// The default of `--max-size`: enough for nearly all files, and for a body without an end to leave room on the disk.
const MAX_SIZE: usize = 1024 * 1024 * 1024;
/// How long a second signal waits for the file system to remove files.
const LAST: Duration = Duration::from_secs(1);

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
        max_size: arguments.count_or("--max-size", MAX_SIZE)? as u64,
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
    let partials: Vec<_> = jobs.iter().map(Job::partial).collect();
    let (downloads, report) = download(jobs, options, bars.clone());
    let me = task::current();
    let tree = || me.as_ref().map_or_else(String::new, |me| me.tree().to_string());
    let print_tree = || bars.suspend(|| eprint!("{}", tree()));
    let end = task::group(async |program| {
        program.spawn_with(SpawnOptions::new().name("downloads"), downloads);
        tokio::select! {
            ended = program.next() => match ended {
                Some(Err(_)) => End::DeadlineExceeded,
                _ => End::Finished,
            },
            signal = signals.stop(&print_tree) => {
                // The group awaits the downloads, which remove their files. Only a file system that does not answer makes that long.
                program.cancel_all_for(Reason::Custom(signal));
                tokio::select! {
                    () = program.wait_for_all() => {}
                    again = signals.stop(&print_tree) => {
                        let _ = bars.clear();
                        end_at_once(again, partials);
                    }
                }
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
            ExitCode::from(code(signal))
        }
        End::DeadlineExceeded => {
            eprintln!("download: deadline exceeded");
            ExitCode::FAILURE
        }
        End::Finished if failed => ExitCode::FAILURE,
        End::Finished => ExitCode::SUCCESS,
    })
}

/// Returns the exit code after a signal.
fn code(signal: &str) -> u8 {
    128 + if signal == "SIGINT" { 2 } else { 15 }
}

/// Ends the process although downloads have not cleaned up.
fn end_at_once(signal: &str, partials: Vec<PathBuf>) -> ! {
    eprintln!("download: stopped at once by a second {signal}");
    // Removes the files that it can remove in a moment. A file system that does not answer blocks only this thread.
    let (sender, done) = mpsc::channel::<()>();
    thread::spawn(move || {
        for partial in partials {
            let _ = fs::remove_file(partial);
        }
        drop(sender);
    });
    let _ = done.recv_timeout(LAST);
    process::exit(code(signal).into())
}
