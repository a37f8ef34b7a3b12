//! What a group keeps under its lock: its children, those that have ended, and who waits for them.
//!
//! The lock is held for a few instructions, and never while code of the user's runs. What follows from a change is collected in
//! a [`Settled`] and done when the lock was released.

use core::mem;
use core::ptr::NonNull;
use core::task::Waker;
use std::vec::Vec;

use super::child::{ChildFrame, EndedChild, EndedChildren};
use super::policy::Failure;
use super::wait::{Given, GroupWaiter, WaitFor};
use crate::memory::{Linked, List};
use crate::task::frame::Header;
use crate::{Panic, Priority, Transfer};

pub(super) struct GroupState {
    pub(super) phase: GroupPhase,
    /// The frame that the group is in, if any.
    pub(super) frame: Option<NonNull<Header>>,
    /// Children that have not ended, and places that are kept for some.
    pub(super) running: usize,
    /// How many have ended whose results were not taken; and how many of these are errors, and panics.
    pub(super) finished: usize,
    pub(super) errors: usize,
    pub(super) panics: usize,
    /// No more than this many run at a time, as far as those go that wait for room.
    pub(super) limit: usize,
    /// Results are not taken any more.
    pub(super) abandoned: bool,
    children: List<ChildFrame>,
    ended: EndedChildren,
    /// What the children were raised to, and those are that come later.
    pub(super) floor: Option<Priority>,
    /// Where those are that raise the children, one after the other.
    cursors: *mut Cursor,
    pub(super) waiters: Queues,
    /// The frame that the group is in waits for the next that ends, and has counted an await for that. The thread that clears
    /// this ends the await.
    pub(super) frame_waits: bool,
    /// The same for the body, which waits for something and is to be ended by the panic of a child.
    pub(super) body_waits: bool,
    /// Who polls: for results, or for the end where that is not the frame.
    pub(super) wakers: Vec<Waker>,
    /// The first panic that was not kept as a result.
    pub(super) panic: Option<Panic>,
}

/// ```text
/// Open ──the body has ended──▶ Closed ──no child runs──▶ Over
/// ```
///
/// A closed group still takes children, of those that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupPhase {
    Open,
    Closed,
    Over,
}

/// A way through the children that run, which do not wait for it. It is on the stack of the thread that goes it, and under the
/// lock.
pub(super) struct Cursor {
    /// The child that is next, or null at the end.
    child: *mut ChildFrame,
    /// The next of those that are on their way as well.
    next: *mut Cursor,
}

/// Those that wait, for each [`WaitFor`] by itself: none is looked for among those that wait for something else.
pub(super) struct Queues([List<GroupWaiter>; 3]);

impl Queues {
    /// # Safety
    ///
    /// As for [`List::push_back`].
    pub(super) unsafe fn push(&mut self, waiter: NonNull<GroupWaiter>) {
        // SAFETY: the caller's promise.
        unsafe { self.0[waiter.as_ref().kind as usize].push_back(waiter) };
    }

    /// # Safety
    ///
    /// The waiter is in one of these.
    pub(super) unsafe fn remove(&mut self, waiter: NonNull<GroupWaiter>) {
        // SAFETY: the caller's promise; it is in that of its kind.
        unsafe { self.0[waiter.as_ref().kind as usize].remove(waiter) };
    }

    /// Takes the first that waits for this.
    #[inline]
    fn pop(&mut self, kind: WaitFor) -> Option<NonNull<GroupWaiter>> {
        self.0[kind as usize].pop_front()
    }

    /// Takes the first of any.
    #[inline]
    fn pop_any(&mut self) -> Option<NonNull<GroupWaiter>> {
        self.0.iter_mut().find_map(List::pop_front)
    }
}

/// What is to be done when the lock was released.
#[must_use]
pub(super) struct Settled {
    /// Those that were granted something: in no list of the group, linked as they were there.
    granted: List<GroupWaiter>,
    /// The frame that waits for one that ends, if it does.
    frame: Option<NonNull<Header>>,
    /// The same for the one whose body is to be ended.
    pub(super) body: Option<NonNull<Header>>,
    /// Who polls.
    pub(super) woken: Vec<Waker>,
}

