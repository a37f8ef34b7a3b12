//! `from_future`: a sender of a future's output.

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver as Reports, TryRecvError};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::*;
use bowline::factories::JustFrom;
use bowline::prelude::*;
use bowline::scheduler::{InlineSchedule, InlineScheduler, RunLoop, TaskScheduler};
use bowline::stop::{InplaceStopSource, StopSource};
use bowline::{Completes, EmptyEnv, Patched};

/// A future that wakes itself and is pending a number of times.
#[derive(Clone)]
struct Yield(usize);

impl Future for Yield {
    type Output = &'static str;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<&'static str> {
        if self.0 == 0 {
            return Poll::Ready("done");
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The test's side of a future: its waker, its number of polls, and whether it is ready.
#[derive(Default)]
struct Held {
    waker: Mutex<Option<Waker>>,
    polls: AtomicUsize,
    ready: AtomicUsize,
}

impl Held {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns a future that keeps its waker, and returns a number once it is made ready.
    fn future(self: &Arc<Self>) -> impl Future<Output = usize> + Send + use<> {
        let held = self.clone();
        poll_fn(move |context| {
            *lock(&held.waker) = Some(context.waker().clone());
            held.polls.fetch_add(1, Ordering::SeqCst);
            match held.ready.load(Ordering::SeqCst) {
                0 => Poll::Pending,
                number => Poll::Ready(number),
            }
        })
    }

    fn waker(&self) -> Waker {
        lock(&self.waker).clone().expect("polled")
    }

    fn polls(&self) -> usize {
        self.polls.load(Ordering::SeqCst)
    }

    fn be_ready(&self, number: usize) {
        self.ready.store(number, Ordering::SeqCst);
    }
}

/// A sender started on a loop that the test drives by hand. The loop is static, since submitted work cannot borrow.
struct ByHand<T> {
    run_loop: &'static RunLoop,
    source: StopSource,
    reports: Reports<Recorded<T, Infallible>>,
}

impl<T: Send + 'static> ByHand<T> {
    fn start<F>(run_loop: &'static RunLoop, source: &StopSource, future: F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let env = Patched::new(
            WithStopToken(source.token()),
            Patched::new(WithScheduler(run_loop.scheduler()), EmptyEnv),
        );
        let (receiver, reports) = Record::in_env(env);
        submit(from_future(future), receiver);
        ByHand {
            run_loop,
            source: source.clone(),
            reports,
        }
    }

    fn run(&self) -> usize {
        self.run_loop.run_ready()
    }

    fn is_waiting(&self) -> bool {
        matches!(self.reports.try_recv(), Err(TryRecvError::Empty))
    }

    fn completion(&self) -> Recorded<T, Infallible> {
        self.reports.try_recv().expect("completed")
    }
}

/// Ends what the test left pending.
impl<T> Drop for ByHand<T> {
    fn drop(&mut self) {
        self.source.request_stop();
        self.run_loop.run_ready();
    }
}

#[test]
fn sends_the_output() {
    assert_eq!(sync_wait(from_future(async { 6 * 7 })), Outcome::Value(42));
    assert_eq!(sync_wait(from_future(Yield(3))).unwrap(), "done");
}

#[test]
fn borrows_from_the_caller() {
    let words = ["a", "b"];
    let mut count = 0;
    sync_wait(from_future(async {
        Yield(1).await;
        count = words.len();
    }))
    .unwrap();
    assert_eq!(count, 2);
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let value = census.value();
    let kept = sync_wait(from_future(async move {
        Yield(1).await;
        value
    }));
    assert_eq!((kept.is_value(), census.alive()), (true, 1));
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_wake_up_schedules_one_poll() {
    static LOOP: RunLoop = RunLoop::new();
    let held = Held::new();
    let work = ByHand::start(&LOOP, &StopSource::new(), held.future());
    assert_eq!((held.polls(), work.run()), (1, 0));
    held.waker().wake();
    assert_eq!(held.polls(), 1, "on the scheduler, not in the waker");
    assert_eq!((work.run(), held.polls()), (1, 2));
    assert!(work.is_waiting());
    held.be_ready(7);
    held.waker().wake_by_ref();
    assert_eq!(work.run(), 1);
    assert!(matches!(work.completion(), Recorded::Value(7)));
}

#[test]
fn woken_twice_it_is_polled_once() {
    static LOOP: RunLoop = RunLoop::new();
    let held = Held::new();
    let work = ByHand::start(&LOOP, &StopSource::new(), held.future());
    held.waker().wake();
    held.waker().wake();
    assert_eq!((work.run(), held.polls()), (1, 2));
}

#[test]
fn woken_from_many_threads_it_is_polled_once() {
    static LOOP: RunLoop = RunLoop::new();
    let held = Held::new();
    let work = ByHand::start(&LOOP, &StopSource::new(), held.future());
    let waker = held.waker();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let clone = waker.clone();
                clone.wake_by_ref();
                waker.wake_by_ref();
                clone.wake();
            });
        }
    });
    assert_eq!((work.run(), held.polls()), (1, 2));
}

