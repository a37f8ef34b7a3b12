//! The context of a task: its creation, its answers, and the task's scheduler.

use std::alloc::Layout;
use std::any::{Any, TypeId};
use std::convert::Infallible;
use std::future::poll_fn;
use std::mem;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};

use allocator_api2::alloc::{AllocError, Allocator, Global};
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, PoolScheduler, RunLoop, TaskScheduler, ThreadPool};
use bowline::stop::InplaceStopSource;
use bowline::task::{self, FromEnv, InAllocator, Inline, Providing, Task, TaskContext};
use bowline::{Completes, Patched, Query};

use crate::common::{
    Census, DEEP_STACK, HandleScheduler, Record, Recorded, forget, hold, lock, panic_message, with_loop, with_stack,
};

const _: () = {
    assert!(<Task<()> as Sender>::COMPLETES.stays_on_scheduler());
    assert!(<Task<(), (), InAllocator<Global>> as Sender>::COMPLETES.stays_on_scheduler());
    assert!(matches!(
        <Task<(), (), Inline> as Sender>::COMPLETES,
        Completes::Anywhere
    ));
};

/// A value of the outer environment.
#[derive(Clone, Debug, PartialEq)]
struct Request(u32);

/// A value that the context derives from it.
#[derive(Clone, Debug, PartialEq)]
struct Label(String);

impl FromEnv for Label {
    fn from_env<N: Env>(env: &N) -> Self {
        Label(match (env.get(), env.get()) {
            (Some(Label(outer)), _) => format!("{outer} inside"),
            (None, Some(Request(id))) => format!("request {id}"),
            (None, None) => "nobody".to_owned(),
        })
    }
}

async fn read<T: Clone + Send + 'static>() -> Option<T> {
    let Ok(value) = read_env(Get::<T>::new()).await;
    value
}

fn here() -> ThreadId {
    thread::current().id()
}

/// A query: whether the scheduler of an environment is this one.
struct IsOn<S>(S);

impl<S: Scheduler> Query for IsOn<S> {
    type Answer = bool;

    fn ask<E: Env>(self, env: &E) -> bool {
        TaskScheduler::new(env.scheduler()) == self.0
    }
}

/// A query for the priority, as a scheduler makes it.
struct Urgency;

impl Query for Urgency {
    type Answer = Option<Priority>;

    fn ask<E: Env>(self, env: &E) -> Option<Priority> {
        env.priority()
    }
}

#[test]
fn a_context_is_made_of_the_receivers_environment() {
    let task = || Task::builder().context::<Providing<Label>>().task(read::<Label>());
    assert_eq!(sync_wait(task()).unwrap(), Some(Label("nobody".to_owned())));
    let asked = sync_wait(task().write_env(With(Request(7)))).unwrap();
    assert_eq!(asked, Some(Label("request 7".to_owned())));
}

#[test]
fn what_a_context_does_not_answer_is_asked_of_the_receivers_environment() {
    let task = Task::builder().context::<Providing<Label>>().task(async {
        let child = Task::new_in(async { read::<Request>().await }, Global);
        let Ok(in_child) = child.await;
        (read::<Request>().await, in_child, read::<u8>().await)
    });
    let found = sync_wait(task.write_env(With(Request(7)))).unwrap();
    assert_eq!(found, (Some(Request(7)), Some(Request(7)), None));
}

#[test]
fn a_context_that_needs_nothing_is_made_of_nothing() {
    struct Fixed;
    impl TaskContext for Fixed {
        type Allocator = Global;
        type Scheduler = TaskScheduler<'static>;

        fn new<N: Env>(_: &N) -> Self {
            Fixed
        }

        fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
            if id == TypeId::of::<Request>() {
                found(&Request(42));
            }
        }
    }
    let task = Task::builder().context::<Fixed>().task(read::<Request>());
    let found = sync_wait(task.write_env(With(Request(7)))).unwrap();
    assert_eq!(
        found,
        Some(Request(42)),
        "the context comes before the environment outside"
    );
}

