//! Awaits of a task: a stop, passed on or requested by a drop, against the completion, and the drop that waits for both.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use bowline::prelude::*;
use bowline::scheduler::InlineScheduler;
use bowline::task::SenderFuture;
use bowline::task_local;
use loom::sync::atomic::{AtomicBool, Ordering::AcqRel};

use crate::support::{Ended, Remote, Stoppable, Watched, costly, race};
use crate::task::{Failure, begin_and_stop, task};

task_local! {
    static BOUND: ();
}

fn awaited(sender: Stoppable) -> SenderFuture<Stoppable> {
    SenderFuture::new(sender)
}

/// Polls a future once, and drops it.
pub(crate) async fn begin_and_drop<F: Future>(future: F) {
    let mut future = Some(Box::pin(future));
    poll_fn(|context| {
        if let Some(mut future) = future.take() {
            let _ = future.as_mut().poll(context);
        }
        Poll::Ready(())
    })
    .await;
}

/// Covers the completion coming first, and the stop, which is passed on to the awaited operation.
#[test]
fn the_stop_of_the_task_races_with_the_completion() {
    race(2, &["completed", "stopped"], |world, root, report| {
        let sender = world.stoppable(6);
        begin_and_stop(&world, task(awaited(sender)), root);
        world.end();
        match report.get() {
            Ended::Value(6) => "completed",
            Ended::Stopped => "stopped",
            other => panic!("{other:?}"),
        }
    });
}

