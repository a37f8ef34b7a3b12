//! Searches files for a string, in parallel.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;

use bowline::prelude::*;
use bowline_programs::arguments::{self, ArgumentError, Arguments};
use bowline_programs::search::{self, Match};

const HELP: &str = "\
Usage: search [options] STRING [PATH..]

Prints the lines that contain a string, of all files at the paths and below [.].
The order of the lines is that of the paths. The search of a file ends where it
is not text: at a zero byte or a line of more than a megabyte.

  --limit N              stop after so many lines [no limit]
  --threads N            search on so many threads [one per processor]
  --help                 print this

The exit code is 0 if a line was found, 1 if none was, and 2 after an error.
";

const FOUND: u8 = 0;
const NOT_FOUND: u8 = 1;
const FAILED: u8 = 2;

struct Options {
    pattern: String,
    paths: Vec<PathBuf>,
    limit: usize,
    threads: usize,
}

fn read(arguments: &mut Arguments) -> Result<Options, ArgumentError> {
    let limit = arguments.count_or("--limit", usize::MAX)?;
    let threads = arguments.count_or("--threads", available_parallelism().map_or(1, usize::from))?;
    let mut words = arguments.words()?.into_iter();
    let pattern = words.next().filter(|pattern| !pattern.is_empty());
    let pattern = pattern.ok_or_else(|| ArgumentError("a string to search for is missing".to_owned()))?;
    let mut paths: Vec<_> = words.map(PathBuf::from).collect();
    if paths.is_empty() {
        paths.push(PathBuf::from("."));
    }
    Ok(Options {
        pattern,
        paths,
        limit,
        threads,
    })
}

fn main() -> ExitCode {
    match arguments::read(HELP, read) {
        Ok(options) => ExitCode::from(run(&options)),
        Err(exit_code) => exit_code,
    }
}

fn run(options: &Options) -> u8 {
    let mut failed = false;
    let mut complain = |path: &Path, error: &io::Error| {
        eprintln!("search: {}: {error}", path.display());
        failed = true;
    };
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    for path in &options.paths {
        if let Err(error) = search::list(path, &mut files, &mut errors) {
            complain(path, &error);
        }
    }
    for (path, error) in &errors {
        complain(path, error);
    }
    let pool = match ThreadPool::builder().threads(options.threads).build() {
        Ok(pool) => pool,
        Err(error) => {
            eprintln!("search: {error}");
            return FAILED;
        }
    };
    let found = search::search(&pool, &files, options.pattern.as_bytes(), options.limit);
    for (path, error) in &found.errors {
        complain(path, error);
    }
    match print(&found.matches) {
        Ok(()) => {}
        // The reader has seen enough, as in `search .. | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => complain(Path::new("standard output"), &error),
    }
    match (failed, found.matches.is_empty()) {
        (true, _) => FAILED,
        (false, true) => NOT_FOUND,
        (false, false) => FOUND,
    }
}

fn print(matches: &[Match<'_>]) -> io::Result<()> {
    let mut output = BufWriter::new(io::stdout().lock());
    for found in matches {
        let (path, line, text) = (found.path.display(), found.line, &found.text);
        writeln!(output, "{path}:{line}:{text}")?;
    }
    output.flush()
}
