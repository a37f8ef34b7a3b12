#[cfg(feature = "std")]
mod share;

use core::fmt;
use core::marker::PhantomPinned;
use core::ops::Range;
use core::pin::Pin;
use core::ptr::NonNull;

use crate::sender::child::{ChildReceiver, Parent, Waiting};
use crate::sender::dismantle::dismantle;
use crate::sender::stage::Stage;
use crate::stop::StopToken;
use crate::{Completes, Completion, Env, Operation, Panic, Receiver, Sender, Transfer};

/// Sender created by [`Sender::bulk`] and [`Sender::bulk_unchunked`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Bulk<S, F> {
    sender: S,
    shape: usize,
    longest: usize,
    function: F,
}

impl<S, F> Bulk<S, F> {
    #[inline]
    pub(crate) fn new(sender: S, shape: usize, function: F) -> Self {
        Bulk {
            sender,
            shape,
            longest: LONGEST,
            function,
        }
    }

    /// Makes a sender whose workers take one index at a time.
    #[inline]
    pub(crate) fn unchunked(sender: S, shape: usize, function: F) -> Self {
        Bulk {
            longest: 1,
            ..Bulk::new(sender, shape, function)
        }
    }
}

/// The longest piece that a worker takes: the calls that it still makes after a panic on another worker.
const LONGEST: usize = 1 << 16;

// SAFETY: `BulkOperation` keeps the promises. Shared calls complete on the pool on which the sender completed. That is the
// pool of the start scheduler, unless the sender promises nothing: see `share::pool`.
unsafe impl<S, F> Sender for Bulk<S, F>
where
    S: Sender,
    S::Value: Send + Sync,
    F: Fn(usize, &S::Value) + Send + Sync,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES.and(Completes::OnStartScheduler);
    type Operation<R: Receiver<S::Value, S::Error>> = BulkOperation<S, EachIndex<F>, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        BulkOperation::new(
            self.sender,
            self.shape,
            self.longest,
            EachIndex(self.function),
            receiver,
        )
    }

    dismantle!(sender);
}

/// Sender created by [`Sender::bulk_chunked`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct BulkChunked<S, F> {
    sender: S,
    shape: usize,
    function: F,
}

impl<S, F> BulkChunked<S, F> {
    #[inline]
    pub(crate) fn new(sender: S, shape: usize, function: F) -> Self {
        BulkChunked {
            sender,
            shape,
            function,
        }
    }
}

// SAFETY: see `Bulk`.
unsafe impl<S, F> Sender for BulkChunked<S, F>
where
    S: Sender,
    S::Value: Send + Sync,
    F: Fn(Range<usize>, &S::Value) + Send + Sync,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES.and(Completes::OnStartScheduler);
    type Operation<R: Receiver<S::Value, S::Error>> = BulkOperation<S, EachChunk<F>, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        BulkOperation::new(self.sender, self.shape, LONGEST, EachChunk(self.function), receiver)
    }

    dismantle!(sender);
}

/// The function of a bulk operation, called for pieces of the range.
pub trait BulkBody<T>: Send + Sync {
    /// The length of a piece where the calls are not shared.
    const PIECE: usize;

    /// Calls the function for a piece that is not empty. Returns `false` when a stop came before the last call.
    fn call(&self, piece: Range<usize>, value: &T, token: &impl StopToken) -> bool;
}

/// A function of an index.
#[derive(Debug)]
pub struct EachIndex<F>(F);

impl<T, F: Fn(usize, &T) + Send + Sync> BulkBody<T> for EachIndex<F> {
    const PIECE: usize = usize::MAX;

    #[inline]
    fn call(&self, piece: Range<usize>, value: &T, token: &impl StopToken) -> bool {
        for index in piece {
            if token.stop_requested() {
                return false;
            }
            (self.0)(index, value);
        }
        true
    }
}

/// A function of a range.
#[derive(Debug)]
pub struct EachChunk<F>(F);

impl<T, F: Fn(Range<usize>, &T) + Send + Sync> BulkBody<T> for EachChunk<F> {
    const PIECE: usize = 1024;

    #[inline]
    fn call(&self, piece: Range<usize>, value: &T, token: &impl StopToken) -> bool {
        if token.stop_requested() {
            return false;
        }
        (self.0)(piece, value);
        true
    }
}