#[test]
fn woken_while_it_is_polled_it_is_polled_again() {
    static LOOP: RunLoop = RunLoop::new();
    // By a clone and by reference; on the first poll, when the waker is not on the heap yet, and on the second.
    let polls = Arc::new(AtomicUsize::new(0));
    let future = poll_fn({
        let polls = polls.clone();
        move |context| {
            let waker = context.waker();
            match polls.fetch_add(1, Ordering::SeqCst) {
                0 => thread::scope(|scope| {
                    scope.spawn(|| waker.wake_by_ref());
                }),
                1 => thread::scope(|scope| {
                    scope.spawn(|| waker.wake_by_ref());
                    scope.spawn(|| {
                        let clone = waker.clone();
                        clone.wake_by_ref();
                        clone.wake();
                    });
                }),
                _ => return Poll::Ready("twice"),
            }
            Poll::Pending
        }
    });
    let work = ByHand::start(&LOOP, &StopSource::new(), future);
    assert_eq!((work.run(), polls.load(Ordering::SeqCst)), (2, 3));
    assert!(matches!(work.completion(), Recorded::Value("twice")));

    let mut first = true;
    let future = poll_fn(move |context| {
        if std::mem::take(&mut first) {
            let waker = context.waker().clone();
            thread::spawn(|| waker.wake()).join().unwrap();
            return Poll::Pending;
        }
        Poll::Ready("cloned")
    });
    let work = ByHand::start(&LOOP, &StopSource::new(), future);
    assert_eq!(work.run(), 1);
    assert!(matches!(work.completion(), Recorded::Value("cloned")));
}

#[test]
fn a_waker_kept_after_the_completion_does_nothing() {
    let held = Held::new();
    held.be_ready(7);
    assert_eq!(sync_wait(from_future(held.future())).unwrap(), 7);
    let waker = held.waker();
    waker.wake_by_ref();
    thread::spawn({
        let waker = waker.clone();
        || waker.wake()
    })
    .join()
    .unwrap();
    waker.wake();
    assert_eq!(held.polls(), 1);
}

#[test]
fn a_waker_is_recognised_from_poll_to_poll() {
    let mut kept: Option<Waker> = None;
    let future = poll_fn(move |context| match &kept {
        None => {
            kept = Some(context.waker().clone());
            context.waker().wake_by_ref();
            Poll::Pending
        }
        Some(kept) => Poll::Ready(kept.will_wake(context.waker())),
    });
    assert!(sync_wait(from_future(future)).unwrap());
}

#[test]
fn is_polled_on_the_scheduler_wherever_it_is_woken() {
    with_loop(|scheduler| {
        let mut seen = Vec::new();
        let future = poll_fn(|context| {
            seen.push(thread::current().id());
            if seen.len() == 3 {
                return Poll::Ready(thread::current().id());
            }
            let waker = context.waker().clone();
            thread::spawn(|| waker.wake());
            Poll::Pending
        });
        let there = sync_wait(starts_on(scheduler, from_future(future))).unwrap();
        assert_ne!(there, thread::current().id());
        assert_eq!(seen, [there; 3]);
    });
}

