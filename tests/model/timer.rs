//! Timers: starting against sleeping, firing, stopping, and the drop of the last handle. Time advances only by
//! [`Timer::advance_to`] in a model, so a lost wake-up is a thread that sleeps forever.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use bowline::model::AlarmModel;
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, Timer};
use bowline::stop::StopSource;
use loom::thread;

use crate::support::{Ended, World, explore};

const SECOND: Duration = Duration::from_secs(1);

/// Covers a timer that is due at once, started while the driver is about to sleep for a later one, or sleeps. The driver is
/// woken, and the later one stays.
#[test]
fn a_start_wakes_a_driver_that_sleeps_for_a_later_deadline() {
    explore(3, &["fired"], |seen| {
        let world = World::default();
        let run_loop = Arc::new(RunLoop::new());
        let timer = Timer::on(&run_loop);
        let later = StopSource::new();
        let (root, report) = world.root();
        submit(
            timer.schedule_after(SECOND).write_env(WithStopToken(later.token())),
            root,
        );
        world.threads.spawn({
            let (run_loop, payload) = (run_loop.clone(), world.census.value(1));
            move || {
                start_detached(timer.scheduler().schedule().then(move |()| {
                    assert_eq!(payload.read(), 1);
                    run_loop.finish();
                }));
            }
        });
        run_loop.run();
        assert!(!report.is_there());
        later.request_stop();
        assert_eq!(report.get(), Ended::Stopped);
        seen.note("fired");
        world.end();
    });
}

/// Covers a deadline in the future: the driver sleeps no longer than until then, and the clock ends its sleep.
#[test]
fn an_earlier_deadline_shortens_the_sleep() {
    explore(3, &["fired"], |seen| {
        let world = World::default();
        let run_loop = Arc::new(RunLoop::new());
        let timer = Timer::on(&run_loop);
        let later = StopSource::new();
        let (root, report) = world.root();
        submit(
            timer.schedule_after(2 * SECOND).write_env(WithStopToken(later.token())),
            root,
        );
        world.threads.spawn({
            let run_loop = run_loop.clone();
            move || {
                start_detached(timer.schedule_after(SECOND).then(move |()| run_loop.finish()));
                timer.advance_to(SECOND);
            }
        });
        run_loop.run();
        assert!(!report.is_there());
        later.request_stop();
        seen.note("fired");
        world.end();
    });
}

/// Covers a loop getting its timer while its driver is about to sleep, or sleeps.
#[test]
fn a_loop_that_sleeps_gets_a_timer() {
    explore(3, &["fired"], |seen| {
        let world = World::default();
        let run_loop = Arc::new(RunLoop::new());
        world.threads.spawn({
            let run_loop = run_loop.clone();
            move || {
                let timer = Timer::on(&run_loop);
                start_detached(timer.schedule_after(SECOND).then(move |()| run_loop.finish()));
                timer.advance_to(SECOND);
            }
        });
        run_loop.run();
        seen.note("fired");
        world.end();
    });
}

/// Covers both of two threads being the first to give a loop its timer; there is only one.
#[test]
fn two_threads_give_a_loop_its_timer() {
    explore(3, &["one"], |seen| {
        let world = World::default();
        let run_loop = Arc::new(RunLoop::new());
        let other = Arc::new(std::sync::Mutex::new(None));
        world.threads.spawn({
            let (run_loop, other) = (run_loop.clone(), other.clone());
            move || *other.lock().expect("nobody panicked") = Some(Timer::on(&run_loop))
        });
        let timer = Timer::on(&run_loop);
        world.threads.join();
        assert_eq!(other.lock().expect("nobody panicked").take(), Some(timer));
        seen.note("one");
        world.end();
    });
}

/// Covers a stop before the start, while the timer is pending, when it is due, and after it has fired. It completes once, and
/// its memory is freed at once.
#[test]
fn a_stop_races_with_the_start_and_the_deadline() {
    let outcomes = [
        "fired",
        "stopped in the start",
        "stopped by the stopping thread",
        "stopped in its turn",
    ];
    explore(3, &outcomes, |seen| {
        let world = World::default();
        let run_loop = RunLoop::new();
        let timer = Timer::on(&run_loop);
        let source = StopSource::new();
        let (root, report) = world.root();
        world.threads.spawn({
            let source = source.clone();
            move || _ = source.request_stop()
        });
        let schedule = timer.scheduler().schedule();
        submit(schedule.write_env(WithStopToken(source.token())), root);
        let in_start = report.is_there() && report.here();
        run_loop.run_ready();
        world.threads.join();
        seen.note(match (report.get(), report.here()) {
            (Ended::Value(0), true) => "fired",
            (Ended::Stopped, true) if in_start => "stopped in the start",
            (Ended::Stopped, true) => "stopped in its turn",
            (Ended::Stopped, false) => "stopped by the stopping thread",
            other => panic!("{other:?}"),
        });
        assert_eq!(run_loop.run_ready(), 0);
        world.end();
    });
}

/// Covers a stop before a timer is pending, and after. No time passes, so the stop completes it.
#[test]
fn a_stop_races_with_the_start_of_a_later_timer() {
    explore(3, &["stopped in the start", "stopped by the stopping thread"], |seen| {
        let world = World::default();
        let run_loop = RunLoop::new();
        let timer = Timer::on(&run_loop);
        let source = StopSource::new();
        let (root, report) = world.root();
        world.threads.spawn({
            let source = source.clone();
            move || _ = source.request_stop()
        });
        submit(
            timer.schedule_after(SECOND).write_env(WithStopToken(source.token())),
            root,
        );
        world.threads.join();
        assert_eq!(report.get(), Ended::Stopped);
        seen.note(if report.here() {
            "stopped in the start"
        } else {
            "stopped by the stopping thread"
        });
        timer.advance_to(SECOND);
        assert_eq!(run_loop.run_ready(), 0);
        world.end();
    });
}

