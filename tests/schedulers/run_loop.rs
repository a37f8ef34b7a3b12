//! `RunLoop`: a queue that one thread at a time drives.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, Timer};
use bowline::stop::StopSource;

/// Queues `f` on a loop that need not be driven yet.
fn queue(run_loop: &'static RunLoop, f: impl FnOnce() + Send + 'static) {
    start_detached(run_loop.scheduler().schedule().then(|()| f()));
}

#[test]
fn runs_first_in_first_out() {
    let run_loop = RunLoop::new();
    let order = Mutex::new(Vec::new());
    let work = [0, 1, 2, 3, 4].map(|n| {
        let order = &order;
        run_loop
            .scheduler()
            .schedule()
            .then(move |()| order.lock().unwrap().push(n))
    });
    run_loop.run_until(when_all(work)).unwrap();
    assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn what_is_queued_while_it_runs_comes_after_what_was_queued_before() {
    static LOOP: RunLoop = RunLoop::new();
    static ORDER: Mutex<Vec<i32>> = Mutex::new(Vec::new());
    queue(&LOOP, || {
        ORDER.lock().unwrap().push(0);
        queue(&LOOP, || ORDER.lock().unwrap().push(2));
    });
    queue(&LOOP, || ORDER.lock().unwrap().push(1));
    assert_eq!(LOOP.run_ready(), 3);
    assert_eq!(*ORDER.lock().unwrap(), [0, 1, 2]);
}

#[test]
fn finish_drains_what_was_queued_before_and_after_it() {
    static LOOP: RunLoop = RunLoop::new();
    static ORDER: Mutex<Vec<i32>> = Mutex::new(Vec::new());
    queue(&LOOP, || {
        ORDER.lock().unwrap().push(0);
        queue(&LOOP, || ORDER.lock().unwrap().push(2));
    });
    LOOP.finish();
    LOOP.scheduler().finish();
    queue(&LOOP, || ORDER.lock().unwrap().push(1));
    LOOP.run();
    assert_eq!(*ORDER.lock().unwrap(), [0, 1, 2]);
    // A finished loop stays finished, and still runs queued jobs.
    queue(&LOOP, || ORDER.lock().unwrap().push(3));
    LOOP.run();
    assert_eq!(*ORDER.lock().unwrap(), [0, 1, 2, 3]);
}

#[test]
fn finish_ends_a_loop_that_sleeps() {
    let run_loop = RunLoop::new();
    thread::scope(|scope| {
        let driver = scope.spawn(|| run_loop.run());
        // Its completion shows that the loop is driven.
        sync_wait(run_loop.scheduler().schedule()).unwrap();
        assert!(!driver.is_finished());
        run_loop.finish();
    });
}

#[test]
fn a_loop_that_was_finished_can_be_moved() {
    /// Returns loops that were finished in other places.
    fn finished(loops: usize) -> Vec<RunLoop> {
        let mut boxes: Vec<Box<RunLoop>> = (0..loops).map(|_| Box::default()).collect();
        for run_loop in &boxes {
            run_loop.finish();
            run_loop.scheduler().finish();
        }
        boxes.drain(..).map(|run_loop| *run_loop).collect()
    }
    let mut loops = finished(8);
    loops.rotate_left(3);
    for run_loop in &loops {
        assert_eq!(run_loop.run_ready(), 0);
        run_loop.run();
        assert_eq!(
            run_loop
                .run_until(run_loop.scheduler().schedule().then(|()| 1))
                .unwrap(),
            1
        );
    }
    thread::spawn(move || loops.iter().for_each(RunLoop::run))
        .join()
        .unwrap();
}

#[test]
fn a_loop_that_was_finished_still_waits_for_a_sender() {
    let run_loop = RunLoop::new();
    run_loop.finish();
    let later = Timer::global().schedule_after(Duration::from_millis(20));
    run_loop.run_until(later).unwrap();
    let there = thread::current().id();
    let work = Timer::global()
        .schedule_after(Duration::from_millis(20))
        .continues_on(run_loop.scheduler())
        .then(|()| thread::current().id());
    assert_eq!(run_loop.run_until(work).unwrap(), there);
}

#[test]
fn finish_may_be_called_from_a_job() {
    let run_loop = RunLoop::new();
    thread::scope(|scope| {
        scope.spawn(|| run_loop.run());
        sync_wait(run_loop.scheduler().schedule().then(|()| run_loop.finish())).unwrap();
    });
}

#[test]
fn run_until_leaves_what_else_is_queued_for_whoever_drives_next() {
    static LOOP: RunLoop = RunLoop::new();
    static RAN: AtomicUsize = AtomicUsize::new(0);
    let count = || {
        RAN.fetch_add(1, SeqCst);
    };
    let work = LOOP.scheduler().schedule().then(move |()| {
        queue(&LOOP, count);
        // The job that this queues is behind the completion of the awaited sender.
        queue(&LOOP, move || queue(&LOOP, count));
        7
    });
    assert_eq!(LOOP.run_until(work).unwrap(), 7);
    assert_eq!(RAN.load(SeqCst), 1);
    assert_eq!(thread::spawn(|| LOOP.run_ready()).join().unwrap(), 1);
    assert_eq!(RAN.load(SeqCst), 2);
}

#[test]
fn run_until_gives_every_outcome_and_stays_usable_after_a_panic() {
    let run_loop = RunLoop::new();
    let scheduler = run_loop.scheduler();
    assert_eq!(
        run_loop
            .run_until(just_error::<i32, _>("no").continues_on(scheduler))
            .err(),
        Some("no")
    );
    assert!(
        run_loop
            .run_until(just_stopped::<i32, &str>().continues_on(scheduler))
            .is_stopped()
    );
    let panics = scheduler.schedule().then(|()| panic!("in a job"));
    assert_eq!(panic_message(|| run_loop.run_until(panics)), "in a job");
    assert_eq!(run_loop.run_until(just(1).continues_on(scheduler)).unwrap(), 1);
    assert_eq!(run_loop.run_until(just(2)).unwrap(), 2);
}

#[test]
fn run_until_offers_its_scheduler() {
    with_loop(|there| {
        let run_loop = RunLoop::new();
        let here = thread::current().id();
        let work = just(()).continues_on(there).affine().then(|()| thread::current().id());
        assert_eq!(run_loop.run_until(work).unwrap(), here);
    });
}

#[test]
fn run_ready_of_an_empty_loop_does_not_wait() {
    assert_eq!(RunLoop::new().run_ready(), 0);
}

#[test]
fn a_job_may_drive_the_loop_further() {
    static LOOP: RunLoop = RunLoop::new();
    static ORDER: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    queue(&LOOP, || {
        ORDER.lock().unwrap().push("outer begins");
        let inner = LOOP
            .scheduler()
            .schedule()
            .then(|()| ORDER.lock().unwrap().push("inner"));
        LOOP.run_until(inner).unwrap();
        assert_eq!(LOOP.run_ready(), 0);
        ORDER.lock().unwrap().push("outer ends");
    });
    queue(&LOOP, || ORDER.lock().unwrap().push("between"));
    LOOP.finish();
    LOOP.run();
    assert_eq!(
        *ORDER.lock().unwrap(),
        ["outer begins", "between", "inner", "outer ends"]
    );
}

#[test]
fn a_job_may_run_the_loop_to_its_finish() {
    static LOOP: RunLoop = RunLoop::new();
    static RAN: AtomicUsize = AtomicUsize::new(0);
    queue(&LOOP, || {
        LOOP.run();
        assert_eq!(RAN.load(SeqCst), 1);
    });
    queue(&LOOP, || {
        RAN.fetch_add(1, SeqCst);
    });
    LOOP.finish();
    LOOP.run();
    assert_eq!(RAN.load(SeqCst), 1);
}

#[test]
fn a_second_thread_waits_for_its_turn() {
    let run_loop = RunLoop::new();
    let busy = AtomicBool::new(false);
    let ready = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let job = run_loop.scheduler().schedule().then(|()| {
                    assert!(!busy.swap(true, SeqCst), "two threads drive");
                    thread::yield_now();
                    busy.store(false, SeqCst);
                });
                ready.wait();
                run_loop.run_until(job.repeat_n(1000)).unwrap();
            });
        }
    });
}

