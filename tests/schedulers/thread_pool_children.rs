//! The children and branches of tasks in the queues of a `ThreadPool`: more than fit, fair, depth-first, taken from a worker that blocks,
//! raised.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::{PoolScheduler, ThreadPool};
use bowline::task::{self, SpawnOptions, Task};

/// More children than the array of a seat has room for.
const MANY: usize = 1_000;

/// Calls a test with pools of so many workers: with the system call `membarrier`, if there is one, and without.
pub(crate) fn with_pools(workers: usize, test: impl Fn(&ThreadPool)) {
    for membarrier in [true, false] {
        let pool = ThreadPool::builder()
            .threads(workers)
            .spare_threads(0)
            .membarrier(membarrier)
            .build()
            .unwrap();
        test(&pool);
    }
}

#[test]
fn more_children_than_fit_run_once() {
    for workers in [1, 2, 4] {
        with_pools(workers, |pool| {
            let work = Task::new(task::group(async move |group| {
                for number in 0..100 * MANY {
                    group.spawn(async move { number });
                }
                let mut sum = 0;
                while let Some(number) = group.next().await {
                    sum += number;
                }
                sum
            }));
            let sum = sync_wait(starts_on(pool.scheduler(), work)).unwrap();
            assert_eq!(sum, (0..100 * MANY).sum());
        });
    }
}

/// A task goes beneath its oldest child when the others have ended. If that child blocks, and no spare thread is to be had, the task
/// moves to the ring, where a raise still finds it.
#[test]
fn a_task_beneath_a_child_that_blocks_is_raised() {
    with_pools(1, |pool| {
        let (elsewhere, options) = (ThreadPool::new(1), SpawnOptions::new().scheduler(pool.scheduler()));
        let other = elsewhere.scheduler();
        let (blocks, has_blocked) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let handle = task::detach_with(options, async move {
            task::group(async move |group| {
                group.spawn(async move {
                    let wait = other.schedule().then(move |()| {
                        blocks.send(()).unwrap();
                        // Returns when the sender is dropped, too.
                        _ = released.recv();
                    });
                    sync_wait(wait).unwrap();
                    1
                });
                group.spawn(async { 2 });
                let mut sum = 0;
                while let Some(number) = group.next().await {
                    sum += number;
                }
                sum
            })
            .await
        });
        has_blocked.recv().unwrap();
        // The child has begun to wait; it passes its seat on within this time.
        std::thread::sleep(Duration::from_millis(20));
        let (raised, has_raised) = mpsc::channel();
        let is_raised = std::thread::scope(|scope| {
            scope.spawn(|| {
                handle.raise(Priority::UserInteractive);
                raised.send(()).unwrap();
            });
            let is_raised = has_raised.recv_timeout(Duration::from_secs(10)).is_ok();
            // A raise that did not find the task ends when the task runs.
            drop(release);
            is_raised
        });
        assert_eq!(task::block_on(handle).unwrap(), 3);
        assert!(is_raised);
    });
}

#[test]
fn a_task_that_hops_does_not_starve_its_children() {
    with_pools(1, |pool| {
        let scheduler = pool.scheduler();
        let work = Task::new(task::group(async move |group| {
            let ran = Arc::new(AtomicUsize::new(0));
            for _ in 0..MANY {
                let ran = ran.clone();
                group.spawn(async move {
                    ran.fetch_add(1, SeqCst);
                });
            }
            let mut hops = 0;
            while ran.load(SeqCst) < MANY {
                scheduler.schedule().await;
                hops += 1;
            }
            hops
        }));
        let hops = sync_wait(starts_on(scheduler, work)).unwrap();
        assert!(hops <= MANY, "{hops} hops for {MANY} children");
    });
}

/// Hops on the pool until the flag is set, and counts the hops: of the task itself, or of a sender that it awaits.
async fn hop(scheduler: PoolScheduler, itself: bool, until: Arc<AtomicBool>, hops: Arc<AtomicUsize>) {
    while !until.load(SeqCst) {
        if itself {
            scheduler.schedule().await;
        } else {
            let Ok(()) = scheduler.schedule().then(|()| ()).await;
        }
        let hops = hops.fetch_add(1, SeqCst);
        assert!(hops < 100 * ThreadPool::FAIRNESS, "it is starved");
    }
}

