//! The lock-protected state of a group: its running and ended children, and their waiters.
//!
//! The lock is held for a few instructions, and never while user code runs. The consequences of a change are collected in a
//! [`Settled`] and carried out after the unlock.

use core::mem;
use core::ptr::{self, NonNull};
use core::task::Waker;
use std::vec::Vec;

use super::child::{ChildFrame, EndedChild, EndedChildren};
use super::results::Failure;
use super::wait::{Given, GroupWaiter, WaitFor};
use crate::memory::{Linked, List, prefetch};
use crate::task::frame::Header;
use crate::{Panic, Priority, Transfer};

/// The lists and counts of a group.
pub(super) struct GroupState {
    pub(super) phase: GroupPhase,
    /// The frame of the group, if any.
    pub(super) frame: Option<NonNull<Header>>,
    /// The number of running children, and of reserved places.
    pub(super) running: usize,
    /// The number of ended children whose results were not taken; and how many of these are errors, and panics.
    pub(super) finished: usize,
    pub(super) errors: usize,
    pub(super) panics: usize,
    /// The limit of running children for those that wait for room.
    pub(super) limit: usize,
    /// Whether results are no longer taken.
    pub(super) abandoned: bool,
    pub(super) children: List<ChildFrame>,
    /// The number of children that were spawned since the frame waited last, at most 255.
    pub(super) spawned: u8,
    ended: EndedChildren,
    /// The next child that the thread which stops the group looks at; null if none is. A child that ends advances it.
    pub(super) to_stop: *mut ChildFrame,
    /// The level that the children were raised to; it also applies to later ones.
    pub(super) floor: Option<Priority>,
    /// The next child to be raised to `floor`, by a thread that raises the children; null if none is. A child that ends advances it.
    pub(super) to_raise: *mut ChildFrame,
    /// Whether the frames of that child were raised, and some of its links were not.
    pub(super) links_left: bool,
    /// The waiters, in the list of their [`WaitFor`], so that none is searched for.
    pub(super) waiters: [List<GroupWaiter>; WaitFor::LISTS],
    /// Whether the group's frame waits for the next ended child, while the inbox is closed. It has counted an await, which the thread
    /// that clears the flag ends.
    pub(super) frame_waits: bool,
    /// The wakers of polling code: for results, or for the end if that is not the frame's.
    pub(super) wakers: Vec<Waker>,
    /// The first panic that was not kept as a result.
    pub(super) panic: Option<Panic>,
}

/// The phase of a group. A closed group still accepts children from running ones.
///
/// ```text
/// Open ──the body has ended──▶ Closed ──no child runs──▶ Over
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupPhase {
    Open,
    Closed,
    Over,
}

/// The consequences of a change, carried out after the unlock.
#[derive(Default)]
#[must_use]
pub(super) struct Settled {
    /// The waiters that were granted something, removed from the group's lists.
    granted: List<GroupWaiter>,
    /// The frame to be woken for an ended child.
    frame: Option<NonNull<Header>>,
    /// The frame whose body is to be ended.
    pub(super) body: Option<NonNull<Header>>,
    /// The wakers to be woken.
    pub(super) woken: Vec<Waker>,
}

impl Settled {
    /// Grants a waiter that was removed from its list what it waited for.
    fn grant(&mut self, waiter: NonNull<GroupWaiter>, given: Given) {
        // SAFETY: the waiter was removed under the lock, and so is alive until it is completed.
        unsafe {
            waiter.as_ref().give(given);
            self.granted.push_back(waiter);
        }
    }

    pub(super) fn complete(mut self) -> Transfer {
        let mut resumed = Transfer::none();
        while let Some(waiter) = self.granted.pop_front() {
            // SAFETY: the waiter was removed from the group's list, under the lock.
            resumed.append(unsafe { GroupWaiter::complete(waiter) });
        }
        if let Some(frame) = self.frame {
            // SAFETY: the frame has counted an await for this.
            resumed.append(unsafe { Header::end_wait_for_child(frame, 0) });
        }
        if let Some(frame) = self.body {
            // SAFETY: the frame has counted an await for this.
            resumed.append(unsafe { Header::end_wait(frame, |_| false) });
        }
        for waker in self.woken {
            // A panic of a waker went through the panic hook. The other wakers are woken all the same.
            _ = Panic::catch(|| waker.wake()).map_err(Panic::discard);
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
            spawned: 0,
            ended: EndedChildren::default(),
            to_stop: ptr::null_mut(),
            floor: None,
            to_raise: ptr::null_mut(),
            links_left: false,
            waiters: [const { List::new() }; WaitFor::LISTS],
            frame_waits: false,
            wakers: Vec::new(),
            panic: None,
        }
    }

    /// Removes a child that is done from the running ones.
    ///
    /// # Safety
    ///
    /// The child is one of them.
    pub(super) unsafe fn end_child(&mut self, frame: NonNull<Header>) -> EndedChild {
        let child = frame.cast::<ChildFrame>();
        if self.to_raise == child.as_ptr() {
            self.raise_next();
        }
        if self.to_stop == child.as_ptr() {
            self.stop_next();
        }
        // SAFETY: the caller's promise, so the child is alive. The group owns it.
        unsafe {
            self.children.remove(child);
            EndedChild::new(child)
        }
    }

