//! The scope of a deadline: a timer that stops the inside.

use core::convert::Infallible;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::ptr::NonNull;
use std::time::Instant;

use super::frame::{ContextScope, Header, Polling, Stops};
use super::strand::{Change, Context, scoped_future};
use crate::scheduler::TimerSchedule;
use crate::sender::receiver::receive_as_completion;
use crate::sender::{current, start};
use crate::stop::{InplaceStopSource, InplaceStopToken, Relay, RelayOwner, Why};
use crate::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::{Completion, EmptyEnv, Patched, Receiver, Sender, Transfer, WithStopToken};

/// The change of a deadline: a timer, and the stop source of the inside.
///
/// The frame counts an await for the timer until it has completed, and one for the relay until it was unlinked and passes no stop on.
/// So the pointers are valid. Leaving the scope stops the timer. The relay stays linked for operations that were moved out of the
/// scope; it ends with the scope's last user, or with the frame's future.
#[repr(C)]
pub(super) struct DeadlineScope {
    /// First, so that both have the same address. Linked to the token outside.
    relay: Relay,
    /// The scope whose change this is. Dangling before `begin`.
    scope: NonNull<ContextScope>,
    at: Option<Instant>,
    /// A hold each for the users of the scope, the timer until it completes, and the relay until it is over. Released by a
    /// read-modify-write with `AcqRel`: the party that releases the last hold sees the writes of all others, and ends the scope.
    holds: AtomicU8,
    /// Set when nothing is in flight, or all of it was asked to end. Written by a swap with `AcqRel` in `end`; `abandon` loads
    /// it with acquire.
    ended: AtomicBool,
    /// Set when the scope was left, so an expiry no longer matters. Stored by the leaving thread, loaded by the thread that
    /// completes the timer, both relaxed: either order is correct.
    is_left: AtomicBool,
    /// Stops the timer.
    stop: InplaceStopSource,
    /// Taken by `begin`. `None` if no timer is needed.
    schedule: Option<TimerSchedule>,
    /// Completed before this is dropped, since the scope has no user and no hold is left then.
    timer: Option<Timing>,
    /// Whether `timer` was started. No other thread changes it, unlike the timer itself.
    is_timed: bool,
}

/// The operation of the timer.
type Timing = <TimerSchedule as Sender>::Operation<Expiry>;

// SAFETY: other threads access the atomics, the relay and the stop source; the polling thread or the last user the rest.
unsafe impl Send for DeadlineScope {}
// SAFETY: as for `Send`.
unsafe impl Sync for DeadlineScope {}

impl DeadlineScope {
    pub(super) fn new(at: Option<Instant>, schedule: Option<TimerSchedule>) -> Self {
        DeadlineScope {
            relay: Relay::new(&RelayOwner {
                over: DeadlineScope::relay_over,
                reach_unlisted: None,
            }),
            scope: NonNull::dangling(),
            at,
            holds: AtomicU8::new(1),
            ended: AtomicBool::new(true),
            is_left: AtomicBool::new(false),
            stop: InplaceStopSource::new(),
            schedule,
            timer: None,
            is_timed: false,
        }
    }

    /// # Safety
    ///
    /// `begin` has returned. This is in flight, or the caller is a user of the scope.
    unsafe fn frame(&self) -> NonNull<Header> {
        // SAFETY: the caller's promise: the scope is alive.
        unsafe { self.scope.as_ref() }.frame
    }

    /// Stops the timer and unlinks the relay, once.
    ///
    /// # Safety
    ///
    /// `begin` has returned. The caller is a user of the scope, or has a hold.
    unsafe fn end(this: NonNull<DeadlineScope>) -> Transfer {
        // SAFETY: the caller's promise.
        let limit = unsafe { this.as_ref() };
        if limit.ended.swap(true, AcqRel) {
            return Transfer::none();
        }
        // The caller keeps this stop source alive.
        let stopped = limit.stop.request_stop_later();
        // SAFETY: `begin` linked the relay, and the swap lets one thread end it.
        stopped.and(unsafe { Relay::end(this.cast()) })
    }

    /// Handles the timer's completion: requests the stop if the time has come, then releases the timer's hold.
    ///
    /// # Safety
    ///
    /// Called once per started timer. `this` may be freed when it returns.
    unsafe fn timer_over(this: NonNull<DeadlineScope>, expired: bool) -> Transfer {
        let mut resumed = Transfer::none();
        if expired {
            // SAFETY: the timer's hold keeps the limit alive.
            let limit = unsafe { this.as_ref() };
            if !limit.is_left.load(Relaxed)
                && let Some(stopped) = limit.relay.request_stop(Why::DEADLINE.here())
            {
                resumed = stopped;
                // A future that does not listen gets one poll, in which it can check.
                // SAFETY: the frame counts this limit as an await.
                resumed.append(unsafe { Header::poll_again(limit.frame()) });
            }
        }
        // SAFETY: this is the timer's hold.
        resumed.and(unsafe { DeadlineScope::one_over(this) })
    }

