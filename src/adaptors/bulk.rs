use core::fmt;
use core::marker::PhantomPinned;
use core::ops::Range;
use core::pin::Pin;
use core::ptr::NonNull;

use crate::sender::child::{ChildReceiver, Parent, Waiting};
use crate::sender::dismantle::dismantle;
use crate::sender::stage::Stage;
use crate::stop::StopToken;
use crate::{Completes, Completion, Env, Operation, Panic, Receiver, Sender, Transfer};

/// Sender created by [`Sender::bulk`] and [`Sender::bulk_unchunked`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Bulk<S, F> {
    sender: S,
    shape: usize,
    longest: usize,
    function: F,
}

impl<S, F> Bulk<S, F> {
    #[inline]
    pub(crate) fn new(sender: S, shape: usize, function: F) -> Self {
        Bulk {
            sender,
            shape,
            longest: LONGEST,
            function,
        }
    }

    /// The same, of which workers take one index at a time.
    #[inline]
    pub(crate) fn unchunked(sender: S, shape: usize, function: F) -> Self {
        Bulk {
            longest: 1,
            ..Bulk::new(sender, shape, function)
        }
    }
}

/// The longest piece that a worker takes: what it still calls after a panic elsewhere.
const LONGEST: usize = 1 << 16;

// SAFETY: `BulkOperation` keeps the promises. Where the work is shared out, it completes on the pool that the sender
// completed on: that of the start scheduler, unless nothing is promised.
unsafe impl<S, F> Sender for Bulk<S, F>
where
    S: Sender,
    S::Value: Send + Sync,
    F: Fn(usize, &S::Value) + Send + Sync,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES.and(Completes::OnStartScheduler);
    type Operation<R: Receiver<S::Value, S::Error>> = BulkOperation<S, EachIndex<F>, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        BulkOperation::new(
            self.sender,
            self.shape,
            self.longest,
            EachIndex(self.function),
            receiver,
        )
    }

    dismantle!(sender);
}

/// Sender created by [`Sender::bulk_chunked`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct BulkChunked<S, F> {
    sender: S,
    shape: usize,
    function: F,
}

impl<S, F> BulkChunked<S, F> {
    #[inline]
    pub(crate) fn new(sender: S, shape: usize, function: F) -> Self {
        BulkChunked {
            sender,
            shape,
            function,
        }
    }
}

// SAFETY: `BulkOperation` keeps the promises. Where the work is shared out, it completes on the pool that the sender
// completed on: that of the start scheduler, unless nothing is promised.
unsafe impl<S, F> Sender for BulkChunked<S, F>
where
    S: Sender,
    S::Value: Send + Sync,
    F: Fn(Range<usize>, &S::Value) + Send + Sync,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES.and(Completes::OnStartScheduler);
    type Operation<R: Receiver<S::Value, S::Error>> = BulkOperation<S, EachChunk<F>, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        BulkOperation::new(self.sender, self.shape, LONGEST, EachChunk(self.function), receiver)
    }

    dismantle!(sender);
}

/// What is called for a piece of the range.
pub trait BulkBody<T>: Send + Sync {
    /// How long a piece is where nobody shares.
    const PIECE: usize;

    /// Calls the function for a piece that is not empty. `false` when a stop came before the last call.
    fn call(&self, piece: Range<usize>, value: &T, token: &impl StopToken) -> bool;
}

/// A function of an index.
#[derive(Debug)]
pub struct EachIndex<F>(F);

impl<T, F: Fn(usize, &T) + Send + Sync> BulkBody<T> for EachIndex<F> {
    const PIECE: usize = usize::MAX;

    #[inline]
    fn call(&self, piece: Range<usize>, value: &T, token: &impl StopToken) -> bool {
        for index in piece {
            if token.stop_requested() {
                return false;
            }
            (self.0)(index, value);
        }
        true
    }
}

/// A function of a range.
#[derive(Debug)]
pub struct EachChunk<F>(F);

impl<T, F: Fn(Range<usize>, &T) + Send + Sync> BulkBody<T> for EachChunk<F> {
    const PIECE: usize = 1024;

    #[inline]
    fn call(&self, piece: Range<usize>, value: &T, token: &impl StopToken) -> bool {
        if token.stop_requested() {
            return false;
        }
        (self.0)(piece, value);
        true
    }
}

/// The operation of [`Bulk`] and [`BulkChunked`].
///
/// On a worker of a pool it shares the work out (see [`shared`]); elsewhere it calls the function right where the sender
/// completes.
pub struct BulkOperation<S, B, R>
where
    S: Sender<Value: Send + Sync>,
    B: BulkBody<S::Value>,
    R: Receiver<S::Value, S::Error>,
{
    /// `Next` is the value, while the work is shared. Nobody but the last to take part changes it then.
    stage: Stage<S, S::Operation<ChildReceiver<Self, 0>>, S::Value>,
    shape: usize,
    /// The longest piece that a worker takes.
    #[cfg(feature = "std")]
    longest: usize,
    /// Taken for the completion.
    rest: Option<(B, R)>,
    #[cfg(feature = "std")]
    shared: shared::Shared<<R::Env as Env>::StopToken>,
    _pinned: PhantomPinned,
}

