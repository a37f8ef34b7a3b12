//! Tethers of a frame: the end of a single child and of a group, against the drop of their handles and the end of the frame.

use std::future::{Future, IntoFuture as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::Poll;

use bowline::prelude::*;
use bowline::scheduler::InlineScheduler;
use bowline::stop::StopSource;
use bowline::task::{self, AsyncLet, Task, TaskFuture, TaskGroup, discarding_group, group, supervised_group};

use crate::awaits::{begin_and_drop, begin_and_give, begin_and_give_at_once};
use crate::support::{Ended, Root, Watched, World, costly, explore, race};
use crate::task::{Event, Failure, Sendable, awaited, begin, task};

/// Starts a task, and asserts that its child is destroyed when it is done.
fn begin_parent(parent: Task<Watched, Failure>, gone: Arc<AtomicBool>, root: Root) {
    begin(
        task(async move {
            let value = parent.await;
            assert!(gone.load(SeqCst), "the parent was done before its child");
            value
        }),
        root,
    );
}

/// A value that sets a flag when dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        assert!(!self.0.swap(true, SeqCst), "dropped twice");
    }
}

/// Returns a child that ends when the sender completes, and a flag that is set when it is destroyed.
fn child(world: &World) -> (Sendable<impl Future<Output = Watched> + use<>>, Arc<AtomicBool>) {
    let gone = Arc::new(AtomicBool::new(false));
    let (remote, flag) = (world.remote(6), Flag(gone.clone()));
    let future = Sendable(async move {
        let _flag = flag;
        awaited(remote).await.expect("a value")
    });
    (future, gone)
}

/// Starts a child in a frame, passes it to `take`, and asserts that it is destroyed when the frame is done.
fn with_child(world: &World, root: Root, take: impl FnOnce(AsyncLet<Watched>) + 'static) {
    let (future, gone) = child(world);
    let value = world.census.value(7);
    let parent = task(async move {
        take(task::let_async(future));
        Ok(value)
    });
    begin_parent(parent, gone, root);
}

/// The claim is dropped in the parent's poll, and the parent ends, while the child ends on another thread.
#[test]
fn the_drop_of_a_claim_races_with_the_end_of_the_child() {
    race(3, &["the child first", "the parent first"], |world, root, report| {
        with_child(&world, root, drop);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if report.here() {
            "the child first"
        } else {
            "the parent first"
        }
    });
}

