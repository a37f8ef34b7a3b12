//! A sender that misbehaves at one chosen point.

use std::marker::PhantomPinned;
use std::pin::Pin;

use bowline::{Operation, Receiver, Sender, Transfer};

use super::{Census, Counted};

/// The point at which a [`Hostile`] sender misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trick {
    /// Never: it completes with 1.
    None,
    /// `connect` panics while it owns its receiver.
    ConnectPanics,
    /// `connect` drops its receiver, then panics.
    ConnectDropsAndPanics,
    /// `connect` drops its receiver and returns an operation without one.
    ConnectDrops,
    /// `start` panics before it completes.
    StartPanics,
    /// The sender panics when it is dropped.
    SenderPanics,
    /// The operation panics when it is dropped.
    OperationPanics,
}

/// A sender that misbehaves. Its parts are counted, so that a test detects double drops and leaks.
#[derive(Debug)]
pub struct Hostile {
    trick: Trick,
    value: Option<Counted>,
}

impl Hostile {
    pub fn new(trick: Trick, census: &Census) -> Self {
        Hostile {
            trick,
            value: Some(census.value()),
        }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        if self.trick == Trick::SenderPanics && self.value.is_some() {
            panic!("in the sender's drop");
        }
    }
}

// SAFETY: the operation touches nothing after its completion, and is `!Unpin`. The tests are about the rest of the contract,
// which it breaks; none connects it where that contract is relied upon.
unsafe impl Sender for Hostile {
    type Value = i32;
    type Error = &'static str;
    type Operation<R: Receiver<i32, &'static str>> = HostileOperation<R>;

    fn connect<R: Receiver<i32, &'static str>>(mut self, receiver: R) -> HostileOperation<R> {
        let mut receiver = Some(receiver);
        match self.trick {
            Trick::ConnectPanics => panic!("in connect"),
            Trick::ConnectDropsAndPanics => {
                drop(receiver);
                panic!("in connect");
            }
            Trick::ConnectDrops => receiver = None,
            _ => {}
        }
        HostileOperation {
            trick: self.trick,
            value: self.value.take(),
            receiver,
            _pinned: PhantomPinned,
        }
    }
}

#[derive(Debug)]
pub struct HostileOperation<R> {
    trick: Trick,
    value: Option<Counted>,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<R: Receiver<i32, &'static str>> Operation for HostileOperation<R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        assert_ne!(self.trick, Trick::StartPanics, "in start");
        // SAFETY: the receiver is not pinned.
        match unsafe { self.get_unchecked_mut() }.receiver.take() {
            Some(receiver) => receiver.set_value(1),
            None => Transfer::none(),
        }
    }
}

impl<R> Drop for HostileOperation<R> {
    fn drop(&mut self) {
        assert!(
            self.trick != Trick::OperationPanics || self.value.is_none(),
            "in the operation's drop"
        );
    }
}
