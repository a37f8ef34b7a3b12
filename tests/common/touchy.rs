//! A scheduler of the user's own that panics where it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bowline::adaptors::Then;
use bowline::factories::Just;
use bowline::{Identity, Scheduler, Sender, just};

use super::{Census, Counted};

/// What [`Touchy`] has in its sender: it must neither leak nor be dropped twice.
type Load<const WORDS: usize> = (Counted, [usize; WORDS]);

/// A scheduler of right here that panics in one of its methods, from some call of that on. Its operation is `WORDS` words
/// larger than it need be.
#[derive(Debug)]
pub struct Touchy<const WORDS: usize = 0> {
    method: &'static str,
    /// How many calls of the method go well.
    patience: usize,
    /// All clones share it: it is what their identity is.
    calls: Arc<AtomicUsize>,
    census: Census,
    _counted: Counted,
}

impl<const WORDS: usize> Touchy<WORDS> {
    pub fn new(method: &'static str, census: &Census) -> Self {
        Touchy::after(0, method, census)
    }

    /// Panics when the method is called once more than `patience` times.
    pub fn after(patience: usize, method: &'static str, census: &Census) -> Self {
        Touchy {
            method,
            patience,
            calls: Arc::default(),
            census: census.clone(),
            _counted: census.value(),
        }
    }

    fn call(&self, method: &str) {
        if self.method == method && self.calls.fetch_add(1, SeqCst) >= self.patience {
            panic!("in {method}");
        }
    }
}

impl<const WORDS: usize> Clone for Touchy<WORDS> {
    fn clone(&self) -> Self {
        let counted = self.census.value();
        self.call("clone");
        Touchy {
            method: self.method,
            patience: self.patience,
            calls: self.calls.clone(),
            census: self.census.clone(),
            _counted: counted,
        }
    }
}

impl<const WORDS: usize> PartialEq for Touchy<WORDS> {
    fn eq(&self, _: &Self) -> bool {
        panic!("in eq");
    }
}

impl<const WORDS: usize> Scheduler for Touchy<WORDS> {
    type Schedule = Then<Just<Load<WORDS>>, fn(Load<WORDS>)>;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> Self::Schedule {
        let load = (self.census.value(), [0; WORDS]);
        self.call("schedule");
        just(load).then(drop)
    }

    fn identity(&self) -> Identity {
        self.call("identity");
        Identity::of_address(&*self.calls)
    }
}
