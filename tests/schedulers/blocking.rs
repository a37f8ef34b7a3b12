//! Jobs that block on a worker of a `ThreadPool`: spare threads take over, and unrelated work does not run meanwhile.

use std::cell::Cell;
use std::collections::HashSet;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{PoolScheduler, RunLoop, ThreadPool, Timer};
use bowline::stop::StopSource;
use bowline::task::{Handle, SpawnOptions, TaskRef};
use bowline::{join, task, task_local};

/// The number of queued jobs that wait: more than there are threads.
const MANY: usize = if cfg!(sanitized) { 300 } else { 5_000 };

/// Returns a pool with so many workers, at most so many spare threads, and small stacks.
fn pool(workers: usize, spares: usize) -> ThreadPool {
    ThreadPool::builder()
        .threads(workers)
        .spare_threads(spares)
        .stack_size(DEEP_STACK)
        .build()
        .unwrap()
}

/// A wait that the pool knows of, until the other side is used or dropped.
struct Block(StopSource);

impl Block {
    fn new() -> (Block, Release) {
        let source = StopSource::new();
        (Block(source.clone()), Release(source))
    }

    fn wait(&self) {
        let forever = never::<(), Infallible>().write_env(WithStopToken(self.0.token()));
        assert!(sync_wait(forever).is_stopped());
    }
}

struct Release(StopSource);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.request_stop();
    }
}

/// Waits until another thread makes `done` true.
fn eventually(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come about");
        thread::yield_now();
    }
}

// What waits for what.

#[test]
fn thousands_of_queued_waits_take_no_stack_of_each_other() {
    let pool = pool(1, 64);
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..MANY {
        let ran = ran.clone();
        execute(pool.scheduler(), move || {
            sync_wait(Timer::global().schedule_after(Duration::from_millis(5))).unwrap();
            ran.fetch_add(1, SeqCst);
        });
    }
    drop(pool);
    assert_eq!(ran.load(SeqCst), MANY);
}

#[test]
fn two_jobs_of_one_worker_wait_for_each_other() {
    let pool = pool(1, 4);
    let (first, release_first) = Block::new();
    let (second, release_second) = Block::new();
    let both = when_all((
        pool.scheduler().schedule().then(move |()| {
            first.wait();
            drop(release_second);
        }),
        pool.scheduler().schedule().then(move |()| {
            drop(release_first);
            second.wait();
        }),
    ));
    sync_wait(both).unwrap();
}

#[test]
fn a_wait_does_not_depend_on_a_job_that_its_own_loop_has() {
    // The job on the pool waits for one on the loop of the waiting thread, so it must not run on top of that wait.
    let pool = pool(1, 4);
    pool.install(|| {
        let (sent, received) = mpsc::channel();
        let run_loop = RunLoop::new();
        let on_the_pool = pool.scheduler().schedule().then(move |()| received.recv().unwrap());
        let on_the_loop = run_loop.scheduler().schedule().then(move |()| sent.send(7).unwrap());
        let both = run_loop.run_until(when_all((on_the_pool, on_the_loop)));
        assert_eq!(both.unwrap(), (7, ()));
    });
}

/// A guard that calls a function when dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Cancels a group during the poll of its task, when all children wait. Each of them calls `ends` when it is dropped.
async fn cancelled_together(children: usize, ends: impl Fn() + Clone + Send + 'static, before: impl FnOnce() + Send) {
    task::group(async move |group| {
        let waiting = Arc::new(AtomicUsize::new(0));
        for _ in 0..children {
            let (waiting, ends) = (waiting.clone(), ends.clone());
            group.spawn(async move {
                let _ends = OnDrop(ends);
                waiting.fetch_add(1, SeqCst);
                let _ = never::<(), Infallible>().await;
            });
        }
        while waiting.load(SeqCst) < children {
            task::yield_now().await;
        }
        before();
        group.cancel_all();
    })
    .await;
}

#[test]
fn children_that_are_cancelled_together_wait_for_each_other() {
    const CHILDREN: usize = 6;
    let pool = pool(1, 8);
    let ended = Arc::new(AtomicUsize::new(0));
    let all = StopSource::new();
    let ends = {
        let ended = ended.clone();
        move || {
            if ended.fetch_add(1, SeqCst) + 1 == CHILDREN {
                all.request_stop();
            }
            Block(all.clone()).wait();
        }
    };
    let work = task::Task::new(cancelled_together(CHILDREN, ends, || ()));
    sync_wait(starts_on(pool.scheduler(), work)).unwrap();
    assert_eq!(ended.load(SeqCst), CHILDREN);
}

#[test]
fn a_child_that_blocks_in_its_own_way_hides_no_others() {
    // The other worker is busy until the first child is blocked, in a wait that the pool does not know of.
    const CHILDREN: usize = 40;
    let pool = pool(2, 0);
    let (blocked, first_is_blocked) = mpsc::channel::<()>();
    let ended = Arc::new(AtomicUsize::new(0));
    let ends = {
        let (ended, blocked) = (ended.clone(), Mutex::new(Some(blocked)));
        let blocked = Arc::new(blocked);
        move || {
            let first = blocked.lock().unwrap().take();
            ended.fetch_add(1, SeqCst);
            if first.is_some() {
                drop(first);
                eventually(|| ended.load(SeqCst) == CHILDREN);
            }
        }
    };
    let busy = Arc::new(AtomicUsize::new(0));
    let scheduler = pool.scheduler();
    let before = {
        let busy = busy.clone();
        move || {
            execute(scheduler, move || {
                busy.store(1, SeqCst);
                // Fails when the first child drops the other side.
                let _ = first_is_blocked.recv();
            });
        }
    };
    let before = move || {
        before();
        eventually(|| busy.load(SeqCst) == 1);
    };
    let work = task::Task::new(cancelled_together(CHILDREN, ends, before));
    sync_wait(starts_on(pool.scheduler(), work)).unwrap();
    assert_eq!(ended.load(SeqCst), CHILDREN);
}

