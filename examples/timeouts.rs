//! Time limits: for one attempt, for all attempts together, and with timers on a run loop.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bowline::prelude::*;
use bowline::scheduler::{RunLoop, Timer};

/// A server that is slow for its first three calls.
struct Server {
    calls: AtomicU32,
}

impl Server {
    /// Returns a call. A stop ends its timer.
    fn call(&self) -> impl Sender<Value = u32, Error = &'static str> + Clone + Send {
        just_from(|| self.calls.fetch_add(1, Ordering::Relaxed) + 1)
            .infallible_into()
            .let_value(|call| {
                let takes = Duration::from_millis(if call < 4 { 200 } else { 2 });
                let answers = Timer::global().schedule_after(takes).then(move |()| call);
                answers.infallible_into()
            })
    }
}

fn main() {
    let begin = Instant::now();
    let server = Server {
        calls: AtomicU32::new(0),
    };

    // A limit. The error type distinguishes it from an error of the call.
    match sync_wait(server.call().timeout(Duration::from_millis(20))).into_result() {
        Some(Ok(call)) => println!("call {call} was answered"),
        Some(Err(TimeoutError::Elapsed)) => println!("no answer in 20 ms"),
        Some(Err(TimeoutError::Inner(error))) => println!("the server failed: {error}"),
        None => println!("stopped"),
    }

    // A limit for each attempt, a pause after each failure, and a limit for all attempts.
    let attempt = server.call().timeout(Duration::from_millis(20)).let_error(|error| {
        let pause = Timer::global().schedule_after(Duration::from_millis(5));
        pause.infallible_into().let_value(move |()| just_error(error))
    });
    let call = sync_wait(attempt.retry().timeout(Duration::from_secs(5))).unwrap();
    println!("call {call} was answered after {} ms", begin.elapsed().as_millis());

    // Timers on a run loop need no other thread. This thread sleeps between the ticks.
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let mut ticks = 0;
    let clock = timer.schedule_after(Duration::from_millis(5)).repeat_until(|()| {
        ticks += 1;
        println!("tick {ticks}");
        false
    });
    let outcome = run_loop.run_until(clock.timeout_on(&timer, Duration::from_millis(28)));
    println!("the clock ran out of time: {}", outcome.is_error());
}
