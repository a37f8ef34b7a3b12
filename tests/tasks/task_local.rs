//! Task-local values: visibility, lifetime, cost.

use std::cell::Cell;
use std::future::{Future, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, ThreadPool};
use bowline::task::{self, LocalTask, SpawnOptions, Task, TaskGroup, block_on};
use bowline::task_local;
use futures_util::future::{Either, select};

use crate::common::tasks::hops;
use crate::common::{
    Census, Counted, SMALL_STACK, allocations, allocations_so_far, hold, lock, panic_message, quiet_panic, thread,
    with_stack,
};

task_local! {
    /// Attributes are kept.
    static NUMBER: u32;
    pub(crate) static TEXT: String;
    static DEFAULTED: u32 = 7;
    static KEPT: Arc<Counted>
}

/// A plain function, which is passed nothing.
fn number() -> Option<u32> {
    NUMBER.get()
}

/// Runs the task on a run loop, and on pools of several sizes.
fn everywhere<T: Send + 'static>(make: impl Fn() -> Task<T>, check: impl Fn(T)) {
    check(sync_wait(make()).unwrap());
    for threads in [1, 2, 8] {
        let pool = ThreadPool::new(threads);
        check(sync_wait(starts_on(pool.scheduler(), make())).unwrap());
    }
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_value_is_seen_inside_of_its_scope_and_nowhere_else() {
    let make = || {
        Task::new(async {
            let before = number();
            let inside = NUMBER
                .scope(1, async { (number(), NUMBER.with(|number| number + 1)) })
                .await;
            (before, inside, number())
        })
    };
    everywhere(make, |seen| assert_eq!(seen, (None, (Some(1), Some(2)), None)));
}

#[test]
fn it_is_still_seen_after_the_task_was_suspended() {
    let make = || {
        Task::new(NUMBER.scope(1, async {
            let mut seen = Vec::new();
            for _ in 0..3 {
                seen.push(number());
                hops(1).await;
            }
            let elsewhere = ThreadPool::new(1);
            let Ok(()) = starts_on(elsewhere.scheduler(), just(())).await;
            seen.push(number());
            seen
        }))
    };
    everywhere(make, |seen| assert_eq!(seen, [Some(1); 4]));
}

#[test]
fn a_binding_further_in_hides_the_one_further_out() {
    let make = || {
        Task::new(NUMBER.scope(1, async {
            let mut seen = vec![number()];
            NUMBER
                .scope(2, async {
                    seen.push(number());
                    TEXT.scope("text".to_owned(), async { seen.push(number()) }).await;
                })
                .await;
            seen.push(number());
            seen
        }))
    };
    everywhere(make, |seen| assert_eq!(seen, [Some(1), Some(2), Some(2), Some(1)]));
}

#[test]
fn keys_of_one_type_are_told_apart() {
    task_local! {
        static OTHER: u32;
    }
    let inside = NUMBER.scope(1, OTHER.scope(2, async { (NUMBER.get(), OTHER.get()) }));
    assert_eq!(block_on(inside), (Some(1), Some(2)));
}

#[test]
fn the_default_is_made_once_and_hidden_by_a_binding() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    task_local! {
        static MADE_LATE: Arc<usize> = Arc::new(MADE.fetch_add(1, SeqCst));
    }
    assert_eq!(MADE.load(SeqCst), 0);
    let first = MADE_LATE.get().expect("a default");
    let second = sync_wait(Task::new(async { MADE_LATE.get() }))
        .unwrap()
        .expect("a default");
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(MADE.load(SeqCst), 1);
    assert_eq!(
        MADE_LATE.sync_scope(Arc::new(9), || MADE_LATE.with(|number| **number)),
        Some(9)
    );
    assert_eq!(DEFAULTED.get(), Some(7));
}