#[test]
fn a_thread_that_waits_runs_no_job_of_others() {
    thread_local!(static WAITS: Cell<bool> = const { Cell::new(false) });
    for workers in [1, 2] {
        let pool = pool(workers, 8);
        let scheduler = pool.scheduler();
        let stop = StopSource::new();
        let on_top = Arc::new(AtomicUsize::new(0));
        for _ in 0..4 {
            let on_top = on_top.clone();
            let stranger = scheduler.schedule().then(move |()| {
                on_top.fetch_add(usize::from(WAITS.get()), SeqCst);
            });
            start_detached(stranger.repeat_until(|()| false).write_env(WithStopToken(stop.token())));
        }
        let wait = |blocks: &dyn Fn()| {
            WAITS.set(true);
            blocks();
            WAITS.set(false);
        };
        pool.install(|| {
            for _ in 0..100 {
                wait(&|| sync_wait(scheduler.schedule()).unwrap());
                wait(&|| {
                    join(|| (), || sync_wait(scheduler.schedule()).unwrap());
                });
                wait(&|| {
                    task::scope(|scope| scope.spawn_async(async move { scheduler.schedule().await }));
                });
            }
        });
        stop.request_stop();
        assert_eq!(on_top.load(SeqCst), 0);
    }
}

#[test]
fn two_workers_drive_one_run_loop_in_turn() {
    let pool = pool(1, 4);
    let run_loop = Arc::new(RunLoop::new());
    let scheduler = pool.scheduler();
    let begun = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Occupies the loop until a job of the pool has run, which is queued behind one that needs the loop too.
            run_loop.run_until(just_from(|| {
                begun.wait();
                let (arrived, arrives) = mpsc::channel();
                let second = run_loop.clone();
                execute(scheduler, move || {
                    arrived.send(()).unwrap();
                    second.run_ready();
                });
                arrives.recv().unwrap();
                sync_wait(scheduler.schedule()).unwrap();
            }))
        });
        begun.wait();
    });
}

// `join`, `scope` and `bulk` around a job that blocks.

#[test]
fn a_join_goes_on_after_its_first_half_has_blocked() {
    for workers in [1, 2, 3] {
        let pool = pool(workers, 16);
        let scheduler = pool.scheduler();
        for _ in 0..200 {
            let (a, b) = pool.join(|| sync_wait(scheduler.schedule().then(|()| 1)).unwrap(), || 2);
            assert_eq!((a, b), (1, 2));
            // With work on top of the second half in the queue.
            let (a, b) = pool.join(
                || {
                    (0..3).for_each(|_| execute(scheduler, || ()));
                    sync_wait(scheduler.schedule().then(|()| 3)).unwrap()
                },
                || sync_wait(scheduler.schedule().then(|()| 4)).unwrap(),
            );
            assert_eq!((a, b), (3, 4));
        }
    }
}

#[test]
fn a_join_leaves_what_its_first_half_has_queued_to_others() {
    // The job would wait for work after the `join`.
    let pool = pool(1, 4);
    let (block, release) = Block::new();
    let (sent, received) = mpsc::channel();
    pool.install(|| {
        join(
            || {
                execute(pool.scheduler(), || ());
                execute(pool.scheduler(), move || {
                    block.wait();
                    sent.send(()).unwrap();
                });
            },
            || (),
        );
        drop(release);
    });
    received.recv().unwrap();
}

#[test]
fn nested_joins_whose_leaves_block() {
    fn nest(depth: u32, scheduler: PoolScheduler) -> u32 {
        if depth == 0 {
            return sync_wait(scheduler.schedule().then(|()| 1)).unwrap();
        }
        let (a, b) = join(|| nest(depth - 1, scheduler), || nest(depth - 1, scheduler));
        a + b
    }
    for workers in [1, 2, 4] {
        let pool = pool(workers, 512);
        assert_eq!(pool.install(|| nest(9, pool.scheduler())), 512);
    }
}

#[test]
fn more_waits_in_a_tree_of_joins_than_there_are_threads() {
    // The job that a leaf waits for is queued behind other halves, which are full of leaves. It still goes first.
    fn nest(depth: u32, scheduler: PoolScheduler) -> usize {
        if depth == 0 {
            return sync_wait(when_all_iter((0..3).map(|_| scheduler.schedule())))
                .unwrap()
                .len();
        }
        let (a, b) = join(|| nest(depth - 1, scheduler), || nest(depth - 1, scheduler));
        a + b
    }
    let depth = if cfg!(sanitized) { 10 } else { 12 };
    for workers in [1, 2, 4] {
        let pool = ThreadPool::new(workers);
        for scheduler in [pool.scheduler(), pool.scheduler().with_priority(Priority::Utility)] {
            assert_eq!(pool.install(|| nest(depth, scheduler)), 3 << depth);
        }
    }
}

#[test]
fn a_scope_waits_for_what_blocks_in_it() {
    for workers in [1, 2] {
        let pool = pool(workers, 32);
        let scheduler = pool.scheduler();
        let ran = AtomicUsize::new(0);
        pool.scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|scope| {
                    sync_wait(scheduler.schedule()).unwrap();
                    scope.spawn(|_| {
                        ran.fetch_add(1, SeqCst);
                    });
                });
            }
            sync_wait(scheduler.schedule()).unwrap();
            scope.spawn(|_| {
                ran.fetch_add(1, SeqCst);
            });
        });
        assert_eq!(ran.into_inner(), 21);
    }
}