/// The claim is dropped while its await is in flight, and the child ends on another thread: one of the two drops the result.
#[test]
fn the_drop_of_a_claim_that_is_awaited_races_with_the_end_of_the_child() {
    race(2, &["the child first", "the parent first"], |world, root, report| {
        let (future, gone) = child(&world);
        let value = world.census.value(7);
        let parent = task(async move {
            begin_and_drop(task::let_async(future)).await;
            Ok(value)
        });
        begin_parent(parent, gone, root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if report.here() {
            "the child first"
        } else {
            "the parent first"
        }
    });
}

/// The claim is dropped on another thread, while the child ends on a second one and the parent on a third.
#[test]
fn the_drop_of_a_claim_elsewhere_races_with_the_ends_of_the_child_and_the_parent() {
    race(2, &["here", "there"], |world, root, report| {
        let threads = world.threads.clone();
        with_child(&world, root, move |claim| threads.spawn(move || drop(claim)));
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if report.here() { "here" } else { "there" }
    });
}

/// The claim is forgotten, so the end of the parent stops the child and waits for it, while the child ends.
#[test]
fn the_end_of_the_parent_races_with_the_end_of_a_child_that_was_forgotten() {
    race(3, &["here", "there"], |world, root, report| {
        // The forgotten claim owns the result, so the result is not a watched one.
        let (remote, value, gone) = (world.remote(6), world.census.value(7), Arc::new(AtomicBool::new(false)));
        let flag = Flag(gone.clone());
        let parent = task(async move {
            std::mem::forget(task::let_async(Sendable(async move {
                let _flag = flag;
                drop(awaited(remote).await);
            })));
            Ok(value)
        });
        begin_parent(parent, gone, root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if report.here() { "here" } else { "there" }
    });
}

/// The claim outlives the parent, which ends while the child does. In either order the result is dropped once.
#[test]
fn a_claim_that_outlives_the_parent_has_the_result_or_nothing() {
    explore(3, &["a result", "nothing"], |seen| {
        let world = World::default();
        let (root, report) = world.root();
        let slot = Arc::new(std::sync::Mutex::new(None));
        let kept = slot.clone();
        with_child(&world, root, move |claim| {
            *kept.lock().expect("nobody panicked") = Some(claim);
        });
        world.threads.join();
        assert_eq!(report.get(), Ended::Value(7));
        let claim = slot.lock().expect("nobody panicked").take().expect("it was kept");
        seen.note(if claim.is_finished() { "a result" } else { "nothing" });
        drop(claim);
        world.end();
    });
}

/// Returns a child task that ends when the sender completes, and a flag that is set when it is destroyed.
fn child_task(world: &World) -> (Task<(), Failure>, Arc<AtomicBool>) {
    let (future, gone) = child(world);
    let task = Task::try_new(Sendable(async move {
        drop(future.await);
        Ok(())
    }));
    (task, gone)
}

/// Begins a child task in a frame, passes its future to `take`, and asserts that it is destroyed when the frame is done.
fn with_child_task(world: &World, root: Root, take: impl FnOnce(Pin<Box<TaskFuture<(), Failure>>>) + 'static) {
    let (child, gone) = child_task(world);
    let value = world.census.value(7);
    let parent = task(async move {
        begin_and_give_at_once(child.into_future(), take).await;
        Ok(value)
    });
    begin_parent(parent, gone, root);
}

/// The future of a child task is forgotten, so the end of the parent stops the child, while that ends.
#[test]
fn the_end_of_the_parent_races_with_the_end_of_a_child_task_that_was_forgotten() {
    race(3, &["here", "there"], |world, root, report| {
        with_child_task(&world, root, std::mem::forget);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if report.here() { "here" } else { "there" }
    });
}

/// The future of a child task is dropped on another thread, while the child ends on a second one and the parent on a third.
#[test]
fn the_drop_of_a_child_task_elsewhere_races_with_the_ends_of_the_child_and_the_parent() {
    race(costly(2), &["here", "there"], |world, root, report| {
        let threads = world.threads.clone();
        with_child_task(&world, root, move |child| threads.spawn(move || drop(child)));
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if report.here() { "here" } else { "there" }
    });
}

/// The future of a child task outlives the parent, which ends while the child does.
#[test]
fn a_child_task_whose_future_outlives_the_parent_is_done() {
    race(3, &["here", "there"], |world, root, report| {
        let slot = Arc::new(std::sync::Mutex::new(None));
        let kept = slot.clone();
        with_child_task(&world, root, move |child| {
            *kept.lock().expect("no thread panicked") = Some(child);
        });
        world.threads.join();
        assert_eq!(report.get(), Ended::Value(7));
        drop(slot.lock().expect("no thread panicked").take());
        world.end();
        if report.here() { "here" } else { "there" }
    });
}

/// A child is awaited while it ends and while the task is stopped, which also stops the child: its value is returned all the
/// same.
#[test]
fn the_await_of_a_child_races_with_its_end_and_the_stop() {
    race(1, &["as it was", "cancelled"], |world, root, report| {
        let (remote, source, cancelled) = (world.remote(6), StopSource::new(), Arc::new(AtomicBool::new(false)));
        let noted = cancelled.clone();
        let inside = async move {
            let child = task::let_async(Sendable(async move { awaited(remote).await.expect("a value") }));
            let value = child.await;
            noted.store(task::is_cancelled(), SeqCst);
            Ok(value)
        };
        let token = source.token();
        world.threads.spawn(move || {
            source.request_stop();
        });
        submit(
            task(inside)
                .write_env(WithScheduler(InlineScheduler))
                .write_env(WithStopToken(token)),
            root,
        );
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        if cancelled.load(SeqCst) {
            "cancelled"
        } else {
            "as it was"
        }
    });
}

/// Panics without calling the panic hook.
fn panics(payload: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(payload))
}

/// Returns a child that panics when the sender completes.
fn panicking(world: &World) -> Sendable<impl Future<Output = ()> + use<>> {
    let remote = world.remote(6);
    Sendable(async move {
        drop(awaited(remote).await);
        panics("of the child");
    })
}

/// Counts the panics of a future, and lets the task continue.
async fn caught<F: Future>(future: F, panics: Arc<AtomicUsize>) -> Option<F::Output> {
    let mut future = Box::pin(future);
    poll_fn(move |context| {
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| future.as_mut().poll(context)));
        match polled {
            Ok(polled) => polled.map(Some),
            Err(payload) => {
                assert_eq!(payload.downcast_ref::<&str>(), Some(&"of the child"));
                panics.fetch_add(1, SeqCst);
                Poll::Ready(None)
            }
        }
    })
    .await
}

/// A child panics while the body waits for an event that never comes. The body is woken and ended by the panic, which is
/// delivered once. Covers results that are kept, and results that are discarded.
#[test]
fn the_panic_of_a_child_races_with_the_poll_of_the_body() {
    for discards in [false, true] {
        race(3, &["here", "there"], move |world, root, report| {
            let (first, value, delivered) = (panicking(&world), world.census.value(7), Arc::default());
            let counted = Arc::<AtomicUsize>::clone(&delivered);
            let inside = async move {
                let body = async move |group: TaskGroup<()>| {
                    group.spawn(first);
                    std::future::pending::<()>().await;
                };
                let ended = if discards {
                    caught(discarding_group(body), counted).await
                } else {
                    caught(group(body), counted).await
                };
                assert!(ended.is_none());
                Ok(value)
            };
            begin(task(inside), root);
            world.end();
            assert_eq!((report.get(), delivered.load(SeqCst)), (Ended::Value(7), 1));
            if report.here() { "here" } else { "there" }
        });
    }
}

