//! The current task: questions against the end of what they are about.

use std::sync::{Arc, Mutex};

use bowline::prelude::*;
use bowline::scheduler::InlineScheduler;
use bowline::stop::StopSource;
use bowline::task::{self, Priority, TaskRef, TaskState};

use crate::support::{Ended, World, explore};
use crate::task::{awaited, task};

/// Where a task leaves word of itself. The model's threads are one to the system, so this orders nothing.
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

/// A task ends on another thread while it is asked about here. It tells what there is, or what there was; and it was cancelled
/// before, or in the midst of that.
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
            // It went on between the two questions.
            (false, true) => "finished",
        });
        world.end();
        assert!(asked.is_finished() && asked.is_cancelled());
        assert!(matches!(report.get(), Ended::Value(6)));
    });
}

/// A child asks about itself for the first time, and so about its parent, while that is asked too; and ends while the tree of
/// the parent is made.
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
        let children: Vec<_> = tree.root().children().collect();
        if let [child] = &children[..] {
            assert_eq!(child.task().parent(), Some(parent.clone()));
            assert_ne!(tree.root().state(), TaskState::Finished);
        }
        seen.note(if children.is_empty() { "no child" } else { "a child" });
        world.end();
        assert!(parent.is_finished());
        assert_eq!(parent.tree().root().children().count(), 0);
    });
}

/// Two tasks that run on two threads as parts of one ask at the same time, each for the first time.
#[test]
fn two_parts_of_a_task_ask_at_once() {
    use std::future::{Future, IntoFuture, poll_fn};
    use std::task::Poll;

    explore(2, &["done"], |seen| {
        let world = World::default();
        let (root, report) = world.root();
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
        seen.note("done");
    });
}
