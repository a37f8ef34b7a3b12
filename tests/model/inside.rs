//! Scopes inside a task: the last user of one, on another thread, against leaving it and against the end of the frame.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use bowline::prelude::*;
use bowline::scheduler::InlineScheduler;
use bowline::stop::StopSource;
use bowline::task::{self, SenderFuture, Task, TaskGroup, group};
use bowline::task_local;
use loom::thread;

use crate::awaits::begin_and_give;
use crate::support::{Ended, Root, Watched, World, costly, race};
use crate::task::{Failure, Sendable, awaited, begin, task};

/// Starts a task on this thread, with a stop that another thread requests.
fn begin_and_stop(world: &World, task: Task<Watched, Failure>, root: Root) {
    let source = StopSource::new();
    let token = source.token();
    world.threads.spawn(move || {
        source.request_stop();
    });
    submit(
        task.write_env(WithScheduler(InlineScheduler))
            .write_env(WithStopToken(token)),
        root,
    );
}

/// A bound value that records the thread that dropped it.
struct Bound {
    value: Watched,
    by: Arc<Mutex<Option<thread::ThreadId>>>,
}

// SAFETY: the threads of a model share one system thread, and `loom` watches the value.
unsafe impl Send for Bound {}
// SAFETY: as for `Send`.
unsafe impl Sync for Bound {}

impl Drop for Bound {
    fn drop(&mut self) {
        self.value.touch();
        *self.by.lock().expect("nobody panicked") = Some(thread::current().id());
    }
}

task_local! {
    static BOUND: Bound;
}

/// The thread that dropped a bound value.
#[derive(Clone, Default)]
struct Dropped(Arc<Mutex<Option<thread::ThreadId>>>);

impl Dropped {
    fn bound(&self, world: &World) -> Bound {
        Bound {
            value: world.census.value(1),
            by: self.0.clone(),
        }
    }

    /// Returns whether this thread dropped it.
    fn here(&self) -> bool {
        let by = self.0.lock().expect("nobody panicked").expect("it was dropped");
        by == thread::current().id()
    }
}

/// Returns a future that is never ready.
fn forever() -> impl Future<Output = ()> + Send {
    std::future::pending()
}