#[test]
fn tasks_that_are_awaited_see_it_directly_and_in_senders() {
    let make = || {
        Task::new(NUMBER.scope(1, async {
            let Ok(directly) = Task::new(async {
                hops(1).await;
                number()
            })
            .await;
            let Ok(in_a_sender) = Task::new(async {
                hops(1).await;
                number()
            })
            .then(|seen| (seen, number()))
            .await;
            let pool = ThreadPool::new(2);
            let child = || starts_on(pool.scheduler(), Task::new(async { number() }));
            let Ok(elsewhere) = when_all((child(), child())).await;
            (directly, in_a_sender.0, elsewhere)
        }))
    };
    everywhere(make, |seen| {
        assert_eq!(seen, (Some(1), Some(1), (Some(1), Some(1))));
    });
}

#[test]
fn a_task_that_is_awaited_sees_what_is_bound_where_it_is_started() {
    let make = || {
        Task::new(async {
            let made_inside = NUMBER.scope(1, async { Task::new(async { number() }) }).await;
            let Ok(started_outside) = made_inside.await;
            let made_outside = Task::new(async { number() });
            let started_inside = NUMBER.scope(2, made_outside).await;
            (started_outside, started_inside)
        })
    };
    everywhere(make, |seen| assert_eq!(seen, (None, Ok(Some(2)))));
}

#[test]
fn what_a_child_binds_its_parent_does_not_see() {
    let make = || {
        Task::new(NUMBER.scope(1, async {
            let child = Task::new(NUMBER.scope(2, async {
                hops(1).await;
                number()
            }));
            let mut child = pin!(child.into_future());
            let mut seen = Vec::new();
            let in_child = poll_fn(|context| {
                seen.push(number());
                let polled = child.as_mut().poll(context);
                seen.push(number());
                polled
            })
            .await;
            assert_eq!(in_child, Ok(Some(2)));
            seen
        }))
    };
    everywhere(make, |seen| {
        assert!(seen.iter().all(|seen| *seen == Some(1)), "{seen:?}")
    });
}