#[test]
fn a_context_keeps_what_it_made_of_the_environment_on_its_way() {
    /// A context that derives values from the environment.
    struct Derived {
        request: Request,
        label: Label,
    }
    impl TaskContext for Derived {
        type Allocator = Global;
        type Scheduler = TaskScheduler<'static>;

        fn new<N: Env>(env: &N) -> Self {
            let request = Request(env.get().map_or(0, |Request(id)| id + 1));
            let label = Label(format!("made of {}", request.0));
            Derived { request, label }
        }

        fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
            if id == TypeId::of::<Request>() {
                found(&self.request);
            } else if id == TypeId::of::<Label>() {
                found(&self.label);
            }
        }
    }
    let task = Task::builder()
        .context::<Derived>()
        .task(async { (read::<Request>().await, read::<Label>().await) });
    let found = sync_wait(task.write_env(With(Request(7)))).unwrap();
    assert_eq!(found, (Some(Request(8)), Some(Label("made of 8".to_owned()))));
}

#[test]
fn a_child_makes_its_context_of_its_parents_environment() {
    let tasks = Task::builder().context::<Providing<Label>>();
    let inner = tasks.clone().task(read::<Label>());
    // A task without a context of its own passes on the outer one.
    let middle = Task::new(async {
        let seen = read::<Label>().await;
        let Ok(inner) = inner.await;
        (seen, inner)
    });
    let outer = tasks.task(async {
        let Ok(seen) = middle.await;
        (seen, read::<Label>().await)
    });
    let label = |text: &str| Some(Label(text.to_owned()));
    let found = sync_wait(outer.write_env(With(Request(1)))).unwrap();
    assert_eq!(
        found,
        ((label("request 1"), label("request 1 inside")), label("request 1"))
    );
}

#[test]
fn contexts_nest_and_each_changes_one_thing() {
    let pool = ThreadPool::new(1);
    let task = Task::builder()
        .context::<Inline<Providing<Label, InAllocator<Global>>>>()
        .task(async {
            let Ok(inline) = read_env(IsOn(InlineScheduler)).await;
            (inline, read::<Label>().await)
        });
    let found = sync_wait(starts_on(pool.scheduler(), task).write_env(With(Request(3)))).unwrap();
    assert_eq!(found, (true, Some(Label("request 3".to_owned()))));
}

/// A context whose constructor panics.
#[derive(Clone)]
struct Refuses;

impl FromEnv for Refuses {
    fn from_env<N: Env>(_: &N) -> Self {
        panic!("no context");
    }
}

#[test]
fn a_panic_while_the_context_is_made_is_the_completion() {
    let census = Census::new();
    let value = census.value();
    let task = Task::builder()
        .context::<Providing<Refuses>>()
        .task(async move { drop(value) });
    let alive = census.clone();
    let completed = task.then(move |()| unreachable!("it panics"));
    assert_eq!(panic_message(|| sync_wait(completed)), "no context");
    assert_eq!(alive.alive(), 0);
}

#[test]
fn a_panic_while_the_context_of_a_child_is_made_unwinds_its_parent_at_the_await() {
    let (child, before) = (
        Task::builder().context::<Providing<Refuses>>().task(async { 1 }),
        Arc::new(Mutex::new(0)),
    );
    let count = before.clone();
    let parent = Task::new(async move {
        *lock(&count) += 1;
        let Ok(one) = child.await;
        *lock(&count) += one;
    });
    assert_eq!(panic_message(|| sync_wait(parent)), "no context");
    assert_eq!(*lock(&before), 1);
}

