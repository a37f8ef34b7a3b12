use core::any::{Any, TypeId};
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::{NoScheduler, Priority, Scheduler};
use crate::stop::{NeverStop, StopToken};

/// What work may ask of the place it runs in: its stop token, its scheduler, and values of the user's own.
///
/// An environment flows from a receiver to the senders connected to it, against the direction of values. It is a small
/// handle, asked for with [`Receiver::env`](crate::Receiver::env).
///
/// What comes out of an environment is valid until the receiver it came from completes. The types are generic wherever
/// an algorithm meets them, so nothing can carry them further.
pub trait Env: Clone + Send + Sync {
    /// The type of the stop token; [`NeverStop`] where nothing can stop the work.
    type StopToken: StopToken;

    /// The type of the scheduler; [`NoScheduler`] where there is none.
    type Scheduler: Scheduler;

    /// How the work learns that it should stop.
    ///
    /// It may be a new token each time: an operation asks once, when it is started, and keeps the token it listens to.
    fn stop_token(&self) -> Self::StopToken;

    /// Where the work was started and should go on.
    fn scheduler(&self) -> Self::Scheduler;

    /// Shows the user's own value of the type `id` to `found`, where one was written with [`With`].
    ///
    /// An environment of your own forwards this to the one beneath. [`get`](Env::get) is what asks.
    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any));

    /// One step of [`visit`](Env::visit): looks as far as it can without a call that may nest, and says where to go on.
    #[doc(hidden)]
    #[inline]
    fn look(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'_>> {
        self.visit(id, found);
        None
    }

    /// The user's own value of type `T`, where one was written with [`With`].
    #[inline]
    fn get<T: Clone + 'static>(&self) -> Option<T> {
        let mut value = None;
        self.visit(TypeId::of::<T>(), &mut |found| value = found.downcast_ref().cloned());
        value
    }

    /// How urgent the work is, where somebody said so: the [`Priority`] that [`get`](Env::get) finds.
    ///
    /// A scheduler asks this each time, so an environment that knows the answer says it here, without a search.
    #[inline]
    fn priority(&self) -> Option<Priority> {
        self.get()
    }

    /// Where the task runs that this is the environment of, if its scheduler is this one.
    #[cfg(feature = "std")]
    #[doc(hidden)]
    #[inline]
    fn home(&self) -> Option<crate::task::Home> {
        None
    }

    /// The task whose await this is the environment of.
    #[cfg(feature = "std")]
    #[doc(hidden)]
    #[inline]
    fn around(&self) -> Option<crate::task::Around> {
        None
    }
}

/// An environment of unknown type, in which the search for a user's value goes on: that around a box.
///
/// Boxes may be nested without end, so that search is a loop over these, not a recursion.
#[doc(hidden)]
#[derive(Debug)]
pub struct Beneath<'a> {
    place: NonNull<()>,
    look: Look,
    _place: PhantomData<&'a ()>,
}

/// What it returns is used only while the place is there.
pub(crate) type Look = unsafe fn(NonNull<()>, TypeId, &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'static>>;

impl Beneath<'_> {
    /// # Safety
    ///
    /// `look` may be called with `place` for as long as this lives.
    pub(crate) unsafe fn new(place: NonNull<()>, look: Look) -> Self {
        Beneath {
            place,
            look,
            _place: PhantomData,
        }
    }

    /// # Safety
    ///
    /// It is not used once the place is gone.
    pub(crate) unsafe fn extend(self) -> Beneath<'static> {
        Beneath {
            place: self.place,
            look: self.look,
            _place: PhantomData,
        }
    }
}

/// Looks everywhere, step by step.
pub(crate) fn visit_all<E: Env>(env: &E, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
    let mut next = env.look(id, found);
    while let Some(beneath) = next {
        // SAFETY: the place is there, by the promise of `new`.
        next = unsafe { (beneath.look)(beneath.place, id, found) };
    }
}

/// The environment that knows nothing: no stop, no scheduler, no values.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmptyEnv;

impl Env for EmptyEnv {
    type StopToken = NeverStop;
    type Scheduler = NoScheduler;

    #[inline]
    fn stop_token(&self) -> NeverStop {
        NeverStop
    }

    #[inline]
    fn scheduler(&self) -> NoScheduler {
        NoScheduler
    }

    #[inline]
    fn visit(&self, _: TypeId, _: &mut dyn FnMut(&dyn Any)) {}

    #[inline]
    fn priority(&self) -> Option<Priority> {
        None
    }
}

/// A change of one thing in an environment: [`WithStopToken`], [`WithScheduler`] or [`With`].
///
/// [`write_env`](crate::Sender::write_env) applies one; [`Patched`] is an environment with one applied.
pub trait Patch: Clone + Send + Sync + private::Sealed {
    /// Whether the scheduler is what it changes.
    const CHANGES_SCHEDULER: bool;

    /// The stop token of a patched `E`.
    type StopToken<E: Env>: StopToken;
    /// The scheduler of a patched `E`.
    type Scheduler<E: Env>: Scheduler;

