//! `ThreadPool`: scheduling, waiting, allocations, stack. Priorities, building and the end have files of their own.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::{PoolScheduler, ThreadPool};
use bowline::stop::{InplaceStopSource, StopSource};

/// Smaller where stack frames are larger and everything is slower.
const MANY: usize = if cfg!(sanitized) { 1_000 } else { 10_000 };
/// Fewer than the possible spare threads: each job waits for one that runs only after it has begun to wait.
const DEEP: usize = if cfg!(sanitized) { 100 } else { 400 };

#[test]
fn work_runs_on_the_pools_threads() {
    let pool = ThreadPool::new(2);
    let index = sync_wait(pool.scheduler().schedule().then(|()| pool.worker_index())).unwrap();
    assert!(index.is_some_and(|index| index < 2));
    assert_eq!(pool.worker_index(), None);
    let other = ThreadPool::new(1);
    assert_eq!(other.install(|| pool.worker_index()), None);
    assert_eq!(other.install(|| other.worker_index()), Some(0));
}

#[test]
fn every_worker_takes_part() {
    let pool = ThreadPool::new(4);
    let barrier = Barrier::new(4);
    // No thread passes the barrier before four have arrived.
    let work = [0; 4].map(|_| {
        pool.scheduler().schedule().then(|()| {
            barrier.wait();
            pool.worker_index().unwrap()
        })
    });
    let mut indices = sync_wait(when_all(work)).unwrap();
    indices.sort_unstable();
    assert_eq!(indices, [0, 1, 2, 3]);
}

#[test]
fn what_is_pushed_inside_reaches_every_worker() {
    let pool = ThreadPool::new(4);
    let barrier = Barrier::new(4);
    pool.install(|| {
        let work = [0; 4].map(|_| {
            pool.scheduler().schedule().then(|()| {
                barrier.wait();
            })
        });
        sync_wait(when_all(work)).unwrap();
    });
}

#[test]
fn from_outside_it_is_first_in_first_out() {
    let pool = ThreadPool::new(1);
    let order = Order::default();
    let held = hold(pool.scheduler());
    for n in 0..50 {
        execute(pool.scheduler(), note(&order, n));
    }
    drop(held);
    drop(pool);
    assert_eq!(taken(order), (0..50).collect::<Vec<_>>());
}

#[test]
fn from_inside_the_newest_goes_first_and_the_rest_in_order() {
    let pool = ThreadPool::new(1);
    let order = Order::default();
    pool.install(|| (0..6).for_each(|n| execute(pool.scheduler(), note(&order, n))));
    drop(pool);
    assert_eq!(taken(order), [5, 0, 1, 2, 3, 4]);
}

#[test]
fn more_than_a_worker_can_queue_is_all_run_once() {
    for workers in [1, 3] {
        let pool = ThreadPool::new(workers);
        let runs: Arc<Vec<AtomicUsize>> = Arc::new((0..MANY).map(|_| AtomicUsize::new(0)).collect());
        let (scheduler, inside) = (pool.scheduler(), runs.clone());
        execute(scheduler, move || {
            for n in 0..MANY {
                let runs = inside.clone();
                execute(scheduler, move || {
                    runs[n].fetch_add(1, SeqCst);
                });
            }
        });
        drop(pool);
        assert!(runs.iter().all(|runs| runs.load(SeqCst) == 1));
    }
}

#[test]
fn many_threads_schedule_from_outside() {
    let pool = ThreadPool::new(3);
    let ran = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..MANY / 8 {
                    let job = pool.scheduler().schedule().then(|()| ran.fetch_add(1, SeqCst));
                    sync_wait(job).unwrap();
                }
            });
        }
    });
    assert_eq!(ran.into_inner(), MANY / 8 * 8);
}

#[test]
fn two_pools_schedule_onto_each_other() {
    let (one, other) = (ThreadPool::new(2), ThreadPool::new(2));
    let there_and_back = one
        .scheduler()
        .schedule()
        .then(|()| assert!(one.worker_index().is_some() && other.worker_index().is_none()))
        .continues_on(other.scheduler())
        .then(|()| assert!(one.worker_index().is_none() && other.worker_index().is_some()));
    sync_wait(there_and_back.repeat_n(MANY)).unwrap();
}

