//! The current task: its identity and its facts, on any thread and after its end; and the tree below it.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};

use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, PoolScheduler, ThreadPool};
use bowline::stop::StopSource;
use bowline::task::{self, LocalTask, Reason, SpawnOptions, Task, TaskGroup, TaskRef, TaskState, block_on};

use crate::common::tasks::hops;
use crate::common::{self, DEEP_STACK, allocations, allocations_so_far, thread, with_stack};

/// A plain function, which is passed nothing.
fn me() -> TaskRef {
    task::current().expect("a task around this")
}

/// Runs the task on a run loop, and on pools of several sizes.
fn everywhere<T: Send + 'static>(make: impl Fn() -> Task<T>, check: impl Fn(T)) {
    check(sync_wait(make()).unwrap());
    for threads in [1, 2, 8] {
        let pool = ThreadPool::new(threads);
        check(sync_wait(starts_on(pool.scheduler(), make())).unwrap());
    }
}

const _: () = {
    const fn is_shared<T: Send + Sync + Clone + Eq + std::hash::Hash>() {}
    is_shared::<TaskRef>();
};

#[test]
fn there_is_none_outside() {
    assert_eq!(task::current(), None);
    assert!(task::dump().is_none());
    assert_eq!(sync_wait(just_from(task::current)).unwrap(), None);
    sync_wait(Task::new(async { me() })).unwrap();
    assert_eq!(task::current(), None, "it was left behind");
}

#[test]
fn there_is_none_in_a_completion() {
    let seen = sync_wait(Task::new(async { me() }).then(|inside| (inside, task::current()))).unwrap();
    assert_eq!(seen.1, None);
    assert!(seen.0.is_finished());
}

#[test]
fn a_task_is_the_same_wherever_it_goes_on() {
    let make = || {
        Task::new(async {
            let first = me();
            hops(1).await;
            let elsewhere = ThreadPool::new(1);
            let Ok(()) = starts_on(elsewhere.scheduler(), just(())).await;
            assert!(!first.is_finished());
            (first, me())
        })
    };
    everywhere(make, |(first, second)| {
        assert_eq!(first, second);
        assert_eq!(first.id(), second.id());
    });
}

#[test]
fn a_task_that_is_awaited_directly_is_part_of_the_one_that_awaits_it() {
    let make = || {
        Task::new(async {
            let Ok(inside) = Task::new(async {
                hops(1).await;
                me()
            })
            .await;
            (me(), inside)
        })
    };
    everywhere(make, |(outer, inside)| assert_eq!(outer, inside));
}

#[test]
fn a_child_is_another_one_whose_parent_waits() {
    let make = || {
        Task::new(async {
            let pool = ThreadPool::new(2);
            let child = || {
                starts_on(
                    pool.scheduler(),
                    Task::new(async {
                        hops(1).await;
                        let me = me();
                        assert_eq!(me.parent().as_ref().map(TaskRef::is_finished), Some(false));
                        me
                    }),
                )
            };
            let Ok((one, two)) = when_all((child(), child())).await;
            assert!(one.is_finished() && two.is_finished());
            // The first query here, though the children's queries created the record.
            (me(), one, two)
        })
    };
    everywhere(make, |(parent, one, two)| {
        let ids = HashSet::from([parent.id(), one.id(), two.id()]);
        assert_eq!(ids.len(), 3);
        assert_ne!(one, two);
        assert_eq!(one.parent(), Some(parent.clone()));
        assert_eq!(two.parent(), Some(parent.clone()));
        assert_eq!(parent.parent(), None);
        assert!(parent.is_finished());
    });
}

#[test]
fn a_task_that_waits_is_back_when_the_one_inside_is_done() {
    let seen = block_on(async {
        let before = me();
        let inside = sync_wait(Task::new(async { me() })).unwrap();
        (before, inside, me())
    });
    assert_eq!(seen.0, seen.2);
    assert_ne!(seen.0, seen.1);
    assert_eq!(seen.1.parent(), None, "nobody waits for it by structure");
}

