//! Sharing the calls of a bulk operation among the workers of a pool.
//!
//! The worker on which the sender completes takes part, and so does every worker that takes its invitation, as [`Party`]
//! describes. Each participant claims pieces of the range until none is left. The last to leave completes the receiver.
//! No participant waits for another.

use core::cell::UnsafeCell;
use core::ops::Range;
use core::ptr::NonNull;

use super::{BulkBody, BulkOperation};
use crate::scheduler::thread_pool::{Party, Worker};
use crate::sender::stage::container_of;
use crate::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use crate::{Env, Job, Panic, Receiver, Scheduler, Sender, Transfer};

/// Returns the worker of this thread, where its pool may share the calls.
///
/// The completion may then run on another worker of the pool. So the sender must have completed on that pool. Where the sender
/// promises to stay on its scheduler, the scheduler must be that pool's.
#[inline]
pub(super) fn pool<'a, S: Sender>(env: &impl Env) -> Option<&'a Worker> {
    Worker::at_work().filter(|worker| worker.crew() > 1 && stays::<S, _>(env, worker.place()))
}

#[inline]
fn stays<S: Sender, N: Env>(env: &N, place: usize) -> bool {
    !S::COMPLETES.stays_on_scheduler()
        || !N::Scheduler::PRESENT
        || Panic::catch(|| env.scheduler().native().is_some_and(|queue| queue.pool() == place))
            .map_err(Panic::discard)
            .unwrap_or(false)
}

/// The state that participants share, besides the function and the value.
pub(super) struct Share<K> {
    party: Party,
    /// The first unclaimed index. Writers: participants, relaxed. A compare-exchange forward claims the indices that it passes; a
    /// store of the end leaves the rest out. The index orders nothing else: the effects of the calls are released when their
    /// participants leave the party.
    next: AtomicUsize,
    /// Why indices were left out: `NONE_LEFT_OUT`, then perhaps `STOPPED`, then perhaps `PANICKED`. Writers: participants, by a
    /// relaxed `fetch_max`. The one that raises it to `PANICKED` writes `panic`. Read by the last to leave the party.
    left_out: AtomicU8,
    panic: UnsafeCell<Option<Panic>>,
    /// Written before the first invitation, and dropped before the completion.
    token: Option<K>,
}

const NONE_LEFT_OUT: u8 = 0;
const STOPPED: u8 = 1;
const PANICKED: u8 = 2;

impl<K> Share<K> {
    #[inline]
    pub(super) fn new(come: unsafe fn(NonNull<Job>) -> Transfer) -> Self {
        Share {
            party: Party::new(come),
            next: AtomicUsize::new(0),
            left_out: AtomicU8::new(NONE_LEFT_OUT),
            panic: UnsafeCell::new(None),
            token: None,
        }
    }

    /// Claims the next piece.
    ///
    /// Pieces are short at the beginning and at the end, which spreads indices that cost much there. They are longer in between.
    #[inline]
    fn claim(&self, shape: usize, longest: usize, crew: usize) -> Option<Range<usize>> {
        let mut begin = self.next.load(Relaxed);
        loop {
            let left = shape - begin;
            if left == 0 {
                return None;
            }
            let end = begin + (begin.min(left) / (4 * crew)).clamp(1, longest);
            match self.next.compare_exchange_weak(begin, end, Relaxed, Relaxed) {
                Ok(_) => return Some(begin..end),
                Err(now) => begin = now,
            }
        }
    }

    /// Leaves the unclaimed indices out, because of a stop or a panic.
    #[cold]
    fn leave_out(&self, shape: usize, panic: Option<Panic>) {
        let why = if panic.is_some() { PANICKED } else { STOPPED };
        self.next.store(shape, Relaxed);
        if self.left_out.fetch_max(why, Relaxed) < why && panic.is_some() {
            // SAFETY: one participant raises `left_out` to `PANICKED`, and `called` reads after all have left.
            unsafe { *self.panic.get() = panic };
        }
    }

