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
//! | registered | listed; the frame has `MOVED` | *replaced* by a poll under another waker, or *taken* |
//! | taken | not listed; the last one clears `MOVED` | by the thread that [ends](Header::end_await) the await, which wakes the waker; or by the polling thread, if the await has ended |
//!
//! No wake is lost. The ending thread publishes the result, and then exchanges the state word. If its exchange comes before
//! `MOVED` is set, the polling thread synchronizes with that exchange, and finds the result right after it has registered the
//! waker. Otherwise the ending thread sees `MOVED`, and takes the waker under the lock. Both together are harmless.
//!
//! An await is registered only until it has ended, so the list is empty when the strand ends. A future that was dropped or
//! forgotten leaves its waker to the end of the await. An address that is used again gets a wake too many.

use core::ptr::NonNull;
use core::task::Waker;
use std::boxed::Box;

use super::{Header, Polling, Tracker, header_of};
use crate::Panic;
use crate::sender::current;

/// A list of registered wakers, protected by the lock of a [`Tracker`].
pub(in crate::task) type MovedWakers = Option<Box<MovedWaker>>;

pub(in crate::task) struct MovedWaker {
    frame: NonNull<Header>,
    /// The address of the await: its block, or the frame of the child.
    key: NonNull<()>,
    waker: Waker,
    next: MovedWakers,
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

fn has(mut at: &MovedWakers, is_match: impl Fn(&MovedWaker) -> bool) -> bool {
    while let Some(moved) = at {
        if is_match(moved) {
            return true;
        }
        at = &moved.next;
    }
    false
}

impl Polling<'_> {
    /// Returns whether an await of this frame has ended. If not, its [end](Header::end_await) wakes `waker` as well.
    #[cold]
    pub(in crate::task) fn wakes_also(self, key: NonNull<()>, waker: &Waker, has_ended: impl FnOnce() -> bool) -> bool {
        // The code that polls may block until the await has ended, so this stack must not be needed for that.
        current::publish();
        let frame = self.frame();
        let is_same = |moved: &MovedWaker| moved.key == key && moved.frame == frame;
        // SAFETY: the frame is polled, so its strand has not ended.
        let tracker: &Tracker = unsafe { Header::tracker(frame).as_ref() };
        let is_known = has(&tracker.lock(), |moved| is_same(moved) && moved.waker.will_wake(waker));
        if !is_known {
            let mut moved = Box::new(MovedWaker {
                frame,
                key,
                waker: waker.clone(),
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
            drop(unsafe { take(frame, key) });
        }
        has_ended
    }
}

impl Header {
    /// Wakes the waker that is registered for an await, if any. The await has ended.
    ///
    /// # Safety
    ///
    /// The frame is not done.
    #[cold]
    pub(super) unsafe fn wake_moved(this: NonNull<Header>, key: NonNull<()>) {
        // SAFETY: the caller's promise.
        if let Some(moved) = unsafe { take(this, key) } {
            // A panic of the waker went through the panic hook, and no caller can receive it.
            _ = Panic::catch(|| moved.waker.wake()).map_err(Panic::discard);
        }
    }
}

/// Takes the waker of an await out of the list.
///
/// # Safety
///
/// The frame is not done.
unsafe fn take(frame: NonNull<Header>, key: NonNull<()>) -> MovedWakers {
    // SAFETY: the caller's promise; the strand has not ended before its frames.
    let mut list = unsafe { Header::tracker(frame).as_ref() }.lock();
    let taken = remove(&mut list, |moved| moved.key == key && moved.frame == frame);
    if taken.is_some() && !has(&list, |moved| moved.frame == frame) {
        header_of(frame).state.set_moved(false);
    }
    taken
}
