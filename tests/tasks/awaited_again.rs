//! Futures that are awaited in a deadline, and then again outside of it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::task::{self, SenderFuture, Task, with_timeout};

const SHORT: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_millis(500);

fn on_the_pool<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    sync_wait(starts_on(ThreadPool::global().scheduler(), Task::new(work))).unwrap()
}

async fn late() -> u32 {
    task::sleep(LONG).await;
    7
}

#[test]
fn a_handle() {
    on_the_pool(async {
        let mut handle = task::detach(late());
        assert!(with_timeout(SHORT, &mut handle).await.is_err());
        assert_eq!(handle.await.unwrap(), 7);
    });
}

#[test]
fn a_handle_in_one_deadline_after_the_other() {
    on_the_pool(async {
        let mut handle = task::detach(late());
        let mut rounds = 0;
        let value = loop {
            match with_timeout(SHORT, &mut handle).await {
                Ok(value) => break value.unwrap(),
                Err(_) => rounds += 1,
            }
        };
        assert_eq!(value, 7);
        assert!(rounds > 0);
    });
}

#[test]
fn a_child_that_is_bound_to_a_variable() {
    on_the_pool(async {
        let mut child = task::let_async(late());
        assert!(with_timeout(SHORT, &mut child).await.is_err());
        assert_eq!(child.await, 7);
    });
}

#[test]
fn the_next_child_of_a_group() {
    on_the_pool(task::group(async |group| {
        group.spawn(late());
        let mut next = pin!(group.next());
        assert!(with_timeout(SHORT, &mut next).await.is_err());
        assert_eq!(next.await, Some(7));
    }));
}

/// Polls a future once, and awaits it in a deadline then, which ends the wait although the future began outside.
async fn begun_outside<F: Future + Unpin>(mut future: F) -> F::Output {
    poll_fn(|context| {
        assert!(Pin::new(&mut future).poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    assert!(with_timeout(SHORT, &mut future).await.is_err());
    future.await
}

#[test]
fn what_began_outside_of_the_deadline() {
    on_the_pool(async {
        assert_eq!(begun_outside(task::detach(late())).await.unwrap(), 7);
        assert_eq!(begun_outside(task::let_async(late())).await, 7);
        let Ok(seven) = begun_outside(SenderFuture::new(task::sleep(LONG).then(|()| 7))).await;
        assert_eq!(seven, 7);
        let Ok(seven) = begun_outside(Task::new(late()).into_future()).await;
        assert_eq!(seven, 7);
        let nested = with_timeout(LONG * 100, begun_outside(task::detach(late()))).await;
        assert_eq!(nested.unwrap().unwrap(), 7);
    });
}

/// The sender has stopped with the deadline, so the task that awaits it again stops there.
#[test]
fn a_sender_that_has_stopped_stops_the_task() {
    let task = Task::new(async {
        let mut sleep = SenderFuture::new(task::sleep(LONG).then(|()| 7));
        assert!(with_timeout(SHORT, &mut sleep).await.is_err());
        _ = sleep.await;
        unreachable!("it does not resume");
    });
    let ended = sync_wait(starts_on(ThreadPool::global().scheduler(), task));
    assert!(ended.is_stopped());
}
