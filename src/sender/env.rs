use core::any::{Any, TypeId};
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::{NoScheduler, Priority, Scheduler};
use crate::stop::{NeverStop, StopToken};

/// The environment of a running sender: its stop token, its scheduler, and values of the user's.
///
/// An environment flows from a receiver to the senders connected to it, against the direction of values. It is a small
/// handle, asked for with [`Receiver::env`](crate::Receiver::env).
///
/// The parts of an environment are valid until its receiver completes. Their types are generic in every algorithm, so
/// no algorithm can keep them longer.
///
/// An environment may answer differently each time. No algorithm relies on equal answers.
pub trait Env: Clone + Send + Sync {
    /// The type of the stop token; [`NeverStop`] where nothing can stop the work.
    type StopToken: StopToken;

    /// The type of the scheduler; [`NoScheduler`] where there is none.
    type Scheduler: Scheduler;

    /// Returns the stop token of the work.
    ///
    /// It may be a new token each time. An operation asks once, when it is started, and keeps the token that it listens
    /// to.
    fn stop_token(&self) -> Self::StopToken;

    /// Returns the scheduler where the work was started and should continue.
    fn scheduler(&self) -> Self::Scheduler;

    /// Shows the user's own value of the type `id` to `found`, where one was written with [`With`].
    ///
    /// An environment of your own forwards this to the one beneath. [`get`](Env::get) calls it.
    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any));

    /// Returns the user's own value of type `T`, if one was added with [`With`].
    #[inline]
    fn get<T: Clone + 'static>(&self) -> Option<T> {
        let mut value = None;
        self.visit(TypeId::of::<T>(), &mut |found| value = found.downcast_ref().cloned());
        value
    }

    /// Returns the priority of the work, if one was set: the [`Priority`] that [`get`](Env::get) finds.
    ///
    /// A scheduler calls this each time, so an environment that has the answer returns it without a search.
    #[inline]
    fn priority(&self) -> Option<Priority> {
        self.get()
    }

    /// Returns what only this crate's environments have: see [`EnvDoor`].
    ///
    /// A wrapper may forward the door of the environment inside, unless it changes [`visit`](Env::visit) or
    /// [`scheduler`](Env::scheduler).
    #[doc(hidden)]
    #[inline]
    fn door(&self) -> EnvDoor<'_> {
        EnvDoor::closed()
    }
}

/// The sealed door of an environment, valid as long as that environment is borrowed. Opaque: a wrapper can only forward it.
///
/// The door borrows the environment. An operation that needs its content until it completes uses `awaiting` and `home`,
/// which are unsafe.
pub struct EnvDoor<'a> {
    /// The start of the search for a user's value, if the search can be made in steps.
    beneath: Option<Beneath<'a>>,
    /// Whether that start is valid until the environment's receiver completes, and not only while this is borrowed.
    beneath_stays: bool,
    /// The task that awaits the operation of this environment.
    awaiting: Option<Awaiting>,
    /// The home of the task whose scheduler is this environment's: a `Home`.
    home: Option<NonNull<()>>,
}

/// The addresses of a task that awaits, for the layer that knows tasks.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "std"), allow(dead_code, reason = "tasks need `std`"))]
pub(crate) struct Awaiting {
    /// The frame: a `Header`.
    pub(crate) frame: NonNull<()>,
    /// The context that the frame awaits in: a `Context`.
    pub(crate) context: NonNull<()>,
}

// SAFETY: the fields are addresses, which only unsafe code uses.
unsafe impl Send for Awaiting {}
// SAFETY: the fields are addresses, which only unsafe code uses.
unsafe impl Sync for Awaiting {}

impl<'a> EnvDoor<'a> {
    /// Makes the door of an environment that has nothing to add.
    #[inline]
    pub(crate) fn closed() -> Self {
        EnvDoor {
            beneath: None,
            beneath_stays: false,
            awaiting: None,
            home: None,
        }
    }

    /// Makes a door where the search for a value continues at `beneath`.
    #[inline]
    pub(crate) fn new(beneath: Beneath<'a>) -> Self {
        EnvDoor {
            beneath: Some(beneath),
            beneath_stays: false,
            awaiting: None,
            home: None,
        }
    }

    /// Makes a door where the search for a value continues at `beneath`, which stays.
    ///
    /// # Safety
    ///
    /// `beneath` is valid until the environment's receiver completes.
    #[inline]
    pub(crate) unsafe fn outside(beneath: Beneath<'a>) -> Self {
        EnvDoor {
            beneath_stays: true,
            ..EnvDoor::new(beneath)
        }
    }

    /// Adds the task that awaits.
    ///
    /// # Safety
    ///
    /// Frame and context are valid until the environment's receiver completes.
    #[inline]
    pub(crate) unsafe fn awaited_by(mut self, awaiting: Option<Awaiting>) -> Self {
        self.awaiting = awaiting;
        self
    }

    /// Adds the home of the task.
    ///
    /// # Safety
    ///
    /// The home is a `Home`, and valid until the environment's receiver completes.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) unsafe fn at_home(mut self, home: NonNull<()>) -> Self {
        self.home = Some(home);
        self
    }

    /// Returns the task that awaits the operation of this environment, as addresses.
    ///
    /// # Safety
    ///
    /// The addresses are used only until the environment's receiver completes. Until then they are valid, by the
    /// contract of [`awaited_by`](EnvDoor::awaited_by): a user can forward a door, but cannot make one. Nor can safe
    /// code keep an environment with a door beyond the completion. Its type is a parameter without a lifetime bound,
    /// alive for one call.
    #[inline]
    pub(crate) unsafe fn awaiting(&self) -> Option<Awaiting> {
        self.awaiting
    }

    /// Returns where the search for a value continues, if that is known until the environment's receiver completes.
    ///
    /// # Safety
    ///
    /// The contract of [`awaiting`](EnvDoor::awaiting).
    #[inline]
    pub(crate) unsafe fn beneath(&self) -> Option<Beneath<'static>> {
        let beneath = self.beneath.as_ref().filter(|_| self.beneath_stays)?;
        // SAFETY: the contract of `outside`, and that of this function.
        Some(unsafe { beneath.extend() })
    }

    /// Returns the home of the task whose scheduler is this environment's, as the address of a `Home`.
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

