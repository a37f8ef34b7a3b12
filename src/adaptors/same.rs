//! Saying what to write when two types should have been one.

/// One error type for senders that end in one place.
///
/// Every type is the same as itself and as nothing else; the trait is there for the sentence that the compiler prints.
/// It is asked for in both directions, so that either type is inferred from the other.
#[diagnostic::on_unimplemented(
    message = "these senders have different errors: `{Self}` and `{E}`",
    label = "one error type is needed here",
    note = "convert each with `.err_into::<MyError>()` or `.map_err(..)`; a sender that cannot fail takes any error with `.infallible_into()`"
)]
pub trait SameError<E> {
    /// Itself, under the other name.
    fn same(self) -> E;
}

impl<E> SameError<E> for E {
    #[inline]
    fn same(self) -> E {
        self
    }
}

/// One value type for senders of which one wins.
///
/// Every type is the same as itself and as nothing else; the trait is there for the sentence that the compiler prints.
#[diagnostic::on_unimplemented(
    message = "these senders have different values: `{Self}` and `{T}`",
    label = "one value type is needed here",
    note = "make them one with `.then(..)`, for example into the variants of an enum"
)]
pub trait SameValue<T> {
    /// Itself, under the other name.
    fn same(self) -> T;
}

impl<T> SameValue<T> for T {
    #[inline]
    fn same(self) -> T {
        self
    }
}
