//! What `dump_all` and the watchdog tell about running tasks, with the feature `inspect`.
#![cfg(feature = "inspect")]

use std::collections::BTreeSet;
use std::future::{pending, poll_fn};
use std::panic::Location;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::{Duration, Instant};

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::task::{
    self, Instrument, Priority, Reason, SpawnOptions, Task, TaskActivity, TaskNode, TaskRef, TaskState, TaskTree,
};
use futures_util::StreamExt;
use serde_json::{Value, json};

/// The tests look at all tasks of the process, so they run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

const HOUR: Duration = Duration::from_secs(3600);

/// The most that a test waits for something that happens soon.
const SOON: Duration = Duration::from_secs(30);

/// Looks at all tasks until `found` accepts the tree.
fn look_until(found: impl Fn(&TaskTree) -> bool) -> TaskTree {
    let begun = Instant::now();
    loop {
        let tree = task::dump_all();
        if found(&tree) {
            return tree;
        }
        assert!(begun.elapsed() < SOON, "{tree}");
        std::thread::yield_now();
    }
}

fn named<'t>(tree: &'t TaskTree, name: &str) -> Option<TaskNode<'t>> {
    tree.iter().find(|node| node.name() == Some(name))
}

/// Looks at all tasks until the one with this name waits.
fn look_until_waiting(name: &str) -> TaskTree {
    look_until(|tree| named(tree, name).is_some_and(|node| node.waits().is_some()))
}

fn line_of(node: &TaskNode<'_>) -> Option<u32> {
    node.waits().and_then(|wait| wait.location()).map(Location::line)
}

#[test]
fn a_shutdown_that_hangs_is_diagnosed_from_the_dump_alone() {
    let _alone = alone();
    let (release, released) = async_channel::bounded::<()>(1);
    let pool = ThreadPool::new(2);
    let line = Arc::new(Mutex::new(0));
    let hung = line.clone();
    let server = task::detach_with(
        SpawnOptions::new().name("server").scheduler(pool.scheduler()),
        task::group(async move |group: task::TaskGroup<()>| {
            for number in 0..8 {
                group.spawn_with(SpawnOptions::new().name(format!("connection {number}")), async {
                    task::sleep(Duration::from_secs(3600)).await;
                });
            }
            let unnamed = async move {
                *hung.lock().unwrap() = line!() + 1;
                task::shield(released.recv()).await.unwrap();
            };
            group.spawn(unnamed);
            group.wait_for_all().await;
        }),
    );
    look_until(|tree| tree.iter().filter(|node| node.waits().is_some()).count() == 10);
    server.cancel_for(Reason::Custom("shutdown"));
    // Only the child that hangs is left, with those that wait for it.
    let tree = look_until(|tree| tree.len() == 2 && tree.iter().all(|node| node.waits().is_some()));
    let child = tree.iter().last().unwrap();
    assert_eq!(child.state(), TaskState::Cancelled);
    assert_eq!(child.cancellation_reason(), Some(Reason::Custom("shutdown")));
    assert_eq!(child.parent().and_then(|parent| parent.name()), Some("server"));
    assert!(child.cancelled_at().is_some());
    let wait = child.waits().unwrap();
    assert_eq!(wait.what(), None, "a future of another crate");
    assert_eq!(line_of(&child), Some(*line.lock().unwrap()), "{tree}");
    let text = tree.to_string();
    let told = format!("at {}:{}:", file!(), line.lock().unwrap());
    assert!(text.contains(&told), "{text}");
    assert!(text.contains("ago: shutdown"), "{text}");
    release.try_send(()).unwrap();
    _ = task::block_on(server);
    look_until(TaskTree::is_empty);
}

#[test]
fn the_place_and_the_type_of_an_await_are_known() {
    let _alone = alone();
    let (begun, begins) = channel();
    let handle = task::detach_with(SpawnOptions::new().name("sleeper"), async move {
        begun.send(line!() + 1).unwrap();
        task::sleep(Duration::from_secs(3600)).await;
    });
    let spawned = line!() - 4;
    let line = begins.recv().unwrap();
    let tree = look_until_waiting("sleeper");
    let node = named(&tree, "sleeper").unwrap();
    assert_eq!(line_of(&node), Some(line));
    assert!(node.waits().unwrap().what().unwrap().contains("Sleep"), "{tree}");
    assert_eq!(node.activity(), Some(TaskActivity::Waiting));
    assert_eq!(node.spawned_at().map(Location::line), Some(spawned));
    assert_eq!(node.spawned_at().map(Location::file), Some(file!()));
    handle.cancel();
    assert!(task::block_on(handle).is_err());
}

/// Starts a task with the name `subject`, which sends the line where it is about to wait or to spawn.
type Begin = Box<dyn FnOnce(Sender<u32>) -> task::Handle<()>>;

