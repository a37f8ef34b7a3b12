//! A first task and a first program of tasks.
//!
//! A task is an `async` block that is a sender. Other tasks can await it, every adaptor works on it, and it starts on any
//! scheduler.

use bowline::prelude::*;
use std::num::ParseIntError;

/// A task is a value: nothing runs before it is awaited or started.
fn hello() -> Task<i32> {
    Task::new(async {
        println!("hello, world");
        let Ok(zero) = just(0).await;
        zero
    })
}

/// `?` gives a task a typed error.
fn sum(numbers: &'static str) -> Task<i32, ParseIntError> {
    Task::try_new(async move {
        let mut sum = 0;
        for number in numbers.split(' ') {
            sum += number.parse::<i32>()?;
        }
        Ok(sum)
    })
}

#[bowline::main]
async fn main() -> Result<(), ParseIntError> {
    let Ok(zero) = hello().await;
    println!("it returned {zero}");

    // Two tasks run concurrently on the pool. `main` continues on its own thread when both have completed.
    let pool = ThreadPool::global().scheduler();
    let both = when_all((starts_on(pool, sum("1 2 3")), starts_on(pool, sum("4 5 6"))));
    let (low, high) = both.await?;
    println!("the sums are {low} and {high}");

    match sum("7 eight").await {
        Ok(sum) => println!("the sum is {sum}"),
        Err(error) => println!("no sum: {error}"),
    }

    // Outside of a task, `sync_wait` runs a task to completion.
    std::thread::spawn(|| sync_wait(hello()))
        .join()
        .expect("the task does not panic")
        .unwrap();
    Ok(())
}
