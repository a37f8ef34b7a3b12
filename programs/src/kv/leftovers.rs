//! What a server has left behind, which should be nothing.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::thread;
use std::time::Duration;

/// The tasks, sockets and threads that exist after the end of a server.
///
/// Sockets and threads are counted on Linux only. Elsewhere there seem to be none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leftovers {
    /// The tasks that have not ended.
    pub tasks: usize,
    /// The open TCP sockets of the process.
    pub sockets: usize,
    /// The threads of the process, without the calling one and those of the library that run as long as the process.
    pub threads: usize,
}

impl Leftovers {
    /// Counts sockets and threads. A thread that was joined may still be listed for a moment, so this waits for it, up to a second.
    pub fn count(tasks: usize) -> Self {
        let mut threads = other_threads();
        for _ in 0..100 {
            if threads == 0 {
                break;
            }
            thread::sleep(Duration::from_millis(10));
            threads = other_threads();
        }
        Leftovers {
            tasks,
            sockets: tcp_sockets(),
            threads,
        }
    }
}

impl fmt::Display for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Leftovers {
            tasks,
            sockets,
            threads,
        } = self;
        write!(f, "left: {tasks} tasks, {sockets} sockets, {threads} threads")
    }
}

/// The library's threads that run as long as the process: the timer, and with the feature `inspect` the clock.
const KEPT: [&str; 2] = ["bowline-timer", "bowline-clock"];

fn other_threads() -> usize {
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return 0;
    };
    let names = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    let others = names.filter(|name| !KEPT.contains(&name.trim_end())).count();
    others.saturating_sub(1)
}

fn tcp_sockets() -> usize {
    // The numbers of all TCP sockets are in a column of these tables. The process's own files name the same numbers.
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    let numbers: HashSet<_> = rows.filter_map(|row| row.split_whitespace().nth(9)).collect();
    let Ok(files) = fs::read_dir("/proc/self/fd") else {
        return 0;
    };
    let targets = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
    let is_tcp = |target: &std::path::PathBuf| {
        let number = target
            .to_str()
            .and_then(|name| name.strip_prefix("socket:[")?.strip_suffix(']'));
        number.is_some_and(|number| numbers.contains(number))
    };
    targets.filter(is_tcp).count()
}