impl Settled {
    pub(super) fn new() -> Self {
        Settled {
            granted: List::new(),
            frame: None,
            body: None,
            woken: Vec::new(),
        }
    }

    /// Gives a waiter that was taken out of its queue what it waited for.
    fn grant(&mut self, waiter: NonNull<GroupWaiter>, given: Given) {
        // SAFETY: it was taken out of its queue under the lock, and so is alive until it is completed.
        unsafe {
            waiter.as_ref().give(given);
            self.granted.push_back(waiter);
        }
    }

    /// Whether there is nothing to be done, as for most children of many.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.frame.is_none() && self.body.is_none() && self.woken.is_empty()
    }

    pub(super) fn complete(&mut self) -> Transfer {
        let mut resumed = Transfer::none();
        while let Some(waiter) = self.granted.pop_front() {
            // SAFETY: it was taken out of the group's queue, under the lock.
            resumed.append(unsafe { GroupWaiter::complete(waiter) });
        }
        if let Some(frame) = self.frame {
            // SAFETY: it has counted an await for this.
            resumed.append(unsafe { Header::end_wait_for_child(frame) });
        }
        if let Some(frame) = self.body {
            // SAFETY: as above.
            resumed.append(unsafe { Header::end_wait(frame, |_| false) });
        }
        for waker in mem::take(&mut self.woken) {
            waker.wake();
        }
        resumed
    }
}

impl GroupState {
    pub(super) fn new(frame: Option<NonNull<Header>>) -> Self {
        GroupState {
            phase: GroupPhase::Open,
            frame,
            running: 0,
            finished: 0,
            errors: 0,
            panics: 0,
            limit: usize::MAX,
            abandoned: false,
            children: List::new(),
            ended: EndedChildren::new(),
            floor: None,
            cursors: core::ptr::null_mut(),
            waiters: Queues([const { List::new() }; 3]),
            frame_waits: false,
            body_waits: false,
            wakers: Vec::new(),
            panic: None,
        }
    }

    /// Adds a child to those that run.
    ///
    /// # Safety
    ///
    /// The frame is that of a child, was started, and is in no list. It is not freed before it was taken out.
    pub(super) unsafe fn begin_child(&mut self, frame: NonNull<Header>) {
        // SAFETY: the caller's promise.
        unsafe { self.children.push_front(frame.cast()) };
    }

    /// Takes a child that is done out of those that run.
    ///
    /// # Safety
    ///
    /// It is one of them.
    pub(super) unsafe fn end_child(&mut self, frame: NonNull<Header>) -> EndedChild {
        let child = frame.cast::<ChildFrame>();
        // SAFETY: the caller's promise; so it is alive. What is in the list of cursors is on the stack of a thread that waits for
        // the lock.
        unsafe {
            let mut cursor = self.cursors;
            while let Some(at) = cursor.as_mut() {
                if at.child == child.as_ptr() {
                    at.child = child.as_ref().next();
                }
                cursor = at.next;
            }
            self.children.remove(child);
            EndedChild::new(frame)
        }
    }

    /// A cursor at the first of the children that run.
    pub(super) fn cursor(&self) -> Cursor {
        Cursor {
            child: self.children.first().map_or(core::ptr::null_mut(), NonNull::as_ptr),
            next: self.cursors,
        }
    }

    /// # Safety
    ///
    /// It was made under this lock, which was not released since, and stays until it was removed.
    pub(super) unsafe fn add_cursor(&mut self, cursor: *mut Cursor) {
        self.cursors = cursor;
    }

    /// # Safety
    ///
    /// The cursor is in the list.
    pub(super) unsafe fn remove_cursor(&mut self, cursor: *mut Cursor) {
        let mut link = &raw mut self.cursors;
        // SAFETY: by the caller's promise, and what is in the list is alive.
        unsafe {
            while *link != cursor {
                link = &raw mut (**link).next;
            }
            *link = (*cursor).next;
        }
    }

    /// Takes the first that has ended.
    pub(super) fn pop_finished(&mut self) -> Option<EndedChild> {
        let child = self.ended.pop_front()?;
        self.count_taken(&child);
        Some(child)
    }

