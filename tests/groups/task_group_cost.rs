//! The costs of groups: allocations, stack, and counted steps.

use std::alloc::Layout;
use std::future::{Future, pending};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::tasks::*;
use crate::common::*;
use allocator_api2::alloc::{AllocError, Allocator, Global};
use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::task::{self, CurrentAllocator, SpawnErrorKind, SpawnOptions, Task, TaskGroup};
use tokio::sync::oneshot;

// Allocations.

/// Returns how often a body on this thread's loop allocates.
fn allocates<F>(body: F) -> usize
where
    F: Future<Output = ()> + Send + 'static,
{
    let task = Task::new(body);
    let (outcome, count) = allocations(|| sync_wait(task));
    outcome.unwrap();
    count
}

/// The task's block for awaits, which may be from its thread's cache.
const MEMORY: usize = 1;

#[test]
fn a_group_is_one_allocation_and_each_child_at_most_one() {
    let alone = allocates(async { task::group::<(), _, _>(async |_| ()).await });
    assert!(alone <= 1 + MEMORY, "{alone}");
    // In a task that has its block.
    let again = allocates(async {
        task::group::<(), _, _>(async |_| ()).await;
        let before = allocations_so_far();
        task::group::<(), _, _>(async |_| ()).await;
        assert!(allocations_so_far() - before <= 1);
    });
    assert!(again <= 3 + MEMORY, "{again}");
    for children in [1, 10, 100] {
        let count = allocates(async move {
            task::group(async move |group| {
                for number in 0..children {
                    group.spawn(async move {
                        wakes_itself(1).await;
                        number
                    });
                }
                let mut sum = 0;
                while let Some(number) = group.next().await {
                    sum += number;
                }
                assert_eq!(sum, children * (children - 1) / 2);
            })
            .await;
        });
        // A child that waits for a foreign future has a block, from the slabs, by which a stop wakes it.
        let each = if cfg!(sanitized = "address") { 2 } else { 1 };
        assert!(count <= 1 + MEMORY + each * children, "{count} for {children} children");
    }
}

#[test]
fn a_child_that_is_refused_allocates_nothing() {
    let count = allocates(async {
        task::group(async |group| {
            group.cancel_all();
            let ((), count) = allocations(|| {
                for _ in 0..100 {
                    group.spawn(async {});
                    assert_eq!(group.try_spawn(async {}).unwrap_err().kind(), SpawnErrorKind::Cancelled);
                }
            });
            assert_eq!(count, 0);
        })
        .await;
    });
    assert!(count <= 1 + MEMORY, "{count}");
}

#[test]
fn waiting_allocates_nothing() {
    let count = allocates(async {
        task::group(async |group| {
            let (tell, told) = oneshot::channel::<()>();
            group.spawn(async { told.await.expect("it is told") });
            wakes_itself(2).await;
            group.set_limit(1);
            let mut before = 0;
            for round in 0..100 {
                if round == 1 {
                    // The task has its blocks from here on.
                    before = allocations_so_far();
                }
                assert!(poll_here(group.next()).await);
                assert!(poll_here(group.wait_for_all()).await);
                assert!(poll_here(group.spawn_when_ready(async {})).await);
                assert!(poll_here(group.ready()).await);
            }
            assert_eq!(allocations_so_far() - before, 0);
            tell.send(()).expect("it waits");
        })
        .await;
    });
    // The group, the child, the channel, the memory of the child, and that of the task, which grows with the first round.
    let blocks = if cfg!(sanitized = "address") { 4 } else { 2 };
    assert!(count <= 3 + blocks * MEMORY, "{count}");
}

#[test]
fn a_child_without_a_handle_pays_for_none() {
    let spawned = |children: usize, spawn: fn(&TaskGroup<()>)| {
        allocates(async move {
            task::group(async move |group| {
                for _ in 0..children {
                    spawn(&group);
                }
                group.wait_for_all().await;
            })
            .await;
        })
    };
    let children = 100;
    let plain = spawned(children, |group| group.spawn_with(SpawnOptions::new(), async {}));
    // The task has a block for the group, and one for the wait.
    assert!(plain <= 1 + 2 * MEMORY + children, "{plain}");
    // The frame, the place, and the part that the handle shares.
    let with_handle = spawned(children, |group| {
        group.spawn_with(SpawnOptions::new().cancellable(), async {}).cancel();
    });
    assert!(with_handle <= 1 + 2 * MEMORY + 3 * children, "{with_handle}");
}

