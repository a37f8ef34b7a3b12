use core::convert::Infallible;

/// The error of a sender whose error would be lost: none.
///
/// [`start_detached`](crate::start_detached), [`finally`](crate::Sender::finally) and the `spawn` of a scope ask for it.
#[diagnostic::on_unimplemented(
    message = "this sender must not fail, and it can, with `{Self}`",
    label = "nobody would learn of this error",
    note = "handle it first, with `.upon_error(..)`, `.into_outcome()` or `.retry()`"
)]
pub trait Handled {}

impl Handled for Infallible {}
