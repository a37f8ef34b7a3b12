//! A parallel search for a string in files.
//!
//! [`search`] borrows everything: the paths, the pattern, and the list that the results are collected in. It blocks until all work has
//! ended, so no `Arc` and no copy is needed. The result does not depend on the order in which the threads get to the files: it is that of
//! a search of one file after the other.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bowline::prelude::*;
use bowline::stop::InplaceStopSource;
use memchr::memmem::Finder;

/// A file with a longer line, or with a zero byte, is not text: its search ends there.
const LONGEST_LINE: u64 = 1024 * 1024;

/// A line that contains the pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match<'a> {
    /// The path of the file.
    pub path: &'a Path,
    /// The number of the line, from one.
    pub line: usize,
    /// The line, without its end.
    pub text: String,
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Found<'a> {
    /// The first matches, in the order of the files and lines.
    pub matches: Vec<Match<'a>>,
    /// The files that could not be read, among those up to the last match.
    pub errors: Vec<(&'a Path, io::Error)>,
    /// The number of files that were searched to their end. It depends on the threads if the limit is reached.
    pub searched: usize,
}

/// Lists the files at a path and below, sorted. Symbolic links below it are not followed.
///
/// # Errors
///
/// The path does not exist. A directory below it that cannot be read is an element of `errors`.
pub fn list(path: &Path, files: &mut Vec<PathBuf>, errors: &mut Vec<(PathBuf, io::Error)>) -> io::Result<()> {
    if !fs::metadata(path)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_unstable_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let listed = entry.file_type().and_then(|kind| match kind {
            kind if kind.is_dir() => list(&path, files, errors),
            kind if kind.is_file() => {
                files.push(path.clone());
                Ok(())
            }
            _ => Ok(()),
        });
        if let Err(error) = listed {
            errors.push((path, error));
        }
    }
    Ok(())
}

/// Searches files for a pattern, on the threads of a pool, and returns the first `limit` matches.
///
/// When these are known, the search of the other files is cancelled. Those that wait for a thread never begin, and those that are being
/// searched end at the next line.
pub fn search<'a>(pool: &ThreadPool, files: &'a [PathBuf], pattern: &[u8], limit: usize) -> Found<'a> {
    let finder = Finder::new(pattern);
    let stop = InplaceStopSource::new();
    let progress = Mutex::new(Progress::new(files));
    if limit == 0 {
        return Found::default();
    }
    // One sender for each file. They are parts of one operation on this stack frame, which borrows the locals above.
    let searches = files.iter().enumerate().map(|(index, path)| {
        just(()).continues_on(pool.scheduler()).then({
            let (finder, stop, progress) = (&finder, &stop, &progress);
            move |()| {
                let found = search_file(path, finder, limit, || stop.stop_requested());
                // A search that was cut short counts for nothing. No file up to the last match is cut short.
                if !stop.stop_requested() && lock(progress).add(index, found) >= limit {
                    stop.request_stop();
                }
            }
        })
    });
    // The outcome is a stop if the limit was reached, and a value otherwise. Either way every search has ended.
    let _ = sync_wait(when_all_iter(searches).with_stop_token(stop.token()));
    progress
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .found(limit)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Searches one file, until so many lines match or `is_stopped`.
fn search_file<'a>(
    path: &'a Path,
    finder: &Finder<'_>,
    limit: usize,
    is_stopped: impl Fn() -> bool,
) -> io::Result<Vec<Match<'a>>> {
    let mut matches = Vec::new();
    let mut file = BufReader::new(File::open(path)?);
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let read = io::Read::take(&mut file, LONGEST_LINE).read_until(b'\n', &mut bytes)?;
        let is_text = !bytes.contains(&0) && (read as u64) < LONGEST_LINE;
        if read == 0 || !is_text || is_stopped() || matches.len() == limit {
            break;
        }
        if finder.find(&bytes).is_some() {
            let text = String::from_utf8_lossy(&bytes)
                .trim_end_matches(['\r', '\n'])
                .to_owned();
            matches.push(Match { path, line, text });
        }
    }
    Ok(matches)
}

/// The results so far.
struct Progress<'a> {
    files: &'a [PathBuf],
    results: Vec<Option<io::Result<Vec<Match<'a>>>>>,
    searched: usize,
    /// The number of files at the front whose results are all known.
    known: usize,
    /// The number of matches in those files.
    matches: usize,
}

impl<'a> Progress<'a> {
    fn new(files: &'a [PathBuf]) -> Self {
        Progress {
            files,
            results: files.iter().map(|_| None).collect(),
            searched: 0,
            known: 0,
            matches: 0,
        }
    }

    /// Adds the result of a file. Returns the number of matches that no other file can come before.
    fn add(&mut self, index: usize, result: io::Result<Vec<Match<'a>>>) -> usize {
        self.results[index] = Some(result);
        self.searched += 1;
        while let Some(Some(result)) = self.results.get(self.known) {
            self.matches += result.as_ref().map_or(0, Vec::len);
            self.known += 1;
        }
        self.matches
    }

    fn found(self, limit: usize) -> Found<'a> {
        let mut found = Found {
            searched: self.searched,
            ..Found::default()
        };
        for (path, result) in self.files.iter().zip(self.results).take(self.known) {
            if found.matches.len() == limit {
                break;
            }
            match result {
                Some(Ok(matches)) => found.matches.extend(matches),
                Some(Err(error)) => found.errors.push((path, error)),
                None => {}
            }
        }
        found.matches.truncate(limit);
        found
    }
}
