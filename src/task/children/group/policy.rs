//! The treatment of children that fail.

use core::convert::Infallible;
use core::ptr::NonNull;

use super::state::GroupPhase;
use crate::Completion;

/// The treatment of ended children.
#[derive(Clone, Copy, Debug)]
#[allow(unreachable_pub, reason = "it is in the sealed trait of what a group is like")]
pub struct Policy {
    /// Whether a result is dropped at once.
    pub(super) discards: bool,
    /// Whether a panic leaves the others running.
    pub(super) supervises: bool,
    /// Returns whether a value is a failure, which cancels the others once the body has ended. Called with its address.
    pub(super) fails: Option<unsafe fn(NonNull<()>) -> bool>,
}

/// The failure of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// None, or none that matters to its group.
    None,
    /// An error, in a group whose children return `Result`.
    Error,
    /// A panic, in a group that is not supervised.
    Panic,
}

impl Policy {
    /// Returns the failure that the result of a child is.
    pub(super) fn failure<T>(&self, result: Option<&Completion<T, Infallible>>) -> Failure {
        match (result, self.fails) {
            (Some(Completion::Panicked(_)), _) if !self.supervises => Failure::Panic,
            // SAFETY: the policy was created for values of this type.
            (Some(Completion::Value(value)), Some(fails)) if unsafe { fails(NonNull::from(value).cast()) } => {
                Failure::Error
            }
            _ => Failure::None,
        }
    }
}

impl Failure {
    /// Returns whether a failed child cancels its siblings.
    ///
    /// A panic does so at once. An error does so once the body has ended: before that, the body decides.
    pub(super) fn cancels(self, phase: GroupPhase) -> bool {
        match self {
            Failure::None => false,
            Failure::Error => phase != GroupPhase::Open,
            Failure::Panic => true,
        }
    }
}
