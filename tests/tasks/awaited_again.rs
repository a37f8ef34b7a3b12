//! Futures that are awaited in a deadline, and then again outside of it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use crate::common::hold;
use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::task::{self, SenderFuture, Task, with_timeout};

const SHORT: Duration = Duration::from_millis(5);
const HOUR: Duration = Duration::from_secs(3600);

fn on_the_pool<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    sync_wait(starts_on(ThreadPool::global().scheduler(), Task::new(work))).unwrap()
}

/// Returns a function and a wait that ends after its call.
fn gate() -> (impl FnOnce() + Send, impl Future<Output = u32> + Send + 'static) {
    let is_open = Arc::new(AtomicBool::new(false));
    let opens = is_open.clone();
    let late = async move {
        while !is_open.load(SeqCst) {
            task::sleep(Duration::from_millis(1)).await;
        }
        7
    };
    (move || opens.store(true, SeqCst), late)
}

#[test]
fn a_handle() {
    on_the_pool(async {
        let (open, late) = gate();
        let mut handle = task::detach(late);
        assert!(with_timeout(SHORT, &mut handle).await.is_err());
        open();
        assert_eq!(handle.await.unwrap(), 7);
    });
}

#[test]
fn a_handle_in_one_deadline_after_the_other() {
    on_the_pool(async {
        let (open, late) = gate();
        let mut handle = task::detach(late);
        for _ in 0..3 {
            assert!(with_timeout(SHORT, &mut handle).await.is_err());
        }
        open();
        let value = loop {
            if let Ok(value) = with_timeout(SHORT, &mut handle).await {
                break value.unwrap();
            }
        };
        assert_eq!(value, 7);
    });
}

#[test]
fn a_child_that_is_bound_to_a_variable() {
    on_the_pool(async {
        let (open, late) = gate();
        let mut child = task::let_async(late);
        assert!(with_timeout(SHORT, &mut child).await.is_err());
        open();
        assert_eq!(child.await, 7);
    });
}

#[test]
fn the_next_child_of_a_group() {
    on_the_pool(task::group(async |group| {
        let (open, late) = gate();
        group.spawn(late);
        let mut next = pin!(group.next());
        assert!(with_timeout(SHORT, &mut next).await.is_err());
        open();
        assert_eq!(next.await, Some(7));
    }));
}

/// Polls a future once, and awaits it in a deadline then, which ends the wait although the future began outside. The future ends after
/// the call of `open`.
async fn begun_outside<F: Future + Unpin>(mut future: F, open: impl FnOnce()) -> F::Output {
    poll_fn(|context| {
        assert!(Pin::new(&mut future).poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    assert!(with_timeout(SHORT, &mut future).await.is_err());
    open();
    future.await
}

#[test]
fn what_began_outside_of_the_deadline() {
    let busy = ThreadPool::new(1);
    let (held, scheduler) = (hold(busy.scheduler()), busy.scheduler());
    on_the_pool(async move {
        let (open, late) = gate();
        assert_eq!(begun_outside(task::detach(late), open).await.unwrap(), 7);
        let (open, late) = gate();
        assert_eq!(begun_outside(task::let_async(late), open).await, 7);
        let queued = SenderFuture::new(scheduler.schedule().then(|()| 7));
        let Ok(seven) = begun_outside(queued, || drop(held)).await;
        assert_eq!(seven, 7);
        let (open, late) = gate();
        let Ok(seven) = begun_outside(Task::new(late).into_future(), open).await;
        assert_eq!(seven, 7);
        let (open, late) = gate();
        let nested = with_timeout(HOUR, begun_outside(task::detach(late), open)).await;
        assert_eq!(nested.unwrap().unwrap(), 7);
    });
}

/// The sender has stopped with the deadline, so the task that awaits it again stops there.
#[test]
fn a_sender_that_has_stopped_stops_the_task() {
    let task = Task::new(async {
        let mut sleep = SenderFuture::new(task::sleep(HOUR).then(|()| 7));
        assert!(with_timeout(SHORT, &mut sleep).await.is_err());
        _ = sleep.await;
        unreachable!("it does not resume");
    });
    let ended = sync_wait(starts_on(ThreadPool::global().scheduler(), task));
    assert!(ended.is_stopped());
}