fn begin<F>(body: impl FnOnce(Sender<u32>) -> F + 'static) -> Begin
where
    F: Future<Output = ()> + Send + 'static,
{
    Box::new(|lines| task::detach_with(SpawnOptions::new().name("subject"), body(lines)))
}

/// Awaits a future of another crate at a line that the tree tells.
#[track_caller]
fn here<F: IntoFuture>(future: F) -> impl Future<Output = F::Output> {
    let waiting = task::with_timeout(Duration::MAX, future);
    async { waiting.await.expect("there is no limit") }
}

/// What the tree says of a future of another crate.
const FOREIGN: &str = "a future of another crate";

#[test]
fn each_kind_of_await_tells_its_line() {
    let _alone = alone();
    bowline::task_local! { static LEVEL: u32; }
    let forever = || task::sleep(HOUR);
    // The kind, a part of what the tree says of it, and the task.
    let cases: Vec<(&str, &str, Begin)> = vec![
        (
            "an awaited task",
            "Sleep",
            begin(move |lines| async move {
                lines.send(line!() + 2).unwrap();
                let inner = async move {
                    forever().await;
                };
                Task::new(inner).await.unwrap();
            }),
        ),
        (
            "the next child of a group",
            "the next child of a group",
            begin(|lines| async move {
                task::group(async move |group: task::TaskGroup<()>| {
                    group.spawn(pending());
                    lines.send(line!() + 1).unwrap();
                    group.next().await;
                })
                .await
            }),
        ),
        (
            "all children of a group",
            "all children of a group",
            begin(|lines| async move {
                task::group(async move |group: task::TaskGroup<()>| {
                    group.spawn(pending());
                    lines.send(line!() + 1).unwrap();
                    group.wait_for_all().await;
                })
                .await
            }),
        ),
        (
            "a group whose body has ended",
            "all children of a group",
            begin(|lines| async move {
                lines.send(line!() + 1).unwrap();
                task::group(async |group: task::TaskGroup<()>| group.spawn(pending())).await;
            }),
        ),
        (
            "a deadline around a future of another crate",
            FOREIGN,
            begin(|lines| async move {
                lines.send(line!() + 1).unwrap();
                _ = task::with_timeout(Duration::from_secs(3600), pending::<()>()).await;
            }),
        ),
        (
            "a future of another crate in a function that passes its line on",
            FOREIGN,
            begin(|lines| async move {
                lines.send(line!() + 1).unwrap();
                here(pending::<()>()).await;
            }),
        ),
        (
            "a sender inside a deadline",
            "Sleep",
            begin(move |lines| async move {
                let inside = async move {
                    lines.send(line!() + 1).unwrap();
                    forever().await;
                };
                _ = task::with_timeout(2 * HOUR, inside).await;
            }),
        ),
        (
            "a handle",
            "a detached task (task ",
            begin(|lines| async move {
                // The detached task ends when this one drops the sender.
                let (_open, closed) = async_channel::bounded::<()>(1);
                let handle = task::detach(async move { closed.recv().await });
                lines.send(line!() + 1).unwrap();
                _ = handle.await;
            }),
        ),
        (
            "a handle inside a task-local scope",
            "a detached task (task ",
            begin(|lines| async move {
                let (_open, closed) = async_channel::bounded::<()>(1);
                let mut handle = task::detach(async move { closed.recv().await });
                lines.send(line!() + 1).unwrap();
                _ = LEVEL.scope(1, &mut handle).await;
            }),
        ),
        (
            "a child that is bound to a variable",
            "a child (task ",
            begin(|lines| async move {
                let child = task::let_async(pending::<()>());
                lines.send(line!() + 1).unwrap();
                child.await;
            }),
        ),
        (
            "a child inside a deadline",
            "a child (task ",
            begin(|lines| async move {
                let child = task::let_async(pending::<()>());
                lines.send(line!() + 1).unwrap();
                _ = task::with_timeout(HOUR, child).await;
            }),
        ),
        (
            "how the next child ends",
            "the next child of a group",
            begin(|lines| async move {
                task::supervised_group(async move |group: task::TaskGroup<()>| {
                    group.spawn(pending());
                    lines.send(line!() + 1).unwrap();
                    group.next_ended().await;
                })
                .await
            }),
        ),
        (
            "the next child or its error",
            "the next child of a group",
            begin(|lines| async move {
                let group = task::try_group(async move |group: task::TaskGroup<Result<(), ()>>| {
                    group.spawn(pending());
                    lines.send(line!() + 1).unwrap();
                    group.try_next().await
                });
                _ = group.await;
            }),
        ),
        (
            "the next child until a deadline",
            "the next child of a group",
            begin(|lines| async move {
                task::group(async move |group: task::TaskGroup<()>| {
                    group.spawn(pending());
                    lines.send(line!() + 1).unwrap();
                    group.next_until(Instant::now() + HOUR).await;
                })
                .await
            }),
        ),
        (
            "room in a group",
            "room in a group",
            begin(|lines| async move {
                task::group(async move |group: task::TaskGroup<()>| {
                    group.set_limit(1);
                    group.spawn(pending());
                    lines.send(line!() + 1).unwrap();
                    group.ready().await;
                })
                .await
            }),
        ),
        (
            "room for a child",
            "room in a group",
            begin(|lines| async move {
                task::group(async move |group: task::TaskGroup<()>| {
                    group.set_limit(1);
                    group.spawn(pending());
                    lines.send(line!() + 1).unwrap();
                    group.spawn_when_ready(async {}).await;
                })
                .await
            }),
        ),
        (
            "room for a child with options, which may be refused",
            "room in a group",
            begin(|lines| async move {
                task::group(async move |group: task::TaskGroup<()>| {
                    group.set_limit(1);
                    group.spawn(pending());
                    let options = SpawnOptions::new().name("late");
                    lines.send(line!() + 1).unwrap();
                    _ = group.try_spawn_when_ready_with(options, async {}).await;
                })
                .await
            }),
        ),
        (
            "children that are gathered",
            "the next child of a group",
            begin(|lines| async move {
                lines.send(line!() + 1).unwrap();
                task::gather(task::AllResults::new(), [pending::<()>()]).await;
            }),
        ),
        (
            "a group as a stream, at the line of the group",
            "the next child of a group",
            begin(|lines| async move {
                lines.send(line!() + 1).unwrap();
                let group = task::group(async move |mut group: task::TaskGroup<()>| {
                    group.spawn(pending());
                    StreamExt::next(&mut group).await;
                });
                group.await
            }),
        ),
        (
            "an attempt that is tried again after an error",
            FOREIGN,
            begin(|lines| async move {
                lines.send(line!() + 1).unwrap();
                _ = task::retry_with(RetryPolicy::new(), pending::<Result<(), ()>>).await;
            }),
        ),
        (
            "the delay after an error",
            "TimerSchedule",
            begin(|lines| async move {
                let policy = RetryPolicy::new().initial_delay(HOUR).max_delay(HOUR);
                let attempt = || async { Err::<(), _>("busy") };
                lines.send(line!() + 1).unwrap();
                _ = task::retry_with_if(policy, |error| *error == "busy", attempt).await;
            }),
        ),
        (
            "a closure that blocks",
            "SpawnBlocking",
            begin(|lines| async move {
                let block = |token: bowline::stop::InplaceStopToken<'_>| {
                    while !token.stop_requested() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                };
                lines.send(line!() + 1).unwrap();
                task::spawn_blocking(block).await;
            }),
        ),
        (
            "a cancellation handler around a future of another crate",
            FOREIGN,
            begin(|lines| async move {
                let (_open, channel) = async_channel::bounded::<()>(1);
                let close = channel.clone();
                lines.send(line!() + 1).unwrap();
                _ = task::with_cancellation_handler(move || _ = close.close(), channel.recv()).await;
            }),
        ),
        (
            "an escalation handler around a future of another crate",
            FOREIGN,
            begin(|lines| async move {
                lines.send(line!() + 1).unwrap();
                task::with_escalation_handler(|_, _| {}, pending::<()>()).await;
            }),
        ),
        (
            "a task-local scope around a future of another crate",
            FOREIGN,
            begin(|lines| async move {
                lines.send(line!() + 1).unwrap();
                LEVEL.scope(1, pending::<()>()).await;
            }),
        ),
    ];
    for (kind, what, begin) in cases {
        let (send, lines) = channel();
        let handle = begin(send);
        let line = lines.recv().unwrap();
        let tree = look_until_waiting("subject");
        let node = named(&tree, "subject").unwrap();
        assert_eq!(line_of(&node), Some(line), "{kind}:\n{tree}");
        let place = node.waits().and_then(|wait| wait.location()).map(Location::file);
        assert_eq!(place, Some(file!()), "{kind}:\n{tree}");
        let text = tree.to_string();
        let told = text.lines().find(|told| told.contains(&format!("{}:{line}:", file!())));
        assert!(told.is_some_and(|told| told.contains(what)), "{kind}: {what}\n{text}");
        assert!(tree.to_html().contains(what), "{kind}");
        handle.cancel();
        _ = task::block_on(handle);
    }
    look_until(TaskTree::is_empty);
}

