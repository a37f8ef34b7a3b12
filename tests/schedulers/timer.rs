//! `Timer`: completes at a time, on a thread of its own or on a run loop.

use std::cell::RefCell;
use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, ThreadPool, Timer};
use bowline::stop::{InplaceStopSource, StopSource};
use bowline::{EmptyEnv, Patched};

const HOUR: Duration = Duration::from_secs(3600);

/// A limit far beyond the duration of a test: it turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(60);

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Pseudo-random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns a number below the limit, of any magnitude.
    fn of_any_size(&mut self, limit: u64) -> u64 {
        (self.next() >> self.below(u64::from(u64::BITS))) % limit
    }
}

/// Starts the timer with the token of a source, and records its number when it has completed with a value.
fn note(
    timer: impl Sender<Value = (), Error = Infallible> + 'static,
    notes: &Arc<Mutex<Vec<usize>>>,
    number: usize,
) -> StopSource {
    let source = StopSource::new();
    let notes = notes.clone();
    start_detached(
        timer
            .into_option()
            .then(move |fired| {
                if fired.is_some() {
                    lock(&notes).push(number);
                }
            })
            .write_env(WithStopToken(source.token())),
    );
    source
}

/// Reports when the calling thread has ended.
fn when_this_thread_ends(ended: mpsc::Sender<()>) {
    struct AtEnd(mpsc::Sender<()>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    std::thread_local!(static AT_END: RefCell<Vec<AtEnd>> = const { RefCell::new(Vec::new()) });
    AT_END.with_borrow_mut(|at_end| at_end.push(AtEnd(ended)));
}

#[test]
fn is_never_early() {
    let own = Timer::new();
    let run_loop = RunLoop::new();
    let on_loop = Timer::on(&run_loop);
    let mut numbers = Numbers(7);
    for _ in 0..60 {
        let delay = Duration::from_nanos(numbers.of_any_size(4_000_000));
        for timer in [&own, &on_loop] {
            let begin = Instant::now();
            run_loop.run_until(timer.schedule_after(delay)).unwrap();
            assert!(begin.elapsed() >= delay);
            let deadline = Instant::now() + delay;
            run_loop.run_until(timer.schedule_at(deadline)).unwrap();
            assert!(Instant::now() >= deadline);
        }
    }
}

#[test]
fn the_delay_counts_from_the_start() {
    let timer = Timer::new();
    let mut slot = WaitSlot::new();
    let prepared = prepare(timer.schedule_after(ms(5)), &mut slot);
    let before = Instant::now();
    while before.elapsed() < ms(6) {
        thread::yield_now();
    }
    let begin = Instant::now();
    prepared.wait().unwrap();
    assert!(begin.elapsed() >= ms(5));
}

#[test]
fn completes_on_a_thread_of_its_own() {
    let timer = Timer::new();
    let place = || timer.schedule_after(ms(1)).then(|()| thread::current().id());
    let there = sync_wait(place()).unwrap();
    assert_ne!(there, thread::current().id());
    assert_eq!(sync_wait(place()).unwrap(), there);
    let name = timer
        .schedule_after(ms(1))
        .then(|()| thread::current().name().map(str::to_owned));
    assert_eq!(sync_wait(name).unwrap().as_deref(), Some("bowline-timer"));
}

#[test]
fn zero_and_past_complete_at_once_but_not_inside_the_start() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let past = Instant::now() - ms(1);
    let long_past = Instant::now().checked_sub(HOUR).unwrap_or(past);
    for schedule in [
        timer.schedule_after(Duration::ZERO),
        timer.schedule_at(past),
        timer.schedule_at(long_past),
        timer.scheduler().schedule(),
    ] {
        let fired = Arc::new(Mutex::new(Vec::new()));
        let _source = note(schedule, &fired, 0);
        assert!(lock(&fired).is_empty());
        assert_eq!(run_loop.run_ready(), 1);
        assert_eq!(lock(&fired).len(), 1);
    }
}