/// Waits for another thread to wake it under a lock that every poll takes. Returns the threads of both.
fn woken_under_its_lock<C: Scheduler>(scheduler: C, by_value: bool) -> (thread::ThreadId, thread::ThreadId) {
    /// The waking thread, and the waker.
    type State = Mutex<(Option<thread::ThreadId>, Option<Waker>)>;
    let state: Arc<State> = Arc::default();
    let future = {
        let state = state.clone();
        poll_fn(move |context| {
            let mut state = lock(&state);
            state.1 = Some(context.waker().clone());
            match state.0 {
                Some(waker) => Poll::Ready((waker, thread::current().id())),
                None => Poll::Pending,
            }
        })
    };
    let wakes = thread::spawn(move || {
        loop {
            let mut state = lock(&state);
            let Some(waker) = state.1.take() else {
                drop(state);
                thread::yield_now();
                continue;
            };
            state.0 = Some(thread::current().id());
            if by_value {
                waker.wake();
            } else {
                waker.wake_by_ref();
            }
            return;
        }
    });
    let threads = sync_wait(starts_on(scheduler, from_future(future))).unwrap();
    wakes.join().unwrap();
    threads
}

#[test]
fn on_the_inline_scheduler_it_is_not_polled_inside_the_wake() {
    for by_value in [false, true] {
        let (waker, polled) = woken_under_its_lock(InlineScheduler, by_value);
        assert_ne!(waker, polled);
        let (waker, polled) = woken_under_its_lock(TaskScheduler::new(InlineScheduler), by_value);
        assert_ne!(waker, polled);
        let (waker, polled) = woken_under_its_lock(InlineScheduler.or_inline(), by_value);
        assert_ne!(waker, polled);
    }
}

#[test]
fn on_the_inline_scheduler_many_wakers_and_a_stop_end_it_once() {
    for round in 0..200 {
        let held = Held::new();
        let source = StopSource::new();
        let (record, reports) = Record::in_env(Patched::new(
            WithScheduler(InlineScheduler),
            Patched::new(WithStopToken(source.token()), EmptyEnv),
        ));
        submit(from_future(held.future()), record);
        thread::scope(|scope| {
            for waker in 0..3 {
                let (held, source) = (&held, &source);
                scope.spawn(move || {
                    if waker == 0 && round % 2 == 0 {
                        source.request_stop();
                    }
                    held.be_ready(7);
                    held.waker().wake();
                });
            }
        });
        let all: Vec<_> = reports.iter().collect();
        assert!(
            matches!(all[..], [Recorded::Value(7) | Recorded::Stopped]),
            "one completion, and then its receiver goes: {all:?}"
        );
    }
}

#[test]
fn a_scheduler_that_panics_when_it_is_asked_is_the_completion() {
    /// A scheduler with a limited number of trips.
    #[derive(Clone)]
    struct Tires(Arc<AtomicUsize>);
    impl PartialEq for Tires {
        fn eq(&self, other: &Self) -> bool {
            Arc::ptr_eq(&self.0, &other.0)
        }
    }
    impl Scheduler for Tires {
        type Schedule = InlineSchedule;
        const INFALLIBLE: bool = true;
        fn schedule(&self) -> InlineSchedule {
            if self.0.fetch_sub(1, Ordering::SeqCst) == 0 {
                panic!("no more");
            }
            InlineScheduler.schedule()
        }
    }
    let census = Census::new();
    for trips in 0..4 {
        let value = census.value();
        let future = async move {
            let _value = value;
            Yield(5).await
        };
        let tires = Tires(Arc::new(AtomicUsize::new(trips)));
        let work = from_future(future).write_env(WithScheduler(tires));
        assert_eq!(panic_message(|| sync_wait(work)), "no more");
        assert_eq!(census.alive(), 0);
    }
}

