//! A tuple of children: the operations of `when_all` and `when_any` over up to twelve senders.

use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use super::fan::{Fan, FanEnv};
use super::gather::{ConcludeGather, GatherChild};
use crate::sender::child::{ChildReceiver, Parent, Waiting};
use crate::sender::stage::{Stage, container_of};
use crate::{Completes, Completion, Operation, Receiver, Sender, Transfer};

/// Returns where children complete together: inline if all do. Otherwise a stop may complete the whole on any thread.
pub(super) const fn all_inline(children: &[Completes]) -> Completes {
    let mut all = Completes::Inline;
    let mut at = 0;
    while at < children.len() {
        all = all.and(children[at]);
        at += 1;
    }
    match all {
        Completes::Inline => Completes::Inline,
        _ => Completes::Anywhere,
    }
}

/// The result that a child leaves with the adaptor `G`.
type Kept<const INDEX: usize, G, S> = <G as GatherChild<INDEX, <S as Sender>::Value, <S as Sender>::Error>>::Kept;

/// Calls a macro once for every length of tuple, with the name of the operation, and a name and an index for each
/// sender.
macro_rules! for_each_tuple {
    ($macro:ident) => {
        $macro!(TupleOperation1, [A 0]);
        $macro!(TupleOperation2, [A 0, B 1]);
        $macro!(TupleOperation3, [A 0, B 1, C 2]);
        $macro!(TupleOperation4, [A 0, B 1, C 2, D 3]);
        $macro!(TupleOperation5, [A 0, B 1, C 2, D 3, E 4]);
        $macro!(TupleOperation6, [A 0, B 1, C 2, D 3, E 4, F 5]);
        $macro!(TupleOperation7, [A 0, B 1, C 2, D 3, E 4, F 5, H 6]);
        $macro!(TupleOperation8, [A 0, B 1, C 2, D 3, E 4, F 5, H 6, I 7]);
        $macro!(TupleOperation9, [A 0, B 1, C 2, D 3, E 4, F 5, H 6, I 7, J 8]);
        $macro!(TupleOperation10, [A 0, B 1, C 2, D 3, E 4, F 5, H 6, I 7, J 8, K 9]);
        $macro!(TupleOperation11, [A 0, B 1, C 2, D 3, E 4, F 5, H 6, I 7, J 8, K 9, L 10]);
        $macro!(TupleOperation12, [A 0, B 1, C 2, D 3, E 4, F 5, H 6, I 7, J 8, K 9, L 10, M 11]);
    };
}
pub(super) use for_each_tuple;

