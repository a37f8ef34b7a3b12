//! Calls that block, and crates that wait for the system, in tasks on tokio's threads and elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bowline::prelude::*;
use bowline_tokio::block_on;
use tokio::runtime::Handle;

use crate::common::*;

#[test]
fn a_task_on_tokios_threads_uses_the_global_pool() {
    in_time(|| {
        for runtime in [multi_thread(2), current_thread()] {
            let (there, inside, back) = block_on(&runtime, async {
                let (there, inside) = task::spawn_blocking(|_| (here(), Handle::try_current().is_ok())).await;
                (there, inside, Handle::try_current().is_ok())
            });
            assert!(there.contains("-blocking-"), "{there}");
            // The closure has no context of tokio's, and the task has it again.
            assert_eq!((inside, back), (false, true));
        }
    });
}

#[test]
fn a_closure_of_a_pool_inside_a_runtime_has_the_context() {
    in_time(|| {
        let runtime = multi_thread(1);
        let pool = bowline_tokio::pool(runtime.handle(), 1).unwrap();
        let slept = pool.scheduler().spawn_blocking(|_| {
            Handle::current().block_on(async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                here()
            })
        });
        let there = sync_wait(slept).unwrap();
        assert!(there.contains("-blocking-"), "{there}");
    });
}

#[test]
fn a_deadline_on_tokios_threads_stops_a_closure_that_looks_at_its_token() {
    in_time(|| {
        let runtime = multi_thread(1);
        let mut timeout = Duration::from_millis(5);
        loop {
            let (has_begun, has_ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (begun, end) = (has_begun.clone(), has_ended.clone());
            let at = Instant::now() + timeout;
            let closure = move |token: bowline::stop::InplaceStopToken<'_>| {
                begun.store(true, SeqCst);
                while !token.stop_requested() {
                    std::thread::yield_now();
                }
                let is_late = Instant::now() >= at;
                // Time in which an await that abandons the closure would end.
                std::thread::sleep(Duration::from_millis(5));
                end.store(true, SeqCst);
                is_late
            };
            let (ended, is_cancelled) = block_on(&runtime, async move {
                let ended = task::with_deadline(at, task::spawn_blocking(closure)).await;
                (ended, task::is_cancelled())
            });
            assert!(!is_cancelled, "the deadline is that of the closure alone");
            if has_begun.load(SeqCst) {
                assert!(has_ended.load(SeqCst), "a closure that runs is awaited");
                // It has seen the stop after the deadline, and its result is not lost.
                assert_eq!(ended, Ok(true));
                return;
            }
            // The deadline has passed before the closure began, which is dropped then. The next one has more time.
            assert_eq!(ended, Err(DeadlineExceeded));
            timeout *= 2;
        }
    });
}

#[cfg(unix)]
mod signals {
    use std::process::Command;

    use async_signal::{Signal, Signals};
    use futures_lite::StreamExt;
    use tokio::signal::unix::{SignalKind, signal};

    use super::*;

    /// Sends this process a signal that is ignored by default.
    async fn raise() {
        let sent = task::spawn_blocking(|_| {
            Command::new("kill")
                .args(["-WINCH", &std::process::id().to_string()])
                .status()
        });
        assert!(sent.await.expect("`kill` runs").success());
    }

    #[test]
    fn a_signal_of_smols_arrives_on_a_pool() {
        in_time(|| {
            let pool = ThreadPool::new(1);
            let work = Task::new(async {
                let mut signals = Signals::new([Signal::Winch]).expect("the signal is registered");
                raise().await;
                signals.next().await.map(|signal| signal.expect("a signal"))
            });
            let signal = sync_wait(starts_on(pool.scheduler(), work)).unwrap();
            assert!(matches!(signal, Some(Signal::Winch)));
        });
    }

    #[test]
    fn a_signal_of_tokios_arrives_on_its_threads() {
        in_time(|| {
            let arrived = block_on(&multi_thread(1), async {
                let mut signals = signal(SignalKind::window_change()).expect("the signal is registered");
                raise().await;
                signals.recv().await
            });
            assert_eq!(arrived, Some(()));
        });
    }
}
