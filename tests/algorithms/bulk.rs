//! `bulk`, `bulk_chunked` and `bulk_unchunked`: call a function for every index.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::InplaceStopSource;

/// A counter of the visits of each index.
struct Visits(Vec<AtomicUsize>);

impl Visits {
    fn new(indices: usize) -> Self {
        Visits((0..indices).map(|_| AtomicUsize::new(0)).collect())
    }

    fn visit(&self, index: usize) {
        self.0[index].fetch_add(1, Ordering::SeqCst);
    }

    fn visit_all(&self, range: Range<usize>) {
        range.for_each(|index| self.visit(index));
    }

    fn total(&self) -> usize {
        self.0.iter().map(|visits| visits.load(Ordering::SeqCst)).sum()
    }

    fn all_once(&self) -> bool {
        self.0.iter().all(|visits| visits.load(Ordering::SeqCst) == 1)
    }
}

#[test]
fn every_index_is_visited_exactly_once_and_the_value_handed_on() {
    for shape in [1, 7, 1023, 1024, 1025, 5000] {
        let visits = Visits::new(shape);
        assert_eq!(
            sync_wait(just("v").bulk(shape, |index, _| visits.visit(index))).unwrap(),
            "v"
        );
        assert!(visits.all_once());

        let visits = Visits::new(shape);
        assert_eq!(
            sync_wait(just("v").bulk_unchunked(shape, |index, _| visits.visit(index))).unwrap(),
            "v"
        );
        assert!(visits.all_once());

        let visits = Visits::new(shape);
        assert_eq!(
            sync_wait(just("v").bulk_chunked(shape, |range, _| visits.visit_all(range))).unwrap(),
            "v"
        );
        assert!(visits.all_once());
    }
}

#[test]
fn without_an_index_nothing_is_called() {
    assert_eq!(sync_wait(just(1).bulk(0, |_, _| panic!("called"))).unwrap(), 1);
    assert_eq!(
        sync_wait(just(1).bulk_unchunked(0, |_, _| panic!("called"))).unwrap(),
        1
    );
    assert_eq!(sync_wait(just(1).bulk_chunked(0, |_, _| panic!("called"))).unwrap(), 1);
}

#[test]
fn chunks_are_never_empty() {
    let chunks = Mutex::new(Vec::new());
    sync_wait(just(()).bulk_chunked(3000, |range, ()| lock(&chunks).push(range))).unwrap();
    assert!(chunks.into_inner().unwrap().iter().all(|range| !range.is_empty()));
}

#[test]
fn the_function_sees_the_value() {
    let sum = AtomicUsize::new(0);
    let add = |index: usize, values: &Vec<usize>| {
        sum.fetch_add(values[index], Ordering::SeqCst);
    };
    assert_eq!(sync_wait(just(vec![1, 2, 3]).bulk(3, add)).unwrap(), [1, 2, 3]);
    assert_eq!(sum.load(Ordering::SeqCst), 6);
}

#[test]
fn a_panic_of_one_index_ends_the_rest_and_arrives() {
    let visits = Visits::new(10);
    let work = just(()).bulk(10, |index, ()| {
        assert_ne!(index, 3, "the third");
        visits.visit(index);
    });
    assert!(panic_message(|| sync_wait(work)).contains("the third"));
    assert_eq!(visits.total(), 3);

    let visits = Visits::new(10_000);
    let work = just(()).bulk_chunked(10_000, |range, ()| {
        assert!(!range.contains(&9000), "the chunk");
        visits.visit_all(range);
    });
    assert!(panic_message(|| sync_wait(work)).contains("the chunk"));
    assert!(visits.total() <= 9000);
}

