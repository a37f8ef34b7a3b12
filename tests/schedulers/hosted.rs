//! `HostedScheduler`: a queue that another executor drives.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{Host, HostedDriver, HostedScheduler, TaskScheduler, ThreadPool};
use bowline::stop::StopSource;
use bowline::task::{self, LocalTask, SpawnOptions};

/// A limit far beyond the duration of a test: it turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of jobs that a driver runs in one poll.
const BUDGET: usize = 64;

/// A waker that counts.
#[derive(Default)]
struct CountWakes(AtomicUsize);

impl Wake for CountWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A driver that a test polls by hand.
struct ByHand {
    driver: Pin<Box<HostedDriver>>,
    wakes: Arc<CountWakes>,
}

impl ByHand {
    fn new(driver: HostedDriver) -> Self {
        ByHand {
            driver: Box::pin(driver),
            wakes: Arc::default(),
        }
    }

    fn poll(&mut self) -> Poll<()> {
        let waker = Waker::from(self.wakes.clone());
        self.driver.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn wakes(&self) -> usize {
        self.wakes.0.load(SeqCst)
    }
}

fn by_hand(drivers: usize) -> (HostedScheduler, Vec<ByHand>) {
    let (scheduler, drivers) = HostedScheduler::new(drivers);
    (scheduler, drivers.into_iter().map(ByHand::new).collect())
}

/// Queues `f`.
fn queue(scheduler: HostedScheduler, f: impl FnOnce() + Send + 'static) {
    start_detached(scheduler.schedule().then(|()| f()));
}

/// Waits until the condition holds.
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} never happened");
        thread::yield_now();
    }
}

/// Polls a driver on a thread of its own until it is ready, or `leave` is set. Then drops it.
fn drive(driver: HostedDriver, leave: Arc<AtomicBool>) -> thread::JoinHandle<()> {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    thread::spawn(move || {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut driver = Box::pin(driver);
        while !leave.load(SeqCst) && driver.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    })
}

#[test]
fn tasks_and_senders_run_where_the_host_polls() {
    let executor = async_executor::Executor::new();
    let (scheduler, drivers) = HostedScheduler::new(2);
    for driver in drivers {
        executor.spawn(driver).detach();
    }
    let here = thread::current().id();
    let work = async move {
        let Ok(there) = starts_on(scheduler, just_from(|| thread::current().id())).await;
        let task = Task::new(async move {
            task::yield_now().await;
            task::sleep(Duration::from_millis(1)).await;
            let mut ids = vec![thread::current().id()];
            task::group(async |group| {
                for _ in 0..3 {
                    group.spawn(async { thread::current().id() });
                }
                while let Some(id) = group.next().await {
                    ids.push(id);
                }
            })
            .await;
            ids
        });
        let Ok(ids) = starts_on(scheduler, task).await;
        (there, ids)
    };
    let (there, ids) = futures_lite::future::block_on(executor.run(work));
    assert_eq!(there, here);
    assert_eq!(ids, [here; 4]);
    assert!(!scheduler.has_ended());
    drop(executor);
    assert!(scheduler.has_ended());
}

