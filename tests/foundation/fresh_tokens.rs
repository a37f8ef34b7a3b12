//! An environment that returns a new stop token for each query and keeps none: every operation that listens owns its token.
//!
//! This is about memory safety, so AddressSanitizer runs it too.

use std::any::{Any, TypeId};
use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::time::Duration;

use crate::common::*;
use bowline::factories::Never;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, PoolScheduler, ThreadPool, Timer, TimerSchedule};
use bowline::stop::{SharedStopToken, StopCallback, StopSource};
use bowline::task::{TaskGroup, continuation};
use bowline::{Panic, Transfer};

/// An environment that creates a source for each token.
#[derive(Clone)]
enum Fresh {
    /// The source is linked to this one and dropped at once: only the token owns it.
    Linked(StopSource),
    /// The source is linked to none, and stored here.
    Kept(Arc<Mutex<Vec<StopSource>>>),
}

impl Env for Fresh {
    type StopToken = SharedStopToken;
    type Scheduler = PoolScheduler;

    fn stop_token(&self) -> SharedStopToken {
        match self {
            Fresh::Linked(parent) => StopSource::linked_to(&parent.token()).token(),
            Fresh::Kept(sources) => {
                let source = StopSource::new();
                let token = source.token();
                lock(sources).push(source);
                token
            }
        }
    }

    fn scheduler(&self) -> PoolScheduler {
        ThreadPool::global().scheduler()
    }

    fn visit(&self, _: TypeId, _: &mut dyn FnMut(&dyn Any)) {}
}

#[derive(Debug, PartialEq, Eq)]
enum How {
    Ended,
    Stopped,
    Panicked(String),
}

/// A receiver that reports its completion.
struct Report {
    channel: mpsc::Sender<How>,
    env: Fresh,
}

impl Report {
    fn say(self, how: How) -> Transfer {
        // The test may have dropped the other end.
        let _ = self.channel.send(how);
        Transfer::none()
    }
}

impl<T: Send, E: Send> Receiver<T, E> for Report {
    type Env = Fresh;

    fn env(&self) -> Fresh {
        self.env.clone()
    }

    fn set_value(self, value: T) -> Transfer {
        drop(value);
        self.say(How::Ended)
    }

    fn set_error(self, error: E) -> Transfer {
        drop(error);
        self.say(How::Ended)
    }

    fn set_stopped(self) -> Transfer {
        self.say(How::Stopped)
    }

    fn set_panicked(self, payload: Panic) -> Transfer {
        self.say(How::Panicked(payload.message().unwrap_or("no text").to_owned()))
    }
}

/// A type-erased sender that listens.
struct Case {
    name: &'static str,
    /// Whether it completes without a stop.
    ends: bool,
    submit: Box<dyn Fn(Fresh) -> mpsc::Receiver<How>>,
}

fn case<S>(name: &'static str, ends: bool, make: impl Fn() -> S + 'static) -> Case
where
    S: Sender<Value: Send, Error: Send> + 'static,
{
    let start = move |env| {
        let (channel, how) = mpsc::channel();
        submit(make(), Report { channel, env });
        how
    };
    Case {
        name,
        ends,
        submit: Box::new(start),
    }
}

fn hang() -> Never<(), Infallible> {
    never()
}

fn nap() -> TimerSchedule {
    Timer::global().schedule_after(Duration::from_millis(2))
}

const HOUR: Duration = Duration::from_secs(3600);

/// Returns a scope in which work runs until it is stopped.
fn busy_scope() -> CountingScope {
    let scope = CountingScope::new();
    assert!(scope.spawn(hang()));
    scope
}