    /// # Safety
    ///
    /// `relay` is the first field of a `DeadlineScope`, and is over.
    unsafe fn relay_over(relay: NonNull<Relay>) -> Transfer {
        // SAFETY: `relay` is the first field; this is the relay's hold.
        unsafe { DeadlineScope::one_over(relay.cast()) }
    }

    /// Releases the hold of the timer or of the relay, and ends its await.
    ///
    /// # Safety
    ///
    /// The caller has that hold.
    unsafe fn one_over(this: NonNull<DeadlineScope>) -> Transfer {
        // SAFETY: the hold keeps the limit alive, and the await its frame. The last holder ends the scope.
        unsafe {
            let (frame, scope) = (this.as_ref().frame(), this.as_ref().scope);
            if this.as_ref().holds.fetch_sub(1, AcqRel) == 1 {
                scoped_future::end::<DeadlineScope>(scope);
            }
            scoped_future::end_await(frame)
        }
    }
}

impl Change for DeadlineScope {
    unsafe fn begin(this: NonNull<Self>, scope: NonNull<ContextScope>, context: &mut Context) {
        let place = this.as_ptr();
        // SAFETY: the caller's promise: `this` is not shared yet, and this thread polls the frame of the scope.
        unsafe {
            (*place).scope = scope;
            let Some(at) = (*place).at else { return };
            context.deadline = Some(context.deadline.map_or(at, |outer| outer.min(at)));
            context.placement.deadline_around = context.deadline_around.or_earlier(at);
            let Some(schedule) = (*place).schedule.take() else {
                return;
            };
            // In flight from here on: count the await, and link to the outer token.
            (*place).ended = AtomicBool::new(false);
            (*place).holds = AtomicU8::new(2);
            let polling = Polling::new(scope.as_ref().frame);
            polling.count_wait();
            scope.as_ref().stops.set(Stops::PassedOn(context.token));
            Relay::link(this.cast(), context.token);
            context.token = (*place).relay.token();
            if (*place).relay.stop_requested() {
                // Already stopped from outside: this deadline cannot be the first reason.
                return;
            }
            if at <= Instant::now() {
                // No callback is registered yet, so no job results.
                drop((*place).relay.request_stop(Why::DEADLINE.here()));
                return;
            }
            // The timer's hold is added before its start, which may complete it at once.
            (*place).is_timed = true;
            (*place).holds = AtomicU8::new(3);
            polling.count_wait();
            let timer = (*place).timer.insert(schedule.connect(Expiry { limit: this }));
            polling.resume_later(start(Pin::new_unchecked(timer)));
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
            // Operations moved out of the scope are stopped separately; a forgotten inner scope stays a user forever.
            true => Transfer::none(),
            // Operations that still run inside must not wait for the rest of the time.
            false => limit.relay.request_stop(Why::SCOPE_LEFT).unwrap_or_default(),
        };
        // SAFETY: `this` has begun, and the caller keeps the scope's user. `end` does nothing if the stop above has ended it.
        stopped.and(unsafe { DeadlineScope::end(this) })
    }

    unsafe fn close(this: NonNull<Self>) -> bool {
        // SAFETY: the caller's promise: the hold of the users, which have left, keeps the limit alive until it is released here.
        unsafe {
            current::run_later(DeadlineScope::end(this)).run();
            this.as_ref().holds.fetch_sub(1, AcqRel) == 1
        }
    }

    fn has_stopped(&self) -> bool {
        self.relay.registry().why() == Some(Why::DEADLINE.here())
    }
}

/// The receiver of the timer.
struct Expiry {
    limit: NonNull<DeadlineScope>,
}

// SAFETY: `DeadlineScope` is `Sync`, and a timer completes once.
unsafe impl Send for Expiry {}

impl Expiry {
    fn complete(self, completion: Completion<(), Infallible>) -> Transfer {
        let expired = matches!(completion, Completion::Value(()));
        drop(completion);
        let this = ManuallyDrop::new(self);
        // SAFETY: consumes the receiver without its `Drop`, so this is the one completion.
        unsafe { DeadlineScope::timer_over(this.limit, expired) }
    }
}

impl Receiver<(), Infallible> for Expiry {
    type Env = Patched<WithStopToken<InplaceStopToken<'static>>, EmptyEnv>;

    fn env(&self) -> Self::Env {
        // SAFETY: the timer's hold keeps the limit alive until the completion, after which the environment is not used.
        let token = unsafe { self.limit.as_ref().stop.token().extend() };
        Patched::new(WithStopToken(token), EmptyEnv)
    }

    receive_as_completion!((), Infallible);
}

impl Drop for Expiry {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: dropped without a completion, so this is the one call.
        unsafe { DeadlineScope::timer_over(self.limit, false) }.run();
    }
}
