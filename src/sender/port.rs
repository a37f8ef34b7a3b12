//! The boundary of type erasure: the receiver and the environment of an erased sender.

use core::any::{Any, TypeId};
use core::ptr::NonNull;

use super::child::{ChildReceiver, Parent, Waiting};
use super::env::{Awaiting, Beneath, EnvDoor, Look, look_in};
use super::stage::container_of;
use super::{Completion, Env, NoScheduler, Receiver, Transfer};
use crate::stop::ErasedStopToken;

/// The receiver of the sender inside.
pub(crate) type PortReceiver<T, E> = ChildReceiver<Port<T, E>, 0>;

/// The function that completes the outside.
pub(crate) type Complete<T, E> = unsafe fn(NonNull<Port<T, E>>, Completion<T, E>) -> Transfer;

/// The outside as the inside sees it: its completion and its environment.
pub(crate) struct Port<T, E> {
    complete: Complete<T, E>,
    /// Asks the environment outside for a value of the user's own.
    look: Look,
    /// The place for `look`, or `None` for this port. A port in a port asks the one outside of it at once, so the search
    /// does not take longer with each box.
    place: Option<PortPlace>,
    token: ErasedStopToken,
    /// The task outside that awaits this operation. Used only until the port has completed.
    awaiting: Option<Awaiting>,
}

/// The address of a port outside.
#[derive(Clone, Copy)]
struct PortPlace(NonNull<()>);

// SAFETY: the port leads to the environment outside, which is `Sync`, and the inside uses it while that is valid.
unsafe impl Send for PortPlace {}
// SAFETY: see `Send`.
unsafe impl Sync for PortPlace {}

// SAFETY: value, error and receiver are `Send`. The operation is accessed by the completion alone.
unsafe impl<T: Send, E: Send> Parent<0> for Port<T, E> {
    type Value = T;
    type Error = E;
    type Env = PortEnv<T, E>;

    #[inline]
    fn env(this: &Waiting<Self>) -> PortEnv<T, E> {
        PortEnv { port: this.as_ptr() }
    }

    #[inline]
    fn child_completed(this: Waiting<Self>, completion: Completion<T, E>) -> Transfer {
        let complete = this.parent().complete;
        // SAFETY: the child completes once. The port is in the operation that the function is for.
        unsafe { complete(this.as_ptr(), completion) }
    }
}

/// The environment of the inside: the stop token and the user's values of the one outside, without a scheduler.
pub(crate) struct PortEnv<T, E> {
    port: NonNull<Port<T, E>>,
}

impl<T, E> Clone for PortEnv<T, E> {
    fn clone(&self) -> Self {
        PortEnv { port: self.port }
    }
}

// SAFETY: the port leads to the environment outside, which is `Sync`, and to a token.
unsafe impl<T, E> Send for PortEnv<T, E> {}
// SAFETY: see `Send`.
unsafe impl<T, E> Sync for PortEnv<T, E> {}

impl<T: Send, E: Send> Env for PortEnv<T, E> {
    type StopToken = ErasedStopToken;
    type Scheduler = NoScheduler;

    #[inline]
    fn stop_token(&self) -> ErasedStopToken {
        // SAFETY: the child has not completed, so the port is alive.
        unsafe { self.port.as_ref() }.token
    }

    #[inline]
    fn scheduler(&self) -> NoScheduler {
        NoScheduler
    }

    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        self.beneath().visit(id, found);
    }

    #[inline]
    fn door(&self) -> EnvDoor<'_> {
        // SAFETY: the child has not completed, so the port is alive. The task that awaits the outside waits for the
        // inside.
        unsafe { EnvDoor::outside(self.beneath()).awaited_by(self.port.as_ref().awaiting) }
    }
}

impl<T, E> PortEnv<T, E> {
    #[inline]
    fn beneath(&self) -> Beneath<'_> {
        // SAFETY: the child has not completed, so the port is alive, for as long as this environment may be used.
        unsafe {
            let port = self.port.as_ref();
            Beneath::new(port.place.map_or(self.port.cast(), |place| place.0), port.look)
        }
    }
}

/// The outside: the receiver, and its environment when the operation was connected.
pub(crate) struct Outside<T, E, R: Receiver<T, E>> {
    port: Port<T, E>,
    /// Keeps the registry of the port's token alive.
    _token: <R::Env as Env>::StopToken,
    env: R::Env,
    pub(crate) receiver: Option<R>,
}

impl<T, E, R: Receiver<T, E>> Outside<T, E, R> {
    /// `complete` gets the address of the port, and finds its operation with [`Outside::of_port`].
    #[inline]
    pub(crate) fn new(receiver: R, complete: Complete<T, E>) -> Self {
        let env = receiver.env();
        let token = env.stop_token();
        // SAFETY: the inside uses both only until it completes, before the receiver completes.
        let (beneath, awaiting) = unsafe { (env.door().beneath(), env.door().awaiting()) };
        Outside {
            port: Port {
                complete,
                look: beneath.as_ref().map_or(Self::look, Beneath::look),
                place: beneath.as_ref().map(|beneath| PortPlace(beneath.place())),
                // SAFETY: the port is used as long as this, and so the token, is alive.
                token: unsafe { ErasedStopToken::new(&token) },
                awaiting,
            },
            _token: token,
            env,
            receiver: Some(receiver),
        }
    }

    /// Makes a receiver for the inside.
    ///
    /// # Safety
    ///
    /// `this` has its final address, is alive until the inside has completed, and expects exactly one completion. The
    /// pointer may access the whole operation that has this as a field.
    #[inline]
    pub(crate) unsafe fn port_receiver(this: *mut Self) -> PortReceiver<T, E>
    where
        T: Send,
        E: Send,
    {
        // SAFETY: the contract above: the port is a field of a live `Outside`.
        unsafe { ChildReceiver::new(NonNull::new_unchecked(&raw mut (*this).port)) }
    }

    /// Returns the outside of a port.
    ///
    /// # Safety
    ///
    /// The port is that of an `Outside<T, E, R>`.
    #[inline]
    pub(crate) unsafe fn of_port(port: NonNull<Port<T, E>>) -> NonNull<Self> {
        // SAFETY: the contract above: the port is a field of a live `Outside`.
        unsafe { container_of!(port, Self, port) }
    }

    /// # Safety
    ///
    /// The port is that of an `Outside<T, E, R>` whose inside has not completed.
    unsafe fn look(port: NonNull<()>, id: TypeId, found: &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'static>> {
        // SAFETY: the inside has not completed, by the contract, so the port is alive. The result is used only while
        // the environment is valid.
        unsafe {
            look_in::<R::Env>(
                NonNull::from(&(*Self::of_port(port.cast()).as_ptr()).env).cast(),
                id,
                found,
            )
        }
    }
}