#[test]
fn runs_first_in_first_out_and_leaves_the_host_its_turn() {
    let (scheduler, mut drivers) = by_hand(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    for n in 0..BUDGET + 2 {
        let order = order.clone();
        queue(scheduler, move || lock(&order).push(n));
    }
    assert!(drivers[0].poll().is_pending());
    assert_eq!(lock(&order).len(), BUDGET);
    assert_eq!(drivers[0].wakes(), 1, "it has to be polled again");
    assert!(drivers[0].poll().is_pending());
    assert!(lock(&order).iter().copied().eq(0..BUDGET + 2));
    assert_eq!(drivers[0].wakes(), 1, "nothing is left");
}

#[test]
fn each_push_wakes_at_most_one_parked_driver() {
    let (scheduler, mut drivers) = by_hand(2);
    // A driver that was never polled is polled soon: nothing can be woken.
    queue(scheduler, || ());
    let wakes = |drivers: &[ByHand]| [drivers[0].wakes(), drivers[1].wakes()];
    assert!(drivers.iter_mut().all(|driver| driver.poll().is_pending()));
    assert_eq!(wakes(&drivers), [0, 0]);
    queue(scheduler, || ());
    assert_eq!(wakes(&drivers), [1, 0]);
    queue(scheduler, || ());
    assert_eq!(wakes(&drivers), [1, 1]);
    queue(scheduler, || ());
    assert_eq!(wakes(&drivers), [1, 1]);
    // The first takes all, and the second finds nothing. Both park again.
    assert!(drivers.iter_mut().all(|driver| driver.poll().is_pending()));
    queue(scheduler, || ());
    assert_eq!(wakes(&drivers).iter().sum::<usize>(), 3);
}

#[test]
fn a_job_that_queues_another_wakes_a_second_driver() {
    let (scheduler, mut drivers) = by_hand(2);
    assert!(drivers[1].poll().is_pending());
    queue(scheduler, move || queue(scheduler, || ()));
    assert_eq!(drivers[1].wakes(), 1);
    assert!(drivers[1].poll().is_pending());
    assert!(drivers[0].poll().is_pending());
    assert!(drivers[0].poll().is_pending());
    queue(scheduler, move || {
        queue(scheduler, || ());
        queue(scheduler, || ());
    });
    // Whichever was woken first is polled, and its job wakes the other.
    let first = usize::from(drivers[0].wakes() == 0);
    let before = drivers[1 - first].wakes();
    assert!(drivers[first].poll().is_pending());
    assert_eq!(drivers[1 - first].wakes(), before + 1);
}

/// Queues a job, and returns where it reports whether a worker of the global pool has run it.
fn queue_report(scheduler: HostedScheduler) -> mpsc::Receiver<bool> {
    let (report, ran) = mpsc::channel();
    queue(scheduler, move || {
        report.send(ThreadPool::global().worker_index().is_some()).unwrap();
    });
    ran
}

#[test]
fn the_first_drop_ends_the_scheduler_and_wakes_the_other_drivers() {
    let (scheduler, mut drivers) = by_hand(4);
    assert!(drivers.iter_mut().all(|driver| driver.poll().is_pending()));
    let queued = queue_report(scheduler);
    let woken = drivers.iter().position(|driver| driver.wakes() == 1).unwrap();
    drop(drivers.remove(woken));
    assert!(scheduler.has_ended());
    assert!(queued.recv_timeout(PATIENCE).unwrap());
    assert!(queue_report(scheduler).recv_timeout(PATIENCE).unwrap());
    // Each driver that leaves wakes the next, whether it is polled or dropped.
    let woken = drivers.iter().position(|driver| driver.wakes() == 1).unwrap();
    assert!(drivers.remove(woken).poll().is_ready());
    let woken = drivers.iter().position(|driver| driver.wakes() == 1).unwrap();
    drop(drivers.remove(woken));
    assert_eq!(drivers[0].wakes(), 1);
    assert!(drivers[0].poll().is_ready());
    assert!(drivers[0].poll().is_ready());
}

#[test]
fn a_host_may_end_the_scheduler_before_it_drops_a_driver() {
    let (scheduler, mut drivers) = by_hand(2);
    assert!(drivers.iter_mut().all(|driver| driver.poll().is_pending()));
    let queued = queue_report(scheduler);
    scheduler.end();
    assert!(scheduler.has_ended());
    assert!(queued.recv_timeout(PATIENCE).unwrap());
    // It has no effect a second time, nor on the next scheduler with this memory.
    scheduler.end();
    assert!(drivers.iter_mut().all(|driver| driver.poll().is_ready()));
    let (next, mut next_drivers) = by_hand(1);
    scheduler.end();
    assert!(!next.has_ended());
    let queued = queue_report(next);
    assert!(next_drivers[0].poll().is_pending());
    assert!(!queued.recv_timeout(PATIENCE).unwrap());
}

#[test]
fn the_first_drop_moves_queued_and_later_work_to_the_global_pool() {
    let (scheduler, mut drivers) = by_hand(2);
    let here = thread::current().id();
    let (report, ran) = mpsc::channel();
    for n in 0..100 {
        let report = report.clone();
        queue(scheduler, move || {
            report
                .send((n, thread::current().id(), ThreadPool::global().worker_index().is_some()))
                .unwrap();
        });
    }
    assert!(drivers[0].poll().is_pending());
    assert_eq!(ran.try_iter().count(), BUDGET);
    drivers.pop();
    assert!(scheduler.has_ended());
    let report_later = report;
    queue(scheduler, move || {
        report_later
            .send((
                100,
                thread::current().id(),
                ThreadPool::global().worker_index().is_some(),
            ))
            .unwrap();
    });
    let mut moved: Vec<_> = (BUDGET..=100).map(|_| ran.recv_timeout(PATIENCE).unwrap()).collect();
    assert!(ran.recv().is_err(), "nothing ran twice");
    assert!(moved.iter().all(|(_, thread, global)| *thread != here && *global));
    moved.sort_by_key(|(n, ..)| *n);
    assert!(moved.iter().map(|(n, ..)| *n).eq(BUDGET..=100));
    // Tasks continue there, too.
    let task = Task::new(async {
        task::yield_now().await;
        ThreadPool::global().worker_index().is_some()
    });
    assert!(sync_wait(starts_on(scheduler, task)).unwrap());
}

#[test]
fn memory_of_an_ended_queue_is_not_the_queue_that_reuses_it() {
    let (old, drivers) = HostedScheduler::new(3);
    drop(drivers);
    let (new, mut drivers) = by_hand(1);
    assert_ne!(old, new);
    assert!(old.has_ended() && !new.has_ended());
    let there = sync_wait(starts_on(
        old,
        just_from(|| ThreadPool::global().worker_index().is_some()),
    ));
    assert!(there.unwrap());
    assert!(drivers[0].poll().is_pending());
    assert_eq!(drivers[0].wakes(), 0);
}

#[test]
fn a_driver_that_blocks_leaves_the_queue_to_the_others() {
    let (scheduler, drivers) = HostedScheduler::new(2);
    let leave = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = drivers.into_iter().map(|driver| drive(driver, leave.clone())).collect();
    let inner = || sync_wait(starts_on(scheduler, just_from(|| 7))).unwrap();
    assert_eq!(sync_wait(starts_on(scheduler, just_from(inner))).unwrap(), 7);
    leave.store(true, SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }
}

/// The host drops the driver that rests, and polls the other one. Its job waits for a queued one.
#[test]
fn jobs_that_block_keep_no_job_of_a_host_that_ends() {
    let waits: [fn(HostedScheduler) -> bool; 2] = [
        |scheduler| {
            let inner = just_from(|| ThreadPool::global().worker_index().is_some());
            sync_wait(starts_on(scheduler, inner)).unwrap()
        },
        // The queue does not learn of this wait.
        |scheduler| queue_report(scheduler).recv_timeout(PATIENCE).unwrap(),
    ];
    for wait in waits {
        let (scheduler, mut drivers) = HostedScheduler::new(2);
        let spare = drivers.pop().unwrap();
        let (waits, waiting) = mpsc::channel();
        let blocked = drive(drivers.pop().unwrap(), Arc::default());
        let outer = just_from(move || {
            waits.send(()).unwrap();
            wait(scheduler)
        });
        let outer = thread::spawn(move || sync_wait(starts_on(scheduler, outer)).unwrap());
        waiting.recv_timeout(PATIENCE).unwrap();
        thread::sleep(Duration::from_millis(10));
        drop(spare);
        assert!(outer.join().unwrap(), "the inner job ran on the global pool");
        blocked.join().unwrap();
        assert!(scheduler.has_ended());
    }
}

#[test]
fn higher_priorities_run_first_and_no_level_starves() {
    let (scheduler, mut drivers) = by_hand(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let push = |priority: Priority, n: usize| {
        let order = order.clone();
        start_detached(
            scheduler
                .schedule()
                .then(move |()| lock(&order).push(n))
                .write_env(With(priority)),
        );
    };
    push(Priority::Background, 1000);
    for n in 0..320 {
        push(Priority::UserInteractive, n);
    }
    while drivers[0].wakes() < 5 {
        assert!(drivers[0].poll().is_pending());
    }
    let order = lock(&order).clone();
    assert_eq!(order[0], 0);
    let turn = order.iter().position(|n| *n == 1000).expect("the low one had a turn");
    assert!((1..320).contains(&turn), "{turn}");
}

#[test]
fn a_raised_task_overtakes() {
    let (scheduler, mut drivers) = by_hand(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let detach = |n: usize| {
        let order = order.clone();
        let options = SpawnOptions::new().scheduler(scheduler).priority(Priority::Utility);
        task::detach_with(options, async move { lock(&order).push(n) })
    };
    let handles = [detach(0), detach(1), detach(2)];
    handles[2].raise(Priority::UserInitiated);
    assert!(drivers[0].poll().is_pending());
    assert_eq!(*lock(&order), [2, 0, 1]);
}

/// A stop wakes the children of a group, and with them the driver. Its waker waits until another thread has raised the task with these
/// children: each is in the queue by then.
#[test]
fn a_waker_may_wait_for_a_raise_of_the_children_that_a_stop_has_woken() {
    struct Raises {
        ask: mpsc::Sender<()>,
        raised: Mutex<mpsc::Receiver<()>>,
        in_time: AtomicUsize,
    }
    impl Wake for Raises {
        fn wake(self: Arc<Self>) {
            if self.ask.send(()).is_ok() {
                let raised = self.raised.lock().unwrap().recv_timeout(Duration::from_secs(10));
                self.in_time.fetch_add(usize::from(raised.is_ok()), SeqCst);
            }
        }
    }

    let (scheduler, mut drivers) = by_hand(1);
    let handle = task::detach_with(SpawnOptions::new().scheduler(scheduler), async {
        task::group(async |group| {
            for _ in 0..3 {
                group.spawn(task::sleep(PATIENCE * 60));
            }
            group.wait_for_all().await;
        })
        .await;
    });
    while drivers[0].wakes() != 0 {
        drivers[0].wakes.0.store(0, SeqCst);
        assert!(drivers[0].poll().is_pending());
    }
    let (ask, asked) = mpsc::channel();
    let (raised, are_raised) = mpsc::channel();
    let waker = Arc::new(Raises {
        ask,
        raised: Mutex::new(are_raised),
        in_time: AtomicUsize::new(0),
    });
    let parked = drivers[0]
        .driver
        .as_mut()
        .poll(&mut Context::from_waker(&Waker::from(waker.clone())));
    assert!(parked.is_pending());
    thread::scope(|scope| {
        scope.spawn(|| {
            asked.recv().unwrap();
            handle.raise(Priority::UserInteractive);
            raised.send(()).unwrap();
            // The next wake does not wait.
            drop(asked);
        });
        handle.cancel();
    });
    assert_eq!(waker.in_time.load(SeqCst), 1);
    while !handle.is_finished() {
        assert!(drivers[0].poll().is_pending());
    }
}

#[test]
fn a_raise_after_the_end_reaches_the_global_pool() {
    for _ in 0..200 {
        let (scheduler, drivers) = HostedScheduler::new(1);
        let ran = Arc::new(AtomicUsize::new(0));
        let handles: Vec<_> = (0..4)
            .map(|_| {
                let ran = ran.clone();
                let options = SpawnOptions::new().scheduler(scheduler).priority(Priority::Background);
                task::detach_with(options, async move { _ = ran.fetch_add(1, SeqCst) })
            })
            .collect();
        thread::scope(|scope| {
            scope.spawn(|| handles.iter().for_each(|handle| handle.raise(Priority::UserInitiated)));
            drop(drivers);
        });
        eventually("the last run", || handles.iter().all(task::Handle::is_finished));
        assert_eq!(ran.load(SeqCst), 4);
    }
}

#[test]
fn a_hop_does_not_allocate() {
    let (scheduler, mut drivers) = by_hand(1);
    let task = Task::new(async {
        for _ in 0..1000 {
            task::yield_now().await;
        }
    });
    start_detached(starts_on(scheduler, task).upon_error(|never| match never {}));
    // The first poll makes what the task needs.
    assert!(drivers[0].poll().is_pending());
    let waker = Waker::from(drivers[0].wakes.clone());
    let ((), allocated) = allocations(|| {
        for _ in 0..10 {
            let _ = drivers[0].driver.as_mut().poll(&mut Context::from_waker(&waker));
        }
    });
    assert_eq!(allocated, 0);
    // Pushes of other threads, and the wake-ups, do not either.
    let pushes = thread::spawn(move || {
        sync_wait(scheduler.schedule()).unwrap();
        let ((), allocated) = allocations(|| (0..10).for_each(|_| sync_wait(scheduler.schedule()).unwrap()));
        allocated
    });
    eventually("the last push", || {
        assert!(drivers[0].poll().is_pending());
        pushes.is_finished()
    });
    assert_eq!(pushes.join().unwrap(), 0);
}

#[test]
fn a_stop_by_its_turn_completes_stopped() {
    let (scheduler, mut drivers) = by_hand(1);
    let source = StopSource::new();
    let outcome = Arc::new(Mutex::new(None));
    let noted = outcome.clone();
    start_detached(
        scheduler
            .schedule()
            .write_env(WithStopToken(source.token()))
            .stopped_as_option()
            .then(move |value| *lock(&noted) = Some(value.is_some())),
    );
    source.request_stop();
    assert_eq!(*lock(&outcome), None);
    assert!(drivers[0].poll().is_pending());
    assert_eq!(*lock(&outcome), Some(false));
}

#[test]
fn handles_are_equal_when_they_are_of_one_queue() {
    let (one, _drivers) = HostedScheduler::new(1);
    let (two, _others) = HostedScheduler::new(1);
    assert_eq!(one, one.clone());
    assert_ne!(one, two);
    assert!(TaskScheduler::new(one) == one);
    assert!(TaskScheduler::new(one) != two);
    assert!(TaskScheduler::new(one) != ThreadPool::global().scheduler());
    assert!(size_of::<HostedScheduler>() <= 2 * size_of::<usize>());
}

#[test]
fn a_local_task_is_refused() {
    let (scheduler, mut drivers) = by_hand(1);
    let message = Arc::new(Mutex::new(String::new()));
    let outcome = panic_message(|| {
        let local = LocalTask::new(async { task::yield_now().await });
        sync_wait(local.write_env(WithScheduler(scheduler)))
    });
    lock(&message).push_str(&outcome);
    assert!(
        lock(&message).contains("a local task stays on its thread"),
        "{message:?}"
    );
    assert!(drivers[0].poll().is_pending());
}

#[test]
fn a_job_does_not_see_the_task_that_polls_its_driver() {
    let (scheduler, drivers) = HostedScheduler::new(1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    queue(scheduler, move || lock(&notes).push(task::current().is_some()));
    let outer = Task::new(async move {
        let mut driver = drivers.into_iter().next().unwrap();
        assert!(futures_lite::future::poll_once(&mut driver).await.is_none());
        task::current().is_some()
    });
    assert!(sync_wait(outer).unwrap());
    assert_eq!(*lock(&seen), [false]);
}

#[test]
fn a_driver_may_be_polled_by_a_job_of_another() {
    let (outer, mut drivers) = by_hand(1);
    let (inner, inner_drivers) = HostedScheduler::new(1);
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let ran = ran.clone();
        queue(inner, move || _ = ran.fetch_add(1, SeqCst));
    }
    queue(outer, move || {
        let mut driver = ByHand::new(inner_drivers.into_iter().next().unwrap());
        assert!(driver.poll().is_pending());
    });
    assert!(drivers[0].poll().is_pending());
    assert_eq!(ran.load(SeqCst), 3);
    assert!(inner.has_ended() && !outer.has_ended());
}

#[test]
fn a_wait_blocks_every_driver_beneath_it() {
    // The outer queue has another driver, which takes the job that the inner one's job waits for.
    let (outer, mut outer_drivers) = HostedScheduler::new(2);
    let leave = Arc::new(AtomicBool::new(false));
    let spare = outer_drivers.pop().unwrap();
    let mut here = ByHand::new(outer_drivers.pop().unwrap());
    let (inner, inner_drivers) = HostedScheduler::new(1);
    let seen = Arc::new(AtomicUsize::new(0));
    let notes = seen.clone();
    queue(inner, move || {
        let seven = sync_wait(starts_on(outer, just_from(|| 7))).unwrap();
        notes.store(seven, SeqCst);
    });
    queue(outer, move || {
        let mut driver = ByHand::new(inner_drivers.into_iter().next().unwrap());
        assert!(driver.poll().is_pending());
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            let driving = drive(spare, leave.clone());
            eventually("the end of the wait", || seen.load(SeqCst) == 7);
            leave.store(true, SeqCst);
            driving.join().unwrap();
        });
        // Either thread may take the outer job. The other takes the one that it waits for.
        eventually("the end of the wait", || {
            assert!(here.poll().is_pending());
            seen.load(SeqCst) == 7
        });
    });
    assert_eq!(seen.load(SeqCst), 7);
}

#[test]
fn a_panic_in_a_job_does_not_reach_the_host() {
    let (scheduler, mut drivers) = by_hand(1);
    let caught =
        thread::spawn(move || panic_message(|| sync_wait(starts_on(scheduler, just_from(|| panic!("in a job"))))));
    eventually("the end of the job", || {
        assert!(drivers[0].poll().is_pending());
        caught.is_finished()
    });
    assert_eq!(caught.join().unwrap(), "in a job");
}

/// A waker whose functions panic as the flags say.
fn hostile_waker(on_wake: bool, on_clone: bool) -> Waker {
    const fn table<const WAKE: bool>() -> &'static RawWakerVTable {
        fn raw<const WAKE: bool>() -> RawWaker {
            RawWaker::new(std::ptr::null(), table::<WAKE>())
        }
        &RawWakerVTable::new(
            |_| raw::<WAKE>(),
            |_| {
                if WAKE {
                    quiet_panic()
                }
            },
            |_| {
                if WAKE {
                    quiet_panic()
                }
            },
            |_| (),
        )
    }
    static REFUSES: RawWakerVTable = RawWakerVTable::new(|_| quiet_panic(), |_| (), |_| (), |_| ());
    let table = match (on_wake, on_clone) {
        (_, true) => &REFUSES,
        (true, false) => table::<true>(),
        (false, false) => table::<false>(),
    };
    // SAFETY: the functions of the tables access no data.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), table)) }
}

