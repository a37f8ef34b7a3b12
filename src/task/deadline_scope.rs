//! The scope of a deadline: a timer that stops what is inside.

use core::convert::Infallible;
use core::mem::MaybeUninit;
use core::pin::Pin;
use core::ptr::NonNull;
use std::time::Instant;

use super::frame::{ContextScope, Header, Polling, Stops};
use super::strand::context::Context;
use super::strand::scoped_future::{self, Change, Leftover};
use crate::scheduler::TimerSchedule;
use crate::sender::{current, start};
use crate::stop::{InplaceStopSource, InplaceStopToken, Relay, Why};
use crate::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::{Env, NoScheduler, Panic, Receiver, Sender, Transfer};

/// A timer, and the stop source of what it limits.
///
/// It is in flight until the timer has completed, and the link to the source outside was ended and passes no stop on. Until then
/// it is an await of the frame, so what it points at is valid. When the scope is left the timer is stopped. The link stays for
/// what was moved out of the scope, and is ended when that has no user any more, or with the frame's future.
#[repr(C)]
pub(super) struct DeadlineScope {
    /// First, so that its address is that of the whole. Linked to the token outside.
    relay: Relay,
    /// The scope that this is in. Dangling before it has begun.
    scope: NonNull<ContextScope>,
    at: Option<Instant>,
    /// One for the timer, until it has completed; one for the relay, until that is over; one for `close` while it runs. And
    /// [`CLOSED`], which `close` sets with its hold, unless nothing is in flight: then the party that gives the last hold up ends the
    /// scope. All are read-modify-writes that acquire and release, so that party sees what the others have done.
    holds: AtomicU8,
    /// Nothing is in flight, or all of it was asked to end. Set, by a swap, by the thread that asks.
    ended: AtomicBool,
    /// The scope was left, so the time does not matter any more. Stored by the thread that leaves it, and loaded by the one that the
    /// timer completes on, with relaxed ordering: where both happen at once either may be first.
    is_left: AtomicBool,
    /// Stops the timer.
    stop: InplaceStopSource,
    /// Taken when it begins. None where this watches no time.
    schedule: Option<TimerSchedule>,
    timer: MaybeUninit<Timing>,
    /// The timer was started.
    is_timed: bool,
}

/// The scope has no user any more.
const CLOSED: u8 = 0x80;
const LAST_OF_CLOSED: u8 = CLOSED + 1;

/// The operation of the timer.
type Timing = <TimerSchedule as Sender>::Operation<Expiry>;

// SAFETY: what others touch is made of atomics; the rest belongs to the thread that polls, or to the last user of the scope.
unsafe impl Send for DeadlineScope {}
// SAFETY: as above.
unsafe impl Sync for DeadlineScope {}

impl DeadlineScope {
    pub(super) fn new(at: Option<Instant>, schedule: Option<TimerSchedule>) -> Self {
        DeadlineScope {
            relay: Relay::new(DeadlineScope::relay_over),
            scope: NonNull::dangling(),
            at,
            holds: AtomicU8::new(0),
            ended: AtomicBool::new(true),
            is_left: AtomicBool::new(false),
            stop: InplaceStopSource::new(),
            schedule,
            timer: MaybeUninit::uninit(),
            is_timed: false,
        }
    }

    /// # Safety
    ///
    /// It has begun, and is in flight or the caller is a user of the scope.
    unsafe fn frame(&self) -> NonNull<Header> {
        // SAFETY: the caller's promise.
        unsafe { self.scope.as_ref() }.frame()
    }

    /// Stops the timer, and ends the link to the source outside, if that was not done.
    ///
    /// # Safety
    ///
    /// It has begun, and the caller is a user of the scope, or has a hold.
    unsafe fn end(this: NonNull<DeadlineScope>) -> Transfer {
        // SAFETY: by the caller's promise.
        let limit = unsafe { this.as_ref() };
        if limit.ended.swap(true, AcqRel) {
            return Transfer::none();
        }
        // The caller keeps the source of this stop.
        let stopped = limit.stop.request_stop_later();
        // SAFETY: once, as above.
        stopped.and(unsafe { Relay::end(this.cast()) })
    }

    /// The timer has completed: the time has come, or it was stopped.
    ///
    /// # Safety
    ///
    /// It does so once. This may be gone when it returns.
    unsafe fn timer_over(this: NonNull<DeadlineScope>, expired: bool) -> Transfer {
        let mut resumed = Transfer::none();
        if expired {
            // SAFETY: the timer has its hold.
            let limit = unsafe { this.as_ref() };
            if !limit.is_left.load(Relaxed)
                && let Some(stopped) = limit.relay.request_stop(Why::DEADLINE.here())
            {
                resumed = stopped;
                // What does not listen may ask.
                // SAFETY: the frame counts this.
                resumed.append(unsafe { Header::poll_again(limit.frame()) });
            }
        }
        // SAFETY: the timer gives its hold up.
        resumed.and(unsafe { DeadlineScope::let_go(this) })
    }

    /// # Safety
    ///
    /// The relay is that of such a limit, and over.
    unsafe fn relay_over(relay: NonNull<Relay>) -> Transfer {
        // SAFETY: the relay comes first, and gives its hold up.
        unsafe { DeadlineScope::let_go(relay.cast()) }
    }

    /// # Safety
    ///
    /// The caller gives a hold up.
    unsafe fn let_go(this: NonNull<DeadlineScope>) -> Transfer {
        // SAFETY: the caller has a hold. With the last one the await ends, which the frame counts until then; and where the scope
        // has no user any more, nothing else ends that.
        unsafe {
            let (frame, scope) = (this.as_ref().frame(), this.as_ref().scope);
            match this.as_ref().holds.fetch_sub(1, AcqRel) {
                1 => scoped_future::end_await(frame),
                LAST_OF_CLOSED => {
                    scoped_future::end::<DeadlineScope>(scope);
                    scoped_future::end_await(frame)
                }
                _ => Transfer::none(),
            }
        }
    }
}

