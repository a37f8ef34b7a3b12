//! Any number of children of one type: the arrays and iterators of `when_all` and `when_any`.

use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use super::fan::{Fan, FanEnv};
use crate::sender::child::{ChildReceiver, Parent};
use crate::sender::stage::{Stage, container_of};
use crate::{Completion, Operation, Panic, Receiver, Sender, Transfer};

/// What such an adaptor makes of its children's completions.
///
/// # Safety
///
/// `child_completed` is called on any thread, by several at once. What it keeps in the policy it keeps soundly.
pub unsafe trait Policy<T, E> {
    /// What a child leaves in its place.
    type Kept;
    /// The value that comes out in the end.
    type Value;

    /// A child has completed. What it leaves, and whether the others are asked to stop.
    fn child_completed(&self, completion: Completion<T, E>) -> (Option<Self::Kept>, bool);

    /// Every child has completed, or there were none.
    fn conclude(&mut self, kept: impl ExactSizeIterator<Item = Option<Self::Kept>>) -> Completion<Self::Value, E>;
}

/// Where the children come from, and where they are kept.
pub trait Source {
    /// What they are.
    type Sender: Sender<Value: Send, Error: Send>;
    /// Storage for one `T` per child, which does not move its contents when it is itself pinned or left alone.
    type Storage<T>: AsMut<[T]>;

    /// Puts every sender into its place. It may run user code, and panic.
    fn into_storage<T>(self, place: impl FnMut(Self::Sender) -> T) -> Self::Storage<T>;
}

impl<S: Sender<Value: Send, Error: Send>, const N: usize> Source for [S; N] {
    type Sender = S;
    type Storage<T> = [T; N];

    #[inline]
    fn into_storage<T>(self, place: impl FnMut(S) -> T) -> [T; N] {
        self.map(place)
    }
}

/// An iterator of senders, run when the operation starts.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug)]
pub struct FromIter<I>(pub(super) I);

#[cfg(feature = "alloc")]
impl<I> Source for FromIter<I>
where
    I: IntoIterator<Item: Sender<Value: Send, Error: Send>>,
{
    type Sender = I::Item;
    type Storage<T> = alloc::vec::Vec<T>;

    fn into_storage<T>(self, place: impl FnMut(I::Item) -> T) -> alloc::vec::Vec<T> {
        self.0.into_iter().map(place).collect()
    }
}

type Value<C> = <<C as Source>::Sender as Sender>::Value;
type Error<C> = <<C as Source>::Sender as Sender>::Error;

