//! The shape of every adaptor that runs one sender after another: `let_value`, `sequence`, `finally`, `continues_on`, …

use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::{self, NonNull};

use crate::sender::child::{ChildReceiver, Parent, Waiting};
use crate::sender::stage::Stage;
use crate::{Completion, Operation, Panic, Receiver, Sender, Transfer};

/// What such an adaptor does when the first sender has completed.
pub trait Successor<T, E>: Send {
    /// The value that comes out in the end.
    type Value;
    /// The error that comes out in the end.
    type Error;
    /// What runs second. It is connected to the final receiver.
    type Sender: Sender<Value = Self::Value, Error = Self::Error>;

    /// The second sender, or what is handed on at once because there is none. It runs user code through
    /// [`Panic::catch`](crate::Panic::catch).
    #[allow(
        clippy::type_complexity,
        reason = "either what follows or what is handed on: both are the trait's own"
    )]
    fn follow(self, completion: Completion<T, E>) -> Result<Self::Sender, Completion<Self::Value, Self::Error>>;
}

/// The sender that a user's function makes, or its panic.
#[inline]
pub(super) fn make<N, T, E>(function: impl FnOnce() -> N) -> Result<N, Completion<T, E>> {
    Panic::catch(function).map_err(Completion::Panicked)
}

/// Runs one sender, destroys its operation, and runs what follows in the same storage.
///
/// The first child points back here. The second gets the receiver itself, so it completes as if it stood alone. Once
/// either has completed the receiver nothing is touched any more; the type is not `Unpin`.
pub struct ChainOperation<S, N, R>
where
    S: Sender,
    N: Successor<S::Value, S::Error>,
    R: Receiver<N::Value, N::Error>,
{
    place: Place<S, N, R>,
    _pinned: PhantomPinned,
}

type FirstOperation<S, N, R> = <S as Sender>::Operation<ChildReceiver<ChainOperation<S, N, R>, 0>>;

/// What the storage holds: the first child with what waits for it, then the second.
///
/// The tag is a byte of its own, not spare bits of a child: it is read while the first child runs.
#[repr(u8)]
enum Place<S, N, R>
where
    S: Sender,
    N: Successor<S::Value, S::Error>,
    R: Receiver<N::Value, N::Error>,
{
    First {
        /// In place of the sender, the panic of the user's code that was to make it.
        child: Stage<S, FirstOperation<S, N, R>, Panic>,
        /// Taken when the first has completed.
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
            place: Place::First {
                child: Stage::new(first),
                rest: Some((successor, receiver)),
            },
            _pinned: PhantomPinned,
        }
    }

    /// With a first sender that the user's code has made, or its panic, which the start completes with.
    #[inline]
    pub(crate) fn made(first: Result<S, Panic>, successor: N, receiver: R) -> Self {
        ChainOperation {
            place: Place::First {
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
        // SAFETY: nothing is moved but the sender, which is not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        if let Place::First { child, rest } = &mut this.place
            && let Some(payload) = child.take_next()
        {
            return match rest.take() {
                Some((_, receiver)) => receiver.set_panicked(payload),
                None => Transfer::none(),
            };
        }
        let this = NonNull::from(this);
        // SAFETY: no child runs yet. The stage is pinned with this operation, which is not destroyed before the second
        // child, or the receiver, completes, which is after the first has.
        unsafe {
            match &mut (*this.as_ptr()).place {
                Place::First { child, .. } => Stage::start_child(NonNull::from(child), this),
                Place::Second(_) => Transfer::none(),
            }
        }
    }
}

// SAFETY: the successor and the receiver are `Send`; the first child's operation is only destroyed, by its own
// completion.
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
            Place::First {
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
        let Place::First { child, rest } = &mut this.place else {
            return Transfer::none();
        };
        child.clear();
        let Some((successor, receiver)) = rest.take() else {
            return Transfer::none();
        };
        match successor.follow(completion) {
            Ok(sender) => {
                // SAFETY: nothing is left there to be dropped. The second child is pinned with this operation, started once,
                // and destroyed with it.
                unsafe {
                    ptr::write(&raw mut this.place, Place::Second(sender.connect(receiver)));
                    match &mut this.place {
                        Place::Second(operation) => Pin::new_unchecked(operation).start(),
                        Place::First { .. } => Transfer::none(),
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
            Place::First { rest: Some(_), .. } => "first",
            Place::First { rest: None, .. } => "over",
            Place::Second(_) => "second",
        };
        f.debug_struct("ChainOperation").field("stage", &stage).finish()
    }
}