    /// Returns whether every index was called, or the panic. Called after all participants have left.
    fn called(&mut self) -> Result<bool, Panic> {
        self.token = None;
        match self.panic.get_mut().take() {
            Some(payload) => Err(payload),
            None => Ok(self.left_out.load(Relaxed) == NONE_LEFT_OUT),
        }
    }
}

impl<S, B, R> BulkOperation<S, B, R>
where
    S: Sender<Value: Send + Sync>,
    B: BulkBody<S::Value>,
    R: Receiver<S::Value, S::Error>,
{
    /// Begins to share the calls, on the thread of the worker, and takes part.
    pub(super) fn share(&mut self, worker: &Worker, value: S::Value, token: <R::Env as Env>::StopToken) -> Transfer {
        self.stage.set_kept(Some(value));
        self.share.token = Some(token);
        self.share.party.begin();
        // SAFETY: `begin` has made this thread a member that holds the invitation.
        unsafe { Self::take_part(NonNull::from(self), worker) }
    }

    /// Takes part, on a worker that has taken the invitation.
    ///
    /// # Safety
    ///
    /// The job is that of the invitation, taken out of a ring.
    pub(super) unsafe fn come(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is that of a party, which is a field of a `Share`, which is a field of an operation.
        let this = unsafe {
            let share = container_of!(Party::of(job), Share<<R::Env as Env>::StopToken>, party);
            container_of!(share, Self, share)
        };
        match Worker::current() {
            // SAFETY: the worker that takes the invitation is a member, and holds it.
            Some(worker) => unsafe { Self::take_part(this, worker) },
            None => unreachable!("only workers take from a ring"),
        }
    }

    /// Calls the function for pieces of the range until none is left. The last participant to leave completes the receiver.
    ///
    /// # Safety
    ///
    /// The caller is a member of the party and holds the invitation; the calling thread is that of the worker.
    unsafe fn take_part(this: NonNull<Self>, worker: &Worker) -> Transfer {
        // SAFETY: until the caller leaves the party, the operation is alive, and only its atomics change. The party's address is
        // derived from the operation's, since `come` goes back from it.
        let (operation, value, party) = unsafe {
            let party = NonNull::new_unchecked(&raw mut (*this.as_ptr()).share.party);
            (this.as_ref(), this.as_ref().stage.next(), party)
        };
        let (share, shape) = (&operation.share, operation.shape);
        let (Some(value), Some((body, _)), Some(token)) = (value, &operation.rest, &share.token) else {
            unreachable!("they were put there before the party began, and are taken when it is over");
        };
        let crew = worker.crew();
        let longest = operation.longest.min(shape / (16 * crew)).max(1);
        let claim = || share.claim(shape, longest, crew);
        let mut invited = None;
        let called = Panic::catch(|| {
            let mut next = claim();
            if next.as_ref().is_some_and(|piece| piece.end < shape) {
                // SAFETY: the caller is a member that holds the invitation, by the contract of `take_part`.
                invited = unsafe { Party::invite(party, worker) };
            }
            while let Some(piece) = next {
                if !body.call(piece, value, token) {
                    return false;
                }
                next = claim();
            }
            true
        });
        match called {
            Ok(true) => {}
            Ok(false) => share.leave_out(shape, None),
            Err(payload) => share.leave_out(shape, Some(payload)),
        }
        // SAFETY: the caller is a member, by the contract of `take_part`, and leaves once.
        if !unsafe { Party::leave(party, worker, invited) } {
            return Transfer::none();
        }
        // SAFETY: all participants have left, so this thread has exclusive access to the operation.
        let this = unsafe { &mut *this.as_ptr() };
        let called = this.share.called();
        match this.stage.take_next() {
            Some(value) => this.conclude(called, value),
            None => unreachable!("the value was kept until now"),
        }
    }
}
