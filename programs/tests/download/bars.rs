//! The progress bars, drawn on a terminal that keeps what is written.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::prelude::*;
use bowline_programs::download::{Job, Options, download};
use indicatif::{MultiProgress, ProgressDrawTarget, TermLike};

use crate::common::Directory;
use crate::server::Server;
use crate::wait_for;

/// A terminal of 100 columns. Clones write to the same text.
#[derive(Clone, Debug, Default)]
struct Terminal(Arc<Mutex<Screen>>);

#[derive(Debug, Default)]
struct Screen {
    lines: Vec<String>,
    row: usize,
    /// All that was ever written.
    history: String,
}

impl Terminal {
    fn change(&self, change: impl FnOnce(&mut Screen)) -> io::Result<()> {
        let mut screen = self.0.lock().unwrap();
        change(&mut screen);
        let row = screen.row;
        if screen.lines.len() <= row {
            screen.lines.resize(row + 1, String::new());
        }
        Ok(())
    }

    /// Returns the lines that are seen, without colours and empty lines.
    fn seen(&self) -> Vec<String> {
        let screen = self.0.lock().unwrap();
        let lines = screen.lines.iter().map(|line| line.trim().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    }

    fn was_seen(&self, text: &str) -> bool {
        self.0.lock().unwrap().history.contains(text)
    }
}

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        100
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        self.change(|screen| screen.row = screen.row.saturating_sub(lines))
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        self.change(|screen| screen.row += lines)
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)?;
        self.move_cursor_down(1)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.change(|screen| {
            let row = screen.row;
            screen.history += text;
            screen.lines[row] += text;
        })
    }

    fn clear_line(&self) -> io::Result<()> {
        self.change(|screen| {
            let row = screen.row;
            screen.lines[row].clear();
        })
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn bars_show_what_is_downloaded() {
    let (server, directory) = (Server::start(), Directory::new());
    let urls = ["/ok/1000/whole", "/stall/999/200000/stalled", "/busy/999999/10/busy"];
    let jobs = urls.map(|path| Job::new(&server.url(path), directory.path()).unwrap());
    let options = Options {
        width: 2,
        retry: RetryPolicy::new()
            .attempts(1_000_000)
            .initial_delay(Duration::from_millis(1))
            .max_delay(Duration::from_millis(1)),
        max_size: u64::MAX,
        stall_timeout: Duration::MAX,
        item_timeout: Duration::MAX,
        timeout: Duration::MAX,
    };
    let terminal = Terminal::default();
    terminal.change(|_| ()).unwrap();
    let bars = MultiProgress::with_draw_target(ProgressDrawTarget::term_like(Box::new(terminal.clone())));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let watched = terminal.clone();
    bowline_tokio::block_on(&runtime, async move {
        let (downloads, report) = download(jobs.into(), options, bars);
        task::group(async |program| {
            program.spawn(downloads);
            task::spawn_blocking(move |_| {
                let is_seen = |parts: &[&str]| {
                    let lines = watched.seen();
                    lines.iter().any(|line| parts.iter().all(|part| line.contains(part)))
                };
                // One file is whole, one is half done, and one is tried again and again.
                wait_for(|| is_seen(&["1/3 files"]));
                wait_for(|| is_seen(&["stalled", "97.66 KiB/195.31 KiB"]));
                wait_for(|| watched.was_seen("busy: the server"));
                assert!(watched.was_seen("whole"));
            })
            .await;
            program.cancel_all();
        })
        .await;
        assert_eq!(report.results().iter().filter(|result| result.is_ok()).count(), 1);
    });
    // Bars are gone at the end, also after a cancellation.
    assert_eq!(terminal.seen(), [""; 0]);
}
