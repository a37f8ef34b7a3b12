//! Groups: the end of a child against its waiters, its stop, and a group that is dropped.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use bowline::Completion;
use bowline::model::with_biased_groups;
use bowline::prelude::*;
use bowline::scheduler::InlineScheduler;
use bowline::stop::StopSource;
use bowline::task::{Reason, SenderFuture, SpawnOptions, TaskGroup, discarding_group, group, try_group};
use loom::thread;

use crate::support::{self, Ended, Remote, Report, Root, Seen, Stoppable, Watched, World, explore};
use crate::task::{Failure, Sendable, awaited, begin, task};

/// Explores a race twice: with groups whose lock is biased, and with others. Each must see all outcomes.
fn race(
    interruptions: usize,
    expected: &[&'static str],
    model: impl Fn(World, Root, Report) -> &'static str + Clone + Send + Sync + 'static,
) {
    for biased in [true, false] {
        with_biased_groups(biased, || support::race(interruptions, expected, model.clone()));
    }
}

/// Returns a child that ends when the sender completes.
fn child(remote: Remote<Failure>) -> Sendable<impl Future<Output = Watched>> {
    Sendable(async move { awaited(remote).await.expect("a value") })
}

/// Returns a child that ends when the sender completes, or with the stop.
fn stoppable(sender: Stoppable) -> Sendable<impl Future<Output = Watched>> {
    Sendable(async move { SenderFuture::new(sender).await.expect("a value") })
}

/// Polls a future once, and drops it unless it is ready.
async fn poll_and_drop<F: Future>(future: F) -> Option<F::Output> {
    let mut future = Some(Box::pin(future));
    poll_fn(move |context| {
        let mut future = future.take().expect("once");
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        })
    })
    .await
}

/// A value that calls a function when dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A value that sets a flag when dropped.
struct Flags(Arc<AtomicBool>);

impl Flags {
    fn new() -> (Self, Arc<AtomicBool>) {
        let flag = Arc::new(AtomicBool::new(false));
        (Flags(flag.clone()), flag)
    }
}