    /// Moves a child from the inbox to the ended ones. No party is to be told of it.
    ///
    /// # Safety
    ///
    /// The child is done, without a failure, and one of the running ones.
    pub(super) unsafe fn keep(&mut self, child: NonNull<ChildFrame>) {
        // SAFETY: the caller's promise.
        let child = unsafe { self.end_child(child.cast()) };
        self.ended.push(child, false);
        self.finished += 1;
        self.running -= 1;
    }

    /// Returns whether no party but the frame is to be told of an ended child, so that children may end in the inbox.
    pub(super) fn is_plain(&self) -> bool {
        self.phase == GroupPhase::Open
            && !self.abandoned
            && self.wakers.is_empty()
            && self.waiters.iter().all(List::is_empty)
    }

    /// Advances to the next child to be raised.
    pub(super) fn raise_next(&mut self) {
        // SAFETY: the child is listed, and so alive.
        self.to_raise = unsafe { self.to_raise.as_ref() }.map_or(ptr::null_mut(), Linked::next);
        self.links_left = false;
    }

    /// Advances to the next child to be stopped.
    pub(super) fn stop_next(&mut self) {
        // SAFETY: the child is listed, and so alive.
        self.to_stop = unsafe { self.to_stop.as_ref() }.map_or(ptr::null_mut(), Linked::next);
        prefetch::<4>(self.to_stop);
    }

    /// Returns whether a wait for the next child is over.
    pub(super) fn has_next(&self) -> bool {
        self.running == 0 || self.finished != 0
    }

    /// Removes the first ended child.
    #[inline]
    pub(super) fn pop_finished(&mut self) -> Option<EndedChild> {
        let child = self.ended.pop_front()?;
        self.count_taken(&child);
        Some(child)
    }

    /// Removes the first child that ended with a panic.
    pub(super) fn pop_panicked(&mut self) -> Option<EndedChild> {
        let child = self.ended.pop_panicked()?;
        self.count_taken(&child);
        Some(child)
    }

    #[inline]
    fn count_taken(&mut self, child: &EndedChild) {
        self.finished -= 1;
        // Mostly there are none, which saves the access to the end of the frame.
        if self.errors | self.panics != 0 {
            self.errors -= usize::from(child.failure() == Failure::Error);
            self.panics -= usize::from(child.failure() == Failure::Panic);
        }
    }

    /// Adds an ended child at the end, or at the front if it was taken before; or grants it to a waiter.
    pub(super) fn push_finished(&mut self, child: EndedChild, taken_out: bool, settled: &mut Settled) {
        if let Some(waiter) = self.waiters[WaitFor::Next.list()].pop_front() {
            return settled.grant(waiter, Given::Child(child));
        }
        self.finished += 1;
        self.errors += usize::from(child.failure() == Failure::Error);
        self.panics += usize::from(child.failure() == Failure::Panic);
        self.ended.push(child, taken_out);
        self.wake(settled);
    }

    /// Removes all ended children.
    pub(super) fn take_finished(&mut self) -> EndedChildren {
        self.finished = 0;
        self.errors = 0;
        self.panics = 0;
        mem::take(&mut self.ended)
    }

    /// Wakes the frame and the polling parties, which check again.
    #[inline]
    fn wake(&mut self, settled: &mut Settled) {
        if mem::take(&mut self.frame_waits) {
            settled.frame = self.frame;
        }
        self.wake_polling(settled);
    }

    /// Wakes the polling parties.
    #[inline]
    pub(super) fn wake_polling(&mut self, settled: &mut Settled) {
        if !self.wakers.is_empty() {
            settled.woken.append(&mut self.wakers);
        }
    }

    /// Handles the end of a child, or a released place. Returns `true` for the last one of a closed group.
    pub(super) fn one_less(&mut self, settled: &mut Settled) -> bool {
        self.running -= 1;
        self.grant_room(settled);
        if self.running != 0 {
            return false;
        }
        // Nothing is left to wait for.
        while let Some(waiter) = self.waiters.iter_mut().find_map(List::pop_front) {
            settled.grant(waiter, Given::Nothing);
        }
        self.wake(settled);
        let last = self.phase == GroupPhase::Closed;
        if last {
            self.phase = GroupPhase::Over;
        }
        last
    }

    /// Returns whether there is a panic that was not taken.
    pub(super) fn has_panic(&self) -> bool {
        self.panics != 0 || self.panic.is_some()
    }

    /// Returns whether the group accepts no children any longer.
    pub(super) fn is_over(&self) -> bool {
        match self.phase {
            GroupPhase::Open => false,
            GroupPhase::Closed => self.running == 0,
            GroupPhase::Over => true,
        }
    }

    /// Grants free places to waiters.
    ///
    /// A waiter that reserves nothing is told, and checks again. It may not use the place, so the waiters after it are not kept from it:
    /// while there is a place, no waiter is left.
    pub(super) fn grant_room(&mut self, settled: &mut Settled) {
        while self.running < self.limit
            && let Some(waiter) = self.waiters[WaitFor::Room.list()].pop_front()
        {
            // SAFETY: the waiter was listed, and so is alive until it is completed.
            let reserves = unsafe { waiter.as_ref() }.kind == WaitFor::Room;
            self.running += usize::from(reserves);
            settled.grant(waiter, if reserves { Given::Room } else { Given::Nothing });
        }
    }

    /// Ends the waits for a place, since there will be none.
    pub(super) fn refuse_room(&mut self, settled: &mut Settled) {
        while let Some(waiter) = self.waiters[WaitFor::Room.list()].pop_front() {
            settled.grant(waiter, Given::Nothing);
        }
    }
}