/// An operation begun in a scope ends on another thread while the scope is left and the task ends. The bound value is dropped
/// with the last user.
#[test]
fn the_last_user_of_a_scope_races_with_leaving_it() {
    race(3, &["here", "there"], |world, root, report| {
        let (remote, value, dropped) = (world.remote(6), world.census.value(7), Dropped::default());
        let bound = dropped.bound(&world);
        let inside = async move {
            // Dropped in flight, so the frame owns it.
            BOUND.scope(bound, begin_and_give(awaited(remote), drop)).await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if dropped.here() { "here" } else { "there" }
    });
}

/// An operation moved out of the scope, and awaited outside, ends on another thread while the scope is left.
#[test]
fn what_is_moved_out_of_a_scope_races_with_leaving_it() {
    race(3, &["here", "there"], |world, root, report| {
        let (remote, dropped) = (world.remote(6), Dropped::default());
        let bound = dropped.bound(&world);
        let inside = async move {
            let mut sender = awaited(remote);
            let begun = BOUND
                .scope(
                    bound,
                    poll_fn(|context| Poll::Ready(Pin::new(&mut sender).poll(context))),
                )
                .await;
            match begun {
                Poll::Ready(result) => result,
                Poll::Pending => sender.await,
            }
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        if dropped.here() { "here" } else { "there" }
    });
}

/// The future of a scope is dropped on another thread while the frame ends.
#[test]
fn the_drop_of_a_scope_elsewhere_races_with_the_end_of_the_frame() {
    race(3, &["here", "there"], |world, root, report| {
        let (value, threads, dropped) = (world.census.value(7), world.threads.clone(), Dropped::default());
        let bound = dropped.bound(&world);
        let inside = async move {
            let scope = BOUND.scope(bound, forever());
            begin_and_give(scope, move |scope| threads.spawn(move || drop(scope))).await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if dropped.here() { "here" } else { "there" }
    });
}

/// The future of a scope is dropped on another thread while an operation inside completes on a third.
#[test]
fn the_drop_of_a_scope_elsewhere_races_with_what_is_in_it_and_the_end_of_the_frame() {
    race(costly(2), &["here", "there"], |world, root, report| {
        let (remote, value, threads) = (world.remote(6), world.census.value(7), world.threads.clone());
        let dropped = Dropped::default();
        let bound = dropped.bound(&world);
        let inside = async move {
            let scope = BOUND.scope(bound, awaited(remote));
            begin_and_give(scope, move |scope| threads.spawn(move || drop(scope))).await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if dropped.here() { "here" } else { "there" }
    });
}

/// A child frame is a user of the scope in which it is awaited, and of its parent's. It ends on another thread while the scope
/// is left.
#[test]
fn a_child_frame_in_a_scope_races_with_leaving_it() {
    race(2, &["here", "there"], |world, root, report| {
        let (remote, value, dropped) = (world.remote(6), world.census.value(7), Dropped::default());
        let bound = dropped.bound(&world);
        let child = task(async move {
            let result = awaited(remote).await;
            assert_eq!(BOUND.with(|bound| bound.value.read()), Some(1));
            result
        });
        let inside = async move {
            BOUND.scope(bound, begin_and_give(child.into_future(), drop)).await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if dropped.here() { "here" } else { "there" }
    });
}

/// A group in a scope ends while the stop of the task is passed on to it. The scope and its frame stay alive until that is
/// over.
#[test]
fn a_stop_that_is_passed_on_to_a_group_races_with_the_end_of_its_scope_and_of_the_frame() {
    race(2, &["here", "there"], |world, root, report| {
        let (value, dropped) = (world.census.value(7), Dropped::default());
        let bound = dropped.bound(&world);
        let inside = async move {
            let body = group(async |_: TaskGroup<()>| ());
            BOUND.scope(bound, body).await;
            Ok(value)
        };
        begin_and_stop(&world, task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if dropped.here() { "here" } else { "there" }
    });
}

/// A single child, awaited by its parent, ends while the stop of the task is passed on to it.
#[test]
fn a_stop_that_is_passed_on_to_a_child_races_with_the_end_of_its_scope_and_of_the_frame() {
    race(2, &["here", "there"], |world, root, report| {
        let (value, dropped) = (world.census.value(7), Dropped::default());
        let bound = dropped.bound(&world);
        let inside = async move {
            BOUND
                .scope(bound, async {
                    drop(task::let_async(Sendable(async {})));
                })
                .await;
            Ok(value)
        };
        begin_and_stop(&world, task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if dropped.here() { "here" } else { "there" }
    });
}

/// An await is dropped in flight inside the scope while the stop of the task is passed on to it.
#[test]
fn a_stop_that_is_passed_on_to_an_await_races_with_the_end_of_its_scope_and_of_the_frame() {
    race(2, &["here", "there"], |world, root, report| {
        let (value, dropped) = (world.census.value(7), Dropped::default());
        let bound = dropped.bound(&world);
        let inside = async move {
            let forever = SenderFuture::new(never::<Watched, Failure>());
            BOUND.scope(bound, begin_and_give(forever, drop)).await;
            Ok(value)
        };
        begin_and_stop(&world, task(inside), root);
        world.end();
        // An await that was stopped before it began stops the task.
        assert!(matches!(report.get(), Ended::Value(7) | Ended::Stopped));
        if dropped.here() { "here" } else { "there" }
    });
}

/// A child's scope, inside a scope of its parent, outlives both: its future is dropped on another thread while they end.
#[test]
fn the_drop_of_a_scope_in_that_of_the_parent_races_with_the_ends_of_both_frames() {
    race(2, &["here", "there"], |world, root, report| {
        let (value, threads, dropped) = (world.census.value(7), world.threads.clone(), Dropped::default());
        let (inner, outer) = (world.census.value(2), dropped.bound(&world));
        let bound = Bound {
            value: inner,
            by: Arc::default(),
        };
        let child = task(async move {
            let scope = BOUND.scope(bound, forever());
            begin_and_give(scope, move |scope| threads.spawn(move || drop(scope))).await;
            Ok(value)
        });
        begin(task(BOUND.scope(outer, child.into_future())), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if dropped.here() { "here" } else { "there" }
    });
}
