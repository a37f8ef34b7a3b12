//! The results of children: kept until they are taken, or discarded at once.

use core::convert::Infallible;
use core::mem;
use core::ptr::NonNull;
use core::task::Waker;

use super::child::{EndedChild, EndedChildren, Finished, Member};
use super::core::{GroupCore, GroupRef};
use super::policy::Failure;
use super::state::{GroupState, Settled};
use crate::stop::Why;
use crate::sync::SpinGuard;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::task::frame::{self, Header, Placement, Polling};
use crate::{Completion, Panic, Transfer};

/// What is to be done about the next that ends.
pub(super) enum TryNext {
    /// It is there, and the caller's.
    Ended(EndedChild),
    /// There is none.
    Nothing,
    /// The frame is woken when it is there.
    Wait,
    /// It is to be waited for by an operation.
    Listen,
}

impl GroupCore {
    /// Ends the body, if it waits for something else than the panic of a child.
    fn note_panic(&self, lock: &mut GroupState, settled: &mut Settled) {
        if self.policy.supervises || lock.panics == 0 && lock.panic.is_none() {
            return;
        }
        self.has_panic.store(true, Release);
        if mem::take(&mut lock.body_waits) {
            settled.body = lock.frame;
        }
        lock.wake_polling(settled);
    }

    /// Whether a child has panicked, and the body has not seen that. If not, the body is polled when one has.
    ///
    /// `polling` is the frame of the group, if it has one. `watched` belongs to the body, and is `false` at first.
    pub(super) fn has_panic(&self, polling: Option<Polling<'_>>, watched: &mut bool, waker: &Waker) -> bool {
        if self.policy.supervises {
            return false;
        }
        // What polls the body with a waker of its own is woken, inside a task as well.
        let is_woken = self.is_frame(frame::frame_of(waker));
        if is_woken && *watched {
            return self.has_panic.load(Acquire);
        }
        // It is the user's, and so cloned and dropped while the lock is not held.
        let mut waker = (!is_woken).then(|| waker.clone());
        let mut lock = self.lock();
        if lock.panics != 0 || lock.panic.is_some() {
            return true;
        }
        // One that was noted before may have been taken since, by a child.
        self.has_panic.store(false, Relaxed);
        lock.add_waker(&mut waker);
        if let Some(polling) = self.own(polling)
            && !mem::replace(&mut lock.body_waits, true)
        {
            polling.count_wait();
        }
        *watched = true;
        false
    }

    /// Takes the first child that has panicked, of those that have ended; or the panic of one that was discarded.
    pub(super) fn take_panicked(&self) -> Option<Result<EndedChild, Panic>> {
        let mut lock = self.lock();
        match lock.panic.take() {
            Some(panic) => Some(Err(panic)),
            None => lock.pop_panicked().map(Ok),
        }
    }

    /// Takes back a child that was given out, and not taken.
    pub(super) fn put_back(&self, child: EndedChild) {
        let mut lock = self.lock();
        if lock.abandoned {
            drop(lock);
            return drop(child);
        }
        let mut settled = Settled::new();
        lock.push_finished(child, true, &mut settled);
        self.note_panic(&mut lock, &mut settled);
        drop(lock);
        settled.complete().run();
    }

    /// # Safety
    ///
    /// The frame is that of a child, and was not freed.
    unsafe fn failure(frame: NonNull<Header>) -> Failure {
        // SAFETY: the caller's promise. The unit is the first field of a member.
        unsafe { Header::unit(frame).cast::<Member>().as_ref() }.failure.get()
    }

