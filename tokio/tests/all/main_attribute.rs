//! `#[bowline_tokio::main]`.

use std::time::Duration;

use bowline::prelude::*;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::common::*;

#[bowline_tokio::main]
async fn plain() -> Result<bool, std::num::ParseIntError> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(Handle::current().runtime_flavor(), RuntimeFlavor::MultiThread);
    assert_eq!("7".parse::<i32>()?, 7);
    Ok(task::current().is_some())
}

#[bowline_tokio::main(threads = 3)]
async fn three_threads() -> usize {
    Handle::current().metrics().num_workers()
}

#[bowline_tokio::main(flavor = "multi_thread", threads = 1)]
async fn one_thread() -> usize {
    Handle::current().metrics().num_workers()
}

#[bowline_tokio::main(flavor = "current_thread")]
async fn on_this_thread() -> (RuntimeFlavor, String) {
    tokio::time::sleep(Duration::from_millis(1)).await;
    (Handle::current().runtime_flavor(), here())
}

#[bowline_tokio::main(threads = 1)]
async fn stops() {
    just_stopped::<(), std::convert::Infallible>().await.unwrap();
}

#[test]
fn runs_a_function_as_a_task_on_a_runtime() {
    in_time(|| {
        assert_eq!(plain(), Ok(true));
        assert_eq!(three_threads(), 3);
        assert_eq!(one_thread(), 1);
    });
    let thread = std::thread::Builder::new().name("this one".to_owned());
    let there = thread.spawn(on_this_thread).unwrap().join().unwrap();
    assert_eq!(there, (RuntimeFlavor::CurrentThread, "this one".to_owned()));
}

#[test]
fn a_stop_has_no_output() {
    let caught = in_time(|| std::panic::catch_unwind(stops).unwrap_err());
    let message = caught.downcast_ref::<&str>().expect("a message");
    assert!(message.contains("something that it awaited has stopped"), "{message}");
}