impl<S, B, R> BulkOperation<S, B, R>
where
    S: Sender<Value: Send + Sync>,
    B: BulkBody<S::Value>,
    R: Receiver<S::Value, S::Error>,
{
    #[inline]
    fn new(sender: S, shape: usize, longest: usize, body: B, receiver: R) -> Self {
        #[cfg(not(feature = "std"))]
        let _ = longest;
        BulkOperation {
            stage: Stage::new(sender),
            shape,
            #[cfg(feature = "std")]
            longest,
            rest: Some((body, receiver)),
            #[cfg(feature = "std")]
            shared: shared::Shared::new(Self::come),
            _pinned: PhantomPinned,
        }
    }

    /// Calls the function, or has it called by the workers of a pool. The sender has completed with `value`.
    #[inline]
    fn value(&mut self, value: S::Value) -> Transfer {
        let Some((body, receiver)) = &self.rest else {
            return Transfer::none();
        };
        let env = receiver.env();
        let token = env.stop_token();
        let shape = self.shape;
        #[cfg(feature = "std")]
        if shape > 1
            && let Some(worker) = shared::pool::<S>(&env)
        {
            drop(env);
            return self.share(worker, value, token);
        }
        drop(env);
        self.stage.clear();
        let called = Panic::catch(|| {
            let mut begin = 0;
            while begin < shape {
                let end = begin.saturating_add(B::PIECE).min(shape);
                if !body.call(begin..end, &value, &token) {
                    return false;
                }
                begin = end;
            }
            true
        });
        drop(token);
        self.conclude(called, value)
    }

    /// The function was called for every index, or not for all because of a stop, or it panicked.
    ///
    /// What is not handed on goes before the completion, after which what it borrows may be gone.
    #[inline]
    fn conclude(&mut self, called: Result<bool, Panic>, value: S::Value) -> Transfer {
        let completion = match called {
            Ok(true) => Completion::Value(value),
            Ok(false) => {
                drop(value);
                Completion::Stopped
            }
            Err(payload) => {
                drop(value);
                Completion::Panicked(payload)
            }
        };
        self.complete(completion)
    }

    #[inline]
    fn complete(&mut self, completion: Completion<S::Value, S::Error>) -> Transfer {
        match self.rest.take() {
            Some((body, receiver)) => {
                drop(body);
                completion.deliver(receiver)
            }
            None => Transfer::none(),
        }
    }
}

impl<S, B, R> Operation for BulkOperation<S, B, R>
where
    S: Sender<Value: Send + Sync>,
    B: BulkBody<S::Value>,
    R: Receiver<S::Value, S::Error>,
{
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved but the sender, which is not pinned.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        // SAFETY: the stage is pinned with this operation, which is not destroyed before the receiver completes. That is
        // after the child has.
        unsafe { Stage::start_child(NonNull::new_unchecked(&raw mut (*this.as_ptr()).stage), this) }
    }
}

// SAFETY: the function, the value and the receiver are `Send`, and what several threads use at once, the function and the
// value, is `Sync`; the child's operation is only destroyed, by its own completion.
unsafe impl<S, B, R> Parent<0> for BulkOperation<S, B, R>
where
    S: Sender<Value: Send + Sync>,
    B: BulkBody<S::Value>,
    R: Receiver<S::Value, S::Error>,
{
    type Value = S::Value;
    type Error = S::Error;
    type Env = R::Env;

    #[inline]
    fn env(this: &Waiting<Self>) -> R::Env {
        match &this.parent().rest {
            Some((_, receiver)) => receiver.env(),
            None => unreachable!("the rest is taken after the child has completed"),
        }
    }

    #[inline]
    fn child_completed(this: Waiting<Self>, completion: Completion<S::Value, S::Error>) -> Transfer {
        // SAFETY: the only child has completed, and the work is not shared yet.
        let this = unsafe { this.alone() };
        match completion {
            Completion::Value(value) => this.value(value),
            other => {
                this.stage.clear();
                this.complete(other)
            }
        }
    }
}

impl<S, B, R> fmt::Debug for BulkOperation<S, B, R>
where
    S: Sender<Value: Send + Sync>,
    B: BulkBody<S::Value>,
    R: Receiver<S::Value, S::Error>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkOperation")
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// Sharing the work among the workers of a pool.
///
/// The worker on which the sender completes takes part, and so does who takes its invitation, as [`Party`] says. Each
/// claims pieces of the range until none is left. The last to leave completes the receiver. Nobody waits for anybody.
#[cfg(feature = "std")]
mod shared {
    use super::*;
    use crate::scheduler::thread_pool::{Party, Worker};
    use crate::sender::stage::container_of;
    use crate::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
    use crate::{Job, Scheduler};
    use core::cell::UnsafeCell;

    /// The pool among whose workers the work may be shared, by its worker that is here.
    ///
    /// What comes after may then find itself on another worker. So the sender must have completed on the pool, and, where
    /// it says where it completes, the pool must be that of the scheduler that it says it of.
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