#[test]
fn a_waker_that_panics_leaves_the_work_to_another_driver() {
    let (scheduler, mut drivers) = by_hand(2);
    let ran = Arc::new(AtomicUsize::new(0));
    let push = || {
        let ran = ran.clone();
        queue(scheduler, move || _ = ran.fetch_add(1, SeqCst));
    };
    let hostile = hostile_waker(true, false);
    assert!(
        drivers[0]
            .driver
            .as_mut()
            .poll(&mut Context::from_waker(&hostile))
            .is_pending()
    );
    assert!(drivers[1].poll().is_pending());
    push();
    assert_eq!(drivers[1].wakes(), 1);
    assert!(drivers[1].poll().is_pending());
    assert_eq!(ran.load(SeqCst), 1);
    // A yield that cannot wake itself unwinds, and the driver works again when it is polled.
    for _ in 0..=BUDGET {
        push();
    }
    let yields = catch_unwind(AssertUnwindSafe(|| {
        drivers[0].driver.as_mut().poll(&mut Context::from_waker(&hostile))
    }));
    assert!(yields.is_err());
    assert!(drivers[0].poll().is_pending());
    assert_eq!(ran.load(SeqCst), BUDGET + 2);
}

#[test]
fn a_waker_that_cannot_be_cloned_leaves_the_work_to_another_driver() {
    let (scheduler, mut drivers) = by_hand(2);
    assert!(drivers.iter_mut().all(|driver| driver.poll().is_pending()));
    queue(scheduler, || ());
    let woken = usize::from(drivers[0].wakes() == 0);
    let hostile = hostile_waker(false, true);
    let polled = catch_unwind(AssertUnwindSafe(|| {
        drivers[woken].driver.as_mut().poll(&mut Context::from_waker(&hostile))
    }));
    assert!(polled.is_err());
    assert_eq!(drivers[1 - woken].wakes(), 1);
}

