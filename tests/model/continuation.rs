//! Continuations: their end against the start of the waiting operation, its stop, the drop of its await, and its handler.

use std::cell::Cell;
use std::sync::{Arc, Mutex, Once};

use bowline::prelude::*;
use bowline::scheduler::InlineScheduler;
use bowline::stop::StopSource;
use bowline::task::{self, Continuation, SenderFuture, Task, continuation};
use loom::thread;

use crate::awaits::begin_and_drop;
use crate::support::{Ended, Root, Watched, World, explore};

type Failure = &'static str;
type Waiting = Continuation<Watched, Failure>;

thread_local! {
    /// The number of reports in one run. All threads of a model share one system thread.
    static REPORTS: Cell<usize> = const { Cell::new(0) };
}

/// Counts reports from zero.
fn watch_reports() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| task::set_report_hook(|_| REPORTS.set(REPORTS.get() + 1)));
    REPORTS.set(0);
}

/// The value returned by a failed `resume`.
type Back = Arc<Mutex<Option<Watched>>>;

fn take(back: &Back) -> Option<u32> {
    back.lock().expect("nobody panicked").take().map(|value| value.read())
}

/// Resumes with a six on a thread of its own, which starts before `start` has returned.
fn resume_elsewhere(world: &World, back: &Back) -> impl FnOnce(Waiting) + Send + use<> {
    let (threads, value, back) = (world.threads.clone(), world.census.value(6), back.clone());
    move |continuation| {
        threads.spawn(move || {
            value.touch();
            if let Err(value) = continuation.resume(value) {
                *back.lock().expect("nobody panicked") = Some(value);
            }
        });
    }
}

/// Starts the sender with a stop that another thread requests.
fn begin(world: &World, sender: impl Sender<Value = Watched, Error = Failure> + Send + 'static, root: Root) {
    let source = StopSource::new();
    let token = source.token();
    world.threads.spawn(move || {
        source.request_stop();
    });
    submit(sender.write_env(WithStopToken(token)), root);
}

/// Covers a resume before `start` has returned, which then completes the operation, and a later one.
#[test]
fn the_resume_races_with_the_start() {
    explore(3, &["by the start", "by the resume"], |seen| {
        let world = World::default();
        let (root, report) = world.root();
        let back = Back::default();
        submit(continuation(resume_elsewhere(&world, &back)), root);
        world.threads.join();
        assert_eq!(report.get(), Ended::Value(6));
        assert_eq!(take(&back), None);
        seen.note(if report.here() { "by the start" } else { "by the resume" });
        world.end();
    });
}

/// Covers the stop before, during and after the start, each before and after the resume. The value arrives or is returned.
#[test]
fn the_resume_races_with_the_stop() {
    let outcomes = ["resumed", "stopped, and given back", "never called"];
    explore(2, &outcomes, |seen| {
        let world = World::default();
        let (root, report) = world.root();
        let back = Back::default();
        begin(&world, continuation(resume_elsewhere(&world, &back)), root);
        world.threads.join();
        seen.note(match (report.get(), take(&back)) {
            (Ended::Value(6), None) => "resumed",
            (Ended::Stopped, Some(6)) => "stopped, and given back",
            (Ended::Stopped, None) => "never called",
            other => panic!("{other:?}"),
        });
        world.end();
    });
}

/// The await is dropped in flight while it is resumed: the value is dropped with the await, or returned. No thread uses the
/// memory of the await afterwards.
#[test]
fn the_resume_races_with_the_drop_of_the_await() {
    explore(3, &["resumed", "given back"], |seen| {
        let world = World::default();
        let (root, report) = world.root();
        let back = Back::default();
        let (sender, value) = (continuation(resume_elsewhere(&world, &back)), world.census.value(7));
        let task = Task::<Watched, Failure>::try_new(async move {
            begin_and_drop(SenderFuture::new(sender)).await;
            Ok(value)
        });
        submit(task.write_env(WithScheduler(InlineScheduler)), root);
        world.threads.join();
        assert_eq!(report.get(), Ended::Value(7));
        seen.note(match take(&back) {
            None => "resumed",
            Some(6) => "given back",
            other => panic!("{other:?}"),
        });
        world.end();
    });
}

/// Covers a dropped continuation, which is reported once, and one stopped before that, which is not.
#[test]
fn the_drop_races_with_the_stop() {
    explore(2, &["dropped", "stopped"], |seen| {
        watch_reports();
        let world = World::default();
        let (root, report) = world.root();
        let threads = world.threads.clone();
        let sender = continuation(move |continuation: Waiting| threads.spawn(move || drop(continuation)));
        begin(&world, sender, root);
        world.threads.join();
        assert_eq!(report.get(), Ended::Stopped);
        seen.note(match REPORTS.get() {
            1 => "dropped",
            0 => "stopped",
            other => panic!("reported {other} times"),
        });
        world.end();
    });
}

/// A handler is set while the stop is requested. It is called once, by the stopping thread or by the setting one, unless the
/// continuation has ended before.
#[test]
fn a_handler_races_with_the_stop() {
    let outcomes = ["by the stop", "at once", "never"];
    explore(2, &outcomes, |seen| {
        let world = World::default();
        let (root, report) = world.root();
        let called = Arc::new(Mutex::new(Vec::new()));
        let sender = continuation({
            let (threads, called) = (world.threads.clone(), called.clone());
            let counted = world.census.value(0);
            move |continuation: Waiting| {
                threads.spawn(move || {
                    let setter = thread::current().id();
                    counted.touch();
                    continuation.on_stop(move || {
                        counted.touch();
                        let at_once = thread::current().id() == setter;
                        called.lock().expect("nobody panicked").push(at_once);
                    });
                    continuation.stop();
                });
            }
        });
        begin(&world, sender, root);
        world.threads.join();
        assert_eq!(report.get(), Ended::Stopped);
        seen.note(match called.lock().expect("nobody panicked")[..] {
            [false] => "by the stop",
            [true] => "at once",
            [] => "never",
            _ => panic!("called twice"),
        });
        world.end();
    });
}
