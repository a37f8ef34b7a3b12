//! Shows which thread runs each line of a task: always one of the task's scheduler, wherever its awaits complete.

use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, Timer};
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

/// A task that is independent of its scheduler.
fn errands() -> Task<()> {
    let away = Timer::global().schedule_after(Duration::from_millis(1));
    Task::new(async move {
        let home = place();
        say("the task begins on the scheduler on which it was started");

        let Ok(()) = just(())
            .then(|()| say("  a ready sender completes inside `start`"))
            .await;
        say("and the task continues without being scheduled");

        let Ok(()) = away.then(|()| say("  a timer completes on its own thread")).await;
        say("but the task continues on its scheduler");

        let Ok(()) = Task::new(async { say("  an awaited task runs on the same scheduler") }).await;
        say("so awaiting it schedules nothing");
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
        let Ok(()) = starts_on(pool, just_from(|| say("  `starts_on` runs work on the pool"))).await;
        say("and the await returns to the main thread");
    });

    println!("-- on the pool");
    sync_wait(starts_on(pool, errands())).unwrap();
    say("the waiting thread stays where it was");

    println!("-- on the inline scheduler: the task continues where its awaits complete");
    let wanders = Task::new(async move {
        say("the task begins on the calling thread");
        Timer::global().schedule_after(Duration::from_millis(10)).await;
        say("and continues on the thread of the timer");
    });
    sync_wait(wanders.with_scheduler(InlineScheduler)).unwrap();
}
