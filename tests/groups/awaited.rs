//! The children that a task awaits: whatever happens to their futures, the remaining ones are stopped with the task.

use std::alloc::{GlobalAlloc as _, Layout, System};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use allocator_api2::alloc::{AllocError, Allocator};
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, ThreadPool};
use bowline::task::{LocalTask, SenderFuture, Task, TaskFuture};

use crate::common::tasks::{begin, everywhere, hops};
use crate::common::{self, Bomb, Census, Counted, Watchdog, XorShift, lock, thread};

/// Returns a child that ends only by a stop.
fn waiting(kept: Counted) -> Task<()> {
    Task::new(async move {
        let _kept = kept;
        let _ = SenderFuture::new(never::<(), Infallible>()).await;
    })
}

/// Begins children, forgets some, and ends.
async fn leaves_behind(census: Census, children: usize) {
    let (mut kept, mut left) = (Vec::new(), Vec::new());
    for number in 0..children {
        let child = begin(waiting(census.value()).into_future()).await;
        match number % 3 {
            0 => kept.push(child),
            _ => left.push(child),
        }
        if number % 4 == 0 {
            hops(1).await;
        }
    }
    for child in left {
        common::forget(child);
    }
}

#[test]
fn children_that_were_forgotten_are_stopped_with_the_task() {
    let dog = Watchdog::new(Duration::from_secs(20));
    for children in [1, 2, 3, 10] {
        for depth in 0..7 {
            dog.step(format!("{children} at depth {depth}"));
            everywhere(|| async move {
                let census = Census::new();
                let mut task = Task::new(leaves_behind(census.clone(), children));
                for _ in 0..depth {
                    let inner = task;
                    task = Task::new(async move { inner.await.unwrap() });
                }
                task.await.unwrap();
                // The task is done, and so are its children.
                assert_eq!(census.alive(), 0);
            });
        }
    }
}

#[test]
fn a_local_child_too() {
    let _dog = Watchdog::new(Duration::from_secs(20));
    let census = Census::new();
    let kept = std::rc::Rc::new(census.value());
    let task = LocalTask::new(async move {
        let child = LocalTask::new(async move {
            let _kept = kept;
            std::future::pending::<()>().await;
        });
        common::forget(begin(child.into_future()).await);
    });
    RunLoop::new().run_until(task).unwrap();
    assert_eq!(census.alive(), 0);
}

/// A forgotten child has forgotten one itself.
#[test]
fn so_are_the_children_of_those() {
    fn chain(depth: usize, census: &Census) -> Task<()> {
        let (kept, census) = (census.value(), census.clone());
        Task::new(async move {
            let _kept = kept;
            match depth {
                0 => std::future::pending::<()>().await,
                _ => common::forget(begin(chain(depth - 1, &census).into_future()).await),
            }
            std::future::pending::<()>().await;
        })
    }

    let _dog = Watchdog::new(Duration::from_secs(20));
    everywhere(|| async {
        let census = Census::new();
        let inner = census.clone();
        let task = Task::new(async move {
            common::forget(begin(chain(20, &inner).into_future()).await);
        });
        task.await.unwrap();
        assert_eq!(census.alive(), 0);
    });
}

#[test]
#[allow(clippy::async_yields_async, reason = "the future of a child is given away")]
fn a_child_in_the_result_of_its_task_is_stopped_with_that() {
    let _dog = Watchdog::new(Duration::from_secs(20));
    everywhere(|| async {
        let census = Census::new();
        let value = census.value();
        let outer = Task::new(async move { begin(waiting(value).into_future()).await });
        let child: Pin<Box<TaskFuture<(), Infallible>>> = outer.await.unwrap();
        assert_eq!(census.alive(), 0);
        drop(child);
    });
}

