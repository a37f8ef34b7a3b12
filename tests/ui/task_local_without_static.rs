//! A task-local is declared as the `static` that it is.
bowline::task_local! {
    USER: String;
}

fn main() {}