#[test]
fn the_task_behind_a_handle_is_known() {
    let _alone = alone();
    let (open, closed) = async_channel::bounded::<()>(1);
    let awaited = task::detach_with(SpawnOptions::new().name("awaited"), async move { closed.recv().await });
    let id = awaited.task().id();
    let waiting = task::detach_with(SpawnOptions::new().name("waiting"), async move {
        let child = task::let_async(async { _ = awaited.await });
        child.await;
    });
    let tree = look_until(|tree| tree.len() == 3 && tree.iter().all(|node| node.waits().is_some()));
    let waiting_node = named(&tree, "waiting").unwrap();
    let child = waiting_node.children().next().unwrap();
    assert_eq!(waiting_node.waits().unwrap().task(), Some(child.id()));
    assert_eq!(child.waits().unwrap().task(), Some(id));
    assert_eq!(named(&tree, "awaited").unwrap().waits().unwrap().task(), None);
    assert!(
        tree.to_string().contains(&format!("a detached task (task {id})")),
        "{tree}"
    );
    drop(open);
    task::block_on(waiting).unwrap();
}

#[test]
fn a_cancellation_handler_that_runs_is_waited_for_at_its_line() {
    let _alone = alone();
    let (ends, ended) = channel::<()>();
    let (called, calls) = async_channel::bounded::<()>(1);
    let line = Arc::new(Mutex::new(0));
    let noted = line.clone();
    let handle = task::detach_with(SpawnOptions::new().name("subject"), async move {
        let handler = move || {
            called.try_send(()).unwrap();
            _ = ended.recv();
        };
        *noted.lock().unwrap() = line!() + 1;
        _ = task::with_cancellation_handler(handler, calls.recv()).await;
    });
    look_until_waiting("subject");
    std::thread::scope(|scope| {
        scope.spawn(|| handle.cancel());
        let waits_for = |tree: &TaskTree| named(tree, "subject").and_then(|node| node.waits()?.what());
        let tree = look_until(|tree| waits_for(tree) == Some("a cancellation handler that runs"));
        assert_eq!(
            line_of(&named(&tree, "subject").unwrap()),
            Some(*line.lock().unwrap()),
            "{tree}"
        );
        drop(ends);
    });
    _ = task::block_on(handle);
}

#[test]
fn each_kind_of_spawn_tells_its_line() {
    let _alone = alone();
    // The kind, how many tasks there are, and the task that spawns one.
    let cases: Vec<(&str, usize, Begin)> = vec![
        (
            "a child of a group",
            2,
            begin(|lines| async move {
                task::group(async move |group: task::TaskGroup<()>| {
                    lines.send(line!() + 1).unwrap();
                    group.spawn(pending());
                })
                .await
            }),
        ),
        (
            "a child with options",
            2,
            begin(|lines| async move {
                task::group(async move |group: task::TaskGroup<()>| {
                    lines.send(line!() + 1).unwrap();
                    group.spawn_with(SpawnOptions::new().name("child"), pending());
                })
                .await
            }),
        ),
        (
            "a child that may be refused",
            2,
            begin(|lines| async move {
                task::group(async move |group: task::TaskGroup<()>| {
                    lines.send(line!() + 1).unwrap();
                    _ = group.try_spawn(pending());
                })
                .await
            }),
        ),
        (
            "a child that has waited for room",
            2,
            begin(|lines| async move {
                task::group(async move |group: task::TaskGroup<()>| {
                    group.set_limit(1);
                    group.spawn(async {});
                    lines.send(line!() + 1).unwrap();
                    group.spawn_when_ready(pending()).await;
                })
                .await
            }),
        ),
        (
            "a child with options that has waited for room",
            2,
            begin(|lines| async move {
                task::group(async move |group: task::TaskGroup<()>| {
                    let options = SpawnOptions::new().name("child");
                    lines.send(line!() + 1).unwrap();
                    group.spawn_when_ready_with(options, pending()).await;
                })
                .await
            }),
        ),
        (
            "a child that may be refused after it has waited for room",
            2,
            begin(|lines| async move {
                task::group(async move |group: task::TaskGroup<()>| {
                    lines.send(line!() + 1).unwrap();
                    _ = group.try_spawn_when_ready(pending()).await;
                })
                .await
            }),
        ),
        (
            "children that are gathered",
            3,
            begin(|lines| async move {
                lines.send(line!() + 1).unwrap();
                task::gather(task::AllResults::new(), [pending::<()>(), pending()]).await;
            }),
        ),
        (
            "a child that is bound to a variable",
            2,
            begin(|lines| async move {
                lines.send(line!() + 1).unwrap();
                let child = task::let_async(pending::<()>());
                child.await;
            }),
        ),
        (
            "a detached task",
            2,
            begin(|lines| async move {
                let (_open, closed) = async_channel::bounded::<()>(1);
                lines.send(line!() + 1).unwrap();
                drop(task::detach(async move { closed.recv().await }));
                pending().await
            }),
        ),
        (
            "a detached task with options",
            2,
            begin(|lines| async move {
                let (_open, closed) = async_channel::bounded::<()>(1);
                let options = SpawnOptions::new().name("detached");
                lines.send(line!() + 1).unwrap();
                drop(task::detach_with(options, async move { closed.recv().await }));
                pending().await
            }),
        ),
        (
            "a coroutine in a blocking scope",
            2,
            begin(|lines| async move {
                let (_open, closed) = async_channel::bounded::<()>(1);
                let borrow = move || {
                    task::scope(|scope| {
                        lines.send(line!() + 1).unwrap();
                        scope.spawn_async(async { _ = closed.recv().await });
                    })
                };
                drop(std::thread::spawn(borrow));
                pending().await
            }),
        ),
    ];
    for (kind, many, begin) in cases {
        let (send, lines) = channel();
        let handle = begin(send);
        let line = lines.recv().unwrap();
        let tree = look_until(|tree| tree.len() == many && tree.iter().all(|node| node.waits().is_some()));
        let spawned = tree.iter().filter(|node| node.name() != Some("subject"));
        for node in spawned {
            let at = node.spawned_at().unwrap();
            assert_eq!((at.file(), at.line()), (file!(), line), "{kind}:\n{tree}");
            assert_eq!(node.task().spawned_at(), Some(at));
        }
        handle.cancel();
        _ = task::block_on(handle);
        look_until(TaskTree::is_empty);
    }
}