#[test]
fn the_longest_time_never_comes_and_is_stoppable() {
    let timer = Timer::new();
    for forever in [Duration::MAX, Duration::from_secs(u64::MAX / 1_000_000_000 + 1)] {
        let wait = || timer.schedule_after(forever);
        assert!(sync_wait(wait().stop_when(timer.schedule_after(ms(2)))).is_stopped());
        // It does not prevent another from completing.
        let both = when_any((wait().then(|()| 1), timer.schedule_after(ms(2)).then(|()| 2)));
        assert_eq!(sync_wait(both).unwrap(), 2);
    }
    let far = Instant::now() + 1000 * HOUR;
    assert!(sync_wait(timer.schedule_at(far).stop_when(timer.schedule_after(ms(2)))).is_stopped());
}

#[test]
fn fires_in_the_order_of_deadlines_and_those_of_one_in_the_order_of_starts() {
    const TIMERS: usize = 5_000;
    const SPAN: u64 = 20_000_000;
    let mut numbers = Numbers(11);
    for limit in [10, 1_000, SPAN] {
        let run_loop = RunLoop::new();
        let timer = Timer::on(&run_loop);
        let base = Instant::now();
        let fired = Arc::new(Mutex::new(Vec::new()));
        let mut expected = Vec::new();
        let mut sources = Vec::new();
        for number in 0..TIMERS {
            let after = numbers.of_any_size(limit);
            let schedule = timer.schedule_at(base + Duration::from_nanos(after));
            sources.push(note(schedule, &fired, number));
            expected.push((after, number));
        }
        // A third of them is stopped, in any order.
        let mut stopped = HashSet::new();
        for _ in 0..TIMERS / 3 {
            let number = numbers.below(TIMERS as u64) as usize;
            sources[number].request_stop();
            stopped.insert(number);
        }
        assert_eq!(lock(&fired).len(), 0);
        expected.retain(|(_, number)| !stopped.contains(number));
        expected.sort();
        run_loop
            .run_until(timer.schedule_at(base + Duration::from_nanos(SPAN + 1)))
            .unwrap();
        let expected: Vec<_> = expected.into_iter().map(|(_, number)| number).collect();
        assert_eq!(*lock(&fired), expected);
    }
}

#[test]
fn keeps_its_order_while_timers_come_and_go_and_fire() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let base = Instant::now();
    let since = || base.elapsed().as_nanos() as u64;
    let mut numbers = Numbers(13);
    let fired = Arc::new(Mutex::new(Vec::new()));
    let mut deadlines = Vec::new();
    let mut pending = HashSet::new();
    let mut sources = Vec::new();
    let mut served = 0;
    for round in 0..400 {
        for _ in 0..numbers.below(40) {
            let number = deadlines.len();
            // Mostly in the near future, some far, some past.
            let deadline = (since() + numbers.of_any_size(3_000_000)).saturating_sub(200_000 * numbers.below(2));
            deadlines.push(deadline);
            pending.insert(number);
            sources.push(note(
                timer.schedule_at(base + Duration::from_nanos(deadline)),
                &fired,
                number,
            ));
        }
        for _ in 0..numbers.below(4) {
            if !sources.is_empty() {
                let number = numbers.below(sources.len() as u64) as usize;
                sources[number].request_stop();
                pending.remove(&number);
            }
        }
        let before = since();
        if round % 8 == 0 {
            // The driver sleeps.
            run_loop.run_until(timer.schedule_after(ms(1))).unwrap();
        } else {
            run_loop.run_ready();
        }
        let after = since();
        let fired: Vec<_> = std::mem::take(&mut *lock(&fired));
        for &number in &fired {
            assert!(pending.remove(&number), "{number} fired twice, or after its stop");
            assert!(deadlines[number] <= after, "{number} was early");
        }
        assert!(
            pending.iter().all(|&number| deadlines[number] > before),
            "one that is due did not fire"
        );
        // A deadline that was past when it was inserted counts as inserted then.
        let in_time: Vec<_> = fired
            .into_iter()
            .filter(|&number| deadlines[number] > served)
            .map(|number| (deadlines[number], number))
            .collect();
        assert!(in_time.is_sorted(), "{in_time:?}");
        served = after;
    }
    for source in sources {
        source.request_stop();
    }
    assert_eq!(run_loop.run_ready(), 0);
}

#[test]
fn an_earlier_deadline_wakes_a_thread_that_sleeps_for_a_later_one() {
    let timer = Timer::new();
    let fired = Arc::new(Mutex::new(Vec::new()));
    let late = note(timer.schedule_after(HOUR), &fired, 0);
    for delay in [ms(3), ms(1), Duration::ZERO, ms(2)] {
        let (record, recorded) = Record::new();
        submit(timer.schedule_after(delay), record);
        assert_eq!(recorded.recv_timeout(PATIENCE), Ok(Recorded::Value(())));
    }
    late.request_stop();
    assert!(lock(&fired).is_empty());
}

