//! `task::group`, `try_group`, `discarding_group`, `supervised_group`.

use bowline::prelude::*;
use bowline::task::{self, Task};

#[test]
fn smoke() {
    let task = Task::new(async {
        task::group(async |group| {
            for number in 1..=10 {
                group.spawn(async move { number * number });
            }
            let mut sum = 0;
            while let Some(square) = group.next().await {
                sum += square;
            }
            sum
        })
        .await
    });
    assert_eq!(sync_wait(task).unwrap(), 385);
}

#[test]
fn smoke_pool() {
    let pool = bowline::scheduler::ThreadPool::new(2);
    for _ in 0..100 {
        let task = Task::new(async {
            task::group(async |group| {
                for number in 1..=100u64 {
                    group.spawn(async move { number * number });
                }
                let mut sum = 0;
                while let Some(square) = group.next().await {
                    sum += square;
                }
                sum
            })
            .await
        });
        assert_eq!(sync_wait(starts_on(pool.scheduler(), task)).unwrap(), 338350);
    }
}

#[test]
fn return_without_next_awaits_children() {
    let pool = bowline::scheduler::ThreadPool::new(2);
    use std::sync::{Arc, atomic::*};
    for _ in 0..100 {
        let n = Arc::new(AtomicUsize::new(0));
        let m = n.clone();
        let task = Task::new(task::group(async move |group| {
            for _ in 1..=100u64 {
                let n = n.clone();
                group.spawn(async move {
                    n.fetch_add(1, Ordering::SeqCst);
                });
            }
        }));
        sync_wait(starts_on(pool.scheduler(), task)).unwrap();
        assert_eq!(m.load(Ordering::SeqCst), 100);
    }
}
#[test]
fn cancelled_children_stop() {
    let pool = bowline::scheduler::ThreadPool::new(2);
    for _ in 0..100 {
        let task = Task::new(task::group(async move |group| {
            for _ in 1..=100u64 {
                group.spawn(async move { never::<(), ()>().await });
            }
            group.cancel_all();
            assert_eq!(
                group.spawn(async { Ok(()) }).into_result(),
                Err(task::Refused::Cancelled)
            );
            group.next().await
        }));
        assert!(sync_wait(starts_on(pool.scheduler(), task)).unwrap().is_none());
    }
}
#[test]
fn dropped_half_way() {
    let pool = bowline::scheduler::ThreadPool::new(2);
    use std::sync::{Arc, atomic::*};
    struct D(Arc<AtomicUsize>);
    impl Drop for D {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    for _ in 0..100 {
        let n = Arc::new(AtomicUsize::new(0));
        let m = n.clone();
        let task = Task::new(async move {
            let group = task::group(async move |group| {
                for _ in 1..=100u64 {
                    let n = D(n.clone());
                    group.spawn(async move {
                        let _n = n;
                        never::<(), ()>().await
                    });
                }
                std::future::pending::<()>().await;
            });
            let mut group = Box::pin(group);
            std::future::poll_fn(|cx| {
                assert!(group.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            drop(group);
        });
        sync_wait(starts_on(pool.scheduler(), task)).unwrap();
        assert_eq!(m.load(Ordering::SeqCst), 100);
    }
}