#[test]
fn local_tasks_are_tasks() {
    let task = LocalTask::new(async { (me(), me()) });
    let (first, second) = sync_wait(task).unwrap();
    assert_eq!(first, second);
    assert!(first.is_finished());
}

#[test]
fn it_is_equal_to_itself_on_every_thread_and_a_key() {
    let make = || {
        Task::new(async {
            let me = me();
            let names = Arc::new(HashMap::from([(me.clone(), "me")]));
            thread::scope(|scope| {
                for _ in 0..3 {
                    let (there, names) = (me.clone(), names.clone());
                    scope.spawn(move || {
                        assert_eq!(task::current(), None);
                        assert_eq!(names.get(&there), Some(&"me"));
                        assert!(!there.is_finished());
                    });
                }
            });
            let Ok(other) = Task::new(async { self::me() }).then(|other| other).await;
            assert_eq!(names.get(&other), None);
            me
        })
    };
    everywhere(make, |me| assert!(me.is_finished()));
}

#[test]
fn the_priority_is_that_of_the_task() {
    assert_eq!(task::priority(), Priority::Default);
    let make = || {
        Task::new(async {
            let me = me();
            let there = thread::scope(|scope| scope.spawn(|| me.priority()).join().expect("it does not panic"));
            (me, task::priority(), task::base_priority(), there)
        })
    };
    let utility = || make().write_env(With(Priority::Utility));
    let pool = ThreadPool::new(2);
    for (me, first, second, there) in [
        sync_wait(utility()).unwrap(),
        sync_wait(starts_on(pool.scheduler(), utility())).unwrap(),
    ] {
        assert_eq!([first, second, there, me.priority()], [Priority::Utility; 4]);
    }
    let (me, first, ..) = sync_wait(make()).unwrap();
    assert_eq!((me.priority(), first), (Priority::Default, Priority::Default));
}

#[test]
fn cancelled_is_seen_at_once_from_elsewhere_and_kept() {
    let source = StopSource::new();
    let requests = source.clone();
    let task = Task::new(async move {
        let me = me();
        let before = me.is_cancelled();
        requests.request_stop();
        let after = thread::scope(|scope| scope.spawn(|| me.is_cancelled()).join().expect("it does not panic"));
        (me, before, after)
    });
    let (me, before, after) = sync_wait(task.write_env(WithStopToken(source.token()))).unwrap();
    drop(source);
    assert_eq!((before, after, me.is_cancelled()), (false, true, true));
    assert_eq!(me.cancellation_reason(), Some(Reason::Requested));
}

#[test]
fn what_comes_after_the_end_is_not_told() {
    let source = StopSource::new();
    let me = sync_wait(Task::new(async { me() }).write_env(WithStopToken(source.token()))).unwrap();
    source.request_stop();
    assert!(me.is_finished() && !me.is_cancelled());
    assert_eq!(me.cancellation_reason(), None);
    assert_eq!(
        (me.deadline(), me.name(), me.priority()),
        (None, None, Priority::Default)
    );
}

#[test]
fn a_stopped_task_and_one_that_panics_have_ended_too() {
    for panics in [false, true] {
        let (send, receive) = mpsc::channel();
        let task: Task<()> = Task::new(async move {
            send.send(me()).expect("somebody waits");
            if panics {
                common::quiet_panic();
            }
            let _ = just_stopped::<(), ()>().await;
        });
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sync_wait(task)));
        assert_eq!(ended.is_err(), panics);
        assert!(receive.recv().expect("it ran").is_finished());
    }
}

