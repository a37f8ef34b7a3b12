//! The service that spawns the requests.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bowline::task::SpawnErrorKind;
use tower_service::Service;

use crate::admission::Readiness;
use crate::exchange::Exchange;
use crate::policy::{AsError, OnFailure, RequestName, Unnamed};
use crate::request::Request;
use crate::{Failure, ResponseFuture, TaskLayer};

/// A service that runs each request as a task. Made by a [`TaskLayer`].
///
/// `call` calls the service inside, and spawns the future that it returns. It may be called on any thread and in any executor.
///
/// # Readiness
///
/// `poll_ready` takes a permit of the [limit](crate::Requests::limit), and then waits for the service inside. The permit belongs to this
/// service until `call` or the drop of the service. A clone is not ready. The call passes the permit on to the request's task, which
/// releases it at its end. A call without a permit takes one if there is room, and otherwise fails with [`Failure::NoRoom`].
///
/// A closed scope is ready: the call then fails with [`Failure::Closed`].
#[derive(Clone, Debug)]
pub struct TaskService<S, A = AsError, N = Unnamed> {
    inner: S,
    layer: TaskLayer<A, N>,
    readiness: Readiness,
}

impl<S, A, N> TaskService<S, A, N> {
    pub(crate) fn new(inner: S, layer: TaskLayer<A, N>) -> Self {
        let readiness = Readiness::new(&layer.scope.admission);
        TaskService {
            inner,
            layer,
            readiness,
        }
    }

    /// Returns the service inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the service inside. A call of it is not a task, and needs no permit.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the service inside, and releases the permit.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<R, S, A, N, T> Service<R> for TaskService<S, A, N>
where
    S: Service<R, Response = T, Future: Send + 'static>,
    T: Send + 'static,
    S::Error: Send + 'static,
    A: OnFailure<T, S::Error> + Clone,
    N: RequestName<R>,
{
    type Response = T;
    type Error = A::Error;
    type Future = ResponseFuture<T, S::Error, A>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), A::Error>> {
        ready!(self.readiness.poll(cx));
        let ready = ready!(self.inner.poll_ready(cx));
        if ready.is_err() {
            // A service that has failed is not called, so it needs no permit.
            self.readiness.give_up();
        }
        Poll::Ready(ready.map_err(A::service_failed))
    }

    fn call(&mut self, request: R) -> ResponseFuture<T, S::Error, A> {
        let on_failure = self.layer.on_failure.clone();
        match self.begin(request) {
            Ok(exchange) => ResponseFuture::of_task(exchange, on_failure),
            Err(failure) => ResponseFuture::refused(failure, on_failure),
        }
    }
}

impl<S, A, N> TaskService<S, A, N> {
    /// Admits a request, calls the service inside, and spawns the request's task.
    #[allow(clippy::type_complexity, reason = "the output of the service's future")]
    fn begin<R>(&mut self, request: R) -> Result<Arc<Exchange<Result<S::Response, S::Error>>>, Failure>
    where
        S: Service<R, Response: Send + 'static, Error: Send + 'static, Future: Send + 'static>,
        N: RequestName<R>,
    {
        let layer = &self.layer;
        // Claimed in any case: a refused call uses up the readiness, too.
        let permit = self.readiness.claim();
        if layer.scope.is_closed() {
            return Err(Failure::Closed);
        }
        let permit = permit.ok_or(Failure::NoRoom)?;
        let deadline = (layer.timeout).and_then(|timeout| Instant::now().checked_add(timeout));
        let name = layer.name.name(&request);
        let (answer, exchange) = Exchange::begin();
        let task = Request {
            handler: self.inner.call(request),
            answer,
            deadline,
            name,
            permit,
        }
        .run();
        let spawned = match layer.options.clone() {
            None => layer.scope.group.try_spawn(task),
            Some(options) => layer.scope.group.try_spawn_with(options, task),
        };
        match spawned {
            Ok(()) => Ok(exchange),
            Err(refused) if refused.kind() == SpawnErrorKind::OutOfMemory => Err(Failure::OutOfMemory),
            Err(_) => Err(Failure::Closed),
        }
    }
}