#[test]
fn borrowed_data_is_used_on_the_pool() {
    let pool = ThreadPool::new(2);
    let words = ["hold".to_owned(), "fast".to_owned()];
    let mut lengths = [0; 2];
    let (first, second) = lengths.split_at_mut(1);
    sync_wait(when_all((
        pool.scheduler().schedule().then(|()| first[0] = words[0].len()),
        pool.scheduler().schedule().then(|()| second[0] = words[1].len()),
    )))
    .unwrap();
    assert_eq!(lengths, [4, 4]);
}

// Waiting on a worker.

#[test]
fn all_workers_wait_for_work_of_their_pool() {
    for workers in [1, 2, 4] {
        let pool = ThreadPool::new(workers);
        let barrier = Barrier::new(workers);
        let waits = (0..workers).map(|_| {
            pool.scheduler().schedule().then(|()| {
                // Now all of them have arrived, and no worker is left.
                barrier.wait();
                sync_wait(pool.scheduler().schedule().then(|()| pool.worker_index())).unwrap()
            })
        });
        let indices = sync_wait(when_all_iter(waits)).unwrap();
        assert!(indices.iter().all(Option::is_some));
    }
}

#[test]
fn waits_nest_deeply() {
    fn nest(scheduler: PoolScheduler, depth: usize) -> usize {
        if depth == 0 {
            return 0;
        }
        1 + sync_wait(scheduler.schedule().then(move |()| nest(scheduler, depth - 1))).unwrap()
    }
    for workers in [1, 2] {
        let pool = ThreadPool::new(workers);
        assert_eq!(pool.install(|| nest(pool.scheduler(), DEEP)), DEEP);
    }
}

/// Queues many jobs that each wait for two more, on workers with small stacks. Were all to wait at once, the threads would not
/// suffice.
fn many_that_wait(workers: usize, inside: bool, own: PoolLevel, children: PoolLevel) {
    let pool = ThreadPool::builder()
        .threads(workers)
        .stack_size(DEEP_STACK)
        .build()
        .unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let child = match children {
        None => pool.scheduler(),
        Some(priority) => pool.scheduler().with_priority(priority),
    };
    let scheduler = match own {
        None => pool.scheduler(),
        Some(priority) => pool.scheduler().with_priority(priority),
    };
    let ran_too = ran.clone();
    let queue = move || {
        for _ in 0..MANY {
            let ran = ran_too.clone();
            execute(scheduler, move || {
                let both = when_all((child.schedule(), child.schedule()));
                sync_wait(both).unwrap();
                ran.fetch_add(1, SeqCst);
            });
        }
    };
    if inside {
        execute(pool.scheduler(), queue);
    } else {
        // All of them are queued before the first runs.
        let _held = (0..workers).map(|_| hold(pool.scheduler())).collect::<Vec<_>>();
        queue();
    }
    drop(pool);
    assert_eq!(ran.load(SeqCst), MANY);
}

type PoolLevel = Option<Priority>;

#[test]
fn many_queued_waits_do_not_pile_up() {
    for workers in [1, 2] {
        for inside in [false, true] {
            many_that_wait(workers, inside, None, None);
        }
    }
}

#[test]
fn many_queued_urgent_waits_do_not_pile_up() {
    let urgent = Some(Priority::UserInteractive);
    for workers in [1, 2] {
        for children in [None, urgent, Some(Priority::Background)] {
            many_that_wait(workers, false, urgent, children);
        }
    }
}

#[test]
fn many_queued_waits_of_low_priority_do_not_pile_up() {
    let low = Some(Priority::Background);
    for workers in [1, 2] {
        for children in [None, low] {
            many_that_wait(workers, false, low, children);
        }
    }
}

