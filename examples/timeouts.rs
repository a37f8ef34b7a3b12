//! Limits in time: how long one attempt may take, how long all of them, and what happens meanwhile.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bowline::prelude::*;
use bowline::scheduler::{RunLoop, Timer};

/// A server that answers later every time it is asked, until it is quick.
struct Server {
    calls: AtomicU32,
}

impl Server {
    /// One call. What it waits with is stopped when nobody waits for the answer any more.
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

    // A limit. What fails because of it can be told from what fails by itself.
    match sync_wait(server.call().timeout(Duration::from_millis(20))).into_result() {
        Some(Ok(call)) => println!("call {call} was answered"),
        Some(Err(TimeoutError::Elapsed)) => println!("no answer in 20 ms"),
        Some(Err(TimeoutError::Inner(error))) => println!("the server says: {error}"),
        None => println!("stopped"),
    }

    // A limit for each attempt, a pause after each that failed, and a limit for all of them.
    let attempt = server.call().timeout(Duration::from_millis(20)).let_error(|error| {
        let pause = Timer::global().schedule_after(Duration::from_millis(5));
        pause.infallible_into().let_value(move |()| just_error(error))
    });
    let call = sync_wait(attempt.retry().timeout(Duration::from_secs(5))).unwrap();
    println!("call {call} was answered after {} ms", begin.elapsed().as_millis());

    // Timers on a run loop: no other thread is involved, and this one sleeps in between.
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
