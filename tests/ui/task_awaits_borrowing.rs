//! A future can be forgotten while other threads use its operation, which therefore must not borrow.
use bowline::prelude::*;
use bowline::task::Task;

fn main() {
    let task = Task::new(async {
        let words = vec!["hold".to_owned(), "fast".to_owned()];
        let Ok(same) = just(&words).await;
        same.len()
    });
    let _ = sync_wait(task);
}
