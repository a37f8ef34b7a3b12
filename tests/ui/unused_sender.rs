//! An unstarted sender does nothing, so the compiler warns about it.
#![deny(unused_must_use)]

use bowline::prelude::*;

fn save(name: &str) -> impl Sender<Value = usize, Error = std::convert::Infallible> {
    just(name.len())
}

fn main() {
    just(1).then(|x| x + 1);
    when_all((just(1), just(2)));
    save("draft");
}