#[test]
fn many_queued_jobs_that_wait_often_do_not_pile_up() {
    // Often enough that the oldest get their turn during each job, and then wait in turn.
    let waits = 3 * ThreadPool::FAIRNESS;
    for priority in [Priority::Default, Priority::UserInteractive] {
        let pool = ThreadPool::builder().threads(1).stack_size(DEEP_STACK).build().unwrap();
        let (plain, scheduler) = (pool.scheduler(), pool.scheduler().with_priority(priority));
        let ran = Arc::new(AtomicUsize::new(0));
        let held = hold(plain);
        for _ in 0..MANY / 20 {
            let ran = ran.clone();
            execute(scheduler, move || {
                (0..waits).for_each(|_| sync_wait(plain.schedule()).unwrap());
                ran.fetch_add(1, SeqCst);
            });
        }
        drop(held);
        drop(pool);
        assert_eq!(ran.load(SeqCst), MANY / 20);
    }
}

#[test]
fn a_wait_on_a_worker_ends_while_others_keep_the_pool_busy() {
    let pool = ThreadPool::new(1);
    let stop = StopSource::new();
    // Two that reschedule themselves forever, so that other work is always available.
    for _ in 0..2 {
        let endless = pool.scheduler().schedule().repeat_until(|()| false);
        start_detached(endless.write_env(WithStopToken(stop.token())));
    }
    for _ in 0..100 {
        pool.install(|| sync_wait(pool.scheduler().schedule()).unwrap());
    }
    stop.request_stop();
}

#[test]
fn a_worker_waits_for_work_of_another_pool_that_waits_for_its_own() {
    let (one, other) = (ThreadPool::new(1), ThreadPool::new(1));
    let sum = one.install(|| other.install(|| one.install(|| other.install(|| 7)) + 1) + 1);
    assert_eq!(sum, 9);
}

#[test]
fn what_a_job_pushed_runs_although_the_job_blocks() {
    let pool = ThreadPool::new(2);
    let scheduler = pool.scheduler();
    for hops in 0..40 {
        // Hops first: a job that comes out of the worker's own slot again and again.
        let work = starts_on(scheduler, scheduler.schedule().repeat_n(hops)).then(move |()| {
            // The other worker may have gone to sleep by then, or not: both must work.
            (0..1_000).for_each(|_| thread::yield_now());
            let (sent, received) = mpsc::channel();
            execute(scheduler, move || sent.send(()).unwrap());
            // The pool does not know of this wait: the other worker must take the job.
            received.recv().unwrap();
        });
        sync_wait(work).unwrap();
    }
}

// `install`.

#[test]
fn install_runs_here_when_here_is_the_pool() {
    let pool = ThreadPool::new(2);
    pool.install(|| {
        let here = thread::current().id();
        assert_eq!(pool.install(|| thread::current().id()), here);
    });
}

#[test]
fn install_from_another_pool_runs_on_this_one() {
    let (one, other) = (ThreadPool::new(1), ThreadPool::new(1));
    let (on_one, on_other) = one.install(|| other.install(|| (one.worker_index(), other.worker_index())));
    assert_eq!((on_one, on_other), (None, Some(0)));
}

#[test]
fn install_returns_what_borrows_and_what_can_only_be_moved() {
    let pool = ThreadPool::new(1);
    let words = ["hold".to_owned(), "fast".to_owned()];
    let longest: &String = pool.install(|| &words[1]);
    assert_eq!(longest, "fast");
    let census = Census::new();
    let value = census.value();
    let value = pool.install(move || value);
    assert_eq!(census.alive(), 1);
    drop(value);
    assert_eq!(census.alive(), 0);
}

#[test]
fn install_passes_a_panic_on() {
    let pool = ThreadPool::new(1);
    let outside = || pool.install(|| panic!("in a function"));
    assert_eq!(panic_message(outside), "in a function");
    let inside = || pool.install(|| pool.install(|| panic!("deeper")));
    assert_eq!(panic_message(inside), "deeper");
    assert_eq!(pool.install(|| 7), 7);
}

// Channels.

#[test]
fn a_stop_before_its_turn_completes_it_stopped_on_the_pool() {
    let pool = ThreadPool::new(1);
    let held = hold(pool.scheduler());
    let source = StopSource::new();
    let (sent, received) = mpsc::channel();
    let (scheduler, value) = (pool.scheduler(), sent.clone());
    let work = scheduler
        .schedule()
        .then(move |()| value.send(None).unwrap())
        .upon_stopped(move || sent.send(Some(thread::current().name().map(str::to_owned))).unwrap())
        .write_env(WithStopToken(source.token()));
    start_detached(work);
    source.request_stop();
    drop(held);
    assert_eq!(received.recv().unwrap(), Some(Some("bowline-0".to_owned())));
}