#[test]
fn closures_of_a_scope_that_wait_for_each_other() {
    let pool = pool(1, 4);
    let (first, release_first) = Block::new();
    let (second, release_second) = Block::new();
    pool.scope(move |scope| {
        scope.spawn(move |_| {
            first.wait();
            drop(release_second);
        });
        scope.spawn(move |_| {
            drop(release_first);
            second.wait();
        });
    });
}

#[test]
fn a_scope_runs_no_closures_of_another() {
    // The inner scope ends while its queue has closures of the outer one, which wait for work after it.
    let pool = pool(1, 8);
    let (block, release) = Block::new();
    let (order, release) = (Mutex::new(Vec::new()), Mutex::new(Some(release)));
    pool.scope(|outer| {
        outer.spawn(|_| {
            block.wait();
            lock(&order).push("outer");
        });
        task::scope(|inner| {
            inner.spawn(|_| lock(&order).push("inner"));
            inner.spawn(|_| lock(&order).push("inner"));
        });
        lock(&order).push("after");
        drop(lock(&release).take());
    });
    assert_eq!(order.into_inner().unwrap(), ["inner", "inner", "after", "outer"]);
}

#[test]
fn a_bulk_whose_calls_block_visits_every_index_once() {
    for workers in [1, 2, 3] {
        let pool = pool(workers, 64);
        let scheduler = pool.scheduler();
        let visits: Vec<AtomicUsize> = (0..500).map(|_| AtomicUsize::new(0)).collect();
        let work = scheduler.schedule().bulk(visits.len(), |index, ()| {
            if index % 7 == 0 {
                sync_wait(scheduler.schedule()).unwrap();
            }
            visits[index].fetch_add(1, SeqCst);
        });
        sync_wait(work).unwrap();
        assert!(visits.iter().all(|visits| visits.load(SeqCst) == 1));
    }
}

// The threads.

#[test]
fn spare_threads_are_started_when_they_are_needed_and_used_again() {
    let pool = pool(1, 8);
    let scheduler = pool.scheduler();
    assert_eq!(pool.install(|| pool.spare_threads()), 0);
    for _ in 0..50 {
        pool.install(|| sync_wait(scheduler.schedule()).unwrap());
    }
    // One would do, but a thread may not have parked yet when the next job blocks.
    assert!((1..10).contains(&pool.spare_threads()), "{pool:?}");
    // Three that block at once need three.
    let (blocks, releases): (Vec<_>, Vec<_>) = (0..3).map(|_| Block::new()).unzip();
    for block in blocks {
        execute(scheduler, move || block.wait());
    }
    sync_wait(scheduler.schedule()).unwrap();
    let started = pool.spare_threads();
    assert!((3..10).contains(&started), "{pool:?}");
    assert!(
        format!("{pool:?}").contains(&format!("spare_threads: {started}")),
        "{pool:?}"
    );
    drop(releases);
}

#[test]
fn where_no_job_blocks_no_more_run_at_once_than_there_are_threads() {
    let pool = pool(2, 8);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..200 {
        let (running, most) = (running.clone(), most.clone());
        execute(pool.scheduler(), move || {
            most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
            thread::yield_now();
            running.fetch_sub(1, SeqCst);
        });
    }
    assert_eq!(pool.spare_threads(), 0);
    drop(pool);
    assert!(most.load(SeqCst) <= 2);
}

#[test]
fn there_are_no_more_than_the_builder_says() {
    for (workers, spares) in [(1, 0), (1, 3), (2, 0), (2, 5)] {
        let pool = pool(workers, spares);
        let scheduler = pool.scheduler();
        let waiting = Arc::new(AtomicUsize::new(0));
        let (blocks, releases): (Vec<_>, Vec<_>) = (0..20).map(|_| Block::new()).unzip();
        let ran = Arc::new(AtomicUsize::new(0));
        for block in blocks {
            let (waiting, ran) = (waiting.clone(), ran.clone());
            execute(scheduler, move || {
                waiting.fetch_add(1, SeqCst);
                block.wait();
                ran.fetch_add(1, SeqCst);
            });
        }
        eventually(|| waiting.load(SeqCst) == workers + spares);
        // All of them are blocked, and no more is started.
        thread::sleep(Duration::from_millis(20));
        assert_eq!(waiting.load(SeqCst), workers + spares);
        assert_eq!(pool.spare_threads(), spares);
        drop(releases);
        drop(pool);
        assert_eq!(ran.load(SeqCst), 20);
    }
}

#[test]
fn a_thread_that_is_free_takes_the_place_of_one_that_had_to_block_with_it() {
    let pool = pool(1, 1);
    let scheduler = pool.scheduler();
    let (first, release_first) = Block::new();
    let (second, release_second) = Block::new();
    let (arrived, arrives) = mpsc::channel();
    let (ended, ends) = mpsc::channel();
    let tell = arrived.clone();
    execute(scheduler, move || {
        tell.send(()).unwrap();
        first.wait();
    });
    execute(scheduler, move || {
        arrived.send(()).unwrap();
        second.wait();
        ended.send(()).unwrap();
    });
    // It is queued after both have blocked, so no thread is left to run it.
    (0..2).for_each(|_| arrives.recv().unwrap());
    thread::sleep(Duration::from_millis(10));
    execute(scheduler, move || drop(release_second));
    thread::sleep(Duration::from_millis(10));
    assert!(ends.try_recv().is_err());
    drop(release_first);
    ends.recv().unwrap();
}

