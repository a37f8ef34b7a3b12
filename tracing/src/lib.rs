//! [tracing]'s spans and events for the tasks of [bowline].
//!
//! ```
//! // Once, at the beginning of the program.
//! bowline_tracing::install().unwrap();
//! ```
//!
//! Each task is a span `task` of the target `bowline`, at the level [`DEBUG`](tracing::Level::DEBUG), with the fields `id`,
//! `name`, `priority` and `spawned_at`. Its parent is the span of the task that waits for it. For a task that no other task
//! waits for, it is the span in which the task was begun. The span is entered while a thread polls the task, so the events of
//! its code are inside. It is closed when the task has ended, with everything below it.
//!
//! | event of the target `bowline`, inside the task's span | level |
//! |---|---|
//! | `cancelled`, with the field `reason` | `DEBUG` |
//! | `resumed`: the task was woken, and queued | `TRACE` |
//! | `polled`: a thread begins to poll it | `TRACE` |
//! | `suspended`: that poll has returned | `TRACE` |
//!
//! # Cost
//!
//! If no subscriber is interested in the span when a task begins, the task is not observed: each of its events costs a few
//! instructions. A task that is observed costs an entry in a table.
//!
//! [bowline]: https://docs.rs/bowline

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline::task::{Instrument, Reason, SetInstrumentError, TaskId, TaskRef, set_instrument};
use tracing::span::EnteredSpan;
use tracing::{Level, Span};

/// Makes each task a span: see the [crate](self).
///
/// # Errors
///
/// The process has another [instrument](set_instrument).
pub fn install() -> Result<(), SetInstrumentError> {
    set_instrument(TaskSpans::new())
}

/// The instrument that makes each task a span, for programs that have an instrument of their own and pass the events on.
#[derive(Debug, Default)]
pub struct TaskSpans {
    tables: [Table; TABLES],
}

/// The number of tables, so that threads seldom wait for each other.
const TABLES: usize = 16;

#[derive(Debug, Default)]
struct Table {
    /// The spans of the observed tasks.
    spans: Mutex<HashMap<TaskId, Span>>,
    /// The number of these, so that an empty table is not locked.
    count: AtomicUsize,
}

std::thread_local! {
    /// The spans of the polls on this thread, the innermost last. `None` for a task that is not observed.
    static POLLS: RefCell<Vec<(TaskId, Option<EnteredSpan>)>> = const { RefCell::new(Vec::new()) };
}

impl TaskSpans {
    /// Creates the instrument.
    pub fn new() -> Self {
        TaskSpans::default()
    }

    fn table(&self, task: TaskId) -> &Table {
        &self.tables[task.as_u64() as usize % TABLES]
    }

    /// Returns the span of a task, if it is observed.
    fn span(&self, task: &TaskRef) -> Option<Span> {
        let table = self.table(task.id());
        if table.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        table.lock().get(&task.id()).cloned()
    }
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, Span>> {
        // A subscriber that panics leaves the table as it was.
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Instrument for TaskSpans {
    fn spawned(&self, task: &TaskRef) {
        if !tracing::enabled!(target: "bowline", Level::DEBUG) {
            return;
        }
        let parent = match task.parent() {
            Some(parent) => self.span(&parent),
            None => Some(Span::current()),
        };
        let span = tracing::debug_span!(
            target: "bowline",
            parent: parent.and_then(|span| span.id()),
            "task",
            id = task.id().as_u64(),
            name = task.name(),
            priority = ?task.priority(),
            spawned_at = task.spawned_at().map(tracing::field::display),
        );
        if !span.is_disabled() {
            let table = self.table(task.id());
            table.lock().insert(task.id(), span);
            table.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn resumed(&self, task: &TaskRef) {
        if let Some(span) = self.span(task) {
            tracing::trace!(target: "bowline", parent: &span, "resumed");
        }
    }

    fn polled(&self, task: &TaskRef) {
        let span = self.span(task).map(Span::entered);
        if span.is_some() {
            tracing::trace!(target: "bowline", "polled");
        }
        // Fails while the thread ends, and then drops the span.
        _ = POLLS.try_with(|polls| polls.borrow_mut().push((task.id(), span)));
    }

    fn suspended(&self, task: &TaskRef) {
        let poll = POLLS.try_with(|polls| {
            // The innermost poll, unless the instrument was set in the middle of one.
            polls.borrow_mut().pop_if(|(polled, _)| *polled == task.id())
        });
        if let Ok(Some((_, Some(span)))) = poll {
            tracing::trace!(target: "bowline", "suspended");
            drop(span);
        }
    }

    fn cancelled(&self, task: &TaskRef, reason: Reason) {
        if let Some(span) = self.span(task) {
            tracing::debug!(target: "bowline", parent: &span, %reason, "cancelled");
        }
    }

    fn ended(&self, task: &TaskRef) {
        let table = self.table(task.id());
        if table.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Dropped after the lock was released: that closes the span, which calls the subscriber.
        let span = table.lock().remove(&task.id());
        if span.is_some() {
            table.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