/// A host with a thread for each driver.
struct Threads {
    spawned: Arc<AtomicUsize>,
    leave: Arc<AtomicBool>,
    threads: Arc<Mutex<Vec<thread::JoinHandle<()>>>>,
    blocks: Arc<AtomicUsize>,
    panics: bool,
}

impl Host for Threads {
    fn spawn(&self, driver: HostedDriver) {
        self.spawned.fetch_add(1, SeqCst);
        lock(&self.threads).push(drive(driver, self.leave.clone()));
    }

    fn replaces_blocked(&self) -> bool {
        true
    }

    fn should_yield(&self) -> bool {
        if self.panics {
            quiet_panic();
        }
        true
    }

    fn block(&self, _: HostedScheduler, wait: &mut dyn FnMut()) {
        self.blocks.fetch_add(1, SeqCst);
        if self.panics {
            quiet_panic();
        }
        wait();
        wait();
    }
}

#[test]
fn a_host_replaces_drivers_that_block() {
    for panics in [false, true] {
        let (spawned, blocks, leave) = <(Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicBool>)>::default();
        let threads = Arc::new(Mutex::new(Vec::new()));
        let host = Threads {
            spawned: spawned.clone(),
            leave: leave.clone(),
            threads: threads.clone(),
            blocks: blocks.clone(),
            panics,
        };
        let scheduler = HostedScheduler::on(host, 1);
        assert_eq!(spawned.load(SeqCst), 1);
        // Three jobs, each waiting for the next.
        fn nested(scheduler: HostedScheduler, depth: usize) -> usize {
            if depth == 0 {
                return 0;
            }
            sync_wait(starts_on(scheduler, just_from(move || nested(scheduler, depth - 1)))).unwrap() + 1
        }
        assert_eq!(nested(scheduler, 4), 4);
        assert_eq!(spawned.load(SeqCst), 4);
        assert_eq!(blocks.load(SeqCst), 3);
        // The surplus drivers end, and one keeps running.
        eventually("the end of the surplus", || {
            lock(&threads).iter().filter(|thread| thread.is_finished()).count() == 3
        });
        assert_eq!(sync_wait(starts_on(scheduler, just(5))).unwrap(), 5);
        leave.store(true, SeqCst);
        for thread in lock(&threads).drain(..) {
            thread.join().unwrap();
        }
        assert!(scheduler.has_ended());
    }
}

