//! The reaction of a group to failed children.

use core::convert::Infallible;
use core::ptr::NonNull;

use crate::Completion;

/// The treatment of ended children.
#[derive(Clone, Copy, Debug)]
#[allow(unreachable_pub, reason = "it is in the sealed trait `Flavour`")]
pub struct Policy {
    /// Whether results are dropped at once.
    pub(super) discards: bool,
    /// Whether a panic of a child does not cancel the others.
    pub(super) supervises: bool,
    /// Returns whether the value at an address is a failure, which cancels the others once the body has ended.
    pub(super) fails: Option<unsafe fn(NonNull<()>) -> bool>,
}

/// The failure of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// None that matters to the group.
    None,
    /// An error, in a group whose children return `Result`.
    Error,
    /// A panic, in a group that is not supervised.
    Panic,
}

impl Policy {
    /// Classifies the result of a child.
    pub(super) fn failure<T>(&self, result: Option<&Completion<T, Infallible>>) -> Failure {
        match (result, self.fails) {
            (Some(Completion::Panicked(_)), _) if !self.supervises => Failure::Panic,
            // SAFETY: `Flavour<T, O>` defines the policy for children of output `T`.
            (Some(Completion::Value(value)), Some(fails)) if unsafe { fails(NonNull::from(value).cast()) } => {
                Failure::Error
            }
            _ => Failure::None,
        }
    }
}