/// Starts every child, and completes when all have.
pub struct ManyOperation<C, P, R>
where
    C: Source,
    P: Policy<Value<C>, Error<C>>,
    R: Receiver<P::Value, Error<C>>,
{
    /// Where they come from, then their places.
    children: Stage<C, C::Storage<Place<C, P, R>>>,
    fan: Fan<R::Env>,
    policy: P,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

/// A child's place: its operation, then what it left.
pub(super) struct Place<C, P, R>
where
    C: Source,
    P: Policy<Value<C>, Error<C>>,
    R: Receiver<P::Value, Error<C>>,
{
    stage: PlaceStage<C, P, R>,
    owner: NonNull<ManyOperation<C, P, R>>,
}

type PlaceStage<C, P, R> = Stage<
    <C as Source>::Sender,
    <<C as Source>::Sender as Sender>::Operation<ChildReceiver<Place<C, P, R>, 0>>,
    <P as Policy<Value<C>, Error<C>>>::Kept,
>;

impl<C, P, R> ManyOperation<C, P, R>
where
    C: Source,
    P: Policy<Value<C>, Error<C>>,
    R: Receiver<P::Value, Error<C>>,
{
    pub(crate) fn new(source: C, policy: P, receiver: R) -> Self {
        ManyOperation {
            children: Stage::Sender(source),
            // SAFETY: `end` expects the fan of this operation. How many children there are is known in `start`.
            fan: unsafe { Fan::new(0, receiver.env(), Self::end) },
            policy,
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }

    /// # Safety
    ///
    /// The fan is that of an operation whose every child has completed.
    unsafe fn end(fan: NonNull<Fan<R::Env>>) -> Transfer {
        // SAFETY: the fan is a field of an operation.
        let this = unsafe { container_of!(fan, Self, fan) };
        // SAFETY: every child has completed and no stop is on its way, so nobody else touches the operation.
        let this = unsafe { &mut *this.as_ptr() };
        this.fan.close();
        // SAFETY: every child has completed, so its place is its own again.
        unsafe { Self::conclude(this) }
    }

    /// # Safety
    ///
    /// Every child has completed, or there are none.
    unsafe fn conclude(this: &mut Self) -> Transfer {
        let Some(receiver) = this.receiver.take() else {
            return Transfer::none();
        };
        let completion = match &mut this.children {
            Stage::Running(places) => this.policy.conclude(places.as_mut().iter_mut().map(|place| {
                // What a child left is not pinned.
                match core::mem::replace(&mut place.stage, Stage::Empty) {
                    Stage::Next(kept) => Some(kept),
                    _ => None,
                }
            })),
            _ => this.policy.conclude(core::iter::empty()),
        };
        completion.deliver(receiver)
    }
}

impl<C, P, R> Operation for ManyOperation<C, P, R>
where
    C: Source,
    P: Policy<Value<C>, Error<C>>,
    R: Receiver<P::Value, Error<C>>,
{
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved but the senders, which are not pinned.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        let place = |sender| Place {
            stage: Stage::Sender(sender),
            owner: this,
        };
        // SAFETY: no child runs yet.
        let children = unsafe { &raw mut (*this.as_ptr()).children };
        // SAFETY: it is the first start, so the senders are still there.
        let source = unsafe { Stage::take_sender(children) };
        let places = match Panic::catch(|| source.into_storage(place)) {
            Ok(places) => places,
            Err(payload) => {
                // SAFETY: no child runs.
                return match unsafe { (*this.as_ptr()).receiver.take() } {
                    Some(receiver) => receiver.set_panicked(payload),
                    None => Transfer::none(),
                };
            }
        };
        // SAFETY: the stage is empty, and pinned with this operation.
        let places = unsafe { Pin::get_unchecked_mut(Stage::set_running(children, places)) }.as_mut();
        if places.is_empty() {
            // SAFETY: there are no children.
            return unsafe { Self::conclude(&mut *this.as_ptr()) };
        }
        // SAFETY: no child runs yet. The fan is pinned with the operation, and closed in `end`.
        let mut resumed = unsafe {
            (*this.as_ptr()).fan.expect(places.len());
            let listen = !C::Sender::COMPLETES.is_inline();
            Fan::open(NonNull::new_unchecked(&raw mut (*this.as_ptr()).fan), listen)
        };
        // Raw from here on: a child that runs has its place to itself. The countdown keeps the operation, and so the
        // places, until the last child was started; after that nothing is touched.
        let (first, count) = (places.as_mut_ptr(), places.len());
        for index in 0..count {
            // SAFETY: the child has not been started, so its place is ours, and the operation is alive until it
            // completes. It is pinned, started once, and destroyed in its completion.
            resumed.append(unsafe {
                let place = NonNull::new_unchecked(first.add(index));
                let stage = &raw mut (*place.as_ptr()).stage;
                let sender = Stage::take_sender(stage);
                let receiver = ChildReceiver::<Place<C, P, R>, 0>::new(place);
                Stage::set_running(stage, sender.connect(receiver)).start()
            });
        }
        resumed
    }
}

// SAFETY: values, errors and receiver are `Send`, and the policy takes completions on any thread, by its promise; a
// place is touched by its own child alone.
unsafe impl<C, P, R> Parent<0> for Place<C, P, R>
where
    C: Source,
    P: Policy<Value<C>, Error<C>>,
    R: Receiver<P::Value, Error<C>>,
{
    type Value = Value<C>;
    type Error = Error<C>;
    type Env = FanEnv<R::Env>;

    #[inline]
    unsafe fn env(this: NonNull<Self>) -> Self::Env {
        // SAFETY: the child has not completed, so the owner is alive, and the environment not used after.
        unsafe { (*(*this.as_ptr()).owner.as_ptr()).fan.env() }
    }

    #[inline]
    unsafe fn child_completed(this: NonNull<Self>, completion: Completion<Value<C>, Error<C>>) -> Transfer {
        // SAFETY: the owner, and so this place, is alive until this child is counted.
        let (stage, fan, policy) = unsafe {
            let owner = (*this.as_ptr()).owner.as_ptr();
            (
                &raw mut (*this.as_ptr()).stage,
                NonNull::new_unchecked(&raw mut (*owner).fan),
                &(*owner).policy,
            )
        };
        let (kept, stop) = policy.child_completed(completion);
        // SAFETY: the place is this child's, and its operation touches nothing of itself any more.
        unsafe {
            match kept {
                Some(kept) => drop(Stage::set_next(stage, kept)),
                None => Stage::clear(stage),
            }
        }
        // SAFETY: as above.
        let fan_ref = unsafe { fan.as_ref() };
        let resumed = if stop { fan_ref.stop() } else { Transfer::none() };
        if fan_ref.child_done() {
            // SAFETY: that was the last.
            resumed.and(unsafe { ManyOperation::<C, P, R>::end(fan) })
        } else {
            resumed
        }
    }
}

impl<C, P, R> fmt::Debug for ManyOperation<C, P, R>
where
    C: Source,
    P: Policy<Value<C>, Error<C>>,
    R: Receiver<P::Value, Error<C>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManyOperation")
            .field("fan", &self.fan)
            .finish_non_exhaustive()
    }
}

impl<C, P, R> fmt::Debug for Place<C, P, R>
where
    C: Source,
    P: Policy<Value<C>, Error<C>>,
    R: Receiver<P::Value, Error<C>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}
