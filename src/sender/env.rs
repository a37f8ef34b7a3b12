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
///
/// An environment may answer differently each time. Every algorithm takes the answers as they come, and relies on none.
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

    /// Returns what this crate's own environments know beyond the rest of this trait: see [`EnvDoor`].
    ///
    /// A wrapper may forward the answer of the environment inside, unless it answers [`visit`](Env::visit) or
    /// [`scheduler`](Env::scheduler) itself.
    #[doc(hidden)]
    #[inline]
    fn door(&self) -> EnvDoor<'_> {
        EnvDoor::closed()
    }
}

/// The sealed door of an environment, valid as long as that environment is borrowed. Opaque: a wrapper can only forward it.
///
/// It borrows the environment, so nothing in it can be kept beyond. An operation that needs what is behind the door until
/// it completes says so to `awaiting` and `home`, which are unsafe.
pub struct EnvDoor<'a> {
    /// Where the search for a user's value begins, if it can be made in steps.
    beneath: Option<Beneath<'a>>,
    /// The task that awaits what this is the environment of.
    awaiting: Option<Awaiting>,
    /// The home of the task whose scheduler is that of this environment: a `Home`.
    home: Option<NonNull<()>>,
}

/// The address of a task that awaits something, for the layer that knows tasks.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "std"), allow(dead_code, reason = "tasks need `std`"))]
pub(crate) struct Awaiting {
    /// The frame: a `Header`.
    pub(crate) frame: NonNull<()>,
    /// The context that the frame awaits in: a `Context`.
    pub(crate) context: NonNull<()>,
}

// SAFETY: these are addresses; using them is unsafe.
unsafe impl Send for Awaiting {}
// SAFETY: these are addresses; using them is unsafe.
unsafe impl Sync for Awaiting {}

impl<'a> EnvDoor<'a> {
    /// The door of an environment that has nothing behind it.
    #[inline]
    pub(crate) fn closed() -> Self {
        EnvDoor {
            beneath: None,
            awaiting: None,
            home: None,
        }
    }

    /// A door behind which a search goes on there.
    #[inline]
    pub(crate) fn new(beneath: Beneath<'a>) -> Self {
        EnvDoor {
            beneath: Some(beneath),
            awaiting: None,
            home: None,
        }
    }

    /// The same, with the task that awaits.
    ///
    /// # Safety
    ///
    /// The frame and the context are valid until the receiver completes that the environment is of.
    #[inline]
    pub(crate) unsafe fn awaited_by(mut self, awaiting: Option<Awaiting>) -> Self {
        self.awaiting = awaiting;
        self
    }

    /// The same, with the home of the task.
    ///
    /// # Safety
    ///
    /// The home is a `Home`, and valid until the receiver completes that the environment is of.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) unsafe fn at_home(mut self, home: NonNull<()>) -> Self {
        self.home = Some(home);
        self
    }

    /// The task that awaits what this is the environment of, as addresses.
    ///
    /// # Safety
    ///
    /// They are used only until the receiver completes that gave the environment. Until then they are valid, by the
    /// contract of [`awaited_by`](EnvDoor::awaited_by): a user can forward a door, and cannot make one. Nor can a user's
    /// code keep an environment with a door beyond the completion of its receiver, in safe code: it meets the type as a
    /// parameter without a lifetime bound, for the length of a call.
    #[inline]
    pub(crate) unsafe fn awaiting(&self) -> Option<Awaiting> {
        self.awaiting
    }

    /// The home of the task whose scheduler is that of this environment, as the address of a `Home`.
    ///
    /// # Safety
    ///
    /// The contract of [`awaiting`](EnvDoor::awaiting).
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) unsafe fn home(&self) -> Option<NonNull<()>> {
        self.home
    }
}

crate::opaque!([] EnvDoor<'_>);

/// An environment of unknown type, in which the search for a user's value goes on.
///
/// Boxes may be nested without end, so that search is a loop over these, not a recursion.
pub(crate) struct Beneath<'a> {
    place: NonNull<()>,
    look: Look,
    _place: PhantomData<&'a ()>,
}

