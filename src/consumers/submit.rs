use alloc::boxed::Box;
use core::ptr::NonNull;

use crate::sender::child::{ChildReceiver, Parent};
use crate::sender::stage::Stage;
use crate::sender::unwind::abort_on_unwind;
use crate::{Completion, Operation, Receiver, Sender, Transfer};

/// Connects a sender to a receiver on the heap, and starts it.
///
/// The operation frees itself when it completes, before the receiver is completed. What starting resumed has run when
/// this returns.
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
/// The receiver gets the sender's. A sender that drops its receiver without completing has stopped.
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
/// Constant: this is a driver.
pub fn submit<S, R>(sender: S, receiver: R)
where
    S: Sender + 'static,
    R: Receiver<S::Value, S::Error> + 'static,
{
    let submitted = NonNull::from(Box::leak(Box::new(Submitted::<S, R> {
        stage: Stage::Empty,
        receiver: Some(receiver),
    })));
    // SAFETY: the box is leaked, so it is pinned and alive until `child_completed` frees it.
    let child = unsafe { ChildReceiver::new(submitted) };
    // SAFETY: as above; the stage is empty. The operation is started once, and destroyed in its completion.
    abort_on_unwind(|| unsafe {
        Stage::set_running(&raw mut (*submitted.as_ptr()).stage, sender.connect(child))
            .start()
            .run();
    });
}

struct Submitted<S, R>
where
    S: Sender,
    R: Receiver<S::Value, S::Error>,
{
    stage: Stage<S, S::Operation<ChildReceiver<Self, 0>>>,
    receiver: Option<R>,
}

// SAFETY: the receiver is `Send`; the operation is only destroyed, by its own completion.
unsafe impl<S, R> Parent<0> for Submitted<S, R>
where
    S: Sender,
    R: Receiver<S::Value, S::Error>,
{
    type Value = S::Value;
    type Error = S::Error;
    type Env = R::Env;

    unsafe fn env(this: NonNull<Self>) -> R::Env {
        // SAFETY: the child runs, so the receiver is there, and only the child asks.
        match unsafe { &(*this.as_ptr()).receiver } {
            Some(receiver) => receiver.env(),
            // SAFETY: the receiver is taken when the child has completed.
            None => unsafe { core::hint::unreachable_unchecked() },
        }
    }

    unsafe fn child_completed(this: NonNull<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        // SAFETY: it was leaked by `submit`; the child has completed, so nobody else touches it.
        let mut this = unsafe { Box::from_raw(this.as_ptr()) };
        let receiver = this.receiver.take();
        drop(this);
        match receiver {
            Some(receiver) => completion.deliver(receiver),
            None => Transfer::none(),
        }
    }
}
