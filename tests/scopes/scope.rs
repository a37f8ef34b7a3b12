//! `task::scope`.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Barrier, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::common::{self, Bomb, Census, CrewAllocations, aborts, lock, panic_message, settles_at};
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, ThreadPool, Timer};
use bowline::task;

#[test]
fn every_closure_has_ended_when_the_scope_returns() {
    let ended = AtomicUsize::new(0);
    let value = task::scope(|scope| {
        for _ in 0..1000 {
            scope.spawn(|_| {
                ended.fetch_add(1, SeqCst);
            });
        }
        "value"
    });
    assert_eq!((value, ended.into_inner()), ("value", 1000));
}

#[test]
fn closures_borrow_and_write_what_is_outside() {
    let mut squares = [0; 100];
    task::scope(|scope| {
        for (index, square) in squares.iter_mut().enumerate() {
            scope.spawn(move |_| *square = index * index);
        }
    });
    assert!(
        squares
            .iter()
            .enumerate()
            .all(|(index, &square)| square == index * index)
    );
}

#[test]
fn a_closure_may_spawn_more() {
    fn grow<'scope>(scope: &task::Scope<'scope>, leaves: &'scope AtomicUsize, depth: usize) {
        if depth == 0 {
            leaves.fetch_add(1, SeqCst);
            return;
        }
        for _ in 0..2 {
            scope.spawn(move |scope| grow(scope, leaves, depth - 1));
        }
    }
    for workers in [1, 2, 8] {
        let leaves = AtomicUsize::new(0);
        ThreadPool::new(workers).scope(|scope| grow(scope, &leaves, 10));
        assert_eq!(leaves.into_inner(), 1024);
    }
}

#[test]
fn closures_run_side_by_side() {
    let pool = ThreadPool::new(2);
    let meet = Barrier::new(2);
    pool.scope(|scope| {
        scope.spawn(|_| {
            meet.wait();
        });
        scope.spawn(|_| {
            meet.wait();
        });
    });
}

#[test]
fn a_scope_runs_on_the_pool_it_is_asked_of() {
    let pool = ThreadPool::new(1);
    let other = ThreadPool::new(1);
    let (body, spawned) = other.install(|| {
        let mut spawned = None;
        let body = pool.scope(|scope| {
            scope.spawn(|_| spawned = pool.worker_index());
            pool.worker_index()
        });
        (body, spawned)
    });
    assert_eq!((body, spawned), (Some(0), Some(0)));
}

#[test]
fn a_scope_in_a_scope_waits_for_its_own_alone() {
    let pool = ThreadPool::new(2);
    let (outer, inner) = (AtomicUsize::new(0), AtomicUsize::new(0));
    pool.scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|_| {
                task::scope(|scope| {
                    for _ in 0..10 {
                        scope.spawn(|_| {
                            inner.fetch_add(1, SeqCst);
                        });
                    }
                });
                outer.fetch_add(1, SeqCst);
            });
        }
    });
    assert_eq!((outer.into_inner(), inner.into_inner()), (10, 100));
}

#[test]
fn a_panic_of_a_closure_comes_out_after_all_others_have_ended() {
    let ended = AtomicUsize::new(0);
    let message = panic_message(|| {
        task::scope(|scope| {
            scope.spawn(|_| panic!("the knot slipped"));
            for _ in 0..100 {
                scope.spawn(|_| {
                    ended.fetch_add(1, SeqCst);
                });
            }
        });
    });
    assert_eq!(message, "the knot slipped");
    assert_eq!(ended.into_inner(), 100);
}

#[test]
fn a_panic_of_the_body_goes_before_that_of_a_closure() {
    let ended = AtomicUsize::new(0);
    let message = panic_message(|| {
        task::scope(|scope| {
            scope.spawn(|_| panic!("the closure"));
            scope.spawn(|_| {
                ended.fetch_add(1, SeqCst);
            });
            panic!("the body");
        })
    });
    assert_eq!(message, "the body");
    assert_eq!(ended.into_inner(), 1);
}

#[test]
fn what_a_closure_owns_is_dropped_with_it() {
    let census = Census::new();
    let message = panic_message(|| {
        task::scope(|scope| {
            let (quiet, loud) = (census.value(), census.value());
            scope.spawn(move |_| drop(quiet));
            scope.spawn(move |_| {
                let _loud = loud;
                panic!("with something in hand");
            });
        });
    });
    assert_eq!(message, "with something in hand");
    assert_eq!(census.alive(), 0);
}

