//! Awaits that are polled under the waker of another executor, inside the task where they began.
//!
//! An await that began under the frame's own waker wakes the frame when it ends. If its future is moved into a
//! `FuturesUnordered`, or polled by a `block_on` inside the poll, that waker must be woken as well. So the polling thread
//! registers it in the [`Tracker`] of the strand, under the tracker's lock, and sets `MOVED` in the state word of the frame.
//! The thread that ends the await finds the flag in the word that it exchanges anyway.
//!
//! | an await is | list and flag | next |
//! |---|---|---|
//! | plain | not listed | [registered](Polling::wakes_also) by the polling thread |
//! | registered | listed; the frame has `MOVED` | *replaced* by a poll under another waker; *announced* by the thread that [ends](Header::end_await) the await; or *removed* by the polling thread, if the await has ended |
//! | announced | listed without its waker, which the ending thread wakes | *removed* by that thread |
//! | removed | not listed; the last one clears `MOVED` | |
//!
//! No wake is lost. The ending thread publishes the result, and then exchanges the state word. If its exchange comes before
//! `MOVED` is set, the polling thread synchronizes with that exchange, and finds the result right after it has registered the
//! waker. Otherwise the ending thread sees `MOVED`, and takes the waker under the lock. Both together are harmless.
//!
//! A stop does not end the poll of a frame that has `MOVED`: the code that polls may not have asked the await at all. That must hold until
//! the other executor knows of the end. So the ending thread wakes the waker first, then sets `ANNOUNCED`, and then clears `MOVED`. A
//! poll that finds `ANNOUNCED` at its end may have begun before that wake, and is [repeated](Polling::was_too_early).
//!
//! A stop of a scope around the poll alone finds that something inside is awaited by the users of the scope. The await itself may leave
//! the scope before it tells the other executor. So its registration is a user as well, until after `ANNOUNCED` is set. An await that
//! began outside of the scope does not keep it from stopping, registered or not.
//!
//! An await is registered only until it has ended, so the list is empty when the strand ends. A future that was dropped or
//! forgotten leaves its waker to the end of the await. An address that is used again gets a wake too many.

use core::ptr::NonNull;
use core::task::Waker;
use std::boxed::Box;

use super::{ContextScope, Header, Polling, Tracker, header_of};
use crate::Panic;
use crate::sender::current;

/// A list of registered wakers, protected by the lock of a [`Tracker`].
pub(in crate::task) type MovedWakers = Option<Box<MovedWaker>>;

pub(in crate::task) struct MovedWaker {
    frame: NonNull<Header>,
    /// The address of the await: its block, or the frame of the child.
    key: NonNull<()>,
    /// `None` while the thread that has ended the await wakes it.
    registered: Option<Registered>,
    next: MovedWakers,
}

struct Registered {
    waker: Waker,
    scope: Option<UserOfScope>,
}

/// A use of a scope. The frame of the scope is not done before this is dropped.
struct UserOfScope(NonNull<ContextScope>);

impl UserOfScope {
    fn new(scope: &ContextScope) -> Self {
        scope.enter();
        UserOfScope(NonNull::from(scope))
    }
}

impl Drop for UserOfScope {
    fn drop(&mut self) {
        // SAFETY: this is a user of the scope, which is alive until its last user leaves.
        unsafe { self.0.as_ref() }.exit();
    }
}

impl MovedWaker {
    /// Returns whether this is the entry of an await that no thread is announcing the end of.
    fn is_registered_for(&self, frame: NonNull<Header>, key: NonNull<()>) -> bool {
        self.key == key && self.frame == frame && self.registered.is_some()
    }
}

/// Removes the first waker that matches.
fn remove(mut at: &mut MovedWakers, is_match: impl Fn(&MovedWaker) -> bool) -> MovedWakers {
    while !is_match(at.as_ref()?) {
        at = &mut at.as_mut()?.next;
    }
    let mut removed = at.take()?;
    *at = removed.next.take();
    Some(removed)
}