    /// Takes the first of those that have ended with a panic.
    pub(super) fn pop_panicked(&mut self) -> Option<EndedChild> {
        let child = self.ended.take_panicked()?;
        self.count_taken(&child);
        Some(child)
    }

    fn count_taken(&mut self, child: &EndedChild) {
        self.finished -= 1;
        self.errors -= usize::from(child.failure() == Failure::Error);
        self.panics -= usize::from(child.failure() == Failure::Panic);
    }

    /// Puts a child that has ended behind the others, or before them if it was taken out; or gives it to who waits for one.
    pub(super) fn push_finished(&mut self, child: EndedChild, taken_out: bool, settled: &mut Settled) {
        if let Some(waiter) = self.waiters.pop(WaitFor::Next) {
            return settled.grant(waiter, Given::Child(child));
        }
        self.finished += 1;
        self.errors += usize::from(child.failure() == Failure::Error);
        self.panics += usize::from(child.failure() == Failure::Panic);
        if taken_out {
            self.ended.push_front(child);
        } else {
            self.ended.push_back(child);
        }
        self.wake(settled);
    }

    /// Takes all that have ended.
    pub(super) fn take_finished(&mut self) -> EndedChildren {
        self.finished = 0;
        self.errors = 0;
        self.panics = 0;
        self.ended.take()
    }

    /// Wakes those that look for themselves.
    #[inline]
    fn wake(&mut self, settled: &mut Settled) {
        if mem::take(&mut self.frame_waits) {
            settled.frame = self.frame;
        }
        self.wake_polling(settled);
    }

    /// Wakes those that poll.
    #[inline]
    pub(super) fn wake_polling(&mut self, settled: &mut Settled) {
        if !self.wakers.is_empty() {
            settled.woken.append(&mut self.wakers);
        }
    }

    /// A child has ended, or a place is free. `true` where it was the last one of a group that is closed.
    pub(super) fn one_less(&mut self, settled: &mut Settled) -> bool {
        self.running -= 1;
        self.grant_room(settled);
        if self.running != 0 {
            return false;
        }
        // Nothing is left to wait for.
        while let Some(waiter) = self.waiters.pop_any() {
            settled.grant(waiter, Given::Nothing);
        }
        self.wake(settled);
        let last = self.phase == GroupPhase::Closed;
        if last {
            self.phase = GroupPhase::Over;
        }
        last
    }

    /// Whether no child is taken any more.
    pub(super) fn is_over(&self) -> bool {
        match self.phase {
            GroupPhase::Open => false,
            GroupPhase::Closed => self.running == 0,
            GroupPhase::Over => true,
        }
    }

    pub(super) fn has_waker(&self, waker: &Waker) -> bool {
        self.wakers.iter().any(|other| other.will_wake(waker))
    }

    /// Keeps a waker, if there is one that is not kept already. Else it is the caller's to drop.
    pub(super) fn add_waker(&mut self, waker: &mut Option<Waker>) {
        if waker.as_ref().is_some_and(|waker| !self.has_waker(waker)) {
            self.wakers.extend(waker.take());
        }
    }

    /// Gives the places that are free to those that wait for one.
    pub(super) fn grant_room(&mut self, settled: &mut Settled) {
        while self.running < self.limit
            && let Some(waiter) = self.waiters.pop(WaitFor::Room)
        {
            self.running += 1;
            settled.grant(waiter, Given::Room);
        }
    }

    /// Gives nothing to those that wait for a place: there will not be one.
    pub(super) fn refuse_room(&mut self, settled: &mut Settled) {
        while let Some(waiter) = self.waiters.pop(WaitFor::Room) {
            settled.grant(waiter, Given::Nothing);
        }
    }
}

impl Cursor {
    /// The child that is next.
    pub(super) fn child(&self) -> Option<NonNull<Header>> {
        NonNull::new(self.child).map(NonNull::cast)
    }

    /// Goes on to the one after that.
    ///
    /// # Safety
    ///
    /// The caller has the lock.
    pub(super) unsafe fn advance(&mut self) {
        // SAFETY: what the cursor is at is in the list, under the lock, and so alive.
        if let Some(child) = unsafe { self.child.as_ref() } {
            self.child = child.next();
        }
    }
}
