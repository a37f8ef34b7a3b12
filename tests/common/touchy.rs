//! A user-defined scheduler that panics where it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bowline::adaptors::Then;
use bowline::factories::Just;
use bowline::{Identity, Scheduler, Sender, just};

use super::{Census, Counted};

/// The payload of [`Touchy`]'s sender: it must neither leak nor be dropped twice.
type Load<const WORDS: usize> = (Counted, [usize; WORDS]);

/// An inline scheduler, one of whose methods panics from a given call on. Its operation is `WORDS` words larger than needed.
#[derive(Debug)]
pub struct Touchy<const WORDS: usize = 0> {
    method: &'static str,
    /// The number of calls of the method that succeed.
    patience: usize,
    /// Shared by all clones: their identity.
    calls: Arc<AtomicUsize>,
    census: Census,
    _counted: Counted,
}

impl<const WORDS: usize> Touchy<WORDS> {
    pub fn new(method: &'static str, census: &Census) -> Self {
        Touchy::after(0, method, census)
    }

    /// Creates a scheduler that panics when the method is called more than `patience` times.
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
