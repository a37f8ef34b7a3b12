//! The current task: queries against the end of the task, and frames that are resumed, or blocked on, during a poll.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop};
use bowline::stop::StopSource;
use bowline::task::{
    self, Continuation, FromEnv, Priority, Providing, SenderFuture, Task, TaskRef, TaskState, continuation,
};
use loom::thread;

use crate::hop::{self, Elsewhere};
use crate::support::{Ended, Watched, World, explore, race};
use crate::task::{Event, Failure, Sendable, awaited, task};

/// A slot for a task's reference to itself. The threads of a model share one system thread, so this orders nothing.
#[derive(Clone, Default)]
struct Slot(Arc<Mutex<Option<TaskRef>>>);

impl Slot {
    fn leave(&self) {
        *self.0.lock().expect("nobody panicked") = task::current();
    }

    fn take(&self) -> TaskRef {
        let taken = self.0.lock().expect("nobody panicked").take();
        taken.expect("it was left")
    }
}

/// A task ends on another thread while this one queries it. The answers describe the running task or the ended one; the
/// cancellation comes before or in between.
#[test]
fn asking_races_with_the_end() {
    explore(3, &["running", "cancelled", "finished"], |seen| {
        let world = World::default();
        let (root, report) = world.root();
        let (remote, slot, source) = (world.remote(6), Slot::default(), StopSource::new());
        let inside = {
            let (slot, source) = (slot.clone(), source.clone());
            async move {
                slot.leave();
                let result = awaited(remote).await;
                source.request_stop();
                result
            }
        };
        submit(
            task(inside)
                .write_env(WithScheduler(InlineScheduler))
                .write_env(With(Priority::Utility))
                .write_env(WithStopToken(source.token())),
            root,
        );
        drop(source);
        let asked = slot.take();
        let (cancelled, finished) = (asked.is_cancelled(), asked.is_finished());
        assert_eq!(asked.priority(), Priority::Utility);
        assert!(asked.is_cancelled() || !cancelled, "it was taken back");
        seen.note(match (cancelled, finished) {
            (false, false) => "running",
            (true, false) => "cancelled",
            (true, true) => "finished",
            // It ended between the two queries.
            (false, true) => "finished",
        });
        world.end();
        assert!(asked.is_finished() && asked.is_cancelled());
        assert!(matches!(report.get(), Ended::Value(6)));
    });
}

/// A child queries itself for the first time, and so its parent, while the parent is queried too. It ends while the tree of the
/// parent is built.
#[test]
fn a_tree_is_made_while_a_child_comes_and_goes() {
    explore(2, &["no child", "a child"], |seen| {
        let world = World::default();
        let (root, _) = world.root();
        let (remote, slot) = (world.remote(6), Slot::default());
        let inside = {
            let slot = slot.clone();
            async move {
                slot.leave();
                let child = task(async move {
                    let result = awaited(remote).await;
                    let me = task::current().expect("a task");
                    assert!(me.parent().is_some_and(|parent| !parent.is_finished()));
                    result
                });
                child.then(|value| value).await
            }
        };
        submit(task(inside).write_env(WithScheduler(InlineScheduler)), root);
        let parent = slot.take();
        let tree = parent.tree();
        let children: Vec<_> = tree.root().unwrap().children().collect();
        if let [child] = &children[..] {
            assert_eq!(child.task().parent(), Some(parent.clone()));
            assert_ne!(tree.root().unwrap().state(), TaskState::Finished);
        }
        seen.note(if children.is_empty() { "no child" } else { "a child" });
        world.end();
        assert!(parent.is_finished());
        assert_eq!(parent.tree().root().unwrap().children().count(), 0);
    });
}

/// Two frames of one task, on two threads, each query the current task for the first time.
#[test]
fn two_parts_of_a_task_ask_at_once() {
    race(2, &["done"], |world, root, report| {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let part = || {
            let (remote, asked) = (world.remote(3), asked.clone());
            task(async move {
                let result = awaited(remote).await;
                let me = task::current().expect("a task");
                asked.lock().expect("nobody panicked").push(me);
                result
            })
        };
        let (one, two) = (part(), part());
        let inside = async move {
            let (mut one, mut two) = (Box::pin(one.into_future()), Box::pin(two.into_future()));
            let mut ended = (None, None);
            poll_fn(move |context| {
                if ended.0.is_none()
                    && let Poll::Ready(result) = one.as_mut().poll(context)
                {
                    ended.0 = Some(result);
                }
                if ended.1.is_none()
                    && let Poll::Ready(result) = two.as_mut().poll(context)
                {
                    ended.1 = Some(result);
                }
                match &mut ended {
                    (one @ Some(_), Some(_)) => Poll::Ready(one.take().expect("it is there")),
                    _ => Poll::Pending,
                }
            })
            .await
        };
        submit(task(inside).write_env(WithScheduler(InlineScheduler)), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(3));
        let asked = std::mem::take(&mut *asked.lock().expect("nobody panicked"));
        assert_eq!(asked.len(), 2);
        assert_eq!(asked[0], asked[1]);
        assert!(asked[0].is_finished());
        "done"
    });
}

/// A slot for a continuation.
type Left = Arc<Mutex<Option<Continuation<Watched, Failure>>>>;

/// Stores a continuation in the slot, and waits for it.
fn waiting(left: &Left) -> impl Sender<Value = Watched, Error = Failure> + Send + use<> {
    let left = Sendable(left.clone());
    continuation(move |continuation| {
        let Sendable(left) = { left };
        *left.lock().expect("nobody panicked") = Some(continuation);
    })
}

