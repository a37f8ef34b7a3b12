//! A task may resume on another thread, so values held across an `.await` must be `Send`.
use std::rc::Rc;

use bowline::prelude::*;
use bowline::task::Task;

fn main() {
    let task = Task::new(async {
        let shared = Rc::new(1);
        let Ok(one) = just(1).await;
        *shared + one
    });
    let _ = sync_wait(task);
}
