//! Awaits that need no operation: the future itself waits, and the frame is woken by whatever ends the wait, a stop included.
//!
//! [`sleep`](crate::task::sleep) and [`never`](crate::never()) are awaited so where the frame itself polls them. The senders do the same
//! everywhere else: outside of a task, under the waker of another executor, inside of a scope with a token of its own, and inside of a
//! cancellation handler.

use core::future::Future;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};

use super::{SenderFuture, ValueFuture};
use crate::factories::Never;
use crate::factories::sleep::Sleep;
use crate::scheduler::{Alarm, Timer};
use crate::task::frame::{Polling, Site};
use crate::task::strand::hears_stop;

/// Returns the polled frame, if a future may wait in it without an operation.
#[inline]
fn plain_frame<'p>(cx: &'p Cx<'_>) -> Option<Polling<'p>> {
    Polling::with_waker_of(cx).filter(|polling| polling.is_plain() && polling.context().handled().is_none())
}

/// Waits in the polled frame, which a stop wakes. Returns `false` if the stop was requested: then the frame is stopped.
#[inline]
fn waits<S>(polling: Polling<'_>, site: Site) -> bool {
    let goes_on = hears_stop(polling);
    match goes_on {
        true => polling.waits_for::<S>(site),
        false => polling.stop_here(),
    }
    goes_on
}

/// An awaited [`sleep`](crate::task::sleep()), created by `.await` or by [`IntoFuture::into_future`]. The first poll starts the sleep.
///
/// # Cancellation
///
/// A stop of the task ends the sleep at once. Dropping this ends it, too, and waits for no other thread.
///
/// # Panics
///
/// As [`SenderFuture`], if the sleep began in a scope of a task or outside of one.
///
/// # Allocation
///
/// None in a task: the timer is in the future. Inside a scope with a deadline, a shield or a task-local value it is in the memory of the
/// task's frame. Outside of a task the await makes the one of [`SenderFuture`].
#[must_use = "futures do nothing until they are awaited"]
pub struct SleepFuture {
    stage: SleepStage,
    site: Site,
}

enum SleepStage {
    Unpolled(Sleep),
    /// Listed with the global timer.
    Asleep(Alarm),
    /// Not in place.
    Sender(ValueFuture<Sleep>),
    Over,
}

/// Eight words, of which the alarm is seven. A program may have millions of sleeps.
const _: () = assert!(size_of::<SleepFuture>() <= 64 || cfg!(any(loom, feature = "inspect")));

// SAFETY: an alarm may be moved to another thread with its future, which owns it. What the driver uses is behind a lock.
unsafe impl Send for SleepFuture {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl Sync for SleepFuture {}

impl SleepFuture {
    #[inline]
    fn at(site: Site, sleep: Sleep) -> Self {
        SleepFuture {
            stage: SleepStage::Unpolled(sleep),
            site,
        }
    }

    /// Returns the alarm, if it is listed.
    #[inline]
    fn alarm(&mut self) -> Option<NonNull<Alarm>> {
        match &mut self.stage {
            SleepStage::Asleep(alarm) => Some(NonNull::from(alarm)),
            _ => None,
        }
    }

    /// Starts the sleep.
    fn begin(&mut self, sleep: Sleep, cx: &Cx<'_>) {
        let Some(polling) = plain_frame(cx) else {
            self.stage = SleepStage::Sender(ValueFuture::at(self.site, sleep));
            return;
        };
        self.stage = SleepStage::Over;
        if !waits::<Sleep>(polling, self.site) {
            return;
        }
        self.stage = SleepStage::Asleep(Alarm::new(sleep.when(), cx.waker().clone()));
        if let Some(alarm) = self.alarm() {
            // SAFETY: the future is pinned, and ends the alarm before the stage changes or is dropped.
            unsafe { Alarm::begin(alarm, Timer::global().pending()) };
        }
    }

