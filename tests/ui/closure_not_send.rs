//! A function may be called on another thread, so its captures must be `Send`.
use bowline::prelude::*;
use std::rc::Rc;

fn main() {
    let one = Rc::new(1);
    let _ = sync_wait(just(1).then(move |x| x + *one));
}