    /// What those who take part share, besides the function and the value.
    pub(super) struct Shared<K> {
        party: Party,
        /// The first index that nobody has claimed. Who moves it on, by a compare and exchange, has claimed what it moved
        /// over. Set to the end to leave the rest out. It hands nothing over but numbers: what the calls did is handed over
        /// when those who made them leave the party.
        next: AtomicUsize,
        /// Why indices were left out: `NONE_LEFT_OUT`, then perhaps `STOPPED`, then perhaps `PANICKED`. It only grows. Who
        /// takes it to `PANICKED` leaves its payload in `panic`. Read by the last to leave the party.
        left_out: AtomicU8,
        panic: UnsafeCell<Option<Panic>>,
        /// Written before anybody is invited, dropped before the completion.
        token: Option<K>,
    }

    const NONE_LEFT_OUT: u8 = 0;
    const STOPPED: u8 = 1;
    const PANICKED: u8 = 2;

    impl<K> Shared<K> {
        #[inline]
        pub(super) fn new(come: unsafe fn(NonNull<Job>) -> Transfer) -> Self {
            Shared {
                party: Party::new(come),
                next: AtomicUsize::new(0),
                left_out: AtomicU8::new(NONE_LEFT_OUT),
                panic: UnsafeCell::new(None),
                token: None,
            }
        }

        /// Claims the next piece.
        ///
        /// Pieces are short at the beginning and at the end, so that indices that cost much there are spread, and longer
        /// between.
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

        /// Indices were left out: so is the rest.
        #[cold]
        fn leave_out(&self, shape: usize, panic: Option<Panic>) {
            let why = if panic.is_some() { PANICKED } else { STOPPED };
            self.next.store(shape, Relaxed);
            if self.left_out.fetch_max(why, Relaxed) < why && panic.is_some() {
                // SAFETY: one alone takes it to `PANICKED`, and nobody reads before all have left.
                unsafe { *self.panic.get() = panic };
            }
        }

        /// What became of the calls. All have left.
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
        /// Takes part in a work that begins here, on the thread of the worker.
        pub(super) fn share(
            &mut self,
            worker: &Worker,
            value: S::Value,
            token: <R::Env as Env>::StopToken,
        ) -> Transfer {
            self.stage.set_kept(Some(value));
            self.shared.token = Some(token);
            self.shared.party.begin();
            // SAFETY: the party has begun with this thread, which holds the invitation.
            unsafe { Self::take_part(NonNull::from(self), worker) }
        }

        /// Somebody has taken the invitation.
        ///
        /// # Safety
        ///
        /// The job is that of the invitation, taken out of a ring.
        pub(super) unsafe fn come(job: NonNull<Job>) -> Transfer {
            // SAFETY: the party is a field of what is shared, and that of an operation.
            let this = unsafe {
                let shared = container_of!(Party::of(job), Shared<<R::Env as Env>::StopToken>, party);
                container_of!(shared, Self, shared)
            };
            match Worker::current() {
                // SAFETY: who takes the invitation is a member.
                Some(worker) => unsafe { Self::take_part(this, worker) },
                None => unreachable!("only workers take from a ring"),
            }
        }

        /// Calls the function for pieces of the range until there are no more.
        ///
        /// # Safety
        ///
        /// The caller is a member of the party and holds the invitation; the calling thread is that of the worker.
        unsafe fn take_part(this: NonNull<Self>, worker: &Worker) -> Transfer {
            // SAFETY: until the caller leaves the party, the operation is alive and not changed, but for its atomics. The
            // party's address is made from the operation's, which it leads back to.
            let (operation, value, party) = unsafe {
                let party = NonNull::new_unchecked(&raw mut (*this.as_ptr()).shared.party);
                (this.as_ref(), this.as_ref().stage.next(), party)
            };
            let (shared, shape) = (&operation.shared, operation.shape);
            let (Some(value), Some((body, _)), Some(token)) = (value, &operation.rest, &shared.token) else {
                unreachable!("they were put there before the party began, and are taken when it is over");
            };
            let crew = worker.crew();
            let longest = operation.longest.min(shape / (16 * crew)).max(1);
            let claim = || shared.claim(shape, longest, crew);
            let mut invited = None;
            let called = Panic::catch(|| {
                let mut next = claim();
                if next.as_ref().is_some_and(|piece| piece.end < shape) {
                    // SAFETY: the caller's promise.
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
                Ok(false) => shared.leave_out(shape, None),
                Err(payload) => shared.leave_out(shape, Some(payload)),
            }
            // SAFETY: the caller's promise.
            if !unsafe { Party::leave(party, worker, invited) } {
                return Transfer::none();
            }
            // SAFETY: all have left, so this has exclusive access to the operation.
            let this = unsafe { &mut *this.as_ptr() };
            let called = this.shared.called();
            match this.stage.take_next() {
                Some(value) => this.conclude(called, value),
                None => unreachable!("the value was kept until now"),
            }
        }
    }
}