#[test]
fn a_panic_drops_the_value_and_what_was_captured() {
    let census = Census::new();
    let (value, other) = (census.value(), census.value());
    let work = just(census.value()).bulk(3, move |_, _| {
        let _value = &value;
        panic!("boom");
    });
    panic_message(|| sync_wait(work));
    let work = just(census.value()).bulk_chunked(3, move |_, _| {
        let _value = &other;
        panic!("boom");
    });
    panic_message(|| sync_wait(work));
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_stop_before_the_start_leaves_everything_out() {
    let source = InplaceStopSource::new();
    source.request_stop();
    let token = || WithStopToken(source.token());
    assert!(sync_wait(just(1).bulk(3, |_, _| panic!("called")).write_env(token())).is_stopped());
    assert!(sync_wait(just(1).bulk_chunked(3, |_, _| panic!("called")).write_env(token())).is_stopped());
    // No call can be skipped.
    assert_eq!(sync_wait(just(1).bulk(0, |_, _| ()).write_env(token())).unwrap(), 1);
}

#[test]
fn a_stop_leaves_the_rest_out() {
    let source = InplaceStopSource::new();
    let visits = Visits::new(10);
    let work = just(1).bulk(10, |index, _| {
        visits.visit(index);
        if index == 3 {
            source.request_stop();
        }
    });
    assert!(sync_wait(work.write_env(WithStopToken(source.token()))).is_stopped());
    assert_eq!(visits.total(), 4);

    let source = InplaceStopSource::new();
    let chunks = AtomicUsize::new(0);
    let work = just(1).bulk_chunked(100_000, |_, _| {
        chunks.fetch_add(1, Ordering::SeqCst);
        source.request_stop();
    });
    assert!(sync_wait(work.write_env(WithStopToken(source.token()))).is_stopped());
    assert_eq!(chunks.into_inner(), 1);
}

#[test]
fn a_stop_in_the_last_call_comes_too_late() {
    let source = InplaceStopSource::new();
    let work = just(1).bulk(3, |index, _| {
        if index == 2 {
            source.request_stop();
        }
    });
    assert_eq!(sync_wait(work.write_env(WithStopToken(source.token()))).unwrap(), 1);
}

#[test]
fn the_function_and_a_value_that_is_not_handed_on_are_dropped_before_the_completion() {
    let census = Census::new();
    let captured = || {
        let value = census.value();
        move |_: usize| {
            let _value = &value;
        }
    };
    let call = captured();
    assert_eq!(
        sync_wait(just(0).bulk(1, move |index, _| call(index)).then(|_| census.alive())).unwrap(),
        0
    );
    let call = captured();
    let failed = just_error::<usize, _>(0).bulk(1, move |index, _| call(index));
    assert_eq!(sync_wait(failed.upon_error(|_| census.alive())).unwrap(), 0);

    let source = InplaceStopSource::new();
    source.request_stop();
    let stopped = just(census.value())
        .bulk(1, |_, _| ())
        .write_env(WithStopToken(source.token()));
    let stopped = stopped.then(|_| 1).upon_stopped(|| census.alive());
    assert_eq!(sync_wait(stopped).unwrap(), 0);
}

/// On a pool, where the work is shared.
mod on_a_pool {
    use std::sync::atomic::AtomicBool;
    use std::sync::{Barrier, mpsc};

    use bowline::scheduler::{InlineScheduler, PoolScheduler, ThreadPool};

    use super::*;

    const POOLS: [usize; 3] = [1, 2, 8];
    const SHAPES: [usize; 6] = [0, 1, 2, 7, 1000, 100_000];

    /// Panics without calling the panic hook.
    fn panic_silently(message: &'static str) -> ! {
        std::panic::resume_unwind(Box::new(message))
    }

    /// Returns a function that makes the workers meet: each call waits for as many calls as there are workers.
    fn meeting(pool: &ThreadPool) -> impl Fn() + Send + Sync {
        let barrier = Barrier::new(pool.threads());
        move || {
            barrier.wait();
        }
    }

    #[test]
    fn every_index_is_visited_exactly_once_and_the_value_handed_on() {
        for threads in POOLS {
            let pool = ThreadPool::new(threads);
            let there = || just("v").continues_on(pool.scheduler());
            for shape in SHAPES {
                let visits = Visits::new(shape);
                let bulk = there().bulk(shape, |index, _| visits.visit(index));
                assert_eq!(sync_wait(bulk).unwrap(), "v");
                assert!(visits.all_once());

                let visits = Visits::new(shape);
                let bulk = there().bulk_unchunked(shape, |index, _| visits.visit(index));
                assert_eq!(sync_wait(bulk).unwrap(), "v");
                assert!(visits.all_once());

                let visits = Visits::new(shape);
                let bulk = there().bulk_chunked(shape, |range, _| {
                    assert!(!range.is_empty());
                    visits.visit_all(range);
                });
                assert_eq!(sync_wait(bulk).unwrap(), "v");
                assert!(visits.all_once());
            }
        }
    }

    #[test]
    fn the_value_comes_after_all_calls() {
        let pool = ThreadPool::new(8);
        for _ in 0..200 {
            let sum = AtomicUsize::new(0);
            let add = |index, _: &()| {
                sum.fetch_add(index, Ordering::Relaxed);
            };
            let work = pool.scheduler().schedule().bulk(100, add);
            assert_eq!(sync_wait(work.then(|()| sum.load(Ordering::Relaxed))).unwrap(), 4950);
        }
    }

    #[test]
    fn calls_write_what_comes_after_reads() {
        let pool = ThreadPool::new(4);
        let mut data = vec![0u64; 10_000];
        let base = data.as_mut_ptr() as usize;
        let work = pool.scheduler().schedule().bulk_chunked(data.len(), move |range, ()| {
            for index in range {
                // SAFETY: the ranges do not overlap, and the data is alive until the whole has completed.
                unsafe { *(base as *mut u64).add(index) = index as u64 };
            }
        });
        sync_wait(work).unwrap();
        assert!((0..).zip(&data).all(|(index, &element)| index == element));
    }

    #[test]
    fn every_worker_takes_part() {
        for threads in [2, 3, 8] {
            let pool = ThreadPool::new(threads);
            for _ in 0..20 {
                let meet = meeting(&pool);
                sync_wait(pool.scheduler().schedule().bulk(threads, |_, ()| meet())).unwrap();
                sync_wait(pool.scheduler().schedule().bulk_unchunked(threads, |_, ()| meet())).unwrap();
                sync_wait(pool.scheduler().schedule().bulk_chunked(threads, |_, ()| meet())).unwrap();
            }
        }
    }

    #[test]
    fn calls_of_an_unchunked_one_may_wait_for_each_other() {
        for threads in [2, 4] {
            let pool = ThreadPool::new(threads);
            let made = (0..1000).map(|_| AtomicBool::new(false)).collect::<Vec<_>>();
            let work = pool.scheduler().schedule().bulk_unchunked(1000, |index, ()| {
                made[index].store(true, Ordering::SeqCst);
                while !made[index ^ 1].load(Ordering::SeqCst) {
                    thread::yield_now();
                }
            });
            sync_wait(work).unwrap();
        }
    }

    #[test]
    fn wherever_it_gets_onto_the_pool_it_is_shared() {
        let pool = ThreadPool::new(2);
        let there = pool.scheduler();
        let meet = meeting(&pool);
        let call = |_: usize, _: &()| meet();
        sync_wait(starts_on(there, just(()).bulk(2, call))).unwrap();
        sync_wait(just(()).bulk(2, call).on(there)).unwrap();
        sync_wait(just(()).continues_on(there).bulk(2, call)).unwrap();
        sync_wait(starts_on(there, just(()).boxed().bulk(2, call))).unwrap();
        sync_wait(starts_on(there, just(()).let_value(|()| just(()).bulk(2, call)))).unwrap();
        // From one of its own threads.
        pool.install(|| sync_wait(there.schedule().bulk(2, call)).unwrap());
        pool.install(|| sync_wait(starts_on(there, just(()).bulk(2, call))).unwrap());
        // At another priority.
        sync_wait(there.with_priority(Priority::Background).schedule().bulk(2, call)).unwrap();
    }

    #[test]
    fn without_a_scheduler_in_the_environment_it_is_shared() {
        let pool = ThreadPool::new(2);
        let barrier = std::sync::Arc::new(Barrier::new(2));
        let (sender, receiver) = mpsc::channel();
        pool.install(move || {
            let work = just(()).bulk(2, move |_, ()| {
                barrier.wait();
            });
            start_detached(work.then(move |()| sender.send(()).expect("somebody waits")));
        });
        receiver.recv().expect("it completes");
    }

    #[test]
    fn elsewhere_it_stays_on_its_thread() {
        let pool = ThreadPool::new(2);
        let other = ThreadPool::new(2);
        let stays = |begin: thread::ThreadId| {
            move |_: usize, _: &()| {
                thread::yield_now();
                assert_eq!(thread::current().id(), begin);
            }
        };
        pool.install(|| {
            let here = thread::current().id();
            for _ in 0..100 {
                // The environment's scheduler is the run loop of `sync_wait`, the inline one, or another pool.
                sync_wait(just(()).bulk(64, stays(here))).unwrap();
                sync_wait(just(()).bulk(64, stays(here)).write_env(WithScheduler(InlineScheduler))).unwrap();
                sync_wait(
                    just(())
                        .bulk(64, stays(here))
                        .write_env(WithScheduler(other.scheduler())),
                )
                .unwrap();
            }
        });
    }

    #[test]
    fn on_a_run_loop_that_a_worker_drives_it_stays_there() {
        let pool = ThreadPool::new(2);
        pool.install(|| {
            let here = thread::current().id();
            let run_loop = RunLoop::new();
            for _ in 0..100 {
                let work = just(()).continues_on(run_loop.scheduler()).bulk(64, |_, ()| {
                    thread::yield_now();
                    assert_eq!(thread::current().id(), here);
                });
                let end = run_loop.run_until(work.then(|()| thread::current().id()));
                assert_eq!(end.unwrap(), here);
            }
            // Work of the pool that the loop's driver runs meanwhile is shared.
            let meet = meeting(&pool);
            sync_wait(pool.scheduler().schedule().bulk(2, |_, ()| meet())).unwrap();
        });
    }

    #[test]
    fn affine_comes_back_to_the_pool() {
        let pool = ThreadPool::new(4);
        for _ in 0..100 {
            let work = just(()).bulk(16, |_, ()| thread::yield_now()).affine();
            let index = sync_wait(starts_on(pool.scheduler(), work.then(|()| pool.worker_index())));
            assert!(index.unwrap().is_some());
        }
    }

    #[test]
    fn chunks_cover_every_index_and_do_not_overlap() {
        for threads in POOLS {
            let pool = ThreadPool::new(threads);
            for shape in [1, 2, 7, 1000, 1_000_000] {
                let chunks = Mutex::new(Vec::new());
                let work = pool.scheduler().schedule();
                sync_wait(work.bulk_chunked(shape, |range, ()| lock(&chunks).push(range))).unwrap();
                let mut chunks = chunks.into_inner().unwrap();
                chunks.sort_by_key(|range| range.start);
                let end = chunks.iter().fold(0, |end, range| {
                    assert_eq!(range.start, end);
                    assert!(!range.is_empty());
                    range.end
                });
                assert_eq!(end, shape);
                // Neither as many as indices, nor so few that a worker is idle.
                assert!(shape < 10_000 || chunks.len() < shape / 100);
                assert!(chunks.len() >= threads.min(shape));
            }
        }
    }

    #[test]
    fn a_panic_ends_the_rest_and_arrives() {
        for threads in POOLS {
            let pool = ThreadPool::new(threads);
            let there = pool.scheduler();
            for shape in [2, 1000, usize::MAX] {
                let fails = |index: usize| {
                    if index == 1 {
                        panic_silently("the second");
                    }
                };
                let work = there.schedule().bulk(shape, |index, ()| fails(index));
                assert_eq!(panic_message(|| sync_wait(work)), "the second");
                let work = there.schedule().bulk_chunked(shape, |range, ()| {
                    if range.contains(&1) {
                        fails(1);
                    }
                });
                assert_eq!(panic_message(|| sync_wait(work)), "the second");
            }
        }
    }

    #[test]
    fn of_several_panics_one_arrives() {
        let pool = ThreadPool::new(2);
        for _ in 0..100 {
            let census = Census::new();
            let meet = meeting(&pool);
            let value = census.value();
            let work = just(census.value()).continues_on(pool.scheduler()).bulk(2, |index, _| {
                let _value = &value;
                meet();
                panic_silently(if index == 0 { "first" } else { "second" });
            });
            let message = panic_message(|| sync_wait(work));
            assert!(["first", "second"].contains(&&*message));
            drop(value);
            assert_eq!(census.alive(), 0);
        }
    }

    #[test]
    fn a_stop_leaves_the_rest_out() {
        for threads in POOLS {
            let pool = ThreadPool::new(threads);
            let there = pool.scheduler();
            for shape in [1000, usize::MAX] {
                let source = InplaceStopSource::new();
                let token = || WithStopToken(source.token());
                let work = there.schedule().bulk(shape, |index, ()| {
                    if index == 1 {
                        source.request_stop();
                    }
                });
                assert!(sync_wait(work.write_env(token())).is_stopped());

                let source = InplaceStopSource::new();
                let token = || WithStopToken(source.token());
                let calls = AtomicUsize::new(0);
                let work = there.schedule().bulk_chunked(100_000, |_, ()| {
                    source.request_stop();
                    calls.fetch_add(1, Ordering::SeqCst);
                });
                assert!(sync_wait(work.write_env(token())).is_stopped());
                // Each thread was in the middle of one call at most.
                assert!(calls.into_inner() <= threads);
            }
        }
    }

    #[test]
    fn a_stop_in_the_last_calls_comes_too_late() {
        let pool = ThreadPool::new(2);
        for _ in 0..100 {
            let source = InplaceStopSource::new();
            let meet = meeting(&pool);
            let work = pool.scheduler().schedule().bulk(2, |_, ()| {
                meet();
                source.request_stop();
            });
            sync_wait(work.write_env(WithStopToken(source.token()))).unwrap();
        }
    }

    #[test]
    fn a_panic_goes_before_a_stop() {
        let pool = ThreadPool::new(2);
        for _ in 0..100 {
            let source = InplaceStopSource::new();
            let meet = meeting(&pool);
            let work = pool.scheduler().schedule().bulk(100, |index, ()| match index {
                0 => {
                    meet();
                    source.request_stop();
                }
                1 => {
                    meet();
                    panic_silently("both");
                }
                _ => {}
            });
            let message = panic_message(|| sync_wait(work.write_env(WithStopToken(source.token()))));
            assert_eq!(message, "both");
        }
    }

    /// Records how many values are alive when the work completes, also by a panic.
    fn alive_at_the_end<S: Sender<Value: Send, Error: Send> + Send>(census: &Census, work: S) -> usize {
        let alive = AtomicUsize::new(usize::MAX);
        let note = just_from(|| alive.store(census.alive(), Ordering::SeqCst));
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = sync_wait(work.finally(note));
        }));
        alive.into_inner()
    }

    #[test]
    fn the_function_and_a_value_that_is_not_handed_on_are_dropped_before_the_completion() {
        let pool = ThreadPool::new(2);
        let census = Census::new();
        let there = pool.scheduler();
        for _ in 0..100 {
            let source = InplaceStopSource::new();
            let stops = {
                let (source, captured) = (&source, census.value());
                move |_: usize, _: &Counted| {
                    let _captured = &captured;
                    source.request_stop();
                }
            };
            let work = just(census.value()).continues_on(there).bulk(100, stops);
            let work = work.write_env(WithStopToken(source.token()));
            assert_eq!(alive_at_the_end(&census, work), 0);

            let captured = census.value();
            let panics = move |_: usize, _: &Counted| {
                let _captured = &captured;
                panic_silently("in bulk");
            };
            let work = just(census.value()).continues_on(there).bulk(100, panics);
            assert_eq!(alive_at_the_end(&census, work), 0);

            let captured = census.value();
            let ends = move |_: usize, _: &Counted| {
                let _captured = &captured;
            };
            let work = just(census.value()).continues_on(there).bulk(100, ends);
            // The value.
            assert_eq!(alive_at_the_end(&census, work), 1);
            assert_eq!(census.alive(), 0);
        }
    }

    #[test]
    fn errors_and_stops_pass() {
        let pool = ThreadPool::new(2);
        let there = pool.scheduler();
        let failed = just_error::<(), _>("no").continues_on(there);
        assert_eq!(sync_wait(failed.bulk(3, |_, ()| panic!("called"))).err(), Some("no"));
        let stopped = just_stopped::<(), Infallible>().continues_on(there);
        assert!(sync_wait(stopped.bulk(3, |_, ()| panic!("called"))).is_stopped());
    }

    #[test]
    fn bulks_nest() {
        for threads in POOLS {
            let pool = ThreadPool::new(threads);
            let there = pool.scheduler();
            let visits = Visits::new(20 * 30 * 5);
            let outer = there.schedule().bulk(20, |first, ()| {
                let inner = there.schedule().bulk(30, |second, ()| {
                    let innermost = there.schedule().bulk(5, |third, ()| {
                        visits.visit((first * 30 + second) * 5 + third);
                    });
                    sync_wait(innermost).unwrap();
                });
                sync_wait(inner).unwrap();
            });
            sync_wait(outer).unwrap();
            assert!(visits.all_once());
        }
    }

    #[test]
    fn a_function_may_fork() {
        let pool = ThreadPool::new(4);
        let sum = AtomicUsize::new(0);
        let work = pool.scheduler().schedule().bulk(1000, |index, ()| {
            let (a, b) = bowline::join(|| index, || bowline::join(|| index, || 1));
            sum.fetch_add(a + b.0 + b.1, Ordering::Relaxed);
        });
        sync_wait(work).unwrap();
        assert_eq!(sum.into_inner(), 1000 * 999 + 1000);
    }

    #[test]
    fn several_at_once() {
        for threads in POOLS {
            let pool = ThreadPool::new(threads);
            let visits = [(); 3].map(|()| Visits::new(5000));
            let bulk = |visits| {
                pool.scheduler()
                    .schedule()
                    .bulk(5000, move |index, ()| Visits::visit(visits, index))
            };
            for round in 0..10 {
                sync_wait(when_all((bulk(&visits[0]), bulk(&visits[1]), bulk(&visits[2])))).unwrap();
                assert!(visits.iter().all(|visits| visits.total() == 5000 * (round + 1)));
            }
        }
    }

    #[test]
    fn ten_thousand_small_ones() {
        for threads in POOLS {
            let pool = ThreadPool::new(threads);
            for shape in [0, 1, 2, 3, 10] {
                let calls = AtomicUsize::new(0);
                let call = |_: usize, _: &()| {
                    calls.fetch_add(1, Ordering::Relaxed);
                };
                // With a hop in each round, and without.
                sync_wait(pool.scheduler().schedule().bulk(shape, call).repeat_n(10_000)).unwrap();
                sync_wait(starts_on(pool.scheduler(), just(()).bulk(shape, call).repeat_n(10_000))).unwrap();
                assert_eq!(calls.into_inner(), 2 * 10_000 * shape);
            }
        }
    }

    #[test]
    fn nobody_waits_for_a_worker_that_is_busy_elsewhere() {
        let pool = ThreadPool::new(2);
        let (leave, stay) = mpsc::channel::<()>();
        let (entered, busy) = mpsc::channel();
        let stay = Mutex::new(stay);
        thread::scope(|scope| {
            scope.spawn(|| {
                pool.install(|| {
                    entered.send(()).unwrap();
                    lock(&stay).recv().unwrap();
                });
            });
            busy.recv().unwrap();
            let visits = Visits::new(1000);
            sync_wait(pool.scheduler().schedule().bulk(1000, |index, ()| visits.visit(index))).unwrap();
            assert!(visits.all_once());
            // An invitation that was not taken is withdrawn before the operation is destroyed.
            let spawned = AtomicUsize::new(0);
            let jobs = (0..100).map(|_| {
                pool.scheduler()
                    .schedule()
                    .then(|()| spawned.fetch_add(1, Ordering::SeqCst))
            });
            sync_wait(when_all_iter(jobs)).unwrap();
            assert_eq!(spawned.into_inner(), 100);
            leave.send(()).unwrap();
        });
    }

    /// Returns work that a worker has queued: more than its queue holds.
    fn queue(there: PoolScheduler, jobs: usize, ran: &'static AtomicUsize) {
        for _ in 0..jobs {
            start_detached(there.schedule().then(|()| {
                ran.fetch_add(1, Ordering::SeqCst);
            }));
        }
    }

    #[test]
    fn with_a_full_queue_it_runs_all_the_same() {
        static RAN: AtomicUsize = AtomicUsize::new(0);
        let pool = ThreadPool::new(2);
        let there = pool.scheduler();
        for _ in 0..20 {
            let visits = Visits::new(1000);
            let work = there.schedule().then(|()| queue(there, 600, &RAN));
            // Jobs queued in a call are on top of the invitation.
            sync_wait(work.bulk(1000, |index, ()| {
                visits.visit(index);
                if index % 100 == 0 {
                    queue(there, 10, &RAN);
                }
            }))
            .unwrap();
            assert!(visits.all_once());
        }
        drop(pool);
        assert_eq!(RAN.load(Ordering::SeqCst), 20 * (600 + 100));
    }

    #[test]
    fn does_not_allocate() {
        let pool = ThreadPool::new(4);
        let counts = [(); 4].map(|()| AtomicUsize::new(0));
        let total = || {
            let meet = meeting(&pool);
            sync_wait(pool.scheduler().schedule().bulk(4, |_, ()| {
                meet();
                counts[pool.worker_index().unwrap()].store(allocations_so_far(), Ordering::SeqCst);
            }))
            .unwrap();
            counts.iter().map(|count| count.load(Ordering::SeqCst)).sum::<usize>()
        };
        // A warm-up, for one-time allocations such as that of the first parking.
        total();
        let before = total();
        let ((), here) = allocations(|| {
            for shape in [2, 100, 100_000] {
                let work = pool.scheduler().schedule();
                sync_wait(work.bulk(shape, |_, ()| ()).bulk_unchunked(shape, |_, ()| ())).unwrap();
                sync_wait(work.bulk_chunked(shape, |_, ()| ())).unwrap();
            }
        });
        assert_eq!((here, total() - before), (0, 0));
    }

    #[test]
    fn a_million_rounds_take_constant_stack() {
        let pool = ThreadPool::builder()
            .threads(2)
            .stack_size(SMALL_STACK)
            .build()
            .unwrap();
        let calls = AtomicUsize::new(0);
        let call = |_: usize, _: &()| {
            calls.fetch_add(1, Ordering::Relaxed);
        };
        let round = just(())
            .bulk(2, call)
            .bulk_chunked(2, |range, ()| range.for_each(|index| call(index, &())));
        sync_wait(starts_on(pool.scheduler(), round.repeat_until(million()))).unwrap();
        assert_eq!(calls.into_inner(), 4 * ROUNDS);
    }

    #[test]
    fn every_index_at_most_once_whatever_panics_or_stops() {
        let mut random = 0x2545_F491_4F6C_DD1Du64;
        let mut random = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % below as u64) as usize
        };
        let pool = ThreadPool::new(8);
        let there = pool.scheduler();
        let census = Census::new();
        for _ in 0..3000 {
            let shape = 1 + random(300);
            // Beyond the end: never.
            let (panics_at, stops_at) = (random(3 * shape), random(3 * shape));
            let chunked = random(2) == 0;
            let visits = Visits::new(shape);
            let source = InplaceStopSource::new();
            let panicked = AtomicBool::new(false);
            let call = |index: usize| {
                visits.visit(index);
                if index == stops_at {
                    source.request_stop();
                }
                if index == panics_at {
                    panicked.store(true, Ordering::SeqCst);
                    panic_silently("at random");
                }
            };
            let value = just(census.value()).continues_on(there);
            let token = WithStopToken(source.token());
            let wait = std::panic::AssertUnwindSafe(|| {
                if chunked {
                    sync_wait(
                        value
                            .bulk_chunked(shape, |range, _| range.for_each(call))
                            .write_env(token),
                    )
                } else {
                    sync_wait(value.bulk(shape, |index, _| call(index)).write_env(token))
                }
            });
            let outcome = std::panic::catch_unwind(wait);
            let panicked = panicked.into_inner();
            assert_eq!(outcome.is_err(), panicked);
            match outcome {
                Ok(Outcome::Value(value)) => {
                    drop(value);
                    assert!(visits.all_once());
                }
                Ok(_) => assert!(source.token().stop_requested() && visits.total() < shape),
                Err(_) => {}
            }
            assert!(visits.0.iter().all(|visits| visits.load(Ordering::SeqCst) <= 1));
            assert_eq!(census.alive(), 0);
        }
    }
}
