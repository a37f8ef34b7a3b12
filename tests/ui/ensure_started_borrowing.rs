//! A sender that runs before it is waited for must not borrow.
use bowline::prelude::*;

fn main() {
    let words = vec!["hold".to_owned(), "fast".to_owned()];
    let running = just(&words).then(|words| words.len()).ensure_started();
    let _ = sync_wait(running);
}
