//! `task::continuation`: an awaited callback, and the hook that reports a dropped one.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop, TaskScheduler, ThreadPool};
use bowline::stop::StopSource;
use bowline::task::{self, Continuation, LocalTask, Report, SenderFuture, Task, continuation, yield_now};
use bowline::{EmptyEnv, Patched};

type Error = &'static str;

/// A counter of dropped continuations of this file, which holds the hook.
struct Reports {
    dropped: Arc<AtomicUsize>,
    _hook: ReportHook,
}

impl Reports {
    fn watch() -> Self {
        let dropped = Arc::new(AtomicUsize::new(0));
        let hook = ReportHook::set({
            let dropped = dropped.clone();
            move |report| {
                if is_ours(report) {
                    dropped.fetch_add(1, SeqCst);
                }
            }
        });
        Reports { dropped, _hook: hook }
    }

    fn dropped(&self) -> usize {
        self.dropped.load(SeqCst)
    }
}

/// Returns whether a continuation was created in this file: other tests of the process drop some too.
fn is_ours(report: &Report<'_>) -> bool {
    matches!(report, Report::ContinuationDropped { location, .. } if location.file() == file!())
}

/// Returns a sender that waits for a continuation, and a receiver of the continuation.
fn given<T: Send + 'static, E: Send + 'static>() -> (
    impl Sender<Value = T, Error = E> + Send + 'static,
    mpsc::Receiver<Continuation<T, E>>,
) {
    let (give, take) = mpsc::channel();
    let sender = continuation(move |continuation: Continuation<T, E>| {
        give.send(continuation).expect("somebody waits for it");
    });
    (sender, take)
}

/// Runs a task on a run loop, and on pools of several sizes.
fn everywhere<T: Send + 'static, E: Send + 'static>(make: impl Fn() -> Task<T, E>, check: impl Fn(Outcome<T, E>)) {
    check(RunLoop::new().run_until(make()));
    for workers in [1, 2, 8] {
        let pool = ThreadPool::new(workers);
        check(sync_wait(starts_on(pool.scheduler(), make())));
    }
}

#[test]
fn resumes_with_a_value_an_error_or_a_stop() {
    let reports = Reports::watch();
    // Inside the function, and on another thread.
    let resume = |elsewhere: bool, resume: fn(Continuation<u32, Error>)| {
        move || {
            Task::try_new(async move {
                continuation(move |continuation: Continuation<u32, Error>| {
                    if elsewhere {
                        thread::spawn(move || resume(continuation));
                    } else {
                        resume(continuation);
                    }
                })
                .await
            })
        }
    };
    for elsewhere in [false, true] {
        let value = |continuation: Continuation<u32, Error>| assert_eq!(continuation.resume(1), Ok(()));
        everywhere(resume(elsewhere, value), |outcome| {
            assert_eq!(outcome, Outcome::Value(1))
        });
        let error = |continuation: Continuation<u32, Error>| assert_eq!(continuation.fail("no"), Ok(()));
        everywhere(resume(elsewhere, error), |outcome| {
            assert_eq!(outcome, Outcome::Error("no"))
        });
        let ok = |continuation: Continuation<u32, Error>| assert_eq!(continuation.resume_with(Ok(2)), Ok(()));
        everywhere(resume(elsewhere, ok), |outcome| assert_eq!(outcome, Outcome::Value(2)));
        let err = |continuation: Continuation<u32, Error>| assert_eq!(continuation.resume_with(Err("no")), Ok(()));
        everywhere(resume(elsewhere, err), |outcome| {
            assert_eq!(outcome, Outcome::Error("no"))
        });
        everywhere(resume(elsewhere, Continuation::stop), |outcome| {
            assert_eq!(outcome, Outcome::Stopped)
        });
    }
    assert_eq!(reports.dropped(), 0);
}

#[test]
fn dropped_it_stops_and_is_reported() {
    let reports = Reports::watch();
    for elsewhere in [false, true] {
        let before = reports.dropped();
        let make = || {
            Task::try_new(async move {
                continuation(move |continuation: Continuation<u32, Error>| {
                    if elsewhere {
                        thread::spawn(move || drop(continuation));
                    } else {
                        drop(continuation);
                    }
                })
                .await
            })
        };
        everywhere(make, |outcome| assert_eq!(outcome, Outcome::Stopped));
        assert_eq!(reports.dropped() - before, 4);
    }
}

