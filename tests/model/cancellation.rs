//! Handlers and deadlines: installation against cancellation, expiry against the end, and futures that are dropped elsewhere,
//! by their own handler, or never.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop, Timer};
use bowline::stop::StopSource;
use bowline::task::{self, DeadlineExceeded, SenderFuture};
use loom::thread;

use crate::awaits::begin_and_give;
use crate::support::{Ended, Watched, World, costly, explore, race};
use crate::task::{Failure, Sendable, awaited, begin, begin_and_stop, task};

/// A handler that counts its calls and touches a watched value. The value is dropped after the call, or when no call can come.
struct Handler {
    calls: Arc<AtomicUsize>,
    owned: Watched,
}

// SAFETY: the threads of a model share one system thread, and `loom` watches the value.
unsafe impl Send for Handler {}

impl Handler {
    fn new(world: &World) -> (Self, Arc<AtomicUsize>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let handler = Handler {
            calls: calls.clone(),
            owned: world.census.value(1),
        };
        (handler, calls)
    }

    fn call(self) {
        self.owned.touch();
        assert_eq!(self.calls.fetch_add(1, SeqCst), 0, "called twice");
    }
}

/// Returns a future that is never ready.
fn forever() -> impl Future<Output = ()> + Send {
    std::future::pending()
}

/// A task waits for a future of another crate alone. A stop before its suspension, during it and after it drops the future.
#[test]
fn the_suspension_in_a_foreign_future_races_with_the_cancel() {
    race(3, &["by the task", "by the stop"], |world, root, report| {
        let value = world.census.value(7);
        let inside = async move {
            forever().await;
            Ok(value)
        };
        begin_and_stop(&world, task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Stopped);
        if report.here() { "by the task" } else { "by the stop" }
    });
}