#[test]
fn spare_threads_have_names_stacks_and_the_hook_of_the_builder() {
    thread_local!(static INDEX: Cell<Option<usize>> = const { Cell::new(None) });
    let pool = ThreadPool::builder()
        .threads(1)
        .names(|index| format!("tinker {index}"))
        .stack_size(64 << 20)
        .on_start(|index| INDEX.set(Some(index)))
        .build()
        .unwrap();
    let scheduler = pool.scheduler();
    #[inline(never)]
    fn deep(n: usize) -> usize {
        let kilobyte = std::hint::black_box([n; 128]);
        if n == 0 { 0 } else { deep(n - 1) + kilobyte[n % 128] / n }
    }
    let there = || {
        let name = thread::current().name().map(str::to_owned);
        // More than the default stack of a thread, which is two megabytes.
        (name.unwrap(), INDEX.get(), pool.worker_index(), deep(8 << 10))
    };
    let spare = pool.install(|| sync_wait(scheduler.schedule().then(|()| there())).unwrap());
    assert_eq!(spare, ("tinker 0-spare-0".to_owned(), Some(1), Some(0), 8 << 10));
}

#[test]
fn a_hook_that_panics_on_a_spare_thread_does_no_harm() {
    let pool = ThreadPool::builder()
        .threads(1)
        .on_start(|index| {
            if index > 0 {
                std::panic::resume_unwind(Box::new("not here"));
            }
        })
        .build()
        .unwrap();
    assert_eq!(
        pool.install(|| sync_wait(pool.scheduler().schedule().then(|()| 7)).unwrap()),
        7
    );
}

#[test]
fn a_hook_that_waits_for_the_pool_on_a_spare_thread_does_no_harm() {
    let scheduler = Arc::new(Mutex::new(None::<PoolScheduler>));
    let known = scheduler.clone();
    let pool = ThreadPool::builder()
        .threads(1)
        .on_start(move |_| {
            let scheduler = *lock(&known);
            if let Some(scheduler) = scheduler {
                sync_wait(scheduler.schedule()).unwrap();
            }
        })
        .build()
        .unwrap();
    *lock(&scheduler) = Some(pool.scheduler());
    pool.install(|| sync_wait(Timer::global().schedule_after(Duration::from_millis(30))).unwrap());
    let (block, release) = Block::new();
    execute(pool.scheduler(), move || block.wait());
    // Makes the first one pass its seat on: the started thread waits for the seat before it takes it.
    execute(pool.scheduler(), || ());
    thread::sleep(Duration::from_millis(10));
    drop(release);
    assert_eq!(pool.install(|| 7), 7);
}

/// Runs in a process of its own, limited to less memory than a few such stacks.
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(sanitized)))]
#[test]
fn where_the_system_gives_no_spare_thread_jobs_merely_block() {
    const NAME: &str = "where_the_system_gives_no_spare_thread_jobs_merely_block";
    const INSIDE: &str = "BOWLINE_LITTLE_MEMORY";
    const STACK: usize = 64 << 20;
    const RLIMIT_AS: i32 = 9;

    unsafe extern "C" {
        fn setrlimit(resource: i32, limits: *const [u64; 2]) -> i32;
    }

    if std::env::var_os(INSIDE).is_none() {
        return passes_in_own_process(NAME, &[(INSIDE, "1")]);
    }
    // SAFETY: the limit is two words, as the C library expects.
    assert_eq!(unsafe { setrlimit(RLIMIT_AS, &[32 * STACK as u64; 2]) }, 0);
    let pool = ThreadPool::builder().threads(2).stack_size(STACK).build().unwrap();
    let (ran, waiting, all) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(0)),
        StopSource::new(),
    );
    for _ in 0..200 {
        let (ran, waiting, block) = (ran.clone(), waiting.clone(), Block(all.clone()));
        execute(pool.scheduler(), move || {
            waiting.fetch_add(1, SeqCst);
            block.wait();
            ran.fetch_add(1, SeqCst);
        });
    }
    // Every thread that the system gives has a job that waits.
    eventually(|| pool.spare_threads() > 8 && waiting.load(SeqCst) == 2 + pool.spare_threads());
    thread::sleep(Duration::from_millis(20));
    let started = pool.spare_threads();
    all.request_stop();
    drop(pool);
    assert_eq!(ran.load(SeqCst), 200);
    assert!(started < 40, "{started} were started: nothing was shown");
}

#[test]
fn a_thread_without_a_place_is_still_one_of_the_pool() {
    let pool = pool(1, 4);
    let scheduler = pool.scheduler();
    pool.install(|| {
        let here = thread::current().id();
        let (block, release) = Block::new();
        // Has the seat, and keeps it busy, when this continues.
        execute(scheduler, move || {
            drop(release);
            thread::sleep(Duration::from_millis(30));
        });
        block.wait();
        assert_eq!(thread::current().id(), here);
        assert_eq!(pool.worker_index(), Some(0));
        assert_eq!(pool.install(|| thread::current().id()), here);
        assert_eq!(join(|| 1, || 2), (1, 2));
        let mut numbers = [0; 4];
        task::scope(|scope| {
            for (n, number) in numbers.iter_mut().enumerate() {
                scope.spawn(move |_| *number = n);
            }
        });
        assert_eq!(numbers, [0, 1, 2, 3]);
        assert_eq!(sync_wait(scheduler.schedule().then(|()| 7)).unwrap(), 7);
    });
}

