//! A detached sender must not borrow.
use bowline::prelude::*;

fn main() {
    let words = vec!["hold".to_owned(), "fast".to_owned()];
    start_detached(just(&words).then(|words| println!("{}", words.len())));
}