#[test]
fn an_empty_scope_returns() {
    assert_eq!(task::scope(|_| 7), 7);
}

/// Calls `f` with pools of several sizes.
fn on_pools(f: impl Fn(&ThreadPool)) {
    for workers in [1, 2, 8] {
        f(&ThreadPool::new(workers));
    }
}

#[test]
fn coroutines_borrow_and_write_what_is_outside() {
    on_pools(|pool| {
        let words = ["tie", "the", "knot"].map(String::from);
        let mut lengths = [0; 3];
        let value = pool.scope(|scope| {
            for (word, length) in words.iter().zip(&mut lengths) {
                scope.spawn_async(async move {
                    let Ok(one) = just(1).await;
                    *length = word.len() * one;
                });
            }
            "value"
        });
        assert_eq!((value, lengths), ("value", [3, 3, 4]));
    });
}

#[test]
fn every_coroutine_has_ended_when_the_scope_returns() {
    on_pools(|pool| {
        let ended = AtomicUsize::new(0);
        pool.scope(|scope| {
            for round in 0..100 {
                let ended = &ended;
                scope.spawn_async(async move {
                    if round % 2 == 0 {
                        Timer::global().schedule_after(Duration::from_micros(50 * round)).await;
                    }
                    ended.fetch_add(1, SeqCst);
                });
            }
        });
        assert_eq!(ended.into_inner(), 100);
    });
}

#[test]
fn a_coroutine_comes_back_to_the_pool_of_its_scope() {
    let run_loop: &'static RunLoop = common::for_good(RunLoop::new());
    common::thread::scope(|threads| {
        threads.spawn(|| run_loop.run());
        on_pools(|pool| {
            let at_home = Mutex::new(Vec::new());
            pool.scope(|scope| {
                let (pool, at_home) = (&pool, &at_home);
                scope.spawn_async(async move {
                    let started = pool.worker_index().is_some();
                    let Ok(away) = just_from(|| std::thread::current().id())
                        .starts_on(run_loop.scheduler())
                        .await;
                    let back = pool.worker_index().is_some() && std::thread::current().id() != away;
                    lock(at_home).extend([started, back]);
                });
            });
            assert_eq!(at_home.into_inner().expect("nobody panicked"), [true, true]);
        });
        run_loop.finish();
    });
}

/// A channel with room for one number, one producer and one consumer.
#[derive(Default)]
struct Room(Mutex<(Option<usize>, Option<Waker>)>);

impl Room {
    /// Waits for room, and stores the number.
    async fn put(&self, number: usize) {
        self.wait(|room| match room {
            Some(_) => None,
            None => {
                *room = Some(number);
                Some(())
            }
        })
        .await;
    }

    /// Waits for a number, and takes it.
    async fn take(&self) -> usize {
        self.wait(Option::take).await
    }

    async fn wait<T>(&self, mut change: impl FnMut(&mut Option<usize>) -> Option<T>) -> T {
        poll_fn(|cx| {
            let mut room = lock(&self.0);
            match change(&mut room.0) {
                None => {
                    room.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
                Some(changed) => {
                    let other = room.1.take();
                    drop(room);
                    other.into_iter().for_each(Waker::wake);
                    Poll::Ready(changed)
                }
            }
        })
        .await
    }
}

#[test]
fn coroutines_that_wait_for_each_other_take_no_worker() {
    on_pools(|pool| {
        let (ping, pong) = (Room::default(), Room::default());
        let mut seen = Vec::new();
        pool.scope(|scope| {
            scope.spawn_async(async {
                for number in 0..100 {
                    ping.put(number).await;
                    seen.push(pong.take().await);
                }
            });
            scope.spawn_async(async {
                for _ in 0..100 {
                    pong.put(ping.take().await * 2).await;
                }
            });
        });
        assert!(seen.iter().enumerate().all(|(index, &number)| number == index * 2));
        assert_eq!(seen.len(), 100);
    });
}

#[test]
fn closures_and_coroutines_spawn_coroutines() {
    on_pools(|pool| {
        let ended = AtomicUsize::new(0);
        pool.scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|scope| {
                    scope.spawn_async(async {
                        let Ok(()) = just(()).await;
                        task::scope(|inner| {
                            inner.spawn_async(async {
                                ended.fetch_add(1, SeqCst);
                            });
                        });
                        ended.fetch_add(1, SeqCst);
                    });
                });
            }
        });
        assert_eq!(ended.into_inner(), 20);
    });
}