#[test]
fn many_producers_lose_nothing_and_keep_their_order() {
    const PRODUCERS: usize = 4;
    const EACH: usize = 5_000;
    static LOOP: RunLoop = RunLoop::new();
    static SEEN: Mutex<[usize; PRODUCERS]> = Mutex::new([0; PRODUCERS]);
    thread::scope(|scope| {
        let driver = scope.spawn(|| LOOP.run());
        let producers = [0, 1, 2, 3].map(|producer| {
            scope.spawn(move || {
                for n in 0..EACH {
                    queue(&LOOP, move || {
                        let mut seen = SEEN.lock().unwrap();
                        assert_eq!(seen[producer], n);
                        seen[producer] += 1;
                    });
                }
            })
        });
        for producer in producers {
            producer.join().unwrap();
        }
        LOOP.finish();
        driver.join().unwrap();
    });
    assert_eq!(*SEEN.lock().unwrap(), [EACH; PRODUCERS]);
}

#[test]
fn a_completion_that_races_with_the_end_of_the_loop_touches_no_freed_memory() {
    with_loop(|first| {
        with_loop(|second| {
            for _ in 0..5_000 {
                // These loops live on the stack, and are dropped right after the last push.
                sync_wait(first.schedule()).unwrap();
                sync_wait(when_all((first.schedule(), second.schedule(), just(()).on(first)))).unwrap();
                // These live on the heap.
                let [one, other] = [(); 2].map(|()| Box::new(RunLoop::new()));
                one.run_until(second.schedule()).unwrap();
                drop(one);
                other.run_until(just(()).on(second).on(first)).unwrap();
            }
        });
    });
}