/// Defines the operation of a tuple, which starts every child, and completes when all have.
macro_rules! tuple_operation {
    ($operation:ident, [$($S:ident $index:tt),+]) => {
        /// The operation of a tuple.
        pub struct $operation<G, $($S,)+ R>
        where
            $($S: Sender, G: GatherChild<$index, $S::Value, $S::Error>,)+
            G: ConcludeGather<($(Option<Kept<$index, G, $S>>,)+)>,
            R: Receiver<G::Value, G::Error>,
        {
            /// A sender, then its operation, then its result. A stage is accessed by its running child alone.
            #[allow(clippy::type_complexity, reason = "a tuple of stages, one per child")]
            children: ($(Stage<$S, $S::Operation<ChildReceiver<Self, $index>>, Kept<$index, G, $S>>,)+),
            fan: Fan<R::Env>,
            gather: G,
            receiver: Option<R>,
            _pinned: PhantomPinned,
        }

        impl<G, $($S,)+ R> $operation<G, $($S,)+ R>
        where
            $($S: Sender, G: GatherChild<$index, $S::Value, $S::Error>,)+
            G: ConcludeGather<($(Option<Kept<$index, G, $S>>,)+)>,
            R: Receiver<G::Value, G::Error>,
        {
            #[inline]
            pub(super) fn new(senders: ($($S,)+), gather: G, receiver: R) -> Self {
                $operation {
                    children: ($(Stage::new(senders.$index),)+),
                    // SAFETY: `end` expects the fan of this operation.
                    fan: unsafe { Fan::new([$($index),+].len(), receiver.env(), Self::end) },
                    gather,
                    receiver: Some(receiver),
                    _pinned: PhantomPinned,
                }
            }

            /// # Safety
            ///
            /// The fan is that of an operation whose children and holds have all been counted.
            unsafe fn end(fan: NonNull<Fan<R::Env>>) -> Transfer {
                // SAFETY: the fan is a field of an operation. Every child has completed and no stop is being passed on,
                // so this thread has exclusive access.
                let this = unsafe { container_of!(fan, Self, fan).as_mut() };
                this.fan.close();
                match this.receiver.take() {
                    Some(receiver) => {
                        let kept = ($(this.children.$index.take_next(),)+);
                        this.gather.conclude(kept).deliver(receiver)
                    }
                    None => Transfer::none(),
                }
            }
        }

        impl<G, $($S,)+ R> Operation for $operation<G, $($S,)+ R>
        where
            $($S: Sender, G: GatherChild<$index, $S::Value, $S::Error>,)+
            G: ConcludeGather<($(Option<Kept<$index, G, $S>>,)+)>,
            R: Receiver<G::Value, G::Error>,
        {
            #[inline]
            unsafe fn start(self: Pin<&mut Self>) -> Transfer {
                // SAFETY: nothing pinned is moved: the senders are not.
                let this = NonNull::from(unsafe { self.get_unchecked_mut() });
                let listen = !all_inline(&[$($S::COMPLETES),+]).is_inline();
                // SAFETY: the fan is pinned with the operation, and closed in `end`.
                let mut resumed = unsafe { Fan::open(NonNull::new_unchecked(&raw mut (*this.as_ptr()).fan), listen) };
                // The countdown keeps the operation alive until the last child is started. Nothing is accessed after
                // that.
                $(
                    // SAFETY: the child has not been started, so this thread has exclusive access to its stage. The
                    // operation is alive until the child is counted, and the stage is pinned in it.
                    resumed.append(unsafe {
                        let stage = NonNull::new_unchecked(&raw mut (*this.as_ptr()).children.$index);
                        Stage::start_child::<Self, $index>(stage, this)
                    });
                )+
                resumed
            }
        }

        impl<G, $($S,)+ R> fmt::Debug for $operation<G, $($S,)+ R>
        where
            $($S: Sender, G: GatherChild<$index, $S::Value, $S::Error>,)+
            G: ConcludeGather<($(Option<Kept<$index, G, $S>>,)+)>,
            R: Receiver<G::Value, G::Error>,
        {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct("TupleOperation").field("fan", &self.fan).finish_non_exhaustive()
            }
        }

        tuple_operation!(@parents $operation, [$($S $index)+], [$($S $index),+]);
    };
    (@parents $operation:ident, $all:tt, [$($S:ident $index:tt),+]) => {
        $(tuple_operation!(@parent $operation, $all, $S $index);)+
    };
    (@parent $operation:ident, [$($All:ident $at:tt)+], $S:ident $index:tt) => {
        // SAFETY: the receiver is `Send`. `Gather` takes completions on any thread, by its contract. A stage is
        // accessed by its own child alone.
        unsafe impl<G, $($All,)+ R> Parent<$index> for $operation<G, $($All,)+ R>
        where
            $($All: Sender, G: GatherChild<$at, $All::Value, $All::Error>,)+
            G: ConcludeGather<($(Option<Kept<$at, G, $All>>,)+)>,
            R: Receiver<G::Value, G::Error>,
        {
            type Value = $S::Value;
            type Error = $S::Error;
            type Env = FanEnv<R::Env>;

            #[inline]
            fn env(this: &Waiting<Self>) -> Self::Env {
                // SAFETY: the child has not completed, so the fan is alive, and the environment is not used afterwards.
                unsafe { this.parent().fan.env() }
            }

            #[inline(always)]
            fn child_completed(this: Waiting<Self>, completion: Completion<$S::Value, $S::Error>) -> Transfer {
                let gather = &this.parent().gather;
                let (kept, stop) = GatherChild::<$index, $S::Value, $S::Error>::child_completed(gather, completion);
                let this = this.as_ptr().as_ptr();
                // SAFETY: the operation is alive until this child is counted, here and once. The stage is this child's,
                // whose operation accesses nothing of itself any more. `end` expects this operation's fan.
                unsafe {
                    (*this).children.$index.set_kept(kept);
                    Fan::child_completed(NonNull::new_unchecked(&raw mut (*this).fan), stop)
                }
            }
        }
    };
}

for_each_tuple!(tuple_operation);