#[test]
fn after_a_wait_joins_are_shared_again() {
    // A thread that has lost its seat takes that of a sleeping worker, so that others share its work.
    let pool = pool(2, 4);
    let scheduler = pool.scheduler();
    let threads = Mutex::new(HashSet::new());
    pool.install(|| {
        for _ in 0..20 {
            let both = when_all((scheduler.schedule(), scheduler.schedule()));
            sync_wait(both).unwrap();
        }
        eventually(|| {
            let note = || {
                lock(&threads).insert(thread::current().id());
                thread::sleep(Duration::from_millis(1));
            };
            join(note, note);
            lock(&threads).len() > 1
        });
    });
}

// Isolation of a task that blocks.

task_local! { static SECRET: u32; }

const HOUR: Duration = Duration::from_secs(3600);

/// The task state that a job sees.
type Seen = (Option<TaskRef>, Option<u32>, bool, Option<Instant>);

fn seen() -> Seen {
    (task::current(), SECRET.get(), task::is_cancelled(), task::deadline())
}

const NOTHING: Seen = (None, None, false, None);

/// The way a task blocks until the other side of a [`Block`] is dropped.
type Blocking = fn(&Block);

const BLOCKING: [(&str, Blocking); 8] = [
    ("sync_wait", Block::wait),
    ("sync_wait of a task", |block| {
        sync_wait(Task::new(until_released(block.0.clone()))).unwrap();
    }),
    ("task::block_on", |block| {
        task::block_on(until_released(block.0.clone()))
    }),
    ("the first half of a join", |block| {
        join(|| block.wait(), || ());
    }),
    ("the second half of a join", |block| {
        join(|| (), || block.wait());
    }),
    ("task::scope", |block| {
        task::scope(|scope| scope.spawn(|_| block.wait()));
    }),
    ("the end of a pool", |block| {
        let (other, source) = (pool(1, 0), block.0.clone());
        execute(other.scheduler(), move || Block(source).wait());
        drop(other);
    }),
    ("a run loop", |block| {
        let run_loop = RunLoop::new();
        let forever = never::<(), Infallible>().write_env(WithStopToken(block.0.token()));
        assert!(run_loop.run_until(forever).is_stopped());
    }),
];

async fn until_released(source: StopSource) {
    let forever = never::<(), Infallible>().write_env(WithStopToken(source.token()));
    assert_eq!(forever.stopped_as_option().await, Ok(None));
}

/// Runs unrelated jobs of many kinds on a scheduler. Each reports what it sees, and must see no task but its own.
fn strangers<S>(scheduler: S, tell: &mpsc::Sender<Seen>) -> usize
where
    S: Scheduler + Send + 'static,
    S::Schedule: Send,
{
    let next = || tell.clone();
    let told = next();
    execute(scheduler.clone(), move || told.send(seen()).unwrap());
    let told = next();
    start_detached(starts_on(
        scheduler.clone(),
        from_future(async move {
            futures_lite::future::yield_now().await;
            told.send(seen()).unwrap();
        }),
    ));
    // A child has no parent there.
    let told = next();
    execute(scheduler.clone(), move || {
        let message = panic_message(|| drop(task::let_async(async {})));
        assert!(message.contains("task::detach"), "{message}");
        told.send(seen()).unwrap();
    });
    // A scope entered there is not nested.
    let told = next();
    start_detached(starts_on(
        scheduler.clone(),
        from_future(task::shield(async move {
            futures_lite::future::yield_now().await;
            told.send(seen()).unwrap();
        })),
    ));
    // A task sees only itself.
    let told = next();
    start_detached(starts_on(
        scheduler,
        Task::new(async move {
            let (me, secret, cancelled, deadline) = seen();
            let me = me.expect("a task").parent();
            told.send((me, secret, cancelled, deadline)).unwrap();
        }),
    ));
    5
}

