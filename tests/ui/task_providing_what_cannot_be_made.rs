//! A context provides values that can be created from an environment.
use bowline::prelude::*;
use bowline::task::{Providing, Task};

#[derive(Clone)]
struct Label(String);

fn main() {
    let task = Task::builder().context::<Providing<Label>>().task(async { 1 });
    let _ = sync_wait(task);
}