#[test]
fn a_host_that_drops_every_driver_leaves_all_work_to_the_global_pool() {
    struct Ended;
    impl Host for Ended {
        fn spawn(&self, driver: HostedDriver) {
            drop(driver);
        }
    }
    let scheduler = HostedScheduler::on(Ended, 3);
    assert!(scheduler.has_ended());
    assert_eq!(sync_wait(starts_on(scheduler, just(1))).unwrap(), 1);
    assert_eq!(
        panic_message(|| HostedScheduler::new(0)),
        "hosted scheduler needs at least one driver"
    );
}

#[test]
fn producers_and_drivers_that_end_at_random_lose_nothing() {
    const PRODUCERS: usize = 3;
    const EACH: usize = 400;
    for round in 0..20 {
        let (scheduler, drivers) = HostedScheduler::new(3);
        let ran: &'static [AtomicUsize] =
            for_good((0..PRODUCERS * EACH).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>());
        let done: &'static AtomicUsize = for_good(AtomicUsize::new(0));
        let leaves: Vec<Arc<AtomicBool>> = (0..3).map(|_| Arc::default()).collect();
        let threads: Vec<_> = drivers
            .into_iter()
            .zip(&leaves)
            .map(|(driver, leave)| drive(driver, leave.clone()))
            .collect();
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                thread::spawn(move || {
                    for n in 0..EACH {
                        queue(scheduler, move || {
                            ran[producer * EACH + n].fetch_add(1, SeqCst);
                            done.fetch_add(1, SeqCst);
                        });
                    }
                })
            })
            .collect();
        let mut random = XorShift::new(round + 1);
        for leave in &leaves {
            let until = random.below((PRODUCERS * EACH) as u64 / 2) as usize;
            eventually("the next drop", || done.load(SeqCst) >= until);
            leave.store(true, SeqCst);
        }
        for thread in producers.into_iter().chain(threads) {
            thread.join().unwrap();
        }
        eventually("the last job", || done.load(SeqCst) == ran.len());
        assert!(scheduler.has_ended());
        assert!(ran.iter().all(|count| count.load(SeqCst) == 1));
    }
}

#[test]
fn says_what_it_is() {
    let (scheduler, drivers) = HostedScheduler::new(1);
    let text = format!("{scheduler:?}");
    assert!(
        text.starts_with("HostedScheduler { queue: 0x") && text.ends_with("ended: false }"),
        "{text}"
    );
    let text = format!("{:?}", drivers[0]);
    assert!(text.starts_with("HostedDriver { scheduler: HostedScheduler"), "{text}");
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let (scheduler, mut drivers) = by_hand(1);
        let done = Arc::new(AtomicBool::new(false));
        let ended = done.clone();
        start_detached(
            scheduler
                .schedule()
                .repeat_until(million())
                .then(move |()| ended.store(true, SeqCst)),
        );
        while !done.load(SeqCst) {
            assert!(drivers[0].poll().is_pending());
        }
    });
}
