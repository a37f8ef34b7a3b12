use core::convert::Infallible;
use core::fmt;
use core::marker::{PhantomData, PhantomPinned};
use core::pin::Pin;

use crate::stop::StopToken;
use crate::{Completes, Env, Operation, Panic, Receiver, Sender, Transfer};

/// Makes a sender that completes with an answer of the receiver's environment.
///
/// A sender's value type is known before its receiver is, so each question has a type of its own: a [`Query`].
///
/// ```
/// use bowline::prelude::*;
///
/// #[derive(Clone)]
/// struct User(&'static str);
///
/// let greeting = read_env(Get::<User>::new()).then(|user| match user {
///     Some(User(name)) => format!("hello, {name}"),
///     None => "hello, stranger".to_owned(),
/// });
/// assert_eq!(sync_wait(greeting.write_env(With(User("Ada")))).unwrap(), "hello, Ada");
/// ```
///
/// # Completions
///
/// The query's answer, inside `start`.
///
/// # Panics
///
/// A panic of the query, or of the `Clone` of its answer, is the completion.
///
/// # Cancellation
///
/// Ignored.
#[inline]
pub fn read_env<Q: Query>(query: Q) -> ReadEnv<Q> {
    ReadEnv { query }
}

/// A question to an environment.
///
/// [`Get`] reads a value of the user's own, [`StopRequested`] the stop token. A query of your own may combine several
/// answers:
///
/// ```
/// use bowline::prelude::*;
/// use bowline::Query;
///
/// struct HasScheduler;
/// impl Query for HasScheduler {
///     type Answer = bool;
///     fn ask<E: Env>(self, _: &E) -> bool {
///         E::Scheduler::INFALLIBLE
///     }
/// }
/// assert!(sync_wait(read_env(HasScheduler)).unwrap(), "`sync_wait` offers its run loop");
/// ```
pub trait Query {
    /// The type of the answer.
    type Answer;

    /// Asks the environment.
    fn ask<E: Env>(self, env: &E) -> Self::Answer;
}

/// Reads the user's own value of type `T`, where one was written with [`With`](crate::With).
pub struct Get<T>(PhantomData<fn() -> T>);

impl<T> Get<T> {
    /// Makes the query.
    pub const fn new() -> Self {
        Get(PhantomData)
    }
}

impl<T> Default for Get<T> {
    fn default() -> Self {
        Get::new()
    }
}

impl<T> Clone for Get<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Get<T> {}

impl<T> fmt::Debug for Get<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Get<{}>", core::any::type_name::<T>())
    }
}

impl<T: Clone + 'static> Query for Get<T> {
    type Answer = Option<T>;

    #[inline]
    fn ask<E: Env>(self, env: &E) -> Option<T> {
        env.get()
    }
}

/// Reads whether a stop has been requested.
#[derive(Clone, Copy, Debug, Default)]
pub struct StopRequested;

impl Query for StopRequested {
    type Answer = bool;

    #[inline]
    fn ask<E: Env>(self, env: &E) -> bool {
        env.stop_token().stop_requested()
    }
}

/// Sender created by [`read_env`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct ReadEnv<Q> {
    query: Q,
}

// SAFETY: the operation completes inside `start`, accesses nothing of itself afterwards, and is `!Unpin`.
unsafe impl<Q: Query> Sender for ReadEnv<Q> {
    type Value = Q::Answer;
    type Error = Infallible;
    const COMPLETES: Completes = Completes::Inline;
    type Operation<R: Receiver<Q::Answer, Infallible>> = ReadEnvOperation<Q, R>;

    #[inline]
    fn connect<R: Receiver<Q::Answer, Infallible>>(self, receiver: R) -> Self::Operation<R> {
        ReadEnvOperation {
            ready: Some((self.query, receiver)),
            _pinned: PhantomPinned,
        }
    }
}

/// The operation of [`ReadEnv`].
pub struct ReadEnvOperation<Q, R> {
    ready: Option<(Q, R)>,
    _pinned: PhantomPinned,
}

impl<Q: Query, R: Receiver<Q::Answer, Infallible>> Operation for ReadEnvOperation<Q, R> {
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: neither the query nor the receiver is pinned.
        match unsafe { self.get_unchecked_mut() }.ready.take() {
            Some((query, receiver)) => match Panic::catch(|| query.ask(&receiver.env())) {
                Ok(answer) => receiver.set_value(answer),
                Err(payload) => receiver.set_panicked(payload),
            },
            None => Transfer::none(),
        }
    }
}

impl<Q, R> fmt::Debug for ReadEnvOperation<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadEnvOperation")
            .field("started", &self.ready.is_none())
            .finish()
    }
}