/// Children end in one order and are polled in another; some are dropped, some forgotten, and more begin meanwhile.
#[test]
fn many_that_end_in_any_order() {
    let _dog = Watchdog::new(Duration::from_secs(60));
    for seed in 1..=20 {
        everywhere(move || async move {
            let census = Census::new();
            let inner = census.clone();
            let task = Task::new(async move {
                let mut random = XorShift::new(seed);
                let mut children = Vec::new();
                for _ in 0..200 {
                    let (value, rounds) = (inner.value(), random.below(5));
                    let child = match random.below(4) {
                        0 => Task::new(async move {
                            let _value = value;
                            std::future::pending().await
                        }),
                        _ => Task::new(async move {
                            hops(1 + rounds as usize).await;
                            value
                        }),
                    };
                    children.push(begin(child.into_future()).await);
                    for _ in 0..random.below(4) {
                        let mut child = children.swap_remove(random.below(children.len() as u64) as usize);
                        let ready = poll_fn(|cx| Poll::Ready(child.as_mut().poll(cx).is_ready())).await;
                        if !ready && random.below(2) == 0 {
                            children.push(child);
                        }
                        if children.is_empty() {
                            break;
                        }
                    }
                    if children.is_empty() {
                        children.push(begin(waiting_for_good(inner.value()).into_future()).await);
                    }
                }
                // The forgotten ones have no result, so nothing leaks.
                drop(children.split_off(children.len() / 2));
                children
            });
            drop(task.await.unwrap());
            assert_eq!(census.alive(), 0);
        });
    }
}

fn waiting_for_good(value: Counted) -> Task<Counted> {
    Task::new(async move {
        let _value = value;
        std::future::pending().await
    })
}

/// An allocator that counts its live allocations.
#[derive(Clone)]
struct Counting(Arc<AtomicUsize>);

// SAFETY: forwards to the system allocator.
unsafe impl Allocator for Counting {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the size of a frame is not zero.
        let memory = NonNull::new(unsafe { System.alloc(layout) }).ok_or(AllocError)?;
        self.0.fetch_add(1, SeqCst);
        Ok(NonNull::slice_from_raw_parts(memory, layout.size()))
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        self.0.fetch_sub(1, SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory.as_ptr(), layout) };
    }
}

/// Their frames are freed before the task ends, even if an older child keeps running.
#[test]
fn children_that_are_dropped_elsewhere_do_not_pile_up() {
    let _dog = Watchdog::new(Duration::from_secs(60));
    let frames = Arc::new(AtomicUsize::new(0));
    let counting = Counting(frames.clone());
    let task = Task::new(async move {
        let census = Census::new();
        let oldest = begin(waiting(census.value()).into_future()).await;
        for _ in 0..1000 {
            let child = Task::new_in(std::future::pending::<()>(), counting.clone());
            let child = begin(child.into_future()).await;
            thread::scope(|scope| {
                scope.spawn(move || drop(child));
            });
            hops(1).await;
            let alive = frames.load(SeqCst);
            assert!(alive < 10, "{alive} frames are left");
        }
        drop(oldest);
        frames
    });
    let frames = sync_wait(task).unwrap();
    assert_eq!(frames.load(SeqCst), 0);
}

/// A child ends with a value after its future was dropped on another thread, so the parent's list has the only reference. A
/// panic of the value's destructor does not affect the parent.
#[test]
fn a_result_that_is_left_is_dropped_with_the_task_and_may_panic() {
    let _dog = Watchdog::new(Duration::from_secs(60));
    let pool = ThreadPool::new(2);
    for another in [false, true] {
        let (gives, waker) = mpsc::channel::<Waker>();
        let (arrives, leaves) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let slot = Arc::new(Mutex::new(None));
        let (arrived, may_leave, filled) = (arrives.clone(), leaves.clone(), slot.clone());
        let task = Task::new(async move {
            let child = Task::new(async move {
                let mut polled = false;
                poll_fn(|cx| {
                    if std::mem::replace(&mut polled, true) {
                        return Poll::Ready(());
                    }
                    gives.send(cx.waker().clone()).expect("it is waited for");
                    Poll::Pending
                })
                .await;
                arrived.wait();
                may_leave.wait();
                Bomb
            });
            *lock(&filled) = Some(begin(child.into_future()).await);
            // The end of the child wakes this.
            let mut polled = false;
            poll_fn(|_| match std::mem::replace(&mut polled, true) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
            if another {
                drop(begin(std::pin::pin!(waiting(Census::new().value()).into_future())).await);
            }
        });
        thread::scope(|scope| {
            scope.spawn(move || {
                waker.recv().expect("the child begins").wake();
                arrives.wait();
                let child = loop {
                    match lock(&slot).take() {
                        Some(child) => break child,
                        None => thread::yield_now(),
                    }
                };
                drop(child);
                leaves.wait();
            });
            sync_wait(starts_on(pool.scheduler(), task)).unwrap();
        });
    }
}
