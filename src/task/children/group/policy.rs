//! What a group does about children that fail.

use core::convert::Infallible;
use core::ptr::NonNull;

use super::state::GroupPhase;
use crate::Completion;

/// What becomes of a child that has ended.
#[derive(Clone, Copy, Debug)]
#[allow(unreachable_pub, reason = "it is in the sealed trait of what a group is like")]
pub struct Policy {
    /// Its result is dropped at once.
    pub(super) discards: bool,
    /// A panic in it does not cancel the others.
    pub(super) supervises: bool,
    /// Whether a value is a failure, which cancels the others once the body has ended. It is called with its address.
    pub(super) fails: Option<unsafe fn(NonNull<()>) -> bool>,
}

/// How a child has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It has not, or its group does not care.
    None,
    /// It returned an error, in a group whose children may fail.
    Error,
    /// It panicked, in a group that is not supervised.
    Panic,
}

impl Policy {
    /// Whether the result of a child is a failure.
    pub(super) fn failure<T>(&self, result: Option<&Completion<T, Infallible>>) -> Failure {
        match (result, self.fails) {
            (Some(Completion::Panicked(_)), _) if !self.supervises => Failure::Panic,
            // SAFETY: the policy was made for values of this type.
            (Some(Completion::Value(value)), Some(fails)) if unsafe { fails(NonNull::from(value).cast()) } => {
                Failure::Error
            }
            _ => Failure::None,
        }
    }
}

impl Failure {
    /// Whether a child that has failed cancels its siblings.
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
