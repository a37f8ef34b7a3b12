//! Every way for a group to end, in every state of its body, on every kind of scheduler, against an oracle.
//!
//! The outer task polls the group once, so that the body reaches its state. Then it makes the group end, and compares what
//! the group gave and what each child saw with what [`oracle`] says. In every case no child outlives the outer task.

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bowline::adaptors::WriteEnv;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, ThreadPool};
use bowline::stop::{SharedStopToken, StopSource};
use bowline::task::{self, Task, TaskGroup};
use futures_util::FutureExt;
use tokio::sync::oneshot;

use crate::common::tasks::{Via, hops};
use crate::common::{Census, Counted, Watchdog, forget, lock};

const CHILDREN: usize = 3;
const HOUR: Duration = Duration::from_secs(3600);
const BRIEFLY: Duration = Duration::from_millis(1);
/// The error or the panic of the body.
const BODY: &str = "the body";
/// The error or the panic of the first child.
const CHILD: &str = "a child";

/// How the group ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Returns,
    Fails,
    Panics,
    ChildFails,
    ChildPanics,
    CancelAll,
    ParentCancelled,
    Dropped,
    Forgotten,
}

const ENDS: [End; 9] = [
    End::Returns,
    End::Fails,
    End::Panics,
    End::ChildFails,
    End::ChildPanics,
    End::CancelAll,
    End::ParentCancelled,
    End::Dropped,
    End::Forgotten,
];

impl End {
    /// Whether the body brings the end about. It does so when it has left its state.
    fn is_of_the_body(self) -> bool {
        matches!(self, End::Returns | End::Fails | End::Panics)
    }
}

/// Where the body is when the group is made to end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    BeforeSpawn,
    InNext,
    /// In a future that knows nothing of stops.
    Elsewhere,
    InSleep,
    /// It has ended right after it spawned the children.
    Finished,
}

const STATES: [State; 5] = [
    State::BeforeSpawn,
    State::InNext,
    State::Elsewhere,
    State::InSleep,
    State::Finished,
];

/// What the future of the group came to.
#[derive(Debug, PartialEq)]
enum Came {
    Value,
    Error(&'static str),
    Panic(&'static str),
    /// The outer task was stopped where it awaited the group.
    Stopped,
    /// It was dropped or forgotten.
    GivenUp,
}

/// What a child saw first.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Saw {
    /// It was never spawned, or refused.
    Nothing,
    Told,
    Cancelled,
}

/// What a child is told to do.
enum Tell {
    Return,
    Fail,
    Panic,
}

/// What the group comes to, and what its children see: the first, and each of the others.
///
/// There is no child to fail before one was spawned, so two of the pairs mean nothing.
fn oracle(end: End, state: State) -> Option<(Came, Saw, Saw)> {
    let came = match (end, state) {
        (End::ChildFails | End::ChildPanics, State::BeforeSpawn) => return None,
        // An error that the body took with `next`, and did not return, is the body's own affair.
        (End::ChildFails, State::InNext) => Came::Value,
        (End::ChildFails, _) => Came::Error(CHILD),
        (End::ChildPanics, _) => Came::Panic(CHILD),
        (End::Fails, _) => Came::Error(BODY),
        (End::Panics, _) => Came::Panic(BODY),
        // A sender that the body awaits is stopped with the task, and the body with it.
        (End::ParentCancelled, State::InSleep) => Came::Stopped,
        (End::Dropped | End::Forgotten, _) => Came::GivenUp,
        (End::Returns | End::CancelAll | End::ParentCancelled, _) => Came::Value,
    };
    if state == State::BeforeSpawn {
        // A group that is cancelled refuses children; otherwise the body does not come to the spawn.
        return Some((came, Saw::Nothing, Saw::Nothing));
    }
    let others = match (end, state) {
        (End::Returns, _) | (End::ChildFails, State::InNext) => Saw::Told,
        _ => Saw::Cancelled,
    };
    let first = match (end, state) {
        (End::ChildFails | End::ChildPanics, _) => Saw::Told,
        // The body leaves `next` when the first child has ended.
        (_, State::InNext) if end.is_of_the_body() => Saw::Told,
        _ => others,
    };
    Some((came, first, others))
}

/// What body, children and outer task share.
#[derive(Default)]
struct Stage {
    group: Mutex<Option<TaskGroup<Given>>>,
    tells: Mutex<[Option<oneshot::Sender<Tell>>; CHILDREN]>,
    release: Mutex<Option<oneshot::Sender<()>>>,
    saw: Mutex<[Option<Saw>; CHILDREN]>,
    came: Mutex<Option<Came>>,
    source: StopSource,
}

type Given = Result<usize, &'static str>;

impl Stage {
    fn tell(&self, child: usize, what: Tell) {
        if let Some(tell) = lock(&self.tells)[child].take() {
            // A child that was cancelled listens no more.
            let _ = tell.send(what);
        }
    }

    fn tell_all(&self) {
        for child in 0..CHILDREN {
            self.tell(child, Tell::Return);
        }
    }