#[test]
fn a_stop_that_was_not_requested_does_nothing() {
    let pool = ThreadPool::new(1);
    let source = InplaceStopSource::new();
    let work = pool.scheduler().schedule().write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_value());
    source.request_stop();
    let work = pool.scheduler().schedule().write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_stopped());
}

#[test]
fn a_panic_in_a_job_arrives_and_the_worker_survives() {
    let pool = ThreadPool::new(1);
    let thread = pool.install(|| thread::current().id());
    for _ in 0..3 {
        let panics = pool.scheduler().schedule().then(|()| panic!("in a job"));
        assert_eq!(panic_message(|| sync_wait(panics)), "in a job");
        // This panic has no receiver, and the worker survives it.
        execute(pool.scheduler(), || std::panic::resume_unwind(Box::new("detached")));
    }
    assert_eq!(pool.install(|| thread::current().id()), thread);
}

#[test]
fn errors_pass_from_the_pool() {
    let pool = ThreadPool::new(1);
    let fails = just(())
        .continues_on(pool.scheduler())
        .infallible_into()
        .try_then(|()| Err::<(), _>("no"));
    assert_eq!(sync_wait(fails).err(), Some("no"));
}

// With the algorithms.

/// Returns whether the calling thread is a worker of the pool.
fn on(pool: &ThreadPool) -> bool {
    pool.worker_index().is_some()
}

#[test]
fn starts_on_and_continues_on_move_to_the_pool() {
    let pool = ThreadPool::new(2);
    assert!(sync_wait(starts_on(pool.scheduler(), just_from(|| on(&pool)))).unwrap());
    assert!(sync_wait(just(()).continues_on(pool.scheduler()).then(|()| on(&pool))).unwrap());
    assert!(!sync_wait(just_from(|| on(&pool)).continues_on(pool.scheduler())).unwrap());
}

#[test]
fn on_comes_back_to_the_pool_on_every_channel() {
    let (here, there) = (ThreadPool::new(2), ThreadPool::new(2));
    let back = |work: BoxedSender<'_, (), &'static str>| {
        let work = work
            .on(there.scheduler())
            .into_outcome()
            .then(|outcome| (on(&here), outcome));
        sync_wait(starts_on(here.scheduler(), work)).unwrap()
    };
    let there_ran = || assert!(on(&there));
    assert_eq!(
        back(just_from(there_ran).infallible_into().boxed()),
        (true, Outcome::Value(()))
    );
    assert_eq!(
        back(just_from(there_ran).infallible_into().try_then(|()| Err("no")).boxed()),
        (true, Outcome::Error("no"))
    );
    assert_eq!(
        back(
            just_from(there_ran)
                .infallible_into()
                .let_value(|_| just_stopped())
                .boxed()
        ),
        (true, Outcome::Stopped)
    );
}

#[test]
fn a_panic_comes_back_to_the_pool_through_affine_and_on() {
    let (here, there) = (ThreadPool::new(1), ThreadPool::new(1));
    // `finally` runs its clean-up where the panic arrives.
    let came_back = AtomicUsize::new(0);
    let note = || {
        just_from(|| {
            assert!(on(&here));
            came_back.fetch_add(1, SeqCst);
        })
    };
    let panics = || {
        just(()).then(|()| -> () {
            assert!(on(&there));
            panic!("there")
        })
    };
    let work = starts_on(here.scheduler(), panics().on(there.scheduler()).finally(note()));
    assert_eq!(panic_message(|| sync_wait(work)), "there");
    let work = starts_on(
        here.scheduler(),
        just(())
            .continues_on(there.scheduler())
            .let_value(|_| panics())
            .affine()
            .finally(note()),
    );
    assert_eq!(panic_message(|| sync_wait(work)), "there");
    assert_eq!(came_back.into_inner(), 2);
}

