//! A shared operation lives on the heap, and must not borrow.
use bowline::prelude::*;

fn main() {
    let words = vec!["hold".to_owned(), "fast".to_owned()];
    let shared = just_from(|| words.len()).split();
    let _ = sync_wait(shared);
}
