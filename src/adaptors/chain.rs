//! The shape of every adaptor that runs one sender after another: `let_value`, `sequence`, `finally`, `continues_on`, …

use core::fmt;
use core::marker::PhantomPinned;
use core::mem;
use core::pin::Pin;
use core::ptr::{self, NonNull};

use super::adapted::SenderOf;
use crate::sender::receiver::receive_as_completion;
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
/// The first child's receiver points back here. The second has the receiver itself. Nothing is accessed after either
/// has completed the receiver. The type is not `Unpin`.
///
/// A chain of many steps is a nest of these, so each part of the type is written with the compiler's work in mind:
///
/// - The receiver of the first child names the successor and the receiver, but not the first sender. So its type grows
///   by one step per step. With the sender, which names all steps before it, every type would be quadratic.
/// - The states are one enum without cells and helper types around the children, so a step is one level of the layout.
///
/// The representation is defined: a union of `repr(C)` structs that begin with the tag. [`ChainPrefix`] and
/// [`ChainFirst`] are two of those structs.
#[repr(u8)]
pub enum ChainOperation<S, T, E, N, R>
where
    S: SenderOf<T, E>,
    N: Successor<T, E>,
    R: Receiver<N::Value, N::Error>,
{
    /// Not started.
    Ready { first: S, successor: N, receiver: R } = READY,
    /// Not started: the user's code that was to make the first sender has panicked. Always `Some`: the `Option` is for
    /// builds without `std`, where a panic is uninhabited.
    Failed {
        payload: Option<Panic>,
        successor: N,
        receiver: R,
    } = FAILED,
    /// Without a child: the first is being connected or destroyed.
    Between { head: ChainHead<T, E, N, R> } = BETWEEN,
    /// The first child runs.
    First {
        head: ChainHead<T, E, N, R>,
        child: FirstOperation<S, T, E, N, R>,
    } = FIRST,
    /// The second child runs, or has completed.
    Second(<N::Sender as Sender>::Operation<R>) = SECOND,
    /// Nothing is left to destroy.
    Over = OVER,
}

const READY: u8 = 0;
const FAILED: u8 = 1;
const BETWEEN: u8 = 2;
const FIRST: u8 = 3;
const SECOND: u8 = 4;
const OVER: u8 = 5;

type FirstOperation<S, T, E, N, R> = <S as Sender>::Operation<ChainReceiver<T, E, N, R>>;

/// The caller gives the address of an operation whose first child completes, and accesses nothing of it afterwards.
type Follow<T, E, N, R> = unsafe fn(NonNull<ChainPrefix<T, E, N, R>>, Completion<T, E>) -> Transfer;

/// The rest of the chain while its first child runs.
pub struct ChainHead<T, E, N, R> {
    /// Takes the completion of the first child: [`ChainOperation::follow`].
    follow: Follow<T, E, N, R>,
    successor: N,
    receiver: R,
    _pinned: PhantomPinned,
}

crate::opaque!([T, E, N, R] ChainHead<T, E, N, R>);

/// The beginning of a [`ChainOperation`] between its start and the completion of its first child.
#[repr(C)]
struct ChainPrefix<T, E, N, R> {
    tag: u8,
    head: ChainHead<T, E, N, R>,
}

/// A [`ChainOperation`] whose first child runs. `O` is the child's operation.
#[repr(C)]
struct ChainFirst<T, E, N, R, O> {
    tag: u8,
    head: ChainHead<T, E, N, R>,
    child: O,
}

impl<S, T, E, N, R> ChainOperation<S, T, E, N, R>
where
    S: SenderOf<T, E>,
    N: Successor<T, E>,
    R: Receiver<N::Value, N::Error>,
{
    /// Makes an operation whose first sender was made by user's code, or panicked. A panic is the completion of the
    /// start.
    #[inline]
    pub(crate) fn made(first: Result<S, Panic>, successor: N, receiver: R) -> Self {
        match first {
            Ok(first) => ChainOperation::Ready {
                first,
                successor,
                receiver,
            },
            Err(payload) => ChainOperation::Failed {
                payload: Some(payload),
                successor,
                receiver,
            },
        }
    }

    /// Destroys the first child, and runs the second or completes the receiver.
    ///
    /// # Safety
    ///
    /// `prefix` is the address of an operation whose first child completes, or whose first child's receiver is dropped
    /// before it was started. The pointer may access the whole operation.
    unsafe fn follow(prefix: NonNull<ChainPrefix<T, E, N, R>>, completion: Completion<T, E>) -> Transfer {
        let prefix = prefix.as_ptr();
        let this = prefix as *mut Self;
        // SAFETY: the first child has completed, and the second was not started. So the caller has exclusive access.
        // The head is moved out of an operation that is marked as over.
        let head = unsafe {
            if let ChainOperation::First { child, .. } = &mut *this {
                let child: *mut _ = child;
                (*prefix).tag = BETWEEN;
                ptr::drop_in_place(child);
            }
            (*prefix).tag = OVER;
            ptr::read(&raw const (*prefix).head)
        };
        let ChainHead {
            successor, receiver, ..
        } = head;
        match successor.follow(completion) {
            Ok(sender) => {
                // SAFETY: the storage holds nothing that is to be dropped. The second child is pinned with this
                // operation, started once, and destroyed with it.
                unsafe {
                    ptr::write(this, ChainOperation::Second(sender.connect(receiver)));
                    match &mut *this {
                        ChainOperation::Second(operation) => Pin::new_unchecked(operation).start(),
                        _ => Transfer::none(),
                    }
                }
            }
            Err(completion) => receiver.set_completion(completion),
        }
    }
}