#[test]
fn two_tasks_that_hop_in_turn_do_not_starve_a_child() {
    for itself in [true, false] {
        with_pools(1, |pool| {
            let scheduler = pool.scheduler();
            let work = Task::new(task::group(async move |group| {
                let (ran, hops) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
                for _ in 0..2 {
                    group.spawn(hop(scheduler, itself, ran.clone(), hops.clone()));
                }
                // Until both hop.
                while hops.load(SeqCst) < 100 {
                    scheduler.schedule().await;
                }
                hops.store(0, SeqCst);
                let child = ran.clone();
                group.spawn(async move { child.store(true, SeqCst) });
                hop(scheduler, itself, ran, hops.clone()).await;
                hops.load(SeqCst)
            }));
            let hops = sync_wait(starts_on(scheduler, work)).unwrap();
            assert!(hops <= 32, "{hops} hops before a child");
        });
    }
}

#[test]
fn tasks_that_hop_by_senders_have_equal_shares() {
    with_pools(1, |pool| {
        let scheduler = pool.scheduler();
        let hops: [Arc<AtomicUsize>; 4] = Default::default();
        let counted = hops.clone();
        let work = Task::new(task::group(async move |group| {
            let over = Arc::new(AtomicBool::new(false));
            for hops in counted.clone() {
                group.spawn(hop(scheduler, false, over.clone(), hops));
            }
            while counted.iter().all(|hops| hops.load(SeqCst) < MANY) {
                scheduler.schedule().await;
            }
            over.store(true, SeqCst);
        }));
        sync_wait(starts_on(scheduler, work)).unwrap();
        for hops in hops {
            let hops = hops.load(SeqCst);
            assert!(hops >= MANY / 2, "{hops} hops of about {MANY}");
        }
    });
}

