//! The shape of every adaptor that runs one sender after another: `let_value`, `sequence`, `finally`, `continues_on`, …

use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::{self, NonNull};

use crate::sender::child::{ChildReceiver, Parent, Waiting};
use crate::sender::stage::Stage;
use crate::{Completion, Operation, Panic, Receiver, Sender, Transfer};

/// The decision of an adaptor after the first sender has completed.
pub trait Successor<T, E>: Send {
    /// The value type of the result.
    type Value;
    /// The error type of the result.
    type Error;
    /// The second sender, connected to the final receiver.
    type Sender: Sender<Value = Self::Value, Error = Self::Error>;

    /// Returns the second sender, or the completion where there is none. It runs user code through
    /// [`Panic::catch`](crate::Panic::catch).
    #[allow(
        clippy::type_complexity,
        reason = "either what follows or what is handed on: both are the trait's own"
    )]
    fn follow(self, completion: Completion<T, E>) -> Result<Self::Sender, Completion<Self::Value, Self::Error>>;
}

/// Calls a user's function that makes a sender. Its panic is the completion.
#[inline]
pub(super) fn make<N, T, E>(function: impl FnOnce() -> N) -> Result<N, Completion<T, E>> {
    Panic::catch(function).map_err(Completion::Panicked)
}

/// The operation that runs one sender, destroys it, and runs a second in the same storage.
///
/// The first child points back here. The second has the receiver itself. Nothing is accessed after either has completed
/// the receiver. The type is not `Unpin`.
pub struct ChainOperation<S, N, R>
where
    S: Sender,
    N: Successor<S::Value, S::Error>,
    R: Receiver<N::Value, N::Error>,
{
    place: ChainPlace<S, N, R>,
    _pinned: PhantomPinned,
}

type FirstOperation<S, N, R> = <S as Sender>::Operation<ChildReceiver<ChainOperation<S, N, R>, 0>>;

/// The storage: the first child with its successor and receiver, then the second child.
///
/// The tag is a byte of its own, not spare bits of a child: it is read while the first child runs.
#[repr(u8)]
enum ChainPlace<S, N, R>
where
    S: Sender,
    N: Successor<S::Value, S::Error>,
    R: Receiver<N::Value, N::Error>,
{
    First {
        /// The panic of the user's code that was to make the first sender.
        child: Stage<S, FirstOperation<S, N, R>, Panic>,
        /// Taken when the first child has completed.
        rest: Option<(N, R)>,
    },
    Second(<N::Sender as Sender>::Operation<R>),
}

impl<S, N, R> ChainOperation<S, N, R>
where
    S: Sender,
    N: Successor<S::Value, S::Error>,
    R: Receiver<N::Value, N::Error>,
{
    #[inline]
    pub(crate) fn new(first: S, successor: N, receiver: R) -> Self {
        ChainOperation {
            place: ChainPlace::First {
                child: Stage::new(first),
                rest: Some((successor, receiver)),
            },
            _pinned: PhantomPinned,
        }
    }

    /// Makes an operation whose first sender was made by user's code, or panicked. A panic is the completion of the
    /// start.
    #[inline]
    pub(crate) fn made(first: Result<S, Panic>, successor: N, receiver: R) -> Self {
        ChainOperation {
            place: ChainPlace::First {
                child: match first {
                    Ok(first) => Stage::new(first),
                    Err(payload) => Stage::ended(payload),
                },
                rest: Some((successor, receiver)),
            },
            _pinned: PhantomPinned,
        }
    }
}

impl<S, N, R> Operation for ChainOperation<S, N, R>
where
    S: Sender,
    N: Successor<S::Value, S::Error>,
    R: Receiver<N::Value, N::Error>,
{
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing pinned is moved: the sender is not.
        let this = unsafe { self.get_unchecked_mut() };
        if let ChainPlace::First { child, rest } = &mut this.place
            && let Some(payload) = child.take_next()
        {
            return match rest.take() {
                Some((_, receiver)) => receiver.set_panicked(payload),
                None => Transfer::none(),
            };
        }
        let this = NonNull::from(this);
        // SAFETY: no child runs yet. The stage is pinned with this operation, which is alive until the receiver is
        // completed, after the first child.
        unsafe {
            match &mut (*this.as_ptr()).place {
                ChainPlace::First { child, .. } => Stage::start_child(NonNull::from(child), this),
                ChainPlace::Second(_) => Transfer::none(),
            }
        }
    }
}

// SAFETY: successor and receiver are `Send`. The first child's operation is only destroyed, by its own completion.
unsafe impl<S, N, R> Parent<0> for ChainOperation<S, N, R>
where
    S: Sender,
    N: Successor<S::Value, S::Error>,
    R: Receiver<N::Value, N::Error>,
{
    type Value = S::Value;
    type Error = S::Error;
    type Env = R::Env;

    #[inline]
    fn env(this: &Waiting<Self>) -> R::Env {
        match &this.parent().place {
            ChainPlace::First {
                rest: Some((_, receiver)),
                ..
            } => receiver.env(),
            _ => unreachable!("the rest is taken when the first child has completed"),
        }
    }

    #[inline]
    fn child_completed(this: Waiting<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        // SAFETY: the first child has completed, and the second was not started.
        let this = unsafe { this.alone() };
        let ChainPlace::First { child, rest } = &mut this.place else {
            return Transfer::none();
        };
        child.clear();
        let Some((successor, receiver)) = rest.take() else {
            return Transfer::none();
        };
        match successor.follow(completion) {
            Ok(sender) => {
                // SAFETY: the storage holds nothing that is to be dropped. The second child is pinned with this
                // operation, started once, and destroyed with it.
                unsafe {
                    ptr::write(&raw mut this.place, ChainPlace::Second(sender.connect(receiver)));
                    match &mut this.place {
                        ChainPlace::Second(operation) => Pin::new_unchecked(operation).start(),
                        ChainPlace::First { .. } => Transfer::none(),
                    }
                }
            }
            Err(completion) => completion.deliver(receiver),
        }
    }
}

impl<S, N, R> fmt::Debug for ChainOperation<S, N, R>
where
    S: Sender,
    N: Successor<S::Value, S::Error>,
    R: Receiver<N::Value, N::Error>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.place {
            ChainPlace::First { rest: Some(_), .. } => "first",
            ChainPlace::First { rest: None, .. } => "over",
            ChainPlace::Second(_) => "second",
        };
        f.debug_struct("ChainOperation").field("stage", &stage).finish()
    }
}
