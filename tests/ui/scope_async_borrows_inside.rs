//! A coroutine outlives the body of its scope, so it borrows only from outside.
use bowline::task;

fn main() {
    task::scope(|scope| {
        let inside = String::from("gone");
        scope.spawn_async(async {
            println!("{inside}");
        });
    });
}