#[test]
fn running_and_queued_tasks_are_shown() {
    let _alone = alone();
    let pool = ThreadPool::new(1);
    let (begun, begins) = channel();
    let (end, ends) = channel::<()>();
    let options = || SpawnOptions::new().scheduler(pool.scheduler());
    let running = task::detach_with(options().name("running"), async move {
        begun.send(()).unwrap();
        ends.recv().unwrap();
    });
    begins.recv().unwrap();
    let queued = task::detach_with(options().name("queued").priority(Priority::Utility), async {});
    let tree = task::dump_all();
    let activity = |name| named(&tree, name).and_then(|node| node.activity());
    assert_eq!(activity("running"), Some(TaskActivity::Running));
    assert_eq!(activity("queued"), Some(TaskActivity::Queued));
    let node = named(&tree, "queued").unwrap();
    assert_eq!(
        (node.priority(), node.base_priority()),
        (Priority::Utility, Priority::Utility)
    );
    queued.raise(Priority::UserInitiated);
    let tree = task::dump_all();
    let node = named(&tree, "queued").unwrap();
    assert_eq!(
        (node.priority(), node.base_priority()),
        (Priority::UserInitiated, Priority::Utility)
    );
    assert!(tree.to_string().contains("base priority Utility"), "{tree}");
    end.send(()).unwrap();
    task::block_on(running).unwrap();
    task::block_on(queued).unwrap();
}

#[test]
fn all_children_are_listed_and_none_is_left() {
    let _alone = alone();
    const MANY: usize = 5_000;
    let pool = ThreadPool::new(2);
    let handle = task::detach_with(
        SpawnOptions::new().name("many").scheduler(pool.scheduler()),
        task::group(async |group: task::TaskGroup<()>| {
            for _ in 0..MANY {
                group.spawn(pending());
            }
            group.wait_for_all().await;
        }),
    );
    let tree = look_until(|tree| tree.len() == MANY + 1);
    let many = named(&tree, "many").unwrap();
    assert_eq!((many.children().count(), many.others()), (MANY, 0));
    assert_eq!(tree.roots().count(), 1);
    assert_eq!(tree.root().map(|root| root.id()), Some(many.id()));
    handle.cancel();
    task::block_on(handle).unwrap();
    look_until(TaskTree::is_empty);
}

#[test]
fn connected_tasks_are_below_those_that_wait_for_them() {
    let _alone = alone();
    let made = line!() + 1;
    let inner = Task::new(async { pending::<()>().await });
    let handle = task::detach_with(SpawnOptions::new().name("outer"), async move {
        _ = when_any((inner, never::<(), std::convert::Infallible>())).await;
    });
    let tree = look_until(|tree| tree.len() == 2 && tree.iter().all(|node| node.waits().is_some()));
    let inner = named(&tree, "outer").unwrap().children().next().unwrap();
    assert_eq!(inner.spawned_at().map(Location::line), Some(made));
    handle.cancel();
    assert!(task::block_on(handle).is_err());
}

