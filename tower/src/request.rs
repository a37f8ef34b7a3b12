//! The task of a request.

use std::borrow::Cow;
use std::future::{Future, poll_fn, ready};
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use bowline::Panic;
use bowline::task::{self, Reason, SpawnErrorKind, SpawnOptions, TaskGroup};

use crate::Failure;
use crate::admission::Permit;
use crate::exchange::Answer;

/// A request that was admitted, and is about to be spawned as a child of the server's group.
pub(crate) struct Request<F: Future> {
    pub(crate) handler: F,
    pub(crate) answer: Answer<F::Output>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) name: Option<Cow<'static, str>>,
    pub(crate) permit: Permit,
}

impl<F> Request<F>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    /// Runs the request until its handler and all children of the handler have ended.
    ///
    /// The handler is the only child of a group: the client cancels that group, and the server's group cancels it by the structure.
    pub(crate) async fn run(self) {
        let Request {
            handler,
            answer,
            deadline,
            name,
            permit,
        } = self;
        let exchange = answer.exchange().clone();
        let expired = exchange.clone();
        // A panic that the client does not get is reported by this group, and does not affect the server.
        let serve = task::supervised_group(move |request: TaskGroup<()>| {
            answer.cancellable_by(&request);
            let handling = handle(handler, answer);
            let spawned = match name {
                None => request.try_spawn(handling),
                Some(name) => request.try_spawn_with(SpawnOptions::new().name(name), handling),
            };
            // A request that is cancelled already is dropped, which answers it.
            if let Err(refused) = spawned
                && refused.kind() == SpawnErrorKind::OutOfMemory
            {
                let _ = exchange.answer(Err(Failure::OutOfMemory));
            }
            ready(())
        });
        match deadline {
            None => serve.await,
            Some(at) => {
                // The client hears of the deadline at once. Another cancellation leaves the answer to the handler.
                let expire = move || {
                    if Instant::now() >= at {
                        let _ = expired.answer(Err(Failure::DeadlineExceeded));
                    }
                };
                let limited = task::with_deadline(at, task::with_cancellation_handler(expire, serve));
                let _ = limited.await;
            }
        }
        // The request has ended: nothing of it runs, and its locals were dropped.
        drop(permit);
    }
}

/// Runs a handler, and gives the client its output or its panic.
async fn handle<F: Future>(handler: F, answer: Answer<F::Output>) {
    let mut handler = pin!(handler);
    let polled = poll_fn(|cx| match Panic::catch(|| handler.as_mut().poll(cx)) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await;
    // The handler may have heard of the deadline before the client. It does not decide which of the two answers counts.
    if task::cancellation_reason() == Some(Reason::Deadline) {
        let _ = answer.exchange().answer(Err(Failure::DeadlineExceeded));
    }
    let unread = answer.give(polled.map_err(Failure::Panicked));
    if let Err(Err(Failure::Panicked(panic))) = unread {
        panic.resume();
    }
}