#[test]
fn a_stop_ends_the_wait_on_the_thread_that_requests_it() {
    let timer = Timer::new();
    let source = StopSource::new();
    let (record, recorded) = mpsc::channel();
    start_detached(
        timer
            .schedule_after(HOUR)
            .upon_stopped(move || record.send(thread::current().id()).unwrap())
            .write_env(WithStopToken(source.token())),
    );
    assert!(recorded.try_recv().is_err());
    source.request_stop();
    assert_eq!(recorded.try_recv(), Ok(thread::current().id()));
}

#[test]
fn a_stop_before_the_start_completes_inside_it() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let source = StopSource::new();
    source.request_stop();
    for delay in [Duration::ZERO, HOUR] {
        let (record, recorded) = Record::in_env(Patched::new(WithStopToken(source.token()), EmptyEnv));
        submit(timer.schedule_after(delay), record);
        assert_eq!(recorded.try_recv(), Ok(Recorded::Stopped));
    }
    assert_eq!(run_loop.run_ready(), 0);
}

#[test]
fn a_stop_of_one_that_is_due_is_seen_in_its_turn() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let source = InplaceStopSource::new();
    let past = Instant::now();
    let first = timer.schedule_at(past).then(|()| source.request_stop());
    let second = timer
        .schedule_at(past)
        .stopped_as_option()
        .write_env(WithStopToken(source.token()));
    let (requested, fired) = run_loop.run_until(when_all((first, second))).unwrap();
    assert!(requested);
    assert_eq!(fired, None);
}

#[test]
fn a_stop_after_the_end_changes_nothing() {
    let timer = Timer::new();
    let source = InplaceStopSource::new();
    let work = timer.schedule_after(ms(1)).write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_value());
    assert!(source.request_stop());
}

#[test]
fn stops_race_with_deadlines_and_everything_completes_once() {
    const TIMERS: u64 = 4_000;
    let timer = Timer::new();
    let mut numbers = Numbers(17);
    let (sender, receiver) = mpsc::channel();
    for _ in 0..TIMERS {
        let source = StopSource::new();
        let (record, recorded) = Record::in_env(Patched::new(WithStopToken(source.token()), EmptyEnv));
        let delay = Duration::from_nanos(numbers.below(40_000));
        submit(timer.schedule_after(delay), record);
        sender.send((source, recorded)).unwrap();
    }
    drop(sender);
    let mut ends = [0; 2];
    for (source, recorded) in receiver {
        source.request_stop();
        match recorded.recv_timeout(PATIENCE) {
            Ok(Recorded::Value(())) => ends[0] += 1,
            Ok(Recorded::Stopped) => ends[1] += 1,
            other => panic!("{other:?}"),
        }
        assert!(recorded.try_recv().is_err(), "completed twice");
    }
    assert_eq!(ends[0] + ends[1], TIMERS);
}

#[test]
fn stops_from_two_threads_race_with_the_deadlines_of_a_third() {
    const ROUNDS: usize = 2_000;
    let timer = Timer::new();
    thread::scope(|scope| {
        for seed in [19, 23] {
            let timer = &timer;
            scope.spawn(move || {
                let mut numbers = Numbers(seed);
                for _ in 0..ROUNDS {
                    let mut delay = || Duration::from_nanos(numbers.below(20_000));
                    let work = timer.schedule_after(delay()).stop_when(timer.schedule_after(delay()));
                    let outcome = sync_wait(work);
                    assert!(outcome.is_value() || outcome.is_stopped());
                }
            });
        }
    });
}

#[test]
fn many_threads_sleep_on_one_timer() {
    let timer = Timer::new();
    thread::scope(|scope| {
        for seed in 1..=8 {
            let timer = timer.clone();
            scope.spawn(move || {
                let mut numbers = Numbers(seed);
                for _ in 0..50 {
                    let delay = Duration::from_nanos(numbers.below(1_000_000));
                    let begin = Instant::now();
                    sync_wait(timer.schedule_after(delay)).unwrap();
                    assert!(begin.elapsed() >= delay);
                }
            });
        }
    });
}

