use core::convert::Infallible;
use core::fmt;
use core::marker::{PhantomData, PhantomPinned};
use core::pin::Pin;
use core::ptr::NonNull;

use crate::scheduler::PoolScheduler;
use crate::scheduler::thread_pool::{BlockingEntry, BlockingPlace, Inserted, StopResult};
use crate::sender::stage::container_of;
use crate::stop::{InplaceStopSource, InplaceStopToken, StopSlot, StopToken};
use crate::{Completion, Env, Job, Operation, Panic, Receiver, Scheduler, Sender, Transfer};

/// Makes a sender that runs a closure which may block: on a thread of the pool beside the workers.
///
/// The pool is the one whose scheduler the work was started on. A task on a pool uses that pool. A task elsewhere uses the
/// [global](crate::scheduler::ThreadPool::global) pool: on a run loop, or on the threads of another executor.
/// [`PoolScheduler::spawn_blocking`] names a pool.
///
/// ```
/// use bowline::prelude::*;
///
/// let read = Task::new(async {
///     let manifest = task::spawn_blocking(|_| std::fs::read_to_string("Cargo.toml")).await?;
///     Ok::<_, std::io::Error>(manifest.contains("[package]"))
/// });
/// assert!(sync_wait(read).unwrap().is_ok_and(|found| found));
/// ```
///
/// A closure may run until it is asked to stop. Its argument is a stop token. A closure that polls reads it, and one that
/// waits for the system is woken by a callback:
///
/// ```
/// use bowline::prelude::*;
/// use bowline::stop::with_callback;
/// use std::sync::mpsc;
///
/// let (sender, receiver) = mpsc::channel::<u32>();
/// let wait = task::spawn_blocking(move |token| {
///     // The callback drops the last sender, which ends `recv`.
///     with_callback(token, || drop(sender), || receiver.recv().ok())
/// });
/// let source = StopSource::new();
/// let stop = just_from({
///     let source = source.clone();
///     move || drop(source.request_stop())
/// });
/// let both = when_all((wait.with_stop_token(source.token()).stopped_as_option(), stop));
/// let (received, ()) = sync_wait(both).unwrap();
/// assert!(matches!(received, None | Some(None)));
/// ```
///
/// # Completions
///
/// The closure's result, on the thread that ran the closure. A task that awaits it continues on its own scheduler. Stopped, if
/// the stop was requested before the closure began.
///
/// # Panics
///
/// A panic of the closure is the completion.
///
/// # Cancellation
///
/// A closure that waits for a thread is dropped uncalled, and the sender completes stopped at once, on the thread that requests
/// the stop. A closure that runs is never abandoned: its token reads as stopped, and the sender completes with its result. So
/// does a task that awaits it. A closure that ignores its token delays the end of everything around it.
///
/// # The end of the pool
///
/// The drop of a pool waits for all closures that it has accepted, running or queued. A closure that never returns keeps the
/// pool's drop from returning. A closure for a pool that has ended runs on the global one. The drop of a pool by one of its own
/// closures returns at once.
///
/// # Threads
///
/// They are named, started on demand, reused, and end after some idle time:
/// [`blocking_threads`](crate::scheduler::ThreadPoolBuilder::blocking_threads) sets their largest number, after which closures
/// wait in order. A closure that waits for another one, by [`sync_wait`](crate::sync_wait) for instance, keeps its thread: with as
/// many such closures as threads, all of them wait for ever. If a pool has no such thread and the system refuses one, the
/// closure runs where it was started.
///
/// The closure is outside of any task, and its thread is no worker. What it schedules runs on the pool's workers.
///
/// # Allocation
///
/// None for a call: the operation is the queue's node. A new thread allocates.
pub fn spawn_blocking<F, T>(closure: F) -> SpawnBlocking<F>
where
    F: FnOnce(InplaceStopToken<'_>) -> T + Send,
{
    SpawnBlocking { pool: None, closure }
}

impl PoolScheduler {
    /// Makes a sender that runs a closure which may block, on a thread of this pool beside the workers.
    ///
    /// [`task::spawn_blocking`](crate::task::spawn_blocking) has the rules. It uses the pool that the work was started on, and
    /// this uses the pool of the handle.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::scheduler::ThreadPool;
    ///
    /// let pool = ThreadPool::new(1);
    /// let line = String::from("2 half hitches");
    /// let count = pool.scheduler().spawn_blocking(|_| line.split(' ').count());
    /// assert_eq!(sync_wait(count).unwrap(), 3);
    /// ```
    pub fn spawn_blocking<F, T>(self, closure: F) -> SpawnBlocking<F>
    where
        F: FnOnce(InplaceStopToken<'_>) -> T + Send,
    {
        SpawnBlocking {
            pool: Some(self),
            closure,
        }
    }
}

/// Sender created by [`spawn_blocking`] and [`PoolScheduler::spawn_blocking`].
#[derive(Clone, Copy)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct SpawnBlocking<F> {
    /// The pool, or `None` for the one of the receiver's environment.
    pool: Option<PoolScheduler>,
    closure: F,
}

// SAFETY: the operation does not access itself after it was inserted or listens, unless `BlockingPlace` returned it to this
// thread. Nor does it after its completion. It is `!Unpin`.
unsafe impl<F, T> Sender for SpawnBlocking<F>
where
    F: FnOnce(InplaceStopToken<'_>) -> T + Send,
{
    type Value = T;
    type Error = Infallible;
    type Operation<R: Receiver<T, Infallible>> = SpawnBlockingOperation<F, T, R>;

    fn connect<R: Receiver<T, Infallible>>(self, receiver: R) -> Self::Operation<R> {
        SpawnBlockingOperation {
            entry: BlockingEntry::new(SpawnBlockingOperation::<F, T, R>::run),
            pool: self.pool,
            place: None,
            slot: StopSlot::new(SpawnBlockingOperation::<F, T, R>::stop_requested),
            source: InplaceStopSource::new(),
            parts: Some((self.closure, receiver)),
            _value: PhantomData,
            _pinned: PhantomPinned,
        }
    }
}

impl<F> fmt::Debug for SpawnBlocking<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnBlocking")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// The operation of [`SpawnBlocking`].
///
/// The states of the entry say which thread completes the operation: see `BlockingState`. That thread has exclusive access to
/// `parts`. The stop callback accesses `place`, which is written before it listens, and `source`, until it releases its slot.
pub struct SpawnBlockingOperation<F, T, R: Receiver<T, Infallible>> {
    entry: BlockingEntry,
    pool: Option<PoolScheduler>,
    /// The pool that has the entry. `None` if the driver of the start runs the job.
    place: Option<BlockingPlace>,
    slot: StopSlot<<R::Env as Env>::StopToken>,
    /// The source of the closure's token.
    source: InplaceStopSource,
    parts: Option<(F, R)>,
    _value: PhantomData<fn() -> T>,
    _pinned: PhantomPinned,
}

impl<F, T, R> SpawnBlockingOperation<F, T, R>
where
    F: FnOnce(InplaceStopToken<'_>) -> T + Send,
    R: Receiver<T, Infallible>,
{
    /// Returns the pool of an environment, if its scheduler is one.
    fn pool_of(env: &R::Env) -> Option<PoolScheduler> {
        env.scheduler().native()?.downcast().copied()
    }

    /// Drops the closure uncalled, and completes stopped.
    fn stopped(parts: Option<(F, R)>) -> Transfer {
        // The closure is dropped first, since it may borrow what the completion frees.
        let receiver = parts.map(|(closure, receiver)| {
            drop(closure);
            receiver
        });
        Completion::Stopped.deliver_to(receiver)
    }

    /// # Safety
    ///
    /// `job` is the job of an operation whose closure has begun, and runs once.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        let entry = job.cast::<BlockingEntry>();
        // SAFETY: the job is the first field of an entry, which is a field of an operation. Its state gives this function
        // exclusive access to the parts.
        let (this, parts) = unsafe {
            let this = container_of!(entry, Self, entry).as_ptr();
            (this, (*this).parts.take())
        };
        // SAFETY: the operation is valid until the receiver completes, below. The stop callback accesses these fields by
        // shared references, too.
        let (slot, source) = unsafe { (&(*this).slot, &(*this).source) };
        let Some((closure, receiver)) = parts else {
            return Transfer::none();
        };
        let completion = if slot.has_fired() {
            drop(closure);
            Completion::Stopped
        } else {
            match Panic::catch(|| closure(source.token())) {
                Ok(value) => Completion::Value(value),
                Err(payload) => Completion::Panicked(payload),
            }
        };
        // Waits for a callback that is passing the stop on. What the closure has registered with its token is withdrawn by now,
        // unless it was leaked.
        slot.leave();
        receiver.set_completion(completion)
    }

    /// # Safety
    ///
    /// `slot` is the field of a started operation.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of an operation, which is valid until the slot's release. The place was written before the
        // slot listened. If the entry was removed, this function has exclusive access to the parts.
        unsafe {
            let this = container_of!(slot, Self, slot).as_ptr();
            let entry = NonNull::new_unchecked(&raw mut (*this).entry);
            let stop = (*this).place.map_or(StopResult::Begun, |place| place.stop(entry));
            let (parts, resumed) = match stop {
                StopResult::Removed => ((*this).parts.take(), Transfer::none()),
                StopResult::Early => (None, Transfer::none()),
                StopResult::Begun => (None, (*this).source.request_stop_later()),
            };
            slot.as_ref().release();
            if stop == StopResult::Removed {
                Self::stopped(parts)
            } else {
                resumed
            }
        }
    }
}

impl<F, T, R> Operation for SpawnBlockingOperation<F, T, R>
where
    F: FnOnce(InplaceStopToken<'_>) -> T + Send,
    R: Receiver<T, Infallible>,
{
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: only the parts are moved, and they are not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        let Some((_, receiver)) = &this.parts else {
            return Transfer::none();
        };
        let env = receiver.env();
        let token = env.stop_token();
        if token.stop_requested() {
            return Self::stopped(this.parts.take());
        }
        // A scheduler of the user's may panic.
        let pool = match this.pool {
            None => Panic::catch(|| Self::pool_of(&env)),
            named => Ok(named),
        };
        drop(env);
        let pool = match pool {
            Ok(pool) => pool,
            Err(payload) => {
                let receiver = this.parts.take().map(|(closure, receiver)| {
                    drop(closure);
                    receiver
                });
                return Completion::Panicked(payload).deliver_to(receiver);
            }
        };
        // The pool is known, and stays open, before a stop looks for the entry there.
        let place = BlockingPlace::admit(pool);
        this.place = place;
        let this = NonNull::from(this).as_ptr();
        // SAFETY: the slot is pinned with the operation, and left or released before the operation completes.
        let listens = unsafe { StopSlot::listen(NonNull::new_unchecked(&raw mut (*this).slot), token) };
        // SAFETY: the address of a field is not null.
        let entry = unsafe { NonNull::new_unchecked(&raw mut (*this).entry) };
        if !listens {
            if let Some(place) = place {
                place.withdraw();
            }
            // SAFETY: the slot does not listen and the entry was not inserted, so no other thread knows the operation.
            return Self::stopped(unsafe { (*this).parts.take() });
        }
        // SAFETY: the entry is pinned with the operation, which its job or the stop that removes it completes.
        match place.map_or(Inserted::Begun, |place| unsafe { place.insert(entry) }) {
            Inserted::Queued => Transfer::none(),
            // SAFETY: the job is the first field of the entry, which is in no queue. The operation is valid until it has run.
            Inserted::Begun => unsafe { Transfer::to(entry.cast()) },
            Inserted::Stopped => {
                // SAFETY: the callback came first, and left the completion to this function. After `leave` it has exclusive
                // access.
                let parts = unsafe {
                    (*this).slot.leave();
                    (*this).parts.take()
                };
                Self::stopped(parts)
            }
        }
    }
}

crate::opaque!([F, T, R: Receiver<T, Infallible>] SpawnBlockingOperation<F, T, R>);
