//! A clean-up cannot fail.
use bowline::prelude::*;

fn main() {
    let _ = sync_wait(just(1).finally(just_error::<(), &str>("no")));
}
