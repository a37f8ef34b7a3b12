use alloc::boxed::Box;
#[cfg(feature = "std")]
use core::cell::Cell;
use core::fmt;
use core::marker::{PhantomData, PhantomPinned};
use core::pin::Pin;
use core::ptr::{self, NonNull};

use crate::sender::port::{Outside, Port, PortReceiver};
use crate::sender::stage::{Stage, container_of};
use crate::{Completion, Job, Operation, Receiver, Sender, Transfer};

/// A sender whose type is erased, for branches that differ and for work that is built at run time. Made by
/// [`Sender::boxed`].
///
/// ```
/// use bowline::prelude::*;
/// use std::convert::Infallible;
///
/// fn countdown(n: u32) -> BoxedSender<'static, &'static str, Infallible> {
///     match n {
///         0 => just("lift-off").boxed(),
///         n => just(n - 1).let_value(countdown).boxed(),
///     }
/// }
/// assert_eq!(sync_wait(countdown(100_000)).unwrap(), "lift-off");
/// ```
///
/// # Completions
///
/// Those of the sender inside. It sees the stop token and the user's own values of the environment outside, and no
/// scheduler, since a box may be started where there is none: give it one from inside, with
/// [`starts_on`](crate::starts_on) or
/// [`write_env`](Sender::write_env)`(`[`WithScheduler`](crate::WithScheduler)`(..))`; a
/// [`TaskScheduler`](crate::scheduler::TaskScheduler) is one that can be passed to whatever builds the box.
///
/// # Panics
///
/// Those of the sender inside pass.
///
/// # Cancellation
///
/// That of the sender inside.
///
/// # Allocation
///
/// One, when it is made: the box holds the sender, and later the operation in its place.
///
/// # Stack
///
/// Constant, however deep boxes are nested: what is inside is started, completes and is destroyed by the driver, not
/// from inside. Dropping a nest of boxes that was never started does not recurse either, where `std` is there and the
/// boxes are directly inside one another's senders.
#[must_use = "senders do nothing until they are connected and started"]
pub struct BoxedSender<'a, T: Send, E: Send> {
    inside: NonNull<Header>,
    start: unsafe fn(NonNull<Header>, PortReceiver<T, E>) -> Transfer,
    _inside: PhantomData<dyn Send + 'a>,
}

// SAFETY: what is inside is `Send`, by the bound of `new`.
unsafe impl<T: Send, E: Send> Send for BoxedSender<'_, T, E> {}

impl<'a, T: Send, E: Send> BoxedSender<'a, T, E> {
    pub(crate) fn new<S>(sender: S) -> Self
    where
        S: Sender<Value = T, Error = E> + Send + 'a,
    {
        let inside = Box::new(Inside::<S> {
            header: Header {
                destroy: Inside::<S>::destroy,
                #[cfg(feature = "std")]
                size: Cell::new(core::mem::size_of::<Inside<S>>()),
                #[cfg(feature = "std")]
                next: Cell::new(ptr::null_mut()),
            },
            stage: Stage::Sender(sender),
        });
        BoxedSender {
            inside: NonNull::from(Box::leak(inside)).cast(),
            start: Inside::<S>::start,
            _inside: PhantomData,
        }
    }
}

impl<T: Send, E: Send> Drop for BoxedSender<'_, T, E> {
    fn drop(&mut self) {
        // SAFETY: the box is ours, and what is in it was either not started or has completed.
        unsafe { destroy(self.inside, ptr::from_ref(self).addr()) };
    }
}

impl<T: Send, E: Send> fmt::Debug for BoxedSender<'_, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxedSender").finish_non_exhaustive()
    }
}

// SAFETY: the operation touches nothing of itself once it has handed a job out, nor after its completion; it is `!Unpin`.
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
}

/// What is in the box, as far as it can be known without its type.
struct Header {
    destroy: unsafe fn(NonNull<Header>),
    /// How large the box is; zero once it was started. See [`destroy`].
    #[cfg(feature = "std")]
    size: Cell<usize>,
    /// Links boxes that wait to be destroyed.
    #[cfg(feature = "std")]
    next: Cell<*mut Header>,
}

#[repr(C)]
struct Inside<S: Sender<Value: Send, Error: Send>> {
    /// First, so that its address is the box's.
    header: Header,
    stage: Stage<S, Running<S>>,
}

impl<S: Sender<Value: Send, Error: Send>> Inside<S> {
    /// # Safety
    ///
    /// The header is that of an `Inside<S>` that was not started.
    unsafe fn start(header: NonNull<Header>, receiver: PortReceiver<S::Value, S::Error>) -> Transfer {
        #[cfg(feature = "std")]
        // SAFETY: the box is alive, and nobody else looks at it now.
        unsafe { header.as_ref() }.size.set(0);
        // SAFETY: the header is the first field of a `repr(C)` struct, and the pointer that of the whole box.
        let stage = unsafe { &raw mut (*header.cast::<Self>().as_ptr()).stage };
        // SAFETY: it was not started, so the sender is there. The box does not move, and is destroyed after the
        // completion.
        unsafe {
            let sender = Stage::take_sender(stage);
            Stage::set_running(stage, sender.connect(receiver)).start()
        }
    }

