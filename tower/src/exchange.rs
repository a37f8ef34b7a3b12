//! The meeting point of a request's task and its response future.
//!
//! Both sides share an [`Exchange`]. The task's side is an [`Answer`], which gives exactly one answer, also if it is dropped. The first
//! answer counts. The client's side waits for the answer, or leaves: then the request is cancelled.

use std::mem;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bowline::task::{Reason, TaskGroup};

use crate::sync::lock;
use crate::{CLIENT_LEFT, Failure};

/// The result of a request: the output of the service's future, or a failure.
pub(crate) type Answered<T> = Result<T, Failure>;

pub(crate) struct Exchange<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    stage: Stage<T>,
    /// The group of the request, by which it is cancelled. Set while the handler runs without an answer.
    group: Option<TaskGroup<()>>,
}

enum Stage<T> {
    /// There is no answer. The waker is that of the response future, once it was polled.
    Waiting(Option<Waker>),
    Answered(Answered<T>),
    /// The client has the answer, or has left.
    Over,
}

impl<T> Exchange<T> {
    /// Begins an exchange. Returns the task's side and the client's.
    pub(crate) fn begin() -> (Answer<T>, Arc<Self>) {
        let exchange = Arc::new(Exchange {
            state: Mutex::new(State {
                stage: Stage::Waiting(None),
                group: None,
            }),
        });
        (Answer(exchange.clone()), exchange)
    }

    /// Gives the answer to the client. Returns it if there is one already, or the client has left.
    pub(crate) fn answer(&self, answer: Answered<T>) -> Result<(), Answered<T>> {
        let mut state = lock(&self.state);
        let Stage::Waiting(waker) = &mut state.stage else {
            return Err(answer);
        };
        let waker = waker.take();
        state.stage = Stage::Answered(answer);
        let group = state.group.take();
        drop(state);
        drop(group);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Waits for the answer. Called by the client's side until it is ready.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Answered<T>> {
        let mut state = lock(&self.state);
        let replaced = match mem::replace(&mut state.stage, Stage::Over) {
            Stage::Waiting(waker) => {
                let (kept, replaced) = match waker {
                    Some(waker) if waker.will_wake(cx.waker()) => (waker, None),
                    replaced => (cx.waker().clone(), replaced),
                };
                state.stage = Stage::Waiting(Some(kept));
                replaced
            }
            Stage::Answered(answer) => return Poll::Ready(answer),
            Stage::Over => None,
        };
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// Ends the client's side. Cancels the request, unless it has been answered.
    pub(crate) fn leave(&self) {
        let mut state = lock(&self.state);
        let stage = mem::replace(&mut state.stage, Stage::Over);
        let group = state.group.take();
        drop(state);
        // An answer that was not taken is dropped without the lock.
        drop(stage);
        if let Some(group) = group {
            group.cancel_all_for(CLIENT_LEFT);
        }
    }
}

/// The task's side of an exchange. Dropped without an answer, it tells the client that the request was cancelled.
pub(crate) struct Answer<T>(Arc<Exchange<T>>);

impl<T> Answer<T> {
    /// Lets the client cancel the group from now on. A client that has left cancels it here.
    pub(crate) fn cancellable_by(&self, group: &TaskGroup<()>) {
        let mut state = lock(&self.0.state);
        match state.stage {
            Stage::Waiting(_) => state.group = Some(group.clone()),
            Stage::Answered(_) => {}
            Stage::Over => {
                drop(state);
                group.cancel_all_for(CLIENT_LEFT);
            }
        }
    }

    /// Gives the answer. Returns it if it was not the first, or the client has left.
    pub(crate) fn give(self, answer: Answered<T>) -> Result<(), Answered<T>> {
        self.0.answer(answer)
    }

    pub(crate) fn exchange(&self) -> &Arc<Exchange<T>> {
        &self.0
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        let group = lock(&self.0.state).group.take();
        let failure = match group.as_ref().and_then(TaskGroup::cancellation_reason) {
            None => Failure::Stopped,
            Some(Reason::Deadline) => Failure::DeadlineExceeded,
            Some(reason) => Failure::Cancelled(reason),
        };
        let _ = self.0.answer(Err(failure));
    }
}
