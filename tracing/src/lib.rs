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
//! The field `priority` is the task's priority when it began. After the task was raised, it is recorded again when the task is
//! polled next, so a task that waits has the field of its last poll.
//!
//! | event of the target `bowline`, inside the task's span | level |
//! |---|---|
//! | `cancelled`, with the field `reason`: when the task is polled next after that, or ends | `DEBUG` |
//! | `resumed`: the task was woken, and queued | `TRACE` |
//! | `polled`: a thread begins to poll it | `TRACE` |
//! | `suspended`: that poll has returned | `TRACE` |
//!
//! A task that stays in a [shield](bowline::task::shield) is not polled, so it has the event `cancelled` only when it is polled again. The
//! tree of [`dump_all`](bowline::task::dump_all) shows the cancellation at once.
//!
//! # Cost
//!
//! If no subscriber is interested in the span when a task begins, the task is not observed. Its events allocate nothing, but each
//! poll of it still calls the instrument twice. A task that is observed costs an entry in a table.
//!
//! [bowline]: https://docs.rs/bowline

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline::task::{Instrument, Priority, Reason, SetInstrumentError, TaskId, TaskRef, set_instrument};
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
    /// The observed tasks.
    tasks: Mutex<HashMap<TaskId, Observed>>,
    /// The number of these, so that an empty table is not locked.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Observed {
    span: Span,
    /// The priority that the span has.
    priority: Priority,
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
        table.lock().get(&task.id()).map(|observed| observed.span.clone())
    }

    /// Returns the span of a task that is about to be polled, if it is observed. The span gets the priority of the task.
    fn span_to_enter(&self, task: &TaskRef) -> Option<Span> {
        let table = self.table(task.id());
        if table.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let priority = task.priority();
        let (span, before) = {
            let mut tasks = table.lock();
            let observed = tasks.get_mut(&task.id())?;
            (observed.span.clone(), mem::replace(&mut observed.priority, priority))
        };
        // Without the lock, since this calls the subscriber.
        if before != priority {
            span.record("priority", tracing::field::debug(priority));
        }
        Some(span)
    }
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, Observed>> {
        // A subscriber that panics leaves the table as it was.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
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
        let priority = task.priority();
        let span = tracing::debug_span!(
            target: "bowline",
            parent: parent.and_then(|span| span.id()),
            "task",
            id = task.id().as_u64(),
            name = task.name(),
            ?priority,
            spawned_at = task.spawned_at().map(tracing::field::display),
        );
        if !span.is_disabled() {
            let table = self.table(task.id());
            table.lock().insert(task.id(), Observed { span, priority });
            table.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn resumed(&self, task: &TaskRef) {
        if let Some(span) = self.span(task) {
            tracing::trace!(target: "bowline", parent: &span, "resumed");
        }
    }

    fn polled(&self, task: &TaskRef) {
        let span = self.span_to_enter(task).map(Span::entered);
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
        let observed = table.lock().remove(&task.id());
        if observed.is_some() {
            table.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
