use alloc::boxed::Box;
use core::ptr::NonNull;

use crate::sender::child::{ChildReceiver, Parent, Waiting};
use crate::sender::in_place::InPlace;
use crate::{Completion, Receiver, Sender, Transfer};

/// Connects a sender to a receiver on the heap, and starts it.
///
/// The operation frees itself when it completes, before the receiver is completed. All that the start resumed has run
/// when this returns.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::{EmptyEnv, Panic, Transfer};
/// use std::sync::mpsc;
///
/// struct Report(mpsc::Sender<String>);
/// impl Receiver<i32, &'static str> for Report {
///     type Env = EmptyEnv;
///     fn env(&self) -> EmptyEnv {
///         EmptyEnv
///     }
///     fn set_value(self, value: i32) -> Transfer {
///         self.0.send(format!("value {value}")).into_transfer()
///     }
///     fn set_error(self, error: &'static str) -> Transfer {
///         self.0.send(format!("error {error}")).into_transfer()
///     }
///     fn set_stopped(self) -> Transfer {
///         self.0.send("stopped".to_owned()).into_transfer()
///     }
///     fn set_panicked(self, payload: Panic) -> Transfer {
///         self.0.send(format!("panic {payload:?}")).into_transfer()
///     }
/// }
/// # trait IntoTransfer { fn into_transfer(self) -> Transfer; }
/// # impl<T, E> IntoTransfer for Result<T, E> { fn into_transfer(self) -> Transfer { Transfer::none() } }
///
/// let (report, reports) = mpsc::channel();
/// submit(just(7).infallible_into(), Report(report));
/// assert_eq!(reports.recv().unwrap(), "value 7");
/// ```
///
/// # Completions
///
/// The sender's, at the receiver. A sender that drops its receiver without completing has stopped.
///
/// # Panics
///
/// The sender's panic goes to the receiver.
///
/// # Cancellation
///
/// By the receiver's environment.
///
/// # Allocation
///
/// One, for the operation.
///
/// # Stack
///
/// This call is a driver.
pub fn submit<S, R>(sender: S, receiver: R)
where
    S: Sender + 'static,
    R: Receiver<S::Value, S::Error> + 'static,
{
    let submitted = NonNull::from(Box::leak(Box::new(Submitted::<S, R> {
        operation: InPlace::new((), sender),
        receiver: Some(receiver),
    })));
    // SAFETY: the box is leaked, so it is pinned. Only `complete` frees it, when the operation has completed or was not
    // connected.
    unsafe {
        let operation = NonNull::new_unchecked(&raw mut (*submitted.as_ptr()).operation);
        match InPlace::connect(operation, |sender| sender.connect(ChildReceiver::new(submitted))) {
            Ok(()) => InPlace::start(operation),
            Err(completion) => Submitted::complete(submitted, completion),
        }
    }
    .run();
}

struct Submitted<S, R>
where
    S: Sender,
    R: Receiver<S::Value, S::Error>,
{
    operation: InPlace<S, S::Operation<ChildReceiver<Self, 0>>>,
    receiver: Option<R>,
}

impl<S, R> Submitted<S, R>
where
    S: Sender,
    R: Receiver<S::Value, S::Error>,
{
    /// Frees the memory, and then completes the receiver.
    ///
    /// # Safety
    ///
    /// The memory was leaked by `submit`. Its operation does not run, and the caller has exclusive access.
    unsafe fn complete(this: NonNull<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        // SAFETY: the memory was leaked from a box by `submit`, by the contract.
        let mut this = unsafe { Box::from_raw(this.as_ptr()) };
        let receiver = this.receiver.take();
        drop(this);
        completion.deliver_to(receiver)
    }
}

// SAFETY: the receiver is `Send`. The operation is only destroyed, by its own completion.
unsafe impl<S, R> Parent<0> for Submitted<S, R>
where
    S: Sender,
    R: Receiver<S::Value, S::Error>,
{
    type Value = S::Value;
    type Error = S::Error;
    type Env = R::Env;

    fn env(this: &Waiting<Self>) -> R::Env {
        match &this.parent().receiver {
            Some(receiver) => receiver.env(),
            None => unreachable!("the receiver is taken when the child has completed"),
        }
    }

    fn child_completed(this: Waiting<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        if !this.parent().operation.prefix.progress.completes() {
            return Transfer::none();
        }
        // SAFETY: the memory was leaked by `submit`. The child has completed, so this thread has exclusive access.
        unsafe { Self::complete(this.as_ptr(), completion) }
    }
}
