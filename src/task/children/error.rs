//! The error of a task that returned no value.

use core::convert::Infallible;
use core::error::Error;
use core::fmt;

use crate::{Completion, Panic};

/// The reason why a detached task returned no value.
#[derive(Debug)]
#[non_exhaustive]
pub enum TaskError {
    /// The task was cancelled, or something that it awaited stopped.
    Cancelled,
    /// The task panicked, with this payload.
    Panicked(Panic),
}

impl TaskError {
    pub(in crate::task) fn result<T>(completion: Completion<T, Infallible>) -> Result<T, TaskError> {
        match completion {
            Completion::Value(value) => Ok(value),
            Completion::Error(error) => match error {},
            Completion::Stopped => Err(TaskError::Cancelled),
            Completion::Panicked(payload) => Err(TaskError::Panicked(payload)),
        }
    }

    /// Returns whether the task was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, TaskError::Cancelled)
    }

    /// Returns whether the task panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self, TaskError::Panicked(_))
    }

    /// Returns the payload of the panic, to be inspected or [resumed](Panic::resume).
    pub fn into_panic(self) -> Option<Panic> {
        match self {
            TaskError::Panicked(payload) => Some(payload),
            TaskError::Cancelled => None,
        }
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskError::Cancelled => f.write_str("task was cancelled"),
            TaskError::Panicked(payload) => {
                write!(f, "task panicked: {}", payload.message().unwrap_or("(no message)"))
            }
        }
    }
}

impl Error for TaskError {}