#[test]
fn affine_comes_back_to_the_pool_on_every_channel() {
    let (here, there) = (ThreadPool::new(2), ThreadPool::new(1));
    let back = |work: BoxedSender<'_, (), &'static str>| {
        let work = work.affine().into_outcome().then(|outcome| (on(&here), outcome));
        sync_wait(starts_on(here.scheduler(), work)).unwrap()
    };
    let away = || {
        just(())
            .continues_on(there.scheduler())
            .then(|()| assert!(on(&there)))
            .infallible_into()
    };
    assert_eq!(back(away().boxed()), (true, Outcome::Value(())));
    assert_eq!(
        back(away().try_then(|()| Err("no")).boxed()),
        (true, Outcome::Error("no"))
    );
    assert_eq!(
        back(away().let_value(|_| just_stopped()).boxed()),
        (true, Outcome::Stopped)
    );
}

#[test]
fn affine_makes_no_trip_for_what_stays() {
    let pool = ThreadPool::new(1);
    let order = Order::default();
    // If the affine sender made a trip, the job queued before it would run first.
    let work = just_from(|| execute(pool.scheduler(), note(&order, 0)))
        .let_value(|_| just(7).affine())
        .then(|seven| note(&order, seven)());
    sync_wait(starts_on(pool.scheduler(), work)).unwrap();
    drop(pool);
    assert_eq!(taken(order), [7, 0]);
}

#[test]
fn when_all_split_ensure_started_and_detached_work_run_on_the_pool() {
    let pool = ThreadPool::new(2);
    let job = || pool.scheduler().schedule().then(|()| on(&pool));
    assert_eq!(sync_wait(when_all((job(), job(), job()))).unwrap(), (true, true, true));

    let scheduler = pool.scheduler();
    let name = move || {
        scheduler
            .schedule()
            .then(|()| thread::current().name().unwrap().starts_with("bowline-"))
    };
    let shared = name().split();
    assert_eq!(sync_wait(when_all((shared.clone(), shared))).unwrap(), (true, true));
    assert!(sync_wait(name().ensure_started()).unwrap());

    let (sent, received) = mpsc::channel();
    let also = sent.clone();
    start_detached(name().then(move |there| sent.send(there).unwrap()));
    execute(scheduler, move || also.send(true).unwrap());
    assert!(received.recv().unwrap() && received.recv().unwrap());
}

#[test]
fn work_started_on_the_pool_finds_it_in_the_environment() {
    let pool = ThreadPool::new(2);
    #[derive(Clone, Copy)]
    struct SchedulerOfPool;
    impl bowline::Query for SchedulerOfPool {
        type Answer = bool;
        fn ask<E: Env>(self, _: &E) -> bool {
            E::Scheduler::INFALLIBLE && size_of::<E::Scheduler>() == size_of::<PoolScheduler>()
        }
    }
    assert!(sync_wait(starts_on(pool.scheduler(), read_env(SchedulerOfPool))).unwrap());
}

// The handle.

#[test]
fn a_scheduler_is_two_words_and_may_leave_the_pool() {
    fn everywhere<T: Copy + Send + Sync + 'static>(_: T) {}
    let pool = ThreadPool::new(1);
    everywhere(pool.scheduler());
    assert_eq!(size_of::<PoolScheduler>(), 2 * size_of::<usize>());
    const { assert!(PoolScheduler::INFALLIBLE) }
    assert_eq!(completes(&pool.scheduler().schedule()), Completes::Anywhere);
}

#[test]
fn schedulers_of_one_pool_are_equal_at_any_priority() {
    let (one, other) = (ThreadPool::new(2), ThreadPool::new(2));
    assert_eq!(one.scheduler(), one.scheduler());
    assert_eq!(one.scheduler(), one.scheduler().with_priority(Priority::Background));
    assert_ne!(one.scheduler(), other.scheduler());
    assert_eq!(one.scheduler().priority(), None);
    let background = one.scheduler().with_priority(Priority::Background);
    assert_eq!(background.priority(), Some(Priority::Background));
}