/// Looks in one environment: shows the value to `found`, or says where to go on.
///
/// It is called with a place that it was made for, and that is valid. What it returns is used only while that is so.
pub(crate) type Look = unsafe fn(NonNull<()>, TypeId, &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'static>>;

impl Beneath<'_> {
    /// # Safety
    ///
    /// `look` may be called with `place` for as long as this lives.
    #[inline]
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
    unsafe fn extend(self) -> Beneath<'static> {
        Beneath {
            place: self.place,
            look: self.look,
            _place: PhantomData,
        }
    }

    /// Looks here, and wherever that leads.
    pub(crate) fn visit(self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        // SAFETY: the place is valid while this lives, by the promise of `new`, and so is all that is found from there.
        let mut next = Some(unsafe { self.extend() });
        while let Some(beneath) = next {
            // SAFETY: the promise of `new`.
            next = unsafe { (beneath.look)(beneath.place, id, found) };
        }
    }
}

/// A [`Look`] into an environment of this type: through its door, or by a plain visit where that is closed.
///
/// # Safety
///
/// The place is an `E`.
pub(crate) unsafe fn look_in<E: Env>(
    place: NonNull<()>,
    id: TypeId,
    found: &mut dyn FnMut(&dyn Any),
) -> Option<Beneath<'static>> {
    // SAFETY: the caller's promise.
    let env = unsafe { place.cast::<E>().as_ref() };
    match env.door().beneath {
        // SAFETY: the result is used only while the place is valid, and with it the borrow of the environment.
        Some(beneath) => Some(unsafe { beneath.extend() }),
        None => {
            env.visit(id, found);
            None
        }
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
}

/// Seals [`Patch`]: `COMPLETES` of a sender with a patched environment relies on `CHANGES_SCHEDULER`.
mod private {
    use super::{Any, Env, Priority, TypeId, With, WithScheduler, WithStopToken};

    pub trait Sealed {
        /// Shows the patch's own value to `found` if its type is `id`, and returns whether it did.
        #[inline]
        fn show(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) -> bool {
            let _ = (id, found);
            false
        }

        /// Returns the patch's own priority, or the one beneath.
        #[inline]
        fn priority<E: Env>(&self, beneath: &E) -> Option<Priority> {
            beneath.priority()
        }
    }

    impl<K> Sealed for WithStopToken<K> {}
    impl<C> Sealed for WithScheduler<C> {}
    impl<V: 'static> Sealed for With<V> {
        #[inline]
        fn show(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) -> bool {
            let is_own = id == TypeId::of::<V>();
            if is_own {
                found(&self.0);
            }
            is_own
        }

        #[inline]
        fn priority<E: Env>(&self, beneath: &E) -> Option<Priority> {
            (&self.0 as &dyn Any)
                .downcast_ref()
                .copied()
                .or_else(|| beneath.priority())
        }
    }
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

    /// # Safety
    ///
    /// The place is such an environment.
    unsafe fn look(place: NonNull<()>, id: TypeId, found: &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'static>> {
        // SAFETY: the caller's promise.
        let this = unsafe { place.cast::<Self>().as_ref() };
        if this.patch.show(id, found) {
            return None;
        }
        // SAFETY: it is a field, and so valid as long as the whole.
        unsafe { look_in::<E>(NonNull::from(&this.beneath).cast(), id, found) }
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
        if !self.patch.show(id, found) {
            self.beneath.visit(id, found);
        }
    }

    #[inline]
    fn priority(&self) -> Option<Priority> {
        self.patch.priority(&self.beneath)
    }

    #[inline]
    fn door(&self) -> EnvDoor<'_> {
        let door = self.beneath.door();
        EnvDoor {
            // SAFETY: the place is borrowed for as long as the door.
            beneath: Some(unsafe { Beneath::new(NonNull::from(self).cast(), Self::look) }),
            awaiting: door.awaiting,
            home: if P::CHANGES_SCHEDULER { None } else { door.home },
        }
    }
}