/// Finds the first waker that matches.
fn find(mut at: &mut MovedWakers, is_match: impl Fn(&MovedWaker) -> bool) -> Option<&mut MovedWaker> {
    while !is_match(at.as_ref()?) {
        at = &mut at.as_mut()?.next;
    }
    at.as_deref_mut()
}

impl Polling<'_> {
    /// Returns whether an await of this frame has ended. If not, its [end](Header::end_await) wakes `waker` as well. `began_here` says
    /// whether it began in the innermost scope around the call, if there is one.
    #[cold]
    pub(in crate::task) fn wakes_also(
        self,
        key: NonNull<()>,
        waker: &Waker,
        began_here: bool,
        has_ended: impl FnOnce() -> bool,
    ) -> bool {
        // The code that polls may block until the await has ended, so this stack must not be needed for that.
        current::publish();
        let frame = self.frame();
        let scope = self.scope().filter(|_| began_here);
        let is_same = |moved: &MovedWaker| moved.is_registered_for(frame, key);
        let is_known = |known: &Registered| {
            known.scope.as_ref().map(|user| user.0) == scope.map(NonNull::from) && known.waker.will_wake(waker)
        };
        // SAFETY: the frame is polled, so its strand has not ended.
        let tracker: &Tracker = unsafe { Header::tracker(frame).as_ref() };
        let is_known =
            find(&mut tracker.lock(), is_same).is_some_and(|moved| moved.registered.as_ref().is_some_and(is_known));
        if !is_known {
            let mut moved = Box::new(MovedWaker {
                frame,
                key,
                registered: Some(Registered {
                    waker: waker.clone(),
                    scope: scope.map(UserOfScope::new),
                }),
                next: None,
            });
            let replaced = {
                let mut list = tracker.lock();
                let replaced = remove(&mut list, is_same);
                moved.next = list.take();
                *list = Some(moved);
                header_of(frame).state.set_moved(true);
                replaced
            };
            // The destructor of a waker is user code.
            drop(replaced);
        }
        let has_ended = has_ended();
        if has_ended {
            // SAFETY: the frame is polled, so it is not done.
            drop(unsafe { remove_from(frame, is_same) });
        }
        has_ended
    }
}

impl Header {
    /// Notes that the waker of an await which another executor polls was woken for its end.
    ///
    /// # Safety
    ///
    /// The frame counts the caller as an await, and is woken when that ends.
    pub(in crate::task) unsafe fn announce(this: NonNull<Header>) {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.state.set_announced();
    }

    /// Wakes the waker that is registered for an await, if any. The await has ended.
    ///
    /// # Safety
    ///
    /// The frame is not done.
    #[cold]
    pub(super) unsafe fn wake_moved(this: NonNull<Header>, key: NonNull<()>) {
        // SAFETY: the caller's promise; the strand has not ended before its frames.
        let tracker: &Tracker = unsafe { Header::tracker(this).as_ref() };
        let registered = find(&mut tracker.lock(), |moved| moved.is_registered_for(this, key))
            .and_then(|moved| moved.registered.take());
        let Some(Registered { waker, scope }) = registered else {
            return;
        };
        // A panic of the waker went through the panic hook, and no caller can receive it.
        _ = Panic::catch(|| waker.wake()).map_err(Panic::discard);
        header_of(this).state.set_announced();
        // Awaits with the same key that end one after the other have an entry each, without a waker. It does not matter which is removed.
        let is_announced = |moved: &MovedWaker| moved.key == key && moved.frame == this && moved.registered.is_none();
        // SAFETY: the caller's promise.
        drop(unsafe { remove_from(this, is_announced) });
        drop(scope);
    }
}

/// Removes the entry of an await from the list.
///
/// # Safety
///
/// The frame is not done.
unsafe fn remove_from(frame: NonNull<Header>, is_match: impl Fn(&MovedWaker) -> bool) -> MovedWakers {
    // SAFETY: the caller's promise; the strand has not ended before its frames.
    let mut list = unsafe { Header::tracker(frame).as_ref() }.lock();
    let removed = remove(&mut list, is_match);
    if removed.is_some() && find(&mut list, |moved| moved.frame == frame).is_none() {
        header_of(frame).state.set_moved(false);
    }
    removed
}
