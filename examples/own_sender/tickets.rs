//! A factory: a sender made from plain values.

use std::marker::PhantomPinned;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};

use bowline::{Completes, Operation, Receiver, Sender, Transfer};

/// A limited number of numbered tickets.
#[derive(Debug)]
pub struct Tickets {
    left: AtomicU32,
}

/// The error when no ticket is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoldOut;

impl Tickets {
    pub const fn new(count: u32) -> Self {
        Tickets {
            left: AtomicU32::new(count),
        }
    }

    /// Returns a sender of the next ticket. The ticket is taken in `start`.
    pub fn take(&self) -> Take<'_> {
        Take { tickets: self }
    }
}

/// The sender: a small description of the work.
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Take<'a> {
    tickets: &'a Tickets,
}

// SAFETY: the operation completes inside `start`, as `COMPLETES` says, and is not touched afterwards. It is `!Unpin`.
// Nothing in it unwinds.
unsafe impl<'a> Sender for Take<'a> {
    type Value = u32;
    type Error = SoldOut;
    const COMPLETES: Completes = Completes::Inline;
    type Operation<R: Receiver<u32, SoldOut>> = TakeOperation<'a, R>;

    fn connect<R: Receiver<u32, SoldOut>>(self, receiver: R) -> TakeOperation<'a, R> {
        TakeOperation {
            tickets: self.tickets,
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

/// The operation: the sender, its receiver, and all memory of the work.
#[derive(Debug)]
pub struct TakeOperation<'a, R> {
    tickets: &'a Tickets,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<R: Receiver<u32, SoldOut>> Operation for TakeOperation<'_, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: the receiver is not pinned, and nothing else is moved.
        let this = unsafe { self.get_unchecked_mut() };
        let Some(receiver) = this.receiver.take() else {
            return Transfer::none();
        };
        let left = this
            .tickets
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        // The completion is the last step. Its transfer is returned to the driver.
        match left {
            Ok(number) => receiver.set_value(number),
            Err(_) => receiver.set_error(SoldOut),
        }
    }
}