#[test]
fn schedulers_are_equal_when_they_are_of_one_loop() {
    let (first, second) = (RunLoop::new(), RunLoop::new());
    let copy = first.scheduler();
    assert_eq!(first.scheduler(), copy);
    assert_ne!(first.scheduler(), second.scheduler());
}

#[test]
fn a_stop_by_its_turn_completes_stopped() {
    let run_loop = RunLoop::new();
    let source = StopSource::new();
    let schedule = || run_loop.scheduler().schedule().write_env(WithStopToken(source.token()));
    assert!(run_loop.run_until(schedule()).is_value());
    // The first is ahead in the queue.
    let stop = run_loop.scheduler().schedule().then(|()| source.request_stop());
    let (first, second) = run_loop
        .run_until(when_all((stop, schedule().stopped_as_option())))
        .unwrap();
    assert!(first);
    assert_eq!(second, None);
}

#[test]
fn moves_and_borrows() {
    let census = Census::new();
    let value = census.value();
    let words = ["a".to_owned()];
    let run_loop = RunLoop::new();
    let work = run_loop
        .scheduler()
        .schedule()
        .then(move |()| value)
        .then(|value| (value, words[0].len()));
    let (value, length) = run_loop.run_until(work).unwrap();
    assert_eq!((census.alive(), length), (1, 1));
    drop(value);
    assert_eq!(census.alive(), 0);
}

#[test]
fn dropped_unstarted_it_queues_nothing() {
    let run_loop = RunLoop::new();
    let mut slot = WaitSlot::new();
    drop(prepare(run_loop.scheduler().schedule(), &mut slot));
    assert_eq!(run_loop.run_ready(), 0);
}

#[test]
fn says_whether_it_is_driven() {
    let run_loop = RunLoop::default();
    assert_eq!(
        format!("{run_loop:?}"),
        "RunLoop { driven: false, finishing: false, .. }"
    );
    let inside = run_loop.run_until(just(()).then(|()| format!("{run_loop:?}"))).unwrap();
    assert_eq!(inside, "RunLoop { driven: true, finishing: false, .. }");
    run_loop.finish();
    assert_eq!(
        format!("{run_loop:?}"),
        "RunLoop { driven: false, finishing: true, .. }"
    );
}

#[test]
fn does_not_allocate() {
    let run_loop = RunLoop::new();
    let work = run_loop.scheduler().schedule();
    let (outcome, allocated) = allocations(|| run_loop.run_until(work));
    assert!(outcome.is_value());
    assert_eq!(allocated, 0);
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let mut left = ROUNDS;
        let last = run_loop.run_until(run_loop.scheduler().schedule().repeat_until(|()| {
            left -= 1;
            left == 0
        }));
        assert!(last.is_value());
    });
}
