//! The results of children: kept until they are taken, or discarded at once; and the reaction of the group to failures.

use core::convert::Infallible;
use core::mem;
use core::ptr::NonNull;
use core::task::Waker;

use super::child::EndedChild;
use super::core::GroupCore;
use super::state::{GroupPhase, GroupState, Settled};
use crate::memory::Shareable;
use crate::report::{Report, report};
use crate::stop::Why;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::task::frame::{self, Header, Placement, Polling};
use crate::{Completion, Panic, Transfer};

/// The treatment of ended children.
#[derive(Clone, Copy, Debug)]
#[allow(unreachable_pub, reason = "it is in the sealed trait `Flavour`")]
pub struct Policy {
    /// Whether results are dropped at once.
    pub(super) discards: bool,
    /// Whether a panic of a child does not cancel the others.
    pub(super) supervises: bool,
    /// Returns whether the value at an address is a failure, which cancels the others once the body has ended.
    pub(super) fails: Option<unsafe fn(NonNull<()>) -> bool>,
}

/// The failure of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Failure {
    /// None that matters to the group.
    None = 0,
    /// An error, in a group whose children return `Result`.
    Error,
    /// A panic, in a group that is not supervised.
    Panic,
}

impl Policy {
    /// Classifies the result of a child.
    pub(super) fn failure<T>(&self, result: Option<&Completion<T, Infallible>>) -> Failure {
        match (result, self.fails) {
            (Some(Completion::Panicked(_)), _) if !self.supervises => Failure::Panic,
            // SAFETY: `Flavour<T, O>` defines the policy for children of output `T`.
            (Some(Completion::Value(value)), Some(fails)) if unsafe { fails(NonNull::from(value).cast()) } => {
                Failure::Error
            }
            _ => Failure::None,
        }
    }
}

