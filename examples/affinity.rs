//! Shows where each line of a task runs: always on the task's own scheduler, wherever the things that it awaits complete.

use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, ThreadPool, Timer};
use bowline::task::{self, Task};
use std::thread;
use std::time::Duration;

/// The threads of the pool are named; the main thread is called `main`.
fn place() -> &'static str {
    match thread::current().name() {
        Some("main") => "main thread",
        Some(name) if name.starts_with("pool") => "pool",
        _ => "another thread",
    }
}

fn say(line: &str) {
    println!("{:>14} | {line}", place());
}

/// A task that does not know where it runs, and need not.
fn errands() -> Task<()> {
    let away = Timer::global().schedule_after(Duration::from_millis(1));
    Task::new(async move {
        let home = place();
        say("the task begins on the scheduler that it was started on");

        let Ok(()) = just(())
            .then(|()| say("  what completes at once runs in between"))
            .await;
        say("and nothing had to be scheduled for it");

        let Ok(()) = away.then(|()| say("  a timer completes on a thread of its own")).await;
        say("but the task goes on at home");

        let Ok(()) = Task::new(async { say("  a task that is awaited shares the scheduler") }).await;
        say("so going there and back is no more than a call");
        assert_eq!(place(), home);
    })
}

fn main() {
    let pool = ThreadPool::builder()
        .threads(2)
        .names(|index| format!("pool {index}"))
        .build()
        .expect("two threads");
    let pool = pool.scheduler();

    println!("-- on the loop of the main thread");
    task::block_on(async move {
        let Ok(()) = errands().await;
        let Ok(()) = starts_on(pool, just_from(|| say("  `starts_on` goes to the pool"))).await;
        say("and the await comes back");
    });

    println!("-- on the pool");
    sync_wait(starts_on(pool, errands())).unwrap();
    say("whoever waits is where it was");

    println!("-- with the inline scheduler, which opts out: it goes on where the things it awaits complete");
    let wanders = Task::new(async move {
        say("begins here");
        Timer::global().schedule_after(Duration::from_millis(10)).await;
        say("goes on where the timer completed");
    });
    sync_wait(wanders.with_scheduler(InlineScheduler)).unwrap();
}
