//! Any number of children of one type: the arrays and iterators of `when_all` and `when_any`.

use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use super::fan::{Fan, FanEnv};
use super::gather::{First, Gather};
use crate::sender::child::{ChildReceiver, Parent};
use crate::sender::stage::{Stage, container_of};
use crate::{Completion, Operation, Panic, Receiver, Sender, Transfer};

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
type Kept<C, G> = <G as Gather<0, Value<C>, Error<C>>>::Kept;

/// Makes the completion of the whole, from what the children of a `C` left.
pub trait ConcludeMany<C: Source>: Gather<0, Value<C>, Error<C>> {
    /// The value that comes out in the end.
    type Value;

    /// Every child has completed, or there were none.
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

/// Starts every child, and completes when all have.
pub struct ManyOperation<C, G, R>
where
    C: Source,
    G: ConcludeMany<C>,
    R: Receiver<<G as ConcludeMany<C>>::Value, Error<C>>,
{
    /// Where they come from, then their places.
    children: Stage<C, C::Storage<Place<C, G, R>>>,
    fan: Fan<R::Env>,
    gather: G,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

/// A child's place: its operation, then what it left.
pub(super) struct Place<C, G, R>
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
    <<C as Source>::Sender as Sender>::Operation<ChildReceiver<Place<C, G, R>, 0>>,
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
            children: Stage::Sender(source),
            // SAFETY: `end` expects the fan of this operation. How many children there are is known in `start`.
            fan: unsafe { Fan::new(0, receiver.env(), Self::end) },
            gather,
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
            Stage::Running(places) => {
                let kept = places.as_mut().iter_mut().map(|place| place.stage.take_next());
                this.gather.conclude(kept)
            }
            _ => this.gather.conclude(core::iter::empty()),
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
                let receiver = ChildReceiver::<Place<C, G, R>, 0>::new(place);
                Stage::set_running(stage, sender.connect(receiver)).start()
            });
        }
        resumed
    }
}

// SAFETY: values, errors and receiver are `Send`, and the gathering takes completions on any thread, by its promise; a
// place is touched by its own child alone.
unsafe impl<C, G, R> Parent<0> for Place<C, G, R>
where
    C: Source,
    G: ConcludeMany<C>,
    R: Receiver<<G as ConcludeMany<C>>::Value, Error<C>>,
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
        let (stage, fan, gather) = unsafe {
            let owner = (*this.as_ptr()).owner.as_ptr();
            (
                &raw mut (*this.as_ptr()).stage,
                NonNull::new_unchecked(&raw mut (*owner).fan),
                &(*owner).gather,
            )
        };
        let (kept, stop) = gather.child_completed(completion);
        // SAFETY: the place is this child's, whose operation touches nothing of itself any more; it is counted once,
        // and `end` expects the owner's fan.
        unsafe {
            Stage::set_kept(stage, kept);
            Fan::child_completed(fan, stop)
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

impl<C, G, R> fmt::Debug for Place<C, G, R>
where
    C: Source,
    G: ConcludeMany<C>,
    R: Receiver<<G as ConcludeMany<C>>::Value, Error<C>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}