#[test]
fn the_report_says_where_it_was_made() {
    let (told, tells) = mpsc::channel();
    let hook = ReportHook::set(move |report| {
        if is_ours(report) {
            told.send(report.to_string()).expect("the test listens");
        }
    });
    let line = line!() + 1;
    let sender = continuation(|continuation: Continuation<()>| drop(continuation));
    assert!(sync_wait(sender).is_stopped());
    drop(hook);
    let report = tells.recv().expect("it was told");
    assert!(report.contains(&format!("{}:{line}:", file!())), "{report}");
}

/// Runs in a process of its own, so no other test sets the hook.
#[test]
fn without_a_hook_a_line_is_printed() {
    const INSIDE: &str = "BOWLINE_PRINTS";
    if std::env::var_os(INSIDE).is_some() {
        let _ = sync_wait(continuation(|continuation: Continuation<()>| drop(continuation)));
        task::set_report_hook(|_| {});
        let _ = sync_wait(continuation(|continuation: Continuation<()>| drop(continuation)));
        task::reset_report_hook();
        let _ = sync_wait(continuation(|continuation: Continuation<()>| drop(continuation)));
        return;
    }
    let output = in_own_process("without_a_hook_a_line_is_printed", &[(INSIDE, "1")]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<_> = printed.lines().filter(|line| line.starts_with("bowline: ")).collect();
    assert_eq!(lines.len(), 2, "{printed}");
    for line in lines {
        assert!(
            line.starts_with("bowline: a continuation made at ") && line.contains(file!()),
            "{line}"
        );
    }
}

#[test]
fn a_hook_may_panic_and_may_replace_itself() {
    let calls = Arc::new(AtomicUsize::new(0));
    let drops = || sync_wait(continuation(|continuation: Continuation<()>| drop(continuation)));
    let _hook = ReportHook::set({
        let calls = calls.clone();
        move |report| {
            if is_ours(report) {
                calls.fetch_add(1, SeqCst);
                quiet_panic();
            }
        }
    });
    assert!(drops().is_stopped());
    assert!(drops().is_stopped());
    assert_eq!(calls.load(SeqCst), 2);
    task::set_report_hook({
        let calls = calls.clone();
        move |report| {
            if !is_ours(report) {
                return;
            }
            calls.fetch_add(10, SeqCst);
            let calls = calls.clone();
            task::set_report_hook(move |report| {
                if is_ours(report) {
                    calls.fetch_add(100, SeqCst);
                }
            });
        }
    });
    assert!(drops().is_stopped());
    assert!(drops().is_stopped());
    assert_eq!(calls.load(SeqCst), 112);
}

#[test]
fn a_panic_of_the_function_is_the_completion() {
    let reports = Reports::watch();
    let kept = Arc::new(Mutex::new(None));
    let make = |how: usize| {
        let kept = kept.clone();
        continuation(move |continuation: Continuation<Counted>| {
            let census = Census::new();
            match how {
                0 => drop(continuation),
                1 => assert!(continuation.resume(census.value()).is_ok()),
                2 => {}
                _ => *lock(&kept) = Some(continuation),
            }
            panic!("in the function");
        })
    };
    for how in 0..4 {
        assert_eq!(panic_message(|| sync_wait(make(how))), "in the function");
    }
    let kept = lock(&kept).take().expect("it was kept");
    assert!(kept.is_abandoned());
    assert!(kept.resume(Census::new().value()).is_err());
    // The waiting task has received the panic.
    assert_eq!(reports.dropped(), 0);
}

#[test]
fn a_value_that_was_resumed_before_a_panic_is_dropped() {
    let census = Census::new();
    let value = census.value();
    let sender = continuation(move |continuation: Continuation<Counted>| {
        assert!(continuation.resume(value).is_ok());
        panic!("after that");
    });
    assert_eq!(panic_message(|| sync_wait(sender)), "after that");
    assert_eq!(census.alive(), 0);
}

#[test]
fn values_that_can_only_be_moved_pass_and_borrows_too() {
    let census = Census::new();
    let value = census.value();
    let sender = continuation(|continuation: Continuation<Counted>| assert!(continuation.resume(value).is_ok()));
    let value = sync_wait(sender).unwrap();
    assert_eq!(census.alive(), 1);
    drop(value);
    assert_eq!(census.alive(), 0);
    let text = String::from("borrowed");
    let sender = continuation(|continuation: Continuation<&str>| assert_eq!(continuation.resume(&text), Ok(())));
    assert_eq!(sync_wait(sender).unwrap(), "borrowed");
}

#[test]
fn nothing_runs_before_it_is_started() {
    let census = Census::new();
    let value = census.value();
    let sender = continuation(move |continuation: Continuation<Counted>| {
        assert!(continuation.resume(value).is_ok());
        unreachable!("it was not started");
    });
    drop(sender);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_stop_completes_at_once_and_the_value_is_given_back() {
    let reports = Reports::watch();
    let source = StopSource::new();
    let (sender, take) = given::<u32, Error>();
    let (record, recorded) = Record::in_env(Patched::new(WithStopToken(source.token()), EmptyEnv));
    submit(sender, record);
    let continuation = take.recv().expect("it was given");
    assert!(!continuation.is_abandoned());
    assert!(recorded.try_recv().is_err());
    source.request_stop();
    assert_eq!(recorded.try_recv(), Ok(Recorded::Stopped));
    assert!(continuation.is_abandoned());
    assert_eq!(continuation.resume(7), Err(7));
    // Likewise for an error, for both, and for a dropped continuation.
    let again = || {
        let source = StopSource::new();
        let (sender, take) = given::<u32, Error>();
        let (record, recorded) = Record::in_env(Patched::new(WithStopToken(source.token()), EmptyEnv));
        submit(sender, record);
        source.request_stop();
        assert_eq!(recorded.try_recv(), Ok(Recorded::Stopped));
        take.recv().expect("it was given")
    };
    assert_eq!(again().fail("no"), Err("no"));
    assert_eq!(again().resume_with(Ok(1)), Err(Ok(1)));
    assert_eq!(again().resume_with(Err("no")), Err(Err("no")));
    again().stop();
    drop(again());
    assert_eq!(reports.dropped(), 0);
}

#[test]
fn a_stop_that_was_requested_before_calls_nothing() {
    let source = StopSource::new();
    source.request_stop();
    let sender = continuation(|_: Continuation<()>| unreachable!("it was stopped before"));
    assert!(sync_wait(sender.write_env(WithStopToken(source.token()))).is_stopped());
    for workers in [1, 2, 8] {
        let pool = ThreadPool::new(workers);
        let source = StopSource::new();
        let stop = source.clone();
        let task = Task::new(async move {
            stop.request_stop();
            let sender = continuation(|_: Continuation<()>| unreachable!("it was stopped before"));
            assert_eq!(sender.stopped_as_option().await, Ok(None));
            let Ok(()) = continuation(|_: Continuation<()>| unreachable!("it was stopped before")).await;
            unreachable!("it was stopped");
        });
        let task: Task<()> = task;
        let outcome = sync_wait(starts_on(pool.scheduler(), task).write_env(WithStopToken(source.token())));
        assert!(outcome.is_stopped());
    }
}

#[test]
fn a_stop_inside_the_function_is_seen_when_it_returns() {
    let called = Arc::new(AtomicUsize::new(0));
    let source = StopSource::new();
    let (give, take) = mpsc::channel();
    let sender = continuation({
        let (source, called) = (source.clone(), called.clone());
        move |continuation: Continuation<u32>| {
            continuation.on_stop(move || {
                called.fetch_add(1, SeqCst);
            });
            source.request_stop();
            assert!(!continuation.is_abandoned());
            give.send(continuation).expect("somebody waits");
        }
    });
    assert!(sync_wait(sender.write_env(WithStopToken(source.token()))).is_stopped());
    assert_eq!(called.load(SeqCst), 1);
    assert_eq!(take.recv().expect("it was given").resume(1), Err(1));
    // The completion is the value that was resumed inside.
    let source = StopSource::new();
    let stop = source.clone();
    let sender = continuation(move |continuation: Continuation<u32>| {
        stop.request_stop();
        assert_eq!(continuation.resume(1), Ok(()));
    });
    assert_eq!(sync_wait(sender.write_env(WithStopToken(source.token()))).unwrap(), 1);
}

#[test]
fn the_handler_runs_once_during_the_stop_before_who_waits_goes_on() {
    let source = StopSource::new();
    let log = Arc::new(Mutex::new(Vec::new()));
    let (sender, take) = given::<(), Infallible>();
    let noted = log.clone();
    let sender = sender
        .write_env(WithStopToken(source.token()))
        .upon_stopped(move || lock(&noted).push("stopped"));
    let (record, _recorded) = Record::new();
    submit(sender, record);
    let continuation = take.recv().expect("it was given");
    let census = Census::new();
    for name in ["replaced", "handler"] {
        let (log, counted) = (log.clone(), census.value());
        continuation.on_stop(move || {
            let _counted = counted;
            lock(&log).push(name);
        });
    }
    assert_eq!(census.alive(), 1);
    source.request_stop();
    assert_eq!(*lock(&log), ["handler", "stopped"]);
    assert_eq!(census.alive(), 0);
    // The continuation has ended, so this handler runs at once.
    let late = log.clone();
    continuation.on_stop(move || lock(&late).push("late"));
    assert_eq!(*lock(&log), ["handler", "stopped", "late"]);
}

#[test]
fn a_handler_is_dropped_uncalled_when_it_is_resumed() {
    for early in [false, true] {
        let census = Census::new();
        let counted = census.value();
        let (give, take) = mpsc::channel();
        let sender = continuation(move |continuation: Continuation<u32>| {
            continuation.on_stop(move || {
                drop(counted);
                unreachable!("it was not stopped");
            });
            if early {
                assert_eq!(continuation.resume(1), Ok(()));
            } else {
                give.send(continuation).expect("somebody waits");
            }
        });
        let census_inside = census.clone();
        let (record, recorded) = Record::new();
        submit(sender.then(move |value| (value, census_inside.alive())), record);
        if !early {
            assert_eq!(census.alive(), 1);
            assert_eq!(take.recv().expect("it was given").resume(1), Ok(()));
        }
        assert_eq!(recorded.try_recv(), Ok(Recorded::Value((1, 0))));
    }
}

#[test]
fn a_handler_may_panic_resume_or_drop_the_continuation() {
    let reports = Reports::watch();
    for how in 0..3 {
        let source = StopSource::new();
        let (sender, take) = given::<u32, Error>();
        let (record, recorded) = Record::in_env(Patched::new(WithStopToken(source.token()), EmptyEnv));
        submit(sender, record);
        let kept = Arc::new(Mutex::new(take.recv().ok()));
        let inside = kept.clone();
        lock(&kept).as_ref().expect("it was given").on_stop(move || {
            let continuation = lock(&inside).take().expect("it was kept");
            assert!(continuation.is_abandoned());
            match how {
                0 => quiet_panic(),
                1 => assert_eq!(continuation.resume(1), Err(1)),
                _ => drop(continuation),
            }
        });
        source.request_stop();
        assert_eq!(recorded.try_recv(), Ok(Recorded::Stopped));
        assert!(lock(&kept).is_none());
    }
    assert_eq!(reports.dropped(), 0);
}

#[test]
fn another_callback_of_the_same_stop_may_resume_it() {
    let source = StopSource::new();
    let (sender, take) = given::<u32, Error>();
    let kept = Arc::new(Mutex::new(None));
    let resume = |kept: Arc<Mutex<Option<Continuation<u32, Error>>>>| {
        bowline::stop::StopCallback::new(source.token(), move || {
            if let Some(continuation) = lock(&kept).take() {
                // Either may come first.
                let _ = continuation.resume(1);
            }
        })
    };
    // One resume before the stop, and one after.
    let mut before = pin!(resume(kept.clone()));
    before.as_mut().register();
    let (record, recorded) = Record::in_env(Patched::new(WithStopToken(source.token()), EmptyEnv));
    submit(sender, record);
    *lock(&kept) = take.recv().ok();
    let mut after = pin!(resume(kept.clone()));
    after.as_mut().register();
    source.request_stop();
    let recorded = recorded.try_recv().expect("it has completed");
    assert!(
        matches!(recorded, Recorded::Value(1) | Recorded::Stopped),
        "{recorded:?}"
    );
    assert!(lock(&kept).is_none());
}

#[test]
fn dropping_the_await_abandons_it() {
    let reports = Reports::watch();
    let make = || {
        Task::new(async {
            let (sender, take) = given::<u32, Error>();
            let mut waiting = Box::pin(SenderFuture::new(sender));
            std::future::poll_fn(|context| {
                assert!(waiting.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            let continuation = take.recv().expect("it was given");
            assert!(!continuation.is_abandoned());
            drop(waiting);
            assert!(continuation.is_abandoned());
            continuation.resume(1)
        })
    };
    let check = |outcome: Outcome<Result<(), u32>, Infallible>| assert_eq!(outcome.unwrap(), Err(1));
    everywhere(make, check);
    // In another executor.
    let (sender, take) = given::<u32, Error>();
    let mut waiting = Box::pin(SenderFuture::new(sender));
    assert!(
        waiting
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    drop(waiting);
    assert_eq!(take.recv().expect("it was given").resume(1), Err(1));
    assert_eq!(reports.dropped(), 0);
}

thread_local! {
    /// Whether the thread is inside a `resume`.
    static RESUMING: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn a_task_is_resumed_by_its_scheduler_and_not_by_who_resumes() {
    let make = |boxed: bool| {
        let (sender, take) = given::<u32, Infallible>();
        let waits = Task::new(async move {
            let Ok(value) = if boxed {
                sender.boxed().await
            } else {
                SenderFuture::new(sender).await
            };
            assert!(!RESUMING.get(), "it runs in the midst of the resume");
            value
        });
        // On the same scheduler, which could run the other task in place.
        let resumes = Task::new(async move {
            let continuation = loop {
                match take.try_recv() {
                    Ok(continuation) => break continuation,
                    Err(_) => {
                        yield_now().await;
                    }
                }
            };
            RESUMING.set(true);
            assert_eq!(continuation.resume(5), Ok(()));
            RESUMING.set(false);
        });
        Task::new(async move {
            let Ok((value, ())) = when_all((waits, resumes)).await;
            value
        })
    };
    for boxed in [false, true] {
        everywhere(|| make(boxed), |outcome| assert_eq!(outcome.unwrap(), 5));
    }
}

#[test]
fn a_task_goes_on_where_it_runs() {
    for workers in [1, 2, 8] {
        let pool = Arc::new(ThreadPool::new(workers));
        let task = Task::new({
            let pool = pool.clone();
            async move {
                let elsewhere = continuation(|continuation: Continuation<u32>| {
                    thread::spawn(move || assert_eq!(continuation.resume(3), Ok(())));
                });
                let Ok(three) = elsewhere.await;
                assert!(pool.worker_index().is_some());
                three
            }
        });
        assert_eq!(sync_wait(starts_on(pool.scheduler(), task)).unwrap(), 3);
    }
    let home = thread::current().id();
    let task = LocalTask::new(async move {
        let elsewhere = continuation(|continuation: Continuation<u32>| {
            thread::spawn(move || assert_eq!(continuation.resume(3), Ok(())));
        });
        let Ok(three) = elsewhere.await;
        assert_eq!(thread::current().id(), home);
        three
    });
    assert_eq!(sync_wait(task).unwrap(), 3);
}

#[test]
fn works_in_another_executor() {
    let elsewhere = || {
        continuation(|continuation: Continuation<u32, Error>| {
            thread::spawn(move || assert_eq!(continuation.resume(3), Ok(())));
        })
    };
    assert_eq!(pollster::block_on(elsewhere().into_future()), Ok(3));
    let here = continuation(|continuation: Continuation<u32>| assert_eq!(continuation.resume(4), Ok(())));
    assert_eq!(pollster::block_on(here.into_future()), Ok(4));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .expect("a runtime");
    let (sender, take) = tokio::sync::oneshot::channel::<tokio::sync::oneshot::Sender<u32>>();
    let bridged = runtime.block_on(async {
        let task = runtime.spawn(async move {
            continuation(move |continuation: Continuation<u32, Error>| {
                let (answer, answered) = tokio::sync::oneshot::channel();
                sender.send(answer).expect("somebody asks");
                tokio::spawn(async move {
                    let answer = answered.await.map_err(|_| "no answer");
                    assert_eq!(continuation.resume_with(answer), Ok(()));
                });
            })
            .await
        });
        take.await.expect("it was asked").send(6).expect("somebody waits");
        task.await.expect("it does not panic")
    });
    assert_eq!(bridged, Ok(6));
}

#[test]
fn a_pointer_stands_for_it() {
    let reports = Reports::watch();
    let sender = continuation(|continuation: Continuation<u32, Error>| {
        let pointer = continuation.into_raw().expose_provenance();
        thread::spawn(move || {
            // SAFETY: the pointer is from above, and used once.
            let continuation =
                unsafe { Continuation::<u32, Error>::from_raw(std::ptr::with_exposed_provenance_mut(pointer)) };
            assert_eq!(continuation.resume(8), Ok(()));
        });
    });
    assert_eq!(sync_wait(sender).unwrap(), 8);
    assert_eq!(reports.dropped(), 0);
}

#[test]
fn without_a_task_it_completes_in_the_midst_of_the_resume() {
    let (sender, take) = given::<u32, Error>();
    let here = thread::current().id();
    let (record, recorded) = Record::new();
    submit(
        sender.then(move |value| (value, thread::current().id() == here)),
        record,
    );
    assert_eq!(take.recv().expect("it was given").resume(1), Ok(()));
    assert_eq!(recorded.try_recv(), Ok(Recorded::Value((1, true))));
}

#[test]
fn threads_that_resume_stop_and_drop_at_once_lose_nothing() {
    let reports = Reports::watch();
    let census = Census::new();
    let rounds = if cfg!(sanitized) { 300 } else { 3_000 };
    let mut seen = [0usize; 2];
    let mut drops = 0;
    for workers in [1, 2, 8] {
        let pool = ThreadPool::new(workers);
        for round in 0..rounds / 8 {
            let source = StopSource::new();
            let (sender, take) = given::<Counted, Error>();
            let task = Task::try_new(SenderFuture::new(sender)).write_env(WithStopToken(source.token()));
            let value = census.value();
            let given_back = thread::scope(|scope| {
                let resumes = scope.spawn(move || {
                    let continuation = take.recv().ok()?;
                    if round % 3 == 0 {
                        drop(continuation);
                        Some(value)
                    } else {
                        continuation.resume(value).err()
                    }
                });
                let stops = scope.spawn(|| {
                    if round % 2 == 0 {
                        source.request_stop();
                    }
                });
                let outcome = sync_wait(starts_on(pool.scheduler(), task));
                stops.join().expect("it does not panic");
                let given_back = resumes.join().expect("it does not panic");
                match outcome {
                    Outcome::Value(value) => {
                        assert!(given_back.is_none());
                        seen[0] += 1;
                        drop(value);
                    }
                    Outcome::Stopped => seen[1] += 1,
                    Outcome::Error(error) => panic!("{error}"),
                }
                given_back
            });
            drops += usize::from(round % 3 == 0 && round % 2 == 1);
            drop(given_back);
            assert_eq!(census.alive(), 0);
        }
    }
    // The ones without a stop are dropped while their task waits.
    assert!(reports.dropped() >= drops);
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn allocates_once_and_once_more_for_a_handler() {
    let count = |handler: bool| {
        let token = StopSource::new();
        let work = continuation(move |continuation: Continuation<u32>| {
            if handler {
                let captured = continuation.is_abandoned();
                continuation.on_stop(move || assert!(!captured));
            }
            assert_eq!(continuation.resume(1), Ok(()));
        });
        let work = work.write_env(WithStopToken(token.token()));
        let (value, allocated) = allocations(|| sync_wait(work));
        assert_eq!(value.unwrap(), 1);
        allocated
    };
    let (_, nothing) = allocations(|| sync_wait(just(1)));
    assert_eq!(count(false) - nothing, 1);
    assert_eq!(count(true) - nothing, 2);
    // In a task that has to wait.
    let task = Task::new(async {
        let mut last = None;
        // The frame allocates its block when it first suspends.
        for _ in 0..2 {
            let slot = Arc::new(Mutex::new(None::<Continuation<u32>>));
            let resumes = slot.clone();
            let before = allocations_so_far();
            let waits = continuation(move |continuation| *lock(&slot) = Some(continuation));
            let resumes = yield_now().then(move |()| {
                let continuation = lock(&resumes).take();
                continuation.map(|continuation| continuation.resume(2))
            });
            let Ok((two, resumed)) = when_all((waits, resumes)).await;
            last = Some((two, resumed, allocations_so_far() - before));
        }
        last
    });
    assert_eq!(sync_wait(task).unwrap(), Some((2, Some(Ok(())), 1)));
}

#[test]
fn a_million_times_in_a_small_stack() {
    // Resumed inside the function.
    let inside = || continuation(|continuation: Continuation<u32>| assert_eq!(continuation.resume(1), Ok(())));
    let task = move || {
        Task::new(async move {
            let mut sum = 0;
            for _ in 0..ROUNDS {
                let Ok(one) = inside().await;
                sum += one as usize;
            }
            sum
        })
    };
    assert_eq!(with_stack(SMALL_STACK, || sync_wait(task()).unwrap()), ROUNDS);
    with_stack(SMALL_STACK, || sync_wait(inside().repeat_until(million())).unwrap());
    let inline = || sync_wait(task().write_env(WithScheduler(InlineScheduler))).unwrap();
    assert_eq!(with_stack(SMALL_STACK, inline), ROUNDS);
    for workers in [1, 2, 8] {
        let pool = ThreadPool::builder()
            .threads(workers)
            .stack_size(SMALL_STACK)
            .build()
            .expect("a pool");
        assert_eq!(sync_wait(starts_on(pool.scheduler(), task())).unwrap(), ROUNDS);
    }
}

#[test]
fn tasks_that_resume_one_another_take_no_stack() {
    const TASKS: usize = ROUNDS / 20;
    // Each waits for the previous one, and resumes the next.
    let chain = |scheduler: TaskScheduler<'static>| {
        let slots: Arc<Vec<Mutex<Option<Continuation<usize>>>>> =
            Arc::new((0..=TASKS).map(|_| Mutex::new(None)).collect());
        let (done, is_done) = mpsc::channel();
        let begun = Arc::new(AtomicUsize::new(0));
        for number in 0..TASKS {
            let (slots, begun, done) = (slots.clone(), begun.clone(), done.clone());
            let task = Task::new(async move {
                let wait = slots.clone();
                let Ok(count) = continuation(move |continuation| {
                    *lock(&wait[number]) = Some(continuation);
                    begun.fetch_add(1, SeqCst);
                })
                .await;
                let next = lock(&slots[number + 1]).take();
                match next {
                    Some(next) => assert_eq!(next.resume(count + 1), Ok(())),
                    None => done.send(count + 1).expect("somebody waits"),
                }
            });
            start_detached(starts_on(scheduler.clone(), task));
        }
        (slots, begun, is_done)
    };
    let run_loop = for_good(RunLoop::new());
    let (slots, begun, is_done) = chain(TaskScheduler::new(run_loop.scheduler()));
    let count = with_stack(SMALL_STACK, move || {
        run_loop.run_ready();
        assert_eq!(begun.load(SeqCst), TASKS);
        let first = lock(&slots[0]).take().expect("it waits");
        assert_eq!(first.resume(0), Ok(()));
        run_loop.run_ready();
        is_done.recv().expect("the last has come")
    });
    assert_eq!(count, TASKS);
    for workers in [1, 2, 8] {
        let pool = ThreadPool::builder()
            .threads(workers)
            .stack_size(SMALL_STACK)
            .build()
            .expect("a pool");
        let (slots, begun, is_done) = chain(TaskScheduler::new(pool.scheduler()));
        while begun.load(SeqCst) < TASKS {
            thread::yield_now();
        }
        let first = lock(&slots[0]).take().expect("it waits");
        assert_eq!(first.resume(0), Ok(()));
        assert_eq!(is_done.recv(), Ok(TASKS));
    }
}