/// Opens a group on a scheduler, whose only child ends when the gate is opened. Reports its begin and its end.
fn open_group<S>(scheduler: S, gate: async_channel::Receiver<()>, tell: mpsc::Sender<&'static str>)
where
    S: Scheduler + Send + 'static,
    S::Schedule: Send,
{
    start_detached(starts_on(
        scheduler,
        from_future(async move {
            let group = task::group(async |group| {
                group.spawn(async move { gate.recv().await.is_err() });
                tell.send("open").unwrap();
                group.next().await
            });
            assert_eq!(group.await, Some(true));
            tell.send("over").unwrap();
        }),
    ));
}

#[test]
fn others_see_nothing_of_a_task_that_blocks() {
    let dog = Watchdog::new(Duration::from_secs(120));
    for (name, blocks) in BLOCKING {
        for workers in [1, 2] {
            dog.step(format!("{name}, {workers} workers"));
            let pool = pool(workers, 8);
            let scheduler = pool.scheduler();
            let (block, release) = Block::new();
            let (began, begins) = mpsc::channel();
            let (tell, told) = mpsc::channel();
            let cancel = StopSource::new();
            let (stop, tells) = (cancel.clone(), tell.clone());
            let inside = task::with_timeout(HOUR, async move {
                stop.request_stop();
                let before = seen();
                assert!(before.0.is_some() && before.2 && before.3.is_some());
                // Some are queued by the task itself.
                let queued = strangers(scheduler, &tells);
                drop(tells);
                began.send(queued).unwrap();
                blocks(&block);
                assert_eq!(seen(), before);
                "it goes on"
            });
            let task = Task::new(SECRET.scope(7, inside)).write_env(WithStopToken(cancel.token()));
            let (came, comes) = mpsc::channel();
            execute_and_tell(starts_on(scheduler, task), came);
            let queued = begins.recv().unwrap();
            // Others by another thread, while it blocks.
            let queued = queued + strangers(scheduler, &tell);
            drop(tell);
            for _ in 0..queued {
                assert_eq!(told.recv(), Ok(NOTHING), "{name}");
            }
            // A group that is opened meanwhile is not part of the task, whose end does not wait for it.
            let (open, gate) = async_channel::bounded(1);
            let (tell, told) = mpsc::channel();
            open_group(scheduler, gate, tell);
            assert_eq!(told.recv(), Ok("open"));
            drop(release);
            assert_eq!(comes.recv(), Ok(Some(Ok("it goes on"))), "{name}");
            assert!(told.try_recv().is_err(), "the group is still open");
            drop(open);
            assert_eq!(told.recv(), Ok("over"));
        }
    }
}

/// Starts a sender, and reports its completion.
fn execute_and_tell<S>(sender: S, tell: mpsc::Sender<Option<S::Value>>)
where
    S: Sender<Value: Send + 'static, Error = Infallible> + Send + 'static,
{
    start_detached(sender.into_outcome().then(move |outcome| {
        tell.send(outcome.ok()).unwrap();
    }));
}

/// Drives a loop until a report arrives.
fn driven<T>(run_loop: &RunLoop, told: &mpsc::Receiver<T>) -> T {
    loop {
        match told.try_recv() {
            Ok(told) => return told,
            Err(error) => assert_eq!(error, mpsc::TryRecvError::Empty),
        }
        run_loop.run_ready();
        thread::yield_now();
    }
}

#[test]
fn others_see_nothing_of_a_task_that_drives_the_loop_they_run_on() {
    let dog = Watchdog::new(Duration::from_secs(120));
    for workers in [1, 2] {
        dog.step(format!("{workers} workers"));
        let pool = pool(workers, 8);
        let run_loop = for_good(RunLoop::new());
        let (tell, told) = mpsc::channel();
        let (says, said) = mpsc::channel();
        let (open, gate) = async_channel::bounded(1);
        let task = Task::new(SECRET.scope(7, async move {
            let before = seen();
            let queued = strangers(run_loop.scheduler(), &tell);
            drop(tell);
            open_group(run_loop.scheduler(), gate, says);
            // They run on this thread, during this poll.
            for _ in 0..queued {
                assert_eq!(driven(run_loop, &told), NOTHING);
                assert_eq!(seen(), before);
            }
            assert_eq!(driven(run_loop, &said), "open");
            assert_eq!(seen(), before);
            said
        }));
        // The group is open on the loop, and the task has ended.
        let said = sync_wait(starts_on(pool.scheduler(), task)).unwrap();
        drop(open);
        assert_eq!(driven(run_loop, &said), "over");
    }
}

// Cancel, then block.

/// The way a thread blocks until a task has ended. Returns whether the task was cancelled.
type Blocks = fn(Handle<()>) -> bool;

const BLOCKS: [(&str, Blocks); 2] = [
    ("task::block_on", |handle| {
        task::block_on(handle).is_err_and(|error| error.is_cancelled())
    }),
    ("pollster::block_on", |handle| {
        pollster::block_on(handle).is_err_and(|error| error.is_cancelled())
    }),
];

/// A value whose destructor cancels a task and blocks until it has ended.
struct CancelThenBlock {
    handle: Option<Handle<()>>,
    blocks: Blocks,
    told: mpsc::Sender<bool>,
}

impl Drop for CancelThenBlock {
    fn drop(&mut self) {
        let handle = self.handle.take().expect("it is dropped once");
        handle.cancel();
        // The receiver was dropped if the test has failed.
        let _ = self.told.send((self.blocks)(handle));
    }
}

/// Waits for a stop, heeds it a little later, and stops.
async fn until_cancelled(began: mpsc::Sender<()>) {
    let _ = began.send(());
    let stopped = never::<(), Infallible>().stopped_as_option().await;
    assert_eq!(stopped, Ok(None));
    for _ in 0..3 {
        futures_lite::future::yield_now().await;
    }
    let Ok(()) = just_stopped::<(), Infallible>().await;
}

/// The points at which a task is cancelled and blocked on.
const PLACES: [&str; 7] = [
    "a job",
    "a task",
    "a task after a suspension",
    "a handler, cancelled by another thread",
    "a handler, cancelled by a task of the pool",
    "a destructor at the end of a task",
    "a destructor in a task that is cancelled",
];

#[test]
fn a_task_is_cancelled_and_blocked_on() {
    let dog = Watchdog::new(Duration::from_secs(120));
    for (how, blocks) in BLOCKS {
        for workers in [1, 2] {
            for began_before in [false, true] {
                for place in PLACES {
                    dog.step(format!("{how}, {workers} workers, {place}, begun: {began_before}"));
                    cancel_then_block(how, blocks, workers, began_before, place);
                }
            }
        }
    }
}

/// The handler cancels a child while every worker is busy. So the child is not queued for a worker that sleeps, and must be where
/// the other worker finds it when that is idle again.
#[test]
fn a_handler_cancels_a_child_while_the_other_worker_is_busy_and_blocks_on_it() {
    let _dog = Watchdog::new(Duration::from_secs(120));
    for (how, blocks) in BLOCKS {
        let pool = pool(2, 4);
        let scheduler = pool.scheduler();
        let detach = |future: Pin<Box<dyn Future<Output = ()> + Send>>| {
            task::detach_with(SpawnOptions::new().scheduler(scheduler), future)
        };
        let begin = || {
            let (began, begins) = mpsc::channel();
            let handle = detach(Box::pin(until_cancelled(began)));
            begins.recv().unwrap();
            handle
        };
        let child = begin();
        let (told, tells) = mpsc::channel();
        let free = Arc::new(AtomicBool::new(false));
        let (began, begins) = mpsc::channel();
        let handler = {
            let free = free.clone();
            move || {
                child.cancel();
                free.store(true, SeqCst);
                told.send(blocks(child)).unwrap();
            }
        };
        let main = detach(Box::pin(async move {
            task::with_cancellation_handler(handler, until_cancelled(began)).await;
        }));
        begins.recv().unwrap();
        let (busy, is_busy) = mpsc::channel();
        execute(scheduler, move || {
            busy.send(()).unwrap();
            while !free.load(SeqCst) {
                thread::yield_now();
            }
        });
        is_busy.recv().unwrap();
        sync_wait(starts_on(scheduler, Task::new(async move { main.cancel() }))).unwrap();
        assert_eq!(tells.recv(), Ok(true), "{how}");
    }
}

/// The closure of a sender that a stop completes blocks on a task that the same stop has resumed. The other worker is busy until
/// then, so the task must be where that worker finds it.
#[test]
fn a_sender_that_a_stop_completes_blocks_on_a_task_that_the_stop_has_resumed() {
    let _dog = Watchdog::new(Duration::from_secs(120));
    for (how, blocks) in BLOCKS {
        let pool = pool(2, 4);
        let scheduler = pool.scheduler();
        let source = StopSource::new();
        let free = Arc::new(AtomicBool::new(false));
        let (told, tells) = mpsc::channel();
        let (given, gives) = mpsc::channel::<Handle<()>>();
        // Its callback is registered first, and so called last.
        let frees = free.clone();
        let blocking = never::<(), Infallible>().upon_stopped(move || {
            frees.store(true, SeqCst);
            told.send(blocks(gives.recv().unwrap())).unwrap();
        });
        start_detached(blocking.with_stop_token(source.token()));
        let (began, begins) = mpsc::channel();
        let token = source.token();
        let child = task::detach_with(SpawnOptions::new().scheduler(scheduler), async move {
            began.send(()).unwrap();
            let Ok(()) = never::<(), Infallible>().with_stop_token(token).await;
        });
        given.send(child).unwrap();
        begins.recv().unwrap();
        let (busy, is_busy) = mpsc::channel();
        execute(scheduler, move || {
            busy.send(()).unwrap();
            while !free.load(SeqCst) {
                thread::yield_now();
            }
        });
        is_busy.recv().unwrap();
        // The child has suspended: its worker takes this task.
        sync_wait(starts_on(scheduler, Task::new(async move { source.request_stop() }))).unwrap();
        assert_eq!(tells.recv(), Ok(true), "{how}");
    }
}

fn cancel_then_block(how: &str, blocks: Blocks, workers: usize, began_before: bool, place: &str) {
    let (first, second) = (pool(workers, 4), pool(1, 4));
    let scheduler = first.scheduler();
    // The only worker of a pool cannot run the job it blocks on, in a call that the pool does not know.
    let knows = how == "task::block_on" || workers > 1;
    let there = if knows { scheduler } else { second.scheduler() };
    let detach = move || {
        let (began, begins) = mpsc::channel();
        let handle = task::detach_with(SpawnOptions::new().scheduler(there), until_cancelled(began));
        (handle, begins)
    };
    let begun = began_before.then(|| {
        let (handle, begins) = detach();
        begins.recv().unwrap();
        handle
    });
    let (told, tells) = mpsc::channel();
    // A task that has not begun is created in place, so that it is queued on the worker that blocks.
    let make = move || CancelThenBlock {
        handle: Some(begun.unwrap_or_else(|| detach().0)),
        blocks,
        told,
    };
    let run = |future: Pin<Box<dyn Future<Output = ()> + Send>>| {
        task::detach_with(SpawnOptions::new().scheduler(scheduler), future)
    };
    let (began, begins) = mpsc::channel();
    let main = match place {
        "a job" => {
            execute(scheduler, move || drop(make()));
            None
        }
        "a task" => Some(run(Box::pin(async move { drop(make()) }))),
        "a task after a suspension" => Some(run(Box::pin(async move {
            task::yield_now().await;
            drop(make());
            task::yield_now().await;
        }))),
        "a destructor at the end of a task" => Some(run(Box::pin(async move {
            let _dropped_last = make();
            task::yield_now().await;
        }))),
        "a destructor in a task that is cancelled" => Some(run(Box::pin(async move {
            let _dropped = make();
            until_cancelled(began).await;
        }))),
        _ => Some(run(Box::pin(async move {
            let handler = move || drop(make());
            task::with_cancellation_handler(handler, until_cancelled(began)).await;
        }))),
    };
    if let Some(main) = main {
        match place {
            "a handler, cancelled by a task of the pool" => {
                begins.recv().unwrap();
                let main = Arc::new(main);
                let cancelled = main.clone();
                sync_wait(starts_on(scheduler, Task::new(async move { cancelled.cancel() }))).unwrap();
                while !main.is_finished() {
                    thread::yield_now();
                }
            }
            "a handler, cancelled by another thread" | "a destructor in a task that is cancelled" => {
                begins.recv().unwrap();
                main.cancel();
                assert!(task::block_on(main).is_err_and(|error| error.is_cancelled()));
            }
            _ => task::block_on(main).unwrap(),
        }
    }
    assert_eq!(
        tells.recv(),
        Ok(true),
        "{how}, {workers} workers, {place}, begun: {began_before}"
    );
}

// The end of the pool.

#[test]
fn the_drop_waits_for_a_thread_without_a_place_and_ends_the_spare_ones() {
    for workers in [1, 2] {
        let census = Census::new();
        let pool = census_pool(workers, &census);
        let scheduler = pool.scheduler();
        let done = Arc::new(AtomicUsize::new(0));
        let (arrived, arrives) = mpsc::channel();
        for _ in 0..4 {
            let (done, arrived) = (done.clone(), arrived.clone());
            execute(scheduler, move || {
                sync_wait(when_all([scheduler.schedule(); 3])).unwrap();
                arrived.send(()).unwrap();
                // Usually without a seat; the others have come to rest meanwhile.
                thread::sleep(Duration::from_millis(30));
                execute(scheduler, {
                    let done = done.clone();
                    move || {
                        done.fetch_add(1, SeqCst);
                    }
                });
                sync_wait(scheduler.schedule()).unwrap();
                done.fetch_add(1, SeqCst);
            });
        }
        arrives.recv().unwrap();
        assert!(workers > 1 || pool.spare_threads() > 0);
        drop(pool);
        assert_eq!((done.load(SeqCst), census.alive()), (8, 0));
    }
}

#[test]
fn a_thread_without_a_place_drops_its_own_pool() {
    for workers in [1, 2] {
        let census = Census::new();
        let pool = census_pool(workers, &census);
        let scheduler = pool.scheduler();
        let (sent, received) = mpsc::channel::<ThreadPool>();
        let (done, is_done) = mpsc::channel();
        execute(scheduler, move || {
            sync_wait(when_all([scheduler.schedule(); 3])).unwrap();
            drop(received.recv().unwrap());
            // It did not wait for itself, and the pool still works.
            sync_wait(scheduler.schedule()).unwrap();
            done.send(()).unwrap();
        });
        sent.send(pool).unwrap();
        is_done.recv().unwrap();
        eventually(|| census.alive() == 0);
    }
}

#[test]
fn a_pool_is_dropped_by_a_job_of_another_whose_place_is_needed() {
    let census = Census::new();
    let (pool, other) = (census_pool(1, &census), pool(1, 2));
    let there = other.scheduler();
    let (block, release) = Block::new();
    execute(pool.scheduler(), move || {
        block.wait();
        sync_wait(there.schedule()).unwrap();
    });
    other.install(move || {
        // Runs while the drop waits for it.
        execute(there, move || drop(release));
        drop(pool);
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn the_memory_of_a_pool_with_spare_threads_is_used_again() {
    // A number that no other test here uses.
    const WORKERS: usize = 7;
    for round in 0..20 {
        let census = Census::new();
        let pool = census_pool(WORKERS, &census);
        let scheduler = pool.scheduler();
        for _ in 0..round {
            execute(scheduler, move || {
                sync_wait(when_all([scheduler.schedule(); 2])).map(drop).unwrap()
            });
        }
        drop(pool);
        assert_eq!(census.alive(), 0);
    }
}

/// Jobs that block, join, spawn and hop at random, on a pool that is dropped meanwhile.
#[test]
fn random_waits_end() {
    fn work(seed: u64, depth: u32, scheduler: PoolScheduler, done: &AtomicUsize) {
        if depth == 0 {
            done.fetch_add(1, SeqCst);
            return;
        }
        let next = |n| {
            work(
                seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(n),
                depth - 1,
                scheduler,
                done,
            )
        };
        match seed >> 60 {
            0..4 => {
                join(|| next(1), || next(3));
            }
            4..7 => task::scope(|scope| {
                scope.spawn(|_| next(1));
                scope.spawn(|_| next(3));
            }),
            7..10 => {
                let there = scheduler.schedule();
                sync_wait(when_all((there.then(|()| next(1)), there.then(|()| next(3))))).unwrap();
            }
            10..12 => sync_wait(scheduler.schedule().bulk(2, |n, ()| next(1 + 2 * n as u64))).unwrap(),
            12..14 => {
                sync_wait(Timer::global().schedule_after(Duration::from_micros(seed >> 50 & 63))).unwrap();
                next(1);
                next(3);
            }
            _ => {
                let (block, release) = Block::new();
                execute(scheduler, move || drop(release));
                block.wait();
                next(1);
                next(3);
            }
        }
    }
    let depth = if cfg!(sanitized) { 4 } else { 7 };
    for seed in 0..30_u64 {
        for workers in [1, 2, 3] {
            let pool = ThreadPool::new(workers);
            let scheduler = pool.scheduler();
            let done = Arc::new(AtomicUsize::new(0));
            for job in 0..3 {
                let done = done.clone();
                let seed = (seed * 3 + job).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                execute(scheduler, move || work(seed, depth, scheduler, &done));
            }
            drop(pool);
            assert_eq!(done.load(SeqCst), 3 << depth);
        }
    }
}

/// A destructor that blocks is not part of an unwinding task: a stop there would unwind again.
#[test]
fn a_task_is_cancelled_and_blocked_on_while_a_cancelled_task_unwinds() {
    for (how, blocks) in BLOCKS {
        let (told, tells) = mpsc::channel();
        let source = StopSource::new();
        let stop = source.clone();
        let task: Task<()> = Task::new(async move {
            let (began, _) = mpsc::channel();
            let _held = CancelThenBlock {
                handle: Some(task::detach(until_cancelled(began))),
                blocks,
                told,
            };
            stop.request_stop();
            quiet_panic()
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            sync_wait(task.write_env(WithStopToken(source.token())))
        }));
        assert!(outcome.is_err(), "{how}");
        assert_eq!(tells.recv(), Ok(true), "{how}");
    }
}