/// The await is dropped in flight while it completes and while the task's stop is passed on to it. No thread uses its memory
/// afterwards, and the task continues.
#[test]
fn the_drop_races_with_the_completion_and_the_stop_of_the_task() {
    race(1, &["went on"], |world, root, report| {
        let (sender, value) = (world.stoppable(6), world.census.value(7));
        let inside = async move {
            begin_and_drop(awaited(sender)).await;
            Ok(value)
        };
        begin_and_stop(&world, task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        "went on"
    });
}

/// The await has no completion of its own: it is stopped once, by the drop or by the task.
#[test]
fn the_drop_races_with_the_stop_of_the_task() {
    race(2, &["went on"], |world, root, report| {
        let value = world.census.value(7);
        let inside = async move {
            begin_and_drop(SenderFuture::new(never::<Watched, Failure>())).await;
            Ok(value)
        };
        begin_and_stop(&world, task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        "went on"
    });
}

/// A suspended child is dropped in a later poll, on either thread, while its own await completes.
#[test]
fn the_drop_of_a_child_races_with_what_it_awaits() {
    race(2, &["went on"], |world, root, report| {
        let (leaf, other, value) = (world.stoppable(6), world.remote(5), world.census.value(7));
        let inside = async move {
            let mut child = Some(Box::pin(task(awaited(leaf)).into_future()));
            let mut other = Box::pin(SenderFuture::new(other));
            poll_fn(move |context| {
                if let Some(polled) = &mut child
                    && polled.as_mut().poll(context).is_ready()
                {
                    child = None;
                }
                let Poll::Ready(other) = other.as_mut().poll(context) else {
                    return Poll::Pending;
                };
                drop(other);
                child = None;
                Poll::Ready(())
            })
            .await;
            Ok(value)
        };
        submit(task(inside).write_env(WithScheduler(InlineScheduler)), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        "went on"
    });
}

/// Starts a future in one poll, and passes it to `take` in the next.
pub(crate) async fn begin_and_give<F: Future>(future: F, take: impl FnOnce(Pin<Box<F>>)) {
    let mut future = Some(Box::pin(future));
    let mut take = Some(take);
    let mut begun = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut begun, true) {
            take.take().expect("once")(future.take().expect("once"));
            return Poll::Ready(());
        }
        let _ = future.as_mut().expect("not yet").as_mut().poll(context);
        // A child that was awaited begins after the poll.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Starts a future and passes it to `take`, in one poll.
pub(crate) async fn begin_and_give_at_once<F: Future>(future: F, take: impl FnOnce(Pin<Box<F>>)) {
    let mut parts = Some((Box::pin(future), take));
    poll_fn(move |context| {
        if let Some((mut future, take)) = parts.take() {
            let _ = future.as_mut().poll(context);
            take(future);
        }
        Poll::Ready(())
    })
    .await;
}

/// An await in flight is dropped by another thread, which does not poll the task, while it completes. The last of them
/// completes the task, whose future has already ended.
#[test]
fn the_drop_of_an_await_elsewhere_races_with_its_completion() {
    race(2, &["here", "there"], |world, root, report| {
        let (sender, value, threads) = (world.stoppable(6), world.census.value(7), world.threads.clone());
        let inside = async move {
            begin_and_give(awaited(sender), move |sender| threads.spawn(move || drop(sender))).await;
            Ok(value)
        };
        submit(task(inside).write_env(WithScheduler(InlineScheduler)), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if report.here() { "here" } else { "there" }
    });
}

/// A child in flight is dropped by another thread, which stops it and awaits it there, while it completes.
#[test]
fn the_drop_of_a_child_elsewhere_races_with_its_completion() {
    race(costly(2), &["here", "there"], |world, root, report| {
        let (remote, value, threads) = (world.remote(6), world.census.value(7), world.threads.clone());
        let inside = async move {
            let child = task(SenderFuture::new(remote)).into_future();
            begin_and_give(child, move |child| threads.spawn(move || drop(child))).await;
            Ok(value)
        };
        submit(task(inside).write_env(WithScheduler(InlineScheduler)), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if report.here() { "here" } else { "there" }
    });
}

/// A waker of another executor inside a task, which notes its wake and wakes the task.
struct Announcing {
    woken: AtomicBool,
    task: Waker,
}

impl Wake for Announcing {
    fn wake(self: Arc<Self>) {
        self.woken.swap(true, AcqRel);
        self.task.wake_by_ref();
    }
}

/// Polls a future as `FuturesUnordered` does: once, and then when its own waker was woken.
async fn announced<F: Future>(mut future: Pin<Box<F>>) -> F::Output {
    let mut own = None;
    poll_fn(move |context| {
        let own: &mut Arc<Announcing> = own.get_or_insert_with(|| {
            Arc::new(Announcing {
                woken: AtomicBool::new(true),
                task: context.waker().clone(),
            })
        });
        if !own.woken.swap(false, AcqRel) {
            return Poll::Pending;
        }
        let waker = Waker::from(own.clone());
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

/// Begins a future under the waker of the task, and polls it under another one.
async fn moved<F: Future>(future: F) -> F::Output {
    let mut future = Box::pin(future);
    match poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await {
        Poll::Ready(output) => output,
        Poll::Pending => announced(future).await,
    }
}

/// The waker of an await that moved is registered while the await ends. It is woken, or the await is found ended.
#[test]
fn the_move_of_an_await_races_with_its_completion() {
    race(3, &["here", "there"], |world, root, report| {
        let inside = moved(awaited(world.stoppable(6)));
        submit(task(inside).write_env(WithScheduler(InlineScheduler)), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        if report.here() { "here" } else { "there" }
    });
}

/// As for an await of a sender, where the end of a child wakes its parent.
#[test]
fn the_move_of_a_child_races_with_its_completion() {
    race(2, &["here", "there"], |world, root, report| {
        let inside = moved(task(SenderFuture::new(world.remote(6))).into_future());
        submit(task(inside).write_env(WithScheduler(InlineScheduler)), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        if report.here() { "here" } else { "there" }
    });
}

/// Two awaits move. The end of one finds the flag that the other has set.
#[test]
fn the_moves_of_two_awaits_race_with_their_completions() {
    race(1, &["over"], |world, root, report| {
        let [first, second] = [6, 7].map(|number| moved(awaited(world.stoppable(number))));
        let inside = async move {
            let (mut first, mut second) = (Box::pin(first), Box::pin(second));
            let mut results = (None, None);
            poll_fn(move |context| {
                for (future, result) in [(&mut first, &mut results.0), (&mut second, &mut results.1)] {
                    if result.is_none()
                        && let Poll::Ready(output) = future.as_mut().poll(context)
                    {
                        *result = Some(output);
                    }
                }
                match &mut results {
                    (first, Some(_)) => first.take().map_or(Poll::Pending, Poll::Ready),
                    _ => Poll::Pending,
                }
            })
            .await
        };
        submit(task(inside).write_env(WithScheduler(InlineScheduler)), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        "over"
    });
}

/// A task that was stopped awaits under another waker. It is polled once more, by a wake of its own, while the await ends: that poll asks
/// nothing of the await. The value is not lost, although the task waits for nothing else that holds it. With `in_scope`, neither is
/// there anything else in a scope around the await.
fn the_end_races_with_a_poll_of_a_stopped_task<F>(
    in_scope: bool,
    elsewhere: impl Fn(SenderFuture<Remote<Failure>>) -> F + Copy + Send + Sync + 'static,
) where
    F: Future<Output = Result<Watched, Failure>> + Send + 'static,
{
    race(2, &["here", "there"], move |world, root, report| {
        let (remote, threads) = (world.remote(6), world.threads.clone());
        let inside = async move {
            let mut await_elsewhere = Box::pin(elsewhere(SenderFuture::new(remote)));
            let mut begun = false;
            poll_fn(move |context| {
                let polled = await_elsewhere.as_mut().poll(context);
                if !std::mem::replace(&mut begun, true) {
                    let waker = context.waker().clone();
                    threads.spawn(move || waker.wake());
                }
                polled
            })
            .await
        };
        let inside = async move {
            match in_scope {
                true => BOUND.scope((), inside).await,
                false => inside.await,
            }
        };
        let source = StopSource::new();
        source.request_stop();
        let work = task(inside)
            .write_env(WithScheduler(InlineScheduler))
            .write_env(WithStopToken(source.token()));
        submit(work, root);
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        if report.here() { "here" } else { "there" }
    });
}

#[test]
fn the_end_of_an_await_elsewhere_races_with_a_poll_of_a_stopped_task() {
    the_end_races_with_a_poll_of_a_stopped_task(false, |awaited| announced(Box::pin(awaited)));
}

#[test]
fn the_end_of_an_await_elsewhere_races_with_a_poll_of_a_stopped_scope() {
    the_end_races_with_a_poll_of_a_stopped_task(true, |awaited| announced(Box::pin(awaited)));
}

#[test]
fn the_end_of_an_await_that_moved_races_with_a_poll_of_a_stopped_task() {
    the_end_races_with_a_poll_of_a_stopped_task(false, moved);
}

#[test]
fn the_end_of_an_await_that_moved_races_with_a_poll_of_a_stopped_scope() {
    the_end_races_with_a_poll_of_a_stopped_task(true, moved);
}

#[test]
fn the_end_of_a_child_that_moved_races_with_a_poll_of_a_stopped_scope() {
    the_end_races_with_a_poll_of_a_stopped_task(true, |awaited| moved(task(awaited).into_future()));
}

/// The future is dropped after it has moved, while its await ends. The task continues.
#[test]
fn the_drop_of_an_await_that_moved_races_with_its_completion() {
    race(1, &["went on"], |world, root, report| {
        let (sender, value) = (world.stoppable(6), world.census.value(7));
        let inside = async move {
            begin_and_drop(moved(awaited(sender))).await;
            Ok(value)
        };
        submit(task(inside).write_env(WithScheduler(InlineScheduler)), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        "went on"
    });
}