#[test]
fn a_million_are_pending_and_are_stopped() {
    let timer = Timer::new();
    let mut numbers = Numbers(29);
    let all =
        when_all_iter((0..ROUNDS).map(|_| timer.schedule_after(HOUR + Duration::from_nanos(numbers.below(1 << 40)))));
    // The second is started when all of them are pending.
    assert!(sync_wait(all.stop_when(just(()))).is_stopped());
    // The timer still works.
    sync_wait(timer.schedule_after(ms(1))).unwrap();
}

#[test]
fn a_hundred_thousand_fire_once_each() {
    const TIMERS: usize = 100_000;
    let timer = Timer::new();
    let mut numbers = Numbers(31);
    let fired: Vec<_> = (0..TIMERS).map(|_| AtomicUsize::new(0)).collect();
    let base = Instant::now() + ms(20);
    let all = when_all_iter(fired.iter().map(|fired| {
        let deadline = base + Duration::from_nanos(numbers.below(50_000_000));
        timer.schedule_at(deadline).then(move |()| {
            assert!(Instant::now() >= deadline);
            fired.fetch_add(1, SeqCst)
        })
    }));
    let before = sync_wait(all).unwrap();
    assert!(before.into_iter().all(|before| before == 0));
    assert!(fired.iter().all(|fired| fired.load(SeqCst) == 1));
}

#[test]
fn the_thread_ends_with_the_last_handle() {
    let timer = Timer::new();
    let (sender, ended) = mpsc::channel();
    sync_wait(
        timer
            .schedule_after(Duration::ZERO)
            .then(|()| when_this_thread_ends(sender)),
    )
    .unwrap();
    let copy = timer.clone();
    drop(timer);
    sync_wait(copy.schedule_after(ms(1))).unwrap();
    assert!(ended.try_recv().is_err());
    drop(copy);
    ended.recv_timeout(PATIENCE).expect("the thread ends");
}

#[test]
fn a_sender_and_a_pending_timer_are_handles() {
    let (sender, ended) = mpsc::channel();
    let (fires, fired) = mpsc::channel();
    let unstarted = Timer::new().schedule_after(ms(2));
    start_detached(unstarted.then(move |()| {
        when_this_thread_ends(sender);
        fires.send(()).unwrap();
    }));
    // The operation's handle is the last, and is dropped on the timer's own thread.
    fired.recv_timeout(PATIENCE).expect("it fires");
    ended.recv_timeout(PATIENCE).expect("the thread ends");
}

#[test]
fn the_last_handle_may_go_in_a_completion() {
    let (sender, ended) = mpsc::channel();
    let timer = Timer::new();
    let schedule = timer.schedule_after(ms(1));
    start_detached(schedule.then(move |()| {
        when_this_thread_ends(sender);
        drop(timer);
    }));
    ended.recv_timeout(PATIENCE).expect("the thread ends");
}

#[test]
fn a_stop_of_the_last_timer_ends_the_thread() {
    let (sender, ended) = mpsc::channel();
    let timer = Timer::new();
    sync_wait(
        timer
            .schedule_after(Duration::ZERO)
            .then(|()| when_this_thread_ends(sender)),
    )
    .unwrap();
    let source = note(timer.schedule_after(HOUR), &Arc::default(), 0);
    drop(timer);
    assert!(ended.try_recv().is_err());
    source.request_stop();
    ended.recv_timeout(PATIENCE).expect("the thread ends");
}

#[test]
fn a_panic_in_a_completion_arrives_and_leaves_the_timer_as_it_was() {
    let timer = Timer::new();
    let panics = || timer.schedule_after(ms(1)).then(|()| panic!("on the timer"));
    assert_eq!(panic_message(|| sync_wait(panics())), "on the timer");
    sync_wait(timer.schedule_after(ms(1))).unwrap();
}

#[test]
fn the_global_timer_is_one_and_the_same() {
    assert_eq!(Timer::global(), Timer::global());
    assert_ne!(Timer::global(), &Timer::new());
    let place = || Timer::global().schedule_after(ms(1)).then(|()| thread::current().id());
    assert_eq!(sync_wait(place()).unwrap(), sync_wait(place()).unwrap());
}