    fn release(&self) {
        if let Some(release) = lock(&self.release).take() {
            let _ = release.send(());
        }
    }
}

/// A child: waits until it is told something or cancelled, and lingers.
async fn child(stage: Arc<Stage>, number: usize, told: oneshot::Receiver<Tell>, _held: Counted) -> Given {
    let Ok(told) = from_future(told).stopped_as_option().await;
    let saw = if told.is_some() { Saw::Told } else { Saw::Cancelled };
    lock(&stage.saw)[number] = Some(saw);
    hops(10).await;
    match told.map(|told| told.expect("the stage is alive")) {
        Some(Tell::Fail) => Err(CHILD),
        Some(Tell::Panic) => resume_unwind(Box::new(CHILD)),
        Some(Tell::Return) | None => Ok(number),
    }
}

/// The body: goes to its state, and from there to its end.
async fn body(
    stage: Arc<Stage>,
    census: Census,
    end: End,
    state: State,
    group: TaskGroup<Given>,
) -> Result<(), &'static str> {
    let conclude = || match end {
        End::Fails => Err(BODY),
        End::Panics => resume_unwind(Box::new(BODY)),
        _ => Ok(()),
    };
    if state == State::BeforeSpawn {
        match end {
            End::CancelAll => group.cancel_all(),
            End::ParentCancelled => drop(stage.source.request_stop()),
            End::Dropped | End::Forgotten => pending().await,
            _ => return conclude(),
        }
    }
    for number in 0..CHILDREN {
        let (tell, told) = oneshot::channel();
        lock(&stage.tells)[number] = Some(tell);
        group.spawn(child(stage.clone(), number, told, census.value()));
    }
    let (release, released) = oneshot::channel();
    *lock(&stage.release) = Some(release);
    *lock(&stage.group) = Some(group.clone());
    match state {
        State::BeforeSpawn | State::Finished => {}
        State::InNext => {
            while let Some(given) = group.next().await {
                if end.is_of_the_body() {
                    break;
                }
                if given.is_err() {
                    stage.tell_all();
                }
            }
        }
        State::Elsewhere => released.await.expect("the stage is alive"),
        State::InSleep => {
            let stopped = matches!(oracle(end, state), Some((Came::Stopped | Came::GivenUp, ..)));
            task::sleep(if stopped { HOUR } else { BRIEFLY }).await;
        }
    }
    conclude()
}

/// Has the group end. The body is in its state.
fn act(stage: &Stage, end: End, state: State) {
    match end {
        End::Returns => stage.tell_all(),
        End::Fails | End::Panics if state == State::InNext => stage.tell(0, Tell::Return),
        End::Fails | End::Panics => {}
        End::ChildFails => stage.tell(0, Tell::Fail),
        End::ChildPanics => stage.tell(0, Tell::Panic),
        End::CancelAll => lock(&stage.group).as_ref().expect("it has begun").cancel_all(),
        End::ParentCancelled => drop(stage.source.request_stop()),
        End::Dropped | End::Forgotten => return,
    }
    stage.release();
}

/// The outer task.
async fn outer(stage: Arc<Stage>, census: Census, end: End, state: State) {
    let inside = stage.clone();
    let mut group = Box::pin(task::try_group(async move |group| {
        body(inside, census, end, state, group).await
    }));
    let begun = poll_fn(|cx| Poll::Ready(catch_unwind(AssertUnwindSafe(|| group.as_mut().poll(cx))))).await;
    let ended = match begun {
        Ok(Poll::Ready(result)) => Ok(result),
        Err(payload) => Err(payload),
        Ok(Poll::Pending) => {
            act(&stage, end, state);
            match end {
                End::Dropped => {
                    drop(group);
                    *lock(&stage.came) = Some(Came::GivenUp);
                    return;
                }
                End::Forgotten => {
                    forget(group);
                    *lock(&stage.came) = Some(Came::GivenUp);
                    return;
                }
                _ => AssertUnwindSafe(group).catch_unwind().await,
            }
        }
    };
    *lock(&stage.came) = Some(match ended {
        Ok(Ok(())) => Came::Value,
        Ok(Err(error)) => Came::Error(error),
        Err(payload) => Came::Panic(*payload.downcast().expect("a panic of this file")),
    });
}

/// Tries every pair. `run` runs a task to its end, and says whether it was stopped.
fn product(run: impl Fn(Whole) -> Outcome<(), Infallible>) {
    let dog = Watchdog::new(Duration::from_secs(120));
    for end in ENDS {
        for state in STATES {
            let Some((came, first, others)) = oracle(end, state) else {
                continue;
            };
            let pair = format!("{end:?} {state:?}");
            dog.step(pair.clone());
            let (stage, census) = (Arc::<Stage>::default(), Census::new());
            let task = Task::new(outer(stage.clone(), census.clone(), end, state));
            let outcome = run(task.write_env(WithStopToken(stage.source.token())));
            assert_eq!(census.alive(), 0, "{pair}: a child outlived the task");
            let recorded = lock(&stage.came).take();
            assert_eq!(recorded.unwrap_or(Came::Stopped), came, "{pair}");
            assert!(outcome.is_stopped() || came != Came::Stopped, "{pair}: {outcome:?}");
            let saw = lock(&stage.saw).map(|saw| saw.unwrap_or(Saw::Nothing));
            assert_eq!(saw, [first, others, others], "{pair}");
            // The group is part of what it is in the stage of.
            drop(lock(&stage.group).take());
        }
    }
}

/// The outer task, which the source of its stage stops.
type Whole = WriteEnv<Task<()>, WithStopToken<SharedStopToken>>;

#[test]
fn on_a_run_loop() {
    product(sync_wait);
}

#[test]
fn on_a_pool_of_one() {
    let pool = ThreadPool::new(1);
    product(|task| sync_wait(starts_on(pool.scheduler(), task)));
}

#[test]
fn on_a_pool_of_two() {
    let pool = ThreadPool::new(2);
    product(|task| sync_wait(starts_on(pool.scheduler(), task)));
}

#[test]
fn on_a_scheduler_of_the_users_own() {
    let pool = ThreadPool::new(2);
    product(|task| sync_wait(starts_on(Via(pool.scheduler()), task)));
}

#[test]
fn on_the_inline_scheduler() {
    product(|task| sync_wait(starts_on(InlineScheduler, task)));
}