/// Counts the tasks of a tree that have begun and not ended.
#[derive(Default)]
struct Alive {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A binary tree of tasks, in which one branch of each node goes through the pool. Returns the number of leaves.
fn tree(depth: u32, scheduler: PoolScheduler, alive: Arc<Alive>) -> Task<u32> {
    Task::new(async move {
        let now = alive.now.fetch_add(1, SeqCst) + 1;
        alive.most.fetch_max(now, SeqCst);
        let mut leaves = 1;
        if depth != 0 {
            let other = tree(depth - 1, scheduler, alive.clone());
            let both = when_all((starts_on(scheduler, other), tree(depth - 1, scheduler, alive.clone())));
            let Ok((one, other)) = both.await;
            leaves = one + other;
        }
        alive.now.fetch_sub(1, SeqCst);
        leaves
    })
}

#[test]
fn a_tree_of_branches_is_walked_depth_first() {
    with_pools(1, |pool| {
        let (scheduler, alive) = (pool.scheduler(), Arc::new(Alive::default()));
        let leaves = sync_wait(starts_on(scheduler, tree(12, scheduler, alive.clone()))).unwrap();
        assert_eq!(leaves, 1 << 12);
        // Breadth first there would be a thousand. The oldest branch has its turn as well, for fairness.
        let most = alive.most.load(SeqCst);
        assert!(most <= 200, "{most} tasks at a time");
    });
}

/// A tree of groups. Counts the polls of the nodes that are no leaves.
fn grove(depth: u32, polls: Arc<AtomicUsize>) -> Pin<Box<dyn Future<Output = usize> + Send>> {
    if depth == 0 {
        return Box::pin(async { 1 });
    }
    let counted = polls.clone();
    let mut body = Box::pin(task::group(async move |group| {
        for _ in 0..10 {
            group.spawn(grove(depth - 1, polls.clone()));
        }
        let mut leaves = 0;
        while let Some(part) = group.next().await {
            leaves += part;
        }
        leaves
    }));
    Box::pin(poll_fn(move |cx| {
        counted.fetch_add(1, SeqCst);
        body.as_mut().poll(cx)
    }))
}

#[test]
fn a_task_with_few_children_takes_their_results_in_one_poll() {
    with_pools(1, |pool| {
        let polls = Arc::new(AtomicUsize::new(0));
        let work = Task::new(grove(3, polls.clone()));
        let leaves = sync_wait(starts_on(pool.scheduler(), work)).unwrap();
        assert_eq!(leaves, 1_000);
        // Each of the 111 nodes is polled once to spawn its children and once for their results. The oldest child has its turn as well,
        // which may make a few more.
        let polls = polls.load(SeqCst);
        assert!(polls <= 2 * 111 + 12, "{polls} polls");
    });
}

/// Returns the depth of a chain of groups, each with one child, at which `ended` is true.
fn chain(
    depth: usize,
    ended: impl Fn() -> bool + Send + Clone + 'static,
) -> Pin<Box<dyn Future<Output = usize> + Send>> {
    Box::pin(async move {
        if ended() || depth == 10 * ThreadPool::FAIRNESS {
            return depth;
        }
        task::group(async move |group| {
            group.spawn(chain(depth + 1, ended));
            group.next().await.unwrap_or(0)
        })
        .await
    })
}

#[test]
fn newer_children_starve_neither_the_oldest_nor_other_jobs() {
    with_pools(1, |pool| {
        let scheduler = pool.scheduler();
        let ran = Arc::new(AtomicUsize::new(0));
        let by_child = ran.clone();
        let work = Task::new(task::group(async move |group| {
            group.spawn(async move {
                by_child.store(1, SeqCst);
                0
            });
            group.spawn(chain(1, move || ran.load(SeqCst) == 1));
            let mut depth = 0;
            while let Some(at) = group.next().await {
                depth += at;
            }
            depth
        }));
        let depth = sync_wait(starts_on(scheduler, work)).unwrap();
        assert!(
            depth <= ThreadPool::FAIRNESS,
            "the oldest child waited for {depth} others"
        );
    });
}

#[test]
fn children_of_a_worker_that_blocks_in_its_own_way_run_elsewhere() {
    with_pools(2, |pool| {
        let (ended, all_ended) = mpsc::channel::<()>();
        let work = Task::new(task::group(async move |group| {
            for _ in 0..MANY {
                let ended = ended.clone();
                group.spawn(async move { drop(ended) });
            }
            drop(ended);
            // In the middle of a job, and the pool does not know of the wait. It ends when all children have.
            let _ = all_ended.recv();
            let mut count = 0;
            while group.next().await.is_some() {
                count += 1;
            }
            count
        }));
        assert_eq!(sync_wait(starts_on(pool.scheduler(), work)).unwrap(), MANY);
    });
}

#[test]
fn raised_children_run_once_and_before_others() {
    with_pools(1, |pool| {
        let (queued, all_queued) = mpsc::channel();
        let (raised, was_raised) = mpsc::channel::<()>();
        let scheduler = pool.scheduler();
        let options = SpawnOptions::new().scheduler(scheduler);
        let order = Arc::new(AtomicUsize::new(0));
        let of_children = order.clone();
        let handle = task::detach_with(options, async move {
            task::group(async move |group| {
                for _ in 0..MANY {
                    let order = of_children.clone();
                    group.spawn(async move { order.fetch_add(1, SeqCst) });
                }
                queued.send(()).unwrap();
                // The worker blocks with its children queued, until these were raised.
                let _ = was_raised.recv();
                let mut last = 0;
                while let Some(at) = group.next().await {
                    last = last.max(at);
                }
                last
            })
            .await
        });
        all_queued.recv().unwrap();
        let before = order.clone();
        let (other, its_place) = mpsc::channel();
        execute(scheduler, move || other.send(before.load(SeqCst)).unwrap());
        handle.raise(Priority::UserInteractive);
        drop(raised);
        assert_eq!(task::block_on(handle).unwrap(), MANY - 1);
        // All levels get their turns, so a few children may be left.
        assert!(its_place.recv().unwrap() >= 16);
        assert_eq!(order.load(SeqCst), MANY);
    });
}