/// A log of drops.
#[derive(Clone)]
struct Log(mpsc::Sender<&'static str>);

struct Says(Log, &'static str);

impl Drop for Says {
    fn drop(&mut self) {
        // The test may not listen.
        let _ = self.0.0.send(self.1);
    }
}

/// A context that logs its drop, if the environment has a log.
struct Logged(#[expect(dead_code, reason = "it is dropped")] Option<Says>);

impl TaskContext for Logged {
    type Allocator = Global;
    type Scheduler = TaskScheduler<'static>;

    fn new<N: Env>(env: &N) -> Self {
        Logged(env.get().map(|log| Says(log, "context")))
    }
}

#[test]
fn a_context_goes_after_the_locals_and_before_the_completion() {
    let (sender, receiver) = mpsc::channel();
    let log = Log(sender);
    let local = Says(log.clone(), "local");
    let task = Task::builder().context::<Logged>().task(async move {
        let _local = local;
        let Ok(()) = just(()).await;
    });
    let after = log.clone();
    let completed = task
        .then(move |()| drop(Says(after, "completion")))
        .write_env(With(log));
    sync_wait(completed).unwrap();
    assert_eq!(
        receiver.try_iter().collect::<Vec<_>>(),
        ["local", "context", "completion"]
    );
}

#[test]
fn a_context_stays_for_an_await_that_was_forgotten() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let (sender, receiver) = mpsc::channel();
    let held = hold(scheduler);
    let task = Task::builder().context::<Inline<Logged>>().task(async move {
        let mut forgotten = Box::pin(scheduler.schedule().into_future());
        poll_fn(|cx| {
            assert!(forgotten.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        forget(forgotten);
    });
    let (record, completed) = Record::<_, Infallible>::new();
    bowline::submit(task.write_env(With(Log(sender))), record);
    assert!(receiver.try_recv().is_err(), "it is still used");
    drop(held);
    assert_eq!(completed.recv(), Ok(Recorded::Value(())));
    assert_eq!(receiver.try_recv(), Ok("context"));
}

#[test]
fn a_context_of_its_own_lets_go_of_the_scheduler_when_the_task_is_done() {
    let handle = Arc::new(());
    let task = Task::new_in(
        async {
            let Ok(()) = Task::new_in(async {}, Global).await;
        },
        Global,
    );
    let seen = handle.clone();
    let completed = starts_on(HandleScheduler(handle.clone()), task).then(move |()| Arc::strong_count(&seen));
    // Those of the test, the closure, and the sender.
    assert!(sync_wait(completed).unwrap() <= 3);
    assert_eq!(Arc::strong_count(&handle), 1);
}

#[test]
fn an_inline_task_needs_no_scheduler() {
    let (record, received) = Record::new();
    bowline::submit(
        Task::builder().context::<Inline>().task(async { just(1).await }),
        record,
    );
    assert_eq!(received.try_recv(), Ok(Recorded::<_, Infallible>::Value(Ok(1))));
}

#[test]
fn an_inline_task_goes_on_where_what_it_awaits_completes() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let worker = sync_wait(starts_on(scheduler, just_from(here))).unwrap();
    let task = Task::builder().context::<Inline>().task(async move {
        let before = here();
        scheduler.schedule().await;
        let Ok(inherited) = Task::new(async move {
            scheduler.schedule().await;
            here()
        })
        .await;
        (before, inherited, here())
    });
    let held = hold(scheduler);
    let (record, received) = Record::<_, Infallible>::new();
    bowline::submit(task, record);
    // It is suspended now; had the sender completed before, it would resume here.
    drop(held);
    assert_eq!(received.recv(), Ok(Recorded::Value((here(), worker, worker))));
}

#[test]
fn a_waker_resumes_an_inline_task_on_the_thread_that_wakes() {
    let (sender, receiver) = mpsc::channel();
    let task = Task::builder().context::<Inline>().task(async move {
        wait(sender).await;
        here()
    });
    let (record, received) = Record::<_, Infallible>::new();
    bowline::submit(task, record);
    let waker = receiver.try_recv().expect("it was polled");
    let waking = thread::spawn(move || {
        waker.wake();
        here()
    });
    let woke = waking.join().expect("no panic");
    assert_eq!(received.try_recv(), Ok(Recorded::Value(woke)));
}

/// Returns the threads of a parent on `home`, which has one thread, before and after an inline child that moves to the pool,
/// and the child's.
fn around_a_wanderer(home: impl Scheduler, pool: &ThreadPool) -> (ThreadId, ThreadId, ThreadId) {
    let scheduler = pool.scheduler();
    let parent = Task::new(async move {
        let before = here();
        let child = Task::builder().context::<Inline>().task(async move {
            scheduler.schedule().await;
            here()
        });
        let Ok(child) = child.await;
        (before, child, here())
    });
    let held = hold(scheduler);
    // The second entry there runs when the parent is suspended.
    let release = starts_on(home.clone(), just_from(move || drop(held)));
    let (found, ()) = sync_wait(when_all((starts_on(home, parent), release))).unwrap();
    found
}

#[test]
fn a_parent_comes_back_to_its_own_scheduler_from_an_inline_child() {
    let pool = ThreadPool::new(1);
    let worker = sync_wait(starts_on(pool.scheduler(), just_from(here))).unwrap();
    with_loop(|run_loop| {
        let home = sync_wait(starts_on(run_loop, just_from(here))).unwrap();
        assert_eq!(around_a_wanderer(run_loop, &pool), (home, worker, home));
    });
    let other = ThreadPool::new(1);
    let home = sync_wait(starts_on(other.scheduler(), just_from(here))).unwrap();
    assert_eq!(around_a_wanderer(other.scheduler(), &pool), (home, worker, home));
}

#[test]
fn an_inline_child_that_completes_at_once_costs_no_hop() {
    let run_loop = RunLoop::new();
    let (sender, receiver) = mpsc::channel();
    let other = sender.clone();
    let task = Task::new(async move {
        let Ok(()) = Task::builder().context::<Inline>().task(async {}).await;
        sender.send("task").expect("somebody listens");
    });
    let both = when_all((
        starts_on(run_loop.scheduler(), task),
        starts_on(
            run_loop.scheduler(),
            just_from(move || other.send("other").expect("somebody listens")),
        ),
    ));
    run_loop.run_until(both).unwrap();
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), ["task", "other"]);
}

#[test]
fn the_scheduler_of_the_task_is_seen_inside() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let task = Task::new_in(
        async move {
            let Ok(at_home) = read_env(IsOn(scheduler)).await;
            let child = Task::new_in(async move { read_env(IsOn(scheduler)).await }, Global);
            let Ok(Ok(in_child)) = child.await;
            let Ok(elsewhere) = read_env(IsOn(InlineScheduler)).await;
            (at_home, in_child, elsewhere)
        },
        Global,
    );
    assert_eq!(sync_wait(starts_on(scheduler, task)).unwrap(), (true, true, false));
}

#[test]
fn the_stop_token_is_the_receivers_also_through_a_context_of_its_own() {
    let source = InplaceStopSource::new();
    let token = source.token();
    let asks = || {
        Task::new_in(
            async {
                let Ok(here) = read_env(StopRequested).await;
                let Ok(Ok(in_child)) = Task::new_in(async { read_env(StopRequested).await }, Global).await;
                (here, in_child)
            },
            Global,
        )
    };
    assert_eq!(
        sync_wait(asks().write_env(WithStopToken(token))).unwrap(),
        (false, false)
    );
    source.request_stop();
    assert_eq!(sync_wait(asks().write_env(WithStopToken(token))).unwrap(), (true, true));
}

/// A context that makes everything inside urgent.
#[derive(Clone, Copy)]
struct Urgent;

impl TaskContext for Urgent {
    type Allocator = Global;
    type Scheduler = TaskScheduler<'static>;

    fn new<N: Env>(_: &N) -> Self {
        Urgent
    }

    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        if id == TypeId::of::<Priority>() {
            found(&Priority::UserInteractive);
        }
    }
}

