//! The choices of a layer that are part of its type: the form of failures, and the names of requests.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::{Failure, RequestError};

/// The form in which the client gets a [`Failure`]: [`AsError`] or [`AsResponse`]. Sealed.
pub trait OnFailure<T, E>: private::Sealed {
    /// The error of the layered service.
    type Error;

    #[doc(hidden)]
    fn service_failed(error: E) -> Self::Error;

    #[doc(hidden)]
    fn request_failed(&self, failure: Failure) -> Result<T, Self::Error>;
}

/// Returns failures as a [`RequestError`]. This is the default of a [`TaskLayer`](crate::TaskLayer).
#[derive(Clone, Copy, Debug, Default)]
pub struct AsError;

impl<T, E> OnFailure<T, E> for AsError {
    type Error = RequestError<E>;

    fn service_failed(error: E) -> RequestError<E> {
        RequestError::Service(error)
    }

    fn request_failed(&self, failure: Failure) -> Result<T, RequestError<E>> {
        Err(RequestError::Failed(failure))
    }
}

/// Returns failures as responses that a closure makes: see [`answer_failures`](crate::TaskLayer::answer_failures).
#[derive(Clone, Copy)]
pub struct AsResponse<A>(pub(crate) A);

impl<T, E, A: Fn(Failure) -> T> OnFailure<T, E> for AsResponse<A> {
    type Error = E;

    fn service_failed(error: E) -> E {
        error
    }

    fn request_failed(&self, failure: Failure) -> Result<T, E> {
        Ok((self.0)(failure))
    }
}

impl<A> fmt::Debug for AsResponse<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsResponse").finish_non_exhaustive()
    }
}

/// The way in which a request's task gets its name: [`Unnamed`] or [`Named`]. Sealed.
pub trait RequestName<R>: private::Sealed {
    #[doc(hidden)]
    fn name(&self, request: &R) -> Option<Cow<'static, str>>;
}

/// Gives the tasks of requests no names. This is the default of a [`TaskLayer`](crate::TaskLayer).
#[derive(Clone, Copy, Debug, Default)]
pub struct Unnamed;

impl<R> RequestName<R> for Unnamed {
    fn name(&self, _: &R) -> Option<Cow<'static, str>> {
        None
    }
}

/// Names the task of each request by a closure: see [`name_requests`](crate::TaskLayer::name_requests).
pub struct Named<R>(Arc<NameOf<R>>);

type NameOf<R> = dyn Fn(&R) -> Cow<'static, str> + Send + Sync;

impl<R> Named<R> {
    pub(crate) fn new<C: Into<Cow<'static, str>>>(name: impl Fn(&R) -> C + Send + Sync + 'static) -> Self {
        Named(Arc::new(move |request| name(request).into()))
    }
}

impl<R> RequestName<R> for Named<R> {
    fn name(&self, request: &R) -> Option<Cow<'static, str>> {
        Some((self.0)(request))
    }
}

impl<R> Clone for Named<R> {
    fn clone(&self) -> Self {
        Named(self.0.clone())
    }
}

impl<R> fmt::Debug for Named<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Named").finish_non_exhaustive()
    }
}

mod private {
    pub trait Sealed {}
    impl Sealed for super::AsError {}
    impl<A> Sealed for super::AsResponse<A> {}
    impl Sealed for super::Unnamed {}
    impl<R> Sealed for super::Named<R> {}
}