    /// Locks the group for the end of a child. Before that, cancels the siblings of a child whose failure does so.
    ///
    /// This is the one place where a child cancels its siblings. [`close`](GroupCore::close) does it for children that ended before
    /// the body.
    fn lock_to_end(&self, failure: Failure, resumed: &mut Transfer) -> SpinGuard<'_, GroupState> {
        let lock = self.lock();
        if !failure.cancels(lock.phase) {
            return lock;
        }
        // The child is counted until it is taken out of the list, so the group stays alive.
        drop(lock);
        resumed.append(self.cancel(Why::SIBLING_FAILED));
        self.lock()
    }

    /// Keeps a child that has ended until its result is taken. `false` where results are not taken any more. Adds what is to be
    /// resumed.
    ///
    /// # Safety
    ///
    /// It is done, in the list of those that run, and was counted. The group may be gone when this returns.
    pub(super) unsafe fn keep(this: NonNull<GroupCore>, frame: NonNull<Header>, resumed: &mut Transfer) -> bool {
        let mut settled = Settled::new();
        // SAFETY: the group waits for the child, which was not freed.
        let (core, failure) = unsafe { (this.as_ref(), GroupCore::failure(frame)) };
        let mut lock = core.lock_to_end(failure, resumed);
        if lock.abandoned {
            // It was cancelled before.
            return false;
        }
        // SAFETY: the caller's promise.
        let child = unsafe { lock.end_child(frame) };
        lock.push_finished(child, false, &mut settled);
        core.note_panic(&mut lock, &mut settled);
        let last = lock.one_less(&mut settled);
        drop(lock);
        // SAFETY: as above.
        let next = unsafe { GroupCore::settle(this, &mut settled, last) };
        if !next.is_none() {
            resumed.append(next);
        }
        true
    }

    /// Drops a child that has ended, with what it gave.
    ///
    /// # Safety
    ///
    /// As above; `T` is what it gives.
    pub(super) unsafe fn discard<T>(this: NonNull<GroupCore>, frame: NonNull<Header>, resumed: &mut Transfer) {
        // SAFETY: the group waits for the child, which was not freed.
        let (core, failure) = unsafe { (this.as_ref(), GroupCore::failure(frame)) };
        // SAFETY: the caller's promise.
        let panic = match unsafe { Header::take_result::<Completion<T, Infallible>>(frame) } {
            Completion::Panicked(payload) => Some(payload),
            Completion::Value(value) => Panic::catch(|| drop(value)).err(),
            _ => None,
        };
        let mut settled = Settled::new();
        let mut lock = core.lock_to_end(failure, resumed);
        let second = if lock.panic.is_none() {
            lock.panic = panic;
            None
        } else {
            panic
        };
        core.note_panic(&mut lock, &mut settled);
        // SAFETY: the caller's promise.
        let child = unsafe { lock.end_child(frame) };
        let last = lock.one_less(&mut settled);
        drop(lock);
        drop((child, second));
        // SAFETY: as above.
        resumed.append(unsafe { GroupCore::settle(this, &mut settled, last) });
    }

    /// What follows when a child has ended, and the lock was given back.
    ///
    /// # Safety
    ///
    /// `last` is what [`GroupState::one_less`] said, this once.
    #[inline]
    pub(super) unsafe fn settle(this: NonNull<GroupCore>, settled: &mut Settled, last: bool) -> Transfer {
        if !last && settled.is_empty() {
            return Transfer::none();
        }
        // SAFETY: the caller's promise.
        unsafe { GroupCore::settle_now(this, settled, last) }
    }

    /// # Safety
    ///
    /// As for [`settle`](GroupCore::settle).
    #[inline(never)]
    unsafe fn settle_now(this: NonNull<GroupCore>, settled: &mut Settled, last: bool) -> Transfer {
        let resumed = settled.complete();
        if !last {
            return resumed;
        }
        // SAFETY: the children have a count, until this.
        unsafe {
            this.as_ref().link.leave();
            let frame = this.as_ref().frame;
            GroupCore::release(this);
            match frame {
                // It was counted when the group was closed.
                Some(frame) => resumed.and(Header::end_wait(frame, Placement::is_here)),
                None => resumed,
            }
        }
    }

    pub(super) fn take_panic(&self) -> Option<Panic> {
        self.lock().panic.take()
    }
}

impl GroupRef {
    /// The next that has ended, or what to do about it.
    ///
    /// `polling` is the frame that this thread polls, if it is that which would be woken by a waker. Where the group is in
    /// that frame, and what stops it reaches the children too, it is woken without any more ado.
    pub(super) fn try_next(&self, polling: Option<Polling<'_>>) -> TryNext {
        let mut lock = self.lock();
        if let Some(child) = lock.pop_finished() {
            return TryNext::Ended(child);
        }
        if lock.running == 0 {
            return TryNext::Nothing;
        }
        let Some(polling) = polling.filter(|polling| self.is_frame(Some(polling.frame()))) else {
            return TryNext::Listen;
        };
        if !self.outer.is_same(&polling.context().token) {
            return TryNext::Listen;
        }
        if !mem::replace(&mut lock.frame_waits, true) {
            polling.count_wait();
        }
        TryNext::Wait
    }

    /// The same for who polls: the waker is told when there is one.
    pub(super) fn poll_next(&self, waker: &Waker) -> Result<Finished, bool> {
        let mut clone = None;
        loop {
            let mut lock = self.lock();
            if let Some(child) = lock.pop_finished() {
                return Ok(Finished::new(self.clone(), child));
            }
            if lock.running == 0 {
                return Err(false);
            }
            if clone.is_some() || lock.has_waker(waker) {
                lock.add_waker(&mut clone);
                return Err(true);
            }
            drop(lock);
            // It is the user's, and so cloned and dropped while the lock is not held.
            clone = Some(waker.clone());
        }
    }
}

/// Drops children that have ended, and were taken out of the group, with what they gave.
pub(super) fn release_all(mut children: EndedChildren) {
    while let Some(child) = children.pop_front() {
        // The panic hook has reported what panics in there, and no code is left that could be told.
        drop(Panic::catch(|| drop(child)));
    }
}