/// Returns all senders that listen to the token of their receiver, alone and nested.
fn cases() -> Vec<Case> {
    vec![
        case("never", false, hang),
        case("timer", false, || Timer::global().schedule_after(HOUR)),
        case("timer that is due", true, nap),
        case("from_future", false, || from_future(pending::<()>())),
        case("from_future that is woken all the time", false, || {
            from_future(poll_fn(|cx| {
                cx.waker().wake_by_ref();
                Poll::<()>::Pending
            }))
        }),
        case("from_future that ends", true, || {
            let mut polls = 0;
            from_future(poll_fn(move |cx| {
                polls += 1;
                cx.waker().wake_by_ref();
                if polls == 5 { Poll::Ready(()) } else { Poll::Pending }
            }))
        }),
        case("when_all", false, || when_all((hang(), hang()))),
        case("when_all that ends", true, || when_all((nap(), nap()))),
        case("when_any", false, || when_any((hang(), hang()))),
        case("when_any that ends", true, || when_any((hang(), nap()))),
        case("when_all_iter", false, || when_all_iter([hang(), hang(), hang()])),
        case("when_any_iter", false, || when_any_iter([hang(), hang(), hang()])),
        case("when_all in when_any in when_all", false, || {
            when_all((when_any((when_all((hang(), nap())).then(drop), hang())), nap()))
        }),
        case("with_stop_token", false, || {
            hang().with_stop_token(StopSource::new().token())
        }),
        case("with_stop_token that ends", true, || {
            nap().with_stop_token(StopSource::new().token())
        }),
        case("stop_when", false, || hang().stop_when(hang())),
        case("stop_when that ends", true, || {
            hang().stop_when(nap()).upon_stopped(|| ())
        }),
        case("timeout", false, || hang().timeout(HOUR)),
        case("timeout that is over", true, || {
            hang().timeout(Duration::from_millis(2))
        }),
        case("split", false, || {
            let shared = hang().split();
            when_all((shared.clone(), shared))
        }),
        case("split that ends", true, || {
            let shared = nap().split();
            when_all((shared.clone(), shared))
        }),
        case("ensure_started", false, || hang().ensure_started()),
        case("ensure_started that ends", true, || nap().ensure_started()),
        case("join of a scope", false, || {
            let scope = busy_scope();
            scope.join().then(move |()| drop(scope))
        }),
        case("join of a scope that ends", true, || {
            let scope = CountingScope::new();
            assert!(scope.spawn(nap()));
            scope.join().then(move |()| drop(scope))
        }),
        case("associate", false, || {
            let scope = CountingScope::new();
            scope.associate(hang()).then(move |()| drop(scope))
        }),
        case("associate that ends", true, || {
            let scope = CountingScope::new();
            scope.associate(nap()).then(move |()| drop(scope))
        }),
        case("spawn_future", false, || {
            let scope = CountingScope::new();
            scope.spawn_future(hang()).then(move |()| drop(scope))
        }),
        case("continuation", false, || {
            continuation::<(), Infallible, _>(|continuation| {
                thread::spawn(move || {
                    while !continuation.is_abandoned() {
                        thread::sleep(Duration::from_millis(1));
                    }
                });
            })
        }),
        case("continuation that ends", true, || {
            continuation::<(), Infallible, _>(|continuation| {
                thread::spawn(move || continuation.resume(()));
            })
        }),
        case("boxed", false, || hang().boxed()),
        case("boxed fan", false, || when_all((hang().boxed(), nap().boxed())).boxed()),
        case("task", false, || Task::new(async { hang().await.unwrap() })),
        case("task that ends", true, || Task::new(async { nap().await })),
        case("task that awaits a future", false, || {
            Task::try_new(async { from_future(pending::<()>()).await })
        }),
        case("task that awaits a child", false, || {
            Task::new(async { task::let_async(async { hang().await.unwrap() }).await })
        }),
        case("task that awaits a handle", true, || {
            Task::new(async { task::detach(async { nap().await }).await })
        }),
        case("group", false, || {
            Task::new(task::group(async |group: TaskGroup<()>| {
                group.spawn(async { hang().await.unwrap() });
                // A cancelled group waits for its children and continues, so this stops explicitly.
                group.next().await;
                hang().await.unwrap();
            }))
        }),
        case("group that waits for room", false, || {
            Task::new(task::group(async |group: TaskGroup<()>| {
                group.set_limit(1);
                group.spawn(async { hang().await.unwrap() });
                let _ = group.spawn_when_ready(async {}).await;
            }))
        }),
        case("group that ends", true, || {
            Task::new(task::group(async |group: TaskGroup<()>| {
                group.spawn(async { nap().await });
                group.wait_for_all().await;
            }))
        }),
        case("boxed task in a fan", false, || {
            when_any((
                starts_on(
                    ThreadPool::global().scheduler(),
                    Task::new(async { hang().await.unwrap() }),
                )
                .boxed(),
                hang(),
            ))
        }),
        case("trip to another scheduler", true, || {
            nap().continues_on(InlineScheduler)
        }),
    ]
}

