use core::ops::Range;

use crate::stop::StopToken;
use crate::{Completes, Env, Panic, Receiver, Sender, Transfer};

/// Calls a function for every index, with the value, then hands the value on. Made by [`Sender::bulk`] and
/// [`Sender::bulk_unchunked`].
///
/// ```
/// use bowline::prelude::*;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// let cells: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
/// let filled = just(10).bulk(cells.len(), |index, &base| cells[index].store(base + index, Ordering::Relaxed));
/// assert_eq!(sync_wait(filled).unwrap(), 10);
/// assert_eq!(cells[3].load(Ordering::Relaxed), 13);
/// ```
///
/// # Completions
///
/// The value, after the function was called for each index exactly once. Errors, stops and panics pass; the function is
/// not called for them.
///
/// # Panics
///
/// A panic of the function ends the rest and is the completion.
///
/// # Cancellation
///
/// The stop token is asked between calls; the rest is left out then, and the whole completes stopped.
///
/// # Allocation
///
/// None.
///
/// # Stack
///
/// Constant.
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Bulk<S, F> {
    sender: S,
    shape: usize,
    function: F,
}

impl<S, F> Bulk<S, F> {
    #[inline]
    pub(crate) fn new(sender: S, shape: usize, function: F) -> Self {
        Bulk {
            sender,
            shape,
            function,
        }
    }
}

// SAFETY: the operation is the child's, and the receiver completes inside the child's completion.
unsafe impl<S, F> Sender for Bulk<S, F>
where
    S: Sender,
    S::Value: Send + Sync,
    F: Fn(usize, &S::Value) + Send + Sync,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<S::Value, S::Error>> = S::Operation<BulkReceiver<EachIndex<F>, R>>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        self.sender.connect(BulkReceiver {
            shape: self.shape,
            body: EachIndex(self.function),
            receiver,
        })
    }
}

/// Calls a function for ranges that cover every index once, with the value, then hands the value on. Made by
/// [`Sender::bulk_chunked`].
///
/// How the range is cut is the scheduler's choice; where there is none to choose, it is cut into pieces between which
/// the stop token is asked.
///
/// ```
/// use bowline::prelude::*;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// let sum = AtomicUsize::new(0);
/// let data: Vec<usize> = (0..1000).collect();
/// let added = just(()).bulk_chunked(data.len(), |range, ()| {
///     sum.fetch_add(data[range].iter().sum(), Ordering::Relaxed);
/// });
/// sync_wait(added).unwrap();
/// assert_eq!(sum.into_inner(), 499_500);
/// ```
///
/// # Completions
///
/// The value, after the function was called. Errors, stops and panics pass; the function is not called for them, nor
/// for an empty range.
///
/// # Panics
///
/// A panic of the function ends the rest and is the completion.
///
/// # Cancellation
///
/// The stop token is asked between calls; the rest is left out then, and the whole completes stopped.
///
/// # Allocation
///
/// None.
///
/// # Stack
///
/// Constant.
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

// SAFETY: the operation is the child's, and the receiver completes inside the child's completion.
unsafe impl<S, F> Sender for BulkChunked<S, F>
where
    S: Sender,
    S::Value: Send + Sync,
    F: Fn(Range<usize>, &S::Value) + Send + Sync,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<S::Value, S::Error>> = S::Operation<BulkReceiver<EachChunk<F>, R>>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        self.sender.connect(BulkReceiver {
            shape: self.shape,
            body: EachChunk(self.function),
            receiver,
        })
    }
}

/// What is called for a piece of the range.
pub trait BulkBody<T>: Send {
    /// How long a piece is when nobody else chooses: what runs between two looks at the stop token.
    const PIECE: usize;

    fn call(&self, piece: Range<usize>, value: &T);
}

/// A function of an index.
#[derive(Debug)]
pub struct EachIndex<F>(F);

impl<T, F: Fn(usize, &T) + Send> BulkBody<T> for EachIndex<F> {
    const PIECE: usize = 1;

    #[inline]
    fn call(&self, piece: Range<usize>, value: &T) {
        for index in piece {
            (self.0)(index, value);
        }
    }
}

/// A function of a range.
#[derive(Debug)]
pub struct EachChunk<F>(F);

impl<T, F: Fn(Range<usize>, &T) + Send> BulkBody<T> for EachChunk<F> {
    const PIECE: usize = 1024;

    #[inline]
    fn call(&self, piece: Range<usize>, value: &T) {
        (self.0)(piece, value);
    }
}

/// The receiver of [`Bulk`] and [`BulkChunked`].
#[derive(Debug)]
pub struct BulkReceiver<B, R> {
    shape: usize,
    body: B,
    receiver: R,
}

impl<B, R> BulkReceiver<B, R> {
    /// The receiver, to be completed. The function goes first: after the completion nothing that it borrows need be
    /// there.
    #[inline]
    fn into_receiver(self) -> R {
        self.receiver
    }
}

impl<T, E, B: BulkBody<T>, R: Receiver<T, E>> Receiver<T, E> for BulkReceiver<B, R> {
    type Env = R::Env;

    #[inline]
    fn env(&self) -> R::Env {
        self.receiver.env()
    }

    #[inline]
    fn set_value(self, value: T) -> Transfer {
        let BulkReceiver { shape, body, receiver } = self;
        let token = receiver.env().stop_token();
        let ran = Panic::catch(|| {
            let mut begin = 0;
            while begin < shape {
                if token.stop_requested() {
                    return false;
                }
                let end = begin.saturating_add(B::PIECE).min(shape);
                body.call(begin..end, &value);
                begin = end;
            }
            true
        });
        drop(token);
        // Before the completion, after which nothing that these borrow need be there.
        drop(body);
        match ran {
            Ok(true) => receiver.set_value(value),
            Ok(false) => {
                drop(value);
                receiver.set_stopped()
            }
            Err(payload) => {
                drop(value);
                receiver.set_panicked(payload)
            }
        }
    }

    #[inline]
    fn set_error(self, error: E) -> Transfer {
        self.into_receiver().set_error(error)
    }

    #[inline]
    fn set_stopped(self) -> Transfer {
        self.into_receiver().set_stopped()
    }

    #[inline]
    fn set_panicked(self, payload: Panic) -> Transfer {
        self.into_receiver().set_panicked(payload)
    }
}