#[test]
fn a_stop_before_the_start_drops_it_unpolled() {
    static LOOP: RunLoop = RunLoop::new();
    let held = Held::new();
    let census = Census::new();
    let (future, value) = (held.future(), census.value());
    let source = StopSource::new();
    source.request_stop();
    let work = ByHand::start(&LOOP, &source, async move {
        let _value = value;
        future.await
    });
    assert!(matches!(work.completion(), Recorded::Stopped));
    assert_eq!((held.polls(), census.alive(), work.run()), (0, 0, 0));
}

#[test]
fn a_stop_while_it_is_idle_drops_it_on_the_scheduler() {
    static LOOP: RunLoop = RunLoop::new();
    let held = Held::new();
    let census = Census::new();
    let (future, value) = (held.future(), census.value());
    let source = StopSource::new();
    let work = ByHand::start(&LOOP, &source, async move {
        let _value = value;
        future.await
    });
    assert!(source.request_stop());
    assert!(work.is_waiting());
    assert_eq!(census.alive(), 1, "not in the callback");
    assert!(!source.request_stop());
    assert_eq!(work.run(), 1, "the second stop is nothing new");
    assert!(matches!(work.completion(), Recorded::Stopped));
    assert_eq!((held.polls(), census.alive()), (1, 0));
    held.waker().wake();
    assert_eq!(work.run(), 0);
}

#[test]
fn a_stop_after_the_completion_changes_nothing() {
    static LOOP: RunLoop = RunLoop::new();
    let held = Held::new();
    let source = StopSource::new();
    let work = ByHand::start(&LOOP, &source, held.future());
    held.be_ready(7);
    held.waker().wake();
    assert_eq!(work.run(), 1);
    assert!(source.request_stop());
    assert_eq!(work.run(), 0);
    assert!(matches!(work.completion(), Recorded::Value(7)));
    assert!(work.reports.try_recv().is_err());
}

#[test]
fn a_stop_while_it_is_scheduled_drops_it_unpolled() {
    static LOOP: RunLoop = RunLoop::new();
    let held = Held::new();
    let source = StopSource::new();
    let work = ByHand::start(&LOOP, &source, held.future());
    held.be_ready(7);
    held.waker().wake();
    source.request_stop();
    held.waker().wake();
    assert_eq!((work.run(), held.polls()), (1, 1));
    assert!(matches!(work.completion(), Recorded::Stopped));
}

#[test]
fn a_stop_while_it_is_polled_is_seen_when_it_is_pending() {
    static LOOP: RunLoop = RunLoop::new();
    for stop_at in [0, 1] {
        let source = StopSource::new();
        let requester = source.clone();
        let mut polls = 0;
        let future = poll_fn(move |context| {
            if polls == stop_at {
                requester.request_stop();
            } else {
                context.waker().wake_by_ref();
            }
            polls += 1;
            assert!(polls <= stop_at + 1, "polled after the stop");
            Poll::<()>::Pending
        });
        let work = ByHand::start(&LOOP, &source, future);
        work.run();
        assert!(matches!(work.completion(), Recorded::Stopped));
    }
}

#[test]
fn a_stop_while_it_is_polled_leaves_an_output_alone() {
    static LOOP: RunLoop = RunLoop::new();
    for pending in [0, 1] {
        let source = StopSource::new();
        let requester = source.clone();
        let future = async move {
            Yield(pending).await;
            requester.request_stop();
            7
        };
        let work = ByHand::start(&LOOP, &source, future);
        work.run();
        assert!(matches!(work.completion(), Recorded::Value(7)));
    }
}

