//! Cancellation to and from `CancellationToken`.

use std::convert::Infallible;
use std::time::Duration;

use bowline::prelude::*;
use bowline_tokio::{StopFollowing, block_on, with_cancellation_token};
use tokio_util::sync::CancellationToken;

use crate::common::*;

#[test]
fn a_stop_follows_a_token() {
    in_time(|| {
        let token = CancellationToken::new();
        let stop = StopFollowing::new(token.clone());
        assert!(!stop.stop_requested());
        let waits = std::thread::spawn({
            let stop = stop.token();
            move || sync_wait(never::<(), Infallible>().write_env(WithStopToken(stop)))
        });
        std::thread::sleep(Duration::from_millis(5));
        token.cancel();
        assert!(waits.join().unwrap().is_stopped());
        assert!(stop.stop_requested());
        // One that is cancelled already stops at once, and so does the child of a token.
        assert!(StopFollowing::new(token.clone()).stop_requested());
        assert!(StopFollowing::new(token.child_token()).stop_requested());
        assert_eq!(format!("{stop:?}"), "StopFollowing { stop_requested: true, .. }");
    });
}

#[test]
fn a_dropped_stop_does_not_follow() {
    let token = CancellationToken::new();
    let stop = StopFollowing::new(token.clone());
    let source = stop.token();
    drop(stop);
    token.cancel();
    assert!(!source.stop_requested());
}

#[test]
fn following_races_with_cancelling() {
    in_time(|| {
        for _ in 0..500 {
            let token = CancellationToken::new();
            let canceller = std::thread::spawn({
                let token = token.clone();
                move || token.cancel()
            });
            let stop = StopFollowing::new(token);
            canceller.join().unwrap();
            assert!(stop.stop_requested());
        }
    });
}

#[test]
fn a_token_is_cancelled_with_the_task() {
    in_time(|| {
        let runtime = multi_thread(2);
        let told = block_on(&runtime, async {
            task::group(async |group| {
                let (begin, begun) = tokio::sync::oneshot::channel();
                group.spawn(async {
                    with_cancellation_token(async move |token| {
                        assert!(!token.is_cancelled());
                        begin.send(()).unwrap();
                        // A task of tokio's, which knows nothing of the group.
                        tokio::spawn(async move {
                            token.cancelled().await;
                            "told"
                        })
                        .await
                        .unwrap()
                    })
                    .await
                });
                begun.await.unwrap();
                group.cancel_all();
                group.next().await
            })
            .await
        });
        assert_eq!(told, Some("told"));
    });
}

#[test]
fn a_token_is_not_cancelled_by_the_end_of_its_operation() {
    let kept = sync_wait(Task::new(with_cancellation_token(async |token| token))).unwrap();
    assert!(!kept.is_cancelled());
}
