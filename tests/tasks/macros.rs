//! `#[bowline::main]`, `#[bowline::test]` and their expansion.
#![cfg(feature = "macros")]

use std::cell::Cell;
use std::convert::Infallible;
use std::error::Error;
use std::rc::Rc;
use std::thread;

use crate::common::{panic_message, passes_in_own_process};
use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::task::{self, Task};

/// Returns the thread on which a closure runs on the global pool.
fn on_the_pool<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> impl IntoFuture<Output = Result<T, Infallible>> {
    starts_on(ThreadPool::global().scheduler(), just_from(f))
}

#[bowline::test]
async fn a_test_awaits_senders_tasks_and_futures() {
    let home = thread::current().id();
    let kept = Rc::new(Cell::new(1));
    let Ok(worker) = on_the_pool(|| thread::current().id()).await;
    assert_ne!(worker, home);
    assert_eq!(thread::current().id(), home);
    let Ok(two) = Task::new(async { 2 }).await;
    kept.set(kept.get() + two + std::future::ready(3).await);
    assert_eq!(kept.get(), 6);
}

#[bowline::test]
async fn a_test_may_return_a_result() -> Result<(), Box<dyn Error>> {
    let number: i32 = "17".parse()?;
    let Ok(doubled) = just(number).then(|number| number * 2).await;
    if doubled == 34 { Ok(()) } else { Err("no".into()) }
}

#[bowline::test]
#[should_panic(expected = "as it should")]
async fn attributes_below_are_kept() {
    let Ok(()) = on_the_pool(|| ()).await;
    panic!("as it should");
}

#[should_panic(expected = "as it should")]
#[bowline::test]
async fn attributes_above_are_kept() {
    let Ok(()) = on_the_pool(|| panic!("as it should")).await;
}

#[should_panic(expected = "stopped_as_option")]
#[bowline::test]
async fn a_stop_that_nobody_sees_fails_a_test() {
    let Ok(()) = just_stopped::<(), Infallible>().await;
}

mod program {
    use std::error::Error;

    #[bowline::main]
    pub(super) async fn main() -> Result<u8, Box<dyn Error>> {
        Ok("300".parse::<u8>()?)
    }

    /// Any name works, and a return value is not needed.
    #[bowline::main]
    pub(crate) async fn another() {}

    #[bowline::main]
    pub async fn exit() -> impl std::process::Termination {
        std::process::ExitCode::SUCCESS
    }
}

#[test]
fn main_returns_what_its_body_returns() {
    let error = program::main().expect_err("it is no byte");
    assert_eq!(error.to_string(), "number too large to fit in target type");
    program::another();
    let _: std::process::ExitCode = std::process::Termination::report(program::exit());
}

/// The tokens of a macro reach the attribute in invisible groups.
macro_rules! generated {
    ($visibility:vis $name:ident $value:expr, $type:ty, $body:block) => {
        #[bowline::main]
        $visibility async fn $name() -> $type {
            $value
        }

        #[bowline::main]
        $visibility async fn with_body() -> $type $body
    };
}

generated!(pub(crate) forty_two 42, i32, { 43 });

#[test]
fn a_function_may_come_from_another_macro() {
    assert_eq!((forty_two(), with_body()), (42, 43));
}

#[test]
fn block_on_borrows_and_returns_what_cannot_be_sent() {
    let text = String::from("borrowed");
    let mut log = Vec::new();
    let shared = task::block_on(async {
        let Ok(length) = on_the_pool(|| 8).await;
        assert_eq!(length, text.len());
        log.push(length);
        Rc::new(length)
    });
    assert_eq!((*shared, log), (8, vec![8]));
}

#[test]
fn block_on_passes_a_panic_on_after_dropping_the_future() {
    let kept = Rc::new(());
    let inside = Rc::clone(&kept);
    let message = panic_message(|| {
        task::block_on(async move {
            let _inside = inside;
            let Ok(()) = on_the_pool(|| ()).await;
            panic!("out of the loop");
        })
    });
    assert_eq!(message, "out of the loop");
    assert_eq!(Rc::strong_count(&kept), 1);
}

#[test]
fn block_on_says_that_something_stopped() {
    let kept = Rc::new(());
    let inside = Rc::clone(&kept);
    let message = panic_message(|| {
        task::block_on(async move {
            let Ok(()) = just_stopped::<(), Infallible>().await;
            drop(inside);
        })
    });
    assert!(message.contains("stopped_as_option"), "{message}");
    assert_eq!(Rc::strong_count(&kept), 1);
}

#[test]
fn block_on_may_nest_and_runs_on_a_worker_of_the_pool() {
    let sum = task::block_on(async {
        let Ok(inner) = on_the_pool(|| {
            task::block_on(async {
                let Ok(two) = on_the_pool(|| 2).await;
                two + task::block_on(async { 1 })
            })
        })
        .await;
        inner
    });
    assert_eq!(sum, 3);
}

#[bowline::main(threads = 3)]
async fn three_threads() -> (usize, Option<bool>) {
    let child = task::group(async |group| {
        group.spawn(async { ThreadPool::global().worker_index().is_some() });
        group.next().await
    })
    .await;
    (ThreadPool::global().threads(), child)
}

#[bowline::main(threads = 5)]
async fn five_threads() {}

/// The global pool belongs to a process, so this test starts one of its own.
#[test]
fn main_sets_the_number_of_threads() {
    const INSIDE: &str = "BOWLINE_MAIN_THREADS";
    if std::env::var_os(INSIDE).is_none() {
        return passes_in_own_process("main_sets_the_number_of_threads", &[(INSIDE, "1")]);
    }
    assert_eq!(three_threads(), (3, Some(true)));
    // A second call finds the pool that it needs.
    assert_eq!(three_threads(), (3, Some(true)));
    let message = panic_message(five_threads);
    assert!(
        message.contains("has 3 threads already, and cannot have 5"),
        "{message}"
    );
}