impl Drop for Flags {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// The child ends before the body asks, while it asks, and while it waits.
#[test]
fn the_end_of_a_child_races_with_next() {
    race(2, &["here", "there"], |world, root, report| {
        let remote = world.remote(6);
        let body = group(async move |group| {
            group.spawn(child(remote));
            group.next().await.expect("one")
        });
        begin(task(async move { Ok(body.await) }), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        if report.here() { "here" } else { "there" }
    });
}

/// Two children end in either order, and each is taken once.
#[test]
fn the_ends_of_two_children_race_with_next() {
    race(1, &["in order", "the other way round"], |world, root, report| {
        let (first, second, sum) = (world.remote(1), world.remote(2), world.census.value(7));
        let order = Arc::new(AtomicUsize::new(0));
        let noted = order.clone();
        let body = group(async move |group| {
            group.spawn(child(first));
            group.spawn(child(second));
            let (a, b) = (group.next().await.expect("one"), group.next().await.expect("two"));
            assert_eq!(a.read() + b.read(), 3);
            noted.store(a.read() as usize, SeqCst);
            assert!(group.next().await.is_none());
            sum
        });
        begin(task(async move { Ok(body.await) }), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        match order.load(SeqCst) {
            1 => "in order",
            _ => "the other way round",
        }
    });
}

/// The child ends in the inbox that the body waits at, while another thread drains it.
#[test]
fn the_end_of_a_child_races_with_a_count() {
    race(2, &["before", "after"], |world, root, report| {
        let (remote, threads) = (world.remote(6), world.threads.clone());
        let count = Arc::new(AtomicUsize::new(2));
        let noted = count.clone();
        let body = group(async move |group: TaskGroup<Watched>| {
            group.spawn(child(remote));
            let counted = group.clone();
            threads.spawn(move || noted.store(counted.len(), SeqCst));
            group.next().await.expect("one")
        });
        begin(task(async move { Ok(body.await) }), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        match count.load(SeqCst) {
            0 => "after",
            1 => "before",
            other => panic!("{other}"),
        }
    });
}

/// A child that fails ends under the lock and closes the inbox, while another ends there and the body waits.
#[test]
fn the_end_of_a_child_races_with_the_failure_of_another() {
    race(1, &["the failure first", "the value first"], |world, root, report| {
        let (good, bad) = (world.remote(6), world.remote_of(Completion::Error("failed")));
        let failed_first = Arc::new(AtomicBool::new(false));
        let noted = failed_first.clone();
        let body = try_group(async move |group| {
            group.spawn(Sendable(awaited(good)));
            group.spawn(Sendable(awaited(bad)));
            let (first, second) = (group.next().await.expect("one"), group.next().await.expect("two"));
            assert!(group.next().await.is_none());
            noted.store(first.is_err(), SeqCst);
            first.or(second)
        });
        begin(task(body), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        if failed_first.load(SeqCst) {
            "the failure first"
        } else {
            "the value first"
        }
    });
}

/// The child ends while the waiter is an operation in another frame than the group's.
#[test]
fn the_end_of_a_child_races_with_the_next_of_another() {
    race(2, &["here", "there"], |world, root, report| {
        let remote = world.remote(6);
        let body = group(async move |group: TaskGroup<Watched>| {
            group.spawn(child(remote));
            let inner = group.clone();
            group.spawn(Sendable(async move { inner.next().await.expect("one") }));
            group.wait_for_all().await;
            group.next().await.expect("what the other took")
        });
        begin(task(async move { Ok(body.await) }), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        if report.here() { "here" } else { "there" }
    });
}

/// The last of child and body ends the group, and finds the value of the other.
#[test]
fn the_last_child_races_with_the_end_of_the_body() {
    race(2, &["the body first", "the child first"], |world, root, report| {
        let (remote, other) = (world.remote(6), world.remote(7));
        let (flags, ended) = Flags::new();
        let (at_end, is_over) = (Arc::new(AtomicBool::new(false)), ended.clone());
        let noted = at_end.clone();
        let body = group(async move |group| {
            group.spawn(Sendable(async move {
                let _flags = flags;
                child(remote).await
            }));
            let value = awaited(other).await.expect("a value");
            noted.store(ended.load(SeqCst), SeqCst);
            value
        });
        let inside = async move {
            let value = body.await;
            assert!(is_over.load(SeqCst), "the group was over before its child");
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if at_end.load(SeqCst) {
            "the child first"
        } else {
            "the body first"
        }
    });
}

/// The last of child and body ends a group that drops results at once.
#[test]
fn the_last_discarded_child_races_with_the_end_of_the_body() {
    race(2, &["here", "there"], |world, root, report| {
        let (remote, value) = (world.remote(6), world.census.value(7));
        let body = discarding_group(async move |group| {
            group.spawn(Sendable(async move { drop(child(remote).await) }));
        });
        let inside = async move {
            body.await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if report.here() { "here" } else { "there" }
    });
}

/// The child returns its value or is cancelled, and the body learns which.
#[test]
fn the_end_of_a_child_races_with_a_cancel() {
    race(1, &["cancelled", "ended"], |world, root, report| {
        let (sender, value, threads) = (world.stoppable(6), world.census.value(7), world.threads.clone());
        let body = group(async move |group| {
            group.spawn(stoppable(sender));
            let cancelled = group.clone();
            threads.spawn(move || cancelled.cancel_all());
            group.next().await.unwrap_or(value)
        });
        begin(task(async move { Ok(body.await) }), root);
        world.end();
        match report.get() {
            Ended::Value(6) => "ended",
            Ended::Value(7) => "cancelled",
            other => panic!("{other:?}"),
        }
    });
}

/// A cancellation of the task is passed on to the group, and from there to the child, while the child ends.
#[test]
fn the_end_of_a_child_races_with_the_stop_of_the_task() {
    race(1, &["cancelled", "ended"], |world, root, report| {
        let (sender, value) = (world.stoppable(6), world.census.value(7));
        let body = group(async move |group| {
            group.spawn(stoppable(sender));
            group.next().await.unwrap_or(value)
        });
        let source = StopSource::new();
        let token = source.token();
        world.threads.spawn(move || {
            source.request_stop();
        });
        let inside = task(async move { Ok(body.await) });
        submit(
            inside
                .write_env(WithScheduler(InlineScheduler))
                .write_env(WithStopToken(token)),
            root,
        );
        world.end();
        match report.get() {
            Ended::Value(6) => "ended",
            // The child was refused or has stopped, and the task with it.
            Ended::Value(7) | Ended::Stopped => "cancelled",
            other => panic!("{other:?}"),
        }
    });
}

/// A child begins to wait for nothing but a stop, in its own frame, while the group is cancelled: before its suspension, meanwhile and
/// after it. Neither the stop nor the child is lost.
///
/// `loom` remembers only the last access of an atomic, so it does not find the cancel that comes before the spawn.
#[test]
fn the_suspension_of_a_child_races_with_a_cancel() {
    race(3, &["by the child", "by the group"], |world, root, report| {
        let (value, threads) = (world.census.value(7), world.threads.clone());
        let (flags, ended) = Flags::new();
        let here = thread::current().id();
        let by = Arc::new(Mutex::new("refused"));
        let noted = by.clone();
        let body = group(async move |group: TaskGroup<()>| {
            let cancelled = group.clone();
            threads.spawn(move || cancelled.cancel_all());
            let _: Result<_, _> = group.try_spawn(Sendable(async move {
                let _flags = flags;
                let _end = OnDrop(move || {
                    let is_here = thread::current().id() == here;
                    *noted.lock().expect("no thread panicked") = if is_here { "by the child" } else { "by the group" };
                });
                let Ok(()) = never::<(), Infallible>().await;
            }));
            assert!(group.next().await.is_none());
        });
        let inside = async move {
            body.await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        assert!(ended.load(SeqCst));
        let by = *by.lock().expect("no thread panicked");
        by
    });
}

/// The stop of the task is passed on to a child that waits in its own frame, while its sibling ends. The thread that looks for such
/// children begins with that sibling.
#[test]
fn the_end_of_a_child_races_with_the_stop_of_its_sibling() {
    race(1, &["stopped"], |world, root, report| {
        let (remote, value) = (world.remote(6), world.census.value(7));
        let body = group(async move |group: TaskGroup<()>| {
            _ = group.try_spawn(Sendable(async {
                let Ok(()) = never::<(), Infallible>().await;
            }));
            _ = group.try_spawn(Sendable(async move { drop(awaited(remote).await) }));
            let _value = value;
            let Ok(()) = never::<(), Infallible>().await;
        });
        let source = StopSource::new();
        let token = source.token();
        world.threads.spawn(move || {
            source.request_stop();
        });
        let inside = task(async move {
            body.await;
            unreachable!("the body is stopped")
        });
        submit(
            inside
                .write_env(WithScheduler(InlineScheduler))
                .write_env(WithStopToken(token)),
            root,
        );
        world.end();
        match report.get() {
            Ended::Stopped => "stopped",
            other => panic!("{other:?}"),
        }
    });
}

/// A refused child is dropped; an accepted one is awaited, even though the body has ended.
#[test]
fn a_spawn_from_elsewhere_races_with_the_end_of_the_body() {
    race(2, &["refused", "spawned"], |world, root, report| {
        let (held, value, threads) = (world.census.value(6), world.census.value(7), world.threads.clone());
        let (flags, ended) = Flags::new();
        let (refused, noted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (refusal, ran) = (refused.clone(), noted.clone());
        let body = group(async move |group: TaskGroup<()>| {
            threads.spawn(move || {
                let spawned = group.try_spawn(Sendable(async move {
                    let _flags = flags;
                    ran.store(true, SeqCst);
                    held.touch();
                }));
                refusal.store(spawned.is_err(), SeqCst);
            });
        });
        let inside = async move {
            body.await;
            // A child that was spawned in time has ended.
            assert!(
                !noted.load(SeqCst) || ended.load(SeqCst),
                "the group was over before its child"
            );
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if refused.load(SeqCst) { "refused" } else { "spawned" }
    });
}

/// A child can always spawn: the group is not over before that child has ended.
#[test]
fn a_spawn_from_a_child_races_with_the_end_of_the_body() {
    race(2, &["spawned"], |world, root, report| {
        let (first, second, other) = (world.remote(5), world.census.value(6), world.remote(7));
        let (flags, ended) = Flags::new();
        let body = group(async move |group: TaskGroup<()>| {
            let inner = group.clone();
            group.spawn(Sendable(async move {
                drop(child(first).await);
                let spawned = inner.try_spawn(Sendable(async move {
                    let _flags = flags;
                    second.touch();
                }));
                assert!(spawned.is_ok());
            }));
            awaited(other).await.expect("a value")
        });
        let inside = async move {
            let value = body.await;
            assert!(ended.load(SeqCst), "the group was over before its child");
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        "spawned"
    });
}

/// A child fails while the body ends, with a sibling that only a cancellation ends.
#[test]
fn the_failure_of_a_child_races_with_the_end_of_the_body() {
    race(2, &["failed"], |world, root, report| {
        let (remote, other) = (world.remote_of(Completion::Error("failed")), world.remote(7));
        let body = try_group(async move |group| {
            group.spawn(Sendable(async {
                let Ok(value) = SenderFuture::new(never::<Watched, Infallible>()).await;
                Ok(value)
            }));
            group.spawn(Sendable(awaited(remote)));
            awaited(other).await
        });
        begin(task(body), root);
        world.end();
        assert_eq!(report.get(), Ended::Error("failed"));
        "failed"
    });
}

/// A child that was assigned to a dropped `next` goes to the next caller.
#[test]
fn the_drop_of_next_races_with_the_end_of_a_child() {
    race(2, &["dropped", "taken"], |world, root, report| {
        let remote = world.remote(6);
        let taken = Arc::new(AtomicBool::new(false));
        let noted = taken.clone();
        let body = group(async move |group: TaskGroup<Watched>| {
            group.spawn(child(remote));
            let inner = group.clone();
            group.spawn(Sendable(async move {
                if let Some(value) = poll_and_drop(inner.next()).await {
                    noted.store(true, SeqCst);
                    return value.expect("one");
                }
                inner.next().await.expect("it was not lost")
            }));
            group.wait_for_all().await;
            group.next().await.expect("what the other took")
        });
        begin(task(async move { Ok(body.await) }), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(6));
        if taken.load(SeqCst) { "taken" } else { "dropped" }
    });
}

/// A waiter in another task is stopped, or receives the child that ends. Either the waiter or the group owns the child.
#[test]
fn the_stop_of_a_waiter_races_with_the_end_of_a_child() {
    let model = |seen: &Seen| {
        let world = World::default();
        let (root, report) = world.root();
        let (other, waited) = world.root();
        let (remote, value, threads) = (world.remote(6), world.census.value(7), world.threads.clone());
        let body = group(async move |group: TaskGroup<Watched>| {
            group.spawn(child(remote));
            let (source, waits) = (StopSource::new(), group.clone());
            let token = source.token();
            let waiting = task(async move { waits.next().await.ok_or("none") });
            submit(
                waiting
                    .write_env(WithScheduler(InlineScheduler))
                    .write_env(WithStopToken(token)),
                other,
            );
            threads.spawn(move || {
                source.request_stop();
            });
        });
        let inside = async move {
            body.await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        match waited.get() {
            Ended::Value(6) => seen.note("given"),
            Ended::Stopped => seen.note("stopped"),
            // The group was over first, and has dropped the result.
            Ended::Error("none") => {}
            other => panic!("{other:?}"),
        }
    };
    for biased in [true, false] {
        with_biased_groups(biased, || explore(1, &["given", "stopped"], model));
    }
}

/// A waiter for room gets it from a child that ends, or is refused by a cancellation.
#[test]
fn a_cancel_races_with_room_for_another() {
    race(1, &["refused", "spawned"], |world, root, report| {
        let (remote, value, threads) = (world.remote(6), world.census.value(7), world.threads.clone());
        let (held, spawned) = (world.census.value(5), Arc::new(AtomicBool::new(false)));
        let noted = spawned.clone();
        let body = group(async move |group: TaskGroup<()>| {
            group.set_limit(1);
            group.spawn(Sendable(async move { drop(child(remote).await) }));
            let cancelled = group.clone();
            threads.spawn(move || cancelled.cancel_all());
            let second = group.try_spawn_when_ready(Sendable(async move { held.touch() })).await;
            noted.store(second.is_ok(), SeqCst);
        });
        let inside = async move {
            body.await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if spawned.load(SeqCst) { "spawned" } else { "refused" }
    });
}

/// The child ends before the body asks for room, while it asks, and while it waits.
#[test]
fn the_end_of_a_child_races_with_ready() {
    race(2, &["here", "there"], |world, root, report| {
        let (remote, value) = (world.remote(6), world.census.value(7));
        let body = group(async move |group: TaskGroup<()>| {
            group.set_limit(1);
            group.spawn(Sendable(async move { drop(child(remote).await) }));
            assert!(group.ready().await);
        });
        let inside = async move {
            body.await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if report.here() { "here" } else { "there" }
    });
}

/// Of two that wait for room, the one that reserves it gets it. The other is told after that child has ended.
#[test]
fn the_end_of_a_child_races_with_two_that_wait_for_room() {
    race(1, &["here", "there"], |world, root, report| {
        let (remote, held, value) = (world.remote(6), world.census.value(5), world.census.value(7));
        let body = group(async move |group: TaskGroup<()>| {
            group.set_limit(1);
            group.spawn(Sendable(async move { drop(child(remote).await) }));
            let spawning = group.spawn_when_ready(Sendable(async move { held.touch() }));
            let (mut spawning, mut ready) = (Some(Box::pin(spawning)), Some(Box::pin(group.ready())));
            // Both wait at a time.
            poll_fn(|context| {
                if let Some(waits) = &mut spawning
                    && waits.as_mut().poll(context).is_ready()
                {
                    spawning = None;
                }
                if let Some(waits) = &mut ready
                    && let Poll::Ready(is_ready) = waits.as_mut().poll(context)
                {
                    assert!(is_ready);
                    ready = None;
                }
                match (&spawning, &ready) {
                    (None, None) => Poll::Ready(()),
                    _ => Poll::Pending,
                }
            })
            .await;
        });
        let inside = async move {
            body.await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if report.here() { "here" } else { "there" }
    });
}

/// A cancellation ends a wait for room that nothing reserves.
#[test]
fn a_cancel_races_with_ready() {
    race(1, &["cancelled", "ready"], |world, root, report| {
        let (remote, value, threads) = (world.remote(6), world.census.value(7), world.threads.clone());
        let was_ready = Arc::new(AtomicBool::new(false));
        let noted = was_ready.clone();
        let body = group(async move |group: TaskGroup<()>| {
            group.set_limit(1);
            group.spawn(Sendable(async move { drop(child(remote).await) }));
            let cancelled = group.clone();
            threads.spawn(move || cancelled.cancel_all());
            noted.store(group.ready().await, SeqCst);
        });
        let inside = async move {
            body.await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if was_ready.load(SeqCst) { "ready" } else { "cancelled" }
    });
}

/// The child returns its value, or is cancelled alone. Its handle outlives it, and the group is not cancelled.
#[test]
fn the_end_of_a_child_races_with_a_cancel_of_it_alone() {
    race(1, &["cancelled", "ended"], |world, root, report| {
        let (sender, value, threads) = (world.stoppable(6), world.census.value(7), world.threads.clone());
        let body = group(async move |group| {
            let handle = group.spawn_with(SpawnOptions::new().cancellable(), stoppable(sender));
            let cancelled = handle.clone();
            threads.spawn(move || cancelled.cancel());
            let value = group.next().await.unwrap_or(value);
            assert!(handle.is_finished() && !group.is_cancelled());
            value
        });
        begin(task(async move { Ok(body.await) }), root);
        world.end();
        match report.get() {
            Ended::Value(6) => "ended",
            Ended::Value(7) => "cancelled",
            other => panic!("{other:?}"),
        }
    });
}

/// The stop of the group is passed on to a child that is cancelled alone. The child ends, and its memory is freed, meanwhile.
#[test]
fn a_cancel_of_a_child_races_with_that_of_its_group() {
    race(1, &["alone", "with the group"], |world, root, report| {
        let (value, threads) = (world.census.value(7), world.threads.clone());
        let alone = Arc::new(AtomicBool::new(false));
        let noted = alone.clone();
        let body = group(async move |group: TaskGroup<()>| {
            let waits = Sendable(async {
                let Ok(()) = SenderFuture::new(never::<(), Infallible>()).await;
            });
            let handle = group.spawn_with(SpawnOptions::new().cancellable(), waits);
            let cancelled = handle.clone();
            threads.spawn(move || cancelled.cancel_for(Reason::Deadline));
            let whole = group.clone();
            threads.spawn(move || whole.cancel_all());
            assert!(group.next().await.is_none());
            noted.store(handle.cancellation_reason() == Some(Reason::Deadline), SeqCst);
        });
        let inside = async move {
            body.await;
            Ok(value)
        };
        begin(task(inside), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(7));
        if alone.load(SeqCst) { "alone" } else { "with the group" }
    });
}

/// A group is dropped while its child runs. The task finishes after the child.
#[test]
fn giving_up_a_group_races_with_the_end_of_its_child() {
    for leaked in [false, true] {
        race(2, &["here", "there"], move |world, root, report| {
            let (remote, value) = (world.remote(6), world.census.value(7));
            let (flags, ended) = Flags::new();
            let inner = task(async move {
                let body = group(async move |group| {
                    group.spawn(Sendable(async move {
                        let _flags = flags;
                        child(remote).await
                    }));
                    std::future::pending::<()>().await;
                });
                if leaked {
                    let mut body = Box::pin(body);
                    let pending = poll_fn(|context| Poll::Ready(body.as_mut().poll(context).is_pending())).await;
                    assert!(pending);
                    std::mem::forget(body);
                } else {
                    assert!(poll_and_drop(body).await.is_none());
                }
                Ok(value)
            });
            let outer = task(async move {
                let value = inner.await;
                assert!(ended.load(SeqCst), "the task was over before the child");
                value
            });
            begin(outer, root);
            world.end();
            assert_eq!(report.get(), Ended::Value(7));
            if report.here() { "here" } else { "there" }
        });
    }
}