/// The next step for a caller that wants an ended child.
pub(super) enum NextStep {
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
        if self.policy.supervises || !lock.has_panic() {
            return;
        }
        if self.take_body_wait(lock) {
            settled.body = lock.frame;
        }
        lock.wake_polling(settled);
    }

    /// Returns whether the body waited. Then the caller ends the await that was counted for that.
    pub(super) fn take_body_wait(&self, _: &mut GroupState) -> bool {
        let waits = self.body_waits.load(Relaxed);
        self.body_waits.store(false, Release);
        waits
    }

    /// Returns whether a child has panicked and the panic was not taken. If not, the body is polled when one panics.
    pub(super) fn has_panic(&self, polling: Option<Polling<'_>>, waker: &Waker) -> bool {
        if self.policy.supervises {
            return false;
        }
        // Code that polls the body with another waker is woken by it, inside a task as well.
        let is_woken = self.is_frame(frame::frame_of(waker));
        if is_woken && self.body_waits.load(Acquire) {
            return false;
        }
        let polling = self.own(polling);
        let waker = Some(waker).filter(|_| !is_woken);
        self.watch(waker, |lock| {
            let has_panic = lock.has_panic();
            if let Some(polling) = polling
                && !has_panic
                && !self.body_waits.load(Relaxed)
            {
                self.body_waits.store(true, Relaxed);
                polling.count_wait();
            }
            has_panic
        })
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
        let mut lock = self.lock_closed();
        if lock.abandoned {
            drop(lock);
            return drop(child);
        }
        let mut settled = Settled::default();
        lock.push_finished(child, true, &mut settled);
        self.note_panic(&mut lock, &mut settled);
        drop(lock);
        settled.complete().run();
    }

    /// Handles the end of a child: keeps it until its result is taken, or discards it.
    ///
    /// # Safety
    ///
    /// The child is done, listed as running, and counted. `T` is its output. The group may be freed when this returns.
    pub(super) unsafe fn end_child<T>(this: NonNull<GroupCore>, frame: NonNull<Header>, failure: Failure) -> Transfer {
        // SAFETY: the group counts the child.
        let core = unsafe { this.as_ref() };
        let (mut resumed, mut settled) = (Transfer::none(), Settled::default());
        // The destructor of a result is user code, so it runs without the lock.
        let (mut discards, mut panic) = (core.policy.discards, None);
        if discards {
            // SAFETY: the child is done, and its group owns the result.
            panic = unsafe { core.discard::<T>(frame) };
        }
        let mut lock = core.lock_closed();
        // The one place where a child cancels its siblings. An error does so once the body has ended: before that, the body decides, and
        // `close` sees to the errors of children that ended earlier. The group counts the child, and so stays alive.
        if failure == Failure::Panic || failure == Failure::Error && lock.phase != GroupPhase::Open {
            drop(lock);
            resumed.append(core.cancel(Why::SIBLING_FAILED));
            lock = core.lock_closed();
        }
        if lock.abandoned && !discards {
            drop(lock);
            discards = true;
            // SAFETY: the child is done, and its group owns the result.
            panic = unsafe { core.discard::<T>(frame) };
            lock = core.lock_closed();
        }
        // SAFETY: the child is done, and listed as running.
        let child = unsafe { lock.end_child(frame) };
        let mut dropped = None;
        if discards {
            // The group keeps the first panic. A second is user code to drop.
            if lock.panic.is_none() {
                lock.panic = panic.take();
            }
            dropped = Some((child, panic));
        } else {
            lock.push_finished(child, false, &mut settled);
        }
        core.note_panic(&mut lock, &mut settled);
        let last = lock.one_less(&mut settled);
        drop(lock);
        drop(dropped);
        // SAFETY: `last` is from `one_less`, once.
        resumed.and(unsafe { GroupCore::settle(this, settled, last) })
    }

    /// Takes the result of a child, and drops it. Returns its panic, or that of its destructor. Reports that of a single child, which no
    /// party would take.
    ///
    /// # Safety
    ///
    /// The child is done. The caller owns its result, which has this type and was not taken.
    pub(super) unsafe fn discard<T>(&self, frame: NonNull<Header>) -> Option<Panic> {
        // SAFETY: the caller's promise.
        let panic = match unsafe { Header::take_result::<Completion<T, Infallible>>(frame) } {
            Completion::Panicked(payload) => Some(payload),
            completion => Panic::catch(|| drop(completion)).err(),
        };
        if self.single.is_none() {
            return panic;
        }
        let payload = panic?;
        // SAFETY: a child without a parent has a handle. Its unit and context are in its frame, which is alive.
        let task = (self.frame.is_none()).then(|| unsafe { self.single_unit().task_of_handle() });
        report(Report::DetachedPanic {
            name: task.as_ref().and_then(|task| task.name()),
            panic: &payload,
        });
        drop(Panic::catch(|| drop(payload)));
        None
    }

    /// Carries out the consequences of a child's end, after the unlock.
    ///
    /// # Safety
    ///
    /// `last` is the result of [`GroupState::one_less`], passed on once.
    pub(super) unsafe fn settle(this: NonNull<GroupCore>, settled: Settled, last: bool) -> Transfer {
        let resumed = settled.complete();
        if !last {
            return resumed;
        }
        // SAFETY: `close` added a reference for the children, which this releases.
        unsafe {
            this.as_ref().link.leave();
            let frame = this.as_ref().frame;
            Shareable::release(this);
            match frame {
                // The await was counted when the group was closed.
                Some(frame) => resumed.and(Header::end_wait(frame, Placement::is_here)),
                None => resumed,
            }
        }
    }

    /// Takes the next of the ended children that were drained before, if that is cheap. There are many of them at a time.
    #[inline]
    pub(super) fn next_drained(&self) -> Option<EndedChild> {
        self.lock_if_biased()?.pop_finished()
    }

    /// Takes the next ended child, or returns how to wait for it.
    ///
    /// `polling` is the frame that this thread polls, if the waker is the frame's own. If it is the group's frame, and its stop
    /// reaches the children too, the frame is woken directly.
    #[inline(never)]
    pub(super) fn try_next(&self, polling: Option<Polling<'_>>) -> NextStep {
        let mut lock = self.lock();
        loop {
            if let Some(child) = lock.pop_finished() {
                return NextStep::Ended(child);
            }
            if lock.running == 0 {
                return NextStep::Nothing;
            }
            let Some(polling) = polling.filter(|polling| self.is_frame(Some(polling.frame()))) else {
                return NextStep::Listen;
            };
            if !self.outer.is_same(&polling.context().token) {
                return NextStep::Listen;
            }
            if self.inbox.is_awaited() || lock.frame_waits && !lock.is_plain() {
                return NextStep::Wait;
            }
            // Counted first: the next child ends the await.
            if !lock.frame_waits {
                polling.count_wait();
            }
            if self.policy.discards || !lock.is_plain() {
                lock.frame_waits = true;
                return NextStep::Wait;
            }
            lock.frame_waits = false;
            self.spawned.store(mem::take(&mut lock.spawned), Relaxed);
            if self.inbox.wait(&mut lock) {
                return NextStep::Wait;
            }
            // A child has ended meanwhile.
            // SAFETY: the await was counted, and the inbox does not know of it.
            unsafe { polling.uncount_wait() };
            self.inbox.drain(&mut lock);
        }
    }

    /// Stores the waker of polling code, unless what it waits for `is_ready`. Returns whether that is so.
    pub(super) fn watch(&self, waker: Option<&Waker>, is_ready: impl FnOnce(&GroupState) -> bool) -> bool {
        // A waker is user code, so it is cloned and dropped without the lock.
        let waker = waker.cloned();
        // Without a waker, only a panic is of interest, and a child that has panicked ends under the lock.
        let mut lock = if waker.is_some() {
            self.lock_closed()
        } else {
            self.lock()
        };
        let is_ready = is_ready(&lock);
        if let Some(new) = &waker
            && !is_ready
            && !lock.wakers.iter().any(|waker| waker.will_wake(new))
        {
            lock.wakers.extend(waker);
        }
        is_ready
    }
}
