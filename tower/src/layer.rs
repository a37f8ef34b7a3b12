//! The layer.

use std::borrow::Cow;
use std::time::Duration;

use bowline::task::SpawnOptions;
use tower_layer::Layer;

use crate::policy::{AsError, AsResponse, Named, Unnamed};
use crate::requests::RequestScope;
use crate::{Failure, TaskService};

/// A layer whose services run each request as a task. Made by [`Requests::layer`](crate::Requests::layer).
///
/// The type parameters are choices: `A` is the form of [failures](Failure), and `N` the names of the tasks.
///
/// ```
/// use bowline::prelude::*;
/// use bowline_tower::{Failure, Requests};
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// let answer = task::block_on(task::discarding_group(async |server| {
///     let requests = Requests::new(&server);
///     let layer = requests
///         .layer()
///         .timeout(Duration::from_millis(5))
///         .answer_failures(|failure: Failure| failure.to_string());
///     let slow = service_fn(|_request: &str| async move {
///         task::sleep(Duration::MAX).await;
///         Ok::<_, Infallible>(String::from("never"))
///     });
///     layer.layer(slow).oneshot("wait").await
/// }));
/// assert_eq!(answer.unwrap(), "deadline exceeded");
/// ```
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until a service is made with it"]
pub struct TaskLayer<A = AsError, N = Unnamed> {
    pub(crate) scope: RequestScope,
    pub(crate) timeout: Option<Duration>,
    pub(crate) options: Option<SpawnOptions>,
    pub(crate) on_failure: A,
    pub(crate) name: N,
}

impl TaskLayer {
    pub(crate) fn new(scope: RequestScope) -> Self {
        TaskLayer {
            scope,
            timeout: None,
            options: None,
            on_failure: AsError,
            name: Unnamed,
        }
    }
}

impl<A, N> TaskLayer<A, N> {
    /// Gives each request a deadline, this long after the call of the service.
    ///
    /// When it passes, the client gets [`Failure::DeadlineExceeded`] at once. The request is cancelled with
    /// [`Reason::Deadline`](bowline::task::Reason::Deadline), and ends after its clean-up. A response that it still returns is dropped.
    ///
    /// The handler can ask for [`task::deadline`](bowline::task::deadline()), and everything that it awaits inherits it. A handler that
    /// answers with what it has so far sets an earlier deadline by [`with_deadline`](bowline::task::with_deadline).
    ///
    /// A duration beyond what `Instant` can represent is no deadline.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the priority and the scheduler of the requests, which they otherwise inherit from the group.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::task::SpawnOptions;
    /// use bowline_tower::Requests;
    /// use std::convert::Infallible;
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// let priority = task::block_on(task::discarding_group(async |server| {
    ///     let requests = Requests::new(&server);
    ///     let urgent = SpawnOptions::new().priority(Priority::UserInitiated);
    ///     let ask = service_fn(|()| async move { Ok::<_, Infallible>(task::priority()) });
    ///     requests.layer().options(urgent).layer(ask).oneshot(()).await
    /// }));
    /// assert_eq!(priority.unwrap(), Priority::UserInitiated);
    /// ```
    pub fn options(mut self, options: SpawnOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Names the task of each request, for [dumps](bowline::task::dump) and [`TaskRef::name`](bowline::task::TaskRef::name).
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline_tower::Requests;
    /// use std::convert::Infallible;
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// let name = task::block_on(task::discarding_group(async |server| {
    ///     let requests = Requests::new(&server);
    ///     let layer = requests.layer().name_requests(|path: &&str| format!("GET {path}"));
    ///     let ask = service_fn(|_path: &str| async move {
    ///         Ok::<_, Infallible>(task::current().and_then(|task| task.name().map(String::from)))
    ///     });
    ///     layer.layer(ask).oneshot("/users").await
    /// }));
    /// assert_eq!(name.unwrap().unwrap(), "GET /users");
    /// ```
    pub fn name_requests<R, C, F>(self, name: F) -> TaskLayer<A, Named<R>>
    where
        F: Fn(&R) -> C + Send + Sync + 'static,
        C: Into<Cow<'static, str>>,
    {
        TaskLayer {
            scope: self.scope,
            timeout: self.timeout,
            options: self.options,
            on_failure: self.on_failure,
            name: Named::new(name),
        }
    }

    /// Turns failures into responses. The error of the layered service is then that of the service inside.
    ///
    /// axum's `Router::layer` needs this, or a `HandleErrorLayer`, since its services do not fail. The closure runs in the response
    /// future.
    pub fn answer_failures<T, F>(self, answer: F) -> TaskLayer<AsResponse<F>, N>
    where
        F: Fn(Failure) -> T,
    {
        TaskLayer {
            scope: self.scope,
            timeout: self.timeout,
            options: self.options,
            on_failure: AsResponse(answer),
            name: self.name,
        }
    }
}

impl<S, A: Clone, N: Clone> Layer<S> for TaskLayer<A, N> {
    type Service = TaskService<S, A, N>;

    fn layer(&self, inner: S) -> TaskService<S, A, N> {
        TaskService::new(inner, self.clone())
    }
}
