//! Processes of the programs, and directories for their files.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The limit of every wait. A test that reaches it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running program, killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    stdout: Lines,
    stderr: Lines,
}

impl Process {
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        Process {
            stdout: Lines::read(child.stdout.take().expect("a pipe")),
            stderr: Lines::read(child.stderr.take().expect("a pipe")),
            child,
        }
    }

    /// Waits for a line of the standard output that begins with this, and returns the rest of it.
    pub(crate) fn expect(&self, begin: &str) -> String {
        let line = self.stdout.wait(|line| line.starts_with(begin));
        line.unwrap_or_else(|| panic!("no line begins with {begin:?}: {}", self.all()))[begin.len()..].to_owned()
    }

    /// Waits for a line of the standard error that contains this.
    pub(crate) fn expect_error(&self, part: &str) -> String {
        let line = self.stderr.wait(|line| line.contains(part));
        line.unwrap_or_else(|| panic!("no line contains {part:?}: {}", self.all()))
    }

    /// Asks for the tree of tasks until a line of one contains `part`: a task that soon waits may still run in the first.
    #[allow(dead_code, reason = "not every program prints a tree")]
    pub(crate) fn expect_in_tree(&self, part: &str) -> String {
        let begin = Instant::now();
        loop {
            self.signal("USR1");
            thread::sleep(Duration::from_millis(20));
            if let Some(line) = self.stderr().lines().find(|line| line.contains(part)) {
                return line.to_owned();
            }
            assert!(begin.elapsed() < PATIENCE, "no line contains {part:?}: {}", self.all());
        }
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.text()
    }

    fn all(&self) -> String {
        format!("stdout:\n{}stderr:\n{}", self.stdout(), self.stderr())
    }

    /// Returns the number by which the system knows the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", name, &id])
            .stderr(Stdio::null())
            .status();
        sent.expect("kill runs");
    }

    /// Waits until the process has ended and its output was read.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is a child of this process") {
                self.stdout.wait(|_| false);
                self.stderr.wait(|_| false);
                return status;
            }
            assert!(begin.elapsed() < PATIENCE, "the process does not end: {}", self.all());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the process has ended, and checks its exit code.
    #[track_caller]
    pub(crate) fn wait_for_code(&mut self, code: i32) {
        let status = self.wait();
        assert_eq!(status.code(), Some(code), "{status}; {}", self.all());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines that a process writes.
#[derive(Clone)]
struct Lines {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The lines so far.
    lines: Vec<String>,
    /// Whether these are all.
    is_complete: bool,
}

impl Lines {
    fn read(pipe: impl Read + Send + 'static) -> Self {
        let shared = Arc::new(Shared::default());
        let lines = Lines { shared: shared.clone() };
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                shared.state.lock().unwrap().lines.push(line);
                shared.changed.notify_all();
            }
            shared.state.lock().unwrap().is_complete = true;
            shared.changed.notify_all();
        });
        lines
    }

    /// Waits for a line. Returns `None` if all were read, and it was not among them.
    fn wait(&self, is_it: impl Fn(&str) -> bool) -> Option<String> {
        let begin = Instant::now();
        let mut state = self.shared.state.lock().unwrap();
        loop {
            if let Some(line) = state.lines.iter().find(|line| is_it(line)) {
                return Some(line.clone());
            }
            let left = PATIENCE.saturating_sub(begin.elapsed());
            if state.is_complete || left.is_zero() {
                return None;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    fn text(&self) -> String {
        let state = self.shared.state.lock().unwrap();
        state.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// A new directory, removed when this is dropped.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{process}-{number}"));
        fs::create_dir_all(&path).expect("the directory is made");
        Directory(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("the path is text").to_owned()
    }

    /// Returns the names of all files, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let files = fs::read_dir(&self.0).expect("the directory is read").flatten();
        let mut names: Vec<_> = files
            .map(|file| file.file_name().into_string().expect("names are text"))
            .collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