impl<S, T, E, N, R> Operation for ChainOperation<S, T, E, N, R>
where
    S: SenderOf<T, E>,
    N: Successor<T, E>,
    R: Receiver<N::Value, N::Error>,
{
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing pinned is moved before the start: the sender is not.
        let this: *mut Self = unsafe { self.get_unchecked_mut() };
        let prefix = this as *mut ChainPrefix<T, E, N, R>;
        // SAFETY: no child runs yet. What is moved out is moved out of an operation that is overwritten, or marked as
        // over. The first child is pinned with this operation, which is alive until the receiver is completed, after
        // the first child. The casts are to structs of the representation.
        unsafe {
            match &*this {
                ChainOperation::Ready {
                    first,
                    successor,
                    receiver,
                } => {
                    let first = ptr::read(first);
                    let head = ChainHead {
                        follow: Self::follow,
                        successor: ptr::read(successor),
                        receiver: ptr::read(receiver),
                        _pinned: PhantomPinned,
                    };
                    ptr::write(prefix, ChainPrefix { tag: BETWEEN, head });
                    let child = first.connect(ChainReceiver {
                        chain: NonNull::new_unchecked(prefix),
                    });
                    let place = &raw mut (*(this as *mut ChainFirst<T, E, N, R, FirstOperation<S, T, E, N, R>>)).child;
                    ptr::write(place, child);
                    (*prefix).tag = FIRST;
                    Pin::new_unchecked(&mut *place).start()
                }
                ChainOperation::Failed {
                    payload,
                    successor,
                    receiver,
                } => {
                    let (payload, successor, receiver) =
                        (ptr::read(payload), ptr::read(successor), ptr::read(receiver));
                    (*prefix).tag = OVER;
                    drop(successor);
                    match payload {
                        Some(payload) => receiver.set_panicked(payload),
                        None => receiver.set_stopped(),
                    }
                }
                _ => Transfer::none(),
            }
        }
    }
}

impl<S, T, E, N, R> fmt::Debug for ChainOperation<S, T, E, N, R>
where
    S: SenderOf<T, E>,
    N: Successor<T, E>,
    R: Receiver<N::Value, N::Error>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self {
            ChainOperation::Ready { .. } | ChainOperation::Failed { .. } => "ready",
            ChainOperation::Between { .. } | ChainOperation::First { .. } => "first",
            ChainOperation::Second(_) => "second",
            ChainOperation::Over => "over",
        };
        f.debug_struct("ChainOperation").field("stage", &stage).finish()
    }
}

/// The receiver of the first child: one pointer to its [`ChainOperation`], which is pinned, and alive until this has
/// completed.
///
/// Dropped without completion, it completes stopped, so the chain never waits for ever.
pub struct ChainReceiver<T, E, N, R>
where
    N: Successor<T, E>,
    R: Receiver<N::Value, N::Error>,
{
    chain: NonNull<ChainPrefix<T, E, N, R>>,
}

// SAFETY: successor and receiver are `Send`. The first child's operation is only destroyed, by its own completion.
unsafe impl<T, E, N, R> Send for ChainReceiver<T, E, N, R>
where
    N: Successor<T, E>,
    R: Receiver<N::Value, N::Error>,
{
}

impl<T, E, N, R> ChainReceiver<T, E, N, R>
where
    N: Successor<T, E>,
    R: Receiver<N::Value, N::Error>,
{
    #[inline]
    fn complete(self, completion: Completion<T, E>) -> Transfer {
        let chain = self.chain;
        mem::forget(self);
        // SAFETY: the operation is alive until its first child has completed, which it does once, here.
        unsafe { (chain.as_ref().head.follow)(chain, completion) }
    }
}

impl<T, E, N, R> Receiver<T, E> for ChainReceiver<T, E, N, R>
where
    N: Successor<T, E>,
    R: Receiver<N::Value, N::Error>,
{
    type Env = R::Env;

    #[inline]
    fn env(&self) -> R::Env {
        // SAFETY: the first child has not completed, so the operation is alive, and holds its head.
        unsafe { self.chain.as_ref() }.head.receiver.env()
    }

    receive_as_completion!(T, E);
}

impl<T, E, N, R> Drop for ChainReceiver<T, E, N, R>
where
    N: Successor<T, E>,
    R: Receiver<N::Value, N::Error>,
{
    #[cold]
    fn drop(&mut self) {
        // SAFETY: see `complete`. A receiver that has completed is forgotten, so this is the only completion.
        unsafe { (self.chain.as_ref().head.follow)(self.chain, Completion::Stopped) }.run();
    }
}

crate::opaque!([T, E, N: Successor<T, E>, R: Receiver<N::Value, N::Error>] ChainReceiver<T, E, N, R>);
