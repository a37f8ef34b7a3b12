//! `task::detach` and `Handle`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::task::{self, Task};

struct Count(Arc<AtomicUsize>);
impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn smoke() {
    for _ in 0..1000 {
        let handle = task::detach(async { 1 });
        assert_eq!(task::block_on(handle).unwrap(), 1);
    }
    let handle = task::detach(async { never::<(), ()>().await });
    handle.cancel();
    assert!(task::block_on(handle).unwrap_err().is_cancelled());
    let handle = task::detach(async { panic!("boom") });
    assert!(task::block_on(handle).map(|()| ()).unwrap_err().is_panic());
    let handle = task::detach(async { never::<(), ()>().await });
    let pool = ThreadPool::new(2);
    let raced = Task::try_new(async move {
        let mut handle = Box::pin(handle);
        std::future::poll_fn(|cx| {
            assert!(handle.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        drop(handle);
        Ok::<_, ()>(())
    });
    sync_wait(starts_on(pool.scheduler(), raced)).unwrap();
}

#[test]
fn lets() {
    let pool = ThreadPool::new(2);
    for _ in 0..300 {
        let n = Arc::new(AtomicUsize::new(0));
        let m = n.clone();
        let task = Task::new(async move {
            let a = task::let_async(async { 1 });
            let b = task::let_async(async { 2 });
            let mut lets = Vec::new();
            for _ in 0..20 {
                let c = Count(n.clone());
                lets.push(task::let_async(async move {
                    let _c = c;
                    never::<(), ()>().await
                }));
            }
            std::mem::forget(lets.pop());
            a.await + b.await
        });
        assert_eq!(sync_wait(starts_on(pool.scheduler(), task)).unwrap(), 3);
        assert_eq!(m.load(SeqCst), 20);
    }
}
