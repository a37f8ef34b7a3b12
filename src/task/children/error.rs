use core::convert::Infallible;
use core::error::Error;
use core::fmt;

use crate::{Completion, Panic};

/// Why a task that runs by itself gave no value.
#[derive(Debug)]
#[non_exhaustive]
pub enum TaskError {
    /// It was cancelled, or something that it awaited has stopped, and it ended there.
    Cancelled,
    /// It panicked, with this.
    Panicked(Panic),
}

impl TaskError {
    pub(super) fn result<T>(completion: Completion<T, Infallible>) -> Result<T, TaskError> {
        match completion {
            Completion::Value(value) => Ok(value),
            Completion::Error(error) => match error {},
            Completion::Stopped => Err(TaskError::Cancelled),
            Completion::Panicked(payload) => Err(TaskError::Panicked(payload)),
        }
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, TaskError::Cancelled)
    }

    /// Whether it panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self, TaskError::Panicked(_))
    }

    /// What it panicked with, to be looked at or [resumed](Panic::resume).
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