    /// # Safety
    ///
    /// The header is that of an `Inside<S>` that is not running, and is not used any more.
    unsafe fn destroy(header: NonNull<Header>) {
        // SAFETY: it was leaked by `BoxedSender::new`.
        drop(unsafe { Box::from_raw(header.cast::<Self>().as_ptr()) });
    }
}

/// Destroys a box. A box whose handle lies inside a box that is being destroyed waits until that is done, so that a
/// nest of boxes is taken down in a loop.
///
/// A handle that lies inside a sender is a part of what is being destroyed, and what it borrows outlives the outermost
/// box, so it may wait. Any other may not: one that a destructor made may borrow from that destructor's frame, and one
/// that lies inside a started operation, which is pinned, from its neighbours there. Nothing is nested there that need
/// wait: what an operation has inside ended before it did.
///
/// # Safety
///
/// The box is not running, and is not used any more.
#[cfg(feature = "std")]
unsafe fn destroy(header: NonNull<Header>, handle: usize) {
    #[derive(Clone, Copy)]
    struct Destroying {
        begin: usize,
        size: usize,
        waiting: *mut Header,
    }
    const NOTHING: Destroying = Destroying {
        begin: 0,
        size: 0,
        waiting: ptr::null_mut(),
    };
    std::thread_local!(static DESTROYING: Cell<Destroying> = const { Cell::new(NOTHING) });

    /// Puts back what was there, also when a destructor unwinds.
    struct Restore<'a>(&'a Cell<Destroying>, Destroying);
    impl Drop for Restore<'_> {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }

    DESTROYING.with(|destroying| {
        let outer = destroying.get();
        if handle.wrapping_sub(outer.begin) < outer.size {
            // SAFETY: the box is alive.
            unsafe { header.as_ref() }.next.set(outer.waiting);
            destroying.set(Destroying {
                waiting: header.as_ptr(),
                ..outer
            });
            return;
        }
        let _restore = Restore(destroying, outer);
        let mut waiting = header.as_ptr();
        while let Some(header) = NonNull::new(waiting) {
            // SAFETY: the box is alive, and not used any more.
            unsafe {
                destroying.set(Destroying {
                    begin: header.addr().get(),
                    size: header.as_ref().size.get(),
                    waiting: header.as_ref().next.get(),
                });
                (header.as_ref().destroy)(header);
            }
            waiting = destroying.get().waiting;
        }
    });
}

/// Destroys a box. Without `std` nothing can be kept per thread, so a nest is taken down by recursion.
///
/// # Safety
///
/// The box is not running, and is not used any more.
#[cfg(not(feature = "std"))]
unsafe fn destroy(header: NonNull<Header>, _: usize) {
    // SAFETY: the box is alive, and not used any more.
    unsafe { (header.as_ref().destroy)(header) };
}

/// The operation of what is inside.
type Running<S> = <S as Sender>::Operation<PortReceiver<<S as Sender>::Value, <S as Sender>::Error>>;

/// The operation of [`BoxedSender`].
pub struct BoxedOperation<'a, T: Send, E: Send, R: Receiver<T, E>> {
    /// Destroyed by `end`, before the receiver is completed.
    inside: Option<BoxedSender<'a, T, E>>,
    outside: Outside<T, E, R>,
    completion: Option<Completion<T, E>>,
    /// Starts the inside.
    begin: Job,
    /// Destroys the inside and completes.
    end: Job,
    _pinned: PhantomPinned,
}

impl<T: Send, E: Send, R: Receiver<T, E>> BoxedOperation<'_, T, E, R> {
    /// # Safety
    ///
    /// The job is that of a started operation, and runs once.
    unsafe fn begin(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation.
        let this = unsafe { container_of!(job, Self, begin) };
        // SAFETY: nothing runs inside yet, so the operation is ours. It is pinned, and stays until `end` has run, which
        // the inside's completion asks for.
        unsafe {
            let this = this.as_ptr();
            let receiver = Outside::port_receiver(&raw mut (*this).outside);
            match &(*this).inside {
                Some(sender) => (sender.start)(sender.inside, receiver),
                None => Transfer::none(),
            }
        }
    }

    /// # Safety
    ///
    /// The port is that of an operation whose inside completes.
    unsafe fn complete(port: NonNull<Port<T, E>>, completion: Completion<T, E>) -> Transfer {
        // SAFETY: the port is in a field of an operation, which stays until `end` has run, once.
        unsafe {
            let this = container_of!(Outside::<T, E, R>::of_port(port), Self, outside).as_ptr();
            (*this).completion = Some(completion);
            Transfer::to(NonNull::new_unchecked(&raw mut (*this).end))
        }
    }

    /// # Safety
    ///
    /// The job is that of an operation whose inside has completed, and runs once.
    unsafe fn end(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation, which nobody else touches any more.
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
        // SAFETY: nothing is moved.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        // SAFETY: the job is pinned with the operation, which stays until `end` has run.
        unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*this.as_ptr()).begin)) }
    }
}

impl<T: Send, E: Send, R: Receiver<T, E>> fmt::Debug for BoxedOperation<'_, T, E, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxedOperation").finish_non_exhaustive()
    }
}