/// An environment of unknown type, in which the search for a user's value continues.
///
/// Boxes may be nested to any depth, so the search is a loop over these, not a recursion.
pub(crate) struct Beneath<'a> {
    place: NonNull<()>,
    look: Look,
    _place: PhantomData<&'a ()>,
}

/// Looks in one environment: shows the value to `found`, or returns where the search continues.
///
/// The place is a valid one that the function was made for. The result is used only while the place is valid.
pub(crate) type Look = unsafe fn(NonNull<()>, TypeId, &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'static>>;

impl Beneath<'_> {
    /// # Safety
    ///
    /// `look` may be called with `place` for as long as this exists.
    #[inline]
    pub(crate) unsafe fn new(place: NonNull<()>, look: Look) -> Self {
        Beneath {
            place,
            look,
            _place: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn place(&self) -> NonNull<()> {
        self.place
    }

    #[inline]
    pub(crate) fn look(&self) -> Look {
        self.look
    }

    /// # Safety
    ///
    /// The result is not used once the place is invalid.
    unsafe fn extend(&self) -> Beneath<'static> {
        Beneath {
            place: self.place,
            look: self.look,
            _place: PhantomData,
        }
    }

    /// Searches from this environment on.
    pub(crate) fn visit(self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        // SAFETY: the place is valid while this exists, by the contract of `new`, and so is every place that the search
        // returns.
        let mut next = Some(unsafe { self.extend() });
        while let Some(beneath) = next {
            // SAFETY: the contract of `new`.
            next = unsafe { (beneath.look)(beneath.place, id, found) };
        }
    }
}

/// Looks in an environment of this type: through its door, or by `visit` where the door is closed. It is a [`Look`].
///
/// # Safety
///
/// The place is an `E`.
pub(crate) unsafe fn look_in<E: Env>(
    place: NonNull<()>,
    id: TypeId,
    found: &mut dyn FnMut(&dyn Any),
) -> Option<Beneath<'static>> {
    // SAFETY: the place is valid and of this type, by the contract.
    let env = unsafe { place.cast::<E>().as_ref() };
    match env.door().beneath {
        // SAFETY: the result is used only while the place, and so the borrow of the environment, is valid.
        Some(beneath) => Some(unsafe { beneath.extend() }),
        None => {
            env.visit(id, found);
            None
        }
    }
}

/// The empty environment: no stop, no scheduler, no values.
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

/// A change of one entry in an environment: [`WithStopToken`], [`WithScheduler`] or [`With`].
///
/// [`write_env`](crate::Sender::write_env) applies one; [`Patched`] is an environment with one applied.
pub trait Patch: Clone + Send + Sync + private::Sealed {
    /// Whether it changes the scheduler.
    const CHANGES_SCHEDULER: bool;

    /// The stop token of a patched `E`.
    type StopToken<E: Env>: StopToken;
    /// The scheduler of a patched `E`.
    type Scheduler<E: Env>: Scheduler;

    /// Returns the stop token: the patch's own, or the one beneath.
    fn stop_token<E: Env>(&self, beneath: &E) -> Self::StopToken<E>;
    /// Returns the scheduler: the patch's own, or the one beneath.
    fn scheduler<E: Env>(&self, beneath: &E) -> Self::Scheduler<E>;
}

/// A patch that replaces the stop token. [`with_stop_token`](crate::Sender::with_stop_token) adds one instead.
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

/// A patch that replaces the scheduler.
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

/// A patch that adds a value of the user's own, found by its type: see [`with_env`](crate::Sender::with_env).
///
/// Wrap the value in a type of your own, so that two libraries do not both add a `String`. Its `Clone` must not panic:
/// the process aborts where an environment is asked for. [`read_env`](crate::read_env) alone reports that panic.
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

/// An environment with one entry changed and the rest forwarded.
#[derive(Clone, Copy, Debug)]
pub struct Patched<P, E> {
    patch: P,
    beneath: E,
}

impl<P: Patch, E: Env> Patched<P, E> {
    /// Makes an environment of `beneath`, changed by `patch`.
    #[inline]
    pub fn new(patch: P, beneath: E) -> Self {
        Patched { patch, beneath }
    }

    /// # Safety
    ///
    /// The place is a valid `Self`.
    unsafe fn look(place: NonNull<()>, id: TypeId, found: &mut dyn FnMut(&dyn Any)) -> Option<Beneath<'static>> {
        // SAFETY: the place is valid and of this type, by the contract.
        let this = unsafe { place.cast::<Self>().as_ref() };
        if this.patch.show(id, found) {
            return None;
        }
        // SAFETY: it is a field of this environment, and valid as long as that.
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
            // SAFETY: the environment is borrowed for as long as the door.
            beneath: Some(unsafe { Beneath::new(NonNull::from(self).cast(), Self::look) }),
            beneath_stays: false,
            awaiting: door.awaiting,
            home: if P::CHANGES_SCHEDULER { None } else { door.home },
        }
    }
}
