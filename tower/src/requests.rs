//! The scope of a server's requests.

use std::fmt;
use std::sync::Arc;

use bowline::task::TaskGroup;

use crate::TaskLayer;
use crate::admission::Admission;

/// The requests of a server, as children of a task group. Makes the [layers](TaskLayer) for its services.
///
/// Create it in the body of the server's group, and keep it there. The group awaits all requests, cancels them when it is cancelled, and
/// passes its scheduler, priority, deadline and task-local values on to them. Use a
/// [`discarding_group`](bowline::task::discarding_group), which frees each request when it has ended.
///
/// ```
/// use bowline::prelude::*;
/// use bowline_tower::Requests;
/// use std::convert::Infallible;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// let product = task::block_on(task::discarding_group(async |server| {
///     let requests = Requests::new(&server).limit(64);
///     let service = service_fn(|(a, b): (u32, u32)| async move { Ok::<_, Infallible>(a * b) });
///     requests.layer().layer(service).oneshot((6, 7)).await
/// }));
/// assert_eq!(product.unwrap(), 42);
/// ```
///
/// # The end
///
/// Dropping this, at the latest with the body of the group, [closes](Requests::close) the scope. Services may outlive it, as those of
/// connections that are still open do. From then on they refuse requests, so the group ends after those that run.
#[must_use = "dropping it closes the scope"]
pub struct Requests {
    pub(crate) scope: RequestScope,
}

/// The parts of the scope that layers, services and requests share.
#[derive(Clone, Debug)]
pub(crate) struct RequestScope {
    pub(crate) group: TaskGroup<()>,
    pub(crate) admission: Arc<Admission>,
}

impl Requests {
    /// Makes a scope of a group. It has no limit.
    pub fn new(group: &TaskGroup<()>) -> Self {
        Requests {
            scope: RequestScope {
                group: group.clone(),
                admission: Admission::new(),
            },
        }
    }

    /// Sets the number of requests that may be in flight. While it is reached, `poll_ready` of every service of this scope is pending.
    ///
    /// A request is in flight until its task has ended, also after its client has left. Services that wait become ready in FIFO order.
    /// With a limit of zero every request is [refused](crate::Failure::NoRoom).
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline_tower::Requests;
    /// use std::convert::Infallible;
    /// use std::task::{Context, Poll, Waker};
    /// use tower::{Layer, Service, service_fn};
    ///
    /// task::block_on(task::discarding_group(async |server| {
    ///     let requests = Requests::new(&server).limit(1);
    ///     let mut first = requests.layer().layer(service_fn(|()| async move { Ok::<_, Infallible>("done") }));
    ///     let mut second = first.clone();
    ///     let mut context = Context::from_waker(Waker::noop());
    ///     assert!(first.poll_ready(&mut context).is_ready());
    ///     assert!(second.poll_ready(&mut context).is_pending());
    ///     assert_eq!(first.call(()).await.unwrap(), "done");
    ///     // The permit is free when the request has ended.
    ///     std::future::poll_fn(|cx| second.poll_ready(cx)).await.unwrap();
    /// }));
    /// ```
    pub fn limit(self, limit: usize) -> Self {
        self.scope.admission.set_limit(limit);
        self
    }

    /// Makes a layer whose services run each request as a task of this scope. All layers share the limit.
    pub fn layer(&self) -> TaskLayer {
        TaskLayer::new(self.scope.clone())
    }

    /// Refuses requests from now on, with [`Failure::Closed`](crate::Failure::Closed). Requests in flight continue.
    ///
    /// To cancel those, cancel the group:
    /// [`cancel_all_for`](TaskGroup::cancel_all_for). To wait for them, [`wait_for_all`](TaskGroup::wait_for_all).
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline_tower::{Failure, RequestError, Requests};
    /// use std::convert::Infallible;
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// let refused = task::block_on(task::discarding_group(async |server| {
    ///     let requests = Requests::new(&server);
    ///     let service = requests.layer().layer(service_fn(|()| async move { Ok::<_, Infallible>(()) }));
    ///     requests.close();
    ///     service.oneshot(()).await
    /// }));
    /// assert!(matches!(refused, Err(RequestError::Failed(Failure::Closed))));
    /// ```
    pub fn close(&self) {
        self.scope.admission.close();
    }

    /// Returns whether the scope refuses requests: it is closed, or its group is cancelled.
    pub fn is_closed(&self) -> bool {
        self.scope.is_closed()
    }
}

impl RequestScope {
    pub(crate) fn is_closed(&self) -> bool {
        self.admission.is_closed() || self.group.is_cancelled()
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("scope", &self.scope).finish()
    }
}