#[test]
fn results_that_are_there_need_no_timer() {
    let count = allocates(async {
        task::group(async |group| {
            for number in 0..100 {
                group.spawn(async move { number });
            }
            group.wait_for_all().await;
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(3600);
            let before = allocations_so_far();
            let mut sum = 0;
            while let Some(number) = group.next_until(deadline).await {
                sum += number;
            }
            assert_eq!((sum, allocations_so_far() - before), (4950, 0));
        })
        .await;
    });
    assert!(count <= 1 + 2 * MEMORY + 100, "{count}");
}

/// Polls a future once, without a box, and returns whether it was pending.
async fn poll_here(future: impl Future) -> bool {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

/// A counting allocator.
#[derive(Clone, Copy, Debug)]
struct Arena(&'static Counts);

#[derive(Debug, Default)]
struct Counts {
    given: AtomicUsize,
    alive: AtomicUsize,
    most: AtomicUsize,
    is_empty: std::sync::atomic::AtomicBool,
}

impl Arena {
    fn new() -> Self {
        Arena(for_good(Counts::default()))
    }

    fn counts(&self) -> (usize, usize) {
        (self.0.given.load(SeqCst), self.0.alive.load(SeqCst))
    }
}

// SAFETY: forwards to the global allocator.
unsafe impl Allocator for Arena {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if self.0.is_empty.load(SeqCst) {
            return Err(AllocError);
        }
        self.0.given.fetch_add(1, SeqCst);
        let alive = self.0.alive.fetch_add(1, SeqCst) + 1;
        self.0.most.fetch_max(alive, SeqCst);
        Global.allocate(layout)
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        self.0.alive.fetch_sub(1, SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { Global.deallocate(memory, layout) };
    }
}

#[test]
fn an_allocator_of_its_own_serves_the_child_and_is_seen_in_it() {
    everywhere(|| async {
        let arena = Arena::new();
        task::group(async |group| {
            for _ in 0..10 {
                let options = SpawnOptions::new().allocator(arena);
                group.spawn_with(options, async {
                    let Ok(allocator) = read_env(CurrentAllocator).await;
                    Task::new_in(async { 1 }, allocator).await.unwrap()
                });
            }
            let mut sum = 0;
            while let Some(one) = group.next().await {
                sum += one;
            }
            assert_eq!(sum, 10);
        })
        .await;
        // One for the child, and one for the task that it created.
        assert_eq!(arena.counts(), (20, 0));
    });
}

#[test]
fn a_child_for_which_there_is_no_memory_is_refused_and_dropped() {
    everywhere(|| async {
        let (arena, census) = (Arena::new(), Census::new());
        arena.0.is_empty.store(true, SeqCst);
        task::group(async |group| {
            let held = census.value();
            let options = SpawnOptions::new().allocator(arena);
            let spawned = group.try_spawn_with(options, async move { drop(held) });
            assert_eq!(spawned.unwrap_err().kind(), SpawnErrorKind::OutOfMemory);
            assert_eq!((census.alive(), group.len()), (0, 0));
        })
        .await;
    });
}

#[test]
fn what_a_scheduler_of_the_users_own_needs_is_given_back_also_by_a_child_that_is_refused() {
    let pool = ThreadPool::new(1);
    let arena = Arena::new();
    let options = || SpawnOptions::new().scheduler(Via(pool.scheduler())).allocator(arena);
    let task = Task::new(async { task::group(async |group| group).await });
    let group: TaskGroup<()> = sync_wait(task).unwrap();
    let spawned = group.try_spawn_with(options(), async {});
    assert_eq!(spawned.unwrap_err().kind(), SpawnErrorKind::Ended);
    assert_eq!(arena.counts().1, 0, "something is left");
    // And by one that has run.
    let (first, second) = (options(), options());
    let task = Task::new(task::group(async move |group| {
        group.spawn_with(first, hops(3));
        group.spawn_with(second, until_stopped());
        group.next().await;
        group.cancel_all();
    }));
    sync_wait(task).unwrap();
    assert_eq!(arena.counts().1, 0, "something is left");
}

#[test]
fn a_discarding_group_keeps_nothing_of_those_that_have_ended() {
    const CHILDREN: usize = if cfg!(sanitized) { 20_000 } else { 1_000_000 };
    let arena = Arena::new();
    let task = Task::new(task::discarding_group(async move |group| {
        group.set_limit(8);
        for _ in 0..CHILDREN / 8 {
            for _ in 0..8 {
                group.spawn_with(SpawnOptions::new().allocator(arena), async {});
            }
            group.wait_for_all().await;
        }
    }));
    sync_wait(task).unwrap();
    assert_eq!(arena.counts(), (CHILDREN, 0));
    assert_eq!(arena.0.most.load(SeqCst), 8);
}

#[test]
fn a_discarding_group_keeps_nothing_on_a_pool_either() {
    const CHILDREN: usize = if cfg!(sanitized) { 2000 } else { 100_000 };
    for workers in WORKERS {
        let pool = ThreadPool::new(workers);
        let arena = Arena::new();
        let task = Task::new(task::discarding_group(async move |group| {
            for _ in 0..CHILDREN / 8 {
                for _ in 0..8 {
                    group.spawn_with(SpawnOptions::new().allocator(arena), async {});
                }
                group.wait_for_all().await;
            }
        }));
        sync_wait(starts_on(pool.scheduler(), task)).unwrap();
        assert_eq!(arena.counts().0, CHILDREN);
        // A child is freed right after it has ended: at most one earlier child per worker may still be alive.
        let most = arena.0.most.load(SeqCst);
        assert!(most <= 8 + workers, "{most}");
    }
}

// Steps.

const MANY: usize = if cfg!(sanitized) { 2000 } else { 50_000 };

/// A future that counts its polls.
struct CountPolls<F>(F, Arc<AtomicUsize>);

impl<F: Future + Unpin> Future for CountPolls<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<F::Output> {
        self.1.fetch_add(1, SeqCst);
        Pin::new(&mut self.0).poll(cx)
    }
}

/// Runs many children that end in the given order. Each is polled twice, and the body at most once for each.
async fn in_order(order: Vec<usize>) {
    let (children, bodies) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (polls, count) = (children.clone(), order.len());
    let group = task::group(async move |group| {
        let mut tell = Vec::with_capacity(count);
        for number in 0..count {
            let (send, told) = oneshot::channel::<()>();
            tell.push(Some(send));
            let polls = polls.clone();
            let told = CountPolls(told, polls);
            group.spawn(async move {
                told.await.expect("it is told");
                number
            });
        }
        // All of them are suspended.
        hops(1).await;
        for &number in &order {
            tell[number].take().expect("once").send(()).expect("it waits");
        }
        let mut seen = vec![false; count];
        while let Some(number) = group.next().await {
            assert!(!std::mem::replace(&mut seen[number], true), "{number} came twice");
        }
        assert!(seen.iter().all(|&seen| seen));
    });
    CountPolls(Box::pin(group), bodies.clone()).await;
    let (children, bodies) = (children.load(SeqCst), bodies.load(SeqCst));
    assert!(children <= 2 * count, "children were polled {children} times");
    assert!(bodies <= count + 4, "the body was polled {bodies} times");
}

#[test]
fn many_children_take_as_many_steps_in_any_order_of_completion() {
    let mut random = XorShift::new(3);
    let mut shuffled: Vec<_> = (0..MANY).collect();
    for last in (1..MANY).rev() {
        shuffled.swap(last, random.below(last as u64 + 1) as usize);
    }
    for order in [(0..MANY).collect(), (0..MANY).rev().collect(), shuffled] {
        let order: Vec<usize> = order;
        everywhere(|| in_order(order.clone()));
    }
}

// Stack.

const SUSPENDED: usize = if cfg!(sanitized) { 5000 } else { 100_000 };

/// Cancels many children that end only by that.
async fn cancel_many() {
    let census = Census::new();
    task::group(async |group: TaskGroup<()>| {
        for _ in 0..SUSPENDED {
            let held = census.value();
            group.spawn(async move {
                let _held = held;
                until_stopped().await
            });
        }
        hops(3).await;
        group.cancel_all();
        assert_eq!(group.next().await, None);
    })
    .await;
    assert_eq!(census.alive(), 0);
}

/// Drops a group of many children that end only by a stop.
async fn give_up_many() {
    let census = Census::new();
    let inside = census.clone();
    let inner = Task::new(async move {
        let group = begin(task::group(async move |group: TaskGroup<()>| {
            for _ in 0..SUSPENDED {
                let held = inside.value();
                group.spawn(async move {
                    let _held = held;
                    until_stopped().await
                });
            }
            pending::<()>().await;
        }))
        .await;
        hops(3).await;
        drop(group);
    });
    inner.await.unwrap();
    assert_eq!(census.alive(), 0);
}

const DEPTH: usize = if cfg!(sanitized) { 1000 } else { 10_000 };

/// Returns a group with one child, which is a group with one child, and so on.
fn chain(depth: usize, held: Counted, census: Census, leaf: Leaf) -> Pin<Box<dyn Future<Output = usize> + Send>> {
    if depth == 0 {
        return Box::pin(async move {
            let _held = held;
            match leaf {
                Leaf::Ends => 0,
                Leaf::Waits => until_stopped().await,
            }
        });
    }
    Box::pin(async move {
        let _held = held;
        task::group(async move |group| {
            group.spawn(chain(depth - 1, census.value(), census.clone(), leaf));
            group.next().await.map_or(0, |below| below + 1)
        })
        .await
    })
}

#[derive(Clone, Copy)]
enum Leaf {
    Ends,
    Waits,
}

async fn complete_a_chain() {
    let census = Census::new();
    assert_eq!(chain(DEPTH, census.value(), census.clone(), Leaf::Ends).await, DEPTH);
    assert_eq!(census.alive(), 0);
}

/// Waits until all of a chain has begun.
async fn begun(census: &Census) {
    while census.alive() != DEPTH + 1 {
        hops(1).await;
    }
}

async fn cancel_a_chain() {
    let census = Census::new();
    task::group(async |group| {
        group.spawn(chain(DEPTH, census.value(), census.clone(), Leaf::Waits));
        begun(&census).await;
        group.cancel_all();
    })
    .await;
    assert_eq!(census.alive(), 0);
}

async fn give_up_a_chain() {
    let census = Census::new();
    let inside = census.clone();
    let inner = Task::new(async move {
        let group = begin(chain(DEPTH, inside.value(), inside.clone(), Leaf::Waits)).await;
        begun(&inside).await;
        drop(group);
    });
    inner.await.unwrap();
    assert_eq!(census.alive(), 0);
}

/// Runs a body on a run loop and on pools, all with small stacks.
fn in_a_small_stack<F>(body: impl Fn() -> F + Sync)
where
    F: Future<Output = ()> + Send + 'static,
{
    with_stack(DEEP_STACK, || assert!(sync_wait(Task::new(body())).is_value()));
    for workers in WORKERS {
        let pool = ThreadPool::builder()
            .threads(workers)
            .stack_size(DEEP_STACK)
            .build()
            .expect("a pool");
        assert!(sync_wait(starts_on(pool.scheduler(), Task::new(body()))).is_value());
    }
}

#[test]
fn many_suspended_children_are_cancelled_in_a_small_stack() {
    in_a_small_stack(cancel_many);
}

#[test]
fn many_suspended_children_are_given_up_in_a_small_stack() {
    in_a_small_stack(give_up_many);
}

#[test]
fn a_chain_of_groups_completes_in_a_small_stack() {
    in_a_small_stack(complete_a_chain);
}

#[test]
fn a_chain_of_groups_is_cancelled_in_a_small_stack() {
    in_a_small_stack(cancel_a_chain);
}

#[test]
fn a_chain_of_groups_is_given_up_in_a_small_stack() {
    in_a_small_stack(give_up_a_chain);
}
