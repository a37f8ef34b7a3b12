use alloc::boxed::Box;
use core::marker::{PhantomData, PhantomPinned};
use core::pin::Pin;
use core::ptr::NonNull;

use crate::sender::dismantle::{DropList, DropNode};
use crate::sender::in_place::{InPlace, Prefix};
use crate::sender::port::{Outside, Port, PortReceiver};
use crate::sender::stage::container_of;
use crate::{Completion, Job, Operation, Receiver, Sender, Transfer};

/// Sender created by [`Sender::boxed`].
#[must_use = "senders do nothing until they are connected and started"]
pub struct BoxedSender<'a, T: Send, E: Send> {
    /// The box. `None` once it was moved out to be destroyed.
    inside: Option<NonNull<BoxedHeader>>,
    start: Start<T, E>,
    _inside: PhantomData<dyn Send + 'a>,
}

/// Connects and starts the sender in a box. Returns the completion where connecting failed.
///
/// # Safety
///
/// The box has this function. The caller has exclusive access to it until the operation completes, and it is alive
/// until then.
type Start<T, E> = unsafe fn(NonNull<BoxedHeader>, PortReceiver<T, E>) -> Result<Transfer, Completion<T, E>>;

// SAFETY: the sender inside is `Send`, by the bound of `new`.
unsafe impl<T: Send, E: Send> Send for BoxedSender<'_, T, E> {}

impl<'a, T: Send, E: Send> BoxedSender<'a, T, E> {
    pub(crate) fn new<S>(sender: S) -> Self
    where
        S: Sender<Value = T, Error = E> + Send + 'a,
    {
        let inside: Box<Inside<S>> = Box::new(InPlace::new(DropNode::new(destroy::<S>), sender));
        BoxedSender {
            inside: Some(NonNull::from(Box::leak(inside)).cast()),
            start: start::<S>,
            _inside: PhantomData,
        }
    }
}

impl<T: Send, E: Send> Drop for BoxedSender<'_, T, E> {
    fn drop(&mut self) {
        if let Some(inside) = self.inside.take() {
            // SAFETY: a box has one owner. Its sender was not started, or has completed. What the sender borrows
            // outlives `'a`, and so this drop.
            unsafe { DropNode::destroy(inside.cast()) };
        }
    }
}

