//! Any number of children of one type: the arrays and iterators of `when_all` and `when_any`.

use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use super::fan::{Fan, FanEnv};
use super::gather::{First, GatherChild};
use crate::sender::child::{ChildReceiver, Parent, Waiting};
use crate::sender::stage::{Stage, container_of};
use crate::{Completion, Operation, Panic, Receiver, Sender, Transfer};

/// The senders of the children, and the storage of their operations.
pub trait Source {
    /// The type of a child.
    type Sender: Sender<Value: Send, Error: Send>;
    /// Storage for one `T` per child. Its contents do not move while it is pinned and not changed.
    type Storage<T>: AsMut<[T]>;

    /// Moves every sender into its place. It may run user code, and panic.
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
type Kept<C, G> = <G as GatherChild<0, Value<C>, Error<C>>>::Kept;

/// The function from the results of the children of a `C` to the completion of the whole.
pub trait ConcludeMany<C: Source>: GatherChild<0, Value<C>, Error<C>> {
    /// The value type of the result.
    type Value;

    /// Returns the completion. Every child has completed, or there were none.
    fn conclude(
        &mut self,
        kept: impl ExactSizeIterator<Item = Option<Kept<C, Self>>>,
    ) -> Completion<Self::Value, Error<C>>;
}

impl<C: Source> ConcludeMany<C> for First<Value<C>, Error<C>> {
    type Value = Value<C>;

