//! A context provides what can be made of an environment.
use bowline::prelude::*;
use bowline::task::{Providing, Task};

#[derive(Clone)]
struct Label(String);

fn main() {
    let task = Task::builder().context::<Providing<Label>>().task(async { 1 });
    let _ = sync_wait(task);
}