/// The operation of [`Bulk`] and [`BulkChunked`].
///
/// On a worker of a pool it shares the calls (see [`share`]). Elsewhere it makes them where the sender completes.
pub struct BulkOperation<S, B, R>
where
    S: Sender<Value: Send + Sync>,
    B: BulkBody<S::Value>,
    R: Receiver<S::Value, S::Error>,
{
    /// `Next` is the value, while the calls are shared. Only the last participant changes it then.
    stage: Stage<S, S::Operation<ChildReceiver<Self, 0>>, S::Value>,
    shape: usize,
    /// The longest piece that a worker takes.
    #[cfg(feature = "std")]
    longest: usize,
    /// Taken for the completion.
    rest: Option<(B, R)>,
    #[cfg(feature = "std")]
    share: share::Share<<R::Env as Env>::StopToken>,
    _pinned: PhantomPinned,
}

impl<S, B, R> BulkOperation<S, B, R>
where
    S: Sender<Value: Send + Sync>,
    B: BulkBody<S::Value>,
    R: Receiver<S::Value, S::Error>,
{
    #[inline]
    fn new(sender: S, shape: usize, longest: usize, body: B, receiver: R) -> Self {
        #[cfg(not(feature = "std"))]
        let _ = longest;
        BulkOperation {
            stage: Stage::new(sender),
            shape,
            #[cfg(feature = "std")]
            longest,
            rest: Some((body, receiver)),
            #[cfg(feature = "std")]
            share: share::Share::new(Self::come),
            _pinned: PhantomPinned,
        }
    }

    /// Makes the calls, here or shared among the workers of a pool. The sender has completed with `value`.
    #[inline]
    fn value(&mut self, value: S::Value) -> Transfer {
        let Some((body, receiver)) = &self.rest else {
            return Transfer::none();
        };
        let env = receiver.env();
        let token = env.stop_token();
        let shape = self.shape;
        #[cfg(feature = "std")]
        if shape > 1
            && let Some(worker) = share::pool::<S>(&env)
        {
            drop(env);
            return self.share(worker, value, token);
        }
        drop(env);
        self.stage.clear();
        let called = Panic::catch(|| {
            let mut begin = 0;
            while begin < shape {
                let end = begin.saturating_add(B::PIECE).min(shape);
                if !body.call(begin..end, &value, &token) {
                    return false;
                }
                begin = end;
            }
            true
        });
        drop(token);
        self.conclude(called, value)
    }

    /// Completes with the value if every index was called, stopped if not, or with the panic.
    ///
    /// A value that is not passed on is dropped before the completion, which may invalidate what the value borrows.
    #[inline]
    fn conclude(&mut self, called: Result<bool, Panic>, value: S::Value) -> Transfer {
        let completion = match called {
            Ok(true) => Completion::Value(value),
            Ok(false) => {
                drop(value);
                Completion::Stopped
            }
            Err(payload) => {
                drop(value);
                Completion::Panicked(payload)
            }
        };
        self.complete(completion)
    }

    #[inline]
    fn complete(&mut self, completion: Completion<S::Value, S::Error>) -> Transfer {
        match self.rest.take() {
            Some((body, receiver)) => {
                drop(body);
                completion.deliver(receiver)
            }
            None => Transfer::none(),
        }
    }
}

impl<S, B, R> Operation for BulkOperation<S, B, R>
where
    S: Sender<Value: Send + Sync>,
    B: BulkBody<S::Value>,
    R: Receiver<S::Value, S::Error>,
{
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing pinned is moved: the sender is not.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        // SAFETY: the stage is pinned with this operation, which is alive until the receiver is completed, after the child.
        unsafe { Stage::start_child(NonNull::new_unchecked(&raw mut (*this.as_ptr()).stage), this) }
    }
}

// SAFETY: function, value and receiver are `Send`. Function and value, which several threads use at once, are `Sync`. The
// child's operation is only destroyed, by its own completion.
unsafe impl<S, B, R> Parent<0> for BulkOperation<S, B, R>
where
    S: Sender<Value: Send + Sync>,
    B: BulkBody<S::Value>,
    R: Receiver<S::Value, S::Error>,
{
    type Value = S::Value;
    type Error = S::Error;
    type Env = R::Env;

    #[inline]
    fn env(this: &Waiting<Self>) -> R::Env {
        match &this.parent().rest {
            Some((_, receiver)) => receiver.env(),
            None => unreachable!("the rest is taken after the child has completed"),
        }
    }

    #[inline]
    fn child_completed(this: Waiting<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        // SAFETY: the only child has completed, and the calls are not shared yet.
        let this = unsafe { this.alone() };
        match completion {
            Completion::Value(value) => this.value(value),
            other => {
                this.stage.clear();
                this.complete(other)
            }
        }
    }
}

impl<S, B, R> fmt::Debug for BulkOperation<S, B, R>
where
    S: Sender<Value: Send + Sync>,
    B: BulkBody<S::Value>,
    R: Receiver<S::Value, S::Error>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkOperation")
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}