#[test]
fn the_priority_is_seen_inside_the_same_way_by_schedulers_and_by_type() {
    let asks = async || {
        let Ok(urgency) = read_env(Urgency).await;
        assert_eq!(urgency, read::<Priority>().await);
        urgency
    };
    assert_eq!(sync_wait(Task::new(asks())).unwrap(), None);
    let utility = || With(Priority::Utility);
    assert_eq!(
        sync_wait(Task::new(asks()).write_env(utility())).unwrap(),
        Some(Priority::Utility)
    );
    let in_own = Task::new_in(asks(), Global).write_env(utility());
    assert_eq!(sync_wait(in_own).unwrap(), Some(Priority::Utility));
    let urgent = Task::builder().context::<Urgent>().task(async move {
        let Ok(in_child) = Task::new(asks()).await;
        (asks().await, in_child)
    });
    let expected = Some(Priority::UserInteractive);
    assert_eq!(sync_wait(urgent.write_env(utility())).unwrap(), (expected, expected));
}

#[test]
fn a_patched_environment_knows_its_priority() {
    let env = Patched::new(With(Priority::Utility), bowline::EmptyEnv);
    assert_eq!(env.priority(), Some(Priority::Utility));
    let env = Patched::new(With(Request(1)), env);
    assert_eq!(env.priority(), Some(Priority::Utility));
    let env = Patched::new(With(Priority::Background), env);
    assert_eq!(
        (env.priority(), env.get()),
        (Some(Priority::Background), Some(Priority::Background))
    );
    assert_eq!(Patched::new(With(Request(1)), bowline::EmptyEnv).priority(), None);
}