#[test]
fn a_panic_of_a_coroutine_comes_out_after_all_others_have_ended() {
    on_pools(|pool| {
        let (ended, census) = (AtomicUsize::new(0), Census::new());
        let message = panic_message(|| {
            pool.scope(|scope| {
                let value = census.value();
                scope.spawn_async(async move {
                    let _value = value;
                    let Ok(()) = just(()).await;
                    panic!("the knot slipped");
                });
                for _ in 0..100 {
                    scope.spawn_async(async {
                        Timer::global().schedule_after(Duration::from_micros(100)).await;
                        ended.fetch_add(1, SeqCst);
                    });
                }
            });
        });
        assert_eq!(message, "the knot slipped");
        assert_eq!((ended.into_inner(), census.alive()), (100, 0));
    });
}

#[test]
fn a_panic_of_the_body_waits_for_the_coroutines() {
    let ended = AtomicUsize::new(0);
    let message = panic_message(|| {
        task::scope(|scope| {
            scope.spawn_async(async {
                Timer::global().schedule_after(Duration::from_millis(1)).await;
                ended.fetch_add(1, SeqCst);
            });
            panic!("the body");
        })
    });
    assert_eq!((message.as_str(), ended.into_inner()), ("the body", 1));
}

#[test]
fn a_coroutine_that_stops_has_ended_and_its_locals_are_gone() {
    on_pools(|pool| {
        let census = Census::new();
        let reached = AtomicUsize::new(0);
        pool.scope(|scope| {
            let value = census.value();
            let reached = &reached;
            scope.spawn_async(async move {
                let _value = value;
                let Ok(()) = just_stopped::<(), Infallible>().await;
                reached.fetch_add(1, SeqCst);
            });
        });
        assert_eq!((census.alive(), reached.into_inner()), (0, 0));
    });
}

#[test]
fn a_waker_that_outlives_the_scope_wakes_nothing() {
    on_pools(|pool| {
        let kept: Mutex<Option<Waker>> = Mutex::new(None);
        let mut polls = 0;
        pool.scope(|scope| {
            let (kept, polls) = (&kept, &mut polls);
            scope.spawn_async(poll_fn(move |cx| {
                *polls += 1;
                *lock(kept) = Some(cx.waker().clone());
                if *polls == 3 {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            }));
        });
        let waker = kept.into_inner().expect("nobody panicked").expect("it was polled");
        waker.wake_by_ref();
        waker.wake();
        // The pool runs this after a wake-up that was sent to it.
        pool.install(|| ());
        assert_eq!(polls, 3);
    });
}

#[test]
fn a_coroutine_allocates_its_frame_from_kept_memory_and_once_more() {
    let crew = CrewAllocations::new();
    let pool = ThreadPool::builder()
        .threads(1)
        .on_start(move |_| crew.join())
        .build()
        .expect("a pool");
    let ended = AtomicUsize::new(0);
    let one_coroutine = || {
        pool.scope(|scope| {
            scope.spawn_async(async {
                let Ok(one) = just(1).await;
                ended.fetch_add(one, SeqCst);
            });
        });
    };
    // The first time, the waiting thread starts a spare thread, which runs it.
    one_coroutine();
    assert_eq!(ended.load(SeqCst), 1);
    assert_eq!(settles_at(0, || crew.during(|| pool.scope(|_| ())).1), 0);
    // AddressSanitizer sees each frame.
    let frame = usize::from(cfg!(sanitized = "address"));
    assert_eq!(settles_at(1 + frame, || crew.during(one_coroutine).1), 1 + frame);
}

#[test]
fn a_hundred_thousand_coroutines_end() {
    on_pools(|pool| {
        let ended = AtomicUsize::new(0);
        pool.scope(|scope| {
            for _ in 0..100_000 {
                scope.spawn_async(async {
                    ended.fetch_add(1, SeqCst);
                });
            }
        });
        assert_eq!(ended.into_inner(), 100_000);
    });
}

/// Spawned work borrows from this stack frame, so no unwind may leave the wait.
#[test]
fn a_destructor_that_panics_in_a_job_during_a_scope_aborts() {
    let said = aborts("a_destructor_that_panics_in_a_job_during_a_scope_aborts", || {
        let pool = ThreadPool::new(1);
        let scheduler = pool.scheduler();
        pool.scope(|scope| {
            scope.spawn(move |_| {
                start_detached(scheduler.schedule().then(|()| Bomb));
                sync_wait(scheduler.schedule()).unwrap();
            });
        });
    });
    assert!(said.contains("bowline:"), "{said}");
}