/// Covers two timers of one slot, one firing while the other is stopped: the lists stay consistent, and a third fires.
#[test]
fn a_stop_beside_one_that_fires_leaves_the_others() {
    explore(3, &["fired", "stopped"], |seen| {
        let world = World::default();
        let run_loop = RunLoop::new();
        let timer = Timer::on(&run_loop);
        let source = StopSource::new();
        let fired = Arc::new(AtomicBool::new(false));
        let (root, report) = world.root();
        start_detached(timer.schedule_after(SECOND));
        submit(
            timer.schedule_after(SECOND).write_env(WithStopToken(source.token())),
            root,
        );
        start_detached(timer.schedule_after(SECOND).then({
            let fired = fired.clone();
            move |()| fired.store(true, SeqCst)
        }));
        timer.advance_to(SECOND);
        world.threads.spawn(move || _ = source.request_stop());
        run_loop.run_ready();
        world.threads.join();
        assert!(fired.load(SeqCst));
        seen.note(match report.get() {
            Ended::Value(0) => "fired",
            Ended::Stopped => "stopped",
            other => panic!("{other:?}"),
        });
        world.end();
    });
}

/// Covers a timer starting and firing on the timer's thread, while another handle is the last to be dropped, or not. The thread
/// ends in every order.
#[test]
fn the_last_handle_goes_while_a_timer_starts() {
    explore(2, &["fired"], |seen| {
        let world = World::default();
        let timer = Timer::new();
        let (root, report) = world.root();
        world.threads.spawn({
            let schedule = timer.scheduler().schedule();
            move || submit(schedule, root)
        });
        drop(timer);
        world.threads.join();
        // The timer's thread is not joined: it has ended when it has nothing to do.
        while !report.is_there() {
            thread::yield_now();
        }
        assert_eq!(report.get(), Ended::Value(0));
        assert!(!report.here());
        seen.note("fired");
        while world.census.alive() != 0 {
            thread::yield_now();
        }
    });
}

/// Covers the stop of a timer that owns the last handle, while the thread sleeps for it or is about to. The thread ends.
#[test]
fn the_last_handle_goes_with_a_timer_that_is_stopped() {
    explore(2, &["stopped"], |seen| {
        let world = World::default();
        let source = StopSource::new();
        let (root, report) = world.root();
        let schedule = Timer::new().schedule_after(SECOND);
        submit(schedule.write_env(WithStopToken(source.token())), root);
        source.request_stop();
        assert_eq!(report.get(), Ended::Stopped);
        assert!(report.here());
        seen.note("stopped");
        world.end();
    });
}

/// A waker that counts its calls.
#[derive(Default)]
struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Covers an alarm that is ended before it fires, while the driver takes it out, and after it has fired. Its memory is freed at once.
#[test]
fn the_end_of_an_alarm_races_with_its_time() {
    explore(3, &["ended", "fired"], |seen| {
        let world = World::default();
        let run_loop = RunLoop::new();
        let timer = Timer::on(&run_loop);
        let woken = Arc::new(Counts::default());
        let alarm = AlarmModel::begin(&timer, Duration::ZERO, Waker::from(woken.clone()));
        world.threads.spawn(move || drop(alarm));
        run_loop.run_ready();
        world.threads.join();
        run_loop.run_ready();
        assert_eq!(Arc::strong_count(&woken), 1, "a waker is lost");
        seen.note(match woken.0.load(SeqCst) {
            0 => "ended",
            1 => "fired",
            more => panic!("woken {more} times"),
        });
        world.end();
    });
}

/// Covers a waker that is replaced before the alarm fires, meanwhile, and afterwards. One of the two is woken, or the owner sees that
/// the alarm has fired.
#[test]
fn a_new_waker_of_an_alarm_races_with_its_time() {
    explore(3, &["the first", "the second"], |seen| {
        let world = World::default();
        let run_loop = RunLoop::new();
        let timer = Timer::on(&run_loop);
        let (first, second) = (Arc::new(Counts::default()), Arc::new(Counts::default()));
        let alarm = AlarmModel::begin(&timer, Duration::ZERO, Waker::from(first.clone()));
        let other = Waker::from(second.clone());
        let has_fired = Arc::new(AtomicBool::new(false));
        // A task would suspend with the alarm: it is dropped when the thread has ended and the time is over.
        let kept = Arc::new(Mutex::new(None));
        world.threads.spawn({
            let (has_fired, kept) = (has_fired.clone(), kept.clone());
            move || {
                alarm.set_waker(&other);
                has_fired.store(alarm.has_fired(), SeqCst);
                drop(other);
                *kept.lock().expect("no thread panicked") = Some(alarm);
            }
        });
        run_loop.run_ready();
        world.threads.join();
        run_loop.run_ready();
        seen.note(match (first.0.load(SeqCst), second.0.load(SeqCst)) {
            (1, 0) => {
                assert!(has_fired.load(SeqCst), "the owner waits for a waker that is not woken");
                "the first"
            }
            (0, 1) => "the second",
            other => panic!("{other:?}"),
        });
        let alarm = kept.lock().expect("no thread panicked").take();
        drop(alarm);
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 1));
        world.end();
    });
}
