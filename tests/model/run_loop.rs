//! The run loop: pushing against sleeping, finishing and the end of the loop.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use bowline::prelude::*;
use bowline::scheduler::{RunLoop, RunLoopScheduler};
use loom::thread;

use crate::support::{World, explore};

/// A scheduler of a loop that the caller keeps alive until every thread that uses it has ended.
fn scheduler(run_loop: &Arc<RunLoop>) -> RunLoopScheduler<'static> {
    // SAFETY: the models join every thread, and run everything pushed, before they drop the loop.
    unsafe { &*Arc::as_ptr(run_loop) }.scheduler()
}

/// Covers the loop of `sync_wait` being destroyed while the push that ended it returns, and the reverse. The waiting thread is
/// woken whether it slept or not: no run of this model hangs.
#[test]
fn a_push_wakes_the_loop_and_outlives_it() {
    explore(3, &["the push had returned", "the push was on its way out"], |seen| {
        let world = World::default();
        let pushed = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let work = world.remote(8).noting_its_return(pushed.clone());
        assert_eq!(sync_wait(work).unwrap().read(), 8);
        seen.note(if pushed.load(SeqCst) {
            "the push had returned"
        } else {
            "the push was on its way out"
        });
        world.end();
    });
}

/// Covers both orders of two jobs pushed by two threads. The driver runs every job before `run` returns.
#[test]
fn two_producers_meet_a_sleeping_driver() {
    explore(2, &["one, two", "two, one"], |seen| {
        let world = World::default();
        let run_loop = Arc::new(RunLoop::new());
        let here = thread::current().id();
        let ran = Arc::new(Mutex::new(Vec::new()));
        let left = Arc::new(loom::sync::atomic::AtomicUsize::new(2));
        for number in [1, 2] {
            let (kept, left, ran) = (run_loop.clone(), left.clone(), ran.clone());
            let payload = world.census.value(number);
            world.threads.spawn(move || {
                execute(scheduler(&kept), move || {
                    assert_eq!(thread::current().id(), here);
                    ran.lock().expect("nobody panicked").push(payload.read());
                });
                if left.fetch_sub(1, SeqCst) == 1 {
                    kept.finish();
                }
            });
        }
        run_loop.run();
        let ran = ran.lock().expect("nobody panicked").clone();
        seen.note(match ran[..] {
            [1, 2] => "one, two",
            [2, 1] => "two, one",
            _ => panic!("{ran:?}"),
        });
        world.end();
    });
}

/// Covers a job pushed before `run` has drained the queue, which runs it, and after, when it stays for the next driver.
#[test]
fn a_push_races_with_the_end_of_run() {
    explore(3, &["drained", "left"], |seen| {
        let world = World::default();
        let run_loop = Arc::new(RunLoop::new());
        let ran = Arc::new(AtomicBool::new(false));
        world.threads.spawn({
            let (kept, ran, payload) = (run_loop.clone(), ran.clone(), world.census.value(1));
            move || {
                execute(scheduler(&kept), move || {
                    assert_eq!(payload.read(), 1);
                    assert!(!ran.swap(true, SeqCst));
                });
            }
        });
        run_loop.finish();
        run_loop.run();
        let drained = ran.load(SeqCst);
        world.threads.join();
        assert_eq!(run_loop.run_ready(), usize::from(!drained));
        assert!(ran.load(SeqCst));
        seen.note(if drained { "drained" } else { "left" });
        world.end();
    });
}

/// Covers `run` returning after either of two calls of `finish`, with nothing left by the other.
#[test]
fn a_second_finish_changes_nothing() {
    explore(3, &["returned"], |seen| {
        let world = World::default();
        let run_loop = Arc::new(RunLoop::new());
        world.threads.spawn({
            let run_loop = run_loop.clone();
            move || run_loop.finish()
        });
        run_loop.finish();
        run_loop.run();
        seen.note("returned");
        world.end();
        assert_eq!(run_loop.run_ready(), 0);
    });
}

/// Covers both orders in which two threads drive one loop in turn. Each gets its own result on its own thread, even if a
/// pushing thread saw the other one asleep.
#[test]
fn two_drivers_take_turns() {
    explore(2, &["this one first", "the other one first"], |seen| {
        let world = World::default();
        let run_loop = Arc::new(RunLoop::new());
        let order = Arc::new(Mutex::new(Vec::new()));
        let drive = |number| {
            let (run_loop, order) = (run_loop.clone(), order.clone());
            let remote = world.remote(number);
            move || {
                let here = thread::current().id();
                let back = remote.continues_on(run_loop.scheduler()).then(|value| {
                    assert_eq!(thread::current().id(), here);
                    value.read()
                });
                let number = run_loop.run_until(back).unwrap();
                order.lock().expect("nobody panicked").push(number);
            }
        };
        let (here, there) = (drive(1), drive(2));
        world.threads.spawn(there);
        here();
        world.threads.join();
        let order = order.lock().expect("nobody panicked").clone();
        seen.note(match order[..] {
            [1, 2] => "this one first",
            [2, 1] => "the other one first",
            _ => panic!("{order:?}"),
        });
        world.end();
    });
}

/// Covers a job pushed while this thread drives, and after. Its producer may see this thread asleep and publish the job while
/// the other one sleeps: the other one is woken all the same.
#[test]
fn a_producer_wakes_the_driver_that_sleeps_now() {
    explore(2, &["ran here", "ran there"], |seen| {
        let world = World::default();
        let run_loop = Arc::new(RunLoop::new());
        let here = thread::current().id();
        let ran_here = Arc::new(AtomicBool::new(false));
        let job = starts_on(scheduler(&run_loop), just(()))
            .then({
                let ran_here = ran_here.clone();
                move |()| ran_here.store(thread::current().id() == here, SeqCst)
            })
            .split();
        let (root, _report) = world.root();
        world.threads.spawn({
            let job = job.clone();
            move || submit(job, root)
        });
        world.threads.spawn({
            let run_loop = run_loop.clone();
            move || run_loop.run_until(job).unwrap()
        });
        run_loop.run_until(world.remote(1)).unwrap();
        world.end();
        seen.note(if ran_here.load(SeqCst) { "ran here" } else { "ran there" });
    });
}