/// A child panics while the body asks for results, and while it ends: the panic is delivered once, and the body's value is
/// dropped.
#[test]
fn the_panic_of_a_child_races_with_the_end_of_the_body() {
    race(2, &["here", "there"], |world, root, report| {
        let (first, other, value) = (panicking(&world), world.remote(5), world.census.value(7));
        let delivered = Arc::<AtomicUsize>::default();
        let counted = delivered.clone();
        let inside = async move {
            let body = group(async move |group: TaskGroup<()>| {
                group.spawn(first);
                drop(awaited(other).await);
            });
            assert!(caught(body, counted).await.is_none());
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!((report.get(), delivered.load(SeqCst)), (Ended::Value(7), 1));
        if report.here() { "here" } else { "there" }
    });
}

/// Another task takes the panic of a child out of the group, or is too late. The panic is delivered once.
#[test]
fn the_panic_of_a_child_goes_to_one_of_two() {
    race(2, &["the body", "the other"], |world, root, report| {
        let (other, asked) = world.root();
        let (first, value, event) = (panicking(&world), world.census.value(7), Event::default());
        let threads = world.threads.clone();
        let (delivered, taken) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (counted, takes) = (delivered.clone(), taken.clone());
        let inside = async move {
            let body = group(async move |group: TaskGroup<()>| {
                group.spawn(first);
                let (asks, ends) = (group.clone(), event.clone());
                let asking = task(async move {
                    caught(asks.next(), takes).await;
                    ends.happen();
                    Err("asked")
                });
                threads.spawn(move || begin(asking, other));
                event.wait().await;
            });
            caught(body, counted).await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!((report.get(), asked.get()), (Ended::Value(7), Ended::Error("asked")));
        match (delivered.load(SeqCst), taken.load(SeqCst)) {
            (1, 0) => "the body",
            (0, 1) => "the other",
            other => panic!("{other:?}"),
        }
    });
}

/// Another task polls `next` once and drops it. A result that it was assigned returns to the group, and a panic ends the body,
/// which waits for an event that never comes.
#[test]
fn the_panic_of_a_child_that_was_given_to_an_await_which_is_dropped_goes_to_the_body() {
    race(2, &["the body", "the other"], |world, root, report| {
        let (other, asked) = world.root();
        let (first, value, event) = (panicking(&world), world.census.value(7), Event::default());
        let threads = world.threads.clone();
        let (delivered, taken) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (counted, takes) = (delivered.clone(), taken.clone());
        let inside = async move {
            let body = group(async move |group: TaskGroup<()>| {
                group.spawn(first);
                let (asks, ends) = (group.clone(), event.clone());
                let asking = task(async move {
                    if caught(begin_and_drop(asks.next()), takes).await.is_none() {
                        ends.happen();
                    }
                    Err("asked")
                });
                threads.spawn(move || begin(asking, other));
                event.wait().await;
            });
            caught(body, counted).await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!((report.get(), asked.get()), (Ended::Value(7), Ended::Error("asked")));
        match (delivered.load(SeqCst), taken.load(SeqCst)) {
            (1, 0) => "the body",
            (0, 1) => "the other",
            other => panic!("{other:?}"),
        }
    });
}

/// In a supervised group the body continues.
#[test]
fn the_panic_of_a_supervised_child_races_with_the_end_of_the_body() {
    race(2, &["went on"], |world, root, report| {
        let (first, other) = (panicking(&world), world.remote(5));
        let inside = async move {
            supervised_group(async move |group: TaskGroup<()>| {
                group.spawn(first);
                awaited(other).await
            })
            .await
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(5));
        "went on"
    });
}

/// The future of a group is dropped on another thread, while its child ends on a second one and the frame on a third.
#[test]
fn the_drop_of_a_group_elsewhere_races_with_the_ends_of_its_child_and_of_the_frame() {
    race(2, &["here", "there"], |world, root, report| {
        let (future, gone) = child(&world);
        let (value, threads) = (world.census.value(7), world.threads.clone());
        let parent = task(async move {
            let body = group(async move |group: TaskGroup<Watched>| {
                group.spawn(future);
                std::future::pending::<()>().await;
            });
            begin_and_give(Sendable(body), move |body| threads.spawn(move || drop(body))).await;
            Ok(value)
        });
        begin(
            task(async move {
                let value = parent.await;
                assert!(gone.load(SeqCst), "the frame was done before the child");
                value
            }),
            root,
        );
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if report.here() { "here" } else { "there" }
    });
}