impl Change for DeadlineScope {
    unsafe fn begin(this: NonNull<Self>, scope: NonNull<ContextScope>, context: &mut Context) {
        let place = this.as_ptr();
        // SAFETY: the caller's promise: no other thread knows it yet.
        unsafe {
            (*place).scope = scope;
            let Some(at) = (*place).at else { return };
            context.deadline = Some(context.deadline.map_or(at, |outer| outer.min(at)));
            let Some(schedule) = (*place).schedule.take() else {
                return;
            };
            // In flight from here on.
            (*place).ended = AtomicBool::new(false);
            (*place).holds = AtomicU8::new(1);
            let polling = Polling::new(scope.as_ref().frame());
            polling.count_wait();
            scope.as_ref().set_stops(Stops::PassedOn(context.token));
            Relay::link(this.cast(), context.token);
            context.token = (*place).relay.token();
            if (*place).relay.stop_requested() {
                // Whatever comes is not the first.
                return;
            }
            if at <= Instant::now() {
                // Nothing listens yet.
                drop((*place).relay.request_stop(Why::DEADLINE.here()));
                return;
            }
            (*place).is_timed = true;
            // No other thread looks at it before the timer was started.
            (*place).holds = AtomicU8::new(2);
            (*place).timer.write(schedule.connect(Expiry { limit: this }));
            polling.resume_later(start(Pin::new_unchecked((*place).timer.assume_init_mut())));
        }
    }

    unsafe fn leave(this: NonNull<Self>) -> Transfer {
        // SAFETY: the caller's promise.
        let limit = unsafe { this.as_ref() };
        limit.is_left.store(true, Relaxed);
        if limit.is_timed {
            limit.stop.request_stop_later()
        } else {
            Transfer::none()
        }
    }

    unsafe fn abandon(this: NonNull<Self>) -> Transfer {
        // SAFETY: the caller's promise.
        let limit = unsafe { this.as_ref() };
        if limit.ended.load(Acquire) {
            return Transfer::none();
        }
        let stopped = match limit.is_left.load(Relaxed) {
            // What was moved out is asked to stop by itself. A scope that was forgotten inside is a user for good.
            true => Transfer::none(),
            // What goes on inside, though it is not awaited, does not wait for the time that was left.
            false => limit.relay.request_stop(Why::SCOPE_LEFT).unwrap_or_default(),
        };
        // SAFETY: as above. The stop that was passed on may have ended it.
        stopped.and(unsafe { DeadlineScope::end(this) })
    }

    unsafe fn close(this: NonNull<Self>) -> Leftover {
        // SAFETY: the caller's promise. The hold keeps it until it is given up, and so does the fact that nothing is in flight.
        unsafe {
            let held = (this.as_ref().holds)
                .fetch_update(AcqRel, Acquire, |holds| (holds != 0).then_some((holds + 1) | CLOSED))
                .is_ok();
            if !held {
                return Leftover::Over;
            }
            current::run_later(DeadlineScope::end(this)).run();
            match this.as_ref().holds.fetch_sub(1, AcqRel) {
                LAST_OF_CLOSED => Leftover::Ended,
                _ => Leftover::InFlight,
            }
        }
    }

    fn has_stopped(&self) -> bool {
        self.relay.registry().why() == Some(Why::DEADLINE.here())
    }
}

impl Drop for DeadlineScope {
    fn drop(&mut self) {
        if self.is_timed {
            // SAFETY: it was started and has completed, since the scope has no user any more. It is dropped this once.
            unsafe { self.timer.assume_init_drop() };
        }
    }
}

/// The receiver of the timer.
struct Expiry {
    limit: NonNull<DeadlineScope>,
}

// SAFETY: what it does with the limit is for any thread, and one completes it.
unsafe impl Send for Expiry {}

impl Expiry {
    fn over(self, expired: bool) -> Transfer {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: this is the one completion.
        unsafe { DeadlineScope::timer_over(this.limit, expired) }
    }
}

impl Receiver<(), Infallible> for Expiry {
    type Env = ExpiryEnv;

    fn env(&self) -> ExpiryEnv {
        // SAFETY: the limit is there until the timer has completed, which is how long its environment is used.
        ExpiryEnv(unsafe { self.limit.as_ref().stop.token().extend() })
    }

    fn set_value(self, (): ()) -> Transfer {
        self.over(true)
    }

    fn set_error(self, error: Infallible) -> Transfer {
        match error {}
    }

    fn set_stopped(self) -> Transfer {
        self.over(false)
    }

    fn set_panicked(self, payload: Panic) -> Transfer {
        drop(payload);
        self.over(false)
    }
}

impl Drop for Expiry {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: it was not completed, so this is the one completion.
        unsafe { DeadlineScope::timer_over(self.limit, false) }.run();
    }
}

/// The environment of the timer.
#[derive(Clone, Copy, Debug)]
struct ExpiryEnv(InplaceStopToken<'static>);

impl Env for ExpiryEnv {
    type StopToken = InplaceStopToken<'static>;
    type Scheduler = NoScheduler;

    fn stop_token(&self) -> InplaceStopToken<'static> {
        self.0
    }

    fn scheduler(&self) -> NoScheduler {
        NoScheduler
    }

    fn visit(&self, _: core::any::TypeId, _: &mut dyn FnMut(&dyn core::any::Any)) {}
}