    /// The stop token: the patch's own, or the one beneath.
    fn stop_token<E: Env>(&self, beneath: &E) -> Self::StopToken<E>;
    /// The scheduler: the patch's own, or the one beneath.
    fn scheduler<E: Env>(&self, beneath: &E) -> Self::Scheduler<E>;
    /// One step in search of the user's value: the patch's own, or beneath.
    #[doc(hidden)]
    fn look<'a, E: Env>(&self, beneath: &'a E, id: TypeId, found: &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'a>> {
        beneath.look(id, found)
    }
    /// The priority: the patch's own, or the one beneath.
    #[doc(hidden)]
    #[inline]
    fn priority<E: Env>(&self, beneath: &E) -> Option<Priority> {
        beneath.priority()
    }
}

/// Changes the stop token.
#[derive(Clone, Copy, Debug)]
pub struct WithStopToken<K>(pub K);

impl<K: StopToken> Patch for WithStopToken<K> {
    const CHANGES_SCHEDULER: bool = false;
    type StopToken<E: Env> = K;
    type Scheduler<E: Env> = E::Scheduler;

    #[inline]
    fn stop_token<E: Env>(&self, _: &E) -> K {
        self.0.clone()
    }

    #[inline]
    fn scheduler<E: Env>(&self, beneath: &E) -> E::Scheduler {
        beneath.scheduler()
    }
}

/// Changes the scheduler.
#[derive(Clone, Copy, Debug)]
pub struct WithScheduler<C>(pub C);

impl<C: Scheduler> Patch for WithScheduler<C> {
    const CHANGES_SCHEDULER: bool = true;
    type StopToken<E: Env> = E::StopToken;
    type Scheduler<E: Env> = C;

    #[inline]
    fn stop_token<E: Env>(&self, beneath: &E) -> E::StopToken {
        beneath.stop_token()
    }

    #[inline]
    fn scheduler<E: Env>(&self, _: &E) -> C {
        self.0.clone()
    }
}

/// Adds a value of the user's own, found again by its type.
///
/// Wrap what you add in a type of your own, so that two libraries do not both write a `String`.
/// Its `Clone` must not panic: an environment is asked for where nobody could be told, so the process ends.
/// [`read_env`](crate::read_env) alone tells.
#[derive(Clone, Copy, Debug)]
pub struct With<V>(pub V);

impl<V: Clone + Send + Sync + 'static> Patch for With<V> {
    const CHANGES_SCHEDULER: bool = false;
    type StopToken<E: Env> = E::StopToken;
    type Scheduler<E: Env> = E::Scheduler;

    #[inline]
    fn stop_token<E: Env>(&self, beneath: &E) -> E::StopToken {
        beneath.stop_token()
    }

    #[inline]
    fn scheduler<E: Env>(&self, beneath: &E) -> E::Scheduler {
        beneath.scheduler()
    }

    #[inline]
    fn look<'a, E: Env>(&self, beneath: &'a E, id: TypeId, found: &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'a>> {
        if id == TypeId::of::<V>() {
            found(&self.0);
            None
        } else {
            beneath.look(id, found)
        }
    }

    #[inline]
    fn priority<E: Env>(&self, beneath: &E) -> Option<Priority> {
        (&self.0 as &dyn Any)
            .downcast_ref()
            .copied()
            .or_else(|| beneath.priority())
    }
}

/// Sealed: `COMPLETES` of a sender with a patched environment relies on `CHANGES_SCHEDULER`.
mod private {
    pub trait Sealed {}
    impl<K> Sealed for super::WithStopToken<K> {}
    impl<C> Sealed for super::WithScheduler<C> {}
    impl<V> Sealed for super::With<V> {}
}

/// An environment with one thing changed and the rest forwarded.
#[derive(Clone, Copy, Debug)]
pub struct Patched<P, E> {
    patch: P,
    beneath: E,
}

impl<P: Patch, E: Env> Patched<P, E> {
    /// `beneath`, changed by `patch`.
    #[inline]
    pub fn new(patch: P, beneath: E) -> Self {
        Patched { patch, beneath }
    }
}

impl<P: Patch, E: Env> Env for Patched<P, E> {
    type StopToken = P::StopToken<E>;
    type Scheduler = P::Scheduler<E>;

    #[inline]
    fn stop_token(&self) -> Self::StopToken {
        self.patch.stop_token(&self.beneath)
    }

    #[inline]
    fn scheduler(&self) -> Self::Scheduler {
        self.patch.scheduler(&self.beneath)
    }

    #[inline]
    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        visit_all(self, id, found);
    }

    #[inline]
    fn look(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'_>> {
        self.patch.look(&self.beneath, id, found)
    }

    #[inline]
    fn priority(&self) -> Option<Priority> {
        self.patch.priority(&self.beneath)
    }

    #[cfg(feature = "std")]
    #[inline]
    fn home(&self) -> Option<crate::task::Home> {
        if P::CHANGES_SCHEDULER {
            None
        } else {
            self.beneath.home()
        }
    }

    #[cfg(feature = "std")]
    #[inline]
    fn around(&self) -> Option<crate::task::Around> {
        self.beneath.around()
    }
}