    /// Ends an alarm that is listed.
    #[inline]
    fn end(&mut self) {
        if let Some(alarm) = self.alarm() {
            // SAFETY: `begin` has begun the alarm. It is replaced here, so this is the one call.
            unsafe { Alarm::end(alarm, Timer::global().pending()) };
            self.stage = SleepStage::Over;
        }
    }
}

impl Future for SleepFuture {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<()> {
        // SAFETY: an alarm is not moved.
        let this = unsafe { self.get_unchecked_mut() };
        match &mut this.stage {
            SleepStage::Unpolled(sleep) => {
                let sleep = sleep.clone();
                this.begin(sleep, cx);
                match &mut this.stage {
                    SleepStage::Sender(sender) => Pin::new(sender).poll(cx),
                    _ => Poll::Pending,
                }
            }
            SleepStage::Asleep(alarm) => {
                if alarm.has_fired() {
                    this.stage = SleepStage::Over;
                    return Poll::Ready(());
                }
                // SAFETY: the alarm has begun, and not fired.
                unsafe { alarm.set_waker(Timer::global().pending(), cx.waker()) };
                if alarm.has_fired() {
                    // It may have woken the waker before.
                    this.stage = SleepStage::Over;
                    return Poll::Ready(());
                }
                if plain_frame(cx).is_some_and(|polling| !waits::<Sleep>(polling, this.site)) {
                    this.end();
                }
                Poll::Pending
            }
            SleepStage::Sender(sender) => Pin::new(sender).poll(cx),
            SleepStage::Over => Poll::Pending,
        }
    }
}

impl Drop for SleepFuture {
    #[inline]
    fn drop(&mut self) {
        self.end();
    }
}

crate::opaque!([] SleepFuture);

impl IntoFuture for Sleep {
    type Output = ();
    type IntoFuture = SleepFuture;

    #[cfg_attr(feature = "inspect", track_caller)]
    #[inline]
    fn into_future(self) -> SleepFuture {
        SleepFuture::at(Site::here(), self)
    }
}

/// An awaited [`never`](crate::never()), created by `.await` or by [`IntoFuture::into_future`]. It is never ready.
///
/// # Cancellation
///
/// A stop of the task ends the await.
///
/// # Allocation
///
/// None in a task, as for [`SleepFuture`].
#[must_use = "futures do nothing until they are awaited"]
pub struct NeverFuture<T: Send + 'static, E: Send + 'static> {
    stage: NeverStage<T, E>,
    site: Site,
}

enum NeverStage<T: Send + 'static, E: Send + 'static> {
    Unpolled(Never<T, E>),
    Waiting,
    /// Not in place.
    Sender(SenderFuture<Never<T, E>>),
    Over,
}

impl<T: Send + 'static, E: Send + 'static> Future for NeverFuture<T, E> {
    type Output = Result<T, E>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        let site = self.site;
        let polling = plain_frame(cx);
        if let NeverStage::Unpolled(never) = self.stage {
            self.stage = match polling {
                Some(_) => NeverStage::Waiting,
                None => NeverStage::Sender(SenderFuture::at(site, never)),
            };
        }
        match &mut self.stage {
            NeverStage::Sender(sender) => return Pin::new(sender).poll(cx),
            NeverStage::Waiting if polling.is_some_and(|polling| !waits::<Never<T, E>>(polling, site)) => {
                self.stage = NeverStage::Over;
            }
            _ => {}
        }
        Poll::Pending
    }
}

crate::opaque!([T: Send + 'static, E: Send + 'static] NeverFuture<T, E>);

impl<T: Send + 'static, E: Send + 'static> IntoFuture for Never<T, E> {
    type Output = Result<T, E>;
    type IntoFuture = NeverFuture<T, E>;

    #[cfg_attr(feature = "inspect", track_caller)]
    #[inline]
    fn into_future(self) -> NeverFuture<T, E> {
        NeverFuture {
            stage: NeverStage::Unpolled(self),
            site: Site::here(),
        }
    }
}
