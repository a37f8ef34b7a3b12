//! A task-local value is declared as a `static`.
bowline::task_local! {
    USER: String;
}

fn main() {}
