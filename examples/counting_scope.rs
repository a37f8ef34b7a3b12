//! A service: each request is started as it arrives, and some results are awaited. At the end the service gets some time to
//! finish and is then stopped.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::Timer;
use bowline::scope::ScopeToken;

/// The state that all requests share.
#[derive(Clone)]
struct Service {
    token: ScopeToken,
    served: Arc<AtomicUsize>,
}

impl Service {
    /// Serves a request, and then starts more work in the same scope.
    fn serve(&self, request: u64) -> Task<()> {
        let service = self.clone();
        Task::new(async move {
            Timer::global().schedule_after(Duration::from_millis(request % 5)).await;
            let served = service.served.fetch_add(1, Ordering::Relaxed) + 1;
            // Refused if the service was closed in the meantime.
            service.token.spawn(just_from(move || {
                if served.is_multiple_of(5) {
                    println!("{served} requests were served");
                }
            }));
        })
    }
}

fn main() {
    let pool = ThreadPool::global().scheduler();
    let scope = CountingScope::new();
    let service = Service {
        token: scope.token(),
        served: Arc::new(AtomicUsize::new(0)),
    };

    for request in 0..20 {
        scope.spawn(starts_on(pool, service.serve(request)));
    }

    // Work with a result.
    let report = scope.spawn_future(starts_on(pool, just_from(|| "all is well")));
    println!("report: {}", sync_wait(report).unwrap());

    // A connection that stays open until it is stopped.
    scope.spawn(starts_on(pool, never::<(), Infallible>()).upon_stopped(|| println!("the connection was closed")));

    // The service runs for a while.
    sync_wait(Timer::global().schedule_after(Duration::from_millis(20))).unwrap();

    // No new work is accepted. Running work has some time to end before it is stopped.
    scope.close();
    assert!(!scope.spawn(just(())), "a closed scope refuses");
    if !sync_wait(scope.join().timeout(Duration::from_millis(100))).is_value() {
        println!("still running: {}", scope.in_use());
        scope.request_stop();
    }
    sync_wait(scope.join()).unwrap();
    println!(
        "{} requests, and nothing is left",
        service.served.load(Ordering::Relaxed)
    );
}
