//! A receiver accepts exactly the completions of its sender.
use bowline::prelude::*;
use bowline::{EmptyEnv, Panic, Transfer};

struct Numbers;

impl Receiver<i32, &'static str> for Numbers {
    type Env = EmptyEnv;
    fn env(&self) -> EmptyEnv {
        EmptyEnv
    }
    fn set_value(self, _: i32) -> Transfer {
        Transfer::none()
    }
    fn set_error(self, _: &'static str) -> Transfer {
        Transfer::none()
    }
    fn set_stopped(self) -> Transfer {
        Transfer::none()
    }
    fn set_panicked(self, _: Panic) -> Transfer {
        Transfer::none()
    }
}

fn main() {
    submit(just("one"), Numbers);
}