#[test]
fn a_run_loop_serves_timers_on_the_thread_that_drives_it() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let place = || timer.schedule_after(ms(1)).then(|()| thread::current().id());
    assert_eq!(run_loop.run_until(place()).unwrap(), thread::current().id());
    thread::scope(|scope| {
        let driver = scope.spawn(|| run_loop.run());
        assert_eq!(sync_wait(place()).unwrap(), driver.thread().id());
        // While it sleeps for a later one, an earlier one comes, then a job.
        let late = note(timer.schedule_after(HOUR), &Arc::default(), 0);
        assert_eq!(sync_wait(place()).unwrap(), driver.thread().id());
        sync_wait(run_loop.scheduler().schedule()).unwrap();
        late.request_stop();
        run_loop.finish();
    });
}

#[test]
fn a_loop_has_one_timer_and_gets_it_also_while_it_is_driven() {
    let run_loop = RunLoop::new();
    thread::scope(|scope| {
        scope.spawn(|| run_loop.run());
        sync_wait(run_loop.scheduler().schedule()).unwrap();
        let timers = [(); 4].map(|()| scope.spawn(|| Timer::on(&run_loop)));
        let timers = timers.map(|timer| timer.join().unwrap());
        assert!(timers.iter().all(|timer| *timer == timers[0]));
        sync_wait(timers[3].schedule_after(ms(1))).unwrap();
        run_loop.finish();
    });
}

#[test]
fn jobs_and_timers_of_one_loop_do_not_starve_each_other() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let job = || run_loop.scheduler().schedule();
    let hop = || timer.scheduler().schedule();
    // Each would run forever, if one of the other kind did not end it.
    let jobs = job().repeat_until(|()| false).stop_when(timer.schedule_after(ms(2)));
    assert!(run_loop.run_until(jobs).is_stopped());
    let hops = hop().repeat_until(|()| false).stop_when(job().repeat_n(100));
    assert!(run_loop.run_until(hops).is_stopped());
    let hops = when_all([(); 100].map(|()| hop().repeat_until(|()| false)));
    assert!(
        run_loop
            .run_until(hops.stop_when(timer.schedule_after(ms(2))))
            .is_stopped()
    );
}

#[test]
fn a_timer_may_wait_for_another_that_is_due_by_driving_the_loop() {
    static LOOP: RunLoop = RunLoop::new();
    let timer = Timer::on(&LOOP);
    let base = Instant::now();
    let second = timer.schedule_at(base + ms(1)).then(|()| 7).ensure_started();
    let first = timer.schedule_at(base).then(|()| LOOP.run_until(second));
    // Both are due when the loop checks.
    while base.elapsed() < ms(2) {
        thread::yield_now();
    }
    assert_eq!(LOOP.run_until(first).unwrap().unwrap(), 7);
}

#[test]
fn finish_does_not_wait_for_timers() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let fired = Arc::default();
    let source = note(timer.schedule_after(HOUR), &fired, 0);
    let _due = note(timer.schedule_after(Duration::ZERO), &fired, 1);
    run_loop.finish();
    run_loop.run();
    assert_eq!(*lock(&fired), [1]);
    source.request_stop();
    assert_eq!(*lock(&fired), [1]);
}

#[test]
fn a_timer_outlives_its_loop_and_is_stoppable() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let source = StopSource::new();
    let start = || {
        let (record, recorded) = Record::in_env(Patched::new(WithStopToken(source.token()), EmptyEnv));
        submit(timer.schedule_after(Duration::ZERO), record);
        recorded
    };
    let before = start();
    drop(run_loop);
    let after = start();
    assert!(before.try_recv().is_err());
    source.request_stop();
    assert_eq!(before.try_recv(), Ok(Recorded::Stopped));
    assert_eq!(after.try_recv(), Ok(Recorded::Stopped));
}