/// Another thread completes the future of another crate while the task is stopped: the task ends once, in one way.
#[test]
fn the_end_of_a_foreign_future_races_with_the_cancel() {
    race(2, &["stopped", "value"], |world, root, report| {
        let value = world.census.value(7);
        let state = Arc::new(loom::sync::Mutex::new((false, None::<Waker>)));
        let completed = state.clone();
        let inside = async move {
            poll_fn(move |cx| {
                let mut state = state.lock().expect("no thread panicked");
                state.1 = Some(cx.waker().clone());
                if state.0 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            Ok(value)
        };
        world.threads.spawn(move || {
            let waker = {
                let mut state = completed.lock().expect("no thread panicked");
                state.0 = true;
                state.1.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        begin_and_stop(&world, task(inside), root);
        world.end();
        match report.get() {
            Ended::Value(7) => "value",
            Ended::Stopped => "stopped",
            other => panic!("{other:?}"),
        }
    });
}

/// Covers a cancellation before the handler is installed, while the operation runs, and after its end. The handler is called at
/// once, by the cancelling thread, or not at all. The operation returns its value.
#[test]
fn the_installation_of_a_handler_races_with_the_cancel() {
    race(
        2,
        &["at once", "by who cancels", "not called"],
        |world, root, report| {
            let (handler, calls) = Handler::new(&world);
            let here = thread::current().id();
            let called_here = Arc::new(AtomicUsize::new(0));
            let operation = awaited(world.remote(6));
            let inside = {
                let called_here = called_here.clone();
                let handle = move || {
                    if thread::current().id() == here {
                        called_here.store(1, SeqCst);
                    }
                    handler.call();
                };
                async move { task::with_cancellation_handler(handle, operation).await }
            };
            begin_and_stop(&world, task(inside), root);
            world.end();
            assert_eq!(report.get(), Ended::Value(6));
            match (calls.load(SeqCst), called_here.load(SeqCst)) {
                (1, 1) => "at once",
                (1, 0) => "by who cancels",
                (0, 0) => "not called",
                other => panic!("{other:?}"),
            }
        },
    );
}

/// A handler that records its start and its return, and yields in between.
#[derive(Clone, Default)]
struct Call {
    began: loom::sync::Arc<loom::sync::atomic::AtomicUsize>,
    ended: loom::sync::Arc<loom::sync::atomic::AtomicUsize>,
    by: Arc<Mutex<Option<thread::ThreadId>>>,
}

impl Call {
    fn handler(&self, world: &World) -> impl FnOnce() + Send + use<> {
        let (handler, _) = Handler::new(world);
        let call = Sendable::new(self.clone());
        move || {
            let Sendable(call) = { call };
            *call.by.lock().expect("nobody panicked") = Some(thread::current().id());
            call.began.fetch_add(1, Relaxed);
            handler.call();
            call.ended.fetch_add(1, Relaxed);
        }
    }

    /// Asserts that it is not running. Returns whether it was called.
    fn is_over(&self) -> bool {
        let (began, ended) = (self.began.load(Relaxed), self.ended.load(Relaxed));
        assert_eq!(began, ended, "the handler is still running");
        began != 0
    }

    /// Returns which thread called it: none, this one, or another.
    fn by(&self) -> &'static str {
        match *self.by.lock().expect("nobody panicked") {
            None => "not called",
            Some(by) if by == thread::current().id() => "called here",
            Some(_) => "called there",
        }
    }
}

/// The operation ends, and the poll removes the handler, while another thread calls it: the task continues after its return.
#[test]
fn a_task_goes_on_when_its_handler_has_returned() {
    race(
        2,
        &["called here", "called there", "not called"],
        |world, root, report| {
            let (call, value) = (Call::default(), world.census.value(7));
            let (handler, over) = (call.handler(&world), call.clone());
            let inside = async move {
                // Suspends once, so that a cancellation can arrive in between.
                let mut polled = false;
                let operation = poll_fn(move |context| {
                    if std::mem::replace(&mut polled, true) {
                        return Poll::Ready(());
                    }
                    context.waker().wake_by_ref();
                    Poll::Pending
                });
                task::with_cancellation_handler(handler, operation).await;
                over.is_over();
                Ok(value)
            };
            begin_and_stop(&world, task(inside), root);
            world.end();
            assert_eq!(report.get(), Ended::Value(7));
            call.is_over();
            call.by()
        },
    );
}

/// The future is dropped in the poll while another thread calls its handler. The drop does not block, and the task finishes
/// after the handler has returned.
#[test]
fn a_task_is_done_when_a_handler_that_was_dropped_has_returned() {
    race(
        2,
        &["called here", "called there", "not called"],
        |world, root, report| {
            let (call, value) = (Call::default(), world.census.value(7));
            let (handler, over) = (call.handler(&world), call.clone());
            let inner = task(async move {
                let handled = task::with_cancellation_handler(handler, forever());
                begin_and_give(handled, drop).await;
                Ok(value)
            });
            let outer = task(async move {
                let value = inner.await;
                over.is_over();
                value
            });
            begin_and_stop(&world, outer, root);
            world.end();
            assert_eq!(report.get(), Ended::Value(7));
            call.is_over();
            call.by()
        },
    );
}

/// The cancellation stops the operation before it has reached the handler: the task, which removes the handler, calls it. It is
/// called exactly once.
#[test]
fn a_cancel_that_ends_the_operation_races_with_its_way_to_the_handler() {
    race(2, &["cancelled", "not cancelled"], |world, root, report| {
        let (call, remote) = (Call::default(), world.stoppable(6));
        let (handler, over) = (call.handler(&world), call.clone());
        let inside = async move {
            let stoppable = SenderFuture::new(remote.stopped_as_option());
            let result = task::with_cancellation_handler(handler, stoppable).await?;
            let called = over.is_over();
            // Only the cancellation stops the operation, and it also calls the handler.
            assert!(result.is_some() || called);
            result.ok_or("cancelled")
        };
        begin_and_stop(&world, task(inside), root);
        world.end();
        match (report.get(), call.is_over()) {
            (Ended::Error("cancelled"), true) => "cancelled",
            (Ended::Value(6), _) => "not cancelled",
            other => panic!("{other:?}"),
        }
    });
}

/// Another thread drops the future while the task is cancelled and while it ends. In every order, no thread uses the handler or
/// the stop source afterwards.
#[test]
fn the_drop_of_a_handler_elsewhere_races_with_the_cancel_and_the_end_of_the_task() {
    race(2, &["called", "not called"], |world, root, report| {
        let (handler, calls) = Handler::new(&world);
        let (value, threads) = (world.census.value(7), world.threads.clone());
        let inside = async move {
            let handled = task::with_cancellation_handler(move || handler.call(), forever());
            begin_and_give(handled, move |handled| threads.spawn(move || drop(handled))).await;
            Ok(value)
        };
        begin_and_stop(&world, task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if calls.load(SeqCst) == 1 {
            "called"
        } else {
            "not called"
        }
    });
}

/// The future is never dropped: the end of the task removes the handler while the task is cancelled.
#[test]
fn the_end_of_the_task_races_with_the_cancel_for_a_handler_that_was_forgotten() {
    race(2, &["called", "not called"], |world, root, report| {
        let calls = Arc::new(AtomicUsize::new(0));
        let value = world.census.value(7);
        let inside = {
            let calls = calls.clone();
            async move {
                let handle = move || {
                    calls.fetch_add(1, SeqCst);
                };
                begin_and_give(task::with_cancellation_handler(handle, forever()), std::mem::forget).await;
                Ok(value)
            }
        };
        begin_and_stop(&world, task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        match calls.load(SeqCst) {
            1 => "called",
            0 => "not called",
            calls => panic!("called {calls} times"),
        }
    });
}

type Slot = Arc<Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>>;

/// The handler drops its own future while the task ends and removes the handler: neither waits for the other.
#[test]
fn a_handler_that_drops_its_future_races_with_the_end_of_the_task() {
    explore(2, &["dropped by the handler", "left"], |seen| {
        let world = World::default();
        let (root, report) = world.root();
        let (handler, _) = Handler::new(&world);
        let value = world.census.value(7);
        let slot = Slot::default();
        let inside = {
            let (slot, kept) = (slot.clone(), slot.clone());
            async move {
                let handle = move || {
                    let own = slot.lock().expect("nobody panicked").take();
                    drop(own);
                    handler.call();
                };
                begin_and_give(task::with_cancellation_handler(handle, forever()), move |handled| {
                    *kept.lock().expect("nobody panicked") = Some(handled);
                })
                .await;
                Ok(value)
            }
        };
        begin_and_stop(&world, task(inside), root);
        world.threads.join();
        assert_eq!(report.get(), Ended::Value(7));
        let left = slot.lock().expect("nobody panicked").take();
        seen.note(if left.is_some() {
            "left"
        } else {
            "dropped by the handler"
        });
        drop(left);
        world.end();
    });
}

const HOUR: Duration = Duration::from_secs(3600);

/// Returns a timer that fires on a thread of its own.
fn timer(world: &World) -> Timer {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    world.threads.spawn({
        let timer = timer.clone();
        move || {
            timer.advance_to(2 * HOUR);
            run_loop.run_ready();
        }
    });
    timer
}

/// Covers the operation ending before the deadline, and being stopped by it.
#[test]
fn the_deadline_races_with_the_end_of_the_operation() {
    race(1, &["ended", "exceeded"], |world, root, report| {
        let (sender, timer) = (world.stoppable(6), timer(&world));
        let inside = async move {
            let limited = task::with_timeout(HOUR, SenderFuture::new(sender)).on(&timer);
            drop(timer);
            limited.await.unwrap_or_else(|DeadlineExceeded| Err("exceeded"))
        };
        begin(task(inside), root);
        world.end();
        match report.get() {
            Ended::Value(6) => "ended",
            Ended::Error("exceeded") => "exceeded",
            other => panic!("{other:?}"),
        }
    });
}

/// Covers a cancellation, which stops the task, and the deadline, which is an error: the first one decides.
#[test]
fn the_deadline_races_with_the_cancel() {
    race(2, &["cancelled", "exceeded"], |world, root, report| {
        let run_loop = RunLoop::new();
        let timer = Timer::on(&run_loop);
        let limited = task::with_timeout(HOUR, SenderFuture::new(never::<Watched, Failure>())).on(&timer);
        let inside = async { limited.await.unwrap_or_else(|DeadlineExceeded| Err("exceeded")) };
        let source = StopSource::new();
        let env = (WithScheduler(InlineScheduler), WithStopToken(source.token()));
        submit(task(inside).write_env(env.0).write_env(env.1), root);
        timer.advance_to(2 * HOUR);
        world.threads.spawn(move || {
            source.request_stop();
        });
        run_loop.run_ready();
        world.end();
        match report.get() {
            Ended::Stopped => "cancelled",
            Ended::Error("exceeded") => "exceeded",
            other => panic!("{other:?}"),
        }
    });
}

/// Another thread drops the future while the deadline passes and while the task ends.
#[test]
fn the_drop_of_a_deadline_elsewhere_races_with_its_expiry_and_the_end_of_the_task() {
    race(costly(2), &["went on"], |world, root, report| {
        let (timer, value, threads) = (timer(&world), world.census.value(7), world.threads.clone());
        let inside = async move {
            let limited = task::with_timeout(HOUR, forever()).on(&timer);
            drop(timer);
            begin_and_give(limited, move |limited| threads.spawn(move || drop(limited))).await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        "went on"
    });
}

/// A scope is left, which stops its timer, while the deadline passes on another thread. The inside has ended already, and does
/// not report the deadline.
#[test]
fn the_expiry_of_a_deadline_races_with_leaving_it() {
    race(2, &["cancelled inside", "in time"], |world, root, report| {
        let (timer, value) = (timer(&world), world.census.value(7));
        let cancelled = Arc::new(AtomicUsize::new(0));
        let noted = cancelled.clone();
        let inside = async move {
            let limited = task::with_timeout(HOUR, async { task::is_cancelled() }).on(&timer);
            drop(timer);
            match limited.await {
                Ok(cancelled) => noted.store(cancelled.into(), SeqCst),
                Err(DeadlineExceeded) => return Err("exceeded"),
            }
            assert!(!task::is_cancelled(), "the task itself is not cancelled");
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if cancelled.load(SeqCst) == 1 {
            "cancelled inside"
        } else {
            "in time"
        }
    });
}

/// The future is sent away and dropped last: the end of the task stops the timer while the deadline passes.
#[test]
fn the_end_of_the_task_races_with_a_deadline_that_was_sent_away() {
    race(2, &["went on"], |world, root, report| {
        let (timer, value) = (timer(&world), world.census.value(7));
        let slot = Arc::new(Mutex::new(None));
        let kept = slot.clone();
        let inside = async move {
            let limited = task::with_timeout(HOUR, forever()).on(&timer);
            drop(timer);
            begin_and_give(limited, move |limited| {
                *kept.lock().expect("nobody panicked") = Some(limited);
            })
            .await;
            Ok(value)
        };
        begin(task(inside), root);
        world.threads.join();
        assert_eq!(report.get(), Ended::Value(7));
        drop(slot.lock().expect("nobody panicked").take());
        world.end();
        "went on"
    });
}

/// Starts a sender inside a deadline, and awaits it outside. A sender that was already stopped is not awaited.
async fn moved_out<S>(sender: S, timer: Timer) -> Result<Watched, Failure>
where
    S: Sender<Value = Watched, Error = Failure> + 'static,
{
    let mut future = SenderFuture::new(sender);
    let begun = poll_fn(|context| {
        let polled = Pin::new(&mut future).poll(context);
        Poll::Ready((polled, task::is_cancelled()))
    });
    let limited = task::with_timeout(HOUR, begun).on(&timer);
    drop(timer);
    match limited.await {
        Ok((Poll::Ready(result), _)) => result,
        Ok((Poll::Pending, false)) => future.await,
        Ok((Poll::Pending, true)) => Err("cancelled"),
        Err(DeadlineExceeded) => Err("exceeded"),
    }
}

/// A sender moved out of a deadline ends only by a stop, which the scope passes on even after it was left.
#[test]
fn the_cancel_reaches_what_was_moved_out_of_a_deadline() {
    race(2, &["stopped", "cancelled before"], |world, root, report| {
        // The loop is not driven: the scope is left long before its deadline.
        let run_loop = RunLoop::new();
        let timer = Timer::on(&run_loop);
        begin_and_stop(&world, task(moved_out(never::<Watched, Failure>(), timer)), root);
        world.end();
        match report.get() {
            Ended::Stopped => "stopped",
            Ended::Error("cancelled") => "cancelled before",
            other => panic!("{other:?}"),
        }
    });
}

/// A sender moved out of a deadline is the scope's last user. It ends on another thread while the task is cancelled. The scope
/// ends once, after the last stop was passed on.
#[test]
fn the_end_of_what_was_moved_out_of_a_deadline_races_with_the_cancel() {
    race(
        costly(2),
        &["ended", "stopped", "cancelled before"],
        |world, root, report| {
            let run_loop = RunLoop::new();
            let (sender, timer) = (world.stoppable(6), Timer::on(&run_loop));
            begin_and_stop(&world, task(moved_out(sender, timer)), root);
            world.end();
            match report.get() {
                Ended::Value(6) => "ended",
                Ended::Stopped => "stopped",
                Ended::Error("cancelled") => "cancelled before",
                other => panic!("{other:?}"),
            }
        },
    );
}

/// A sender moved out of a deadline ends on another thread while the scope is left, and the deadline passes on a third.
#[test]
fn the_end_of_what_was_moved_out_of_a_deadline_races_with_its_expiry() {
    race(costly(2), &["ended", "late"], |world, root, report| {
        let (sender, timer) = (world.remote(6), timer(&world));
        begin(task(moved_out(sender, timer)), root);
        world.end();
        match report.get() {
            Ended::Value(6) => "ended",
            Ended::Error("cancelled") => "late",
            other => panic!("{other:?}"),
        }
    });
}

/// A scope is left while a future begun in it is dropped elsewhere: both memories stay valid until both have finished.
#[test]
fn the_end_of_a_scope_races_with_the_drop_of_what_was_sent_out_of_it() {
    race(2, &["went on"], |world, root, report| {
        let (handler, calls) = Handler::new(&world);
        // The loop is not driven: the scope is left long before its deadline.
        let run_loop = RunLoop::new();
        let (timer, value, threads) = (Timer::on(&run_loop), world.census.value(7), world.threads.clone());
        let inside = async move {
            let sent = Sendable::new(async move {
                let handled = task::with_cancellation_handler(move || handler.call(), forever());
                begin_and_give(handled, move |handled| threads.spawn(move || drop(handled))).await;
            });
            let limited = task::with_timeout(HOUR, sent).on(&timer);
            drop(timer);
            limited.await.map_err(|DeadlineExceeded| "exceeded")?;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!((report.get(), calls.load(SeqCst)), (Ended::Value(7), 0));
        "went on"
    });
}