#[test]
fn two_scopes_that_are_polled_by_turns_do_not_mix() {
    let make = || {
        Task::new(async {
            async fn look(times: u32) -> Vec<Option<u32>> {
                let mut seen = Vec::new();
                for _ in 0..times {
                    seen.push(number());
                    hops(1).await;
                }
                seen
            }
            let (mut one, mut two) = (pin!(NUMBER.scope(1, look(3))), pin!(NUMBER.scope(2, look(5))));
            let (mut ones, mut twos) = (None, None);
            poll_fn(|context| {
                if ones.is_none()
                    && let Poll::Ready(seen) = one.as_mut().poll(context)
                {
                    ones = Some(seen);
                }
                if twos.is_none()
                    && let Poll::Ready(seen) = two.as_mut().poll(context)
                {
                    twos = Some(seen);
                }
                assert_eq!(number(), None);
                if ones.is_some() && twos.is_some() {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            (ones, twos)
        })
    };
    everywhere(make, |(ones, twos)| {
        assert_eq!(ones, Some(vec![Some(1); 3]));
        assert_eq!(twos, Some(vec![Some(2); 5]));
    });
}

#[test]
fn a_task_of_its_own_sees_nothing() {
    let make = || {
        Task::new(NUMBER.scope(1, async {
            let (send, receive) = std::sync::mpsc::channel();
            start_detached(starts_on(
                InlineScheduler,
                Task::new(async move { send.send(number()).expect("somebody waits") }),
            ));
            (
                receive.recv().expect("it ran"),
                sync_wait(Task::new(async { number() })).unwrap(),
                number(),
            )
        }))
    };
    everywhere(make, |seen| assert_eq!(seen, (None, None, Some(1))));
}

#[test]
fn the_future_may_borrow() {
    let mut seen = Vec::new();
    let text = String::from("borrowed");
    block_on(NUMBER.scope(3, async {
        seen.push((number(), text.as_str()));
    }));
    assert_eq!(seen, [(Some(3), "borrowed")]);
}

#[test]
fn a_sender_is_a_future_too() {
    let make = || Task::new(async { NUMBER.scope(1, just(()).then(|()| number())).await });
    everywhere(make, |seen| assert_eq!(seen, Ok(Some(1))));
}

#[test]
fn plain_code_binds_for_a_call() {
    assert_eq!(
        NUMBER.sync_scope(1, || (number(), NUMBER.sync_scope(2, number), number())),
        (Some(1), Some(2), Some(1))
    );
    assert_eq!(number(), None);
    let make = || {
        Task::new(NUMBER.scope(1, async {
            let called = NUMBER.sync_scope(2, || (number(), TEXT.sync_scope(String::new(), number)));
            hops(1).await;
            (called, number())
        }))
    };
    everywhere(make, |seen| assert_eq!(seen, ((Some(2), Some(2)), Some(1))));
}

#[test]
fn a_call_that_panics_binds_no_longer() {
    let message = panic_message(|| NUMBER.sync_scope(1, || panic!("inside")));
    assert_eq!(message, "inside");
    assert_eq!(number(), None);
    let make = || {
        Task::new(async {
            let panicked = catch_unwind(AssertUnwindSafe(|| NUMBER.sync_scope(1, || quiet_panic())));
            (panicked.is_err(), number())
        })
    };
    everywhere(make, |seen| assert_eq!(seen, (true, None)));
}

#[test]
fn a_scope_that_begins_in_a_call_keeps_what_was_bound_there() {
    let census = Census::new();
    let value = Arc::new(census.value());
    let make = {
        let value = value.clone();
        move || {
            let value = value.clone();
            Task::new(async move {
                let mut scope = pin!(NUMBER.scope(1, async {
                    hops(1).await;
                    (number(), KEPT.with(Arc::strong_count).is_some())
                }));
                let first = poll_fn(|context| {
                    let polled = KEPT.sync_scope(value.clone(), || scope.as_mut().poll(context).is_pending());
                    Poll::Ready(polled)
                })
                .await;
                assert!(first && KEPT.get().is_none());
                scope.await
            })
        }
    };
    everywhere(&make, |seen| assert_eq!(seen, (Some(1), true)));
    drop(make);
    assert_eq!(Arc::strong_count(&value), 1, "a binding was lost");
}

#[test]
fn a_task_that_is_polled_in_a_call_sees_what_it_saw_before() {
    let make = || {
        Task::new(NUMBER.scope(1, async {
            let mut child = pin!(
                Task::new(async {
                    let first = number();
                    hops(1).await;
                    (first, number())
                })
                .into_future()
            );
            poll_fn(|context| NUMBER.sync_scope(2, || child.as_mut().poll(context))).await
        }))
    };
    everywhere(make, |seen| assert_eq!(seen, Ok((Some(1), Some(1)))));
}

#[test]
fn it_works_in_executors_of_other_crates() {
    let future = NUMBER.scope(1, async {
        let first = number();
        hops(1).await;
        (first, number())
    });
    assert_eq!(pollster::block_on(future), (Some(1), Some(1)));
    assert_eq!(number(), None);
}

#[test]
fn outside_of_a_task_it_is_seen_while_the_future_is_polled() {
    let mut inner = pin!(NUMBER.scope(2, async {
        hops(1).await;
        number()
    }));
    let mut outer = pin!(NUMBER.scope(
        1,
        poll_fn(|context| {
            assert_eq!(number(), Some(1));
            inner.as_mut().poll(context)
        })
    ));
    assert!(poll_once(outer.as_mut()).is_pending());
    assert_eq!(number(), None);
    assert_eq!(poll_once(outer.as_mut()), Poll::Ready(Some(2)));
}

#[test]
fn local_tasks_have_them_too() {
    let task = LocalTask::new(NUMBER.scope(1, async {
        let kept = Rc::new(Cell::new(0));
        hops(1).await;
        kept.set(number().unwrap_or_default());
        kept.get()
    }));
    assert_eq!(sync_wait(task).unwrap(), 1);
}

/// A value that records what its destructor sees.
struct Looks(Arc<Mutex<Vec<Option<u32>>>>);

impl Drop for Looks {
    fn drop(&mut self) {
        lock(&self.0).push(number());
    }
}

#[test]
fn destructors_of_the_future_see_it_too() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let make = || {
        let looks = Looks(seen.clone());
        async move {
            let _looks = looks;
            hops(1).await;
        }
    };
    // It runs to its end; it is dropped in flight, in a task; and outside of one.
    sync_wait(Task::new(NUMBER.scope(1, make()))).unwrap();
    let half_way = NUMBER.scope(2, make());
    sync_wait(Task::new(async move {
        let mut half_way = Box::pin(half_way);
        poll_fn(|context| Poll::Ready(half_way.as_mut().poll(context).is_pending())).await
    }))
    .unwrap();
    let mut half_way = Box::pin(NUMBER.scope(3, make()));
    assert!(poll_once(half_way.as_mut()).is_pending());
    drop(half_way);
    assert_eq!(*lock(&seen), [Some(1), Some(2), Some(3)]);
}

#[test]
fn the_value_goes_with_the_future() {
    let census = Census::new();
    let counted = census.clone();
    let make = || {
        let counted = counted.clone();
        Task::new(async move {
            let mut alive = Vec::new();
            let mut future = pin!(KEPT.scope(Arc::new(counted.value()), async {}));
            alive.push(counted.alive());
            future.as_mut().await;
            // The scope is over, though the await is still in flight.
            alive.push(counted.alive());
            drop(KEPT.scope(Arc::new(counted.value()), async {}));
            alive.push(counted.alive());
            let Ok(stopped) =
                Task::new(KEPT.scope(Arc::new(counted.value()), async { just_stopped::<(), ()>().await }))
                    .stopped_as_option()
                    .await;
            assert_eq!(stopped, None);
            alive.push(counted.alive());
            alive
        })
    };
    everywhere(make, |alive| assert_eq!(alive, [1, 0, 0, 0]));
}

#[test]
fn a_stop_inside_stops_the_task() {
    let make = || {
        Task::new(async {
            let inner: Task<()> = Task::new(NUMBER.scope(1, async {
                let _ = just_stopped::<(), ()>().await;
                unreachable!("it goes on after a stop");
            }));
            let Ok(ended) = inner.stopped_as_option().await;
            ended.is_none()
        })
    };
    everywhere(make, |stopped| assert!(stopped));
}

/// A value whose destructor panics.
struct Bomb(#[expect(dead_code, reason = "it is counted")] Counted);

impl Drop for Bomb {
    fn drop(&mut self) {
        quiet_panic();
    }
}

#[test]
fn the_panic_of_a_values_destructor_is_caught() {
    task_local! {
        static BOMB: Bomb;
    }
    let census = Census::new();
    let counted = census.clone();
    let make = move || {
        let counted = counted.clone();
        Task::new(async move {
            let after = BOMB.scope(Bomb(counted.value()), async { 5 }).await;
            let called = BOMB.sync_scope(Bomb(counted.value()), || 6);
            drop(BOMB.scope(Bomb(counted.value()), async {}));
            (after, called)
        })
    };
    everywhere(make, |seen| assert_eq!(seen, (5, 6)));
    let message = panic_message(|| BOMB.sync_scope(Bomb(census.value()), || panic!("the call's")));
    assert_eq!(message, "the call's");
    assert_eq!(census.alive(), 0);
}

#[test]
fn reading_allocates_nothing_and_a_binding_is_one_allocation() {
    let task = Task::new(NUMBER.scope(1, async {
        DEFAULTED.get();
        let (_, for_reads) = allocations(|| {
            for _ in 0..100 {
                assert_eq!((number(), DEFAULTED.get()), (Some(1), Some(7)));
            }
        });
        let (_, for_a_call) = allocations(|| NUMBER.sync_scope(2, number));
        // The task has its blocks from here on.
        NUMBER.scope(2, async {}).await;
        let before = allocations_so_far();
        let seen = NUMBER.scope(3, async { number() }).await;
        (for_reads, for_a_call, seen, allocations_so_far() - before)
    }));
    assert_eq!(sync_wait(task).unwrap(), (0, 1, Some(3), 1));
}

#[test]
fn scopes_nest_three_thousand_deep_in_a_small_stack() {
    fn nest(depth: u32) -> Task<Option<usize>> {
        Task::new(NUMBER.scope(depth, async move {
            hops(1).await;
            if depth == 0 {
                return TEXT.with(String::len);
            }
            let Ok(found) = nest(depth - 1).await;
            assert_eq!(number(), Some(depth));
            found
        }))
    }
    const DEPTH: u32 = 3_000;
    with_stack(SMALL_STACK, || {
        let outermost = Task::new(TEXT.scope("found".to_owned(), async { nest(DEPTH).await }));
        assert_eq!(sync_wait(outermost).unwrap(), Ok(Some(5)));
    });
}

#[test]
fn many_threads_read_one_binding() {
    let pool = ThreadPool::new(4);
    let scheduler = pool.scheduler();
    let task = Task::new(TEXT.scope("shared".to_owned(), async move {
        let children = (0..200).map(move |_| {
            starts_on(
                scheduler,
                Task::new(async {
                    let mut seen = 0;
                    for _ in 0..20 {
                        seen += TEXT.with(String::len).unwrap_or_default();
                        hops(1).await;
                    }
                    seen
                }),
            )
        });
        let Ok(seen) = when_all_iter(children).await;
        seen
    }));
    assert_eq!(sync_wait(task).unwrap(), vec![120; 200]);
}

#[test]
fn threads_do_not_see_each_others() {
    NUMBER.sync_scope(1, || {
        let elsewhere = thread::scope(|scope| scope.spawn(number).join().expect("it does not panic"));
        assert_eq!((number(), elsewhere), (Some(1), None));
    });
}

#[test]
fn a_key_says_its_name() {
    assert_eq!(format!("{NUMBER:?}"), "TaskLocal { name: \"NUMBER\", .. }");
    assert!(format!("{:?}", NUMBER.scope(1, async {})).starts_with("TaskLocalFuture"));
}

#[test]
fn children_of_a_group_see_what_is_bound_around_it() {
    let make = || {
        Task::new(NUMBER.scope(
            1,
            task::group(async |group| {
                for _ in 0..10 {
                    group.spawn(async {
                        hops(1).await;
                        (number(), TEXT.get())
                    });
                }
                // A child may still run after this, and does not see it.
                TEXT.scope("inner".to_owned(), async {
                    group.spawn(async { (number(), TEXT.get()) });
                })
                .await;
                let mut seen = Vec::new();
                while let Some(child) = group.next().await {
                    seen.push(child);
                }
                seen
            }),
        ))
    };
    everywhere(make, |seen| assert_eq!(seen, vec![(Some(1), None); 11]));
}

#[test]
fn a_child_of_a_group_rebinds_for_itself_alone() {
    let make = || {
        Task::new(NUMBER.scope(
            1,
            task::group(async |group| {
                for child in 10..14 {
                    group.spawn(NUMBER.scope(child, async move {
                        hops(1).await;
                        assert_eq!(number(), Some(child));
                    }));
                }
                group.wait_for_all().await;
                number()
            }),
        ))
    };
    everywhere(make, |seen| assert_eq!(seen, Some(1)));
}

#[test]
fn a_child_that_is_bound_to_a_variable_sees_what_is_bound_where_it_is_started() {
    let census = Census::new();
    let counted = census.clone();
    let make = || {
        let counted = counted.clone();
        Task::new(async move {
            let seen = KEPT
                .scope(Arc::new(counted.value()), async {
                    let child = task::let_async(async {
                        hops(1).await;
                        (KEPT.get().is_some(), number())
                    });
                    // Later bindings are not visible to the child.
                    NUMBER.scope(1, child).await
                })
                .await;
            (seen, counted.alive())
        })
    };
    everywhere(make, |seen| assert_eq!(seen, ((true, None), 0)));
}

#[test]
fn a_detached_task_sees_nothing_unless_it_is_told_to() {
    let census = Census::new();
    let counted = census.clone();
    let make = || {
        let counted = counted.clone();
        Task::new(async move {
            let (plain, told) = KEPT
                .scope(
                    Arc::new(counted.value()),
                    NUMBER.scope(1, async {
                        let look = || async {
                            hops(1).await;
                            (number(), KEPT.get().is_some())
                        };
                        let told = SpawnOptions::new().inherit_locals();
                        (task::detach(look()), task::detach_with(told, look()))
                    }),
                )
                .await;
            (plain.await.expect("it ran"), told.await.expect("it ran"))
        })
    };
    everywhere(make, |seen| assert_eq!(seen, ((None, false), (Some(1), true))));
    assert_eq!(census.alive(), 0);
}

#[test]
fn spawning_costs_the_same_whatever_is_bound() {
    fn spawns() -> impl Future<Output = usize> + Send {
        task::group(async |group: TaskGroup<()>| {
            let before = allocations_so_far();
            for _ in 0..10 {
                group.spawn(async {});
            }
            let spawned = allocations_so_far() - before;
            group.wait_for_all().await;
            spawned
        })
    }
    fn bound(depth: u32) -> Pin<Box<dyn Future<Output = usize> + Send>> {
        if depth == 0 {
            return Box::pin(spawns());
        }
        Box::pin(NUMBER.scope(depth, bound(depth - 1)))
    }
    let cost = |depth| sync_wait(Task::new(bound(depth))).unwrap();
    // The memory of ended scopes is reused.
    cost(0);
    let without = cost(0);
    for depth in [1, 100] {
        assert_eq!(cost(depth), without, "{depth} bindings");
    }
}

/// A scope moved out of the scope it began in continues as before: it sees the same values, and keeps them alive.
#[test]
fn a_scope_that_is_taken_out_of_the_one_it_began_in_goes_on() {
    let census = Census::new();
    let counted = census.clone();
    let make = || {
        let counted = counted.clone();
        Task::new(async move {
            let kept = Arc::new(counted.value());
            let mut inner = Box::pin(NUMBER.scope(1, async {
                hops(1).await;
                (number(), KEPT.get().is_some())
            }));
            KEPT.scope(
                kept,
                poll_fn(|context| {
                    assert!(inner.as_mut().poll(context).is_pending());
                    Poll::Ready(())
                }),
            )
            .await;
            let outside = (number(), KEPT.get().is_some());
            // The bindings are kept as long as they can be read.
            let before = counted.alive();
            let inside = inner.await;
            (inside, outside, before, counted.alive())
        })
    };
    everywhere(make, |seen| {
        assert_eq!(seen, ((Some(1), true), (None, false), 1, 0));
    });
}

/// The loser of a race is still in flight when the scope is left.
#[test]
fn the_winner_of_a_race_inside_leaves_the_scope_at_once() {
    let busy = ThreadPool::new(1);
    let census = Census::new();
    let make = || {
        let (counted, scheduler) = (census.clone(), busy.scheduler());
        Task::new(async move {
            let worker = hold(scheduler);
            let (value, kept) = (counted.value(), Arc::new(counted.value()));
            let stuck = scheduler.schedule().unstoppable().then(move |()| drop(value));
            let inside = async move {
                match select(stuck.into_future(), ready(())).await {
                    Either::Left(_) => None,
                    Either::Right(_) => number(),
                }
            };
            let won = KEPT.scope(kept, NUMBER.scope(1, inside)).await;
            // The loser can end only from here on. It is in flight, and the values that it can see are alive.
            let alive = counted.alive();
            drop(worker);
            (won, alive)
        })
    };
    everywhere(make, |seen| {
        assert_eq!(seen, (Some(1), 2));
        assert_eq!(census.alive(), 0);
    });
}
