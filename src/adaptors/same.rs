//! Compile errors that say what to write when two types should be one.
//!
//! Each trait comes twice. [`SameError`] and [`SameValue`] hold for two equal types and infer either from the other, as
//! a sender that combines others needs. [`ErrorIs`] and [`ValueIs`] infer nothing, so that a method which asks for one
//! waits until both types are known, and the compiler shows the sentence instead of a mismatch of its own.

/// One error type for senders that end in one place.
///
/// `()` implements it for every type and itself, and for nothing else.
#[diagnostic::on_unimplemented(
    message = "these senders have different errors: `{A}` and `{B}`",
    label = "one error type is needed here",
    note = "convert each with `.err_into::<MyError>()` or `.map_err(..)`; a sender that cannot fail takes any error with `.infallible_into()`"
)]
pub trait SameError<A, B> {
    /// Converts to the equal type.
    fn same(error: A) -> B;
}

impl<E> SameError<E, E> for () {
    #[inline]
    fn same(error: E) -> E {
        error
    }
}

/// The error of a sender that runs after one with the error `E`.
#[diagnostic::on_unimplemented(
    message = "these senders have different errors: `{E}` and `{Self}`",
    label = "one error type is needed here",
    note = "convert each with `.err_into::<MyError>()` or `.map_err(..)`; a sender that cannot fail takes any error with `.infallible_into()`"
)]
pub trait ErrorIs<E> {}

impl<E> ErrorIs<E> for E {}

/// One value type for senders of which one wins.
///
/// `()` implements it for every type and itself, and for nothing else.
#[diagnostic::on_unimplemented(
    message = "these senders have different values: `{A}` and `{B}`",
    label = "one value type is needed here",
    note = "make them one with `.then(..)`, for example into the variants of an enum"
)]
pub trait SameValue<A, B> {
    /// Converts to the equal type.
    fn same(value: A) -> B;
}

impl<T> SameValue<T, T> for () {
    #[inline]
    fn same(value: T) -> T {
        value
    }
}

/// The value of a sender that runs in place of one with the value `T`.
#[diagnostic::on_unimplemented(
    message = "these senders have different values: `{T}` and `{Self}`",
    label = "one value type is needed here",
    note = "make them one with `.then(..)`, for example into the variants of an enum"
)]
pub trait ValueIs<T> {}

impl<T> ValueIs<T> for T {}