#[test]
fn the_future_is_dropped_before_the_completion() {
    let census = Census::new();
    for pending in [0, 1] {
        let value = census.value();
        let future = async move {
            let _value = &value;
            Yield(pending).await;
        };
        assert_eq!(sync_wait(from_future(future).then(|()| census.alive())).unwrap(), 0);
    }

    let source = InplaceStopSource::new();
    let value = census.value();
    let future = async {
        let _value = value;
        source.request_stop();
        std::future::pending::<usize>().await
    };
    let work = from_future(future).upon_stopped(|| census.alive());
    assert_eq!(sync_wait(work.write_env(WithStopToken(source.token()))).unwrap(), 0);
}

/// A scheduler whose handles are counted.
#[derive(Clone)]
struct Tracked(Arc<()>);

impl PartialEq for Tracked {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Scheduler for Tracked {
    type Schedule = InlineSchedule;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> InlineSchedule {
        InlineScheduler.schedule()
    }
}

#[test]
fn what_came_from_the_environment_is_dropped_before_the_completion() {
    let handles = Arc::new(());
    for pending in [0, 1] {
        let work = from_future(Yield(pending)).write_env(WithScheduler(Tracked(handles.clone())));
        assert_eq!(sync_wait(work.then(|_| Arc::strong_count(&handles))).unwrap(), 1);
    }
    let source = InplaceStopSource::new();
    source.request_stop();
    let work = from_future(async { 0 })
        .write_env(WithScheduler(Tracked(handles.clone())))
        .write_env(WithStopToken(source.token()));
    assert_eq!(sync_wait(work.upon_stopped(|| Arc::strong_count(&handles))).unwrap(), 1);
}

#[test]
fn a_panic_of_the_future_arrives_and_drops_it() {
    for pending in [0, 1] {
        let census = Census::new();
        let value = census.value();
        let work = from_future(async move {
            let _value = value;
            Yield(pending).await;
            panic!("in the future");
        });
        assert_eq!(panic_message(|| sync_wait(work)), "in the future");
        assert_eq!(census.alive(), 0);
    }
}

/// A value whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in the drop");
    }
}