#[test]
fn json_has_every_task_and_escapes_names() {
    let _alone = alone();
    let name = "a \"name\"\\ with\n<tags> & more";
    let handle = task::detach_with(SpawnOptions::new().name(name), pending::<()>());
    let tree = look_until_waiting(name);
    let json = tree.to_json();
    assert!(json.starts_with("{\"tasks\":[{\"id\":"), "{json}");
    assert!(
        json.contains(r#""name":"a \"name\"\\ with\u000a<tags> & more""#),
        "{json}"
    );
    assert!(json.contains(r#""activity":"waiting""#), "{json}");
    assert!(json.contains(r#""awaited":null"#), "{json}");
    let page = tree.to_html();
    assert!(page.contains("&lt;tags&gt; &amp; more"), "{page}");
    assert!(!page.contains("<tags>"), "{page}");
    assert_eq!(page.matches("<details").count(), page.matches("</details>").count());
    handle.cancel();
    assert!(task::block_on(handle).is_err());
}

#[test]
fn json_is_well_formed_and_tells_what_the_tree_tells() {
    let _alone = alone();
    let pool = ThreadPool::new(1);
    let (begun, begins) = channel();
    let (end, ends) = channel::<()>();
    let options = || SpawnOptions::new().scheduler(pool.scheduler());
    let running = task::detach_with(options().name("running"), async move {
        begun.send(()).unwrap();
        ends.recv().unwrap();
    });
    begins.recv().unwrap();
    let queued = task::detach_with(options().name("queued").priority(Priority::Utility), async {});
    queued.raise(Priority::UserInitiated);
    let (release, released) = async_channel::bounded::<()>(1);
    let lines = Arc::new(Mutex::new((0, 0)));
    let noted = lines.clone();
    let waiting = task::detach_with(SpawnOptions::new().name("waiting"), async move {
        let group = task::group(async move |group: task::TaskGroup<()>| {
            let inside = noted.clone();
            let limited = async move {
                inside.lock().unwrap().1 = line!() + 1;
                _ = task::shield(released.recv()).await;
            };
            noted.lock().unwrap().0 = line!() + 1;
            group.spawn_with(SpawnOptions::new().name("limited"), limited);
        });
        _ = task::with_timeout(HOUR, group).await;
    });
    look_until(|tree| {
        ["waiting", "limited"].map(|name| named(tree, name).is_some_and(|node| node.waits().is_some())) == [true; 2]
    });
    waiting.cancel_for(Reason::Custom("an \"urgent\"\tmatter"));
    let tree = look_until(|tree| {
        let limited = named(tree, "limited").filter(|node| node.cancelled_at().is_some());
        limited.is_some_and(|node| node.waits().is_some())
    });
    let json: Value = serde_json::from_str(&tree.to_json()).unwrap();
    let tasks = json["tasks"].as_array().unwrap();
    assert_eq!((json.as_object().unwrap().len(), tasks.len()), (1, tree.len()));
    let keys = [
        "id",
        "parent",
        "name",
        "state",
        "activity",
        "awaited_at",
        "awaited",
        "awaited_task",
        "awaited_deadline_in",
        "waiting",
        "cancelled",
        "cancelled_for",
        "deadline_in",
        "priority",
        "base_priority",
        "spawned_at",
        "others",
    ];
    for task in tasks {
        let found: BTreeSet<&str> = task.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, BTreeSet::from(keys));
    }
    let find = |name: &str| tasks.iter().find(|task| task["name"] == name).unwrap();
    let at = |line: u32, value: &Value| value.as_str().unwrap().starts_with(&format!("{}:{line}:", file!()));
    let (spawned, awaited) = *lines.lock().unwrap();

    let task = find("limited");
    assert_eq!(
        (&task["state"], &task["activity"]),
        (&json!("cancelled"), &json!("waiting"))
    );
    assert_eq!(task["parent"], find("waiting")["id"]);
    assert_eq!(task["cancelled"], "an \"urgent\"\tmatter");
    assert!(
        (0.0..3600.0).contains(&task["cancelled_for"].as_f64().unwrap()),
        "{task}"
    );
    assert!((0.0..3600.0).contains(&task["waiting"].as_f64().unwrap()), "{task}");
    assert!(
        (1.0..=3600.0).contains(&task["deadline_in"].as_f64().unwrap()),
        "{task}"
    );
    assert!(
        at(awaited, &task["awaited_at"]) && at(spawned, &task["spawned_at"]),
        "{task}"
    );
    assert_eq!((&task["awaited"], &task["awaited_task"]), (&Value::Null, &Value::Null));
    // The deadline is that of the task around it, which it has inherited.
    assert_eq!(task["awaited_deadline_in"], Value::Null);
    assert_eq!(
        (&task["priority"], &task["base_priority"]),
        (&json!("Default"), &json!("Default"))
    );
    assert_eq!(task["others"], 0);

    let task = find("waiting");
    assert_eq!(task["id"], waiting.task().id().as_u64());
    assert_eq!((&task["parent"], &task["deadline_in"]), (&Value::Null, &Value::Null));
    assert_eq!(task["awaited"], "all children of a group");
    assert!(
        (1.0..=3600.0).contains(&task["awaited_deadline_in"].as_f64().unwrap()),
        "{task}"
    );

    for (name, priority, base) in [
        ("running", "Default", "Default"),
        ("queued", "UserInitiated", "Utility"),
    ] {
        let task = find(name);
        assert_eq!((&task["state"], &task["activity"]), (&json!("running"), &json!(name)));
        assert_eq!(
            (&task["priority"], &task["base_priority"]),
            (&json!(priority), &json!(base))
        );
        for unknown in [
            "awaited_at",
            "awaited",
            "awaited_task",
            "awaited_deadline_in",
            "waiting",
            "cancelled",
            "cancelled_for",
            "deadline_in",
        ] {
            assert_eq!(task[unknown], Value::Null, "{name}: {unknown}");
        }
    }
    end.send(()).unwrap();
    release.try_send(()).unwrap();
    for handle in [running, queued] {
        task::block_on(handle).unwrap();
    }
    _ = task::block_on(waiting);
    look_until(TaskTree::is_empty);
}

#[test]
fn json_tells_the_task_behind_a_handle_and_a_deadline_that_has_passed() {
    let _alone = alone();
    let (open, closed) = async_channel::bounded::<()>(1);
    let late = async move {
        let closed = closed;
        // Inherits the deadline, and does not heed it.
        let child = task::let_async(async move { task::shield(closed.recv()).await.is_err() });
        child.await
    };
    let handle = task::detach(async { task::with_timeout(Duration::from_millis(1), late).await });
    let id = handle.task().id().as_u64();
    let tree = look_until(|tree| {
        let is_late = |node: TaskNode<'_>| node.deadline().is_some_and(|at| at < tree.created_at());
        let all_wait = tree.len() == 2 && tree.iter().all(|node| node.waits().is_some());
        all_wait && tree.iter().any(|node| is_late(node) && node.cancelled_at().is_some())
    });
    let json: Value = serde_json::from_str(&tree.to_json()).unwrap();
    let find = |id: u64| {
        json["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|task| task["id"] == id)
            .unwrap()
    };
    let child = find(find(id)["awaited_task"].as_u64().unwrap());
    assert_eq!(find(id)["awaited"], "a child");
    assert!(find(id)["awaited_deadline_in"].as_f64().unwrap() < 0.0, "{json}");
    assert_eq!(child["parent"], id);
    assert!(child["deadline_in"].as_f64().unwrap() < 0.0, "{child}");
    assert_eq!(child["cancelled"], Reason::Deadline.to_string());
    drop(open);
    _ = task::block_on(handle);
    look_until(TaskTree::is_empty);
}

/// Returns the deadline of the await of the task "subject", and the text of the tree.
fn deadline_of_subject(tree: &TaskTree) -> (Option<Instant>, String) {
    let wait = named(tree, "subject").unwrap().waits().unwrap();
    (wait.deadline(), tree.to_string())
}

/// Whether the task "subject" waits at an await whose deadline has passed.
fn subject_is_late(tree: &TaskTree) -> bool {
    let wait = named(tree, "subject").and_then(|node| node.waits());
    wait.and_then(|wait| wait.deadline())
        .is_some_and(|at| at < tree.created_at())
}

#[test]
fn a_deadline_that_passes_around_a_shield_is_shown() {
    let _alone = alone();
    let (release, released) = async_channel::bounded::<()>(1);
    let handle = task::detach_with(SpawnOptions::new().name("subject"), async move {
        task::with_timeout(Duration::from_millis(1), task::shield(released.recv())).await
    });
    let tree = look_until(subject_is_late);
    let node = named(&tree, "subject").unwrap();
    assert_eq!(node.deadline(), None, "the task as a whole has none");
    let told = "within a deadline that passed ";
    assert!(tree.to_string().contains(told), "{tree}");
    assert!(tree.to_html().contains(told), "{}", tree.to_html());
    assert!(
        tree.to_json().contains(r#""awaited_deadline_in":-"#),
        "{}",
        tree.to_json()
    );
    release.try_send(()).unwrap();
    _ = task::block_on(handle);
}

#[test]
fn a_deadline_that_passes_around_a_group_is_shown_at_the_task_that_waits() {
    let _alone = alone();
    let mut after = Duration::from_millis(1);
    let (release, handle, tree) = loop {
        let (release, released) = async_channel::bounded::<()>(1);
        let handle = task::detach_with(SpawnOptions::new().name("subject"), async move {
            let group = task::group(async |group: task::TaskGroup<()>| {
                group.spawn(async move { _ = task::shield(released.recv()).await });
            });
            task::with_timeout(after, group).await
        });
        let all_wait = |tree: &TaskTree| tree.iter().all(|node| node.waits().is_some());
        let tree =
            look_until(|tree| handle.is_finished() || tree.len() == 2 && subject_is_late(tree) && all_wait(tree));
        if !handle.is_finished() {
            break (release, handle, tree);
        }
        // The deadline has passed before the group had its child, which it refused. The next one has more time.
        after *= 2;
    };
    let child = named(&tree, "subject").unwrap().children().next().unwrap();
    assert!(child.deadline().is_some(), "inherited");
    assert_eq!(child.waits().unwrap().deadline(), None, "no scope of its own");
    release.try_send(()).unwrap();
    _ = task::block_on(handle);
    look_until(TaskTree::is_empty);
}

#[test]
fn the_earliest_of_the_deadlines_around_an_await_is_shown() {
    let _alone = alone();
    bowline::task_local! { static LEVEL: u32; }
    let soon = Instant::now() + HOUR;
    let later = soon + HOUR;
    let (release, released) = async_channel::bounded::<()>(1);
    // What is between the deadlines and the await, and the task.
    let cases: Vec<(&str, Begin)> = vec![
        (
            "a future of another crate",
            begin(move |_| async move {
                let inside = task::with_deadline(later, pending::<()>());
                _ = task::with_deadline(soon, inside).await;
            }),
        ),
        (
            "a sender, and the inner deadline is the earlier one",
            begin(move |_| async move {
                let inside = task::with_deadline(soon, task::sleep(3 * HOUR));
                _ = task::with_deadline(later, inside).await;
            }),
        ),
        (
            "a shield and a value around a deadline",
            begin(move |_| async move {
                let inside = task::with_deadline(later, released.recv());
                let bound = LEVEL.scope(1, task::shield(inside));
                _ = task::with_deadline(soon, bound).await;
            }),
        ),
        (
            "an awaited task, which is resumed alone",
            begin(move |_| async move {
                let inner = async {
                    task::yield_now().await;
                    task::sleep(Duration::from_millis(1)).await;
                    pending::<()>().await;
                };
                _ = task::with_deadline(soon, async { Task::new(inner).await.unwrap() }).await;
            }),
        ),
        (
            "a group",
            begin(move |_| async move {
                let group = task::group(async |group: task::TaskGroup<()>| {
                    group.spawn(pending());
                    group.next().await;
                });
                _ = task::with_deadline(soon, group).await;
            }),
        ),
        (
            "a deadline that never comes",
            begin(move |_| async move {
                let inside = task::with_timeout(Duration::MAX, pending::<()>());
                _ = task::with_deadline(soon, inside).await;
            }),
        ),
        (
            "the next child until a deadline",
            begin(move |_| async move {
                task::group(async move |group: task::TaskGroup<()>| {
                    group.spawn(pending());
                    group.next_until(soon).await;
                })
                .await
            }),
        ),
    ];
    for (kind, begin) in cases {
        let handle = begin(channel().0);
        let tree = look_until(|tree| {
            let wait = named(tree, "subject").and_then(|node| node.waits());
            wait.is_some_and(|wait| wait.deadline().is_some())
        });
        let (deadline, text) = deadline_of_subject(&tree);
        assert_eq!(deadline, Some(soon), "{kind}:\n{text}");
        assert!(text.contains("within a deadline in 3"), "{kind}:\n{text}");
        if kind.contains("shield") {
            release.close();
        }
        handle.cancel();
        _ = task::block_on(handle);
        look_until(TaskTree::is_empty);
    }
}

#[test]
fn a_deadline_whose_scope_was_left_is_not_shown() {
    let _alone = alone();
    // How the scope is left, and the task.
    let cases: Vec<(&str, Begin)> = vec![
        (
            "after it was never pending",
            begin(|lines| async move {
                _ = task::with_timeout(HOUR, async {}).await;
                lines.send(0).unwrap();
                pending::<()>().await;
            }),
        ),
        (
            "after it was resumed",
            begin(|lines| async move {
                _ = task::with_timeout(HOUR, task::sleep(Duration::from_millis(1))).await;
                lines.send(0).unwrap();
                pending::<()>().await;
            }),
        ),
        (
            "before an await of this crate",
            begin(|lines| async move {
                _ = task::with_timeout(HOUR, task::sleep(Duration::from_millis(1))).await;
                lines.send(0).unwrap();
                task::sleep(HOUR).await;
            }),
        ),
        (
            "dropped by the poll that found it pending",
            begin(|lines| async move {
                let inside = task::with_timeout(2 * HOUR, task::with_timeout(HOUR, pending::<()>()));
                drop(futures_util::future::select(Box::pin(inside), std::future::ready(())).await);
                lines.send(0).unwrap();
                pending::<()>().await;
            }),
        ),
        (
            "an await beside it that was polled later",
            begin(|lines| async move {
                let limited = task::with_timeout(HOUR, task::sleep(HOUR));
                let other = async {
                    lines.send(0).unwrap();
                    task::sleep(HOUR).await;
                };
                _ = futures_util::future::join(limited, other).await;
            }),
        ),
    ];
    for (kind, begin) in cases {
        let (send, begun) = channel();
        let handle = begin(send);
        begun.recv().unwrap();
        let tree = look_until_waiting("subject");
        let (deadline, text) = deadline_of_subject(&tree);
        assert_eq!(deadline, None, "{kind}:\n{text}");
        assert!(!text.contains("within a deadline"), "{kind}:\n{text}");
        handle.cancel();
        _ = task::block_on(handle);
        look_until(TaskTree::is_empty);
    }
}

#[test]
fn the_text_says_what_each_task_does_in_one_place() {
    let _alone = alone();
    let pool = ThreadPool::new(1);
    let (begun, begins) = channel();
    let (end, ends) = channel::<()>();
    let options = || SpawnOptions::new().scheduler(pool.scheduler());
    let running = task::detach_with(options().name("first"), async move {
        begun.send(()).unwrap();
        ends.recv().unwrap();
    });
    begins.recv().unwrap();
    let queued = task::detach_with(options().name("second"), async {});
    let (release, released) = async_channel::bounded::<()>(1);
    let waiting = task::detach_with(SpawnOptions::new().name("third"), async move {
        _ = task::shield(released.recv()).await;
    });
    look_until_waiting("third");
    waiting.cancel();
    let tree = look_until(|tree| named(tree, "third").is_some_and(|node| node.cancelled_at().is_some()));
    let text = tree.to_string();
    for head in ["\"first\": running", "\"second\": queued", "\"third\": waiting"] {
        assert!(text.contains(&format!("{head}, priority Default\n")), "{head}: {text}");
    }
    assert!(text.contains("ago: stop requested"), "{text}");
    assert!(
        text.lines().all(|line| !["running", "queued"].contains(&line.trim())),
        "{text}"
    );
    let page = tree.to_html();
    assert!(page.contains("<i class=\"running\">queued</i>"), "{page}");
    assert!(page.contains("<i class=\"cancelled\">waiting</i>"), "{page}");
    end.send(()).unwrap();
    release.try_send(()).unwrap();
    for handle in [running, queued, waiting] {
        _ = task::block_on(handle);
    }
    look_until(TaskTree::is_empty);
}

/// The page of a group whose second child waits for longer than its first, and has a cancelled child of its own. `scripts/page` opens
/// it in a browser.
#[test]
fn the_page_shows_each_task_below_the_one_that_waits_for_it() {
    let _alone = alone();
    let with_name = |name: &'static str| SpawnOptions::new().name(name);
    let (serve, served) = async_channel::bounded::<()>(1);
    let (clear, cleared) = async_channel::bounded::<()>(1);
    let kitchen = task::detach_with(with_name("kitchen"), async move {
        task::group(async move |kitchen| {
            kitchen.spawn_with(with_name("plates"), async move {
                _ = cleared.recv().await;
                pending::<()>().await;
            });
            kitchen.spawn_with(with_name("<oven> & \"grill\""), async move {
                task::group(async move |oven| {
                    oven.spawn_with(with_name("roast"), async move { _ = task::shield(served.recv()).await });
                    oven.cancel_all();
                })
                .await;
            });
        })
        .await;
    });
    let since = |node: TaskNode<'_>| node.waits().and_then(|wait| wait.since());
    look_until(|tree| {
        let roast = self::named(tree, "roast").and_then(since);
        roast.is_some_and(|roast| tree.created_at().saturating_duration_since(roast) > Duration::from_millis(100))
    });
    clear.try_send(()).unwrap();
    let tree = look_until(|tree| {
        let plates = self::named(tree, "plates").and_then(since);
        let roast = self::named(tree, "roast").and_then(since);
        let apart = |(plates, roast): (Instant, Instant)| plates.saturating_duration_since(roast);
        plates
            .zip(roast)
            .is_some_and(|both| apart(both) > Duration::from_millis(50))
    });
    let page = tree.to_html();
    for name in ["kitchen", "plates", "&lt;oven&gt; &amp; ", "roast"] {
        assert!(page.contains(name), "{name}: {page}");
    }
    if let Some(path) = std::env::var_os("BOWLINE_PAGE") {
        std::fs::write(path, page).unwrap();
    }
    kitchen.cancel();
    drop(serve);
    _ = task::block_on(kitchen);
    look_until(TaskTree::is_empty);
}

#[test]
fn the_watchdog_reports_a_wait_once_and_survives_a_panic() {
    let _alone = alone();
    let (send, reports) = channel();
    let mut panics = true;
    let watchdog = task::watch(Duration::from_millis(60), move |tasks| {
        send.send(tasks.to_string()).unwrap();
        if std::mem::take(&mut panics) {
            panic!("a report that fails");
        }
    })
    .unwrap();
    let first = task::detach_with(SpawnOptions::new().name("first"), pending::<()>());
    let report = reports.recv_timeout(SOON).unwrap();
    assert!(
        report.contains("\"first\"") && report.contains("waiting for "),
        "{report}"
    );
    // A task that is resumed again and again waits at none of its awaits for long.
    let busy = task::detach_with(SpawnOptions::new().name("busy"), async {
        loop {
            task::sleep(Duration::from_millis(5)).await;
        }
    });
    let second = task::detach_with(SpawnOptions::new().name("second"), pending::<()>());
    // On a busy machine a sleep may be reported before.
    while !reports.recv_timeout(SOON).unwrap().contains("\"second\"") {}
    for handle in [first, second] {
        handle.cancel();
        assert!(task::block_on(handle).is_err());
    }
    drop(watchdog);
    assert_eq!(
        reports
            .iter()
            .filter(|report| report.contains("\"first\"") && !report.contains("\"second\""))
            .count(),
        0
    );
    busy.cancel();
    drop(busy);
}

#[test]
fn a_watchdog_may_be_dropped_by_its_own_report() {
    let _alone = alone();
    let slot: Arc<Mutex<Option<task::Watchdog>>> = Arc::default();
    let (inside, (send, reports)) = (slot.clone(), channel());
    let mut slot = slot.lock().unwrap();
    *slot = Some(
        task::watch(Duration::from_millis(20), move |_| {
            drop(inside.lock().unwrap().take());
            send.send(()).unwrap();
        })
        .unwrap(),
    );
    drop(slot);
    let handle = task::detach(pending::<()>());
    reports.recv_timeout(SOON).unwrap();
    assert!(reports.recv_timeout(SOON).is_err(), "the watch has ended");
    handle.cancel();
    assert!(task::block_on(handle).is_err());
}

#[test]
fn tasks_that_are_polled_while_others_look_are_not_disturbed() {
    let _alone = alone();
    let pool = ThreadPool::new(2);
    let work = task::detach_with(
        SpawnOptions::new().scheduler(pool.scheduler()),
        task::group(async |group: task::TaskGroup<usize>| {
            for number in 0..200 {
                group.spawn(async move {
                    for _ in 0..50 {
                        task::yield_now().await;
                        let mut again = true;
                        poll_fn(|cx| match std::mem::take(&mut again) {
                            true => {
                                cx.waker().wake_by_ref();
                                Poll::Pending
                            }
                            false => Poll::Ready(()),
                        })
                        .await;
                    }
                    number
                });
            }
            let mut sum = 0;
            while let Some(number) = group.next().await {
                sum += number;
            }
            sum
        }),
    );
    while !work.is_finished() {
        let tree = task::dump_all();
        assert!(tree.to_string().len() + tree.to_json().len() + tree.to_html().len() > 0);
    }
    assert_eq!(task::block_on(work).unwrap(), 199 * 200 / 2);
}

/// An event of a task with a name: the task's name, and what happened.
type Event = (String, &'static str);

/// Records the events of tasks that have a name, and panics at one of them.
struct Recorder;

static EVENTS: Mutex<Vec<Event>> = Mutex::new(Vec::new());

/// A task that the instrument raises at each event of a task named "raises", one level at a time.
static RAISED: Mutex<Option<task::Handle<usize>>> = Mutex::new(None);

impl Recorder {
    fn set() {
        // Another test may have set it.
        _ = task::set_instrument(Recorder);
        assert_eq!(task::set_instrument(Recorder), Err(task::SetInstrumentError));
        EVENTS.lock().unwrap().clear();
    }

    fn note(task: &TaskRef, event: &'static str) {
        if let Some(name) = task.name() {
            EVENTS.lock().unwrap().push((name.to_owned(), event));
            assert_ne!((name, event), ("panics", "polled"), "an instrument that fails");
            if name == "raises"
                && let Some(handle) = &*RAISED.lock().unwrap()
            {
                handle.raise(match event {
                    "spawned" => Priority::Utility,
                    "resumed" if task.priority() < Priority::Default => Priority::Default,
                    "resumed" => Priority::UserInteractive,
                    _ => Priority::UserInitiated,
                });
            }
        }
    }

    /// Returns the events of a task, without the polls that follow each other.
    fn events(name: &str) -> Vec<&'static str> {
        let all = EVENTS.lock().unwrap();
        all.iter()
            .filter(|event| event.0 == name)
            .map(|event| event.1)
            .collect()
    }
}

impl Instrument for Recorder {
    fn spawned(&self, task: &TaskRef) {
        Recorder::note(task, "spawned");
        // Not observed, and harmless.
        drop(task::detach_with(SpawnOptions::new().name("inside"), async {}));
    }

    fn resumed(&self, task: &TaskRef) {
        Recorder::note(task, "resumed");
    }

    fn polled(&self, task: &TaskRef) {
        Recorder::note(task, "polled");
    }

    fn suspended(&self, task: &TaskRef) {
        Recorder::note(task, "suspended");
    }

    fn cancelled(&self, task: &TaskRef, reason: Reason) {
        assert_eq!(task.cancellation_reason(), Some(reason));
        Recorder::note(task, "cancelled");
    }

    fn ended(&self, task: &TaskRef) {
        assert!(task.is_finished());
        Recorder::note(task, "ended");
    }
}

#[test]
fn an_instrument_sees_the_life_of_a_task_in_order() {
    let _alone = alone();
    Recorder::set();
    let pool = ThreadPool::new(1);
    let options = |name: &'static str| SpawnOptions::new().name(name).scheduler(pool.scheduler());
    let scheduler = pool.scheduler();
    let plain = task::detach_with(options("plain"), async move { scheduler.schedule().await });
    task::block_on(plain).unwrap();
    let expected = [
        "spawned",
        "resumed",
        "polled",
        "suspended",
        "resumed",
        "polled",
        "suspended",
        "ended",
    ];
    assert_eq!(Recorder::events("plain"), expected);

    let cancelled = task::detach_with(options("cancelled"), pending::<()>());
    look_until_waiting("cancelled");
    cancelled.cancel();
    assert!(task::block_on(cancelled).is_err());
    let events = Recorder::events("cancelled");
    assert_eq!(
        events.iter().filter(|&&event| event == "cancelled").count(),
        1,
        "{events:?}"
    );
    assert_eq!(events.last(), Some(&"ended"));
    let (begun, ended) = ("polled", "suspended");
    let count = |which| events.iter().filter(|&&event| event == which).count();
    assert_eq!(count(begun), count(ended), "{events:?}");
}

/// The cancellation is seen at once by those who look. The instrument is told when the task leaves the shield.
#[test]
fn an_instrument_is_told_of_a_cancellation_when_the_task_is_polled_next() {
    let _alone = alone();
    Recorder::set();
    let (release, released) = async_channel::bounded::<()>(1);
    let handle = task::detach_with(SpawnOptions::new().name("shielded"), async move {
        _ = task::shield(released.recv()).await;
    });
    look_until_waiting("shielded");
    handle.cancel();
    let tree = task::dump_all();
    assert_eq!(named(&tree, "shielded").unwrap().state(), TaskState::Cancelled);
    let events = Recorder::events("shielded");
    assert_eq!(events.last(), Some(&"suspended"), "{events:?}");
    assert!(!events.contains(&"cancelled"), "{events:?}");
    release.try_send(()).unwrap();
    _ = task::block_on(handle);
    let told = Recorder::events("shielded").split_off(events.len());
    assert_eq!(told, ["resumed", "cancelled", "polled", "suspended", "ended"]);
}

#[test]
fn the_panic_of_an_instrument_disturbs_no_task() {
    let _alone = alone();
    Recorder::set();
    let handle = task::detach_with(SpawnOptions::new().name("panics"), async { 42 });
    assert_eq!(task::block_on(handle).unwrap(), 42);
    EVENTS.clear_poison();
    assert_eq!(Recorder::events("panics").last(), Some(&"ended"));
}

/// The instrument is told of a child that no thread has queued yet, and raises the parent with all its children. It does not wait for
/// itself to queue the child.
#[test]
fn an_instrument_may_raise_the_child_that_it_is_told_of() {
    let _alone = alone();
    Recorder::set();
    let pool = ThreadPool::new(1);
    let (release, released) = async_channel::bounded::<()>(1);
    let options = SpawnOptions::new()
        .priority(Priority::Background)
        .scheduler(pool.scheduler());
    let parent = task::detach_with(options, async move {
        released.recv().await.unwrap();
        task::group(async |group| {
            for _ in 0..40 {
                group.spawn_with(SpawnOptions::new().name("raises"), pending::<()>());
            }
            // All wait when they are cancelled.
            while task::dump_all()
                .iter()
                .filter(|node| node.waits().is_some() && node.name() == Some("raises"))
                .count()
                < 40
            {
                task::yield_now().await;
            }
            group.cancel_all();
            let mut ended = 0;
            while group.next_ended().await.is_some() {
                ended += 1;
            }
            ended
        })
        .await
    });
    *RAISED.lock().unwrap() = Some(parent);
    release.send_blocking(()).unwrap();
    look_until(|tree| named(tree, "raises").is_none() && !Recorder::events("raises").is_empty());
    let parent = RAISED.lock().unwrap().take().unwrap();
    assert_eq!(task::block_on(parent).unwrap(), 40);
    let events = Recorder::events("raises");
    let count = |which| events.iter().filter(|&&event| event == which).count();
    assert_eq!((count("spawned"), count("ended")), (40, 40));
    assert!(count("resumed") >= 80, "{events:?}");
}

#[test]
fn events_of_tasks_that_an_instrument_starts_are_not_observed_while_it_does() {
    let _alone = alone();
    Recorder::set();
    task::block_on(task::detach_with(SpawnOptions::new().name("plain"), async {})).unwrap();
    assert!(!Recorder::events("inside").contains(&"spawned"));
    look_until(TaskTree::is_empty);
}