#[test]
fn is_a_scheduler() {
    let timer = Timer::new();
    let scheduler = timer.scheduler();
    assert_eq!(scheduler, timer.clone().scheduler());
    assert_ne!(scheduler, Timer::new().scheduler());
    let there = sync_wait(scheduler.schedule().then(|()| thread::current().id())).unwrap();
    let place = || just_from(|| thread::current().id());
    assert_eq!(sync_wait(starts_on(scheduler.clone(), place())).unwrap(), there);
    assert_eq!(
        sync_wait(
            just(())
                .continues_on(scheduler.clone())
                .then(|()| thread::current().id())
        )
        .unwrap(),
        there
    );
    let (inside, outside) = sync_wait(
        place()
            .on(scheduler.clone())
            .then(|inside| (inside, thread::current().id())),
    )
    .unwrap();
    assert_eq!((inside, outside), (there, thread::current().id()));
    let begin = scheduler.now();
    sync_wait(
        scheduler
            .schedule_at(begin + ms(1))
            .sequence(scheduler.schedule_after(ms(1))),
    )
    .unwrap();
    assert!(scheduler.now() >= begin + ms(2));
}

#[test]
fn dropped_unstarted_nothing_is_pending() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let mut slot = WaitSlot::new();
    drop(prepare(timer.schedule_after(Duration::ZERO), &mut slot));
    assert_eq!(run_loop.run_ready(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let timer = Timer::new();
    let words = ["a".to_owned(), "b".to_owned()];
    let work = timer.schedule_after(ms(1)).then(|()| words.concat());
    assert_eq!(sync_wait(work).unwrap(), "ab");
}

#[test]
fn says_which_it_is() {
    let timer = Timer::new();
    assert_eq!(format!("{timer:?}"), format!("{:?}", timer.clone()));
    assert_ne!(format!("{timer:?}"), format!("{:?}", Timer::default()));
    assert!(format!("{:?}", timer.scheduler()).starts_with("TimerScheduler(Timer(0x"));
    assert!(format!("{:?}", timer.schedule_after(ms(1))).starts_with("TimerSchedule"));
}

#[test]
fn does_not_allocate_per_timer() {
    // The driver is this thread, so all allocations are counted.
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    run_loop.run_until(timer.schedule_after(ms(1))).unwrap();
    let (outcome, allocated) = allocations(|| {
        run_loop
            .run_until(
                timer
                    .schedule_after(ms(1))
                    .sequence(timer.scheduler().schedule())
                    .repeat_n(3),
            )
            .unwrap();
        let stopped = timer
            .schedule_after(HOUR)
            .stop_when(timer.schedule_after(Duration::ZERO));
        run_loop.run_until(stopped)
    });
    assert!(outcome.is_stopped());
    assert_eq!(allocated, 0);
    // Neither does the thread that starts a timer driven by another.
    let timer = Timer::new();
    let (outcome, allocated) = allocations(|| sync_wait(timer.schedule_after(ms(1))));
    assert!(outcome.is_value());
    assert_eq!(allocated, 0);
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let timer = Timer::on(&run_loop);
        run_loop
            .run_until(timer.scheduler().schedule().repeat_until(million()))
            .unwrap();
        // Stopped, each by a start.
        let stopped = timer.schedule_after(HOUR).stop_when(just(())).stopped_as_option();
        run_loop.run_until(stopped.repeat_until(million())).unwrap();
    });
    // On a thread of its own.
    let timer = Timer::new();
    sync_wait(timer.scheduler().schedule().repeat_until(million())).unwrap();
}

#[test]
fn a_hundred_thousand_that_one_stop_ends_take_constant_stack() {
    with_stack(DEEP_STACK, || {
        let timer = Timer::new();
        let source = InplaceStopSource::new();
        let all = when_all_iter((0..100_000).map(|_| timer.schedule_after(HOUR)));
        let stop = timer.schedule_after(ms(1)).then(|()| source.request_stop());
        let work = when_all((all.write_env(WithStopToken(source.token())).stopped_as_option(), stop));
        assert!(sync_wait(work).unwrap().0.is_none());
    });
}

#[test]
fn a_loop_with_timers_that_a_worker_of_a_pool_drives_serves_both() {
    let pool = ThreadPool::new(1);
    pool.install(|| {
        let run_loop = RunLoop::new();
        let timer = Timer::on(&run_loop);
        // The job ends the wait for the timer.
        let job = pool.scheduler().schedule();
        assert!(
            run_loop
                .run_until(timer.schedule_after(HOUR).stop_when(job))
                .is_stopped()
        );
        // The timer ends the jobs, of which there is always another one.
        let jobs = pool.scheduler().schedule().repeat_until(|()| false);
        assert!(
            run_loop
                .run_until(jobs.stop_when(timer.schedule_after(ms(2))))
                .is_stopped()
        );
    });
}