/// Returns a future that keeps a bomb until it is dropped.
fn bombed<T>(poll: impl FnMut(&mut Context<'_>) -> Poll<T> + Send) -> impl Future<Output = T> + Send {
    let (mut poll, bomb) = (poll, Bomb);
    poll_fn(move |context| {
        let _bomb = &bomb;
        poll(context)
    })
}

#[test]
fn a_panic_in_the_drop_of_the_future_arrives_and_drops_the_output() {
    let census = Census::new();
    let mut value = Some(census.value());
    let work = from_future(bombed(move |_| Poll::Ready(value.take())));
    assert_eq!(panic_message(|| sync_wait(work)), "in the drop");
    assert_eq!(census.alive(), 0);

    let source = InplaceStopSource::new();
    source.request_stop();
    let stopped = from_future(bombed(|_| Poll::Ready(()))).write_env(WithStopToken(source.token()));
    assert_eq!(panic_message(|| sync_wait(stopped)), "in the drop");
}

#[test]
fn of_two_panics_the_first_arrives() {
    let work = from_future(bombed(|_| -> Poll<()> { panic!("first") }));
    assert_eq!(panic_message(|| sync_wait(work)), "first");
}

/// A scheduler that panics when it should schedule.
#[derive(Clone, PartialEq)]
struct Broken;

impl Scheduler for Broken {
    type Schedule = JustFrom<fn()>;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> JustFrom<fn()> {
        just_from(|| panic!("no workers"))
    }
}

#[test]
fn a_panic_of_the_scheduler_arrives_and_drops_the_future() {
    let census = Census::new();
    let value = census.value();
    let work = from_future(async move {
        let _value = value;
        Yield(1).await
    });
    assert_eq!(
        panic_message(|| sync_wait(work.write_env(WithScheduler(Broken)))),
        "no workers"
    );
    assert_eq!(census.alive(), 0);
}

#[test]
fn no_wake_up_is_missed() {
    static LOOP: RunLoop = RunLoop::new();
    // The last number must be seen, although most wake-ups find the operation scheduled or being polled.
    const LAST: usize = 200;
    for _ in 0..200 {
        let number = Arc::new(AtomicUsize::new(0));
        let held = Held::new();
        let mut first = true;
        let future = poll_fn({
            let (number, held) = (number.clone(), held.clone());
            move |context| {
                // Only once: a lock would add ordering that the waker alone must provide.
                if std::mem::take(&mut first) {
                    *lock(&held.waker) = Some(context.waker().clone());
                }
                match number.load(Ordering::Acquire) {
                    LAST => Poll::Ready(()),
                    _ => Poll::Pending,
                }
            }
        });
        let work = ByHand::start(&LOOP, &StopSource::new(), future);
        let waker = held.waker();
        thread::scope(|scope| {
            let wakes = scope.spawn(|| {
                for next in 1..=LAST {
                    number.store(next, Ordering::Release);
                    waker.wake_by_ref();
                }
            });
            while !wakes.is_finished() {
                work.run();
            }
        });
        work.run();
        assert!(matches!(work.completion(), Recorded::Value(())));
    }
}

#[test]
fn completes_once_when_a_wake_up_races_with_a_stop() {
    for _ in 0..500 {
        let held = Held::new();
        let source = InplaceStopSource::new();
        let work = from_future(held.future()).write_env(WithStopToken(source.token()));
        let outcome = thread::scope(|scope| {
            scope.spawn(|| {
                while held.polls() == 0 {
                    thread::yield_now();
                }
                held.be_ready(7);
                held.waker().wake();
            });
            scope.spawn(|| source.request_stop());
            let outcome = sync_wait(work);
            // A stop before the start prevents the poll that the waker waits for.
            lock(&held.waker).get_or_insert_with(|| Waker::noop().clone());
            held.polls.fetch_max(1, Ordering::SeqCst);
            outcome
        });
        assert!(matches!(outcome, Outcome::Value(7) | Outcome::Stopped));
    }
}

// Task features in a future whose polls are not part of a task.

bowline::task_local! { static KEY: u32; }

/// The number of polls inside a scope or a group.
const OFTEN: usize = 100;

/// Is ready at the poll with that number. Asserts that no poll is part of a task, and that each sees this task-local value.
async fn often(key: Option<u32>) -> usize {
    let mut polls = 0;
    poll_fn(|context| {
        assert_eq!((task::current(), KEY.get()), (None, key));
        polls += 1;
        if polls == OFTEN {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    polls
}

/// A child of a group that suspends that often through its scheduler's queue.
async fn child() -> usize {
    for _ in 0..OFTEN {
        task::yield_now().await;
    }
    OFTEN
}

type Scoped = Pin<Box<dyn Future<Output = usize> + Send>>;
type Case = (&'static str, usize, fn() -> Scoped);

/// Returns futures that are pending often inside a scope or a group, and the total number of polls.
fn scopes() -> [Case; 10] {
    const HOUR: Duration = Duration::from_secs(3600);
    [
        ("with_timeout", OFTEN, || {
            Box::pin(async { task::with_timeout(HOUR, often(None)).await.unwrap() })
        }),
        ("shield", OFTEN, || Box::pin(task::shield(often(None)))),
        ("a task-local", OFTEN, || Box::pin(KEY.scope(7, often(Some(7))))),
        ("a cancellation handler", OFTEN, || {
            Box::pin(task::with_cancellation_handler(|| (), often(None)))
        }),
        ("an escalation handler", OFTEN, || {
            Box::pin(task::with_escalation_handler(|_, _| (), often(None)))
        }),
        ("group", 3 * OFTEN, || {
            Box::pin(task::group(async |group| {
                group.spawn(child());
                group.spawn(child());
                let mut sum = often(None).await;
                while let Some(number) = group.next().await {
                    sum += number;
                }
                sum
            }))
        }),
        ("try_group", 2 * OFTEN, || {
            Box::pin(async {
                let sum = task::try_group(async |group| {
                    group.spawn(async { Ok::<_, Infallible>(child().await) });
                    let sum = often(None).await;
                    Ok(sum + group.next().await.expect("a child")?)
                });
                sum.await.unwrap()
            })
        }),
        ("discarding_group", OFTEN, || {
            Box::pin(task::discarding_group(async |group| {
                group.spawn(async {
                    child().await;
                });
                let sum = often(None).await;
                group.wait_for_all().await;
                sum
            }))
        }),
        ("supervised_group", 2 * OFTEN, || {
            Box::pin(task::supervised_group(async |group| {
                group.spawn(child());
                let sum = often(None).await;
                sum + group.next_ended().await.expect("a child").unwrap()
            }))
        }),
        ("one in the other", 2 * OFTEN, || {
            Box::pin(task::shield(KEY.scope(8, async {
                let group = task::group(async |group| {
                    group.spawn(child());
                    let sum = task::shield(often(Some(8))).await;
                    sum + group.next().await.expect("a child")
                });
                task::with_timeout(HOUR, group).await.unwrap()
            })))
        }),
    ]
}

#[test]
fn scopes_and_groups_in_it_may_be_polled_often() {
    let dog = Watchdog::new(Duration::from_secs(120));
    for (name, expected, make) in scopes() {
        dog.step(format!("{name}, outside of a task"));
        assert_eq!(sync_wait(from_future(make())).unwrap(), expected, "{name}");
        on_loop_and_pools(|scheduler| {
            dog.step(format!("{name}, in a task of {scheduler:?}"));
            let task = Task::new(async move {
                let before = task::current();
                let Ok(alone) = from_future(make()).await;
                let Ok(together) = when_all((from_future(make()), from_future(make()))).await;
                assert_eq!(task::current(), before);
                (alone, together)
            });
            let came = sync_wait(starts_on(scheduler, task)).unwrap();
            assert_eq!(came, (expected, (expected, expected)), "{name}");
        });
    }
}

#[test]
fn scopes_and_groups_in_it_may_be_given_up_between_two_polls() {
    let dog = Watchdog::new(Duration::from_secs(120));
    for (name, _, make) in scopes() {
        on_loop_and_pools(|scheduler| {
            dog.step(format!("{name}, in a task of {scheduler:?}"));
            let task = Task::new(async move {
                // If the others are slow, it may come after the scope, which never ends it.
                let scoped = from_future(async move {
                    make().await;
                    pending().await
                });
                let soon = from_future(async {
                    Yield(2).await;
                    0
                });
                let first = when_any((scoped, soon));
                let Ok(first) = first.await;
                first
            });
            assert_eq!(sync_wait(starts_on(scheduler, task)).unwrap(), 0, "{name}");
        });
    }
}

#[test]
fn completes_on_its_scheduler() {
    assert_eq!(completes(&from_future(ready(()))), Completes::OnStartScheduler);
}

#[test]
fn a_future_that_is_pending_allocates_once() {
    for pending in [1, 2, 1000] {
        let (output, allocated) = allocations(|| sync_wait(from_future(Yield(pending))).unwrap());
        assert_eq!((output, allocated), ("done", 1));
    }
}

#[test]
fn a_future_that_keeps_its_waker_allocates_once() {
    let held = Held::new();
    held.be_ready(7);
    let future = held.future();
    assert_eq!(allocations(|| sync_wait(from_future(future)).unwrap()), (7, 1));
    // Clones share the allocation.
    assert_eq!(allocations(|| drop((held.waker(), held.waker()))), ((), 0));
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let round = from_future(Yield(1)).repeat_until(million());
        assert_eq!(run_loop.run_until(round).unwrap(), "done");
    });
}

#[test]
fn a_million_wake_ups_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        assert_eq!(sync_wait(from_future(Yield(ROUNDS))).unwrap(), "done");
    });
}

#[test]
fn a_million_wake_ups_on_the_inline_scheduler_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let work = from_future(Yield(ROUNDS)).write_env(WithScheduler(InlineScheduler));
        assert_eq!(sync_wait(work).unwrap(), "done");
    });
}