#[test]
fn everything_can_be_printed() {
    let pool = ThreadPool::builder().threads(3).build().unwrap();
    assert!(format!("{pool:?}").contains("threads: 3"));
    let low = pool.scheduler().with_priority(Priority::Background);
    assert!(format!("{low:?}").contains("Background"), "{low:?}");
    assert!(format!("{:?}", low.schedule()).contains("Background"));
    assert!(format!("{:?}", ThreadPool::builder().threads(3)).contains("3"));
    let (record, _) = Record::new();
    let operation = low.schedule().connect(record);
    assert!(format!("{operation:?}").contains("PoolOperation"));
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let pool = ThreadPool::new(1);
    let (record, received) = Record::<(), _>::new();
    drop(pool.scheduler().schedule().connect(record));
    drop(pool);
    assert_eq!(received.recv().unwrap(), Recorded::Dropped);
}

// Allocations and stack.

/// Returns a pool whose threads' allocations are counted.
fn counted_pool(workers: usize) -> (ThreadPool, CrewAllocations) {
    let crew = CrewAllocations::new();
    crew.join();
    let pool = ThreadPool::builder()
        .threads(workers)
        .on_start(move |_| crew.join())
        .build()
        .unwrap();
    (pool, crew)
}

#[test]
fn allocations_of_workers_are_counted() {
    // Otherwise the tests below would show nothing.
    let (pool, crew) = counted_pool(1);
    let ((), count) = crew.during(|| drop(pool.install(|| Box::new(7))));
    assert_eq!(count, 1);
}

#[test]
fn a_hop_does_not_allocate() {
    for workers in [1, 2] {
        let (pool, crew) = counted_pool(workers);
        let hops = || pool.scheduler().schedule().repeat_n(5_000);
        let inside = || sync_wait(starts_on(pool.scheduler(), hops())).unwrap();
        let outside = || (0..2_000).for_each(|_| sync_wait(pool.scheduler().schedule()).unwrap());
        let between = || {
            let low = pool.scheduler().with_priority(Priority::Background);
            let hop = pool.scheduler().schedule().continues_on(low);
            sync_wait(hop.repeat_n(2_000)).unwrap();
        };
        for work in [&inside as &dyn Fn(), &outside, &between] {
            // A thread creates its wake-up handle once.
            assert_eq!(settles_at(0, || crew.during(work).1), 0, "{workers} workers");
        }
    }
}

#[test]
fn more_than_a_worker_can_queue_does_not_allocate() {
    for workers in [1, 2] {
        let (pool, crew) = counted_pool(workers);
        // More than one ring holds, started by one worker.
        let hop = pool.scheduler().schedule();
        let work = || when_all([hop; 1_000]);
        let run = || _ = sync_wait(starts_on(pool.scheduler(), work())).unwrap();
        assert_eq!(settles_at(0, || crew.during(run).1), 0);
    }
}

#[test]
fn a_wait_on_a_worker_does_not_allocate() {
    let (pool, crew) = counted_pool(2);
    let waits = || pool.install(|| (0..1_000).for_each(|_| sync_wait(pool.scheduler().schedule()).unwrap()));
    // Starts the spare thread that may be needed: one worker blocks, and the other is held until the job has run.
    pool.install(|| {
        let held = hold(pool.scheduler());
        sync_wait(pool.scheduler().schedule()).unwrap();
        drop(held);
    });
    assert_eq!(settles_at(0, || crew.during(waits).1), 0);
}

#[test]
fn a_million_hops_fit_into_a_small_stack() {
    let pool = ThreadPool::builder()
        .threads(2)
        .stack_size(SMALL_STACK)
        .build()
        .unwrap();
    let hops = || pool.scheduler().schedule().repeat_until(million());
    sync_wait(starts_on(pool.scheduler(), hops())).unwrap();
    sync_wait(when_all((hops(), hops()))).unwrap();
    let low = pool.scheduler().with_priority(Priority::Utility);
    sync_wait(low.schedule().repeat_until(million())).unwrap();
}

#[test]
fn a_long_chain_from_job_to_job_fits_into_a_small_stack() {
    fn chain(scheduler: PoolScheduler, left: usize, done: mpsc::Sender<()>) {
        if left == 0 {
            done.send(()).unwrap();
            return;
        }
        execute(scheduler, move || chain(scheduler, left - 1, done));
    }
    let pool = ThreadPool::builder()
        .threads(2)
        .stack_size(SMALL_STACK)
        .build()
        .unwrap();
    let (sent, received) = mpsc::channel();
    chain(pool.scheduler(), ROUNDS / 10, sent);
    received.recv().unwrap();
}