    fn conclude(&mut self, _: impl ExactSizeIterator<Item = Option<Kept<C, Self>>>) -> Completion<Value<C>, Error<C>> {
        self.take()
    }
}

/// The operation that starts every child, and completes when all have.
pub struct ManyOperation<C, G, R>
where
    C: Source,
    G: ConcludeMany<C>,
    R: Receiver<<G as ConcludeMany<C>>::Value, Error<C>>,
{
    /// The source of the children, then their places.
    children: Stage<C, C::Storage<ChildPlace<C, G, R>>>,
    fan: Fan<R::Env>,
    gather: G,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

/// A child's place: its operation, then its result.
pub(super) struct ChildPlace<C, G, R>
where
    C: Source,
    G: ConcludeMany<C>,
    R: Receiver<<G as ConcludeMany<C>>::Value, Error<C>>,
{
    stage: PlaceStage<C, G, R>,
    owner: NonNull<ManyOperation<C, G, R>>,
}

type PlaceStage<C, G, R> = Stage<
    <C as Source>::Sender,
    <<C as Source>::Sender as Sender>::Operation<ChildReceiver<ChildPlace<C, G, R>, 0>>,
    Kept<C, G>,
>;

impl<C, G, R> ManyOperation<C, G, R>
where
    C: Source,
    G: ConcludeMany<C>,
    R: Receiver<<G as ConcludeMany<C>>::Value, Error<C>>,
{
    pub(crate) fn new(source: C, gather: G, receiver: R) -> Self {
        ManyOperation {
            children: Stage::new(source),
            // SAFETY: `end` expects the fan of this operation. `start` sets the number of children.
            fan: unsafe { Fan::new(0, receiver.env(), Self::end) },
            gather,
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }

    /// # Safety
    ///
    /// The fan is that of an operation whose children and holds have all been counted.
    unsafe fn end(fan: NonNull<Fan<R::Env>>) -> Transfer {
        // SAFETY: the fan is a field of an operation. Every child has completed and no stop is being passed on, so this
        // thread has exclusive access.
        let this = unsafe { container_of!(fan, Self, fan).as_mut() };
        this.fan.close();
        this.conclude()
    }

    /// Completes the receiver. Every child has completed, or there are none.
    fn conclude(&mut self) -> Transfer {
        let Some(receiver) = self.receiver.take() else {
            return Transfer::none();
        };
        let completion = match self.children.running() {
            Some(places) => {
                let kept = places.as_mut().iter_mut().map(|place| place.stage.take_next());
                self.gather.conclude(kept)
            }
            None => self.gather.conclude(core::iter::empty()),
        };
        completion.deliver(receiver)
    }
}

impl<C, G, R> Operation for ManyOperation<C, G, R>
where
    C: Source,
    G: ConcludeMany<C>,
    R: Receiver<<G as ConcludeMany<C>>::Value, Error<C>>,
{
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing pinned is moved: the senders are not.
        let this = unsafe { self.get_unchecked_mut() };
        let owner = NonNull::from(&mut *this);
        let place = |sender| ChildPlace {
            stage: Stage::new(sender),
            owner,
        };
        let Some(source) = this.children.take_sender() else {
            return Transfer::none();
        };
        match Panic::catch(|| source.into_storage(place)) {
            Ok(places) => this.children.set_running(places),
            Err(payload) => return Completion::Panicked(payload).deliver_to(this.receiver.take()),
        }
        // Raw pointers from here on: a running child has exclusive access to its place. The countdown keeps the
        // operation and its places alive until the last child is started. Nothing is accessed after that.
        let (first, count) = match this.children.running().map(AsMut::as_mut) {
            Some(places) if !places.is_empty() => (places.as_mut_ptr(), places.len()),
            _ => return this.conclude(),
        };
        this.fan.expect(count);
        let listen = !C::Sender::COMPLETES.is_inline();
        // SAFETY: no child runs yet. The fan is pinned with the operation, and closed in `end`.
        let mut resumed = unsafe { Fan::open(NonNull::new_unchecked(&raw mut (*owner.as_ptr()).fan), listen) };
        for index in 0..count {
            // SAFETY: the child has not been started, so this thread has exclusive access to its place. The operation
            // is alive until the child is counted, and the stage is pinned in it.
            resumed.append(unsafe {
                let place = NonNull::new_unchecked(first.add(index));
                Stage::start_child(NonNull::new_unchecked(&raw mut (*place.as_ptr()).stage), place)
            });
        }
        resumed
    }
}

// SAFETY: values, errors and receiver are `Send`. `Gather` takes completions on any thread, by its contract. A place is
// accessed by its own child alone.
unsafe impl<C, G, R> Parent<0> for ChildPlace<C, G, R>
where
    C: Source,
    G: ConcludeMany<C>,
    R: Receiver<<G as ConcludeMany<C>>::Value, Error<C>>,
{
    type Value = Value<C>;
    type Error = Error<C>;
    type Env = FanEnv<R::Env>;

    #[inline]
    fn env(this: &Waiting<Self>) -> Self::Env {
        // SAFETY: the child has not completed, so the owner is alive, and the environment is not used afterwards.
        unsafe { this.parent().owner.as_ref().fan.env() }
    }

    #[inline]
    fn child_completed(this: Waiting<Self>, completion: Completion<Value<C>, Error<C>>) -> Transfer {
        let owner = this.parent().owner;
        // SAFETY: the owner is alive until this child is counted, here and once. The place is this child's, whose
        // operation accesses nothing of itself any more. `end` expects the owner's fan.
        unsafe {
            let (kept, stop) = owner.as_ref().gather.child_completed(completion);
            (*this.as_ptr().as_ptr()).stage.set_kept(kept);
            Fan::child_completed(NonNull::new_unchecked(&raw mut (*owner.as_ptr()).fan), stop)
        }
    }
}

impl<C, G, R> fmt::Debug for ManyOperation<C, G, R>
where
    C: Source,
    G: ConcludeMany<C>,
    R: Receiver<<G as ConcludeMany<C>>::Value, Error<C>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManyOperation")
            .field("fan", &self.fan)
            .finish_non_exhaustive()
    }
}

impl<C, G, R> fmt::Debug for ChildPlace<C, G, R>
where
    C: Source,
    G: ConcludeMany<C>,
    R: Receiver<<G as ConcludeMany<C>>::Value, Error<C>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildPlace").finish_non_exhaustive()
    }
}