crate::opaque!([T: Send, E: Send] BoxedSender<'_, T, E>);

// SAFETY: the operation is `!Unpin`. It accesses nothing of itself once it has returned a job, nor after its
// completion.
unsafe impl<'a, T: Send, E: Send> Sender for BoxedSender<'a, T, E> {
    type Value = T;
    type Error = E;
    type Operation<R: Receiver<T, E>> = BoxedOperation<'a, T, E, R>;

    fn connect<R: Receiver<T, E>>(self, receiver: R) -> BoxedOperation<'a, T, E, R> {
        BoxedOperation {
            inside: Some(self),
            outside: Outside::new(receiver, BoxedOperation::<'a, T, E, R>::complete),
            completion: None,
            begin: Job::new(BoxedOperation::<'a, T, E, R>::begin),
            end: Job::new(BoxedOperation::<'a, T, E, R>::end),
            _pinned: PhantomPinned,
        }
    }

    fn dismantle<'b>(&mut self, list: &mut DropList<'b>)
    where
        Self: 'b,
    {
        if let Some(inside) = self.inside.take() {
            // SAFETY: a box has one owner, which is taken here. The sender was not connected, so not started. What it
            // borrows outlives `'a`, which outlives `'b`.
            unsafe { list.push(inside.cast()) };
        }
    }
}

/// The part of a box that does not depend on its sender. The node comes first, so that its address is the box's.
type BoxedHeader = Prefix<DropNode>;

/// A box.
type Inside<S> = InPlace<S, Running<S>, DropNode>;

/// The operation of the sender inside.
type Running<S> = <S as Sender>::Operation<PortReceiver<<S as Sender>::Value, <S as Sender>::Error>>;

/// # Safety
///
/// The contract of [`Start`].
unsafe fn start<S: Sender<Value: Send, Error: Send>>(
    inside: NonNull<BoxedHeader>,
    receiver: PortReceiver<S::Value, S::Error>,
) -> Result<Transfer, Completion<S::Value, S::Error>> {
    let inside = inside.cast::<Inside<S>>();
    // SAFETY: the contract of `Start`: the box is an `Inside<S>`, and the caller has exclusive access.
    unsafe {
        InPlace::connect(inside, |sender| sender.connect(receiver))?;
        Ok(InPlace::start(inside))
    }
}

/// # Safety
///
/// The node is that of an `Inside<S>` that was leaked by `BoxedSender::new`, and is not used afterwards.
unsafe fn destroy<S: Sender<Value: Send, Error: Send>>(node: NonNull<DropNode>, list: &mut DropList<'_>) {
    // SAFETY: the node is the first field of a box that was leaked, by the contract.
    let mut inside = unsafe { Box::from_raw(node.cast::<Inside<S>>().as_ptr()) };
    inside.dismantle(list);
}

/// The operation of [`BoxedSender`].
pub struct BoxedOperation<'a, T: Send, E: Send, R: Receiver<T, E>> {
    /// Destroyed by `end`, before the receiver is completed.
    inside: Option<BoxedSender<'a, T, E>>,
    outside: Outside<T, E, R>,
    completion: Option<Completion<T, E>>,
    /// Connects and starts the inside.
    begin: Job,
    /// Destroys the inside, and completes the receiver.
    end: Job,
    _pinned: PhantomPinned,
}

impl<T: Send, E: Send, R: Receiver<T, E>> BoxedOperation<'_, T, E, R> {
    /// # Safety
    ///
    /// The job is that of a started operation, and runs once.
    unsafe fn begin(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation.
        let this = unsafe { container_of!(job, Self, begin) }.as_ptr();
        // SAFETY: nothing runs inside yet, so this job has exclusive access. The operation is pinned, and alive until
        // `end` has run, which the completion of the inside returns.
        let started = unsafe {
            match &(*this).inside {
                Some(BoxedSender {
                    inside: Some(inside),
                    start,
                    ..
                }) => {
                    let (inside, start) = (*inside, *start);
                    start(inside, Outside::port_receiver(&raw mut (*this).outside))
                }
                _ => Err(Completion::Stopped),
            }
        };
        match started {
            Ok(resumed) => resumed,
            // SAFETY: the inside was not connected, so this is the only completion, and this job has exclusive access.
            Err(completion) => unsafe { Self::ended(this, completion) },
        }
    }

    /// # Safety
    ///
    /// The port is that of an operation whose inside completes, or drops its receiver before it was started.
    unsafe fn complete(port: NonNull<Port<T, E>>, completion: Completion<T, E>) -> Transfer {
        // SAFETY: the port is in a field of an operation, which is alive until the inside is destroyed.
        unsafe {
            let this = container_of!(Outside::<T, E, R>::of_port(port), Self, outside).as_ptr();
            match &(*this).inside {
                Some(BoxedSender {
                    inside: Some(inside), ..
                }) if inside.as_ref().progress.completes() => Self::ended(this, completion),
                _ => Transfer::none(),
            }
        }
    }

    /// Returns the job that destroys the inside and completes.
    ///
    /// # Safety
    ///
    /// The inside has completed, or was not connected, and the caller has exclusive access.
    unsafe fn ended(this: *mut Self, completion: Completion<T, E>) -> Transfer {
        // SAFETY: the contract of `Start`: the box is an `Inside<S>`, and the caller has exclusive access. The
        // operation stays alive until `end` has run, once.
        unsafe {
            (*this).completion = Some(completion);
            Transfer::to(NonNull::new_unchecked(&raw mut (*this).end))
        }
    }

    /// # Safety
    ///
    /// The job is that of an operation whose inside has completed, and runs once.
    unsafe fn end(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation, to which this job has exclusive access.
        let this = unsafe { &mut *container_of!(job, Self, end).as_ptr() };
        this.inside = None;
        match (this.completion.take(), this.outside.receiver.take()) {
            (Some(completion), Some(receiver)) => completion.deliver(receiver),
            _ => Transfer::none(),
        }
    }
}

impl<T: Send, E: Send, R: Receiver<T, E>> Operation for BoxedOperation<'_, T, E, R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved out of the pinned operation.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        // SAFETY: the job is pinned with the operation, which is alive until `end` has run.
        unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*this.as_ptr()).begin)) }
    }
}

crate::opaque!([T: Send, E: Send, R: Receiver<T, E>] BoxedOperation<'_, T, E, R>);