#[test]
fn a_child_that_a_task_let_go_of_has_ended_before_it() {
    let make = || {
        Task::new(async {
            let (send, receive) = mpsc::channel();
            let child = Task::new(async move {
                send.send(me()).expect("somebody waits");
                never::<(), ()>().await
            });
            let mut child = Box::pin(child.then(|result| result).into_future());
            poll_fn(|context| {
                assert!(child.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            let child_ref = poll_fn(move |context| match receive.try_recv() {
                Ok(child) => Poll::Ready(child),
                Err(_) => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            })
            .await;
            assert!(!child_ref.is_finished());
            drop(child);
            assert!(child_ref.is_cancelled());
            child_ref
        })
    };
    everywhere(make, |child| {
        assert!(child.is_finished());
        assert!(child.parent().is_some_and(|parent| parent.is_finished()));
    });
}

#[test]
fn numbers_are_never_used_twice() {
    let mut seen = HashSet::new();
    for _ in 0..1000 {
        let me = sync_wait(Task::new(async { me() })).unwrap();
        assert!(seen.insert(me.id()), "{me:?}");
        assert_eq!(me.id().to_string(), me.id().as_u64().to_string());
    }
}

#[test]
fn a_task_that_nobody_asks_about_allocates_nothing_more() {
    let children = || {
        Task::new(async {
            let Ok(((), ())) = when_all((Task::new(hops(1)), Task::new(hops(1)))).await;
        })
    };
    sync_wait(children()).unwrap();
    let (_, count) = allocations(|| sync_wait(children()).unwrap());
    // The three tasks and their blocks are from the thread's slabs. There are none under a sanitizer.
    assert_eq!(count, if cfg!(sanitized = "address") { 6 } else { 0 });
}

#[test]
fn asking_is_one_allocation_for_the_task_and_none_later() {
    let task = Task::new(async {
        let before = allocations_so_far();
        let first = me();
        let asked = allocations_so_far();
        let again = (0..100).all(|_| me() == first);
        let facts = (
            first.priority(),
            first.is_cancelled(),
            first.deadline(),
            first.is_finished(),
        );
        (asked - before, allocations_so_far() - asked, again, facts)
    });
    let (first, later, again, facts) = sync_wait(task).unwrap();
    assert_eq!((first, later, again), (1, 0, true));
    assert_eq!(facts, (Priority::Default, false, None, false));
    assert_eq!(allocations(task::current).1, 0);
}

/// Returns a task that awaits the next as a sender, and so as a child task, down to one that runs `last`.
fn nest(depth: usize, last: impl FnOnce() -> TaskRef + Send + 'static) -> Task<TaskRef> {
    Task::new(async move {
        if depth == 0 {
            return last();
        }
        let Ok(found) = nest(depth - 1, last).then(|found| found).await;
        found
    })
}

const DEEP: usize = if cfg!(sanitized) { 2_000 } else { 100_000 };

#[test]
fn a_hundred_thousand_parents_are_made_and_go_without_recursion() {
    with_stack(DEEP_STACK, || {
        let leaf = sync_wait(nest(DEEP, me)).unwrap();
        let mut depth = 0;
        let mut above = leaf.parent();
        while let Some(task) = above {
            assert!(task.is_finished());
            above = task.parent();
            depth += 1;
        }
        assert_eq!(depth, DEEP);
        drop(leaf);
    });
}

#[test]
fn a_deep_tree_is_shown_in_a_small_stack_and_within_bounds() {
    with_stack(DEEP_STACK, || {
        let leaf = nest(DEEP, || {
            let mut root = me();
            while let Some(parent) = root.parent() {
                root = parent;
            }
            let tree = root.tree();
            assert_eq!(tree.iter().count(), 1000);
            assert_eq!(tree.root().unwrap().task(), &root);
            assert_eq!(
                tree.iter().last().map(|last| (last.depth(), last.others())),
                Some((999, 1))
            );
            assert!(tree.to_string().len() < 200_000);
            root
        });
        sync_wait(leaf).unwrap();
    });
}

/// Returns a child on the pool that queries itself, and then waits for a signal to end.
fn waiting_child(
    pool: PoolScheduler,
    arrived: mpsc::Sender<TaskRef>,
    go: &Arc<AtomicBool>,
) -> impl Sender<Value = (), Error = std::convert::Infallible> + Send + 'static + use<> {
    let go = go.clone();
    starts_on(
        pool,
        Task::new(async move {
            arrived.send(me()).expect("somebody waits");
            while !go.load(SeqCst) {
                hops(1).await;
            }
        }),
    )
}

#[test]
fn a_dump_shows_which_children_have_not_ended() {
    for threads in [1, 2, 8] {
        let pool = ThreadPool::new(threads);
        let scheduler = pool.scheduler();
        let (arrived, arrives) = mpsc::channel();
        let go = [false, false].map(|go| Arc::new(AtomicBool::new(go)));
        let parent = {
            let children = go.each_ref().map(|go| waiting_child(scheduler, arrived.clone(), go));
            Task::new(async move {
                let [one, two] = children;
                let Ok(((), ())) = when_all((one, two)).await;
            })
        };
        thread::scope(|scope| {
            let waits = scope.spawn(move || sync_wait(parent).unwrap());
            let (one, two) = (arrives.recv().expect("it runs"), arrives.recv().expect("it runs"));
            let parent = one.parent().expect("a parent");
            let tree = parent.tree();
            let shown: HashSet<_> = tree.root().unwrap().children().map(|child| child.id()).collect();
            assert_eq!(shown, HashSet::from([one.id(), two.id()]));
            assert_eq!(tree.root().unwrap().state(), TaskState::Running);
            assert_eq!(tree.iter().map(|node| node.depth()).collect::<Vec<_>>(), [0, 1, 1]);
            let text = tree.to_string();
            assert_eq!(text.lines().count(), 3, "{text}");
            assert!(
                text.contains(&format!("\n  task {}: running, priority Default\n", one.id())),
                "{text}"
            );

            go[0].store(true, SeqCst);
            go[1].store(true, SeqCst);
            waits.join().expect("it does not panic");
            let tree = parent.tree();
            assert_eq!(tree.root().unwrap().state(), TaskState::Finished);
            assert_eq!(tree.root().unwrap().children().count(), 0);
            assert!(format!("{tree:?}").contains("Finished"));
        });
    }
}

#[test]
fn a_dump_shows_what_was_cancelled_and_does_not_end() {
    let source = StopSource::new();
    let requests = source.clone();
    let task = Task::new(async move {
        requests.request_stop();
        let tree = task::dump().expect("a task");
        assert_eq!(tree.root().unwrap().task(), &me());
        tree.root().unwrap().state()
    });
    let seen = sync_wait(task.write_env(WithStopToken(source.token()))).unwrap();
    assert_eq!(seen, TaskState::Cancelled);
}

#[test]
fn asking_races_with_the_end() {
    let pool = ThreadPool::new(2);
    let (send, receive) = mpsc::channel::<TaskRef>();
    thread::scope(|scope| {
        let asks = scope.spawn(move || {
            let mut finished = 0;
            for task in receive {
                // Both queries are answered, in any state.
                assert_eq!(task.priority(), Priority::Utility);
                assert!(task.tree().root().unwrap().children().count() <= 1);
                finished += usize::from(task.is_finished());
                drop(task);
            }
            finished
        });
        for _ in 0..2000 {
            let send = send.clone();
            let task = Task::new(async move {
                send.send(me()).expect("somebody asks");
                let child = Task::new(async move { send.send(me()).expect("somebody asks") });
                let Ok(()) = child.then(|()| ()).await;
            });
            sync_wait(starts_on(pool.scheduler(), task.write_env(With(Priority::Utility)))).unwrap();
        }
        drop(send);
        assert!(asks.join().expect("it does not panic") <= 4000);
    });
}

#[test]
fn a_task_is_told_apart_in_a_destructor_too() {
    struct Looks(mpsc::Sender<Option<TaskRef>>);
    impl Drop for Looks {
        fn drop(&mut self) {
            self.0.send(task::current()).expect("somebody waits");
        }
    }
    let (send, receive) = mpsc::channel();
    let task = Task::new(async move {
        let _looks = Looks(send);
        me()
    });
    let me = sync_wait(starts_on(InlineScheduler, task)).unwrap();
    assert_eq!(receive.recv().expect("it was dropped"), Some(me));
}

#[test]
fn it_says_what_it_is() {
    let me = sync_wait(Task::new(async { me() })).unwrap();
    let expected = format!("TaskRef {{ id: {}, name: None, is_finished: true, .. }}", me.id());
    assert_eq!(format!("{me:?}"), expected);
    assert_eq!(format!("{:?}", me.id()), format!("TaskId({})", me.id()));
}

#[test]
fn children_of_a_group_are_tasks_with_names() {
    let make = || {
        Task::new(async {
            let parent = me();
            let group = task::group(async |group: TaskGroup<TaskRef>| {
                for number in 0..4 {
                    let options = SpawnOptions::new().name(format!("child {number}"));
                    group.spawn_with(options, async {
                        hops(1).await;
                        let me = me();
                        assert!(me.name().is_some_and(|name| name.starts_with("child ")));
                        me
                    });
                }
                group.spawn(async { me() });
                let mut children = Vec::new();
                while let Some(child) = group.next().await {
                    children.push(child);
                }
                children
            });
            (parent, group.await)
        })
    };
    everywhere(make, |(parent, children)| {
        let names: HashSet<_> = children.iter().map(TaskRef::name).collect();
        assert_eq!(names.len(), 5, "{children:?}");
        assert!(names.contains(&Some("child 2")) && names.contains(&None));
        for child in children {
            assert_eq!(child.parent(), Some(parent.clone()));
            assert_ne!(child, parent);
            assert!(child.is_finished());
        }
    });
}

#[test]
fn a_child_of_a_child_has_both_above_it() {
    let make = || {
        Task::new(async {
            let top = me();
            let above = task::group(async |group: TaskGroup<Vec<TaskRef>>| {
                group.spawn(task::group(async |inner: TaskGroup<Vec<TaskRef>>| {
                    inner.spawn(async { std::iter::successors(Some(me()), TaskRef::parent).collect() });
                    inner.next().await.expect("it ran")
                }));
                group.next().await.expect("it ran")
            })
            .await;
            (top, above)
        })
    };
    everywhere(make, |(top, above)| {
        assert_eq!(above.len(), 3);
        assert_eq!(above.last(), Some(&top));
    });
}

#[test]
fn a_child_bound_to_a_variable_is_a_task_with_a_parent() {
    let make = || {
        Task::new(async {
            let child = task::let_async(async { me() });
            (me(), child.await)
        })
    };
    everywhere(make, |(parent, child)| assert_eq!(child.parent(), Some(parent)));
}

#[test]
fn a_detached_task_has_no_parent_and_its_handle_knows_it() {
    let make = || {
        Task::new(async {
            let handle = task::detach(async {
                hops(1).await;
                me()
            });
            let detached = handle.task();
            let again = handle.task();
            assert_eq!(detached, again);
            (me(), detached, handle.await.expect("it ran"))
        })
    };
    everywhere(make, |(parent, detached, inside)| {
        assert_ne!(parent, detached);
        assert_eq!(detached, inside);
        assert_eq!(detached.parent(), None);
        assert!(detached.is_finished());
    });
}

#[test]
fn a_handle_knows_its_task_after_the_end_too() {
    let asked = task::detach(async { me() });
    let unasked = task::detach(async {});
    // The task's end is visible before that of its awaits.
    let (mut asked, mut unasked) = (Box::pin(asked), Box::pin(unasked));
    let inside = block_on(asked.as_mut()).expect("it ran");
    block_on(unasked.as_mut()).expect("it ran");
    assert_eq!(asked.task(), inside);
    let first = unasked.task();
    assert!(first.is_finished());
    assert_eq!(first, unasked.task());
    assert_ne!(first, asked.task());
    assert_eq!(first.tree().root().unwrap().state(), TaskState::Finished);
    drop((asked, unasked));
    assert_eq!((first.priority(), first.is_cancelled()), (Priority::Default, false));
}

#[test]
fn handles_ask_while_their_tasks_end() {
    let pool = ThreadPool::new(2);
    for round in 0..2000 {
        let options = SpawnOptions::new()
            .scheduler(pool.scheduler())
            .priority(Priority::Utility);
        let handle = task::detach_with(options, async move { (round % 2 == 0).then(me) });
        let seen = handle.task();
        assert_eq!(seen.priority(), Priority::Utility);
        if let Some(inside) = block_on(handle).expect("it ran") {
            assert_eq!(seen, inside);
        }
        assert!(seen.is_finished());
    }
}

#[test]
fn a_cancelled_child_says_so_and_its_parent_does_not() {
    let make = || {
        Task::new(async {
            let group = task::group(async |group: TaskGroup<()>| {
                let (send, receive) = mpsc::channel();
                group.spawn(async move {
                    send.send(me()).expect("somebody waits");
                    never::<(), ()>().await.unwrap_or_default();
                });
                let child = poll_fn(move |context| match receive.try_recv() {
                    Ok(child) => Poll::Ready(child),
                    Err(_) => {
                        context.waker().wake_by_ref();
                        Poll::Pending
                    }
                })
                .await;
                assert!(!child.is_cancelled());
                group.cancel_all();
                assert!(child.is_cancelled());
                child
            });
            let child = group.await;
            (child, me().is_cancelled())
        })
    };
    everywhere(make, |(child, parent)| {
        assert!(child.is_cancelled() && child.is_finished());
        assert!(!parent);
    });
}

#[test]
fn a_dump_names_the_child_that_a_group_waits_for_and_counts_the_others() {
    for threads in [1, 2, 8] {
        let pool = ThreadPool::new(threads);
        let go = Arc::new(AtomicBool::new(false));
        let (arrived, arrives) = mpsc::channel();
        let task = {
            let go = go.clone();
            let waits = move || {
                let go = go.clone();
                async move {
                    while !go.load(SeqCst) {
                        hops(1).await;
                    }
                }
            };
            Task::new(async move {
                let variable = task::let_async(waits());
                task::group(async |group: TaskGroup<()>| {
                    group.spawn_with(SpawnOptions::new().name("never ends"), waits());
                    for _ in 0..3 {
                        group.spawn(waits());
                    }
                    arrived.send(me()).expect("somebody waits");
                })
                .await;
                variable.await;
            })
        };
        thread::scope(|scope| {
            let waits = scope.spawn(|| sync_wait(starts_on(pool.scheduler(), task)).unwrap());
            let parent = arrives.recv().expect("it runs");
            let tree = parent.tree();
            let shown: Vec<_> = tree
                .root()
                .unwrap()
                .children()
                .map(|child| (child.name(), child.state()))
                .collect();
            assert_eq!(shown, [(Some("never ends"), TaskState::Running)]);
            assert_eq!(tree.root().unwrap().others(), 4);
            let text = tree.to_string();
            assert!(text.contains("\"never ends\": running, priority Default\n"), "{text}");
            assert!(text.contains("\n  4 more tasks\n"), "{text}");
            go.store(true, SeqCst);
            waits.join().expect("it does not panic");
            assert_eq!(parent.tree().to_string().lines().count(), 1);
        });
    }
}

#[test]
fn a_name_costs_what_is_kept_for_it_and_nothing_else_does() {
    let task = Task::new(task::group(async |group: TaskGroup<()>| {
        let child = || async {};
        // A warm-up: the first child of a thread may allocate a slab.
        group.spawn(child());
        let before = allocations_so_far();
        group.spawn(child());
        let plain = allocations_so_far() - before;
        // The first one also creates the record of the parent.
        group.spawn_with(SpawnOptions::new().name("first"), child());
        let before = allocations_so_far();
        group.spawn_with(SpawnOptions::new().name("second"), child());
        (plain, allocations_so_far() - before)
    }));
    // The child is from the thread's slabs. A named one also has start data and a record.
    let child = usize::from(cfg!(sanitized = "address"));
    assert_eq!(sync_wait(task).unwrap(), (child, child + 2));
}

#[test]
fn a_child_has_the_deadline_of_what_it_was_started_in() {
    let make = || {
        Task::new(async {
            let deadline = Instant::now() + Duration::from_secs(3600);
            let child = task::with_deadline(
                deadline,
                task::group(async |group: TaskGroup<TaskRef>| {
                    group.spawn(async { me() });
                    group.next().await.expect("it ran")
                }),
            );
            let child = child.await.expect("it is early");
            (child, me(), deadline)
        })
    };
    everywhere(make, |(child, parent, deadline)| {
        assert_eq!(child.deadline(), Some(deadline));
        assert_eq!(parent.deadline(), None, "it is that of a part of it");
    });
}