/// Sends its waker, and waits until it is woken.
async fn wait(wakers: mpsc::Sender<Waker>) {
    let mut first = true;
    poll_fn(move |cx| {
        if mem::take(&mut first) {
            wakers.send(cx.waker().clone()).expect("somebody wakes it");
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
}

#[test]
fn a_task_gets_in_line_again_at_its_priority() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let (log, logged) = mpsc::channel();
    let (ended, ends) = mpsc::channel::<()>();
    // Starts a task, and returns when it is suspended.
    let start = |on: PoolScheduler, priority: Option<Priority>, name: &'static str| {
        let (log, ended) = (log.clone(), ended.clone());
        let (wakers, woken) = mpsc::channel();
        let task = starts_on(
            on,
            Task::new(async move {
                wait(wakers).await;
                log.send(name).expect("somebody listens");
                drop(ended);
            }),
        );
        match priority {
            Some(priority) => start_detached(task.write_env(With(priority))),
            None => start_detached(task),
        }
        let waker = woken.recv().expect("a waker");
        sync_wait(starts_on(scheduler, just(()))).unwrap();
        waker
    };
    let wakers = [
        start(scheduler, Some(Priority::Background), "background"),
        start(scheduler.with_priority(Priority::Utility), None, "utility"),
        start(scheduler, None, "default"),
        start(scheduler, Some(Priority::UserInteractive), "interactive"),
    ];
    let held = hold(scheduler);
    wakers.into_iter().for_each(Waker::wake);
    drop((held, ended));
    assert!(ends.recv().is_err(), "all have ended");
    let order = ["interactive", "default", "utility", "background"];
    assert_eq!(logged.try_iter().collect::<Vec<_>>(), order);
}

#[test]
fn contexts_nested_a_hundred_thousand_deep_take_no_stack() {
    fn level(left: usize) -> Task<Option<Request>, Infallible, InAllocator<Global>> {
        Task::new_in(
            async move {
                if left == 0 {
                    return read::<Request>().await;
                }
                let Ok(found) = level(left - 1).await;
                found
            },
            Global,
        )
    }
    let found = with_stack(DEEP_STACK, || {
        sync_wait(level(100_000).write_env(With(Request(7)))).unwrap()
    });
    assert_eq!(found, Some(Request(7)));
}

/// An allocator that asks for the current task whenever it is used.
#[derive(Clone)]
struct Curious;

impl Curious {
    fn ask() {
        assert!(task::current().is_none() || !task::is_cancelled());
    }
}

// SAFETY: the memory is that of `Global`.
unsafe impl Allocator for Curious {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        Curious::ask();
        Global.allocate(layout)
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe {
            // What is read here afterwards is not the frame.
            memory.write_bytes(0xDD, layout.size());
            Global.deallocate(memory, layout);
        }
        Curious::ask();
    }
}

impl Drop for Curious {
    fn drop(&mut self) {
        Curious::ask();
    }
}

/// A context that adds nothing, with an allocator.
struct Allocates;

impl TaskContext for Allocates {
    type Allocator = Curious;
    type Scheduler = TaskScheduler<'static>;
    const INHERITS: bool = true;

    fn new<N: Env>(_: &N) -> Self {
        Allocates
    }
}

#[test]
fn an_allocator_may_ask_for_the_task_while_a_frame_is_freed() {
    let make = |n| Task::builder().context_in::<Allocates>(Curious).task(async move { n });
    let outer = Task::new(async move {
        let Ok(one) = make(1).await;
        let two = Task::builder().context_in::<Allocates>(Curious).task(async move {
            scheduled().await;
            let Ok(two) = make(2).await;
            two
        });
        let Ok(two) = two.await;
        one + two
    });
    assert_eq!(
        sync_wait(starts_on(ThreadPool::global().scheduler(), outer)).unwrap(),
        3
    );
}

async fn scheduled() {
    ThreadPool::global().scheduler().schedule().await;
}