/// Resumes the continuation in the slot.
fn resume(left: &Left, value: Watched) {
    let continuation = left.lock().expect("nobody panicked").take().expect("it was left");
    assert!(continuation.resume(value).is_ok());
}

/// A task of a loop resumes another during its poll, while a third thread wakes that too. The frame is queued, not polled in
/// place, and not lost.
#[test]
fn a_frame_that_is_resumed_in_the_middle_of_a_poll_is_queued() {
    explore(2, &["two polls", "three polls"], |seen| {
        let world = World::default();
        let (left, event, run_loop) = (Left::default(), Event::default(), RunLoop::new());
        let (in_poll, polls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let waker = Arc::new(Mutex::new(None::<Waker>));
        let second = {
            let (waits, in_poll) = (waiting(&left), in_poll.clone());
            let (polls, waker) = (polls.clone(), waker.clone());
            task(async move {
                let mut waits = Box::pin(SenderFuture::new(waits));
                poll_fn(move |context| {
                    assert!(!in_poll.load(SeqCst), "polled in the middle of another poll");
                    polls.fetch_add(1, SeqCst);
                    *waker.lock().expect("nobody panicked") = Some(context.waker().clone());
                    waits.as_mut().poll(context)
                })
                .await
            })
        };
        let first = {
            let (value, other, event) = (world.census.value(2), world.census.value(4), event.clone());
            task(async move {
                event.wait().await;
                in_poll.store(true, SeqCst);
                resume(&left, value);
                // Lets the other threads run.
                thread::yield_now();
                in_poll.store(false, SeqCst);
                Ok(other)
            })
        };
        world.threads.spawn(move || {
            event.happen();
            let waker = waker.lock().expect("nobody panicked").take();
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        let (second, first) = run_loop.run_until(when_all((second, first))).unwrap();
        assert_eq!((second.read(), first.read()), (2, 4));
        drop((first, second, run_loop));
        world.end();
        seen.note(match polls.load(SeqCst) {
            2 => "two polls",
            3 => "three polls",
            other => panic!("{other} polls"),
        });
    });
}

/// Tasks of the inline scheduler, each of which resumes the next during its poll. They are nested up to a depth, and then run
/// one after the other. None is lost, on whichever thread the chain begins.
#[test]
fn frames_of_the_inline_scheduler_resume_one_another() {
    const LENGTH: usize = 6;
    explore(3, &["here", "there"], |seen| {
        let world = World::default();
        let links: Vec<_> = (0..LENGTH).map(|_| Left::default()).collect();
        let mut reports = Vec::new();
        for (index, link) in links.iter().enumerate().rev() {
            let (root, report) = world.root();
            let (waits, next) = (waiting(link), links.get(index + 1).cloned());
            let passed = world.census.value(1);
            let link = task(async move {
                let value = SenderFuture::new(waits).await?;
                if let Some(next) = next {
                    resume(&next, passed);
                }
                Ok(value)
            });
            submit(link.write_env(WithScheduler(InlineScheduler)), root);
            reports.push(report);
        }
        let (root, report) = world.root();
        let (remote, first) = (world.remote(6), links[0].clone());
        drop(links);
        let begins = task(async move {
            let value = awaited(remote).await?;
            resume(&first, value.clone());
            Ok(value)
        });
        submit(begins.write_env(WithScheduler(InlineScheduler)), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        let last = reports.pop().expect("there are some");
        assert_eq!(last.get(), Ended::Value(6));
        assert!(reports.iter().all(|report| report.get() == Ended::Value(1)));
        seen.note(if report.here() { "here" } else { "there" });
    });
}

/// A context of its own, with which a child is set aside instead of polled inside its parent.
#[derive(Clone)]
struct Nothing;

impl FromEnv for Nothing {
    fn from_env<N: Env>(_: &N) -> Self {
        Nothing
    }
}

/// A poll starts a child that is to run after the poll, and blocks until it has run. The child is part of a sender, or was set
/// aside by its parent. It is queued before the thread blocks, and so it runs.
#[test]
fn what_a_poll_has_started_runs_while_it_blocks() {
    for sender in [true, false] {
        explore(2, &["here"], move |seen| {
            let (scheduler, root) = hop::world();
            let Elsewhere { world, report, .. } = scheduler.clone();
            let (event, value) = (Event::default(), world.census.value(6));
            let inside = async move {
                let happens = event.clone();
                let child = Sendable(async move {
                    happens.happen();
                    Ok(value)
                });
                let child = Task::builder().context::<Providing<Nothing>>().try_task(child);
                let mut child: Pin<Box<dyn Future<Output = Result<Watched, Failure>>>> = if sender {
                    Box::pin(SenderFuture::new(child.then(|value| value)))
                } else {
                    Box::pin(child.into_future())
                };
                let mut blocks = true;
                poll_fn(move |context| {
                    if std::mem::replace(&mut blocks, false) {
                        assert!(child.as_mut().poll(context).is_pending());
                        let event = event.clone();
                        sync_wait(from_future(Sendable(async move { event.wait().await }))).unwrap();
                    }
                    child.as_mut().poll(context)
                })
                .await
            };
            hop::begin(task(inside), root, scheduler.clone());
            drop(scheduler);
            world.end();
            assert_eq!(report.get(), Ended::Value(6));
            seen.note(if report.here() { "here" } else { "there" });
        });
    }
}