fn wait(name: &str, how: &mpsc::Receiver<How>) -> How {
    how.recv_timeout(Duration::from_secs(60))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn rounds() -> usize {
    if cfg!(sanitized) { 5 } else { 40 }
}

#[test]
fn a_stop_before_the_start_is_seen() {
    for case in cases() {
        let source = StopSource::new();
        source.request_stop();
        let how = wait(case.name, &(case.submit)(Fresh::Linked(source)));
        assert!(
            how == How::Stopped || case.ends && how == How::Ended,
            "{}: {how:?}",
            case.name
        );
    }
}

#[test]
fn a_stop_of_one_that_waits_reaches_it() {
    for case in cases().into_iter().filter(|case| !case.ends) {
        for patience in [0, 3] {
            let source = StopSource::new();
            let how = (case.submit)(Fresh::Linked(source.clone()));
            thread::sleep(Duration::from_millis(patience));
            assert_eq!(how.try_recv(), Err(mpsc::TryRecvError::Empty), "{}", case.name);
            source.request_stop();
            assert_eq!(wait(case.name, &how), How::Stopped, "{}", case.name);
        }
    }
}

#[test]
fn a_stop_after_the_end_changes_nothing() {
    for case in cases().into_iter().filter(|case| case.ends) {
        let source = StopSource::new();
        let how = (case.submit)(Fresh::Linked(source.clone()));
        assert_eq!(wait(case.name, &how), How::Ended, "{}", case.name);
        source.request_stop();
        assert!(how.try_recv().is_err(), "{}: completed again", case.name);
    }
}

#[test]
fn stops_race_with_starts_and_ends() {
    for case in cases() {
        for round in 0..rounds() {
            let source = StopSource::new();
            let stops = thread::spawn({
                let source = source.clone();
                move || {
                    for _ in 0..round * 50 {
                        std::hint::spin_loop();
                    }
                    if round % 4 == 3 {
                        thread::sleep(Duration::from_millis(2));
                    }
                    // The test's last handle.
                    source.request_stop();
                }
            });
            let how = wait(case.name, &(case.submit)(Fresh::Linked(source)));
            assert!(
                how == How::Stopped || case.ends && how == How::Ended,
                "{}: {how:?}",
                case.name
            );
            stops.join().unwrap();
        }
    }
}

#[test]
fn the_stop_that_counts_is_that_of_the_token_that_was_asked_for_first() {
    for case in cases().into_iter().filter(|case| !case.ends) {
        let sources = Arc::new(Mutex::new(Vec::new()));
        let how = (case.submit)(Fresh::Kept(sources.clone()));
        let first = lock(&sources).first().expect("asked by the start").clone();
        thread::sleep(Duration::from_millis(1));
        first.request_stop();
        assert_eq!(wait(case.name, &how), How::Stopped, "{}", case.name);
    }
}

#[test]
fn a_token_that_nothing_else_keeps_is_kept_by_the_slot_and_goes_with_it() {
    // The environment drops its sources at once. Without a source and a parent, no stop can come.
    let census = Census::new();
    let sources = Arc::new(Mutex::new(Vec::new()));
    let value = census.value();
    let (channel, how) = mpsc::channel();
    let env = Fresh::Kept(sources.clone());
    submit(nap().then(move |()| drop(value)), Report { channel, env });
    let tokens: Vec<_> = lock(&sources).drain(..).map(|source| source.token()).collect();
    assert_eq!(wait("timer", &how), How::Ended);
    assert_eq!(census.alive(), 0);
    assert!(!tokens.is_empty() && tokens.iter().all(|token| !token.stop_possible()));
}

#[test]
fn a_long_line_of_links_that_a_slot_alone_keeps_is_dropped_in_constant_stack() {
    let root = StopSource::new();
    let mut token = root.token();
    for _ in 0..100_000 {
        token = StopSource::linked_to(&token).token();
    }
    let (receiver, reports) =
        Record::<(), Infallible, _>::in_env(bowline::Patched::new(WithStopToken(token), bowline::EmptyEnv));
    submit(hang(), receiver);
    root.request_stop();
    assert!(matches!(reports.recv(), Ok(Recorded::Stopped)));
}

#[test]
fn a_callback_keeps_its_token() {
    let calls = Arc::new(AtomicUsize::new(0));
    for stop in [true, false] {
        let parent = StopSource::new();
        let token = StopSource::linked_to(&parent.token()).token();
        let mut callback = pin!(StopCallback::new(token, {
            let calls = calls.clone();
            move || {
                calls.fetch_add(1, SeqCst);
            }
        }));
        callback.as_mut().register();
        if stop {
            parent.request_stop();
        }
    }
    assert_eq!(calls.load(SeqCst), 1);
}
