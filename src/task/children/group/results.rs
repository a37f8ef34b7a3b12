//! The results of children: kept until they are taken, or discarded at once.

use core::convert::Infallible;
use core::mem;
use core::ptr::NonNull;
use core::task::Waker;

use super::child::{EndedChild, EndedChildren, Finished};
use super::core::{GroupCore, GroupRef};
use super::policy::Failure;
use super::state::{GroupState, Settled};
use crate::stop::Why;
use crate::sync::SpinGuard;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::task::frame::{self, Header, Placement, Polling};
use crate::{Completion, Panic, Transfer};

/// The next step for a caller that wants an ended child.
pub(super) enum TryNext {
    /// A child, owned by the caller.
    Ended(EndedChild),
    /// No child is left.
    Nothing,
    /// The frame will be woken when a child has ended.
    Wait,
    /// An operation has to wait for it.
    Listen,
}

impl GroupCore {
    /// Ends the body, if a child has panicked and the body waits for something else.
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

    /// Returns whether a child has panicked without the body's knowledge. If not, the body is polled when one panics.
    ///
    /// `watched` belongs to the body, and is `false` at first.
    pub(super) fn has_panic(&self, polling: Option<Polling<'_>>, watched: &mut bool, waker: &Waker) -> bool {
        if self.policy.supervises {
            return false;
        }
        // Code that polls the body with another waker is woken by it, inside a task as well.
        let is_woken = self.is_frame(frame::frame_of(waker));
        if is_woken && *watched {
            return self.has_panic.load(Acquire);
        }
        // A waker is user code, so it is cloned and dropped without the lock.
        let mut waker = (!is_woken).then(|| waker.clone());
        let mut lock = self.lock();
        if lock.panics != 0 || lock.panic.is_some() {
            return true;
        }
        // A child may have taken an earlier panic since.
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

    /// Takes the first ended child that has panicked, or the panic of a discarded one.
    pub(super) fn take_panicked(&self) -> Option<Result<EndedChild, Panic>> {
        let mut lock = self.lock();
        match lock.panic.take() {
            Some(panic) => Some(Err(panic)),
            None => lock.pop_panicked().map(Ok),
        }
    }

    /// Returns a child that was assigned but not taken to the group.
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

    /// Locks the group for the end of a child. Before that, cancels the siblings of a child whose failure does so.
    ///
    /// This is the one place where a child cancels its siblings. [`close`](GroupCore::close) does it for children that ended before
    /// the body.
    fn lock_to_end(&self, failure: Failure, resumed: &mut Transfer) -> SpinGuard<'_, GroupState> {
        let lock = self.lock();
        if !failure.cancels(lock.phase) {
            return lock;
        }
        // The group counts the child until `one_less`, and so stays alive.
        drop(lock);
        resumed.append(self.cancel(Why::SIBLING_FAILED));
        self.lock()
    }

    /// Keeps an ended child until its result is taken. Returns `false` if results are no longer taken. Appends the frames to
    /// resume.
    ///
    /// # Safety
    ///
    /// The child is done, listed as running, and counted. The group may be freed when this returns.
    pub(super) unsafe fn keep(
        this: NonNull<GroupCore>,
        frame: NonNull<Header>,
        failure: Failure,
        resumed: &mut Transfer,
    ) -> bool {
        // SAFETY: the group counts the child.
        let core = unsafe { this.as_ref() };
        let mut settled = Settled::new();
        let mut lock = core.lock_to_end(failure, resumed);
        if lock.abandoned {
            return false;
        }
        // SAFETY: the child is done, and listed as running.
        let child = unsafe { lock.end_child(frame) };
        lock.push_finished(child, false, &mut settled);
        core.note_panic(&mut lock, &mut settled);
        let last = lock.one_less(&mut settled);
        drop(lock);
        // SAFETY: `last` is from `one_less`, once.
        let next = unsafe { GroupCore::settle(this, &mut settled, last) };
        if !next.is_none() {
            resumed.append(next);
        }
        true
    }

    /// Discards an ended child with its result.
    ///
    /// # Safety
    ///
    /// The contract of [`keep`](GroupCore::keep); `T` is the child's output.
    pub(super) unsafe fn discard<T>(
        this: NonNull<GroupCore>,
        frame: NonNull<Header>,
        failure: Failure,
        resumed: &mut Transfer,
    ) {
        // SAFETY: the group counts the child.
        let core = unsafe { this.as_ref() };
        // The destructor is user code, so it runs before the lock is taken.
        // SAFETY: the child is done, and its group owns the result, of type `T`.
        let panic = match unsafe { Header::take_result::<Completion<T, Infallible>>(frame) } {
            Completion::Panicked(payload) => Some(payload),
            Completion::Value(value) => Panic::catch(|| drop(value)).err(),
            _ => None,
        };
        let mut settled = Settled::new();
        let mut lock = core.lock_to_end(failure, resumed);
        // The group keeps the first panic. A second is user code to drop, after the unlock.
        let second = if lock.panic.is_none() {
            lock.panic = panic;
            None
        } else {
            panic
        };
        core.note_panic(&mut lock, &mut settled);
        // SAFETY: the child is done, and listed as running.
        let child = unsafe { lock.end_child(frame) };
        let last = lock.one_less(&mut settled);
        drop(lock);
        drop((child, second));
        // SAFETY: `last` is from `one_less`, once.
        resumed.append(unsafe { GroupCore::settle(this, &mut settled, last) });
    }

    /// Carries out the consequences of a child's end, after the unlock.
    ///
    /// # Safety
    ///
    /// `last` is the result of [`GroupState::one_less`], passed on once.
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
    /// The contract of [`settle`](GroupCore::settle).
    #[inline(never)]
    unsafe fn settle_now(this: NonNull<GroupCore>, settled: &mut Settled, last: bool) -> Transfer {
        let resumed = settled.complete();
        if !last {
            return resumed;
        }
        // SAFETY: `close` added a reference for the children, which this releases.
        unsafe {
            this.as_ref().link.leave();
            let frame = this.as_ref().frame;
            GroupCore::release(this);
            match frame {
                // The await was counted when the group was closed.
                Some(frame) => resumed.and(Header::end_wait(frame, Placement::is_here)),
                None => resumed,
            }
        }
    }
}

impl GroupRef {
    /// Takes the next ended child, or returns how to wait for it.
    ///
    /// `polling` is the frame that this thread polls, if the waker is the frame's own. If it is the group's frame, and its stop
    /// reaches the children too, the frame is woken directly.
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

    /// Polls for the next ended child: the waker is woken when there is one.
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
            // A waker is user code, so it is cloned and dropped without the lock.
            clone = Some(waker.clone());
        }
    }
}

/// Drops ended children that were removed from the group, with their results.
pub(super) fn release_all(mut children: EndedChildren) {
    while let Some(child) = children.pop_front() {
        // A panic went through the panic hook; no caller can receive it.
        drop(Panic::catch(|| drop(child)));
    }
}
